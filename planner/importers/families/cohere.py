"""Command R and its successors: halves of a block side by side, layer norms without bias, scaled logits."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from planner.errors import CorruptModel, UnknownArchitecture
from planner.importers.architecture import Architecture, BlockKind
from planner.importers.families.family import Family, Said, Source
from planner.importers.families.names import FOLDER, GGUF

WHOLE_EVERY: Final = 4  # blocks of Cohere 2: one of so many looks at everything, without rotary embedding
MOST_EVERY: Final = 1024


def _features(a: Architecture, said: Said) -> Architecture:
    return replace(a, norm="layer", parallel=True, one_norm=True, logit_scale=said.real("logit_scale", 1.0))


def _of_gguf(a: Architecture, said: Said) -> Architecture:
    if said.has_tensor("blk.0.attn_q_norm.weight"):
        raise _normed(said)
    return _features(a, said)


def _of_folder(a: Architecture, said: Said) -> Architecture:
    if said.flag("use_qk_norm", False):
        raise _normed(said)
    biased = said.flag("attention_bias", False)
    return replace(_features(a, said), qkv_bias=biased, o_bias=biased)


def _normed(said: Said) -> UnknownArchitecture:
    return UnknownArchitecture(
        f"{said.where}: Command R without norm on q and k expected, got one with it; this variant is not supported"
    )


def _sliding(a: Architecture, window: int, every: int) -> Architecture:
    """Windows with rotary embedding, and each `every`-th block whole and without."""
    kinds = (*[BlockKind(window or None)] * (every - 1), BlockKind(table=-1))
    return replace(a, pattern=kinds)


def _of_gguf_2(a: Architecture, said: Said) -> Architecture:
    return _sliding(_features(a, said), said.whole("attention.sliding_window"), WHOLE_EVERY)


def _of_folder_2(a: Architecture, said: Said) -> Architecture:
    every = said.whole("sliding_window_pattern", WHOLE_EVERY)
    if not 1 <= every <= MOST_EVERY:
        raise CorruptModel(
            f"{said.where}: expected sliding_window_pattern between 1 and {MOST_EVERY}, got {str(every)[:40]}"
        )
    layers = said.words("layer_types")
    wanted = ("full_attention" if (i + 1) % every == 0 else "sliding_attention" for i in range(a.blocks))
    if layers is not None and (len(layers) != a.blocks or layers != tuple(wanted)):
        raise UnknownArchitecture(
            f"{said.where}: expected every {every}th of layer_types to be full_attention and others "
            "sliding_attention; this variant is not supported"
        )
    return _sliding(_of_folder(a, said), said.whole("sliding_window"), every)


COHERE: Final = Family(
    title="Command R (not R+)",
    apart="attention and feed-forward side by side, layer norms without bias, neighbours turn, scaled logits",
    gguf=Source(
        ("command-r",),
        GGUF,
        _of_gguf,
        interleaved=True,
        keys={"attention.layer_norm_rms_epsilon": "attention.layer_norm_epsilon"},
    ),
    folder=Source(("cohere",), FOLDER, _of_folder, interleaved=True, keys={"rms_norm_eps": "layer_norm_eps"}),
)
COHERE2: Final = Family(
    title="Command R7B, Command A",
    apart="as Command R; three of four blocks look at a window, the fourth does not turn",
    gguf=Source(
        ("cohere2",),
        GGUF,
        _of_gguf_2,
        interleaved=True,
        keys={"attention.layer_norm_rms_epsilon": "attention.layer_norm_epsilon"},
    ),
    folder=Source(
        ("cohere2",), FOLDER, _of_folder_2, interleaved=True, keys={"rms_norm_eps": "layer_norm_eps"}
    ),
)
