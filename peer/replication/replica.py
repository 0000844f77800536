"""Keeps this member's copy of the mesh's log: performs what the consensus core decides, and builds the state from it.

Edge. The core decides; here are its store, its timer, its messages, and those who wait for what they proposed. What is
durable is said to the core in the order in which it was asked for. While the disk refuses, the core stands still as on
a machine that was paused: nothing reaches it and it says nothing, so that others lead; the write is tried again, and it
goes on where it was.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, assert_never

from peer.consensus.core import Core
from peer.consensus.errors import BadMessage
from peer.consensus.events import (
    Applied,
    Apply,
    Boot,
    Change,
    ChangeConfig,
    Compact,
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
    RoleName,
    Send,
    Settings,
    SnapshotStored,
    Status,
    StoreSnapshot,
    Tick,
    Transfer,
    Unreachable,
)
from peer.consensus.message_codec import decode
from peer.consensus.messages import AppendReply, InstallReply, Message, ReadIndex
from peer.consensus.records import Config, Entry, HardState, Snapshot
from peer.errors import BadCommand, DiskRefuses, NotLeader, WrongField
from peer.state.mesh_state import MeshState, apply_entry, decode_state, encode_state
from peer.wire.generated.requests import LeaderAnswer

COMPACT_ENTRIES: Final = 1024  # in the log since the last snapshot, or
RETRY_S: Final = 1.0  # between tries to write what the disk refuses
COMPACT_BYTES: Final = 1 << 20  # so many bytes of them, or as many as that snapshot has
PACE: Final = Settings(heartbeat_ms=500)  # of all meshes; an idle one costs little
REASONS: Final = {
    "not_leader": "another peer coordinates",
    "no_leader": "nobody coordinates now",
    "leader_changed": "another peer coordinates now",
    "timeout": "a majority of the voters did not answer in time",
    "transferring": "the coordinator is handing over",
    "not_ready": "the coordinator has only just begun",
}  # of the core's refusals, those that another peer or a moment later may lift

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a replica starts from: from its store, or as a founder, or with nothing as a joiner."""

    mesh: str
    epoch: int
    me: str
    incarnation: int
    seed: int  # 1 .. 2^32 - 1
    hard_state: HardState
    snapshot: Snapshot | None
    entries: tuple[Entry, ...]

    @property
    def is_new(self) -> bool:
        """Whether nothing of the log is there yet."""
        return self.snapshot is None and not self.entries


class Keeper(Protocol):
    """Where the log is kept. Both are called on one thread, in order, and return when all is durable. What raises
    DiskRefuses is tried again.
    """

    def persist(self, effect: Persist) -> None:
        """Stores term, vote and entries."""

    def store_snapshot(self, effect: StoreSnapshot) -> None:
        """Stores a snapshot, and cuts the log to it."""


class ReplicaEvents(Protocol):
    """What a replica tells its owner, on the loop's thread."""

    def log_changed(self, entries: tuple[Entry, ...]) -> None:
        """`state` is new; `entries` led to it, or a snapshot where there are none."""

    def role_changed(self) -> None:
        """Role, term or leader is new."""

    def log_refused(self, why: str) -> None:
        """The disk refuses for now, and this replica stands still; "": it goes on."""

    def log_lost(self, why: str) -> None:
        """The store fails: this replica has stopped, and must never speak again in this incarnation."""


@dataclass(slots=True)
class _Waiting:
    index: int
    term: int
    done: asyncio.Future[tuple[int, int]]


