"""Gemma 2 and 3: norms around each half of a block, windows by turns, scaled embedding, soft caps or normed heads."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from planner.errors import CorruptModel, UnknownArchitecture
from planner.importers.architecture import Architecture, BlockKind, RopeScaling
from planner.importers.families.family import Family, Place, Said, Source
from planner.importers.families.names import FOLDER, GGUF

WHOLE_EVERY_2: Final = 2  # blocks of Gemma 2: one of so many looks at everything
WHOLE_EVERY_3: Final = 6
LOCAL_BASE: Final = 10_000.0  # of rotary embedding in blocks of Gemma 3 that look at a window
LARGEST_2, LARGEST_3 = 46, 62  # blocks of the 27B models, whose scores are scaled by another number


def _gemma(a: Architecture) -> Architecture:
    """What both have. The embedding's factor is float32, as in llama.cpp and in transformers' float32."""
    scale = float(np.sqrt(np.float32(a.hidden)))
    return replace(a, norm_after=True, embedding_scale=scale)


def _attention(a: Architecture, scalar: float) -> Architecture:
    """`scalar`: by whose root scores are divided."""
    return a if scalar == a.head_size else replace(a, attention_scale=scalar**-0.5)


def _by_turns(a: Architecture, window: int, whole_every: int, tables: tuple[int, int]) -> Architecture:
    """Every `whole_every`th block is whole, the others look at a window; `tables`: rotary ones of both kinds."""
    local, whole = tables
    kinds = [BlockKind(window, local)] * (whole_every - 1)
    return replace(a, pattern=(*kinds, BlockKind(None, whole)))


def _capped(a: Architecture, attention: float, logits: float) -> Architecture:
    return replace(a, attention_softcap=attention or None, logit_softcap=logits or None)


def _of_gguf_2(a: Architecture, said: Said) -> Architecture:
    a = _capped(_gemma(a), said.real("attn_logit_softcapping"), said.real("final_logit_softcapping"))
    scalar = a.hidden // a.heads if a.blocks == LARGEST_2 else a.head_size
    window = said.whole("attention.sliding_window")
    return _by_turns(_attention(a, scalar), window, WHOLE_EVERY_2, (0, 0))


def _of_gguf_3(a: Architecture, said: Said) -> Architecture:
    a = _capped(_gemma(a), 0.0, said.real("final_logit_softcapping", 0.0))
    scalar = a.hidden // a.heads if a.blocks == LARGEST_3 else a.head_size
    base = said.real("rope.freq_base_swa", LOCAL_BASE)
    a = replace(_attention(a, scalar), qk_norm=True, rope_base_1=base)
    every = said.whole("attention.sliding_window_pattern", WHOLE_EVERY_3)
    return _by_turns(a, said.whole("attention.sliding_window"), _checked(every, said), (1, 0))


def _of_folder_2(a: Architecture, said: Said) -> Architecture:
    a = _capped(
        _gemma(a), said.real("attn_logit_softcapping", 50.0), said.real("final_logit_softcapping", 30.0)
    )
    a = _without_bias(_attention(a, said.real("query_pre_attn_scalar", 256.0)), said)
    return _by_turns(a, said.whole("sliding_window", 4096), _every(a, said, WHOLE_EVERY_2), (0, 0))


def _of_folder_3(a: Architecture, said: Said) -> Architecture:
    a = _capped(
        _gemma(a), said.real("attn_logit_softcapping", 0.0), said.real("final_logit_softcapping", 0.0)
    )
    a = _without_bias(_attention(a, said.real("query_pre_attn_scalar", 256.0)), said)
    a = replace(_with_bases(a, said), qk_norm=True)
    return _by_turns(a, said.whole("sliding_window", 4096), _every(a, said, WHOLE_EVERY_3), (1, 0))


def _with_bases(a: Architecture, said: Said) -> Architecture:
    """Both spellings: rope_local_base_freq beside rope_theta, and the newer rope_parameters by kind of block."""
    rope = said.rope()
    whole, local = (rope.within("full_attention"), rope.within("sliding_attention")) if rope else (None, None)
    if whole is None or local is None:
        base = said.real("rope_theta", 1_000_000.0)
        return replace(a, rope_base=base, rope_base_1=said.real("rope_local_base_freq", LOCAL_BASE))
    if local.word("rope_type", "default") != "default":
        raise UnknownArchitecture(
            f"{said.where}: expected rotary embedding without scaling in blocks with a window; this variant is "
            "not supported"
        )
    kind, scaling = whole.word("rope_type", "default"), None
    if kind == "linear":
        scaling = RopeScaling("linear", whole.real("factor"))
    elif kind != "default":
        raise UnknownArchitecture(
            f"{said.where}: rope scaling {kind[:80]!r} is not supported here; known are default and linear"
        )
    base, base_1 = whole.real("rope_theta", 1_000_000.0), local.real("rope_theta", LOCAL_BASE)
    return replace(a, rope_base=base, rope_base_1=base_1, rope_scaling=scaling)


def _without_bias(a: Architecture, said: Said) -> Architecture:
    if said.flag("attention_bias", False) or said.flag("use_bidirectional_attention", False):
        raise UnknownArchitecture(
            f"{said.where}: attention without bias that looks back alone expected; this variant is not supported"
        )
    return a


def _every(a: Architecture, said: Said, usual: int) -> int:
    """One of how many blocks is whole, by layer_types where there are some."""
    every = _checked(said.whole("sliding_window_pattern", usual), said)
    layers = said.words("layer_types")
    if layers is None:
        return every
    if "full_attention" in layers:
        every = layers.index("full_attention") + 1
    if list(layers) != _layer_types(a.blocks, every):
        raise UnknownArchitecture(
            f"{said.where}: expected one of so many layer_types to be full_attention and others sliding_attention; "
            "this variant is not supported"
        )
    return every


def _layer_types(blocks: int, every: int) -> list[str]:
    return ["full_attention" if (i + 1) % every == 0 else "sliding_attention" for i in range(blocks)]


def _checked(every: int, said: Said) -> int:
    if every < 1:
        raise CorruptModel(f"{said.where}: expected a whole block in every 1 or more, got {every}")
    return every


# Norms multiply by 1 + weight; a GGUF file has the sums.
_NORMS: Final = {
    "attn.norm": "model.layers.{block}.input_layernorm.weight",
    "attn.after": "model.layers.{block}.post_attention_layernorm.weight",
    "attn.q_norm": "model.layers.{block}.self_attn.q_norm.weight",
    "attn.k_norm": "model.layers.{block}.self_attn.k_norm.weight",
    "ffn.norm": "model.layers.{block}.pre_feedforward_layernorm.weight",
    "ffn.after": "model.layers.{block}.post_feedforward_layernorm.weight",
    "head.norm": "model.norm.weight",
}
_FOLDER: Final = {**FOLDER, **{ours: Place(name, shift=1.0) for ours, name in _NORMS.items()}}
_KEYS: Final = {"hidden_act": "hidden_activation"}

GEMMA2: Final = Family(
    title="Gemma 2",
    apart="norms before and after, soft caps, every second block looks at a window, scaled embedding",
    gguf=Source(("gemma2",), GGUF, _of_gguf_2),
    folder=Source(("gemma2",), _FOLDER, _of_folder_2, keys=_KEYS),
    activations=("gelu_tanh",),
    head_size=256,
)
GEMMA3: Final = Family(
    title="Gemma 3 (text)",
    apart="as Gemma 2 without caps; norm on q and k, five of six blocks look at a window with a rope base of their own",
    gguf=Source(("gemma3",), GGUF, _of_gguf_3),
    folder=Source(("gemma3_text",), _FOLDER, _of_folder_3, keys=_KEYS),
    activations=("gelu_tanh",),
    head_size=256,
)
