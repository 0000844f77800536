"""Decides which peer may serve which run of units and who may follow whom, as integer arrays for the solvers.

Shapes: N peers sorted by name, L units, borders 0..L. INF marks what is not possible. A path is a chain of
(peer, stop); its value is the sum of its stages, of the hops between them, of `enter` and of `back`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from planner.cost import evaluator
from planner.types import PeerProfile, PlanRequest, Stage

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Path = tuple[tuple[int, int], ...]  # (peer index, stop) per stage, first stage first

INF = 2**60  # two of them still fit a 64-bit integer; four times cost.MAX_SUM


@dataclass(frozen=True, slots=True)
class Network:
    """One batch size's view of a request."""

    peers: tuple[str, ...]  # sorted: the order of a request never matters
    rows: int
    stage: Ints  # (N, L+1, L+1) units [p, q) on peer j
    hop: Ints  # (N, N, L+1) i -> j, what crosses border q; INF at 0 and L
    back: Ints  # (N, N) tail i -> first j; the diagonal is a single stage
    enter: Ints  # (N,) 0 where the origin reaches the peer
    hop_busy: Ints  # (N, N, L+1) the part of `hop` that occupies the link
    back_busy: Ints  # (N, N)
    floor: Ints  # (L+1,) no path has less left to do from this border on

    @property
    def unit_count(self) -> int:
        """How many units the model has."""
        return int(self.stage.shape[1]) - 1

    def limits(self) -> Ints:
        """Every stage and link time, ascending: the values that the slowest part of a path can have."""
        parts = (self.stage, self.hop_busy, self.back_busy)
        return np.unique(np.concatenate([part[part < INF] for part in parts]))

    def capped(self, limit: int) -> Network:
        """The same without stages and links that take longer than `limit`."""
        return replace(
            self,
            stage=np.where(self.stage <= limit, self.stage, INF),
            hop=np.where(self.hop_busy <= limit, self.hop, INF),
            back=np.where(self.back_busy <= limit, self.back, INF),
        )

    def stages(self, request: PlanRequest, path: Path) -> tuple[Stage, ...]:
        """Returns a path, pairs of a peer and where it stops, as stages."""
        known, firsts = evaluator.profiles(request), (0, *(stop for _, stop in path))
        return tuple(
            evaluator.make_stage(request, known[self.peers[peer]], first, stop)
            for (peer, stop), first in zip(path, firsts, strict=False)
        )

    def value(self, path: Path) -> int:
        """What the solvers minimise, of one path."""
        total, first = int(self.enter[path[0][0]]), 0
        for at, (peer, stop) in enumerate(path):
            total += int(self.stage[peer, first, stop])
            if at + 1 < len(path):
                total += int(self.hop[peer, path[at + 1][0], stop])
            first = stop
        return min(total + int(self.back[path[-1][0], path[0][0]]), INF)


def only(net: Network, places: Sequence[int]) -> Network:
    """The network of some of its peers."""
    pick = np.asarray(places)
    pairs = np.ix_(pick, pick)
    return Network(
        tuple(net.peers[at] for at in places),
        net.rows,
        net.stage[pick],
        net.hop[pairs],
        net.back[pairs],
        net.enter[pick],
        net.hop_busy[pairs],
        net.back_busy[pairs],
        net.floor,
    )


