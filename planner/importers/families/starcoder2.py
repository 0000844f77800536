"""StarCoder 2: layer norms, biases everywhere, a feed-forward without gate."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from planner.importers.architecture import Architecture
from planner.importers.families.family import Family, Said, Source, every_block
from planner.importers.families.names import FOLDER, GGUF


def _features(a: Architecture, biased: bool) -> Architecture:
    return replace(
        a, norm="layer", norm_bias=True, gated=False, qkv_bias=biased, o_bias=biased, ffn_bias=biased
    )


def _of_gguf(a: Architecture, said: Said) -> Architecture:
    windowed = every_block(a, said.whole("attention.sliding_window", 0))
    return _features(windowed, said.has_tensor("blk.0.ffn_up.bias"))


def _of_folder(a: Architecture, said: Said) -> Architecture:
    return _features(every_block(a, said.whole("sliding_window", 0)), said.flag("use_bias", True))


STARCODER2: Final = Family(
    title="StarCoder 2",
    apart="layer norms, biases, tanh GELU without gate",
    gguf=Source(
        ("starcoder2",),
        GGUF,
        _of_gguf,
        keys={"attention.layer_norm_rms_epsilon": "attention.layer_norm_epsilon"},
    ),
    folder=Source(
        ("starcoder2",),
        {
            **FOLDER,
            "ffn.up": "model.layers.{block}.mlp.c_fc.weight",
            "ffn.up_bias": "model.layers.{block}.mlp.c_fc.bias",
            "ffn.down": "model.layers.{block}.mlp.c_proj.weight",
            "ffn.down_bias": "model.layers.{block}.mlp.c_proj.bias",
        },
        _of_folder,
        keys={"rms_norm_eps": "norm_epsilon"},
    ),
    activations=("gelu_tanh", "gelu"),
)
