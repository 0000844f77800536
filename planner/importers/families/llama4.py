"""Llama 4 (text): blocks that turn and look at their chunk, every fourth whole and without; one expert of a token."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from planner.errors import CorruptModel, UnknownArchitecture
from planner.importers.architecture import MOST_COUNTS, Architecture, BlockKind, Routing, Tempering
from planner.importers.families.family import GATE_UP, Family, Names, Place, Said, Source
from planner.importers.families.llama import EXPERTS_OF_GGUF
from planner.importers.families.names import FOLDER

CHUNK: Final = 8192  # of published models; GGUF files do not say it
WHOLE_EVERY: Final = 4
FLOOR: Final = 8192
SCALE: Final = 0.1
NOT_NORMED: Final = 128  # experts of Maverick, whose q and k are as they are; GGUF files do not say it
MOST_EVERY: Final = 1 << 10
_LAYER: Final = "model.layers.{block}.feed_forward"
_NAMES: Final[Names] = {
    **FOLDER,
    **{f"ffn.{part}": f"{_LAYER}.{part}_proj.weight" for part in ("gate", "up", "down")},
    **{f"ffn.shared_{part}": f"{_LAYER}.shared_expert.{part}_proj.weight" for part in ("gate", "up", "down")},
    "ffn.router": f"{_LAYER}.router.weight",
    "ffn.gate_e": Place(f"{_LAYER}.experts.gate_up_proj", GATE_UP["gate"], transposed=True, stacked=True),
    "ffn.up_e": Place(f"{_LAYER}.experts.gate_up_proj", GATE_UP["up"], transposed=True, stacked=True),
    "ffn.down_e": Place(f"{_LAYER}.experts.down_proj", transposed=True, stacked=True),
}


def _features(
    a: Architecture,
    experts: int,
    width: int,
    sparse: Collection[int],
    turning: Sequence[bool],
    chunk: int,
    tempering: Tempering | None,
) -> Architecture:
    """`sparse`: blocks with experts; `turning`: by block; `chunk`: 0 for none."""
    near = BlockKind(chunk, chunked=True) if 0 < chunk < a.context else BlockKind()
    return replace(
        a,
        experts=experts,
        experts_chosen=1,
        ffn=width,
        dense=frozenset(range(len(turning))) - frozenset(sparse),
        dense_ffn=a.ffn,
        shared_ffn=width,
        shared_gated=False,
        routing=Routing("sigmoid", on_input=True),
        tempering=tempering,
        pattern=tuple(near if turns else BlockKind(table=-1) for turns in turning),
    )


def _blocks(a: Architecture) -> int:
    return min(a.blocks, MOST_COUNTS["blocks"])


def _every(said: Said, key: str, otherwise: int | None) -> int:
    found = said.whole(key, otherwise)
    if not 1 <= found <= MOST_EVERY:
        raise CorruptModel(f"{said.where}: expected {key} between 1 and {MOST_EVERY}, got {str(found)[:40]}")
    return found


def _of_gguf(a: Architecture, said: Said) -> Architecture:
    blocks, experts = _blocks(a), said.whole("expert_count", 0)
    chunk = said.whole("attention.sliding_window", CHUNK)
    if not experts or not chunk:
        raise UnknownArchitecture(
            f"{said.where}: Llama 4 with experts and chunks expected, got {experts} experts and chunks of {chunk}; "
            "this variant is not supported"
        )
    _one(said, said.whole("expert_used_count"))
    every = _every(said, "interleave_moe_layer_step", None)
    tempering = Tempering(
        said.whole("attention.temperature_length", FLOOR), said.real("attention.temperature_scale", SCALE)
    )
    a = replace(a, unit_heads=experts != NOT_NORMED)
    turning = [(block + 1) % WHOLE_EVERY != 0 for block in range(blocks)]
    sparse = range(every - 1, blocks, every)
    width = said.whole("expert_feed_forward_length")
    return _features(a, experts, width, sparse, turning, chunk, tempering)


def _one(said: Said, chosen: int) -> None:
    if chosen != 1:
        raise UnknownArchitecture(
            f"{said.where}: Llama 4 with one expert for each token expected, got {chosen}; this variant is not "
            "supported"
        )


def _of_folder(a: Architecture, said: Said) -> Architecture:
    blocks = _blocks(a)
    _one(said, said.whole("num_experts_per_tok", 1))
    chunk = said.whole("attention_chunk_size", 0)
    turning = _turning(said, blocks)
    sparse = said.reals("moe_layers")
    if sparse is None:
        every = _every(said, "interleave_moe_layer_step", 1)
        sparse = tuple(range(every - 1, blocks, every))
    layers = said.words("layer_types")
    kinds = tuple("chunked_attention" if turns and chunk else "full_attention" for turns in turning)
    if layers is not None and layers != kinds:
        raise UnknownArchitecture(
            f"{said.where}: expected layer_types chunked_attention where no_rope_layers has 1, others full_attention; "
            "this variant is not supported"
        )
    biased = said.flag("attention_bias", False)
    tempering = None
    if _is_tempered(said):
        tempering = Tempering(said.whole("floor_scale", FLOOR), said.real("attn_scale", SCALE))
    a = replace(
        a,
        ffn=said.whole("intermediate_size_mlp", 16384),
        unit_heads=said.flag("use_qk_norm", True),
        qkv_bias=biased,
        o_bias=biased,
    )
    experts = said.whole("num_local_experts", 16)
    width = said.whole("intermediate_size", 8192)
    return _features(a, experts, width, [int(block) for block in sparse], turning, chunk, tempering)


def _turning(said: Said, blocks: int) -> list[bool]:
    stated = said.reals("no_rope_layers")
    if stated:
        if len(stated) < blocks:
            raise CorruptModel(
                f"{said.where}: expected no_rope_layers for {blocks} blocks, got {len(stated)}"
            )
        return [turns != 0 for turns in stated[:blocks]]
    every = _every(said, "no_rope_layer_interval", WHOLE_EVERY)
    return [(block + 1) % every != 0 for block in range(blocks)]


def _is_tempered(said: Said) -> bool:
    """The first exports have a number for the truth value."""
    try:
        return said.flag("attn_temperature_tuning", True)
    except CorruptModel:
        return said.whole("attn_temperature_tuning") != 0


LLAMA4: Final = Family(
    title="Llama 4 Scout, Maverick (text)",
    apart="one expert beside one that every token has; blocks that look at a chunk, every fourth whole and unturned",
    gguf=Source(("llama4",), EXPERTS_OF_GGUF, _of_gguf, interleaved=True),
    folder=Source(("llama4_text",), _NAMES, _of_folder, interleaved=True),
    head_size=128,
)