def room(request: PlanRequest, peers: Sequence[str]) -> tuple[Ints, Ints]:
    """(need, pledged): bytes of units [p, q) on each peer, (N, L+1, L+1), and bytes pledged, (N,).

    Runs that no memory would make possible (a unit the peer is unable to serve, too little of the memory that
    takes weights or KV) need INF.
    """
    known = evaluator.profiles(request)
    of_holding = {
        holding: np.cumsum(
            [(0, 0), *(evaluator.unit_bytes(request, unit, holding) for unit in request.units)], axis=0
        )
        for holding in {known[peer].holding for peer in peers}
    }
    prefix = np.array([of_holding[known[peer].holding] for peer in peers], dtype=np.int64)
    spans = prefix[:, None, :, :] - prefix[:, :, None, :]
    need = spans.sum(axis=3)
    for at, peer in enumerate(known[name] for name in peers):
        facts, weights, kv = peer.facts, spans[at, :, :, 0], spans[at, :, :, 1]
        if facts.load_peak_milli > 1000 or facts.scratch_bytes:
            loading = -(-weights * facts.load_peak_milli // 1000)
            need[at] = np.maximum(need[at] + facts.scratch_bytes, loading)
        need[at] += peer.overhead_bytes
        barred = np.array(
            [0, *np.cumsum([evaluator.unable(peer, unit) is not None for unit in request.units])]
        )
        never = barred[None, :] > barred[:, None]
        if facts.weights_bytes is not None:
            never |= weights > facts.weights_bytes
        if facts.kv_bytes is not None:
            never |= kv > facts.kv_bytes
        need[at][never] = INF
    pledged = np.array([known[peer].memory_bytes for peer in peers], dtype=np.int64)
    return need, pledged


def build(request: PlanRequest, peers: Sequence[str], rows: int, allowed: Bools | None = None) -> Network:
    """Times of a batch of `rows` on `peers` (a subset, sorted). `allowed` (N, L+1, L+1) limits the runs."""
    names = tuple(peers)
    known = evaluator.profiles(request)
    need, pledged = room(request, names)
    forward = np.triu(np.ones(need.shape[1:], dtype=np.bool_), 1)
    fits = (need <= pledged[:, None, None]) & forward[None]
    if allowed is not None:
        fits &= allowed
    times = np.zeros((len(names), len(request.units) + 1), dtype=np.int64)
    for at, name in enumerate(names):
        times[at, 1:] = np.cumsum(unit_times(request, known[name], rows))
    step = np.array([evaluator.picoseconds(known[name].step_s) for name in names], dtype=np.int64)
    stage = times[:, None, :] - times[:, :, None] + step[:, None, None]
    hop, busy = _hops(request, names, rows)
    count = len(request.units)
    back, back_busy = hop[:, :, count].copy(), busy[:, :, count].copy()
    np.fill_diagonal(back, 0)
    np.fill_diagonal(back_busy, 0)
    enter, leave = _reach(request, names)
    back = np.minimum(back + leave[:, None], INF)
    hop[:, :, [0, count]], busy[:, :, [0, count]] = INF, INF
    floor = np.zeros(count + 1, dtype=np.int64)
    floor[:-1] = np.cumsum(np.diff(times, axis=1).min(axis=0)[::-1])[::-1]
    stage = np.where(fits, stage, INF).astype(np.int64)
    return Network(names, rows, stage, hop, back, enter, busy, back_busy, floor)


def shortfalls(request: PlanRequest, peers: Sequence[str], *, linked: bool) -> Network:
    """A network whose values are bytes: what each stage lacks. `linked` False takes every link as given."""
    names = tuple(peers)
    need, pledged = room(request, names)
    forward = np.triu(np.ones(need.shape[1:], dtype=np.bool_), 1)
    lacks = np.maximum(need - pledged[:, None, None], 0)
    stage = np.where(forward[None] & (need < INF), lacks, INF).astype(np.int64)
    hop = np.zeros((len(names), len(names), len(request.units) + 1), dtype=np.int64)
    enter = np.zeros(len(names), dtype=np.int64)
    back = np.zeros((len(names), len(names)), dtype=np.int64)
    if linked:
        times = build(request, names, 1)
        hop[times.hop >= INF] = INF
        back[times.back >= INF] = INF
        enter = times.enter
    return Network(names, 1, stage, hop, back, enter, hop, back, np.zeros(need.shape[1], dtype=np.int64))


def unit_times(request: PlanRequest, peer: PeerProfile, rows: int) -> list[int]:
    """Picoseconds of each unit on `peer`."""
    if peer.facts.unit_decode_s:
        return [evaluator.unit_ps(peer, unit, rows) for unit in request.units]
    of_kind = {unit.kind: evaluator.unit_ps(peer, unit, rows) for unit in request.units}
    return [of_kind[unit.kind] for unit in request.units]


def held_runs(
    request: PlanRequest,
    peers: Sequence[str],
    held: Mapping[str, tuple[tuple[int, int], ...]],
    *,
    whole: bool,
) -> Bools:
    """Runs of held units only, (N, L+1, L+1): the held runs themselves, or (whole False) any part of them."""
    size = len(request.units) + 1
    allowed = np.zeros((len(peers), size, size), dtype=np.bool_)
    for at, name in enumerate(peers):
        runs = [(max(first, 0), min(stop, size - 1)) for first, stop in held.get(name, ())]
        for first, stop in runs if whole else _merged(runs):
            if whole and first < stop:
                allowed[at, first, stop] = True
            elif first < stop:
                allowed[at, first : stop + 1, first : stop + 1] = True
    return allowed


def _merged(runs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Runs that touch or overlap, joined."""
    joined: list[tuple[int, int]] = []
    for first, stop in sorted(runs):
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        else:
            joined.append((first, stop))
    return joined


def _hops(request: PlanRequest, names: Sequence[str], rows: int) -> tuple[Ints, Ints]:
    """(hop, occupied) for every pair and border 0..L."""
    place = {name: at for at, name in enumerate(names)}
    borders = [unit.out_bytes_per_token for unit in request.units]
    hop = np.full((len(names), len(names), len(borders) + 1), INF, dtype=np.int64)
    busy = hop.copy()
    for link in request.links:
        if link.src in place and link.dst in place:
            pair = place[link.src], place[link.dst]
            by_size = {
                size: (evaluator.hop_ps(link, size, rows), evaluator.transfer_ps(link, size, rows))
                for size in set(borders)
            }
            hop[pair][1:] = [by_size[size][0] for size in borders]
            busy[pair][1:] = [by_size[size][1] for size in borders]
    return hop, busy


def _reach(request: PlanRequest, names: Sequence[str]) -> tuple[Ints, Ints]:
    """(enter, leave): 0 where the origin reaches a first stage, or a tail reaches the origin; else INF."""
    links, origin = evaluator.link_table(request), request.origin
    if origin is None:
        return np.zeros(len(names), dtype=np.int64), np.zeros(len(names), dtype=np.int64)
    enter = [0 if name == origin or (origin, name) in links else INF for name in names]
    leave = [0 if name == origin or (name, origin) in links else INF for name in names]
    return np.array(enter, dtype=np.int64), np.array(leave, dtype=np.int64)
