"""Decides the least path of a network exactly: Held-Karp style, over (peers used, last peer, border).

Suffixes are built from the tail forward: V[set, j, f, p] is the least value of units p..L served by exactly
`set`, beginning on j, for a pipeline whose first stage is on f (the hop back ends there). Work grows with N^2
2^N L^2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.solvers.network import INF, Bools, Ints, Network, Path


@dataclass(frozen=True, slots=True)
class Solved:
    """Least values, and what is needed to read a path out of them."""

    network: Network
    suffix: Ints  # (2^N, N, N, L+1): set, its first peer j, first peer f of the pipeline, border
    total: Ints  # (2^N, N): whole pipelines by set and first peer

    def by_stage_count(self) -> dict[int, int]:
        """Least value of pipelines with so many stages, where there is one."""
        least = self.total.min(axis=1)
        found: dict[int, int] = {}
        for used in range(1, len(least)):
            value, count = int(least[used]), used.bit_count()
            if value < INF:
                found[count] = min(value, found.get(count, INF))
        return found

    def path(self, count: int | None = None) -> Path | None:
        """The least path; of equals, that with fewest stages, then the smallest (peer, stop) stage by stage.

        With `count`, the same among pipelines of that many stages.
        """
        values = self.by_stage_count()
        if not values or (count is not None and count not in values):
            return None
        if count is None:
            least = min(values.values())
            count = min(stages for stages, value in values.items() if value == least)
        return self._read(count, values[count])

    def _read(self, count: int, value: int) -> Path:
        net, count_units = self.network, self.network.unit_count
        masks = [used for used in range(len(self.total)) if used.bit_count() == count]
        first, rest = min(
            (peer, [used & ~(1 << peer) for used in masks if int(self.total[used, peer]) == value])
            for peer in range(len(net.peers))
            if any(int(self.total[used, peer]) == value for used in masks)
        )
        left, peer, at = value - int(net.enter[first]), first, 0
        path: list[tuple[int, int]] = []
        while rest[0]:
            options: list[tuple[int, int, int]] = []  # (stop, next peer, set of the suffix)
            for used in rest:
                for follower in (j for j in range(len(net.peers)) if used >> j & 1):
                    sums = net.stage[peer, at] + net.hop[peer, follower] + self.suffix[used, follower, first]
                    options += [(int(stop), follower, used) for stop in np.flatnonzero(sums == left)]
            stop, follower, _ = min(options)
            left -= int(net.stage[peer, at, stop]) + int(net.hop[peer, follower, stop])
            rest = [used & ~(1 << follower) for s, j, used in options if (s, j) == (stop, follower)]
            path.append((peer, stop))
            peer, at = follower, stop
        return (*path, (peer, count_units))


def work(peers: int, units: int) -> int:
    """Steps of one solution, within a factor: 6e7 (8 peers, 62 units) take some 50 ms."""
    return peers**2 * (1 << peers) * units**2


def least(net: Network) -> int:
    """Value of the least path, INF where there is none."""
    values: Ints = solve(net).total
    return int(values.min())


def solve(net: Network) -> Solved:
    """All least values. Memory is 2^N N^2 (L+1) integers: 8 MB for 8 peers and 62 units."""
    peers, units = len(net.peers), net.unit_count
    suffix = np.full((1 << peers, peers, peers, units + 1), INF, dtype=np.int64)
    total = np.full((1 << peers, peers), INF, dtype=np.int64)
    masks = np.arange(1 << peers)
    size = np.array([int(mask).bit_count() for mask in masks])
    for j in range(peers):
        tail = net.stage[j, :, units][None, :] + net.back[j][:, None]
        suffix[1 << j, j] = np.minimum(tail, INF)
        suffix[1 << j, j, j] = INF
        total[1 << j, j] = min(int(net.enter[j] + tail[j, 0]), INF)
    longest = [_longest_run(net.stage[j]) for j in range(peers)]
    for count in range(1, peers):
        for j in range(peers):
            if not longest[j]:
                continue
            rest = masks[(size == count) & (masks >> j & 1 == 0)]
            closing = _follow(suffix[rest, :, j], net.hop[j])  # j is the first stage of the pipeline
            whole = (net.stage[j, 0][None, :] + closing).min(axis=1) + net.enter[j]
            total[rest | 1 << j, j] = np.minimum(whole, INF)
            if count + 2 > peers:
                continue
            sets, firsts = np.nonzero((rest[:, None] >> np.arange(peers)[None, :] & 1) == 0)
            sets, firsts = sets[firsts != j], firsts[firsts != j]
            inner = _follow(suffix[rest[sets], :, firsts], net.hop[j])
            suffix[rest[sets] | 1 << j, j, firsts] = _prepend(net.stage[j], inner, longest[j])
    return Solved(net, suffix, total)


def _follow(suffix: Ints, hop: Ints) -> Ints:
    """Least over the next peer i of hop + suffix: (M, N, L+1) and (N, L+1) to (M, L+1)."""
    least: Ints = (suffix + hop[None]).min(axis=1)
    return np.minimum(least, INF)


def _prepend(stage: Ints, inner: Ints, longest: int) -> Ints:
    """out[m, p] = min over q of stage[p, q] + inner[m, q]. By run length: no (M, L, L) array is made."""
    out = np.full_like(inner, INF)
    width = inner.shape[1]
    for run in range(1, longest + 1):
        reach = width - run
        np.minimum(out[:, :reach], stage.diagonal(run)[None, :] + inner[:, run:], out=out[:, :reach])
    return out


def _longest_run(stage: Ints) -> int:
    starts, stops = np.nonzero(stage < INF)
    runs: Ints = stops - starts
    return int(runs.max(initial=0))


def coverable(stage: Ints) -> bool:
    """Whether some peers, each once, can hold all units in some order, links aside. stage: (N, L+1, L+1)."""
    peers, width = stage.shape[:2]
    runs = (stage < INF).astype(np.float32)
    reached: Bools = np.zeros((1 << peers, width), dtype=np.bool_)
    reached[0, 0] = True
    masks = np.arange(1 << peers)
    size = np.array([int(mask).bit_count() for mask in masks])
    for count in range(peers):
        for j in range(peers):
            rest = masks[(size == count) & (masks >> j & 1 == 0)]
            reached[rest | 1 << j] |= (reached[rest].astype(np.float32) @ runs[j]) > 0
        if reached[:, -1].any():
            return True
    return False
