"""Where a graph is cut into units: at frontiers that few bytes cross. Pure.

Steps stand in depth-first order, so that a branch is a run of them. The frontier at a place are the values that are
made before it and used after it. A border is the frontier of fewest bytes within its surroundings, a share of the whole
work to either side. Steps between two borders that need nothing of each other are units side by side, so that no tower
waits for another one. Small units join a neighbour wherever nothing else has to wait for that.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

SHARES: Final = (
    48  # about how many borders there are: each is the best within this share of the work to either side
)
NEAR_SHARE: Final = 8  # a border that is much worse than the best within this share of the work is none
MUCH_WORSE: Final = 4
SMALL_SHARE: Final = 96  # units of less than this share of the work join a neighbour
MOST_UNITS: Final = 64
MOST_SIDE_BY_SIDE: Final = 8  # between two borders; the smallest of more stay together

Group = list[int]  # places of steps, ascending


@dataclass(frozen=True, slots=True)
class Part:
    """What cutting needs to know of a step: the values it takes and makes, and its work in any unit."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    work: float


def cut(parts: Sequence[Part], sizes: Mapping[str, float], most_units: int = MOST_UNITS) -> list[Group]:
    """The units of the steps, in topological order. `sizes`: bytes of each value that may cross a border."""
    borders = find_borders(parts, sizes)
    groups: list[Group] = []
    for first, stop in zip((0, *borders), (*borders, len(parts)), strict=True):
        groups += _side_by_side(parts, first, stop)
    small = sum(part.work for part in parts) / SMALL_SHARE
    return _at_most(_joined(parts, groups, sizes, small), parts, most_units)


def frontiers(parts: Sequence[Part], sizes: Mapping[str, float]) -> list[float]:
    """Bytes that cross before each step, infinite where a value cannot; the first is 0."""
    last: dict[str, int] = {}
    for place, part in enumerate(parts):
        last.update(dict.fromkeys(part.inputs, place))
    more, blocks = [0.0] * (len(parts) + 1), [0] * (len(parts) + 1)
    for place, part in enumerate(parts):
        for value in part.outputs:
            until = last.get(value, place)
            if until > place:
                size = sizes.get(value, math.inf)
                if size < math.inf:
                    more[place + 1] += size
                    more[until + 1] -= size
                else:
                    blocks[place + 1] += 1
                    blocks[until + 1] -= 1
    found: list[float] = []
    crossing, blocked = 0.0, 0
    for place in range(len(parts)):
        crossing, blocked = crossing + more[place], blocked + blocks[place]
        found.append(math.inf if blocked else max(crossing, 0.0))
    return found


def find_borders(parts: Sequence[Part], sizes: Mapping[str, float]) -> list[int]:
    """Places of the steps before which a border stands, ascending: the cheapest first, each at its distance to others;
    of equal ones the first.
    """
    costs = frontiers(parts, sizes)
    before = [0.0]
    for part in parts:
        before.append(before[-1] + part.work)
    total = before[-1]
    wide = _least_near(costs, before, total / NEAR_SHARE)
    found: list[tuple[float, int]] = []  # work before it, and its place
    for place in sorted(range(1, len(parts)), key=lambda place: (costs[place], place)):
        if not costs[place] <= MUCH_WORSE * costs[wide[place]] < math.inf:
            continue
        at = bisect_left(found, (before[place], place))
        beside = [work for work, _ in found[max(at - 1, 0) : at + 1]]
        if all(abs(before[place] - work) > total / SHARES for work in beside):
            found.insert(at, (before[place], place))
    return [place for _, place in found]


def _least_near(costs: Sequence[float], before: Sequence[float], reach: float) -> list[int]:
    """For each place, the place of the least cost within `reach` of work, itself included; the first of equal ones."""
    found = [0] * len(costs)
    window: deque[int] = deque()
    after = 1
    for place in range(1, len(costs)):
        while after < len(costs) and before[after] <= before[place] + reach:
            while window and costs[window[-1]] > costs[after]:
                window.pop()
            window.append(after)
            after += 1
        while before[window[0]] < before[place] - reach:
            window.popleft()
        found[place] = window[0]
    return found


