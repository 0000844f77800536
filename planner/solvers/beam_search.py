"""Decides a good path of a network that is too large for the exact solver: greedy chains, then a beam search.

Deterministic: peers come sorted, sorting is stable, nothing is drawn. Never without an answer where a greedy
chain exists: from some first peer, always the longest run that fits, on the linked peer that reaches furthest
(ties: the cheaper one, then the name), until all units are placed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.solvers import held_karp, partition
from planner.solvers.network import INF, Bools, Ints, Network, Path, only

CHEAPEST = 4  # partial chains kept per border for being cheap
FRUGAL = 2  # and for having used up little of the peers' room
LABELS = 512  # partial chains kept in all, so that a thousand units do not take minutes
POLISH_WORK = 3 * 10**7  # exact.work that ends a search: the path's peers, then the fastest; some 20 ms


@dataclass(frozen=True, slots=True)
class _Labels:
    """Partial chains of equally many stages. Arrays over chains, shape (M,), `used` (M, N)."""

    first: Ints
    last: Ints
    border: Ints
    value: Ints
    reach: Ints  # units that the used peers could have held: small means little room was wasted
    used: Bools
    paths: tuple[Path, ...]


def search(net: Network) -> Path | None:
    """A good path, None where neither a greedy chain nor the beam finds one."""
    found = [path for path in (*greedy(net), _beam(net)) if path is not None]
    if not found:
        return None
    best = min(found, key=lambda path: (net.value(path), len(path), path))
    again = partition.cut(net, [peer for peer, _ in best])
    best = min([best, again or best], key=lambda path: (net.value(path), len(path), path))
    return _polish(net, best)


def greedy(net: Network) -> list[Path]:
    """One greedy chain from each first peer that leads to one."""
    return [path for path in (_chain(net, first) for first in range(len(net.peers))) if path is not None]


def _chain(net: Network, first: int) -> Path | None:
    stops = _furthest(net.stage)
    peer, border, used, path = first, 0, {first}, list[tuple[int, int]]()
    while True:
        stop = int(stops[peer, border])
        path.append((peer, stop))
        if stop == net.unit_count:
            return tuple(path) if net.value(tuple(path)) < INF else None
        options = [
            (-int(stops[j, stop]), int(net.hop[peer, j, stop]), j)
            for j in range(len(net.peers))
            if j not in used and stops[j, stop] > stop and net.hop[peer, j, stop] < INF
        ]
        if stop == border or not options:
            return None
        peer, border = min(options)[2], stop
        used.add(peer)


def _furthest(stage: Ints) -> Ints:
    """Last border that peer j can reach from border p, (N, L+1); p itself where it can serve nothing."""
    width = stage.shape[1]
    last = width - 1 - np.argmax((stage < INF)[:, :, ::-1], axis=2)
    return np.where((stage < INF).any(axis=2), last, np.arange(width)[None, :])


def _beam(net: Network) -> Path | None:
    peers, units = len(net.peers), net.unit_count
    room = (_furthest(net.stage) - np.arange(units + 1)).max(axis=1)  # longest run of each peer
    everyone = np.arange(peers)
    labels = _Labels(
        everyone,
        everyone,
        np.zeros(peers, dtype=np.int64),
        net.enter,
        np.zeros(peers, dtype=np.int64),
        np.eye(peers, dtype=np.bool_),
        tuple(() for _ in range(peers)),
    )
    best: tuple[int, int, Path] | None = None
    while len(labels.paths):
        # Each chain's last peer is chosen, its stop is not: all stops at once, (M, L+1).
        sums = np.minimum(labels.value[:, None] + net.stage[labels.last, labels.border], INF)
        sums[sums + net.floor >= (INF if best is None else best[0] + 1)] = INF
        closed = np.minimum(sums[:, units] + net.back[labels.last, labels.first], INF)
        for at in np.flatnonzero(closed < (INF if best is None else best[0] + 1)):
            path = (*labels.paths[at], (int(labels.last[at]), units))
            candidate = int(closed[at]), len(path), path
            best = candidate if best is None else min(best, candidate)
        labels = _extend(net, labels, sums, room, INF if best is None else best[0])
    return None if best is None else best[2]


def _extend(net: Network, labels: _Labels, sums: Ints, room: Ints, bound: int) -> _Labels:
    """The chains with one more peer that are worth keeping: a few per border, by value and by frugality."""
    units = net.unit_count
    per_border = max(1, min(CHEAPEST, LABELS // units)), max(1, min(FRUGAL, LABELS // units))
    reach = labels.reach + room[labels.last]
    able = np.any(net.stage < INF, axis=2)  # (N, L+1) whether a peer can serve anything from a border on
    picks: list[tuple[int, int, int, int]] = []  # (border, next peer, chain, value)
    for border in range(1, units):
        chains = np.flatnonzero(sums[:, border] < bound)
        if not len(chains):
            continue
        grown = sums[chains, border][:, None] + net.hop[labels.last[chains], :, border]
        grown[labels.used[chains] | ~able[None, :, border]] = INF
        flat = grown.ravel()
        possible = np.flatnonzero(flat < bound - net.floor[border])
        values, spare = flat[possible], np.repeat(reach[chains], len(net.peers))[possible]
        cheap, frugal = _least(values, spare, per_border[0]), _least(spare, values, per_border[1])
        for at in dict.fromkeys(possible[np.concatenate([cheap, frugal])].tolist()):
            chain, follower = divmod(at, len(net.peers))
            picks.append((border, follower, int(chains[chain]), int(flat[at])))
    parents = np.array([chain for _, _, chain, _ in picks], dtype=np.int64)
    followers = np.array([follower for _, follower, _, _ in picks], dtype=np.int64)
    used = labels.used[parents]
    used[np.arange(len(picks)), followers] = True
    return _Labels(
        labels.first[parents],
        followers,
        np.array([border for border, _, _, _ in picks], dtype=np.int64),
        np.array([value for _, _, _, value in picks], dtype=np.int64),
        reach[parents],
        used,
        tuple((*labels.paths[chain], (int(labels.last[chain]), border)) for border, _, chain, _ in picks),
    )


def _least(values: Ints, ties: Ints, count: int) -> Ints:
    """Places of the `count` least values, equals by the smaller of `ties`, then by place."""
    places = np.arange(len(values))
    if count < len(values):
        places = np.flatnonzero(values <= np.partition(values, count)[count])
    return places[np.lexsort((ties[places], values[places]))][:count]


def _polish(net: Network, path: Path) -> Path:
    """The exact best among the path's peers and the fastest others, when the path is short enough."""
    chosen = [peer for peer, _ in path]
    size = max(
        (n for n in range(1, len(net.peers) + 1) if held_karp.work(n, net.unit_count) <= POLISH_WORK),
        default=0,
    )
    if len(chosen) > size:
        return path
    single = net.stage.diagonal(1, axis1=1, axis2=2).mean(axis=1)
    others = sorted((j for j in range(len(net.peers)) if j not in chosen), key=lambda j: (single[j], j))
    subset = sorted([*chosen, *others[: size - len(chosen)]])
    better = held_karp.solve(only(net, subset)).path()
    assert better is not None  # it holds the path itself
    return tuple((subset[peer], stop) for peer, stop in better)
