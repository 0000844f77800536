"""Llama and its closest relatives: RMS norms, rotary embedding of whole heads, a gated SiLU."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from planner.importers.architecture import Architecture
from planner.importers.families.family import Family, Said, Source, within
from planner.importers.families.names import FOLDER, GGUF


def of_gguf(a: Architecture, said: Said) -> Architecture:
    """Biases and norms of heads where there are tensors of them; no more context than a window has."""
    return replace(
        within(a, said.whole("attention.sliding_window", 0)),
        qkv_bias=said.has_tensor("blk.0.attn_q.bias"),
        qk_norm=said.has_tensor("blk.0.attn_q_norm.weight"),
    )


def of_folder(a: Architecture, said: Said) -> Architecture:
    """The same; only Mistral's window is there without being asked for."""
    slides = said.flag("use_sliding_window", a.family == "mistral")
    return replace(
        within(a, said.whole("sliding_window", 0) if slides else 0),
        qkv_bias=said.has_tensor("model.layers.0.self_attn.q_proj.bias"),
        qk_norm=said.has_tensor("model.layers.0.self_attn.q_norm.weight"),
    )


LLAMA: Final = Family(
    title="Llama 2, 3, 3.1, 3.2; SmolLM, SmolLM2; Mistral",
    apart="",
    gguf=Source(("llama",), GGUF, of_gguf, interleaved=True),
    folder=Source(("llama", "mistral"), FOLDER, of_folder),
)
QWEN2: Final = Family(
    title="Qwen2, Qwen2.5",
    apart="bias on q, k and v",
    gguf=Source(("qwen2",), GGUF, of_gguf),
    folder=Source(("qwen2",), FOLDER, of_folder),
)
QWEN3: Final = Family(
    title="Qwen3",
    apart="norm on q and k",
    gguf=Source(("qwen3",), GGUF, of_gguf),
    folder=Source(("qwen3",), FOLDER, of_folder),
    head_size=128,
)
