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
from unittest.mock import patch

from peer.session import position_spans
from peer.session.effects import Broken, Emit, Ended
from peer.session.origin import HOPE_S, Ask, OriginSession
from peer.session.stage import LEASE_S
from peer.state.mesh_state import MeshState
from tests.sim.forgery import forged
from tests.sim.member import Habits, Member, Outcome
from tests.sim.mesh import Mesh
from tests.sim.network import Network
from tests.sim.schedule import Fault, Schedule, Talk
from tests.sim.toy import Reference

TICK_S = 0.25
END_S = 400.0  # of virtual time: every question has ended long before
MOST_EVENTS = 60_000
PLAN_WAIT_S = 20.0
CHUNK_TOKENS = 4  # so that short prompts come in several steps
QUIET_S = 0.3  # after an answer, everybody has heard of its end
GAP_S = 0.2  # without a holder for so long, an answer may fail that hopes for nobody: news take their time
HOPEFUL_GAP_S = 0.6 * HOPE_S

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
    with patch.object(position_spans, "CHUNK_TOKENS", CHUNK_TOKENS):
        yield


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
        pace = schedule.pace
        habits = Habits(
            slots=schedule.slots,
            log_session_bytes=schedule.log_bytes,
            log_total_bytes=2 * schedule.log_bytes,
            shadows=schedule.standbys_do != "nothing",
            keep_only=schedule.standbys_do == "keep",
            token_s=pace.token_s,
            patience_s=pace.patience_s,
            spare_loss=pace.spare_loss,
            hopeful=schedule.hopeful,
        )
        self.members = {name: Member(self.network, name, habits, tracer) for name in names}
        self.mesh = Mesh(self.network, self._rng, self.members, schedule.peers, schedule.plan)
        self.speakers = {talk.session: Speaker(talk) for talk in schedule.talks}
        self.vanished: set[str] = set()
        self.gaps: list[tuple[float, float]] = []  # when some stage had no holder
        self._stays = any(talk.stays for talk in schedule.talks)
        self._disturbed = any(
            fault.kind in ("freeze", "spike", "full", "slow", "drop") for fault in schedule.faults
        )
        self._gap_from: float | None = None
        self.ended = self.failed = 0
        self.mesh.on_state = lambda state: self._look_for_gaps(state)

    def run(self) -> Report:
        with small_numbers():
            return self._run()

    def _run(self) -> Report:
        for member in self.members.values():
            member.listener = self._heard
            member.suspected = self.mesh.suspected
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
        if not member.alive or speaker.ended:
            speaker.ended = True
            return
        route = member.route()
        if member.frozen or route is None:
            if waited * 0.1 > PLAN_WAIT_S:
                speaker.ended = True
                self._release(speaker)
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
        member.perform_origin(speaker.core, speaker.core.begin(self.network.now, route, ask))

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
            member.later(QUIET_S, self._release, speaker)

    def _release(self, speaker: Speaker) -> None:
        core = speaker.core
        if core is not None and not speaker.talk.stays:
            if self.network.lost_frames == 0 and not self._disturbed:
                self._nobody_answers(speaker)
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
                self.gaps.append(
                    (now, now + pace.notice_s)
                )  # until then nobody knows that it must be made anew
            case "slow":
                self._slow(member, True)
                self.network.at(now + fault.lasts_s, self._slow, member, False)
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
                    member.congestion(fault.other, True)
                    member.later(fault.lasts_s, member.congestion, fault.other, False)
            case "stranger":
                for target, frame in forged(self._rng, self.members, fault.peer):
                    self.network.send(fault.peer, target, frame)
            case _:
                raise AssertionError(fault.kind)

    def _die(self, member: Member) -> None:
        member.alive = False
        self.vanished |= {member.name} & set(self.schedule.askers)
        for speaker in self.speakers.values():
            if speaker.talk.asker == member.name and (speaker.core is not None or speaker.busy):
                speaker.ended, speaker.busy = True, False  # a person who asks again asks in another session
        pace, now = self.schedule.pace, self.network.now
        self.gaps.append(
            (now, now + pace.notice_s)
        )  # frames to it, or to who takes its name, are lost until then
        for other in self.members:
            if other != member.name:
                self.network.cut(member.name, other, pace.notice_s)
                if pace.hint_s:
                    self.members[other].later(
                        pace.hint_s * self._rng.random(), self.members[other].hint, member.name
                    )
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

    def _slow(self, member: Member, slow: bool) -> None:
        member.worker.slow = slow

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
        enough_s = HOPEFUL_GAP_S if self.schedule.hopeful else GAP_S
        return any(min(end, now) - max(begin, speaker.begun_s) >= enough_s for begin, end in gaps)

    def _finish(self) -> None:
        """Nothing moves any more: every question has ended, and nothing is left of any session."""
        for speaker in self.speakers.values():
            if speaker.busy and self.members[speaker.talk.asker].alive:
                self._wrong(speaker, f"did not end: {speaker.core.phase if speaker.core else None}")
        for name, member in self.members.items():
            if member.most_log_bytes > 2 * self.schedule.log_bytes:
                self.problems.append(f"{name} kept {member.most_log_bytes} bytes of logs")
        if self.network.lost_frames == 0 and not self.vanished and not self._stays:
            self._nothing_left("after every session was released")
        self._pass(LEASE_S)
        self._nothing_left("after the leases")

    def _pass(self, seconds: float) -> None:
        """So much time goes by, and whatever follows from it."""
        self.network.now += seconds + 1.0
        for member in self.members.values():
            if member.alive:
                member.tick()
        while self.network.step(1e9):
            continue

    def _nobody_answers(self, speaker: Speaker) -> None:
        """An answer that is over is over everywhere."""
        for name, member in self.members.items():
            seats = member.core._seats.items() if member.alive else ()
            if any(key[0] == speaker.talk.session and seat.active and seat.serves for key, seat in seats):
                self._wrong(speaker, f"{name} still answers after the end")

    def _nothing_left(self, when: str) -> None:
        for name, member in self.members.items():
            if not member.alive:
                continue
            if member.core.log_bytes:
                self.problems.append(f"{name} keeps {member.core.log_bytes} bytes of logs {when}")
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
