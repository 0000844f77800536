"""Falcon: halves of a block side by side, one key/value head for many query heads, no biases."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from planner.errors import UnknownArchitecture
from planner.importers.architecture import Architecture
from planner.importers.families.family import GROUPED, STACKED, Family, Names, Said, Source, fused
from planner.importers.families.names import GGUF

_LAYER: Final = "transformer.h.{block}"
_FOLDER: Final[Names] = {
    "embed.weight": "transformer.word_embeddings.weight",
    "head.norm": "transformer.ln_f.weight",
    "head.norm_bias": "transformer.ln_f.bias",
    "head.weight": "lm_head.weight",
    "attn.norm": f"{_LAYER}.input_layernorm.weight",
    "attn.norm_bias": f"{_LAYER}.input_layernorm.bias",
    **fused(GROUPED, "attn", f"{_LAYER}.self_attention.query_key_value"),
    "attn.o": f"{_LAYER}.self_attention.dense.weight",
    "ffn.up": f"{_LAYER}.mlp.dense_h_to_4h.weight",
    "ffn.down": f"{_LAYER}.mlp.dense_4h_to_h.weight",
}
_TWO_NORMS: Final[Names] = {
    "attn.norm": f"{_LAYER}.ln_attn.weight",
    "attn.norm_bias": f"{_LAYER}.ln_attn.bias",
    "ffn.norm": f"{_LAYER}.ln_mlp.weight",
    "ffn.norm_bias": f"{_LAYER}.ln_mlp.bias",
}
_TWO_NORMS_GGUF: Final[Names] = {
    "attn.norm": "blk.{block}.attn_norm_2.weight",
    "attn.norm_bias": "blk.{block}.attn_norm_2.bias",
    "ffn.norm": "blk.{block}.attn_norm.weight",
    "ffn.norm_bias": "blk.{block}.attn_norm.bias",
}


def _features(a: Architecture, one_norm: bool) -> Architecture:
    return replace(a, norm="layer", norm_bias=True, parallel=True, one_norm=one_norm, gated=False)


def _of_gguf(a: Architecture, said: Said) -> Architecture:
    return _features(a, not said.has_tensor("blk.0.attn_norm_2.weight"))


def _of_folder(a: Architecture, said: Said) -> Architecture:
    newer = said.flag("new_decoder_architecture", False)
    if said.flag("alibi", False) or said.flag("bias", False):
        raise UnknownArchitecture(
            f"{said.where}: Falcon with rotary embedding and without biases expected, got alibi or biases; "
            "this variant is not supported"
        )
    if not newer and not said.flag("parallel_attn", True):
        raise UnknownArchitecture(
            f"{said.where}: Falcon with attention and feed-forward side by side expected; "
            "this variant is not supported"
        )
    if newer:
        a = replace(a, kv_heads=said.whole("num_kv_heads", a.heads))
    else:
        a = replace(a, kv_heads=1 if said.flag("multi_query", True) else a.heads)
    return _features(a, not newer or said.whole("num_ln_in_parallel_attn", 2) == 1)


FALCON: Final = Family(
    title="Falcon (7B, 11B, 40B, 180B)",
    apart="attention and feed-forward side by side, few key/value heads, GELU without gate",
    gguf=Source(
        ("falcon",),
        {**GGUF, **fused(STACKED, "attn", "blk.{block}.attn_qkv")},
        _of_gguf,
        keys={"attention.layer_norm_rms_epsilon": "attention.layer_norm_epsilon"},
        variant=lambda a: {} if a.one_norm else _TWO_NORMS_GGUF,
    ),
    folder=Source(
        ("falcon",),
        _FOLDER,
        _of_folder,
        keys={
            "rms_norm_eps": "layer_norm_epsilon",
            "intermediate_size": "ffn_hidden_size",
            "hidden_act": "activation",
        },
        variant=lambda a: {} if a.one_norm else _TWO_NORMS,
    ),
    activations=("gelu", "gelu_tanh"),
    ffn=4,
    context=2048,
)
