"""Runs the scenario `peer_slowed`: a process that is stopped and woken by turns while it computes for answers.

Edge that puts rig, streams and signals together; what a run shows is decided in `peer.validation.scenarios.slowdowns`.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from peer.errors import CannotServe
from peer.state.generated.commands import PlanRecord, Profile
from peer.state.mesh_state import MeshState
from peer.validation.runs.loss_runner import Load
from peer.validation.scenarios.faults import Victim
from peer.validation.scenarios.figures import Judged, judge
from peer.validation.scenarios.slowdowns import BRIEF_S, Moment, Slowed, Turns, moment, tokens_for
from peer.validation.scenarios.unit_coverage import Coverage
from peer.validation.scenarios.workload import Question, questions
from peer.validation.world.answer_streams import Answered, Talks, answer_all
from peer.validation.world.mesh import Rig

RATE_TOKENS: Final = 48  # that say how fast this mesh is
PROMPT_TOKENS: Final = 320  # of the longest question, generously
AFTER_S: Final = 5.0  # what the brief slowness leads to has come by then


class Throttle:
    """Stops and wakes a process by turns until it is closed."""

    def __init__(self, send: Callable[[signal.Signals], None]) -> None:
        self.turns = Turns()
        self._send = send
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        try:
            while True:
                await self._turn(signal.SIGSTOP, self.turns.stop_s, self.turns.stopped)
                await self._turn(signal.SIGCONT, self.turns.run_s, self.turns.ran)
        finally:
            self._send(signal.SIGCONT)

    async def _turn(self, number: signal.Signals, for_s: float, done: Callable[[float], None]) -> None:
        self._send(number)
        begun = time.perf_counter()
        await asyncio.sleep(for_s)
        done(time.perf_counter() - begun)

    async def close(self) -> None:
        """It runs as before."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task


@dataclass(slots=True)
class Watch:
    """What the log said since: who told another pace, which plans came to serve, and when answers went over to them."""

    state: Callable[[], MeshState]
    talks: Talks = ()
    victim: str = ""
    told: list[tuple[float, str]] = field(default_factory=list)
    plans: list[tuple[float, PlanRecord]] = field(default_factory=list)
    over: dict[int, float] = field(default_factory=dict)  # by answer: since when it goes over the newest plan
    before: PlanRecord | None = None
    running: frozenset[int] = frozenset()  # answers that ran when the first plan came to serve
    _profiles: dict[str, Profile] = field(default_factory=dict)
    _version: int = 0

    def begin(self) -> None:
        """From now on."""
        state = self.state()
        self.told, self.plans, self.over, self.victim = [], [], {}, ""
        self.before = state.plan
        self.running = frozenset()
        self._version = state.plan.version if state.plan is not None else 0
        self._profiles = _profiles(state)

    def look(self) -> None:
        """The state changed."""
        now, state = time.perf_counter(), self.state()
        for peer, profile in _profiles(state).items():
            known = self._profiles.get(peer)
            if known is not None and known.decode_ns != profile.decode_ns:
                self.told.append((now, peer))
            self._profiles[peer] = profile
        if state.plan is not None and state.plan.version > self._version:
            self._version = state.plan.version
            self.plans.append((now, state.plan))
            if len(self.plans) == 1:
                self.running = frozenset(
                    place for place, talk in enumerate(self.talks) if talk.way is not None
                )

    def on_token(self, place: int) -> None:
        """An answer has another token."""
        if self.plans and place not in self.over:
            way = self.talks[place].way
            if way is not None and way[0] >= self.plans[0][1].version:
                self.over[place] = time.perf_counter()

    @property
    def planned_s(self) -> float | None:
        """When a plan came to serve that asks less of the victim."""
        if self.before is None:
            return None
        most = _units(self.before, self.victim)
        return next((at for at, plan in self.plans if _units(plan, self.victim) < most), None)


def _profiles(state: MeshState) -> dict[str, Profile]:
    return {peer: member.profile for peer, member in state.members.items() if member.profile is not None}


def _units(plan: PlanRecord, peer: str) -> int:
    return sum(stage.stop - stage.first for stage in plan.stages if stage.primary == peer)


