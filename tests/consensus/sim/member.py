"""One simulated server: a core with its disk, state machine, clock, and what it said and heard lately."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from peer.consensus.core import Core
from peer.consensus.events import Effect, Event, Status
from peer.consensus.message_codec import parse_config
from peer.consensus.messages import Message
from peer.consensus.records import Config, Entry
from tests.consensus.sim.storage import Disk, Log, StateMachine

CONFIGS: dict[bytes, Config] = {}  # what has been parsed already


class AnyCore(Protocol):
    """The core under test: Python's, or that of another program."""

    def step(self, now_ms: int, event: Event) -> Sequence[Effect]: ...


@runtime_checkable
class Inspectable(Protocol):
    """A core of this process, which can be asked for its state."""

    def status(self) -> Status: ...


def new_core() -> AnyCore:
    return Core()


def config_of(entry: Entry) -> Config:
    found = CONFIGS.get(entry.data)
    if found is None:
        found = CONFIGS[entry.data] = parse_config(entry.data)
    return found


@dataclass(slots=True, eq=False)
class Member:
    """`incarnation` is that of the life it lives now; what `core` says is gone when that is None (crashed)."""

    id: str
    incarnation: int = 1
    disk: Disk = field(default_factory=Disk)
    core: AnyCore | None = None
    boots: int = 0
    clock_ms: int = 0  # what its clock is ahead of virtual time
    paused_until: int = 0
    inbox: list[tuple[str, Message] | str] = field(default_factory=list)  # messages, and requests
    slow_until: int = 0
    coarse_until: int = 0  # timers come once a second only
    disk_free_at: int = 0
    wake_at: int = -1  # when the next wake is queued
    deadline: int = 0  # on its own clock
    # since boot
    newest_ms: int = -(10**9)  # the newest that its own clock said: a core's clock does not go back
    log: Log = field(default_factory=Log)  # as the core sees it: durable or not
    configs: list[tuple[int, int, Config]] = field(
        default_factory=list
    )  # index, term; first that of the snapshot
    snapshot_at: tuple[int, int] = (0, 0)
    machine: StateMachine = field(default_factory=StateMachine)
    said_applied: int = 0
    written: int = 0  # the newest token of what is durable
    kept_state: StateMachine | None = None  # copied for a Compact that comes later
    role: str = "follower"
    term: int = 0
    leader: str = ""
    led: tuple[int, int] = (0, 0)  # the last term that it led since boot, and where its log ended then
    leading: list[tuple[int, Config]] = field(default_factory=list)  # index and configuration, of that term
    issued: tuple[int, str] = (0, "")  # the newest term and vote that it wanted to be stored
    told_to_campaign: bool = False
    heard_leader_at: int = -(10**9)  # own clock
    led_by: tuple[int, str] = (0, "")
    heard: dict[str, int] = field(default_factory=dict)  # as a leader: when it heard from whom
    recheck: bool = False  # its configuration may be another now
    ticked_at: int = 0  # as a leader, on its own clock
    resumed_at: int = 0  # when it ticked again after it had stood still
    hinted: set[str] = field(default_factory=set)  # whose connection it was told to be closed
    applied_ever: int = 0  # in this incarnation

    def core_clock(self, now: int) -> int:
        """Returns the time by which the core counts: the newest that this server's clock said since boot."""
        self.newest_ms = max(self.newest_ms, now + self.clock_ms)
        return self.newest_ms

    def config(self) -> Config:
        return self.configs[-1][2] if self.configs else Config()

    def term_at(self, index: int) -> int:
        """The term of its entry; 0 where it has none."""
        entry = self.log.at(index)
        if entry is not None:
            return entry.term
        return self.snapshot_at[1] if index == self.snapshot_at[0] else 0

    def live(self, now: int) -> bool:
        return self.core is not None and self.paused_until <= now

    def reborn(self) -> None:
        """Nothing of the run before is left in memory."""
        self.boots += 1
        self.newest_ms = -(10**9)
        self.inbox, self.paused_until, self.disk_free_at = [], 0, 0
        self.wake_at, self.deadline = -1, 0
        snapshot = self.disk.snapshot
        if not self.disk.log.entries:
            self.disk.log.first = snapshot.index + 1 if snapshot is not None else 1
        self.log = Log(self.disk.log.first, list(self.disk.log.entries))
        self.configs = []
        self.snapshot_at = (0, 0)
        if snapshot is not None:
            self.snapshot_at = (snapshot.index, snapshot.term)
            self.configs.append((snapshot.index, snapshot.term, snapshot.config))
        floor = self.snapshot_at[0]
        for entry in self.log.entries:
            if entry.kind == "config" and entry.index > floor:
                self.configs.append((entry.index, entry.term, config_of(entry)))
        self.machine = StateMachine()
        self.said_applied = self.written = 0
        self.kept_state = None
        self.role, self.term, self.leader = "follower", self.disk.term, ""
        self.led, self.leading = (0, 0), []
        self.issued = (self.disk.term, self.disk.vote)
        self.told_to_campaign = False
        self.heard_leader_at, self.led_by = -(10**9), (0, "")
        self.heard = {}
        self.recheck = True
        self.hinted = set()
