"""Decides how many chains serve at once: groups of peers as replicas (genetic), or overlapping spans (annealing, flow).

Groups: a genome says which replica each peer is in; each replica is a chain of its own, its rate the best slowest
stage; the sum is bred for. Spans: every peer holds [first, stop) and may be entered in the middle; the rate is a
maximum flow from border 0 to the last, scored with the weakest unit so that flat stretches still lead somewhere.

Nothing calls it yet: it waits for plans of several chains.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from planner.solvers.seeded_random import Draws
from planner.solvers.threshold import best_bottleneck, spans

Tables = Sequence[Sequence[float]]
Span = tuple[int, int]
WEAKEST = 0.3  # weight of the weakest unit's rate beside the flow
POPULATION = 16
GENERATIONS = 40
STEPS = 1500


@dataclass(frozen=True, slots=True)
class Groups:
    """Replica of each peer, and tokens/s of all."""

    replica: tuple[int, ...]
    rate: float


@dataclass(frozen=True, slots=True)
class Spans:
    """[first, stop) of each peer, and the flow they carry."""

    held: tuple[Span, ...]
    rate: float


def grouped(tables: Tables, units: int, generations: int = GENERATIONS, seed: int = 1) -> Groups:
    """The best grouping found, never worse than one chain of all."""
    draws, peers = Draws(seed), len(tables)
    most = max(1, min(peers, sum(len(table) for table in tables) // max(1, units)))
    known: dict[tuple[int, ...], float] = {}

    def rate(members: tuple[int, ...]) -> float:
        if members not in known:
            found = best_bottleneck([tables[at] for at in members], units)
            known[members] = 0.0 if found is None else found.rate
        return known[members]

    def value(genome: tuple[int, ...]) -> float:
        return sum(rate(tuple(at for at in range(peers) if genome[at] == each)) for each in range(most))

    population = [tuple([0] * peers)]
    by_room = sorted(range(peers), key=lambda at: (-len(tables[at]), at))
    for groups in range(1, most + 1):
        genome = [0] * peers
        for place, at in enumerate(by_room):
            lap, slot = divmod(place, groups)
            genome[at] = slot if lap % 2 == 0 else groups - 1 - slot
        population.append(tuple(genome))
    while len(population) < POPULATION:
        population.append(tuple(draws.below(most) for _ in range(peers)))
    for _ in range(generations):
        population = sorted(set(population), key=lambda genome: (-value(genome), genome))[: POPULATION // 2]
        children: list[tuple[int, ...]] = []
        for _ in range(POPULATION):
            one, other = draws.choice(population), draws.choice(population)
            child = [one[at] if draws.below(2) else other[at] for at in range(peers)]
            for _ in range(1 + draws.below(2)):
                child[draws.below(peers)] = draws.below(most)
            children.append(tuple(child))
        population += children
    best = min(population, key=lambda genome: (-value(genome), genome))
    return Groups(best, value(best))


def annealed(tables: Tables, units: int, steps: int = STEPS, seed: int = 1) -> Spans:
    """Spans of the best flow found: from the best single chain, by shifts, sizes, swaps, copies and moved borders."""
    draws, peers = Draws(seed), len(tables)
    found = best_bottleneck(tables, units)
    held: list[Span] = [(0, min(units, len(table))) for table in tables]
    if found is not None:
        for peer, first, stop in spans(found, units):
            held[peer] = first, stop
    now = _score(tables, held, units)
    best = Spans(tuple(held), flow(tables, held, units))
    heat = 0.05 * max(now, 1.0)
    for step in range(steps):
        tried = _moved(held, [min(units, len(table)) for table in tables], units, draws)
        after = _score(tables, tried, units)
        limit = heat * (1 - step / steps)
        if after >= now - limit * draws.uniform():
            held, now = tried, after
            rate = flow(tables, held, units)
            if rate > best.rate:
                best = Spans(tuple(held), rate)
    return best if peers else Spans((), 0.0)


def _moved(held: Sequence[Span], rooms: Sequence[int], units: int, draws: Draws) -> list[Span]:
    made, at = list(held), draws.below(len(held))
    first, stop = made[at]
    match draws.below(5):
        case 0:  # shift
            by = draws.below(7) - 3
            made[at] = _inside(first + by, stop - first, units)
        case 1:  # resize
            made[at] = _inside(first, max(1, min(rooms[at], stop - first + draws.below(5) - 2)), units)
        case 2:  # swap
            mate = draws.below(len(held))
            made[at] = _inside(held[mate][0], min(rooms[at], held[mate][1] - held[mate][0]), units)
            made[mate] = _inside(first, min(rooms[mate], stop - first), units)
        case 3:  # copy
            other = held[draws.below(len(held))]
            made[at] = _inside(other[0], min(rooms[at], other[1] - other[0]), units)
        case _:  # one border, for everyone who ends or begins there
            border, by = stop, draws.below(3) - 1
            for each, (low, high) in enumerate(made):
                low, high = low + by * (low == border), high + by * (high == border)
                if 0 <= low < high <= units and high - low <= rooms[each]:
                    made[each] = low, high
    return made


def _inside(first: int, length: int, units: int) -> Span:
    length = max(1, min(length, units))
    first = max(0, min(first, units - length))
    return first, first + length


def _score(tables: Tables, held: Sequence[Span], units: int) -> float:
    served = [0.0] * units
    for table, (first, stop) in zip(tables, held, strict=True):
        for unit in range(first, stop):
            served[unit] += table[stop - first - 1]
    return flow(tables, held, units) + WEAKEST * min(served)


def flow(tables: Tables, held: Sequence[Span], units: int) -> float:
    """The most tokens/s from the first border to the last; a peer is entered anywhere and left at its end."""
    # by hand: a peer needs neither scipy nor OR-tools to run, whose flows are of whole numbers besides
    peers = len(held)
    source, sink = 2 * peers, 2 * peers + 1
    edges: list[list[int]] = [[] for _ in range(2 * peers + 2)]
    to: list[int] = []
    room: list[float] = []

    def add(a: int, b: int, limit: float) -> None:
        edges[a].append(len(to))
        to.append(b)
        room.append(limit)
        edges[b].append(len(to))
        to.append(a)
        room.append(0.0)

    for at, (first, stop) in enumerate(held):
        rate = tables[at][stop - first - 1]
        add(2 * at, 2 * at + 1, rate)
        if first == 0:
            add(source, 2 * at, float("inf"))
        if stop == units:
            add(2 * at + 1, sink, float("inf"))
        for other, (low, high) in enumerate(held):
            if other != at and low <= stop < high:
                add(2 * at + 1, 2 * other, float("inf"))
    total = 0.0
    while True:
        came = {source: -1}
        queue = deque([source])
        while queue and sink not in came:
            here = queue.popleft()
            for edge in edges[here]:
                if room[edge] > 1e-9 and to[edge] not in came:
                    came[to[edge]] = edge
                    queue.append(to[edge])
        if sink not in came:
            return total
        edge, least = came[sink], float("inf")
        path: list[int] = []
        while edge != -1:
            path.append(edge)
            least = min(least, room[edge])
            edge = came[to[edge ^ 1]]
        for edge in path:
            room[edge] -= least
            room[edge ^ 1] += least
        total += least