class SlowRunner:
    """One run on a rig of its own, whose planner decides where the model is cut."""

    def __init__(self, rig: Rig, load: Load) -> None:
        self._rig = rig
        self._load = load
        view = rig.founder.view
        self._watch = Watch(lambda: view.state)
        view.subscribe(self._watch.look)

    async def run(self, number: int) -> Slowed:
        """Undisturbed answers, the same with a brief slowness, the same with one that stays. Raises PeerError."""
        rig, load = self._rig, self._load
        draw = random.Random(f"{load.seed}/slowed/{number}").random
        asked = questions(load.sessions, RATE_TOKENS, draw)
        asked = await self._long_enough(asked)
        known = await answer_all(rig.founder, asked, digests=False)
        for answered in known:
            if answered.stream.error:
                raise CannotServe(f"an answer failed with nothing disturbed: {answered.stream.error}")
        stages = len(rig.plan().stages)
        watch = self._watch
        rig.coverage = Coverage(rig.state, lambda: [way for talk in watch.talks if (way := talk.way)])
        brief = await self._slowed(
            asked, known, moment(stages, load.sessions, asked[0].tokens, draw), BRIEF_S
        )
        await asyncio.sleep(AFTER_S)
        changes = len(watch.told) + len(watch.plans)
        notes = [f"{asked[0].tokens} tokens", f"{stages} stages"]
        notes += [f"brief: {_name(rig, peer)} told another pace" for _, peer in watch.told]
        lasting = await self._slowed(asked, known, moment(stages, load.sessions, asked[0].tokens, draw), None)
        notes += [*brief.notes, *lasting.notes]
        return replace(
            lasting,
            judged=brief.judged + lasting.judged,
            brief_changes=changes,
            uncovered=len(rig.coverage.gaps),
            notes=(*notes, *rig.coverage.gaps[:4]),
        )

    async def _long_enough(self, asked: tuple[Question, ...]) -> tuple[Question, ...]:
        model = self._rig.state.model
        assert model is not None
        found = await answer_all(self._rig.founder, asked, digests=False)
        seconds = [each.stream.at_s[-1] - each.stream.at_s[0] for each in found if not each.stream.error]
        if len(seconds) < len(found):
            raise CannotServe("an answer failed with nothing disturbed")
        tokens = tokens_for(max(seconds), RATE_TOKENS, model.context - PROMPT_TOKENS)
        return tuple(replace(question, tokens=tokens) for question in asked)

    async def _slowed(
        self, asked: tuple[Question, ...], known: list[Answered], when: Moment, for_s: float | None
    ) -> Slowed:
        rig, watch = self._rig, self._watch
        watch.begin()
        slow: list[tuple[float, Throttle, str]] = []
        waits: list[asyncio.TimerHandle] = []
        ending: list[Awaitable[None]] = []

        def show(talks: Talks) -> None:
            watch.talks = talks

        def on_token(session: int, count: int) -> None:
            watch.on_token(session)
            if slow or session != when.session or count < when.after_token:
                return
            route = watch.talks[session].route
            name = rig.victim(Victim(when.stage), route)
            watch.victim = next(peer for peer in route if rig.name(peer) == name)
            throttle = Throttle(rig.children[name].send)
            slow.append((time.perf_counter(), throttle, name))
            if for_s is not None:
                loop = asyncio.get_running_loop()
                waits.append(
                    loop.call_later(for_s, lambda: ending.append(asyncio.ensure_future(throttle.close())))
                )

        try:
            seen = await answer_all(rig.founder, asked, on_token, digests=False, show=show)
        finally:
            for wait in waits:
                wait.cancel()
            for _, throttle, _ in slow:
                await throttle.close()
            await asyncio.gather(*ending)
        if not slow:
            raise CannotServe("the answers ended before a peer was made slower")
        return self._shown(known, seen, slow[0])

    def _shown(
        self, known: list[Answered], seen: list[Answered], slow: tuple[float, Throttle, str]
    ) -> Slowed:
        watch, (at_s, throttle, name) = self._watch, slow
        judged: tuple[Judged, ...] = tuple(
            judge(a.stream, b.stream, at_s, at_s) for a, b in zip(known, seen, strict=True)
        )
        noticed = next((at for at, peer in watch.told if peer == watch.victim), None)
        planned = watch.planned_s
        relieved = None
        if planned is not None:
            ends = {place: seen[place].stream.at_s[-1] for place in watch.running if seen[place].stream.at_s}
            relieved = max([planned, *(watch.over.get(place, end) for place, end in ends.items())])
        notes = [f"slowed {name}"]
        notes += [f"answer {n} broke off: {b.stream.error}" for n, b in enumerate(seen) if b.stream.error]
        notes += [
            f"answer {n} differs from token {j.first_difference} on"
            for n, j in enumerate(judged)
            if not j.equal
        ]
        notes += [f"after {at - at_s:.1f} s: {plan.why[0]}" for at, plan in watch.plans]
        return Slowed(
            judged=judged,
            share=throttle.turns.share,
            noticed_s=_since(at_s, noticed),
            planned_s=_since(at_s, planned),
            relieved_s=_since(at_s, relieved),
            moved=len(watch.over.keys() & watch.running),
            plans=len(watch.plans),
            brief_changes=0,
            notes=tuple(notes),
        )


def _since(begun: float, at: float | None) -> float | None:
    return None if at is None else at - begun


def _name(rig: Rig, peer: str) -> str:
    try:
        return rig.name(peer)
    except KeyError:
        return peer[:8]