class Replica:
    """`send(peer, message)` may lose it. `trusted`: a peer whose word is taken though it is no known voter."""

    def __init__(
        self,
        begin: Beginning,
        keeper: Keeper | None,
        send: Callable[[str, Message], None],
        events: ReplicaEvents,
        settings: Settings | None = None,
    ) -> None:
        self.begin = begin
        self.state = MeshState()
        self.order = (0, 0)  # (term, index) of the last entry that this member obeyed
        self.role: RoleName = "follower"
        self.term = begin.hard_state.term
        self.leader = ""
        self.trusted = ""
        self.ready = False  # to lead: an entry of its own term is committed and applied
        self.refused = ""  # why the log cannot be written now
        self._core = Core()
        self._keeper = keeper
        self._send = send
        self._events = events
        self._settings = settings or PACE
        self._queue: deque[Event] = deque()
        self._stepping = False
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._disk: Executor | None = None if keeper is None else ThreadPoolExecutor(1, "consensus")
        self._unwritten: deque[Persist | StoreSnapshot] = deque()
        self._writing: asyncio.Task[None] | None = None
        self._ending = asyncio.Event()
        self._ctx = 0
        self._asked: dict[int, asyncio.Future[tuple[int, int]]] = {}  # by ctx: proposals, changes, reads
        self._waiting: dict[int, _Waiting] = {}  # by index: proposals in the log, not committed
        self._compacting: asyncio.Task[None] | None = None
        self._grown = (0, 0)  # entries and bytes applied since the last snapshot
        self._snapshot_bytes = 0

    # --- life

    def start(self) -> None:
        """Boots the core. Raises BadBoot when what was kept does not fit together."""
        begin = self.begin
        self._feed(
            Boot(
                begin.hard_state,
                begin.snapshot,
                begin.entries,
                begin.mesh,
                begin.epoch,
                begin.me,
                begin.incarnation,
                begin.seed,
                settings=self._settings,
            )
        )
        self._feed(Tick())  # who votes alone leads at once

    async def close(self) -> None:
        """Stops; who waits for something gets NotLeader."""
        self._closed = True
        self._ending.set()
        if self._timer is not None:
            self._timer.cancel()
        self._fail_all("this peer is leaving")
        if self._compacting is not None:
            self._compacting.cancel()
            await asyncio.gather(self._compacting, return_exceptions=True)
        if self._writing is not None:
            await asyncio.gather(self._writing, return_exceptions=True)
        if self._disk is not None:
            self._disk.shutdown(wait=True)

    # --- use

    @property
    def fresh(self) -> bool:
        """Whether nothing of the log has come yet."""
        return self._core.status().last == 0

    @property
    def epoch(self) -> int:
        """The epoch of the mesh that this log belongs to."""
        return self.begin.epoch

    @property
    def leads(self) -> bool:
        """Whether this member leads, as far as it knows."""
        return self.role == "leader"

    def status(self) -> Status:
        """What the core says of itself, for people."""
        return self._core.status()

    @property
    def config(self) -> Config:
        """The members of the group, as this log has them."""
        return self._core.status().config

    def propose(self, data: bytes) -> asyncio.Future[tuple[int, int]]:
        """(term, index) once it is committed and applied here; NotLeader when that cannot be promised any more."""
        return self._ask(partial(_propose, data))

    def change(self, change: Change) -> asyncio.Future[tuple[int, int]]:
        """As `propose`, for a change of the configuration. BadCommand when the core refuses it, for good or for now."""
        return self._ask(lambda ctx: ChangeConfig(change, ctx))

    def transfer(self, to: str) -> asyncio.Future[tuple[int, int]]:
        """Begins to hand leadership over; only failure resolves the future, with an error."""
        return self._ask(lambda ctx: Transfer(to, ctx))

    def read(self) -> asyncio.Future[tuple[int, int]]:
        """Resolves when `state` holds everything that was committed before the call anywhere. Raises NotLeader."""
        return self._ask(Read)

    def incarnation_of(self, peer: str) -> int:
        """Of the server of that name in the newest configuration; 0: none."""
        server = self.config.by_id.get(peer)
        return server.incarnation if server is not None else 0

    async def settled(self) -> None:
        """Returns when nothing that was proposed here waits any more, whatever became of it."""
        waiting = [each.done for each in self._waiting.values()]
        await asyncio.gather(*waiting, *self._asked.values(), return_exceptions=True)

    def trust(self, peer: str) -> None:
        """Takes the word of a peer that said who leads, though it is no known voter."""
        self.trusted = peer

    def unreachable(self, peer: str) -> None:
        """A connection ended, which may mean that the peer is gone."""
        self._feed(Unreachable(peer))

    def received(self, peer: str, body: bytes) -> None:
        """Takes a CONSENSUS frame. Raises WrongField for one that is no message."""
        try:
            message = decode(body)
        except BadMessage as error:
            raise WrongField(f"CONSENSUS: {error}") from None
        if message.sender != peer:
            raise WrongField("CONSENSUS: expected a message of the peer that sent it")
        if self._may_say(peer, message):
            self._feed(Received(peer, message))

    def _may_say(self, peer: str, message: Message) -> bool:
        """Voters say all; learners answer their leader, and move no term; others are not heard."""
        server = self.config.by_id.get(peer)
        if (server is not None and server.voter) or peer == self.trusted:
            return True
        answer = isinstance(message.body, AppendReply | InstallReply | ReadIndex)
        return server is not None and answer and self.leads and message.term <= self.term

    # --- the core

    def _feed(self, event: Event) -> None:
        if self.refused:
            return  # it stands still: messages are lost, and sent again
        self._queue.append(event)
        if self._stepping:
            return  # its turn comes when the effects before it are done
        self._stepping = True
        try:
            while self._queue and not self._closed:
                event = self._queue.popleft()
                for effect in self._core.step(_now_ms(), event):
                    self._perform(effect)
        finally:
            self._stepping = False

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Persist() | StoreSnapshot():
                self._store(effect)
            case Send(to, message):
                self._send(to, message)
            case Apply(entries):
                self._apply(entries)
            case Restore(snapshot):
                self._restore(snapshot)
            case ReadReady(ctx, index):
                self._answer(ctx, (self.term, index))
            case Proposed(ctx, index, term):
                asked = self._asked.pop(ctx, None)
                if asked is not None:
                    self._waiting[index] = _Waiting(index, term, asked)
            case Role(role, term, leader):
                self._become(role, term, leader)
            case Deadline(at_ms):
                self._wake_at(at_ms)
            case Reject(ctx, reason, leader):
                self._refused(ctx, reason, leader)
            case _:
                assert_never(effect)

    def _tell(self, event: Callable[[], None]) -> None:
        """A defect of who listens must not keep the core's other effects from being carried out."""
        try:
            event()
        except Exception as error:
            context = {"message": "what follows from the log failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)

    def _wake_at(self, at_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        delay_s = max(0, at_ms - _now_ms()) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._feed, Tick())

    def _store(self, effect: Persist | StoreSnapshot) -> None:
        if self._disk is None or self._keeper is None:
            self._stored(effect)
            return
        self._unwritten.append(effect)
        if self._writing is None:
            self._writing = asyncio.ensure_future(self._write_all(self._disk, self._keeper))

    async def _write_all(self, disk: Executor, keeper: Keeper) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._unwritten and not self._closed:
                effect = self._unwritten[0]
                try:
                    await loop.run_in_executor(disk, _write, keeper, effect)
                except DiskRefuses as error:
                    self._refuse(str(error))
                    await self._pause(RETRY_S)
                    continue
                except Exception as error:
                    self._lose(error)
                    return
                self._unwritten.popleft()
                if not self._closed:
                    self._go_on()
                    self._tell(partial(self._stored, effect))
        finally:
            self._writing = None

    async def _pause(self, pause_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._ending.wait()

    def _refuse(self, why: str) -> None:
        """Nobody is led from here, and nothing is promised, until the disk takes what waits."""
        if self._closed or self.refused == why:
            return
        log.warning("%s", why)
        self.refused = why
        if self._timer is not None:
            self._timer.cancel()
        self._fail_all(why)
        self._become("follower", self.term, "")
        self._tell(partial(self._events.log_refused, why))

    def _go_on(self) -> None:
        if not self.refused:
            return
        self.refused = ""
        status = self._core.status()
        self.ready = status.role == "leader" and self.order[0] == status.term
        self._become(status.role, status.term, status.leader)
        self._tell(partial(self._events.log_refused, ""))
        self._feed(Tick())

    def _lose(self, error: Exception) -> None:
        if self._closed:
            return
        log.error("the log cannot be kept", exc_info=error)
        self._closed = True  # whatever it would say from here on might be forgotten
        self._fail_all("its log cannot be kept")
        self._tell(partial(self._events.log_lost, str(error)))

    def _stored(self, effect: Persist | StoreSnapshot) -> None:
        self._feed(Persisted(effect.token) if isinstance(effect, Persist) else SnapshotStored(effect.token))

    # --- the state

    def _apply(self, entries: tuple[Entry, ...]) -> None:
        for entry in entries:
            if (entry.term, entry.index) <= self.order:
                log.error("refused: entry %d of term %d, an old order", entry.index, entry.term)
                continue
            self.order = (entry.term, entry.index)
            if entry.kind == "command":
                self.state = apply_entry(self.state, entry.data)
            self._commit(entry)
        if entries:
            count, size = self._grown
            self._grown = (count + len(entries), size + sum(len(entry.data) for entry in entries))
            self._queue.append(Applied(entries[-1].index))
            if self.leads and entries[-1].term == self.term:
                self.ready = True
            self._tell(partial(self._events.log_changed, entries))
            self._compact()

    def _restore(self, snapshot: Snapshot) -> None:
        if (snapshot.term, snapshot.index) < self.order:
            log.error("refused: a snapshot at %d of term %d, an old order", snapshot.index, snapshot.term)
            return
        self.state = decode_state(snapshot.data)
        self.order = (snapshot.term, snapshot.index)
        self._grown, self._snapshot_bytes = (0, 0), len(snapshot.data)
        for index in [index for index in self._waiting if index <= snapshot.index]:
            _fail(self._waiting.pop(index).done, NotLeader("another peer coordinates now", self.leader))
        self._queue.append(Applied(snapshot.index))
        self._tell(partial(self._events.log_changed, ()))

    def _commit(self, entry: Entry) -> None:
        waiting = self._waiting.pop(entry.index, None)
        if waiting is None or waiting.done.done():
            return
        if waiting.term == entry.term:
            waiting.done.set_result((entry.term, entry.index))
        else:
            _fail(waiting.done, NotLeader("another peer coordinates now", self.leader))

    def _compact(self) -> None:
        """Takes a snapshot when the log has grown as much as one is long. Off the loop: states can be long."""
        count, size = self._grown
        if self._compacting is not None or (
            count < COMPACT_ENTRIES and size < max(COMPACT_BYTES, self._snapshot_bytes)
        ):
            return
        self._grown = (0, 0)
        self._compacting = asyncio.ensure_future(self._take_snapshot(self.order[1], self.state))

    async def _take_snapshot(self, index: int, state: MeshState) -> None:
        try:
            data = await asyncio.to_thread(encode_state, state)
            self._snapshot_bytes = len(data)
            self._feed(Compact(index, data))
        finally:
            self._compacting = None

    # --- those who wait

    def _ask(self, event: Callable[[int], Event]) -> asyncio.Future[tuple[int, int]]:
        future: asyncio.Future[tuple[int, int]] = asyncio.get_running_loop().create_future()
        future.add_done_callback(_seen)
        if self._closed or self.refused:
            _fail(future, NotLeader(self.refused or "this peer is leaving", ""))
            return future
        self._ctx += 1
        self._asked[self._ctx] = future
        self._feed(event(self._ctx))
        return future

    def _answer(self, ctx: int, result: tuple[int, int]) -> None:
        asked = self._asked.pop(ctx, None)
        if asked is not None and not asked.done():
            asked.set_result(result)

    def _refused(self, ctx: int, reason: str, leader: str) -> None:
        asked = self._asked.pop(ctx, None)
        if asked is None:
            return
        lifted = REASONS.get(reason)
        _fail(asked, NotLeader(lifted, leader) if lifted is not None else BadCommand(f"consensus: {reason}"))

    def _become(self, role: RoleName, term: int, leader: str) -> None:
        led = self.leads
        if role != "leader" or term != self.term:
            self.ready = False
        self.role, self.term, self.leader = role, term, leader
        if led and role != "leader":
            self._fail_all("another peer coordinates now")
        self._tell(self._events.role_changed)

    def _fail_all(self, why: str) -> None:
        """What was proposed may still be committed; that is no longer this peer's to promise."""
        waiting = [each.done for each in self._waiting.values()]
        asked, self._asked = [*self._asked.values()], {}
        self._waiting.clear()
        for future in (*waiting, *asked):
            _fail(future, NotLeader(why, self.leader if self.leader != self.begin.me else ""))


def _propose(data: bytes, ctx: int) -> Event:
    return Propose(data, ctx)


def _write(keeper: Keeper, effect: Persist | StoreSnapshot) -> None:
    if isinstance(effect, Persist):
        keeper.persist(effect)
    else:
        keeper.store_snapshot(effect)


def _fail(future: asyncio.Future[tuple[int, int]], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def _seen(future: asyncio.Future[tuple[int, int]]) -> None:
    """Not everybody who proposes waits."""
    if not future.cancelled():
        future.exception()


def _now_ms() -> int:
    return int(time.monotonic() * 1000)


def who_leads(replica: Replica | None, me: str) -> LeaderAnswer:
    """What this peer answers to `leader`."""
    if replica is None:
        return LeaderAnswer("", 0, 0, ())
    known = me in replica.config.by_id  # who is not in yet knows nothing of the mesh
    epoch = replica.begin.epoch if known else 0
    return LeaderAnswer(replica.leader, replica.term, epoch, tuple(replica.config.voters))
