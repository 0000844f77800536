"""What a simulated server keeps: a disk that may be slow and loses what it has not written, and a state machine."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from zlib import crc32

from peer.consensus.events import Persist, StoreSnapshot
from peer.consensus.records import Config, Entry, HardState, Snapshot


class Wrong(Exception):
    """Something that must hold does not; the text says what."""


@dataclass(slots=True)
class Log:
    """Entries first..last, without a gap."""

    first: int = 1
    entries: list[Entry] = field(default_factory=list)

    @property
    def last(self) -> int:
        return self.first + len(self.entries) - 1

    def at(self, index: int) -> Entry | None:
        place = index - self.first
        return self.entries[place] if 0 <= place < len(self.entries) else None

    def write(self, truncate_from: int, entries: tuple[Entry, ...]) -> None:
        if truncate_from:
            if truncate_from < self.first:
                raise Wrong(f"drops entries from {truncate_from} on, the log begins at {self.first}")
            del self.entries[truncate_from - self.first :]
        for entry in entries:
            if not self.entries and entry.index != self.first:
                raise Wrong(f"writes entry {entry.index} where {self.first} comes next")
            if entry.index != self.first + len(self.entries):
                raise Wrong(f"writes entry {entry.index} after {self.last}")
            self.entries.append(entry)

    def cut(self, first: int, last: int) -> None:
        """Keeps exactly first..last."""
        if first > last:
            self.first, self.entries = first, []
            return
        if first < self.first or last > self.last:
            raise Wrong(f"keeps {first}..{last} of a log that has {self.first}..{self.last}")
        self.entries = self.entries[first - self.first : last - self.first + 1]
        self.first = first


@dataclass(slots=True)
class Disk:
    """What survives a crash."""

    term: int = 0
    vote: str = ""
    snapshot: Snapshot | None = None
    log: Log = field(default_factory=Log)
    waiting: deque[Persist | StoreSnapshot] = field(default_factory=deque)  # not durable yet, in order

    def write(self, effect: Persist | StoreSnapshot, whole: bool = True) -> None:
        """Makes one of them durable. A snapshot that is not `whole` is there, and the log not cut yet."""
        if isinstance(effect, Persist):
            self.term, self.vote = effect.term, effect.vote
            self.log.write(effect.truncate_from, effect.entries)
        else:
            self.snapshot = effect.snapshot
            if whole:
                self.log.cut(effect.first, effect.last)

    def crash(self, survive: int, torn: bool) -> None:
        """The first `survive` of what waits were written after all; of a snapshot next in line, all but the cut."""
        for _ in range(min(survive, len(self.waiting))):
            self.write(self.waiting.popleft())
        if torn and self.waiting and isinstance(self.waiting[0], StoreSnapshot):
            self.write(self.waiting.popleft(), whole=False)
        self.waiting.clear()

    def hard_state(self) -> HardState:
        return HardState(self.term, self.vote)

    def empty(self) -> bool:
        return self.snapshot is None and not self.log.entries and not self.term


@dataclass(slots=True)
class StateMachine:
    """A checksum over all commands in order: any other history gives another one."""

    index: int = 0
    value: int = 0

    def take(self, entry: Entry) -> None:
        self.index = entry.index
        if entry.kind == "command":
            self.value = crc32(entry.data, self.value)

    def data(self) -> bytes:
        return b"%d:%d" % (self.index, self.value)

    @staticmethod
    def of(data: bytes) -> StateMachine:
        index, value = data.split(b":")
        return StateMachine(int(index), int(value))


def config_text(config: Config) -> str:
    """A configuration in one word: voters, and learners in small brackets."""
    return " ".join(
        f"{server.id}{server.incarnation}" if server.voter else f"({server.id}{server.incarnation})"
        for server in config.servers
    )
