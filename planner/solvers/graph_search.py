"""Decides where the units of a graph run, by annealing: good placements of any size, not proven.

The best of what rules give (`planner.solvers.graph_starts`) are annealed, then polished until no single change helps.
Draws have a fixed seed and effort is counted in evaluations, so the same request gives the same placement.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from planner.cost.graph_evaluator import Board, Place, Played, play
from planner.solvers.graph_candidates import Atoms, Placement, lacks, valued
from planner.solvers.graph_starts import starts
from planner.solvers.seeded_random import Draws

SEED: Final = 1
STARTS: Final = 5  # that are annealed, where there is effort for so many
TRIES: Final = 2_500  # evaluations of each then
EFFORT: Final = 1_500_000  # units and edges looked at, more with more peers: about a second of a slow core
LEAST: Final = 200  # evaluations, however large the graph is
ANNEALED: Final = 0.75  # of the effort; what is left polishes
HOT: Final = 0.2  # of the primary figure: what annealing accepts at first
COLD: Final = 0.002  # and at last
STRETCH: Final = 0.02  # weight of the mean load beside the largest, so that a search for the rate has a slope


@dataclass(frozen=True, slots=True)
class _Point:
    """Where annealing is: peers of the units, borders that are not cut though that may help, and what that gives."""

    where: Sequence[int]
    uncut: frozenset[int]
    places: Sequence[Place]
    played: Played
    lacks: tuple[int, int]
    energy: float


class Search:
    """One search over one board: its evaluations are counted, and stop it."""

    def __init__(self, board: Board, atoms: Atoms, effort: int = EFFORT) -> None:
        self._board = board
        self._atoms = atoms
        self._draws = Draws(SEED)
        self._seen: dict[bool, Placement] = {}  # the best that fits, split or on one peer
        self._count = len(board.needs)
        self._cost = (self._count + len(board.request.work.edges)) * (10 + len(board.names)) // 10
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
        begun: dict[tuple[int, ...], Placement] = {}
        for where in (*hints, *starts(self._board, self._atoms)):
            begun.setdefault(tuple(where), self._best_cut(where))
        ranked = sorted(begun, key=lambda where: (begun[where].key, where))
        found = [begun[where] for where in ranked]
        tries = int(ANNEALED * self._left) if len(self._board.names) > 1 else 0
        self._left -= tries
        most = min(STARTS, max(1, tries // TRIES), len(ranked))
        for where in ranked[:most]:
            found.append(self._anneal(where, tries // most))
        found.sort(key=lambda placement: (placement.key, placement.places))
        return self._polished(found[0])

    def more(self, effort: int) -> None:
        """Allows so much work again."""
        self._left = max(effort // self._cost, LEAST)

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

    def _anneal(self, where: Sequence[int], tries: int) -> Placement:
        """The best that a walk of so many steps meets."""
        now = best = self._point(where, frozenset())
        hot = self._hot(now)
        heat = HOT * max(1.0, now.energy)
        cool = (COLD / HOT) ** (1 / max(1, tries))
        for _ in range(tries):
            heat *= cool
            changed = self._changed(now, hot)
            if changed is None:
                continue
            other = self._point(*changed)
            rise = other.energy - now.energy
            if other.lacks > now.lacks or (
                other.lacks == now.lacks and rise > 0 and self._draws.uniform() >= math.exp(-rise / heat)
            ):
                continue
            now, hot = other, self._hot(other)
            if (now.lacks, now.energy) < (best.lacks, best.energy):
                best = now
        cuts = [border for border in self._borders(best.where) if border not in best.uncut]
        options = [self._valued(self._places(best.where, cuts)), self._best_cut(best.where)]
        return min(options, key=lambda placement: (placement.key, placement.places))

    def _point(self, where: Sequence[int], uncut: frozenset[int]) -> _Point:
        board = self._board
        if board.request.objective == "latency":
            places = self._places(where, (border for border in self._borders(where) if border not in uncut))
            played = play(board, places)
            energy = float(played.latency_ps)
        else:
            places = self._places(where, ())
            played = self._loads(where, places)
            busy = [*played.peers_ps, *played.links_ps.values()]
            mean = math.sqrt(sum(float(each) * each for each in busy) / len(board.names))
            energy = played.period_ps + STRETCH * mean
        return _Point(where, uncut, places, played, lacks(board, places, len(played.missing)), energy)

    def _loads(self, where: Sequence[int], places: Sequence[Place]) -> Played:
        """Busy times alone, which need no schedule."""
        board, origin = self._board, self._board.origin
        found = Played(0, [], [0] * len(board.names), {}, set())
        for place in places:
            found.peers_ps[place[2]] += board.stage_ps(place)
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
                        found.missing.add((src, dst))
                    else:
                        found.links_ps[src, dst] = found.links_ps.get((src, dst), 0) + way[1][number]
                        board.handle(found.peers_ps, (src, dst), number)
        return found

    def _hot(self, point: _Point) -> list[int]:
        """Units whose change may help: those of what is busiest, or on the critical path."""
        played, places = point.played, point.places
        if self._board.request.objective == "throughput":
            most = played.period_ps
            busy = {peer for peer, load in enumerate(played.peers_ps) if load == most}
            busy |= {peer for way, load in played.links_ps.items() if load == most for peer in way}
            return [unit for unit, peer in enumerate(point.where) if peer in busy]
        spans, edges = played.spans, self._board.request.work.edges
        stage_of = [at for at, (first, stop, _) in enumerate(places) for _ in range(first, stop)]
        at = max(range(len(places)), key=lambda stage: spans[stage][1])
        found: list[int] = []
        for _ in places:
            first, stop, peer = places[at]
            found += range(first, stop)
            begins = spans[at][0]
            before = [
                stage
                for stage, place in enumerate(places)
                if place[2] == peer and spans[stage][1] == begins and stage != at
            ]
            if not before:  # it did not wait for its peer
                sources = (
                    edges[number].source for unit in range(first, stop) for number in self._board.needs[unit]
                )
                made = {stage_of[source] for source in sources if source is not None} - {at}
                before = sorted(made, key=lambda stage: (-spans[stage][1], stage))
            if not before:
                break
            at = before[0]
        return found

    def _changed(self, now: _Point, hot: Sequence[int]) -> tuple[Sequence[int], frozenset[int]] | None:
        """One random change; None where it would change nothing."""
        draws, count, where, uncut = self._draws, self._count, now.where, now.uncut
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
        self, where: Sequence[int], uncut: frozenset[int], moves: dict[int, int]
    ) -> tuple[list[int], frozenset[int]] | None:
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
        options = self._options(found.places)
        at, since = 0, 0
        while since < len(options) and self._left > 0:
            places = self._neighbour(found.places, options[at % len(options)])
            at, since = at + 1, since + 1
            if places is None:
                continue
            self._left -= 1
            other = self._valued(places)
            if other.key < found.key:
                found, since = other, 0
                options = self._options(found.places)
        return found

    def _options(self, places: Sequence[Place]) -> list[Place]:
        """Borders to toggle, as (border, border, -1), and runs to move to another peer."""
        found: list[Place] = [(border, border, -1) for border in range(1, self._count)]
        runs = {(first, stop) for first, stop, _ in places}
        runs |= {(first, first + 1) for first, _, _ in places} | {(stop - 1, stop) for _, stop, _ in places}
        peers = range(len(self._board.names))
        return found + [(first, stop, peer) for first, stop in sorted(runs) for peer in peers]

    def _neighbour(self, places: Sequence[Place], option: Place) -> list[Place] | None:
        """The placement with one option taken; None where that changes nothing."""
        where = [peer for first, stop, peer in places for _ in range(first, stop)]
        cuts = {first for first, _, _ in places[1:]}
        first, stop, peer = option
        if peer < 0:
            return None if where[first - 1] != where[first] else self._places(where, cuts ^ {first})
        moved = self._moved(where, frozenset(), self._whole_atoms(range(first, stop), peer))
        if moved is None:
            return None
        other = moved[0]
        kept = [at for at in cuts if where[at - 1] == where[at] or other[at - 1] != other[at]]
        return self._places(other, kept)
