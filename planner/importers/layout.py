"""Which tensors an architecture needs and their shapes; which numbers make an architecture at all."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from planner.errors import CorruptModel, MissingTensor
from planner.importers.architecture import MOST_COUNTS, Architecture
from planner.importers.decoder_units import rotary_frequencies

MAX_BLOCKS = 1024  # the deepest dense decoders have some 130; a header that says more is broken
MAX_WIDTH = 1 << 20  # heads * head_size
MAX_VOCAB = 1 << 22
LEAST_EPSILON = float(np.finfo(np.float32).tiny)  # a smaller one is 0 once it is float32


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
    most = MOST_COUNTS
    for what, value, limit in (
        ("blocks", a.blocks, MAX_BLOCKS),
        ("hidden size", a.hidden, most["hidden"]),
        ("heads", a.heads, most["heads"]),
        ("key/value heads", a.kv_heads, a.heads),
        ("head size", a.head_size, most["head_size"]),
        ("heads times head size", a.heads * a.head_size, MAX_WIDTH),
        ("feed-forward size", a.ffn, most["ffn"]),
        ("vocabulary", a.vocab, MAX_VOCAB),
        ("context", a.context, most["context"]),
    ):
        if not 1 <= value <= limit:
            raise CorruptModel(f"{file}: expected {what} between 1 and {limit}, got {value}")
    if a.heads % a.kv_heads:
        raise CorruptModel(f"{file}: {a.heads} heads cannot share {a.kv_heads} key/value heads evenly")
    if a.head_size % 2:
        raise CorruptModel(f"{file}: rotary embedding needs an even head size, got {a.head_size}")
    if not LEAST_EPSILON <= a.norm_epsilon < 1:
        raise CorruptModel(f"{file}: expected norm epsilon above 0 and below 1, got {a.norm_epsilon}")
    if not (math.isfinite(a.rope_base) and a.rope_base >= 1):
        raise CorruptModel(f"{file}: expected rope base of at least 1, got {a.rope_base}")
    _check_rope(a, file)


def _check_rope(a: Architecture, file: str) -> None:
    scaling = a.rope_scaling
    if (
        scaling is not None
        and scaling.kind == "llama3"
        and scaling.high_freq_factor <= scaling.low_freq_factor
    ):
        raise CorruptModel(
            f"{file}: expected a high_freq_factor above the low_freq_factor {scaling.low_freq_factor} in rope "
            f"scaling, got {scaling.high_freq_factor}"
        )
    with np.errstate(all="ignore"):
        angles = rotary_frequencies(a) * a.context
    if not np.isfinite(angles).all():
        raise CorruptModel(
            f"{file}: rope scaling turns positions by no finite angle: download the model again"
        )


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
