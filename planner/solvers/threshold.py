"""Decides the best slowest stage of one chain where links do not bind: fix a rate, ask how many units each can hold.

Exact, in the order of the numbers in the tables: the rates a peer reaches with k units, which need not fall with k.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """`held[i]`: most units that peer i holds at `rate` or better; together at least all units (the rest overlap)."""

    rate: float
    held: tuple[int, ...]


def best_bottleneck(
    tables: Sequence[Sequence[float]], units: int, most_peers: int | None = None
) -> Bottleneck | None:
    """`tables[i][k - 1]`: the rate of peer i with k units. None when they cannot hold all, at any rate.

    `most_peers`: the hop cap. Of the peers those that hold most are used, the first of equals.
    """

    def held(rate: float) -> tuple[int, ...]:
        most = [
            max((k for k, each in enumerate(table, start=1) if each >= rate), default=0) for table in tables
        ]
        chosen = sorted(range(len(most)), key=lambda at: (-most[at], at))[
            : len(most) if most_peers is None else most_peers
        ]
        return tuple(most[at] if at in set(chosen) else 0 for at in range(len(most)))

    rates = sorted({rate for table in tables for rate in table})
    low, high = 0, len(rates) - 1  # the least rate is the easiest
    if not rates or sum(held(rates[0])) < units:
        return None
    while low < high:
        middle = (low + high + 1) // 2
        if sum(held(rates[middle])) >= units:
            low = middle
        else:
            high = middle - 1
    return Bottleneck(rates[low], held(rates[low]))


def spans(found: Bottleneck, units: int) -> tuple[tuple[int, int, int], ...]:
    """(peer, first, stop) in peer order; each holds its whole count, the last ones overlap so that all end in range."""
    made: list[tuple[int, int, int]] = []
    at = 0
    for peer, count in enumerate(found.held):
        if count and at < units:
            first = min(at, units - count)
            made.append((peer, first, first + count))
            at = first + count
    return tuple(made)
