"""Runs one schedule and says what was wrong with it: who asks, what goes wrong when, and what must hold.

What must hold: every answer's tokens are those of the undisturbed run, each position shown once and in order; every
question ends, and fails only when no peer that holds some stage was there for long enough; afterwards no seat, slot
or log is left anywhere; logs stay within their bounds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from peer import session
from peer.mesh_state import MeshState
from peer.pipeline import LEASE_S
from peer.session import Ask, Broken, Emit, Ended, OriginSession
from tests.sim.member import Member, Outcome
from tests.sim.mesh import Mesh
from tests.sim.network import Network
from tests.sim.schedule import Fault, Schedule, Talk
from tests.sim.toy import Reference

TICK_S = 0.25
END_S = 400.0  # of virtual time: every question has ended long before
MOST_EVENTS = 60_000
PLAN_WAIT_S = 20.0
CHUNK_TOKENS = 4  # so that short prompts come in several steps
GAP_S = 1.0  # without a holder of some stage for so long, an answer may fail

Trace = Callable[[str, str], None]


@dataclass(slots=True)
class Speaker:
    """One session as a person sees it."""

    talk: Talk
    core: OriginSession | None = None
    reference: Reference = field(default_factory=Reference)
    turn: int = -1
    prompt: tuple[int, ...] = ()
    shown: list[int] = field(default_factory=list)
    expected: list[int] = field(default_factory=list)
    begun_s: float = 0.0
    busy: bool = False
    ended: bool = False
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    seed: int
    problems: tuple[str, ...]
    ended: int
    failed: int
    events: int


@contextmanager
def small_numbers() -> Iterator[None]:
    """Prompts of a few tokens come in several steps."""
    kept = session.CHUNK_TOKENS
    session.CHUNK_TOKENS = CHUNK_TOKENS
    try:
        yield
    finally:
        session.CHUNK_TOKENS = kept


class World:
    """Everything in one run."""

    def __init__(self, schedule: Schedule, trace: Trace | None = None) -> None:
        self.schedule = schedule
        self.problems: list[str] = []
        self._rng = random.Random(schedule.seed + 1_000_003)
        self._trace = trace
        self.network = Network(self._rng, schedule.pace)
        names = tuple(dict.fromkeys([*schedule.peers, *schedule.askers]))
        tracer = self._say if trace is not None else None
        self.members = {
            name: Member(self.network, name, schedule.slots, schedule.pace.token_s, tracer) for name in names
        }
        self.mesh = Mesh(self.network, self._rng, self.members, schedule.peers, schedule.plan)
        self.speakers = {talk.session: Speaker(talk) for talk in schedule.talks}
        self.vanished: set[str] = set()
        self.gaps: list[tuple[float, float]] = []  # when some stage had no holder
        self._gap_from: float | None = None
        self.ended = self.failed = 0
        self.mesh.on_state = lambda state: self._look_for_gaps(state)

    def run(self) -> Report:
        with small_numbers():
            return self._run()

    def _run(self) -> Report:
        for member in self.members.values():
            member.listener = self._heard
        for fault in self.schedule.faults:
            self.network.at(fault.at_s, self._fault, fault)
        for speaker in self.speakers.values():
            self.network.at(self._rng.random() * 0.1, self._ask, speaker, 0)
        self._tick()
        events = 0
        while self.network.step(END_S):
            events += 1
            if events > MOST_EVENTS:
                self.problems.append(f"more than {MOST_EVENTS} events")
                break
        self._look_for_gaps(self.mesh.state)
        self._finish()
        return Report(self.schedule.seed, tuple(self.problems), self.ended, self.failed, events)

    # --- asking

    def _ask(self, speaker: Speaker, waited: int) -> None:
        member = self.members[speaker.talk.asker]
        if not member.alive or speaker.talk.asker in self.vanished or speaker.ended:
            speaker.ended = True
            return
        plan = member.state.serving()
        if member.frozen or plan is None:
            if waited * 0.1 > PLAN_WAIT_S:
                speaker.ended = True
                return
            self.network.at(self.network.now + 0.1, self._ask, speaker, waited + 1)
            return
        if speaker.core is None or speaker.core.session not in member.askings:
            speaker.core = OriginSession(speaker.talk.session, member.name)
            member.askings[speaker.talk.session] = speaker.core
        speaker.turn += 1
        turn = speaker.talk.turns[speaker.turn]
        said = [*speaker.prompt, *speaker.shown]
        kept = said if turn.keep is None else said[: turn.keep]
        speaker.prompt = (*kept, *turn.fresh)
        speaker.shown = []
        speaker.expected = speaker.reference.answer(
            speaker.prompt, turn.max_tokens, turn.sampling, turn.end_tokens
        )
        speaker.begun_s = self.network.now
        speaker.busy = True
        ask = Ask(speaker.prompt, turn.max_tokens, turn.sampling, turn.end_tokens)
        if self._trace:
            self._say(member.name, f"asks {speaker.talk.session[0]}, turn {speaker.turn}: {ask}")
        member.perform_origin(speaker.core, speaker.core.begin(self.network.now, plan, ask))

    def _heard(self, core: OriginSession, outcome: Outcome) -> None:
        speaker = self.speakers[core.session]
        if self._trace:
            self._say(core.me, f"hears {outcome}")
        match outcome:
            case Emit(token, position):
                place = len(speaker.prompt) + len(speaker.shown)
                wanted = speaker.expected[len(speaker.shown) : len(speaker.shown) + 1]
                if not speaker.busy:
                    self._wrong(speaker, f"token for {position} after the end")
                elif position != place:
                    self._wrong(speaker, f"position {position} shown where {place} was next")
                elif wanted != [token]:
                    self._wrong(speaker, f"token {token} at {position}, expected {wanted}")
                speaker.shown.append(token)
                turn = speaker.talk.turns[speaker.turn]
                if len(speaker.shown) == turn.stop_after and len(speaker.shown) < turn.max_tokens:
                    member = self.members[core.me]
                    member.later(0.0, self._stop, speaker, speaker.turn)
            case Ended(why):
                self.ended += 1
                if not speaker.busy:
                    self._wrong(speaker, "ended twice")
                if len(speaker.shown) != len(speaker.expected):
                    self._wrong(
                        speaker, f"ended ({why}) with {len(speaker.shown)} of {len(speaker.expected)} tokens"
                    )
                self._next_turn(speaker)
            case Broken(text, _):
                self.failed += 1
                speaker.failed = True
                if not self._may_fail(speaker, text):
                    self._wrong(speaker, f"failed though every stage had a holder: {text}")
                speaker.ended, speaker.busy = True, False
                member = self.members[core.me]
                member.later(0.2, self._release, speaker)

    def _stop(self, speaker: Speaker, turn: int) -> None:
        core = speaker.core
        if core is not None and speaker.busy and speaker.turn == turn:
            speaker.expected = speaker.expected[: len(speaker.shown)]
            speaker.reference.stopped(len(speaker.prompt) + len(speaker.shown))
            self.members[core.me].perform_origin(core, core.cancel())

    def _next_turn(self, speaker: Speaker) -> None:
        speaker.busy = False
        assert speaker.core is not None
        member = self.members[speaker.core.me]
        turns = speaker.talk.turns
        if speaker.turn + 1 < len(turns):
            member.later(turns[speaker.turn].pause_s, self._ask, speaker, 0)
        else:
            speaker.ended = True
            member.later(0.2, self._release, speaker)

    def _release(self, speaker: Speaker) -> None:
        core = speaker.core
        if core is not None:
            member = self.members[core.me]
            member.perform_origin(core, core.release())
            member.askings.pop(core.session, None)

    # --- what goes wrong

    def _fault(self, fault: Fault) -> None:
        if self._trace:
            self._say(fault.peer, f"FAULT {fault}")
        member, now, pace = self.members[fault.peer], self.network.now, self.schedule.pace
        match fault.kind:
            case "crash" | "crash_restart" | "vanish":
                if not member.alive:
                    return
                self._die(member)
                if fault.kind == "crash_restart":
                    self.network.at(now + fault.lasts_s, self._restart, member)
            case "freeze":
                if member.alive and not member.frozen:
                    member.freeze()
                    self._look_for_gaps(self.mesh.state)
                    self.network.at(now + fault.lasts_s, self._thaw, member)
            case "drop":
                self.network.cut(fault.peer, fault.other, pace.notice_s)
            case "slow":
                member.worker.slow_until = now + fault.lasts_s
            case "spike":
                self.network.slow_link(fault.peer, fault.other, now + fault.lasts_s)
            case "leave":
                if member.alive and not member.frozen:
                    member.perform(member.core.leave())
                    self.mesh.leaving(fault.peer)
            case "replan":
                self.mesh.shuffle()
            case "full":
                if member.alive and not member.frozen:
                    member.perform(member.core.congestion(fault.other, True))
                    member.later(fault.lasts_s, self._relieve, member, fault.other)
            case _:
                raise AssertionError(fault.kind)

    def _die(self, member: Member) -> None:
        member.alive = False
        for speaker in self.speakers.values():
            if speaker.talk.asker == member.name and (speaker.core is not None or speaker.busy):
                speaker.ended, speaker.busy = True, False  # a person who asks again asks in another session
        pace = self.schedule.pace
        for other in self.members:
            if other != member.name:
                self.network.cut(member.name, other, pace.notice_s)
        self.network.at(
            self.network.now + 0.05 + pace.log_s * self._rng.random(), self.mesh.left, member.name
        )
        self._look_for_gaps(self.mesh.state)

    def _restart(self, member: Member) -> None:
        if not member.alive:
            self.mesh.left(member.name)
            member.born()
            self.network.reborn(member.name)
            self.mesh.joined(member.name)

    def _thaw(self, member: Member) -> None:
        if member.alive and member.frozen:
            if self._trace:
                self._say(member.name, "thaws")
            member.thaw()
            self._look_for_gaps(self.mesh.state)

    def _relieve(self, member: Member, other: str) -> None:
        member.perform(member.core.congestion(other, False))

    def _tick(self) -> None:
        for member in self.members.values():
            if member.alive and not member.frozen:
                member.tick()
        if any(speaker.busy or not speaker.ended for speaker in self.speakers.values()):
            self.network.at(self.network.now + TICK_S, self._tick)

    # --- what must hold

    def _wrong(self, speaker: Speaker, what: str) -> None:
        self.problems.append(f"session {speaker.talk.session[0]}, turn {speaker.turn}: {what}")

    def _look_for_gaps(self, state: MeshState) -> None:
        """Whether every stage of the plan has a holder who is here and awake, from now on."""
        plan = state.plan
        whole = plan is not None and all(
            any(
                self.members[peer].alive
                and not self.members[peer].frozen
                and (listed := state.members.get(peer)) is not None
                and listed.status == "measured"
                and (stage.first, stage.stop) in listed.held
                for peer in (stage.primary, *stage.standbys)
            )
            for stage in plan.stages
        )
        now = self.network.now
        if whole and self._gap_from is not None:
            self.gaps.append((self._gap_from, now))
            self._gap_from = None
        elif not whole and self._gap_from is None:
            self._gap_from = now

    def _may_fail(self, speaker: Speaker, text: str) -> bool:
        if "in use" in text and len(self.speakers) > self.schedule.slots:
            return True
        now = self.network.now
        gaps = [*self.gaps, *([(self._gap_from, now)] if self._gap_from is not None else [])]
        return any(min(end, now) - max(begin, speaker.begun_s) >= GAP_S for begin, end in gaps)

    def _finish(self) -> None:
        """Nothing moves any more: every question has ended, and nothing is left of any session."""
        for speaker in self.speakers.values():
            if speaker.busy and self.members[speaker.talk.asker].alive:
                self._wrong(speaker, f"did not end: {speaker.core.phase if speaker.core else None}")
        if self.network.lost_frames == 0:
            self._nothing_left("after every session was released")
        self.network.now += LEASE_S + 1.0
        for member in self.members.values():
            if member.alive:
                member.tick()
        while self.network.step(1e9):
            continue
        self._nothing_left("after the leases")

    def _nothing_left(self, when: str) -> None:
        for name, member in self.members.items():
            if not member.alive:
                continue
            if member.core.sessions():
                self.problems.append(f"{name} keeps {member.core.sessions()} seats {when}")
            kept = {
                run: sorted(s[0] for s in caches) for run, caches in member.worker.caches.items() if caches
            }
            if kept:
                self.problems.append(f"{name} keeps slots {kept} {when}")

    def _say(self, who: str, what: str) -> None:
        assert self._trace is not None
        self._trace(who, what)


def run_schedule(schedule: Schedule, trace: Callable[[float, str, str], None] | None = None) -> Report:
    """One run. `trace` hears of everything that happens."""
    if trace is None:
        return World(schedule).run()
    world = World(schedule, lambda who, what: trace(world.network.now, who, what))
    return world.run()
