"""Decides which plan after a loss leaves most where it is: over runs that peers hold, or with the fewest bytes moved.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.cost import evaluator
from planner.solvers.network import INF, Network
from planner.types import Held, PeerProfile, PlanRequest, Run, Stage

MOST_STEPS = 2_000_000  # of looking for ways: what a peer says that it holds takes no planner for long
FETCHED = (
    8  # a byte that has to be fetched counts as so many that are only read again from the peer's own disk
)


@dataclass(frozen=True, slots=True)
class _Way:
    """Units 0..stop of a pipeline: picoseconds so far, and who serves which run."""

    ps: int
    places: tuple[tuple[str, int, int], ...]  # peer, first, stop

    @property
    def key(self) -> tuple[int, int, tuple[tuple[str, int, int], ...]]:
        return self.ps, len(self.places), self.places


def steps(names: Sequence[str], held: Held) -> int:
    """How much `least` has to look at, at most."""
    return len(names) ** 2 * sum(len(held.get(name, ())) for name in names)


def least(request: PlanRequest, names: Sequence[str], held: Held) -> tuple[Stage, ...] | None:
    """The fastest stages (one stream, one token) made of whole held runs, where a peer may serve several; or None."""
    known, links, last = evaluator.profiles(request), evaluator.link_table(request), len(request.units)
    starting: dict[int, list[tuple[str, int, int]]] = {}  # by first unit: peer, stop, picoseconds
    for name in names:
        for first, stop in sorted(held.get(name, ())):
            if first < stop <= last:
                ps = evaluator.stage_ps(known[name], request.units[first:stop], 1)
                starting.setdefault(first, []).append((name, stop, ps))
    best: dict[tuple[str, str, int], _Way] = {}  # by first peer, last peer, border reached
    borders = sorted({0, *(stop for name in names for _, stop in held.get(name, ()))})
    for at in borders:
        ways = [_Way(0, ())] if at == 0 else [way for key, way in sorted(best.items()) if key[2] == at]
        for way in ways:
            for name, stop, takes_ps in starting.get(at, ()):
                ps = way.ps + takes_ps
                before = way.places[-1][0] if way.places else name
                if before != name:
                    if (before, name) not in links:
                        continue
                    ps += evaluator.hop_ps(links[before, name], request.units[at - 1].out_bytes_per_token, 1)
                more = _Way(ps, (*way.places, (name, at, stop)))
                key = (more.places[0][0], name, stop)
                if key not in best or more.key < best[key].key:
                    best[key] = more
    ends: list[_Way] = []
    for (first_peer, tail, at), way in best.items():
        if at == last and first_peer != tail and (tail, first_peer) in links:
            back = evaluator.hop_ps(links[tail, first_peer], request.units[-1].out_bytes_per_token, 1)
            ends.append(_Way(way.ps + back, way.places))
        elif at == last and first_peer == tail:
            ends.append(way)
    for way in sorted(ends, key=lambda end: end.key):
        stages = tuple(
            evaluator.make_stage(request, known[name], first, stop) for name, first, stop in way.places
        )
        if evaluator.refuse(request, stages) is None:
            return stages
    return None


def moved(request: PlanRequest, stages: Sequence[Stage], held: Held) -> int:
    """What the primaries of `stages` must bring: bytes read, and those of them that are fetched FETCHED times."""
    known = evaluator.profiles(request)
    return sum(_brought(request, known[s.peer], held.get(s.peer, ()), s.first, s.stop) for s in stages)


def moving(request: PlanRequest, net: Network, held: Held) -> Network:
    """`net` with what a stage must bring as its main cost; times decide between equals."""
    known, width = evaluator.profiles(request), net.unit_count + 1
    brought = np.zeros(net.stage.shape, dtype=np.int64)
    for at, name in enumerate(net.peers):
        runs = held.get(name, ())
        for first in range(width):
            for stop in range(first + 1, width):
                if net.stage[at, first, stop] < INF:
                    brought[at, first, stop] = _brought(request, known[name], runs, first, stop)
    most = max(1, int(brought.max(initial=0)) * len(net.peers))
    stage = net.stage + brought * max(1, evaluator.MAX_SUM // 2 // most)
    return replace(net, stage=np.where(net.stage < INF, np.minimum(stage, INF), INF))


def _brought(request: PlanRequest, peer: PeerProfile, runs: Sequence[Run], first: int, stop: int) -> int:
    """Bytes for units [first, stop) on `peer`: none when it holds that very run."""
    if (first, stop) in runs:
        return 0
    total = 0
    for at in range(first, stop):
        here = any(begin <= at < end for begin, end in runs)
        total += request.units[at].held_bytes(peer.holding) * (1 if here else 1 + FETCHED)
    return total
