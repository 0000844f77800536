"""Decides the compact view of a request that the solvers for many peers share: integer times, reaches and hops.

Where `network` has a time for every run on every peer, here a run costs `step + times[stop] - times[first]` and is
possible up to `reach[first]`, so that a thousand peers fit. Shapes: N peers sorted by name, borders 0..L, K classes
of borders that carry equally many bytes. All in picoseconds; INF marks what is not possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.cost import evaluator
from planner.solvers import network
from planner.solvers.network import INF, Bools, Ints, Network, Path
from planner.types import Link, PeerProfile, PlanRequest, Stage


@dataclass(frozen=True, slots=True)
class Lattice:
    """One batch size's view of a request, under a strategy."""

    peers: tuple[str, ...]
    rows: int
    times: Ints  # (N, L+1) of units 0..border
    step: Ints  # (N,)
    reach: Ints  # (N, L+1) last border of a run that starts here; the border itself where none can
    hop: Ints  # (K, N, N)
    busy: Ints  # (K, N, N) the part of a hop that occupies the link
    classes: Ints  # (L+1,) class of what crosses a border
    back: Ints  # (N, N) tail i -> first j; 0 on the diagonal
    enter: Ints  # (N,) 0 where the origin reaches the peer
    leave: Ints  # (N,) 0 where the peer reaches the origin
    open: Bools  # (L+1,) where a stage may end

    @property
    def unit_count(self) -> int:
        """How many units the model has."""
        return len(self.classes) - 1

    def stage(self, peer: int, first: int, stop: int) -> int:
        """Returns the picoseconds of units [first, stop) on a peer, INF where it cannot hold them."""
        if not first < stop <= int(self.reach[peer, first]):
            return INF
        return int(self.step[peer] + self.times[peer, stop] - self.times[peer, first])

    def value(self, path: Path) -> int:
        """Decode latency of one path; INF where it is not possible."""
        total, first = int(self.enter[path[0][0]]) + int(self.leave[path[-1][0]]), 0
        for at, (peer, stop) in enumerate(path):
            total += self.stage(peer, first, stop) + (0 if self.open[stop] else INF)
            if at + 1 < len(path):
                total += int(self.hop[self.classes[stop], peer, path[at + 1][0]])
            first = stop
        return min(total + int(self.back[path[-1][0], path[0][0]]), INF)

    def key(self, path: Path) -> tuple[int, int, Path]:
        """Smaller is better: value, then stages, then (peer, stop) from the first."""
        return self.value(path), len(path), path

    def stages(self, request: PlanRequest, path: Path) -> tuple[Stage, ...]:
        """Returns a path, pairs of a peer and where it stops, as stages."""
        names = {self.peers[peer] for peer, _ in path}
        known = {peer.peer: peer for peer in request.peers if peer.peer in names}
        firsts = (0, *(stop for _, stop in path))
        return tuple(
            evaluator.make_stage(request, known[self.peers[peer]], first, stop)
            for (peer, stop), first in zip(path, firsts, strict=False)
        )

    def only(self, places: Sequence[int]) -> Lattice:
        """The lattice of some of its peers."""
        pick = np.asarray(sorted(places), dtype=np.int64)
        pairs = np.ix_(pick, pick)
        return replace(
            self,
            peers=tuple(self.peers[at] for at in pick.tolist()),
            times=self.times[pick],
            step=self.step[pick],
            reach=self.reach[pick],
            hop=self.hop[:, pick][:, :, pick],
            busy=self.busy[:, pick][:, :, pick],
            back=self.back[pairs],
            enter=self.enter[pick],
            leave=self.leave[pick],
        )

    def capped(self, limit: int) -> Lattice:
        """The same without stages and links that take longer than `limit`."""
        room = limit - self.step
        furthest = np.stack(
            [
                np.searchsorted(times, times + spare, side="right") - 1
                for times, spare in zip(self.times, room, strict=True)
            ]
        )
        furthest = np.maximum(furthest, np.arange(self.unit_count + 1)[None, :])
        last = self.busy[self.classes[-1]]
        back = np.where(last <= limit, self.back, INF)
        np.fill_diagonal(back, self.back.diagonal())
        return replace(
            self,
            reach=np.minimum(self.reach, furthest),
            hop=np.where(self.busy <= limit, self.hop, INF),
            back=back,
        )

    def network(self) -> Network:
        """The same with a time for every run, for the solver of all sets and orders."""
        count = self.unit_count
        borders = np.arange(count + 1)
        able = (borders[None, None, :] <= self.reach[:, :, None]) & (borders[None, :] > borders[:, None])[
            None
        ]
        able &= self.open[None, None, :]
        stage = self.times[:, None, :] - self.times[:, :, None] + self.step[:, None, None]
        hop, busy = (np.moveaxis(table[self.classes], 0, 2).copy() for table in (self.hop, self.busy))
        last = self.busy[self.classes[-1]].copy()
        np.fill_diagonal(last, 0)
        hop[:, :, [0, count]], busy[:, :, [0, count]] = INF, INF
        return Network(
            self.peers,
            self.rows,
            np.where(able, stage, INF).astype(np.int64),
            hop,
            np.minimum(self.back + self.leave[:, None], INF),
            self.enter,
            busy,
            last,
            np.zeros(count + 1, dtype=np.int64),
        )

    def forced(self) -> Lattice:
        """The same with a cut at every open border."""
        borders = np.flatnonzero(self.open)
        following = borders[
            np.minimum(np.searchsorted(borders, np.arange(len(self.open)), "right"), len(borders) - 1)
        ]
        return replace(
            self, reach=np.minimum(self.reach, np.maximum(following, np.arange(len(self.open)))[None, :])
        )


