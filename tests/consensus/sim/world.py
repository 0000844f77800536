"""Runs one schedule in virtual time and says what was wrong with it: who gets which event when, and what effects do."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from peer.consensus.errors import ConsensusError
from peer.consensus.events import (
    Applied,
    Apply,
    Boot,
    Deadline,
    Effect,
    Event,
    Persist,
    Persisted,
    Propose,
    Proposed,
    Read,
    ReadReady,
    Received,
    Reject,
    Restore,
    Role,
    Send,
    Settings,
    SnapshotStored,
    StoreSnapshot,
    Tick,
    Unreachable,
)
from peer.consensus.message_codec import decode, encode
from peer.consensus.messages import Install, Message, PreVote
from peer.consensus.records import Config, HardState, Server, Snapshot
from tests.consensus.sim.invariants import Invariants
from tests.consensus.sim.member import AnyCore, Inspectable, Member, new_core
from tests.consensus.sim.schedule import Schedule
from tests.consensus.sim.storage import Log, StateMachine, Wrong, config_text

MESH = "mesh"
MOST_STEPS = 30_000
FOUNDED = StateMachine(1, 0)

Say = Callable[[int, str, str], None]
Record = Callable[[Member, int, Event, Sequence[Effect]], None]


@dataclass(frozen=True, slots=True)
class Open:
    """What was asked of a core and not answered yet."""

    what: str
    member: str
    boots: int
    floor: int  # what was applied anywhere when it was asked
    asked_ms: int
    clock_ms: int  # the same, on the clock of the core that was asked


@dataclass(slots=True)
class Report:
    """`problem` is None when all was well; `healed_ms` is how long it took after everything healed."""

    seed: int
    problem: str | None = None
    steps: int = 0
    healed_ms: int = 0
    hopeless: bool = False  # too few voters were left with their storage
    done: dict[str, int] = field(default_factory=dict)  # how often what happened


class World:
    """Everything in one run. `make_core` makes the core of a server (by its id)."""

    def __init__(
        self,
        schedule: Schedule,
        say: Say | None = None,
        record: Record | None = None,
        make_core: Callable[[str], AnyCore] | None = None,
    ) -> None:
        self.schedule = schedule
        self.now = 0
        self.rng = random.Random(schedule.seed * 2 + 1)
        self.say = say
        self.report = Report(schedule.seed)
        self.invariants = Invariants(schedule.timing)
        self.open: dict[int, Open] = {}
        self.accepted: dict[int, tuple[int, int]] = {}  # by ctx: index and term
        self.read_done: set[int] = set()
        self.blocked: dict[tuple[str, str], int] = {}  # links, until when
        self.held: dict[tuple[str, str], int] = {}
        self.slow: dict[tuple[str, str], tuple[int, int]] = {}  # until when, and how much
        self.traps: dict[str, tuple[int, int]] = {}  # who crashes at the next write: for how long, and how
        self.hurry = 0  # elections whose winner is asked at once, and those it follows soon after
        self.cut_at_commit: dict[str, int] = {}  # who is cut off when it next commits, for how long
        self.storm_until = 0
        self.installs = 0
        self.pace = schedule.pace
        self._record = record
        self._make_core = make_core
        self._ctx = 0
        self._queue: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = 0
        self._todo: deque[tuple[Member, int, Event]] = deque()
        timing = schedule.timing
        self._settings = Settings(
            heartbeat_ms=timing.heartbeat_ms,
            election_min_ms=timing.election_min_ms,
            election_max_ms=timing.election_max_ms,
            max_append_bytes=timing.max_append_bytes,
            snapshot_chunk_bytes=timing.snapshot_chunk_bytes,
            max_inflight=timing.max_inflight,
            keep_tail=timing.keep_tail,
        )
        self._perform: dict[type[Any], Callable[[Member, Any], None]] = {
            Persist: self._persist,
            StoreSnapshot: self._store,
            Send: self._send,
            Apply: self._apply,
            Restore: self._restore,
            ReadReady: self._read_ready,
            Proposed: self._proposed,
            Role: self._role,
            Deadline: self._deadline,
            Reject: self._reject,
        }
        self.members: dict[str, Member] = {}
        servers = [Server(name, 1, True) for name in schedule.voters]
        servers += [Server(name, 1, False) for name in schedule.learners]
        config = Config(tuple(sorted(servers, key=lambda server: server.id)))
        self.invariants.founded(1, 1, 0)
        for name in (*schedule.voters, *schedule.learners, *schedule.spares):
            member = self.members[name] = Member(name)
            if name in schedule.voters and name != schedule.late:
                member.disk.term = 1
                member.disk.snapshot = Snapshot(1, 1, config, FOUNDED.data())
                member.disk.log = Log(2)
        for member in self.members.values():
            self.boot(member)

    # --- the clock

    def at(self, when: int, call: Callable[..., None], *args: Any) -> None:
        """`call(*args)` at the virtual time `when`."""
        self._order += 1
        heapq.heappush(self._queue, (when, self._order, call, args))

    def run_until(self, until: int) -> None:
        """Does everything up to and with `until`."""
        queue, todo, pop = self._queue, self._todo, heapq.heappop
        while True:
            while todo:
                member, boots, event = todo.popleft()
                if member.boots != boots or member.core is None:
                    continue
                if member.paused_until > self.now:
                    self.at(member.paused_until, self._later, member, boots, event)
                    continue
                self.step(member, event)
            if not queue or queue[0][0] > until:
                break
            when, _, call, args = pop(queue)
            if when > self.now:
                self.now = when
            call(*args)
        self.now = max(self.now, until)

    def _later(self, member: Member, boots: int, event: Event) -> None:
        self._todo.append((member, boots, event))

    def step(self, member: Member, event: Event) -> None:
        """Hands the core of `member` one event and does what it wants."""
        core = member.core
        assert core is not None
        report = self.report
        report.steps += 1
        if report.steps > MOST_STEPS:
            raise Wrong(f"more than {MOST_STEPS} steps")
        clock = member.core_clock(self.now)
        ticks = type(event) is Tick
        late = ticks and clock - member.deadline > self.schedule.timing.election_min_ms
        if self.say is not None and not ticks:
            self.say(self.now, member.id, f"<- {event}")
        try:
            effects = core.step(self.now + member.clock_ms, event)
        except (ConsensusError, AssertionError, LookupError, TypeError, ValueError, ArithmeticError) as error:
            raise Wrong(
                f"{member.id} fails at {type(event).__name__}: {type(error).__name__}: {error}"
            ) from error
        if self._record is not None:
            self._record(member, self.now + member.clock_ms, event, effects)
        perform, boots = self._perform, member.boots
        for effect in effects:
            if self.say is not None and not isinstance(effect, Deadline):
                self.say(self.now, member.id, f"   {effect}")
            perform[type(effect)](member, effect)
            if member.boots != boots or member.core is None:
                return  # it crashed while it did that
        if late and any(type(each) is Send and type(each.message.body) is PreVote for each in effects):
            raise Wrong(f"{member.id} campaigns at once after it stood still")
        if member.recheck:
            self._recheck(member, core)
        if ticks and member.role == "leader":
            self.invariants.ticked(member, clock)
            self._transfers_end(member, clock)

    def _recheck(self, member: Member, core: AnyCore) -> None:
        """The newest configuration in the log is the one in force (4.1)."""
        member.recheck = False
        if isinstance(core, Inspectable) and core.status().config != member.config():
            raise Wrong(f"{member.id} does not go by {config_text(member.config())}, the newest in its log")

    def _transfers_end(self, member: Member, clock: int) -> None:
        timing = self.schedule.timing
        until = clock - timing.election_min_ms - timing.heartbeat_ms
        for ctx, asked in self.open.items():
            if asked.what == "transfer" and asked.member == member.id and asked.clock_ms < until:
                raise Wrong(f"{member.id} leads on and says nothing to the transfer {ctx}")

    # --- effects

    def _persist(self, member: Member, effect: Persist) -> None:
        self.invariants.persist(member, effect)
        self._write(member, effect)

    def _store(self, member: Member, effect: StoreSnapshot) -> None:
        self.invariants.stores(member, effect)
        self._write(member, effect)

    def _write(self, member: Member, effect: Persist | StoreSnapshot) -> None:
        member.disk.waiting.append(effect)
        trap = self.traps.pop(member.id, None)
        if trap is not None:
            self.note("crash at a write")
            if trap[1] % 2:
                self.crash(member, trap[0], trap[1] // 2)
            else:
                self.at(self.now, self._crash_boot, member, member.boots, *trap)
            return
        pace = self.pace
        wait = pace.disk_ms + (int(pace.disk_jitter_ms * self.rng.random()) if pace.disk_jitter_ms else 0)
        if member.slow_until > self.now:
            wait += member.slow_until - self.now
        if wait == 0 and len(member.disk.waiting) == 1 and member.disk_free_at <= self.now:
            self._written(member, member.boots, effect.token)
            return
        when = member.disk_free_at = max(self.now + wait, member.disk_free_at)
        self.at(when, self._written, member, member.boots, effect.token)

    def _crash_boot(self, member: Member, boots: int, down_ms: int, number: int) -> None:
        if member.boots == boots and member.core is not None:
            self.crash(member, down_ms, number // 2)

    def _written(self, member: Member, boots: int, token: int) -> None:
        if member.boots != boots or member.core is None or token <= member.written:
            return
        waiting = member.disk.waiting
        effect = waiting.popleft()
        if effect.token != token:
            raise Wrong(f"{member.id} gives token {token} to what comes at another place")
        member.disk.write(effect)
        self.invariants.durable(member, effect)
        if waiting and self.schedule.one_sync:  # one sync for several writes, and one word of it
            while waiting and type(effect) is type(waiting[0]) is Persist:
                effect = waiting.popleft()
                member.disk.write(effect)
                self.invariants.durable(member, effect)
            token = effect.token
        member.written = token
        done = Persisted(token) if isinstance(effect, Persist) else SnapshotStored(token)
        self._todo.append((member, boots, done))

    def _send(self, member: Member, effect: Send) -> None:
        message, to = effect.message, effect.to
        self.invariants.sends(member, to, message)
        if type(message.body) is Install:
            self.installs += 1
        if to == member.id:
            raise Wrong(f"{member.id} sends to itself")
        pace, link, now, rand = self.pace, (member.id, to), self.now, self.rng.random
        if self.blocked.get(link, 0) > now:
            return
        loss = pace.loss + (0.5 if self.storm_until > now else 0.0)
        if loss and rand() < loss:
            return
        wait = pace.delay_ms + (int(pace.jitter_ms * rand()) if pace.jitter_ms else 0)
        if pace.late and rand() < pace.late:
            wait += int(pace.late_ms * rand())
        if self.held and self.held.get(link, 0) > now:
            wait += self.held[link] - now
        if self.slow and self.slow.get(link, (0, 0))[0] > now:
            wait += self.slow[link][1]
        self.at(now + wait, self._arrive, member.id, to, message)
        if pace.duplicates and rand() < pace.duplicates:
            self.at(now + wait + int(500 * rand()), self._arrive, member.id, to, message)

    def _arrive(self, sender: str, to: str, message: Message) -> None:
        member = self.members[to]
        if member.core is None or self.blocked.get((sender, to), 0) > self.now:
            return
        if member.paused_until > self.now:
            member.inbox.append((sender, message))
            return
        if self.schedule.wire:
            message = decode(encode(message))
        if message.to_incarnation == member.incarnation:
            self.invariants.hears(member, message, member.core_clock(self.now))
        self.step(member, Received(sender, message))

    def _apply(self, member: Member, effect: Apply) -> None:
        self.invariants.applies(member, effect)
        cut_ms = self.cut_at_commit.pop(member.id, 0) if member.role == "leader" else 0
        if cut_ms:
            self.note("cut off at a commit")
            self.tell(f"{member.id} is cut off for {cut_ms} ms")
            for other in self.members:
                self.blocked[member.id, other] = self.blocked[other, member.id] = self.now + cut_ms
        self._say_applied(member)

    def _restore(self, member: Member, effect: Restore) -> None:
        self.invariants.restores(member, effect)
        self._say_applied(member)

    def _say_applied(self, member: Member) -> None:
        if self.pace.apply_ms == 0:
            self._applied(member, member.boots, member.machine.index)
        else:
            wait = int(self.pace.apply_ms * self.rng.random())
            self.at(self.now + wait, self._applied, member, member.boots, member.machine.index)

    def _applied(self, member: Member, boots: int, index: int) -> None:
        if member.boots == boots and member.core is not None and index > member.said_applied:
            member.said_applied = index
            self._todo.append((member, boots, Applied(index)))

    def _read_ready(self, member: Member, effect: ReadReady) -> None:
        asked = self._answer(member, effect.ctx, "read")
        self.invariants.read(member, effect, asked.floor)
        self.read_done.add(effect.ctx)
        self.note("read")

    def _proposed(self, member: Member, effect: Proposed) -> None:
        self._answer(member, effect.ctx, "entry")
        self.accepted[effect.ctx] = (effect.index, effect.term)

    def _reject(self, member: Member, effect: Reject) -> None:
        self._answer(member, effect.ctx, "")
        self.note(f"rejected: {effect.reason}")

    def _answer(self, member: Member, ctx: int, what: str) -> Open:
        asked = self.open.pop(ctx, None)
        if asked is None or (asked.member, asked.boots) != (member.id, member.boots):
            raise Wrong(f"{member.id} answers {ctx}, which nobody asks")
        if what and asked.what != what:
            raise Wrong(f"{member.id} answers {ctx} as if it were a {what}, and it is a {asked.what}")
        return asked

    def _role(self, member: Member, effect: Role) -> None:
        self.invariants.became(member, effect, member.core_clock(self.now))
        if effect.role == "leader" and member.role != "leader":
            self.note("elected")
            if self.hurry:
                self._hurry(member)
        if member.role == "leader" and (effect.role, effect.term) != ("leader", member.term):
            over = [
                ctx
                for ctx, asked in self.open.items()
                if asked.what == "transfer" and asked.member == member.id
            ]
            for ctx in over:  # it succeeded, or nobody knows
                del self.open[ctx]
        member.role, member.term, member.leader = effect.role, effect.term, effect.leader

    def _hurry(self, member: Member) -> None:
        """Clients ask the new leader at once, and some still the old one."""
        self.hurry -= 1
        self.at(self.now, self._request, member, member.boots, "read")
        self.at(self.now + 1, self._request, member, member.boots, "propose")
        for other in self.members.values():
            if other is not member and other.role == "leader":
                for wait in (60, 150, 400, 800):
                    self.at(self.now + wait, self._request, other, other.boots, "read")

    def _request(self, member: Member, boots: int, what: str) -> None:
        if member.boots == boots and member.core is not None:
            self.request(member, what)

    def request(self, member: Member, what: str) -> None:
        """A client's; a server that is paused finds it when it goes on, before what it was sent since."""
        if member.paused_until > self.now:
            member.inbox.insert(0, what)
        elif what == "propose":
            self.propose(member)
        else:
            self.read(member)

    def _deadline(self, member: Member, effect: Deadline) -> None:
        member.deadline = effect.at_ms
        when = max(self.now, effect.at_ms - member.clock_ms)
        if member.coarse_until > self.now:
            when += -when % 1000
        if member.wake_at == -1 or when < member.wake_at:
            member.wake_at = when
            self.at(when, self._wake, member, member.boots, when)

    def _wake(self, member: Member, boots: int, when: int) -> None:
        if member.boots != boots or member.core is None or member.wake_at != when:
            return
        member.wake_at = -1
        if member.paused_until > self.now:
            return  # it ticks when it goes on
        if self.now + member.clock_ms < member.deadline:
            self._deadline(member, Deadline(member.deadline))
            return
        self.step(member, Tick())

    # --- what happens to servers

    def note(self, what: str) -> None:
        self.report.done[what] = self.report.done.get(what, 0) + 1

    def tell(self, what: str) -> None:
        if self.say is not None:
            self.say(self.now, "-", what)

    def boot(self, member: Member) -> None:
        """Begins anew from the disk."""
        disk = member.disk
        member.reborn()
        member.core = new_core() if self._make_core is None else self._make_core(member.id)
        place = sorted(self.members).index(member.id) + 1
        seed = (self.schedule.seed * 40503 + place * 9973 + member.boots * 31) % 0xFFFFFFFE + 1
        event = Boot(
            HardState(disk.term, disk.vote),
            disk.snapshot,
            tuple(disk.log.entries),
            MESH,
            1,
            member.id,
            member.incarnation,
            seed,
            self._settings,
        )
        self.step(member, event)

    def crash(self, member: Member, down_ms: int, number: int) -> None:
        """All that was not written is lost, but for the first of it; after `down_ms` it comes back."""
        if member.core is None:
            return
        waiting = len(member.disk.waiting)
        written = list(member.disk.waiting)[: number % (waiting + 1)]
        torn = number % 3 == 0
        if torn and len(written) < waiting and isinstance(member.disk.waiting[len(written)], StoreSnapshot):
            written.append(member.disk.waiting[len(written)])
        member.disk.crash(number % (waiting + 1), torn)
        for effect in written:
            self.invariants.durable(member, effect)
        self.stop(member)
        self.note("crash")
        self.tell(f"{member.id} crashes for {down_ms} ms, {len(written)} of {waiting} writes done")
        self.at(self.now + down_ms, self._restart, member, member.boots)
        for other in self.members.values():
            if other.live(self.now) and self.rng.random() < 0.3:
                self.at(
                    self.now + int(200 * self.rng.random()), self._unreachable, other, other.boots, member.id
                )

    def stop(self, member: Member) -> None:
        """It runs no more, and what was asked of it will not be answered."""
        member.core = None
        self.traps.pop(member.id, None)
        for ctx in [ctx for ctx, asked in self.open.items() if asked.member == member.id]:
            del self.open[ctx]

    def _restart(self, member: Member, boots: int) -> None:
        if member.core is None and member.boots == boots:
            self.boot(member)

    def _unreachable(self, member: Member, boots: int, peer: str) -> None:
        if member.boots == boots and member.live(self.now):
            member.hinted.add(peer)
            self.step(member, Unreachable(peer))

    def pause(self, member: Member, lasts_ms: int) -> None:
        """It does nothing for a while; what comes meanwhile waits."""
        member.paused_until = max(member.paused_until, self.now + lasts_ms)
        self.at(member.paused_until, self._resume, member, member.boots)

    def pause_ends(self, member: Member) -> None:
        """It goes on now."""
        member.paused_until = self.now
        self.at(self.now, self._resume, member, member.boots)

    def _resume(self, member: Member, boots: int) -> None:
        if member.boots != boots or member.core is None or member.paused_until > self.now:
            return
        inbox, member.inbox = member.inbox, []
        early = len(inbox) if self.rng.random() < 0.5 else 0
        for place, found in enumerate(inbox):
            if place < early:
                self._found(member, boots, found)
            else:
                self.at(self.now, self._found, member, boots, found)
        if member.boots == boots and member.core is not None:
            self.step(member, Tick())

    def _found(self, member: Member, boots: int, found: tuple[str, Message] | str) -> None:
        if member.boots != boots or member.core is None:
            return
        if isinstance(found, str):
            self.request(member, found)
        else:
            self._arrive(found[0], member.id, found[1])

    def ask(self, member: Member, what: str, make: Callable[[int], Event]) -> int:
        """Asks something of a live server; the number of the question."""
        self._ctx += 1
        self.open[self._ctx] = Open(
            what, member.id, member.boots, self.invariants.applied, self.now, member.core_clock(self.now)
        )
        self.step(member, make(self._ctx))
        return self._ctx

    def propose(self, member: Member) -> int:
        """A command that no other has."""
        text = b"%d" % (self._ctx + 1)
        return self.ask(member, "entry", lambda ctx: Propose(text, ctx))

    def read(self, member: Member) -> int:
        return self.ask(member, "read", Read)

    # --- who is who

    def leader(self) -> Member | None:
        """The live leader of the highest term."""
        best: Member | None = None
        for member in self.members.values():
            if (
                member.role == "leader"
                and member.core is not None
                and (best is None or member.term > best.term)
            ):
                best = member
        return best

    def view(self) -> Config:
        """The configuration as most would see it now."""
        leader = self.leader()
        if leader is not None:
            return leader.config()
        known = [member for member in self.members.values() if member.configs]
        return max(known, key=lambda member: (member.term, member.log.last, member.id)).config()
