"""OLMo 2: norms of what is added instead of what is taken, and of whole rows of q and k."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from planner.importers.architecture import Architecture
from planner.importers.families.family import Family, Said, Source
from planner.importers.families.names import FOLDER, GGUF


def _features(a: Architecture, said: Said) -> Architecture:
    return replace(a, norm_before=False, norm_after=True, qk_norm=True, head_norm="row")


OLMO2: Final = Family(
    title="OLMo 2",
    apart="norms behind attention and feed-forward, norm on rows of q and k",
    gguf=Source(("olmo2",), GGUF, _features),
    folder=Source(
        ("olmo2",),
        {
            **FOLDER,
            "attn.after": "model.layers.{block}.post_attention_layernorm.weight",
            "ffn.after": "model.layers.{block}.post_feedforward_layernorm.weight",
        },
        _features,
    ),
)
