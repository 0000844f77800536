"""Decides the least chain exactly where its middle is alike: Held and Karp's sets, with a first and a last peer.

For every set and first and last peer: the least order (dynamic programming over sets), and the least sharing out of
the equal segments (fastest first). 14 peers take some tenths of a second, no less than planner.solvers.chain_labels:
this is the reference that it is checked against.
"""

from __future__ import annotations

import numpy as np

from planner.solvers.blocks import Blocks, Order
from planner.solvers.network import INF, Ints


def least_order(parts: Blocks) -> tuple[int, Order] | None:
    """(value, order) of the least chain of any number of peers; of equals the fewest, then the smallest set."""
    peers = len(parts.view.peers)
    alone = parts.alone()
    best: tuple[int, int, Order] | None = None
    if alone.min(initial=INF) < INF:
        at = int(alone.argmin())
        best = int(alone[at]), 1, (at,)
    masks = np.arange(1 << peers)
    size = np.array([mask.bit_count() for mask in range(1 << peers)])
    by_speed = np.argsort(parts.each, kind="stable").tolist()
    for first in range(peers):
        if parts.room_first[first] < 0 or parts.view.enter[first] >= INF:
            continue
        ways = _orders(parts, first, masks, size)
        for last in range(peers):
            if last == first or parts.room_last[last] < 0 or parts.view.back[last, first] >= INF:
                continue
            both = (masks >> first & 1) & (masks >> last & 1) == 1
            sets = masks[both]
            total = ways[sets, last] + _shares(parts, sets, size[sets], first, last, by_speed)
            total += int(parts.view.back[last, first] + parts.view.leave[last] + parts.view.enter[first])
            least = int(total.min(initial=INF))
            if least >= INF or (best is not None and least > best[0]):
                continue
            for used in sets[total == least].tolist():
                if best is not None and (least, used.bit_count()) > best[:2]:
                    continue
                found = least, used.bit_count(), _read(parts, ways, first, last, used)
                best = found if best is None else min(best, found)
    return None if best is None else (best[0], best[2])


def _orders(parts: Blocks, first: int, masks: Ints, size: Ints) -> Ints:
    """(2^N, N) least hops and steps of a walk from `first` through a set to each of its peers."""
    peers, hop = len(parts.view.peers), np.minimum(parts.hop, INF)
    ways = np.full((len(masks), peers), INF, dtype=np.int64)
    ways[1 << first, first] = parts.view.step[first]
    for count in range(2, peers + 1):
        for last in range(peers):
            if last == first:
                continue
            sets = masks[(size == count) & (masks >> first & 1 == 1) & (masks >> last & 1 == 1)]
            came = (ways[sets ^ (1 << last)] + hop[:, last][None, :]).min(axis=1) + parts.view.step[last]
            ways[sets, last] = np.minimum(came, INF)
    return ways


def _shares(parts: Blocks, sets: Ints, size: Ints, first: int, last: int, by_speed: list[int]) -> Ints:
    """Least work of the segments for each set, INF where its peers lack the room."""
    rest = parts.count - (size - 2)
    work = np.full(len(sets), int(parts.ends[0][first] + parts.ends[1][last]), dtype=np.int64)
    able = rest >= 0
    for peer in by_speed:
        here = sets >> peer & 1 == 1
        held = 0 if peer in (first, last) else 1
        room = (
            parts.room_first[peer]
            if peer == first
            else parts.room_last[peer]
            if peer == last
            else parts.room[peer]
        )
        if room < held:
            able &= ~here
            continue
        taken = np.where(here, np.minimum(np.maximum(rest, 0), int(room) - held), 0)
        work += np.where(here, int(parts.each[peer]) * (taken + held), 0)
        rest = rest - taken
    return np.where(able & (rest == 0), work, INF)


def _read(parts: Blocks, ways: Ints, first: int, last: int, used: int) -> Order:
    order, at = [last], last
    while at != first:
        used ^= 1 << at
        left = int(ways[used | 1 << at, at]) - int(parts.view.step[at])
        before = (ways[used] + np.minimum(parts.hop[:, at], INF)).tolist()
        at = before.index(left)
        order.append(at)
    return tuple(reversed(order))