def build(
    request: PlanRequest, rows: int = 1, borders: Bools | None = None, allowed: Bools | None = None
) -> Lattice:
    """`borders` (L+1,): where stages may end. `allowed` (N, L): which peers, sorted by name, may serve which units."""
    count = len(request.units)
    peers = sorted(request.peers, key=lambda peer: peer.peer)
    names = tuple(peer.peer for peer in peers)
    times = np.zeros((len(peers), count + 1), dtype=np.int64)
    for at, peer in enumerate(peers):
        times[at, 1:] = np.cumsum(network.unit_times(request, peer, rows))
    step = np.array([evaluator.picoseconds(peer.step_s) for peer in peers], dtype=np.int64)
    open_borders = np.ones(count + 1, dtype=np.bool_) if borders is None else borders.copy()
    open_borders[[0, count]] = True
    reach = np.stack(
        [_reach(request, peer, None if allowed is None else allowed[at]) for at, peer in enumerate(peers)]
    )
    last_open = np.maximum.accumulate(np.where(open_borders, np.arange(count + 1), 0))
    reach = np.maximum(last_open[reach], np.arange(count + 1)[None, :])
    sizes = [unit.out_bytes_per_token for unit in request.units]
    kinds = sorted(set(sizes))
    classes = np.array([0, *(kinds.index(size) for size in sizes)], dtype=np.int64)
    hop, busy = _hops(request.links, names, kinds, rows)
    back = hop[classes[-1]].copy()
    np.fill_diagonal(back, 0)
    enter, leave = _ends(request, names)
    return Lattice(names, rows, times, step, reach, hop, busy, classes, back, enter, leave, open_borders)


