"""Decides where the units of a graph run, by construction and annealing: good placements of any size, not proven.

Starts are each peer alone, list placement by earliest finish (HEFT: Topcuoglu, Hariri, Wu 2002) over the fastest one,
two, … peers, and runs of equal load; the best of them are annealed, then polished until no single change helps. Draws
have a fixed seed and effort is counted in evaluations, so the same request gives the same placement.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from planner.cost.graph_evaluator import Board, Place, Way, held_bytes, play
from planner.solvers.seeded_random import Draws

SEED: Final = 1
STARTS: Final = 5  # that are annealed
SUBSETS: Final = 8  # peers of the largest list placement
EFFORT: Final = 1_200_000  # units and edges looked at, about a second of a slow core
LEAST_TRIES: Final = 400  # of a start, however large the graph is
HOT: Final = 0.2  # of the primary figure: what annealing accepts at first
COLD: Final = 0.002  # and at last
STRETCH: Final = 0.02  # weight of the mean load beside the largest, so that a search for the rate has a slope

# Smaller is better: bytes that do not fit, links that are missing, then the figures of the objective, peers and stages.
Key = tuple[int, int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class Atoms:
    """What moves as one, and where it may go: atoms[unit] is the atom of a unit, units[atom] its units."""

    atoms: tuple[int, ...]
    units: tuple[tuple[int, ...], ...]
    allowed: tuple[tuple[int, ...], ...]  # [atom]: peers, ascending


@dataclass(frozen=True, slots=True)
class Placement:
    """Stages by peers' places, with the key they are compared by."""

    places: tuple[Place, ...]
    key: Key

    @property
    def fits(self) -> bool:
        """Whether it can run."""
        return self.key[:2] == (0, 0)


def overflow(board: Board, places: Iterable[Place]) -> int:
    """Bytes that the peers lack for these stages."""
    return sum(max(0, held - free) for held, free in zip(held_bytes(board, places), board.free, strict=True))


def valued(board: Board, places: Sequence[Place]) -> Placement:
    """Those stages with their key."""
    played = play(board, places)
    peers = len({peer for _, _, peer in places})
    over, missing = overflow(board, places), len(played.missing)
    latency, period = played.latency_ps, played.period_ps
    if board.request.objective == "latency":
        return Placement(tuple(places), (over, missing, latency, peers, len(places), period))
    return Placement(tuple(places), (over, missing, period, peers, latency, len(places)))


