"""Which tensors an architecture needs and their shapes; which numbers make an architecture at all."""

from __future__ import annotations

import math
from collections.abc import Callable

from planner.errors import CorruptModel, MissingTensor
from planner.model.architecture import Architecture

MAX_BLOCKS = 1024  # the deepest dense decoders have some 130; a header that says more is broken
MAX_WIDTH = 1 << 20  # hidden, ffn, heads * head_size
MAX_VOCAB = 1 << 22


def tensor_shapes(architecture: Architecture) -> dict[str, tuple[int, ...]]:
    """Every tensor of the model in unit order: our name -> (rows, columns) or (n,)."""
    a = architecture
    queries, keys = a.heads * a.head_size, a.kv_heads * a.head_size
    shapes: dict[str, tuple[int, ...]] = {"embed.weight": (a.vocab, a.hidden)}
    for i in range(a.blocks):
        attn, ffn = f"attn.{i}", f"ffn.{i}"
        shapes[f"{attn}.norm"] = (a.hidden,)
        for part, rows in (("q", queries), ("k", keys), ("v", keys)):
            shapes[f"{attn}.{part}"] = (rows, a.hidden)
            if a.qkv_bias:
                shapes[f"{attn}.{part}_bias"] = (rows,)
        if a.qk_norm:
            shapes[f"{attn}.q_norm"] = (a.head_size,)
            shapes[f"{attn}.k_norm"] = (a.head_size,)
        shapes[f"{attn}.o"] = (a.hidden, queries)
        shapes[f"{ffn}.norm"] = (a.hidden,)
        shapes[f"{ffn}.gate"] = (a.ffn, a.hidden)
        shapes[f"{ffn}.up"] = (a.ffn, a.hidden)
        shapes[f"{ffn}.down"] = (a.hidden, a.ffn)
    shapes["head.norm"] = (a.hidden,)
    if not a.tied_embedding:
        shapes["head.weight"] = (a.vocab, a.hidden)
    return shapes


def check_numbers(architecture: Architecture, file: str) -> None:
    """Raises CorruptModel when the numbers contradict each other or are out of all proportion."""
    a = architecture
    for what, value, limit in (
        ("blocks", a.blocks, MAX_BLOCKS),
        ("hidden size", a.hidden, MAX_WIDTH),
        ("heads", a.heads, MAX_WIDTH),
        ("key/value heads", a.kv_heads, a.heads),
        ("head size", a.head_size, MAX_WIDTH),
        ("heads times head size", a.heads * a.head_size, MAX_WIDTH),
        ("feed-forward size", a.ffn, MAX_WIDTH),
        ("vocabulary", a.vocab, MAX_VOCAB),
        ("context", a.context, 1 << 31),
    ):
        if not 1 <= value <= limit:
            raise CorruptModel(f"{file}: expected {what} between 1 and {limit}, got {value}")
    if a.heads % a.kv_heads:
        raise CorruptModel(f"{file}: {a.heads} heads cannot share {a.kv_heads} key/value heads evenly")
    if a.head_size % 2:
        raise CorruptModel(f"{file}: rotary embedding needs an even head size, got {a.head_size}")
    for what, number in (("norm epsilon", a.norm_epsilon), ("rope base", a.rope_base)):
        if not math.isfinite(number) or number <= 0:
            raise CorruptModel(f"{file}: expected {what} above 0, got {number}")


def check_tensors(
    expected: dict[str, tuple[int, ...]],
    found: Callable[[str], tuple[int, ...] | None],
    file_name: Callable[[str], str],
    file: str,
) -> None:
    """Raises MissingTensor or CorruptModel for the first tensor that is absent or has another shape."""
    for name, shape in expected.items():
        got = found(name)
        if got is None:
            raise MissingTensor(
                f"{file}: tensor {file_name(name)} ({name}) is missing; the model is incomplete"
            )
        if got != shape:
            raise CorruptModel(f"{file}: tensor {file_name(name)} should be {shape}, is {got}")