def _reach(request: PlanRequest, peer: PeerProfile, allowed: Bools | None) -> Ints:
    """(L+1,) last border that a run from each border may have on this peer."""
    count, facts = len(request.units), peer.facts
    sizes = np.array(
        [evaluator.unit_bytes(request, unit, peer.holding) for unit in request.units], dtype=np.int64
    )
    spare = peer.memory_bytes - peer.overhead_bytes
    able = np.array([evaluator.unable(peer, unit) is None for unit in request.units])
    if allowed is not None:
        able &= allowed
    limits = [(sizes.sum(axis=1), spare - facts.scratch_bytes)]
    if facts.load_peak_milli > 1000:
        limits.append((sizes[:, 0], spare * 1000 // facts.load_peak_milli))
    if facts.weights_bytes is not None:
        limits.append((sizes[:, 0], facts.weights_bytes))
    if facts.kv_bytes is not None:
        limits.append((sizes[:, 1], facts.kv_bytes))
    barred = np.flatnonzero(~able)
    stops = np.append(barred, count)
    reach = stops[np.searchsorted(stops, np.arange(count + 1), side="left").clip(max=len(stops) - 1)]
    for size, limit in limits:
        prefix = np.concatenate([[0], np.cumsum(size)])
        reach = np.minimum(reach, np.searchsorted(prefix, prefix + limit, side="right") - 1)
    found: Ints = np.maximum(reach, np.arange(count + 1))
    return found


def _hops(links: Sequence[Link], names: Sequence[str], sizes: Sequence[int], rows: int) -> tuple[Ints, Ints]:
    place = {name: at for at, name in enumerate(names)}
    hop = np.full((len(sizes), len(names), len(names)), INF, dtype=np.int64)
    busy = hop.copy()
    here = [link for link in links if link.src in place and link.dst in place]
    if here:
        src = np.array([place[link.src] for link in here])
        dst = np.array([place[link.dst] for link in here])
        rtt, overhead, rate, loss = np.array(
            [(link.rtt_s, link.overhead_s, link.bytes_per_s, link.loss) for link in here]
        ).T
        delay = sum(_ps(part) for part in (rtt / 2, overhead, rtt * loss / (1 - loss)))
        for at, size in enumerate(sizes):
            transfer = _ps(rows * size / (rate * (1 - loss)))
            hop[at, src, dst] = delay + transfer
            busy[at, src, dst] = transfer
    return hop, busy


def _ps(seconds: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Ints:
    """As cost.picoseconds, of many."""
    return np.rint(seconds * evaluator.PICO).astype(np.int64)


def _ends(request: PlanRequest, names: Sequence[str]) -> tuple[Ints, Ints]:
    origin = request.origin
    if origin is None:
        return np.zeros(len(names), dtype=np.int64), np.zeros(len(names), dtype=np.int64)
    heard = {link.dst for link in request.links if link.src == origin} | {origin}
    tells = {link.src for link in request.links if link.dst == origin} | {origin}
    return (
        np.array([0 if name in heard else INF for name in names], dtype=np.int64),
        np.array([0 if name in tells else INF for name in names], dtype=np.int64),
    )


def cut(view: Lattice, order: Sequence[int]) -> Path | None:
    """The least path that visits exactly these peers in this order, each once or more; None: none fits.

    Of equal cuts, the one whose first stop is smallest, then the second, and so on.
    """
    width = view.unit_count + 1
    borders = np.flatnonzero(view.open)
    after = np.full(
        (len(order) + 1, width), INF, dtype=np.int64
    )  # from a border on, stage s and the rest to do
    after[len(order), width - 1] = view.back[order[-1], order[0]] + view.leave[order[-1]]
    for at in range(len(order) - 1, -1, -1):
        peer, ends = order[at], after[at + 1]
        if at + 1 < len(order):
            ends = np.minimum(ends + view.hop[view.classes, peer, order[at + 1]], INF)
            ends[0] = INF
        gains = (ends + view.times[peer])[borders]
        starts = borders[:-1]
        stops = np.searchsorted(borders, view.reach[peer, starts], side="right")
        for place, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
            if stop > place + 1:
                least = int(gains[place + 1 : stop].min())
                after[at, start] = min(least - int(view.times[peer, start]) + int(view.step[peer]), INF)
    if int(view.enter[order[0]]) + int(after[0, 0]) >= INF:
        return None
    path: list[tuple[int, int]] = []
    border = 0
    for at, peer in enumerate(order):
        for stop in range(border + 1, int(view.reach[peer, border]) + 1):
            if not view.open[stop]:
                continue
            total = view.stage(peer, border, stop) + int(after[at + 1, stop])
            if at + 1 < len(order):
                total += int(view.hop[view.classes[stop], peer, order[at + 1]])
            if total == int(after[at, border]):
                path.append((peer, stop))
                border = stop
                break
        else:
            return None
    return tuple(path)
