"""Decides the plan after a loss for which the fewest units are loaded: of equals the least latency.

Whoever is left keeps the order; idle peers may fill the gap, each once. Exact over that order: a table of (last peer
used, border). Work grows with N^2 L and N L^2, so that sixty peers take a fraction of a second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from planner.solvers import lattice
from planner.solvers.lattice import Lattice
from planner.solvers.network import INF, Ints, Path
from planner.types import Held, PlanRequest, Stage

UNIT = 2**42  # one loaded unit outweighs four seconds a token


def fewest_moved(
    request: PlanRequest, before: Sequence[Stage], held: Held
) -> tuple[tuple[Stage, ...], int] | None:
    """(stages, units loaded) after the loss of those in `before` that `request` no longer has; None: no such plan."""
    if not request.peers:
        return None
    view = lattice.build(request)
    here = {name: at for at, name in enumerate(view.peers)}
    kept = [stage.peer for stage in before if stage.peer in here]
    places = [at for at, stage in enumerate(before) if stage.peer not in here]
    gap = sum(stage.peer in here for stage in before[: places[0]]) if places else len(kept)
    idle = [name for name in view.peers if name not in kept]
    missing = _missing(view, held)
    orders = []
    for ranked in (_by_room(view, idle, here), _by_hop(view, idle, here, kept[gap - 1] if gap else None)):
        orders.append([here[name] for name in (*kept[:gap], *ranked, *kept[gap:])])
    found = [
        pair for order in orders if (pair := _least(view, list(dict.fromkeys(order)), missing)) is not None
    ]
    if not found:
        return None
    value, path = min(found, key=lambda pair: (pair[0], len(pair[1]), pair[1]))
    return view.stages(request, path), value // UNIT


def _missing(view: Lattice, held: Held) -> Ints:
    """(N, L+1) units before a border that a peer lacks."""
    lacks = np.ones((len(view.peers), view.unit_count), dtype=np.int64)
    for at, name in enumerate(view.peers):
        for first, stop in held.get(name, ()):
            lacks[at, first:stop] = 0
    return np.concatenate([np.zeros((len(view.peers), 1), dtype=np.int64), np.cumsum(lacks, axis=1)], axis=1)


def _by_room(view: Lattice, idle: Sequence[str], here: Mapping[str, int]) -> list[str]:
    room = (view.reach - np.arange(view.unit_count + 1)[None, :]).max(axis=1)
    return sorted(idle, key=lambda name: (-int(room[here[name]]), name))


def _by_hop(view: Lattice, idle: Sequence[str], here: Mapping[str, int], left: str | None) -> list[str]:
    if left is None:
        return list(idle)
    hop = view.hop[int(view.classes[1]), here[left]]
    return sorted(idle, key=lambda name: (int(hop[here[name]]), name))


def _least(view: Lattice, order: Sequence[int], missing: Ints) -> tuple[int, Path] | None:
    """The least path through some of `order`, in order, by units loaded and then latency (the way back apart)."""
    count = view.unit_count
    best = np.full((len(order), count + 1), INF, dtype=np.int64)
    start = np.full((len(order), count + 1), -1, dtype=np.int64)
    came = np.full((len(order), count + 1), -1, dtype=np.int64)
    for at, peer in enumerate(order):
        value = np.full(count + 1, INF, dtype=np.int64)
        value[0] = int(view.enter[peer])
        origin = np.full(count + 1, -1, dtype=np.int64)
        if at:
            hops = np.stack([view.hop[view.classes, before, peer] for before in order[:at]])
            ways = np.minimum(best[:at] + hops, INF)
            value[1:count] = ways.min(axis=0)[1:count]
            origin[1:count] = ways.argmin(axis=0)[1:count]
        weight = missing[peer] * UNIT + view.times[peer]
        for border in range(count):
            stop = int(view.reach[peer, border])
            if value[border] >= INF or stop <= border:
                continue
            ends = slice(border + 1, stop + 1)
            sums = value[border] + int(view.step[peer]) + weight[ends] - weight[border]
            better = (sums < best[at, ends]) & view.open[ends]
            best[at, ends] = np.where(better, sums, best[at, ends])
            start[at, ends] = np.where(better, border, start[at, ends])
            came[at, ends] = np.where(better, origin[border], came[at, ends])
    found: list[tuple[int, Path]] = []
    for at in range(len(order)):
        if best[at, count] >= INF:
            continue
        path, place, border = list[tuple[int, int]](), at, count
        while place >= 0:
            path.append((order[place], border))
            place, border = int(came[place, border]), int(start[place, border])
        whole = tuple(reversed(path))
        if view.value(whole) < INF:
            found.append((int(best[at, count]) + int(view.back[whole[-1][0], whole[0][0]]), whole))
    return min(found, key=lambda pair: (pair[0], len(pair[1]), pair[1]), default=None)
