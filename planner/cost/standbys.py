"""Decides who stands by for which stage: how many copies, of which stages first, on whose spare memory.

Pure. The loss of a stage that holds the embedding or the head costs most (class critical: sampling, or the way
from the tokens, is lost with it), then that of the most bytes of weights and KV. `request.redundancy` promises
copies, the costliest losses first; they go to whoever has room, primaries of other stages included, peers with
fewest places first. With `request.spare`, peers that still have no place stand by as well.

A copy counts where nothing takes it together with the others (machine, network, owner) and no relay may be in the way.
Copies that do not count are placed where no other is left, those first that fail together in fewer ways. A stage whose
primary may be behind a relay comes first and gets a copy even where none is promised. Who leaves rarely may stand by
for more: the hazard counts with the places that one loss takes away.

Of peers that fail together with the holders in equally few ways, those whose arithmetic is of the primary's class
come first (planner.model.arithmetic_class), then those of unknown, then those of another class, and only then who is
lost rarely, or faster. What a takeover by another class changes is the wording of an answer, at near ties; a machine
that two holders share takes the answer itself, so domains decide before classes. That the likelier loss comes after the
class costs little: the copies that are promised are kept in any case, and two peers of a class are of one kind, which
comes and goes alike. Of those that stand by for a stage, its class is named first: where several are left, they are
equally safe, and the first one takes over. Of a primary that is gone a request says nothing any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from planner.cost import evaluator
from planner.cost.independent_copies import PRIOR_HAZARD_PER_H, apart, doubtful, hazard, shared
from planner.model.arithmetic_class import unlike
from planner.types import Held, PeerProfile, PlanRequest, Stage

SEARCH_WORK: Final = 20_000  # peers looked at while standbys that were placed before are moved to make room
HELD_WORTH: Final = (
    16  # a standby stays unless another is so many times less likely to be lost: loading takes a while
)
CRITICAL: Final = frozenset({"embed", "head"})


def critical(request: PlanRequest, stage: Stage) -> bool:
    """Whether `stage` has the embedding or the head among its units."""
    return any(unit.kind in CRITICAL for unit in request.units[stage.first : stage.stop])


def loss_order(request: PlanRequest, stages: Sequence[Stage]) -> list[int]:
    """Places of the stages, the costliest loss first: critical ones, then more bytes and likelier, then the earlier."""
    known = evaluator.profiles(request)

    def often(name: str) -> float:
        return hazard(known[name]) if name in known else PRIOR_HAZARD_PER_H

    return sorted(
        range(len(stages)),
        key=lambda at: (
            not critical(request, stages[at]),
            -often(stages[at].peer) * (stages[at].weight_bytes + stages[at].kv_bytes),
            at,
        ),
    )


def promised(stages: int, redundancy: int) -> int:
    """How many standbys `redundancy` (thousandths) promises for so many stages, rounded up."""
    return -(-stages * (redundancy - 1000) // 1000)


def with_standbys(
    request: PlanRequest, stages: Sequence[Stage], held: Held | None = None, prefer: Held | None = None
) -> tuple[Stage, ...]:
    """`stages` with their standbys. With `held` (runs per peer) only those who hold a stage's run, and all of them.

    `prefer`: runs per peer; who holds a stage's run already is taken first.
    """
    room = _Room.of(request, stages)
    room.prefer = prefer or {}
    if held is not None:
        for at in room.order:
            stage = room.stages[at]
            for name in room.able(at):
                runs = held.get(name, ())
                if any(first <= stage.first and stage.stop <= stop for first, stop in runs):
                    room.put(at, name)
        return room.result()
    _promise(room, promised(len(stages), request.redundancy))
    if request.spare:
        _fill(room)
    return room.result()


def promoted(request: PlanRequest, before: Sequence[Stage], held: Held) -> tuple[Stage, ...] | None:
    """`before` (with its standbys) where a lost stage goes to its first standby that holds it, and nobody else moves.

    Without such a standby it goes to whoever else holds its run: fewest places first, then the fastest, then by
    name. None when nobody does, or the links are missing.
    """
    known = evaluator.profiles(request)
    found: list[Stage] = []
    for stage in before:
        run = (stage.first, stage.stop)
        if stage.helpers and all(name in known for name in stage.team):
            team = [known[name] for name in stage.team]
            found.append(evaluator.make_team(request, team, stage.shares, *run))
            continue
        names = [name for name in sorted(known) if run in held.get(name, ())]
        room = _Room.of(request, found)
        names.sort(key=lambda name: room.liking(name, stage))
        wishes = [name for name in (stage.peer, *stage.standbys, *names) if name in names]
        if not wishes:
            return None
        found.append(evaluator.make_stage(request, known[wishes[0]], *run))
    return tuple(found) if found and evaluator.refuse(request, found) is None else None


def takeovers(request: PlanRequest, stages: Sequence[Stage], lost: Iterable[int]) -> tuple[Stage, ...] | None:
    """`stages` with somebody else in the places `lost`, everyone else where they are; None when there is no room.

    The places choose in the order given. Whoever takes one may have others. Fewest places first, then the
    fastest, then by name.
    """
    open_places = list(dict.fromkeys(lost))
    found = list(stages)
    while open_places:
        at = open_places.pop(0)
        stage = stages[at]
        room = _Room.of(
            request, [each for place, each in enumerate(found) if place not in (at, *open_places)]
        )
        neighbours = [(at - 1) % len(found), (at + 1) % len(found)]
        before, after = (None if place in open_places else found[place].peer for place in neighbours)
        able = [
            name
            for name in sorted(room.peers)
            if room.fits(name, (stage.first, stage.stop))
            and (before in (None, name) or len(found) == 1 or (before, name) in room.links)
            and (after in (None, name) or len(found) == 1 or (name, after) in room.links)
        ]
        if not able:
            return None
        pick = min(able, key=lambda name: room.liking(name, stage))
        found[at] = evaluator.make_stage(request, room.peers[pick], stage.first, stage.stop)
    return tuple(found) if evaluator.refuse(request, found) is None else None


def _promise(room: _Room, wanted: int) -> None:
    """Places `wanted` standbys, first copies first; where one has no room the next costliest gets it.

    Those that count as holders, then whoever has room. Before all a holder for each stage that has none.
    """
    steps, placed = iter(range(SEARCH_WORK // max(1, len(room.peers)))), list[int]()
    _place(room, placed, [at for at in room.order if room.stages[at].peer in room.unsure], steps)
    most = -(-wanted // max(1, len(room.stages)))
    _place_turns(room, placed, most, steps, wanted)
    if not placed:  # nobody counts: then whoever has room, with the same care
        room.anybody = True
        _place_turns(room, placed, most, steps, wanted)
        room.anybody = False
    left = wanted - len(placed)
    for at in room.order * most:
        able = room.able(at) if left > 0 else []
        if able and len(room.standbys[at]) < most:
            room.put(at, able[0])
            left -= 1


def _place_turns(room: _Room, placed: list[int], most: int, steps: Iterator[int], wanted: int) -> None:
    """First copies of all stages, then second ones."""
    for turn in range(most):
        lacking = [at for at in room.order if len(room.standbys[at]) <= turn]
        _place(room, placed, lacking, steps, wanted)


def _place(
    room: _Room, placed: list[int], lacking: Sequence[int], steps: Iterator[int], wanted: int | None = None
) -> None:
    """Gives each of `lacking` one more holder, until `wanted` are `placed`."""
    for at in lacking:
        if wanted is not None and len(placed) >= wanted:
            return
        able = room.able(at, counted=True)
        if able:
            room.put(at, able[0])
            placed.append(at)
        elif room.rearranged([*placed, at], steps):
            placed.append(at)


def _fill(room: _Room) -> None:
    """Gives peers without a place one each: to the stage with fewest standbys, of these the costliest loss."""
    while True:
        for at in sorted(
            room.order, key=lambda at: len(room.standbys[at])
        ):  # stable: else the costliest first
            able = [name for name in room.able(at) if not room.places.get(name)]
            if able:
                holders = room.able(at, counted=True)
                room.put(at, next((name for name in able if name in holders), able[0]))
                break
        else:
            return


@dataclass(slots=True)
class _Room:
    """Who has which places, while standbys are chosen."""

    request: PlanRequest
    stages: tuple[Stage, ...]  # without standbys
    peers: Mapping[str, PeerProfile]
    links: frozenset[tuple[str, str]]
    order: list[int]
    places: dict[str, set[evaluator.Part]] = field(default_factory=dict)
    standbys: list[list[str]] = field(default_factory=list)
    prefer: Held = field(default_factory=dict)
    unsure: frozenset[str] = frozenset()  # never the only holder
    anybody: bool = False  # no copy counts: any does

    @classmethod
    def of(cls, request: PlanRequest, stages: Sequence[Stage]) -> _Room:
        bare = tuple(replace(stage, standbys=()) for stage in stages)
        links = frozenset((link.src, link.dst) for link in request.links)
        unsure = doubtful(request)
        order = sorted(loss_order(request, bare), key=lambda at: bare[at].peer not in unsure)
        made = cls(request, bare, evaluator.profiles(request), links, order, unsure=unsure)
        made.clear()
        return made

    def clear(self) -> None:
        self.places = evaluator.runs_by_peer(self.stages)
        self.standbys = [[] for _ in self.stages]

    def fits(self, name: str, run: evaluator.Part) -> bool:
        runs = self.places.get(name, set()) | {run}
        return evaluator.refuse_runs(self.request, self.peers[name], runs) is None

    def able(self, at: int, *, counted: bool = False) -> list[str]:
        """Who may stand by for stage `at`, the first the one to take; `counted`: as one more holder."""
        stage = self.stages[at]
        names = [
            name
            for name in sorted(self.peers)
            if name not in stage.team
            and name not in self.standbys[at]
            and self._linked(at, name)
            and self.fits(name, (stage.first, stage.stop))
            and (not counted or self._counts(at, name))
        ]
        return sorted(
            names,
            key=lambda name: (*self._doubts(at, name), self._unlike(at, name), *self.liking(name, stage)),
        )

    def _unlike(self, at: int, name: str) -> int:
        """How far its arithmetic is from that of the primary of stage `at`."""
        primary = self.peers[self.stages[at].peer]
        return unlike(primary.facts.arithmetic, self.peers[name].facts.arithmetic)

    def _doubts(self, at: int, name: str) -> tuple[int, bool]:
        """In how many ways it fails together with those who hold stage `at`; whether a relay may be in the way."""
        others = [self.peers[other] for other in (self.stages[at].peer, *self.standbys[at])]
        return len(shared(self.peers[name], others)), name in self.unsure

    def _counts(self, at: int, name: str) -> bool:
        if self.anybody:
            return True
        others = [self.peers[other] for other in (self.stages[at].peer, *self.standbys[at])]
        return name not in self.unsure and apart(self.peers[name], others)

    def liking(self, name: str, stage: Stage) -> tuple[float, bool, int, str]:
        """Who holds the run already, then fewest places first, those that are lost rarely counting less."""
        lacks = (stage.first, stage.stop) not in self.prefer.get(name, ())
        serves = any(each.peer == name for each in self.stages)
        units = self.request.units[stage.first : stage.stop]
        often = hazard(self.peers[name]) * (1 + len(self.places.get(name, ())))
        often *= HELD_WORTH if lacks else 1
        return often, serves, evaluator.stage_ps(self.peers[name], units, 1), name

    def put(self, at: int, name: str) -> None:
        self.standbys[at].append(name)
        self.places.setdefault(name, set()).add((self.stages[at].first, self.stages[at].stop))

    def take(self, at: int, name: str) -> None:
        self.standbys[at].remove(name)
        self.places[name].discard((self.stages[at].first, self.stages[at].stop))

    def rearranged(self, items: Sequence[int], steps: Iterator[int]) -> bool:
        """Places one standby for each of `items` from scratch, if there is a way; else all stays as it was."""
        before = [list(names) for names in self.standbys]
        self.clear()
        if self._search(items, 0, steps):
            return True
        self.clear()
        for at, names in enumerate(before):
            for name in names:
                self.put(at, name)
        return False

    def _search(self, items: Sequence[int], done: int, steps: Iterator[int]) -> bool:
        if done == len(items):
            return True
        at = items[done]
        for name in self.able(at, counted=True):
            if next(steps, None) is None:
                return False
            self.put(at, name)
            if self._search(items, done + 1, steps):
                return True
            self.take(at, name)
        return False

    def _linked(self, at: int, name: str) -> bool:
        """Whether `name` in place `at` reaches its neighbours, and they and the origin reach it."""
        count, origin = len(self.stages), self.request.origin
        before, after = self.stages[(at - 1) % count].peer, self.stages[(at + 1) % count].peer
        pairs = [(before, name), (name, after)] if count > 1 else []
        if origin is not None and at == 0:
            pairs.append((origin, name))
        if origin is not None and at == count - 1:
            pairs.append((name, origin))
        return all(src == dst or (src, dst) in self.links for src, dst in pairs)

    def result(self) -> tuple[Stage, ...]:
        return tuple(
            replace(stage, standbys=tuple(sorted(names, key=partial(self._unlike, at))))  # stable
            for at, (stage, names) in enumerate(zip(self.stages, self.standbys, strict=True))
        )
