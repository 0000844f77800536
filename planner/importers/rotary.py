"""By how much a position turns each pair of a head, and in which order the rows of q and k are stored for it.

Pairs are the halves of a whole head. Files that have neighbours as pairs, and models that turn a part of each head,
get their rows of q and k moved at the import: no score changes, and what does not turn has frequency 0.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np
import numpy.typing as npt

from planner.importers.architecture import Architecture, Latent, RopeScaling
from planner.model.lowering import kernel_head_size

Order = npt.NDArray[np.intp]


def rotary_tables_of(a: Architecture) -> tuple[tuple[float, ...], ...]:
    """The tables of a model, one frequency for two values of a head; what fills heads up does not turn."""
    bases = [rotary_frequencies(a)]
    if a.rope_base_1 is not None:
        bases.append(_powers(a.rope_base_1, a.rope_dims // 2))
    tables = []
    turning = a.rope_dims if a.latent is not None else kernel_head_size(a.head_size)
    for frequencies in bases:
        table = np.zeros(turning // 2)
        table[: a.rope_dims // 2] = frequencies
        tables.append(tuple(table.tolist()))
    return tuple(tables)


def rotary_frequencies(architecture: Architecture) -> npt.NDArray[np.float64]:
    """By how much a position turns each of rope_dims/2 pairs, with the model's frequency scaling applied."""
    half = architecture.rope_dims // 2
    frequency = _powers(architecture.rope_base, half)
    scaling = architecture.rope_scaling
    if architecture.rope_factors is not None:
        frequency = frequency / np.asarray(architecture.rope_factors, np.float64)
    elif scaling is not None and scaling.kind == "llama3":
        turns = scaling.original_context * frequency / (2 * np.pi)
        span = scaling.high_freq_factor - scaling.low_freq_factor
        above = turns - scaling.low_freq_factor
        smooth = np.clip(above / span, 0, 1) if span else (above > 0).astype(np.float64)
        frequency = frequency * (smooth + (1 - smooth) / scaling.factor)
    if scaling is not None and scaling.kind == "yarn":
        frequency = frequency * (1 + _ramp(architecture, scaling) * (1 / scaling.factor - 1))
    if scaling is not None and scaling.kind == "linear":
        frequency = frequency / scaling.factor
    return frequency


def yarn_amplitude(factor: float) -> float:
    """What YaRN multiplies q and k by, for positions divided by `factor` (arXiv 2309.00071, section 3.4)."""
    return 1.0 if factor <= 1 else 0.1 * math.log(factor) + 1


def _ramp(a: Architecture, scaling: RopeScaling) -> npt.NDArray[np.float64]:
    """By pair, 0 where a frequency stays and 1 where it is divided: YaRN's gamma, counted the other way around."""

    def pair(turns: float) -> float:
        return (
            a.rope_dims
            * math.log(scaling.original_context / (turns * 2 * math.pi))
            / (2 * math.log(a.rope_base))
        )

    low, high = pair(scaling.fast), pair(scaling.slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, a.rope_dims - 1)
    span = high - low or 0.001  # of two that are equal
    return np.clip((np.arange(a.rope_dims // 2) - low) / span, 0, 1)


def _powers(base: float, count: int) -> npt.NDArray[np.float64]:
    """`base` to the power of -i/count for i < count, rounded once: numpy's last bits depend on the processor, and the
    id of a model on these.
    """
    with localcontext() as context:
        context.prec = 50
        exact, steps = Decimal(base), [Decimal(-step) / count for step in range(count)]
        return np.array([float(exact**step) for step in steps])


def head_order(a: Architecture, interleaved: bool) -> Order | None:
    """For each number of a stored head, its place in a head of the file; None where they are the same.

    `interleaved`: the file's pairs are neighbours, not halves of what turns.
    """
    turning, rest = np.arange(a.rope_dims, dtype=np.intp), np.arange(a.rope_dims, a.head_size, dtype=np.intp)
    firsts, seconds = (turning[::2], turning[1::2]) if interleaved else np.split(turning, 2)
    order = np.concatenate([firsts, rest[: len(rest) // 2], seconds, rest[len(rest) // 2 :]])
    return None if np.array_equal(order, np.arange(a.head_size)) else order


def row_orders(a: Architecture, interleaved: bool) -> dict[str, Order]:
    """By the last part of our names of tensors, the file's row for each stored row; only those that move."""
    if a.latent is not None:
        return _latent_orders(a, a.latent) if interleaved else {}
    head = head_order(a, interleaved)
    if head is None:
        return {}

    def of(heads: int) -> Order:
        return (np.arange(heads, dtype=np.intp)[:, None] * a.head_size + head).reshape(-1)

    queries, keys = of(a.heads), of(a.kv_heads)
    normed = (head, head) if a.head_norm == "head" else (queries, keys)
    return {
        "q": queries,
        "q_bias": queries,
        "k": keys,
        "k_bias": keys,
        "q_norm": normed[0],
        "k_norm": normed[1],
    }


def _latent_orders(a: Architecture, latent: Latent) -> dict[str, Order]:
    """What turns stands behind what does not, in each head of the queries and in what keys are made of."""
    turning = np.arange(a.rope_dims, dtype=np.intp).reshape(-1, 2).T.reshape(-1)

    def behind(plain: int) -> Order:
        return np.concatenate([np.arange(plain, dtype=np.intp), plain + turning])

    heads = np.arange(a.heads, dtype=np.intp)[:, None] * (latent.plain + a.rope_dims)
    queries = (heads + behind(latent.plain)).reshape(-1)
    return {"q": queries, "q_b": queries, "kv_a": behind(latent.rank)}


def turning(a: Architecture) -> npt.NDArray[np.bool_]:
    """Which numbers of a stored head turn, (head_size,)."""
    found = np.arange(a.head_size) < a.rope_dims
    order = head_order(a, False)
    return found if order is None else found[order]