def _side_by_side(parts: Sequence[Part], first: int, stop: int) -> list[Group]:
    """The steps [first, stop) in groups that need nothing of each other, the largest ones apart."""
    root = list(range(stop - first))

    def of(place: int) -> int:
        while root[place] != place:
            root[place] = root[root[place]]
            place = root[place]
        return place

    made = {value: place for place in range(first, stop) for value in parts[place].outputs}
    for place in range(first, stop):
        for value in parts[place].inputs:
            if value in made:
                root[of(place - first)] = of(made[value] - first)
    groups: dict[int, Group] = {}
    for place in range(first, stop):
        groups.setdefault(of(place - first), []).append(place)
    ranked = sorted(groups.values(), key=lambda group: (-_work(parts, group), group[0]))
    rest = sorted(place for group in ranked[MOST_SIDE_BY_SIDE - 1 :] for place in group)
    return sorted([*ranked[: MOST_SIDE_BY_SIDE - 1], *([rest] if rest else [])])


def _work(parts: Sequence[Part], group: Collection[int]) -> float:
    return sum(parts[place].work for place in group)


def _joined(
    parts: Sequence[Part], groups: list[Group], sizes: Mapping[str, float], small: float
) -> list[Group]:
    """Joins small groups to neighbours for which nothing waits longer: the only one that uses it, or that it uses."""
    left = dict(enumerate(groups))
    work = {number: _work(parts, group) for number, group in left.items()}
    made = {
        value: number for number, group in left.items() for place in group for value in parts[place].outputs
    }
    uses: dict[int, dict[int, float]] = {number: {} for number in left}  # by group, bytes from another
    for number, group in left.items():
        for value in {value for place in group for value in parts[place].inputs if value in made}:
            if made[value] != number:
                uses[number][made[value]] = uses[number].get(made[value], 0.0) + sizes.get(value, 0.0)
    used: dict[int, dict[int, float]] = {number: {} for number in left}
    for number, others in uses.items():
        for other, size in others.items():
            used[other][number] = size
    waiting = sorted((number for number in left if work[number] < small), key=lambda n: (work[n], n))
    while waiting:
        number = waiting.pop(0)
        if number not in left or work[number] >= small:
            continue
        ways = [(-size, other) for other, size in used[number].items() if len(used[number]) == 1]
        ways += [(-size, other) for other, size in uses[number].items() if len(uses[number]) == 1]
        if not ways:
            continue
        other = min(ways)[1]
        left[other] = sorted(left[other] + left.pop(number))
        work[other] += work[number]
        for links, back in ((uses, used), (used, uses)):
            for third, size in links.pop(number).items():
                del back[third][number]
                if third != other:
                    links[other][third] = links[other].get(third, 0.0) + size
                    back[third][other] = links[other][third]
        if work[other] < small:
            waiting.append(other)
    return _in_order(left, uses)


def _in_order(groups: Mapping[int, Group], uses: Mapping[int, Mapping[int, float]]) -> list[Group]:
    """Each group after those that it uses; else by the first of its steps."""
    found: list[Group] = []
    done: set[int] = set()
    for start in sorted(groups, key=lambda number: groups[number][0]):
        stack = [(start, False)]
        while stack:
            number, needs_done = stack.pop()
            if needs_done:
                found.append(groups[number])
            elif number not in done:
                done.add(number)
                stack.append((number, True))
                needs = sorted(uses[number], key=lambda other: groups[other][0], reverse=True)
                stack.extend((other, False) for other in needs if other not in done)
    return found


def _at_most(groups: list[Group], parts: Sequence[Part], most: int) -> list[Group]:
    """Joins neighbours in the order, those of least work first, until there are few enough."""
    found = list(groups)
    work = [_work(parts, group) for group in found]
    while len(found) > max(most, 1):
        place = min(range(len(found) - 1), key=lambda place: (work[place] + work[place + 1], place))
        found[place : place + 2] = [sorted(found[place] + found[place + 1])]
        work[place : place + 2] = [work[place] + work[place + 1]]
    return found
