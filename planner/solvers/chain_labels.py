"""Decides the least chain exactly for any units, by sets of peers with bounds; and a bound for any number of peers.

From each first peer: labels (set of peers, last peer, border), grown one stage at a time. A label goes no further when
what it has spent and the least that is left (found as if peers could come back) reach the best known. Where the labels
would be more than `work` allows, the answer is the best known and the bound that is proven.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.solvers.lattice import Lattice
from planner.solvers.network import INF, Ints, Path

WORK = 300_000_000  # numbers written; some seconds


@dataclass(frozen=True, slots=True)
class Exact:
    """The best path that was found, None where there is none, and what is known of the optimum."""

    path: Path | None
    value: int
    bound: int  # no path is faster
    proven: bool


def least(view: Lattice, known: Path | None = None, work: int = WORK) -> Exact:
    """The least path; of equals `known`, else the fewest stages and the smallest (peer, stop)."""
    best = (INF, 0, ()) if known is None else view.key(known)
    bounds = relaxed(view)
    firsts = sorted(range(len(view.peers)), key=lambda peer: (int(bounds[peer, 0]), peer))
    open_bounds: list[int] = []
    left = [work]
    for first in firsts:
        bound = int(bounds[first, 0])
        if bound >= best[0]:
            break
        found = _from(view, first, best[0], left)
        if found is None:
            open_bounds.append(bound)
            continue
        if found[1]:
            best = min(best, view.key(found[1]))
    bound = min([best[0], *open_bounds])
    return Exact(best[2] or None, best[0], bound, not open_bounds)


def relaxed(view: Lattice) -> Ints:
    """(N, 1) least value of walks from each first peer on, peers may come back but not at once."""
    peers = len(view.peers)
    return np.array(
        [[_start(view, first, _remaining(view, first))] for first in range(peers)], dtype=np.int64
    )


def _start(view: Lattice, first: int, remaining: Ints) -> int:
    best = INF
    for stop in np.flatnonzero(view.open).tolist():
        if 0 < stop <= int(view.reach[first, 0]):
            best = min(best, view.stage(first, 0, stop) + int(remaining[first, stop]))
    return min(best + int(view.enter[first]), INF)


def _remaining(view: Lattice, first: int) -> Ints:
    """(N, L+1) least that is left for whoever ends at a border, in chains that began on `first`."""
    count, peers = view.unit_count, len(view.peers)
    left = np.full((peers, count + 1), INF, dtype=np.int64)
    left[:, count] = np.minimum(view.back[:, first] + view.leave, INF)
    served = left[:, count][:, None] + view.times[:, [count]]
    values = np.full(
        (peers, count + 1), INF, dtype=np.int64
    )  # at a border, its time added: the least over stops
    values[:, [count]] = served
    for border in np.flatnonzero(view.open)[::-1].tolist():
        if border == count:
            continue
        stage = np.full(peers, INF, dtype=np.int64)
        for peer in range(peers):
            stop = int(view.reach[peer, border])
            if stop > border and peer != first:
                least = int(values[peer, border + 1 : stop + 1].min())
                stage[peer] = least - int(view.times[peer, border]) + int(view.step[peer])
        hop = view.hop[int(view.classes[border])]
        ways = hop + np.minimum(stage, INF)[None, :]
        np.fill_diagonal(ways, INF)
        left[:, border] = np.minimum(ways.min(axis=1), INF)
        values[:, border] = np.minimum(left[:, border] + view.times[:, border], INF)
    return left


def _from(view: Lattice, first: int, upper: int, left: list[int]) -> tuple[int, Path] | None:
    """The least path from `first` under `upper` (an empty one: there is none); None when the work does not suffice."""
    peers, count = len(view.peers), view.unit_count
    remaining = _remaining(view, first)
    borders = np.flatnonzero(view.open)
    begin = np.full((1, peers, count + 1), INF, dtype=np.int64)
    for stop in borders.tolist():
        if 0 < stop <= int(view.reach[first, 0]):
            begin[0, first, stop] = view.stage(first, 0, stop) + int(view.enter[first])
    begin[0][begin[0] + remaining >= upper] = INF
    layers: list[tuple[list[int], Ints]] = [([1 << first], begin)]
    ends: list[tuple[int, int, int, int]] = []  # value, stages, set, last
    while True:
        masks, labels = layers[-1]
        closing = labels[:, :, count] + np.minimum(view.back[:, first] + view.leave, INF)[None, :]
        at = int(closing.argmin())
        if int(closing.flat[at]) < upper:
            upper = int(closing.flat[at])
            ends.append((upper, len(layers), masks[at // peers], at % peers))
        grown: dict[int, Ints] = {}
        for peer in range(peers):
            free = [row for row, mask in enumerate(masks) if not mask >> peer & 1]
            if not free or len(layers) >= peers:
                continue
            came = np.full((len(free), count + 1), INF, dtype=np.int64)
            for last in range(peers):
                if last != peer:
                    np.minimum(
                        came, labels[free, last] + view.hop[view.classes, last, peer][None, :], out=came
                    )
            came[:, [0, count]] = INF
            left[0] -= came.size * (peers + 8)
            if left[0] < 0:
                return None
            out = _spread(view, peer, came, borders)
            out[out + remaining[peer][None, :] >= upper] = INF
            for row in np.flatnonzero(out.min(axis=1) < INF).tolist():
                mask = masks[free[row]] | 1 << peer
                if mask not in grown:
                    grown[mask] = np.full((peers, count + 1), INF, dtype=np.int64)
                grown[mask][peer] = np.minimum(grown[mask][peer], out[row])
        if not grown:
            break
        ordered = sorted(grown)
        layers.append((ordered, np.stack([grown[mask] for mask in ordered])))
    if not ends:
        return INF, ()
    value, stages, mask, last = min(ends)
    return value, _read(view, layers, stages, mask, last)


def _spread(view: Lattice, peer: int, came: Ints, borders: Ints) -> Ints:
    """What ends at each border when a stage of `peer` begins where `came` says."""
    out = np.full_like(came, INF)
    bases = came - view.times[peer][None, :]
    for border in borders.tolist():
        if border == 0:
            continue
        low = int(np.searchsorted(view.reach[peer, :border], border))  # reach never falls along the borders
        if low < border:
            sums = bases[:, low:border].min(axis=1) + int(view.times[peer, border] + view.step[peer])
            out[:, border] = np.minimum(sums, INF)
    out[out >= INF // 2] = INF
    return out


def _read(view: Lattice, layers: list[tuple[list[int], Ints]], stages: int, mask: int, last: int) -> Path:
    path, border = list[tuple[int, int]](), view.unit_count
    for depth in range(stages - 1, -1, -1):
        masks, labels = layers[depth]
        value = int(labels[masks.index(mask), last, border])
        path.append((last, border))
        if depth == 0:
            break
        before_masks, before = layers[depth - 1]
        rest = mask & ~(1 << last)
        row = before[before_masks.index(rest)]
        options = [
            (start, peer)
            for start in range(1, border)
            if view.open[start] and border <= int(view.reach[last, start])
            for peer in range(len(view.peers))
            if rest >> peer & 1
            and int(row[peer, start])
            + int(view.hop[int(view.classes[start]), peer, last])
            + view.stage(last, start, border)
            == value
        ]
        border, last = min(options)
        mask = rest
    return tuple(reversed(path))
