"""gpt-oss: experts with biases and a limited SiLU, sinks beside the scores of every second block's window."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from planner.errors import UnknownArchitecture
from planner.importers.architecture import Architecture, BlockKind
from planner.importers.families.family import Family, Names, Part, Place, Said, Source
from planner.importers.families.llama import EXPERTS_OF_GGUF
from planner.importers.families.names import FOLDER

ALPHA: Final = 1.702
LIMIT: Final = 7.0
WINDOWS: Final = ("sliding_attention", "full_attention")  # by turns
_EXPERTS: Final = "model.layers.{block}.mlp.experts"


def _half(first: int) -> Part:
    """Every second row of gate and up, which alternate."""
    return Part(lambda a: 2 * a.ffn, lambda a: np.arange(first, 2 * a.ffn, 2, dtype=np.intp))


_NAMES: Final[Names] = {
    **FOLDER,
    "attn.sinks": "model.layers.{block}.self_attn.sinks",
    "ffn.router": "model.layers.{block}.mlp.router.weight",
    "ffn.router_bias": "model.layers.{block}.mlp.router.bias",
    "ffn.gate_e": Place(f"{_EXPERTS}.gate_up_proj", _half(0), transposed=True, stacked=True),
    "ffn.up_e": Place(f"{_EXPERTS}.gate_up_proj", _half(1), transposed=True, stacked=True),
    "ffn.down_e": Place(f"{_EXPERTS}.down_proj", transposed=True, stacked=True),
    "ffn.gate_bias_e": Place(f"{_EXPERTS}.gate_up_proj_bias", _half(0), stacked=True),
    "ffn.up_bias_e": Place(f"{_EXPERTS}.gate_up_proj_bias", _half(1), stacked=True),
    "ffn.down_bias_e": Place(f"{_EXPERTS}.down_proj_bias", stacked=True),
}
_GGUF_NAMES: Final[Names] = {
    **EXPERTS_OF_GGUF,
    "attn.sinks": "blk.{block}.attn_sinks.weight",
    "ffn.norm": "blk.{block}.post_attention_norm.weight",
    "ffn.router_bias": "blk.{block}.ffn_gate_inp.bias",
    "ffn.gate_bias_e": Place("blk.{block}.ffn_gate_exps.bias", stacked=True),
    "ffn.up_bias_e": Place("blk.{block}.ffn_up_exps.bias", stacked=True),
    "ffn.down_bias_e": Place("blk.{block}.ffn_down_exps.bias", stacked=True),
}


def _features(a: Architecture, experts: int, chosen: int, window: int) -> Architecture:
    return replace(
        a,
        qkv_bias=True,
        o_bias=True,
        sinks=True,
        experts=experts,
        experts_chosen=chosen,
        experts_normed=True,
        router_bias=True,
        expert_bias=True,
        expert_alpha=ALPHA,
        expert_limit=LIMIT,
        pattern=(BlockKind(window or None), BlockKind()),
    )


def _of_gguf(a: Architecture, said: Said) -> Architecture:
    a = replace(a, ffn=said.whole("expert_feed_forward_length"))
    if a.rope_scaling is not None:  # the model's own configuration says so, of which the file keeps nothing
        a = replace(a, rope_scaling=replace(a.rope_scaling, truncate=False))
    return _features(
        a, said.whole("expert_count"), said.whole("expert_used_count"), said.whole("attention.sliding_window")
    )


def _of_folder(a: Architecture, said: Said) -> Architecture:
    layers = said.words("layer_types")
    if layers is not None and layers != tuple(WINDOWS[block % 2] for block in range(a.blocks)):
        raise UnknownArchitecture(
            f"{said.where}: expected layer_types {' and '.join(WINDOWS)} by turns; this variant is not supported"
        )
    if not said.flag("attention_bias", True):
        raise UnknownArchitecture(
            f"{said.where}: attention with biases expected; this variant is not supported"
        )
    a = _features(
        a,
        said.whole("num_local_experts"),
        said.whole("num_experts_per_tok"),
        said.whole("sliding_window", 0),
    )
    return replace(
        a, expert_limit=said.real("swiglu_limit", LIMIT), expert_alpha=said.real("swiglu_alpha", ALPHA)
    )


GPT_OSS: Final = Family(
    title="gpt-oss",
    apart="experts in MXFP4 with biases and a limited SiLU, sinks, every second block looks at a window, YaRN",
    gguf=Source(("gpt-oss",), _GGUF_NAMES, _of_gguf),
    folder=Source(("gpt_oss",), _NAMES, _of_folder),
    head_size=64,
)