class Search:
    """One search over one board: its evaluations are counted, and stop it."""

    def __init__(self, board: Board, atoms: Atoms, effort: int = EFFORT) -> None:
        self._board = board
        self._atoms = atoms
        self._draws = Draws(SEED)
        self._seen: dict[bool, Placement] = {}  # the best that fits, split or on one peer
        self._count = len(board.needs)
        self._cost = self._count + len(board.request.work.edges)
        self._left = 0
        self.more(effort)
        edges = board.request.work.edges
        # for each unit: its last user, its first source, whether the origin gets something of it or gives it something
        self._last = [
            max((edges[n].users[-1] for n in made if edges[n].users), default=-1) for made in board.makes
        ]
        sources = [[edges[number].source for number in used] for used in board.needs]
        self._first = [min((at for at in found if at is not None), default=self._count) for found in sources]
        self._returns = [any(edges[number].returned for number in made) for made in board.makes]
        self._given = [None in found for found in sources]

    def best(self, hints: Iterable[Sequence[int]] = ()) -> Placement:
        """The best placement found. `hints`: peers of the units in placements to begin with."""
        starts: dict[tuple[int, ...], Placement] = {}
        for where in (*hints, *self._whole(), *self._listed(), *self._runs()):
            starts.setdefault(tuple(where), self._best_cut(where))
        ranked = sorted(starts, key=lambda where: (starts[where].key, where))
        found = [starts[where] for where in ranked]
        tries = self._left // (2 * STARTS)
        for where in ranked[:STARTS] if len(self._board.names) > 1 else ():
            found.append(self._anneal(list(where), tries))
        found.sort(key=lambda placement: (placement.key, placement.places))
        return self._polished(found[0])

    def more(self, effort: int) -> None:
        """Allows so much work again."""
        self._left = max(effort // self._cost, STARTS * LEAST_TRIES)

    def met(self, found: Placement) -> None:
        """Remembers a placement that another solver found."""
        split = len({peer for *_, peer in found.places}) > 1
        if found.fits and (split not in self._seen or found.key < self._seen[split].key):
            self._seen[split] = found

    def rival(self, *, split: bool) -> Placement | None:
        """The best placement met of the other sort: on one peer for a split one."""
        return self._seen.get(not split)

    def _valued(self, places: Sequence[Place]) -> Placement:
        found = valued(self._board, places)
        self.met(found)
        return found

    # -- starts

    def _whole(self) -> Iterable[list[int]]:
        """Everything on one peer."""
        for peer in range(len(self._board.names)):
            if all(peer in allowed for allowed in self._atoms.allowed):
                yield [peer] * self._count

    def _fastest(self) -> list[int]:
        return sorted(range(len(self._board.names)), key=lambda peer: (self._board.busy[peer][-1], peer))

    def _listed(self) -> Iterable[list[int]]:
        """List placements over the fastest peers, in the order of ranks and in that of the units."""
        fastest = self._fastest()
        rank = self._ranks()
        orders = [sorted(range(self._count), key=lambda unit: (-rank[unit], unit)), list(range(self._count))]
        sizes = {min(size, len(fastest)) for size in (*range(2, SUBSETS + 1), len(fastest))}
        for size in sorted(sizes):
            for order in orders:
                yield self._list(order, frozenset(fastest[:size]))

    def _ranks(self) -> list[float]:
        """Mean time from the begin of each unit to the end of all."""
        board, edges = self._board, self._board.request.work.edges
        peers = range(len(board.names))
        ways = [way for a in peers for b in peers if (way := board.way(a, b)) is not None]
        rank = [0.0] * self._count
        for unit in reversed(range(self._count)):
            tail = 0.0
            for number in board.makes[unit]:
                hop = sum(delay + sent[number] for delay, sent in ways) / max(1, len(ways))
                tail = max([tail, *(hop / 2 + rank[user] for user in edges[number].users)])
            rank[unit] = tail + sum(board.busy[p][unit + 1] - board.busy[p][unit] for p in peers) / len(peers)
        return rank

    def _list(self, order: Sequence[int], peers: frozenset[int]) -> list[int]:
        """Each unit in turn where it ends first, among those that have room."""
        board, edges, atoms = self._board, self._board.request.work.edges, self._atoms
        where, ends = [-1] * self._count, [0] * self._count
        free, held = [0] * len(board.names), [0] * len(board.names)
        for unit in order:
            atom = atoms.atoms[unit]
            size = sum(board.stage_bytes(each, each + 1) for each in atoms.units[atom])
            placed = next((where[each] for each in atoms.units[atom] if where[each] >= 0), -1)
            choices = (
                [placed]
                if placed >= 0
                else [p for p in atoms.allowed[atom] if p in peers] or atoms.allowed[atom]
            )
            best: tuple[int, int, int] | None = None
            for peer in choices:
                ready = 0
                for number in board.needs[unit]:
                    source = edges[number].source
                    src, made = (board.origin, 0) if source is None else (where[source], ends[source])
                    if src is not None and src != peer:
                        way = board.way(src, peer)
                        made += way[0] + way[1][number] if way else 1 << 60
                    ready = max(ready, made)
                follows = unit > 0 and where[unit - 1] == peer
                step = 0 if follows else board.steps[peer]
                end = max(ready, free[peer]) + step + board.busy[peer][unit + 1] - board.busy[peer][unit]
                short = 0 if placed >= 0 else max(0, held[peer] + size - board.free[peer])
                best = min(best or (short, end, peer), (short, end, peer))
            assert best is not None  # every atom has a peer
            where[unit], ends[unit], free[best[2]] = best[2], best[1], best[1]
            if placed < 0:
                held[best[2]] += size
        return where

    def _runs(self) -> Iterable[list[int]]:
        """Runs in the order of units: by speed, the fastest few peers; and by room, most first."""
        board, atoms = self._board, self._atoms
        fastest = self._fastest()
        roomy = sorted(range(len(board.names)), key=lambda peer: (-board.free[peer], peer))
        orders = [fastest[:size] for size in range(2, min(SUBSETS, len(fastest)) + 1)]
        for peers in (*orders, fastest, roomy):
            speed = [1 / max(1, board.busy[peer][-1]) for peer in peers]
            where = [-1] * self._count
            at, held, done = 0, 0, 0.0
            for unit in range(self._count):
                atom = atoms.atoms[unit]
                if where[unit] >= 0:
                    continue
                size = sum(board.stage_bytes(each, each + 1) for each in atoms.units[atom])
                share = speed[at] / sum(speed)
                full = held + size > board.free[peers[at]]
                if at + 1 < len(peers) and unit and (full or (done >= share and peers is not roomy)):
                    at, held, done = at + 1, 0, 0.0
                peer = peers[at] if peers[at] in atoms.allowed[atom] else atoms.allowed[atom][0]
                for each in atoms.units[atom]:
                    where[each] = peer
                    held += board.stage_bytes(each, each + 1)
                    whole = max(1, board.busy[peer][-1])
                    done += (board.busy[peer][each + 1] - board.busy[peer][each]) / whole
            yield where

    # -- cuts

    def _borders(self, where: Sequence[int]) -> list[int]:
        """Borders inside a run of one peer that may help: something leaves before them, or comes after them."""
        found: list[int] = []
        first = 0
        origin = self._board.origin
        while first < self._count:
            peer, stop = where[first], first + 1
            while stop < self._count and where[stop] == peer:
                stop += 1
            abroad = origin is not None and origin != peer
            for border in range(first + 1, stop):
                before = self._last[border - 1] >= stop or (abroad and self._returns[border - 1])
                after = self._first[border] < first or (abroad and self._given[border])
                if before or after:
                    found.append(border)
            first = stop
        return found

    def _places(self, where: Sequence[int], cuts: Iterable[int]) -> list[Place]:
        wanted = set(cuts)
        found: list[Place] = []
        first = 0
        for unit in range(1, self._count + 1):
            if unit == self._count or where[unit] != where[first] or unit in wanted:
                found.append((first, unit, where[first]))
                first = unit
        return found

    def _best_cut(self, where: Sequence[int]) -> Placement:
        """The better of all borders that may help, and none."""
        options = [self._valued(self._places(where, ()))]
        borders = self._borders(where)
        if borders:
            options.append(self._valued(self._places(where, borders)))
        return min(options, key=lambda placement: (placement.key, placement.places))

    # -- annealing

    def _anneal(self, where: list[int], tries: int) -> Placement:
        """The best that a walk of so many steps meets."""
        draws = self._draws
        uncut: set[int] = set()
        now, energy = self._energy(where, uncut)
        best = (now, energy, list(where), set(uncut))
        hot = self._critical(where, uncut)
        heat = HOT * max(1.0, energy)
        cool = (COLD / HOT) ** (1 / max(1, tries))
        for _ in range(tries):
            heat *= cool
            changed = self._changed(where, uncut, hot)
            if changed is None:
                continue
            other, flags = changed
            bad, found = self._energy(other, flags)
            if bad > now:
                continue
            if bad < now or found <= energy or draws.uniform() < math.exp((energy - found) / heat):
                where, uncut, now, energy = other, flags, bad, found
                hot = self._critical(where, uncut)
                if (now, energy) < best[:2]:
                    best = (now, energy, list(where), set(uncut))
        where, uncut = best[2], best[3]
        cuts = [border for border in self._borders(where) if border not in uncut]
        options = [self._valued(self._places(where, cuts)), self._best_cut(where)]
        return min(options, key=lambda placement: (placement.key, placement.places))

    def _energy(self, where: Sequence[int], uncut: set[int]) -> tuple[tuple[int, int], float]:
        """What does not fit and is not linked; what annealing lowers."""
        board = self._board
        if board.request.objective == "latency":
            places = self._places(where, (border for border in self._borders(where) if border not in uncut))
            played = play(board, places)
            return (overflow(board, places), len(played.missing)), float(played.latency_ps)
        places = self._places(where, ())
        peers, links, missing = self._loads(where, places)
        busy = [*peers, *links.values()]
        mean = math.sqrt(sum(float(each) * each for each in busy) / len(board.names))
        return (overflow(board, places), missing), max(busy) + STRETCH * mean

    def _loads(self, where: Sequence[int], places: Sequence[Place]) -> tuple[list[int], dict[Way, int], int]:
        """Busy times of peers and of links, and how many links are missing."""
        board, origin = self._board, self._board.origin
        peers = [0] * len(board.names)
        for place in places:
            peers[place[2]] += board.stage_ps(place)
        links: dict[Way, int] = {}
        missing: set[Way] = set()
        for number, edge in enumerate(board.request.work.edges):
            src = origin if edge.source is None else where[edge.source]
            if src is None:
                continue
            there = {where[unit] for unit in edge.users}
            if edge.returned and origin is not None:
                there.add(origin)
            for dst in there:
                if dst != src:
                    way = board.way(src, dst)
                    if way is None:
                        missing.add((src, dst))
                    else:
                        links[src, dst] = links.get((src, dst), 0) + way[1][number]
        return peers, links, len(missing)

    def _critical(self, where: Sequence[int], uncut: set[int]) -> list[int]:
        """Units on the critical path, or on what is busiest: those a change of which may help."""
        board = self._board
        if board.request.objective == "throughput":
            places = self._places(where, ())
            peers, links, _ = self._loads(where, places)
            most = max(*peers, *links.values())
            busy = {peer for peer, load in enumerate(peers) if load == most}
            for way, load in links.items():
                if load == most:
                    busy |= {*way}
            return [unit for unit, peer in enumerate(where) if peer in busy]
        places = self._places(where, (border for border in self._borders(where) if border not in uncut))
        played = play(board, places)
        spans, edges = played.spans, board.request.work.edges
        stage_of = [at for at, (first, stop, _) in enumerate(places) for _ in range(first, stop)]
        at = max(range(len(places)), key=lambda stage: spans[stage][1])
        found: list[int] = []
        while True:
            first, stop, peer = places[at]
            found += range(first, stop)
            begins = spans[at][0]
            before = [
                stage
                for stage, place in enumerate(places)
                if place[2] == peer and spans[stage][1] == begins and stage != at
            ]
            if not before:
                sources = (
                    edges[number].source for unit in range(first, stop) for number in board.needs[unit]
                )
                made = {stage_of[source] for source in sources if source is not None} - {at}
                before = sorted(made, key=lambda stage: -spans[stage][1])
            if not before or spans[before[0]][1] > begins or len(found) > self._count:
                return found
            at = before[0]

    def _changed(
        self, where: list[int], uncut: set[int], hot: Sequence[int]
    ) -> tuple[list[int], set[int]] | None:
        """One random change; None where it would change nothing."""
        draws, count = self._draws, self._count
        kind = draws.below(16)
        if kind == 0 and self._board.request.objective == "latency":
            return where, uncut ^ {1 + draws.below(max(1, count - 1))}
        if kind <= 1:  # two peers trade all they have
            a, b = where[draws.below(count)], draws.below(len(self._board.names))
            swap = {a: b, b: a}
            return self._moved(
                where, uncut, {unit: swap[peer] for unit, peer in enumerate(where) if peer in swap}
            )
        at = draws.choice(hot) if hot and draws.below(2) else draws.below(count)
        if kind <= 6:  # two units, or a few in a row, trade their peers
            other = draws.below(count)
            length = 1 + draws.below(1 + draws.below(4))
            moves = self._whole_atoms(range(at, min(count, at + length)), where[other])
            return self._moved(where, uncut, {**moves, **self._whole_atoms([other], where[at])})
        if kind <= 11:  # a unit, or a few in a row
            length = 1 + draws.below(1 + draws.below(8))
            units = range(at, min(count, at + length))
        else:  # a run of a peer before a border, or after it, or the whole
            first, stop = at, at + 1
            while first and where[first - 1] == where[at]:
                first -= 1
            while stop < count and where[stop] == where[at]:
                stop += 1
            units = (range(first, stop), range(at, stop), range(first, at + 1))[draws.below(3)]
        near = [where[each] for each in (units[0] - 1, units[-1] + 1) if 0 <= each < count]
        pick = draws.below(4)
        if pick == 0 and near:
            peer = draws.choice(near)
        elif pick == 1:
            peer = where[draws.below(count)]
        else:
            peer = draws.below(len(self._board.names))
        return self._moved(where, uncut, self._whole_atoms(units, peer))

    def _whole_atoms(self, units: Iterable[int], peer: int) -> dict[int, int]:
        atoms = self._atoms
        return {each: peer for unit in units for each in atoms.units[atoms.atoms[unit]]}

    def _moved(
        self, where: list[int], uncut: set[int], moves: dict[int, int]
    ) -> tuple[list[int], set[int]] | None:
        if not self._may(moves) or all(where[unit] == peer for unit, peer in moves.items()):
            return None
        other = list(where)
        for unit, peer in moves.items():
            other[unit] = peer
        return other, uncut

    def _may(self, moves: dict[int, int]) -> bool:
        atoms = self._atoms
        return all(peer in atoms.allowed[atoms.atoms[unit]] for unit, peer in moves.items())

    # -- polishing

    def _polished(self, found: Placement) -> Placement:
        """Until no stage on another peer, no other border and no other cut is better."""
        better = True
        while better and self._left > 0:
            better = False
            for places in self._neighbours(found.places):
                self._left -= 1
                if self._left <= 0:
                    break
                other = self._valued(places)
                if other.key < found.key:
                    found, better = other, True
                    break
        return found

    def _neighbours(self, places: tuple[Place, ...]) -> Iterable[list[Place]]:
        where = [peer for first, stop, peer in places for _ in range(first, stop)]
        cuts = {first for first, _, _ in places[1:]}
        for border in range(1, self._count):
            if border in cuts:
                if where[border - 1] == where[border]:
                    yield self._places(where, cuts - {border})
            else:
                yield self._places(where, cuts | {border})
        runs = [(first, stop) for first, stop, _ in places]
        for first, stop, _ in places:
            runs += [(first, first + 1), (stop - 1, stop)] if stop - first > 1 else []
        for first, stop in runs:
            for peer in range(len(self._board.names)):
                moved = self._moved(where, set(), self._whole_atoms(range(first, stop), peer))
                if moved is not None:
                    other = moved[0]
                    yield self._places(
                        other, [at for at in cuts if where[at - 1] == where[at] or other[at - 1] != other[at]]
                    )
