"""Phi-3 and Phi-4: q, k, v in one tensor, gate and up in another, rotary frequencies of two sets by length."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from planner.errors import CorruptModel
from planner.importers.architecture import Architecture
from planner.importers.families.family import (
    GATE_UP,
    STACKED,
    Family,
    Said,
    Source,
    every_block,
    fused,
)
from planner.importers.families.names import FOLDER, GGUF


def _short(
    a: Architecture, said: Said, original: int, factors: tuple[float, ...], loud: float
) -> Architecture:
    """The model as it is up to `original` tokens: behind, it would turn all positions by other frequencies."""
    if len(factors) != a.rope_dims // 2 or min(factors, default=0.0) <= 0:
        raise CorruptModel(
            f"{said.where}: expected {a.rope_dims // 2} short rotary factors above 0, got {len(factors)}"
        )
    return replace(a, context=min(a.context, original), rope_factors=factors, rope_amplitude=loud)


def _of_gguf(a: Architecture, said: Said) -> Architecture:
    a = every_block(a, said.whole("attention.sliding_window", 0))
    factors = said.reals("rope_factors_short.weight")
    if factors is None:
        return a
    original = said.whole("rope.scaling.original_context_length", a.context)
    return _short(a, said, original, factors, said.real("rope.scaling.attn_factor", 1.0))


def _of_folder(a: Architecture, said: Said) -> Architecture:
    a = every_block(a, said.whole("sliding_window", 0))
    scaling = said.rope()
    factors = None if scaling is None else scaling.reals("short_factor")
    if scaling is None or factors is None:
        return a
    stated = said.whole("original_max_position_embeddings", a.context)
    original = scaling.whole("original_max_position_embeddings", stated)
    if original < 2:
        raise CorruptModel(f"{said.where}: expected original_max_position_embeddings above 1, got {original}")
    longer = a.context / original
    loud = math.sqrt(1 + math.log(longer) / math.log(original)) if longer > 1 else 1.0
    return _short(a, said, original, factors, scaling.real("attention_factor", loud))


PHI3: Final = Family(
    title="Phi-3, Phi-3.5, Phi-4 (not mixtures)",
    apart="fused q, k, v and gate, up; longrope up to the length of its short factors; heads may turn in part",
    gguf=Source(
        ("phi3",),
        {
            **GGUF,
            **fused(STACKED, "attn", "blk.{block}.attn_qkv"),
            **fused(GATE_UP, "ffn", "blk.{block}.ffn_up"),
        },
        _of_gguf,
        ignored=(r"rope_factors_(long|short)\.weight",),
    ),
    folder=Source(
        ("phi3",),
        {
            **FOLDER,
            **fused(STACKED, "attn", "model.layers.{block}.self_attn.qkv_proj"),
            **fused(GATE_UP, "ffn", "model.layers.{block}.mlp.gate_up_proj"),
        },
        _of_folder,
    ),
    partial=True,
    scalings=("longrope", "su", "yarn"),
)
