"""Llama and its closest relatives: RMS norms, rotary embedding of whole heads, a gated SiLU."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from planner.importers.architecture import Architecture
from planner.importers.families.family import Family, Names, Place, Said, Source, within
from planner.importers.families.names import FOLDER, GGUF

EXPERTS_OF_GGUF: Final[Names] = {
    **GGUF,
    "ffn.router": "blk.{block}.ffn_gate_inp.weight",
    "ffn.gate_e": Place("blk.{block}.ffn_gate_exps.weight", stacked=True),
    "ffn.up_e": Place("blk.{block}.ffn_up_exps.weight", stacked=True),
    "ffn.down_e": Place("blk.{block}.ffn_down_exps.weight", stacked=True),
    "ffn.shared_gate": "blk.{block}.ffn_gate_shexp.weight",
    "ffn.shared_up": "blk.{block}.ffn_up_shexp.weight",
    "ffn.shared_down": "blk.{block}.ffn_down_shexp.weight",
    "ffn.shared_share": "blk.{block}.ffn_gate_inp_shexp.weight",
}


def with_experts(a: Architecture, said: Said, normed: bool) -> Architecture:
    """The experts that a GGUF file counts; `normed`: shares of those that are chosen add up to 1."""
    count = said.whole("expert_count", 0)
    if not count:
        return a
    return replace(a, experts=count, experts_chosen=said.whole("expert_used_count"), experts_normed=normed)


def _llama_of_gguf(a: Architecture, said: Said) -> Architecture:
    return with_experts(of_gguf(a, said), said, normed=True)  # Mixtral goes by the same name


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
    gguf=Source(("llama",), EXPERTS_OF_GGUF, _llama_of_gguf, interleaved=True),
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
