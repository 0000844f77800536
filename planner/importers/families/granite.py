"""Granite: Llama with factors of embedding, attention, what is added, and logits."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from planner.errors import CorruptModel
from planner.importers.architecture import Architecture
from planner.importers.families.family import Family, Said, Source
from planner.importers.families.llama import of_folder, of_gguf
from planner.importers.families.names import FOLDER, GGUF


def _inverse(said: Said, key: str) -> float:
    value = said.real(key, 1.0)
    if value <= 0:
        raise CorruptModel(f"{said.where}: {key} should be above 0, is {value}")
    return 1 / value


def _of_gguf(a: Architecture, said: Said) -> Architecture:
    return replace(
        of_gguf(a, said),
        embedding_scale=said.real("embedding_scale", 1.0),
        residual_scale=said.real("residual_scale", 1.0),
        attention_scale=said.real("attention.scale", 0.0) or None,
        logit_scale=_inverse(said, "logit_scale"),
    )


def _of_folder(a: Architecture, said: Said) -> Architecture:
    return replace(
        of_folder(a, said),
        embedding_scale=said.real("embedding_multiplier", 1.0),
        residual_scale=said.real("residual_multiplier", 1.0),
        attention_scale=said.real("attention_multiplier", 1.0),
        logit_scale=_inverse(said, "logits_scaling"),
    )


GRANITE: Final = Family(
    title="Granite 3.0 to 3.3 (dense)",
    apart="factors of embedding, scores, what is added, and logits",
    gguf=Source(("granite",), GGUF, _of_gguf, interleaved=True),
    folder=Source(("granite",), FOLDER, _of_folder),
)
