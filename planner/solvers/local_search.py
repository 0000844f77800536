"""Decides good orders of peers for chains that are too large to be proven: descent, kicks, many starts.

Every neighbour of an order (one peer replaced, inserted, removed, moved, two swapped) is valued at once by
blocks.values; the best is taken until none is better; then a stretch is torn out and filled anew. Draws come from
`draws`, the effort is counted in numbers valued: the same input gives the same orders.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from planner.solvers.blocks import Blocks, Order
from planner.solvers.network import INF, Ints
from planner.solvers.seeded_random import Draws

NUMBERS_PER_S = 8_000_000  # numbers valued in a second by one slow core: an effort of so many is a second
STARTS = 16  # greedy chains that are improved before the kicks begin
KEPT = 24  # orders kept for those who look closer
SLACK = 200  # a kicked order goes on from here when worse by less than a 200th
PATIENCE = 40  # kicks without a gain before the search goes back to the best
NEAR = 60  # peers looked at for a place when there are more


@dataclass(slots=True)
class _Best:
    """The best orders so far, by (value, stages, order)."""

    found: dict[Order, int] = field(default_factory=dict)

    def add(self, value: int, order: Order) -> None:
        if value >= INF:
            return
        self.found[order] = value
        if len(self.found) > 4 * KEPT:
            self.found = dict(self.ranked()[:KEPT])

    def ranked(self) -> list[tuple[Order, int]]:
        return sorted(self.found.items(), key=lambda item: (item[1], len(item[0]), item[0]))

    def value(self) -> int:
        return min(self.found.values(), default=INF)


def search(
    parts: Blocks, effort: int, starts: Iterable[Sequence[int]] = (), seed: int = 1
) -> list[tuple[Order, int]]:
    """Orders of at least two peers with their values, the best first; at most KEPT. `effort`: numbers to value."""
    draws, best = Draws(seed), _Best()
    known = [tuple(start) for start in starts if len(start) > 1]
    spent, improved = 0, list[tuple[int, Order]]()
    able = _able(parts)
    seeds = sorted(greedy(parts, able), key=lambda pair: (pair[0], len(pair[1]), pair[1]))[:STARTS]
    for value, start in [*((_value(parts, order), order) for order in known), *seeds]:
        if spent > effort // 2 and improved:
            break
        value, order, used = _descend(parts, value, start, able)
        spent += used
        improved.append((value, order))
        best.add(value, order)
    improved = [pair for pair in improved if pair[0] < INF]
    if not improved:
        return []
    here = min(improved, key=lambda pair: (pair[0], len(pair[1]), pair[1]))
    dull = 0
    while spent < effort:
        kicked = _kick(parts, here[1], able, draws)
        if kicked is None:
            spent += 500
            continue
        value, order, used = _descend(parts, _value(parts, kicked), kicked, able)
        spent += used
        dull = 0 if value < best.value() else dull + 1
        best.add(value, order)
        if value < here[0] + here[0] // SLACK:
            here = value, order
        if dull >= PATIENCE:
            dull = 0
            ranked = best.ranked()
            order, value = ranked[draws.below(min(4, len(ranked)))]
            here = value, order
    return best.ranked()[:KEPT]


def greedy(parts: Blocks, able: Sequence[int] | None = None) -> list[tuple[int, Order]]:
    """One chain from each first peer: always the linked peer that adds the least time for each segment it holds."""
    view, places = parts.view, np.asarray(_able(parts) if able is None else able, dtype=np.intp)
    made: list[tuple[int, Order]] = []
    room, each, step, hop = parts.room, parts.each, view.step, parts.hop
    for first in places.tolist():
        if parts.room_first[first] < 0 or view.enter[first] >= INF:
            continue
        order, left, free = (
            [first],
            parts.count - max(int(parts.room_first[first]), 0),
            places[places != first],
        )
        while len(order) < len(places):
            last = order[-1]
            ending = free[
                (parts.room_last[free] >= max(left, 0))
                & (hop[last, free] < INF)
                & (view.back[free, first] < INF)
            ]
            if len(ending):
                cost = hop[last, ending] + view.back[ending, first] + step[ending] + parts.ends[1][ending]
                cost = cost + each[ending] * max(left, 0) + view.leave[ending]
                order.append(int(ending[int(cost.argmin())]))
                break
            onward = free[(room[free] >= 1) & (hop[last, free] < INF)]
            if not len(onward):
                break
            taken = np.minimum(room[onward], max(left, 1))
            cost = (hop[last, onward] + step[onward]) / taken + each[onward]
            chosen = int(onward[int(cost.argmin())])
            left -= int(min(room[chosen], max(left, 1)))
            order.append(chosen)
            free = free[free != chosen]
        if len(order) > 1:
            made.append((_value(parts, tuple(order)), tuple(order)))
    return made


def _able(parts: Blocks) -> list[int]:
    some = (parts.room >= 1) | (parts.room_first >= 0) | (parts.room_last >= 0)
    return [int(at) for at in np.flatnonzero(some)]


def _value(parts: Blocks, order: Order) -> int:
    return int(parts.values(np.array([order], dtype=np.intp))[0])


def _descend(parts: Blocks, value: int, order: Order, able: Sequence[int]) -> tuple[int, Order, int]:
    """The end of a steepest descent, and the numbers valued on the way."""
    spent = 0
    while True:
        best = value, order
        for rows in _neighbours(parts, order, able):
            values = parts.values(rows)
            spent += rows.size + 300
            at = int(values.argmin())
            if int(values[at]) < best[0]:
                best = int(values[at]), tuple(rows[at].tolist())
        if best[0] >= value:
            return value, order, spent
        value, order = best


def _neighbours(
    parts: Blocks, order: Order, able: Sequence[int]
) -> Iterable[np.ndarray[tuple[int, ...], np.dtype[np.intp]]]:
    here, count = np.array(order, dtype=np.intp), len(order)
    others = _others(parts, order, able)
    if count > 2:
        places = np.arange(count)
        yield np.stack([np.delete(here, at) for at in places])
    if len(others):
        replaced = np.repeat(here[None], count * len(others), axis=0)
        replaced[np.arange(len(replaced)), np.repeat(np.arange(count), len(others))] = np.tile(others, count)
        inserted = np.empty((count + 1, len(others), count + 1), dtype=np.intp)
        for at in range(count + 1):
            inserted[at, :, :at] = here[:at]
            inserted[at, :, at] = others
            inserted[at, :, at + 1 :] = here[at:]
        same = [replaced, _turned(here)]
        yield np.concatenate(same)
        yield inserted.reshape(-1, count + 1)
    else:
        yield _turned(here)


def _turned(
    here: np.ndarray[tuple[int, ...], np.dtype[np.intp]],
) -> np.ndarray[tuple[int, ...], np.dtype[np.intp]]:
    """The same peers: one moved elsewhere, two swapped, a stretch reversed."""
    count, rows = len(here), list[list[int]]()
    order = here.tolist()
    for low in range(count):
        rest = order[:low] + order[low + 1 :]
        rows += [[*rest[:to], order[low], *rest[to:]] for to in range(count) if to != low]
        for high in range(low + 1, count):
            swapped = order.copy()
            swapped[low], swapped[high] = swapped[high], swapped[low]
            rows.append(swapped)
            if high > low + 2:
                rows.append(order[:low] + order[low : high + 1][::-1] + order[high + 1 :])
    return np.array(rows, dtype=np.intp)


def _others(parts: Blocks, order: Order, able: Sequence[int]) -> Ints:
    used = set(order)
    others = np.array([at for at in able if at not in used], dtype=np.int64)
    if len(others) <= NEAR:
        return others
    here = list(order)
    near = np.minimum(parts.hop[here][:, others].min(axis=0), parts.hop[others][:, here].min(axis=1))
    room = np.maximum(np.maximum(parts.room[others], parts.room_first[others]), parts.room_last[others])
    score = near // np.maximum(room, 1) + parts.each[others]
    return np.sort(others[np.argsort(score, kind="stable")[:NEAR]])


def _kick(parts: Blocks, order: Order, able: Sequence[int], draws: Draws) -> Order | None:
    """A stretch torn out, and others put in until there is room again; None where that fails."""
    count = len(order)
    length = 1 + draws.below(max(1, min(count - 1, count // 2 + 1)))
    at = draws.below(count - length + 1)
    kept = [*order[:at], *order[at + length :]]
    used = set(order[at : at + length]) | set(kept)
    others = [peer for peer in able if peer not in used]
    if not others:
        others = list(order[at : at + length])
    draws.shuffle(others)
    room = sum(int(parts.room[peer]) for peer in kept)
    filled: list[int] = []
    while others and (room < parts.count + 2 or len(kept) + len(filled) < 2):
        few = others[-4:]
        before = filled[-1] if filled else kept[at - 1] if at else None
        pick = min(
            few,
            key=lambda peer: (
                (0 if before is None else int(parts.hop[before, peer])) + int(parts.each[peer]) * 4,
                peer,
            ),
        )
        others.remove(pick)
        filled.append(pick)
        room += int(parts.room[pick])
    made = (*kept[:at], *filled, *kept[at:])
    return made if len(made) > 1 else None
