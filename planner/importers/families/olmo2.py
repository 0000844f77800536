"""OLMo 2 and 3: norms of what is added instead of what is taken, and of whole rows of q and k."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from planner.errors import UnknownArchitecture
from planner.importers.architecture import Architecture, BlockKind
from planner.importers.families.family import Family, Names, Said, Source
from planner.importers.families.names import FOLDER, GGUF

WHOLE_EVERY: Final = 4  # blocks of OLMo 3: one of so many looks at everything
_NAMES: Final[Names] = {
    **FOLDER,
    "attn.after": "model.layers.{block}.post_attention_layernorm.weight",
    "ffn.after": "model.layers.{block}.post_feedforward_layernorm.weight",
}


def _features(a: Architecture, said: Said) -> Architecture:
    return replace(a, norm_before=False, norm_after=True, qk_norm=True, head_norm="row")


def _by_turns(a: Architecture, window: int) -> Architecture:
    """OLMo 3: three of four blocks look at a window, and turn q and k without scaling."""
    local = BlockKind(window, 1)
    return replace(a, rope_base_1=a.rope_base, pattern=(*[local] * (WHOLE_EVERY - 1), BlockKind()))


def _of_gguf(a: Architecture, said: Said) -> Architecture:
    window = said.whole("attention.sliding_window", 0)
    return _by_turns(_features(a, said), window) if window else _features(a, said)


def _of_folder_3(a: Architecture, said: Said) -> Architecture:
    layers = said.words("layer_types")
    kinds = ("sliding_attention", "full_attention")
    if layers is not None and layers != tuple(kinds[(i + 1) % WHOLE_EVERY == 0] for i in range(a.blocks)):
        raise UnknownArchitecture(
            f"{said.where}: expected every {WHOLE_EVERY}th of layer_types to be {kinds[1]} and others {kinds[0]}; "
            "this variant is not supported"
        )
    biased = said.flag("attention_bias", False)
    a = replace(_features(a, said), qkv_bias=biased, o_bias=biased)
    return _by_turns(a, said.whole("sliding_window"))


OLMO2: Final = Family(
    title="OLMo 2",
    apart="norms behind attention and feed-forward, norm on rows of q and k",
    gguf=Source(("olmo2",), GGUF, _of_gguf),
    folder=Source(("olmo2",), _NAMES, _features),
)
OLMO3: Final = Family(
    title="OLMo 3",
    apart="as OLMo 2; three of four blocks look at a window, the fourth has YaRN",
    gguf=Source(("olmo2",), GGUF, _of_gguf),
    folder=Source(("olmo3",), _NAMES, _of_folder_3),
)
