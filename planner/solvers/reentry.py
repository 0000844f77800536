"""Decides the least chain in which a peer may serve several runs: by unit, with the memory of each peer in the label.

Two passes: a narrow one for a chain to beat, then one that drops labels that cannot beat it (what is left is bounded
as if memory were free). Exact while no border has more than `width` labels; beyond, the cheapest are kept.
Labels: last peer and how many units of each size every peer has taken; of equals the cheaper stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.cost import evaluator
from planner.solvers.lattice import Lattice, build
from planner.solvers.network import INF, Bools, Ints
from planner.solvers.seeded_random import Draws
from planner.types import PeerProfile, PlanRequest, Stage

WIDTH = 60_000
NARROW = 300


@dataclass(frozen=True, slots=True)
class Found:
    """Stages in which peers may come back, their time for a token in picoseconds, and whether none is faster."""

    stages: tuple[Stage, ...]
    decode_ps: int
    exact: bool


Chain = tuple[tuple[int, int], ...]


def least(
    request: PlanRequest, allowed: Bools | None = None, width: int = WIDTH, borders: Bools | None = None
) -> Found | None:
    """The least decode latency. `allowed` (N, L) which peer, sorted by name, may serve which unit.

    `borders` (L+1,): where a hop may be; everywhere when None.
    """
    view = build(request)
    peers, count = len(view.peers), len(request.units)
    may = np.ones((peers, count), dtype=np.bool_) if allowed is None else allowed
    best: tuple[int, int, tuple[tuple[int, int], ...]] | None = None
    exact, firsts = True, [at for at in range(peers) if may[at, 0] and view.enter[at] < INF]
    for limit in sorted({min(NARROW, width), width}):
        exact = True
        for first in firsts:
            upper = INF if best is None else best[0] + 1
            found, whole = _from(request, view, _Way(first, may, borders), limit, upper)
            exact &= whole
            if found is not None and (best is None or found < best):
                best = found
        if exact:
            break
    if best is None:
        return None
    known = evaluator.profiles(request)
    starts = (0, *(stop for _, stop in best[2]))
    stages = tuple(
        evaluator.make_stage(request, known[view.peers[peer]], start, stop)
        for (peer, stop), start in zip(best[2], starts, strict=False)
    )
    if evaluator.refuse(request, stages) is not None:
        return None
    return Found(stages, best[0], exact)


@dataclass(frozen=True, slots=True)
class _Sizes:
    """How much every peer has taken, as one number: counts of units of each size, in mixed radix."""

    kind: Ints  # (L,) size of each unit
    weights: Ints  # (N, C)
    kv: Ints  # (N, C)
    radix: Ints  # (N, C)
    unique: bool  # False: numbers may collide, rarely

    @classmethod
    def of(cls, request: PlanRequest, peers: Sequence[PeerProfile]) -> _Sizes:
        sizes = [
            tuple(evaluator.unit_bytes(request, unit, peer.holding) for peer in peers)
            for unit in request.units
        ]
        kinds = sorted(set(sizes))
        kind = np.array([kinds.index(size) for size in sizes], dtype=np.int64)
        per_kind = np.bincount(kind, minlength=len(kinds)) + 1
        radix, step = np.zeros((len(peers), len(kinds)), dtype=np.int64), 1
        for peer in range(len(peers)):
            for at, most in enumerate(per_kind.tolist()):
                radix[peer, at] = step % 2**62
                step *= most
        unique = step < 2**62
        if not unique:
            draws = Draws(1)
            radix = np.array([[draws.bits() >> 24 | 1 for _ in kinds] for _ in peers], dtype=np.int64)
        table = np.array(kinds, dtype=np.int64)  # (C, N, 2)
        return cls(kind, table[:, :, 0].T.copy(), table[:, :, 1].T.copy(), radix, unique)


@dataclass(frozen=True, slots=True)
class _Way:
    """Where chains begin, who may serve what, where hops may be."""

    first: int
    may: Bools
    borders: Bools | None

    def left(self, view: Lattice) -> Ints:
        """(L+1, N) least that is left once `last` has served units up to a border, memory aside."""
        count, peers = view.unit_count, len(view.peers)
        left = np.full((count + 1, peers), INF, dtype=np.int64)
        left[count] = np.minimum(view.back[:, self.first] + view.leave, INF)
        for unit in range(count - 1, 0, -1):
            time = view.times[:, unit + 1] - view.times[:, unit]
            onward = np.where(self.may[:, unit], np.minimum(left[unit + 1] + time, INF), INF)
            hop = view.hop[int(view.classes[unit])] + (view.step + onward)[None, :]
            closed = self.borders is not None and not self.borders[unit]
            moved = np.full(peers, INF) if closed else np.minimum(hop, INF).min(axis=1)
            left[unit] = np.minimum(onward, moved)
        return left


def _from(
    request: PlanRequest, view: Lattice, way: _Way, width: int, upper: int
) -> tuple[tuple[int, int, Chain] | None, bool]:
    """(value, stages, chain) of the least chain that begins on `first`, and whether nothing was dropped."""
    by_name = evaluator.profiles(request)
    profiles, first, left = [by_name[name] for name in view.peers], way.first, way.left(view)
    sizes = _Sizes.of(request, profiles)
    peers, count = len(profiles), len(request.units)
    last = np.array([first], dtype=np.int64)
    value = np.array([int(view.enter[first] + view.step[first] + view.times[first, 1])], dtype=np.int64)
    taken = np.zeros((1, peers, sizes.radix.shape[1]), dtype=np.int64)
    taken[0, first, sizes.kind[0]] = 1
    if not _fits(profiles[first], sizes, first, taken[:, first])[0]:
        return None, True
    history: list[tuple[Ints, Ints]] = [(last, np.zeros(1, dtype=np.int64))]
    exact = sizes.unique
    for unit in range(1, count):
        hop = view.hop[int(view.classes[unit])]
        grown: list[tuple[Ints, Ints, Ints, Ints]] = []
        for peer in range(peers):
            if not way.may[peer, unit]:
                continue
            time = int(view.times[peer, unit + 1] - view.times[peer, unit])
            arriving = np.where(last == peer, 0, np.minimum(hop[last, peer], INF) + int(view.step[peer]))
            if way.borders is not None and not way.borders[unit]:
                arriving = np.where(last == peer, 0, INF)
            reached = value + arriving + time
            some = np.flatnonzero((reached < INF) & (reached + left[unit + 1, peer] < upper))
            more = taken[some].copy()
            more[:, peer, sizes.kind[unit]] += 1
            fit = _fits(profiles[peer], sizes, peer, more[:, peer])
            some, more = some[fit], more[fit]
            grown.append((np.full(len(some), peer, dtype=np.int64), reached[some], some, more))
        if not grown or not sum(len(part[0]) for part in grown):
            return None, exact
        last, value, parent, taken = (np.concatenate([part[at] for part in grown]) for at in range(4))
        code = (taken * sizes.radix[None]).sum(axis=(1, 2))
        order = np.lexsort((parent, value, code, last))
        same = (np.diff(last[order]) == 0) & (np.diff(code[order]) == 0)
        keep = order[np.concatenate([[True], ~same])]
        if len(keep) > width:
            exact = False
            keep = np.sort(keep[np.argsort(value[keep], kind="stable")[:width]])
        last, value, parent, taken = last[keep], value[keep], parent[keep], taken[keep]
        history.append((last, parent))
    ends = value + np.where(last == first, 0, view.back[last, first]) + view.leave[last]
    at = int(ends.argmin())
    if int(ends[at]) >= INF:
        return None, exact
    owners: list[int] = []
    for layer, parents in reversed(history):
        owners.append(int(layer[at]))
        least_value, at = int(ends.min()), int(parents[at])
    owners.reverse()
    chain = tuple(
        (peer, stop) for stop, peer in enumerate(owners, start=1) if stop == count or owners[stop] != peer
    )
    return (least_value, len(chain), chain), exact


def _fits(peer: PeerProfile, sizes: _Sizes, at: int, taken: Ints) -> Bools:
    """(m,) whether so many units of each size fit on a peer."""
    weights, kv, facts = taken @ sizes.weights[at], taken @ sizes.kv[at], peer.facts
    peak = np.maximum(weights + kv + facts.scratch_bytes, -(-weights * facts.load_peak_milli // 1000))
    found: Bools = peak + peer.overhead_bytes <= peer.memory_bytes
    if facts.weights_bytes is not None:
        found = found & (weights <= facts.weights_bytes)
    if facts.kv_bytes is not None:
        found = found & (kv <= facts.kv_bytes)
    return found
