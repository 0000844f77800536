"""Peers for stages as an assignment problem (Kuhn 1955, Munkres 1957), stages as the assignment leaves them. Pure.

For each number of stages: borders that share the work evenly, then in turn the peers that take these stages at least
cost, each hop counted with the neighbours that a stage has now, and the borders that suit these peers, until nothing
becomes better. The number of stages that ends best is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from planner.solvers.choices.energy import Energy
from planner.solvers.lattice import Lattice
from planner.solvers.moves import IMPOSSIBLE, assignment
from planner.solvers.network import INF, Ints, Path

MOST_ROUNDS: Final = 12  # of peers and borders in turn


def assigned(energy: Energy, starts: Sequence[Path], most_stages: int) -> Path:
    """The best path found, the best of `starts` where nothing is better."""
    counts = range(1, min(most_stages, len(energy.view.peers)) + 1)
    even = [path for stages in counts if (path := _even(energy.view, stages)) is not None]
    best = min(starts, key=energy.key)
    for path in (*even, *starts):
        best = energy.better(best, _settled(energy, path)) or best
    return best


def _even(view: Lattice, stages: int) -> Path | None:
    """Borders that share the time of an average peer; the peers are those of an assignment without hops."""
    work = view.times.mean(axis=0)
    borders = np.flatnonzero(view.open)
    stops: list[int] = []
    for stage in range(1, stages):
        least = stops[-1] if stops else 0
        able = borders[(borders > least) & (borders < view.unit_count)]
        if not len(able):
            return None
        stops.append(int(able[np.abs(work[able] - work[-1] * stage / stages).argmin()]))
    stops.append(view.unit_count)
    peers = assignment(_costs(view, stops, None))
    return tuple(zip(peers, stops, strict=True))


def _settled(energy: Energy, path: Path) -> Path:
    """Peers and borders in turn, as long as that helps."""
    view, best = energy.view, energy.cut(path)
    for _ in range(MOST_ROUNDS):
        stops = [stop for _, stop in best]
        peers = assignment(_costs(view, stops, [peer for peer, _ in best]))
        tried = energy.cut(tuple(zip(peers, stops, strict=True)))
        if energy.key(tried) >= energy.key(best):
            return best
        best = tried
    return best


def _costs(view: Lattice, stops: list[int], now: list[int] | None) -> Ints:
    """(stages, N): what each stage takes on each peer, with the hops to the peers before and behind of `now`."""
    count = len(stops)
    costs = np.zeros((count, len(view.peers)), dtype=np.int64)
    for stage, stop in enumerate(stops):
        first = stops[stage - 1] if stage else 0
        for peer in range(len(view.peers)):
            total = view.stage(peer, first, stop)
            total += int(view.enter[peer]) if not stage else 0
            total += int(view.leave[peer]) if stage == count - 1 else 0
            if now is not None and count > 1:
                total += _hops(view, stops, now, stage, peer)
            costs[stage, peer] = min(total, IMPOSSIBLE)
    return costs


def _hops(view: Lattice, stops: list[int], now: list[int], stage: int, peer: int) -> int:
    """Of a stage on `peer` between its neighbours; half of each, for the neighbour counts the other half."""
    total, count = 0, len(stops)
    before, behind = now[stage - 1], now[(stage + 1) % count]
    came = view.classes[stops[stage - 1]] if stage else view.classes[-1]
    if before != peer:
        total += min(int(view.hop[came, before, peer]), INF) // 2
    if behind != peer:
        total += min(int(view.hop[view.classes[stops[stage]], peer, behind]), INF) // 2
    return total
