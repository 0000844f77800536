"""What of the consensus log is stored, as values: how every Persist and StoreSnapshot changes it.

Pure; the same for a folder and for memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from peer.consensus.events import Entry, HardState, Persist, Snapshot
from peer.storage.log_records import Beginning, DamagedLog, Group, SnapshotFile

MIN_SNAPSHOT_BYTES: Final = (
    1 << 20
)  # of entries since the last snapshot, before another one is worth its writing
_ENTRY_BYTES: Final = 32  # of an entry in a record beside its data, at most


@dataclass(frozen=True, slots=True)
class Kept:
    """What a peer boots from. `entries` are without gaps and may begin before the snapshot's index."""

    hard_state: HardState
    snapshot: Snapshot | None
    entries: tuple[Entry, ...]
    incarnation: int


@dataclass(frozen=True, slots=True)
class Salvaged:
    """What of damaged files can be used. No peer votes by it: what it acknowledged last may be missing."""

    snapshot: Snapshot | None
    entries: tuple[Entry, ...]  # follow on the snapshot without a gap; the last ones need not be committed
    beyond: tuple[Entry, ...]  # can be read, and do not follow


class Held:
    """What is stored, as values. Raises ValueError for what does not follow, and is then as it was."""

    def __init__(self, beginning: Beginning, snapshot: Snapshot | None = None) -> None:
        self.incarnation = beginning.incarnation
        self.snapshots = beginning.snapshots  # stored so far
        self.snapshot = snapshot  # the last of them
        self.hard_state = beginning.hard_state
        self.first = beginning.first  # index of the first entry, or of the first that will be
        self.entries: list[Entry] = []
        self.bytes = 0  # of the entries
        self.since_bytes = 0  # of those after the snapshot
        self._append(beginning.entries)

    def check(self, group: Group) -> int:
        """How many entries stay."""
        stay = len(self.entries)
        if group.truncate_from:
            stay = max(0, min(stay, group.truncate_from - self.first))
        _follows(group.entries, self.first + stay)
        return stay

    def take(self, group: Group) -> None:
        """Adds what a group changes. Raises as `check` does, and then changes nothing."""
        stay = self.check(group)
        for entry in self.entries[stay:]:
            self._count(entry, -1)
        del self.entries[stay:]
        self._append(group.entries)
        self.hard_state = group.hard_state

    def with_snapshot(self, file: SnapshotFile) -> Held:
        """The same after that snapshot was stored and the log cut for it."""
        first, snapshot = file.first, file.snapshot
        entries = tuple(entry for entry in self.entries if first <= entry.index <= file.last)
        if len(entries) != max(0, file.last + 1 - first) or (entries and first > snapshot.index + 1):
            raise ValueError(f"entries {first} to {file.last} do not all stand in the log, or leave a gap")
        beginning = replace(
            self.beginning(),
            snapshots=file.number,
            first=first if entries else snapshot.index + 1,
            entries=entries,
        )
        return Held(beginning, snapshot)

    def beginning(self) -> Beginning:
        """Returns what the first record of a new log file says."""
        return Beginning(self.incarnation, self.snapshots, self.first, self.hard_state, tuple(self.entries))

    def kept(self) -> Kept:
        """A snapshot of a later term than the stored one: this peer has not voted in that term."""
        hard_state = self.hard_state
        if self.snapshot is not None and self.snapshot.term > hard_state.term:
            hard_state = HardState(self.snapshot.term, "")
        return Kept(hard_state, self.snapshot, tuple(self.entries), self.incarnation)

    @property
    def wants_snapshot(self) -> bool:
        """Whether the log grew enough since the last snapshot for another."""
        size = len(self.snapshot.data) if self.snapshot is not None else 0
        return self.since_bytes > max(MIN_SNAPSHOT_BYTES, size)

    def _append(self, entries: tuple[Entry, ...]) -> None:
        _follows(entries, self.first + len(self.entries))
        for entry in entries:
            self._count(entry, 1)
        self.entries.extend(entries)

    def _count(self, entry: Entry, sign: int) -> None:
        size = sign * (len(entry.data) + _ENTRY_BYTES)
        self.bytes += size
        if self.snapshot is None or entry.index > self.snapshot.index:
            self.since_bytes += size


def salvaged(log: DamagedLog, stored: SnapshotFile | None) -> Salvaged:
    """Returns the snapshot, and the entries of the whole records that follow on it without a gap."""
    base = stored.snapshot.index if stored is not None else 0
    held = Held(Beginning(1, 0, base + 1, HardState(), ()), stored.snapshot if stored is not None else None)
    begun = log.beginning
    first = () if begun is None else (Group(begun.hard_state, 0, begun.entries),)
    groups = (*first, *log.groups)
    taken = 0
    for group in groups:
        try:
            held.take(_behind(base, group))
        except ValueError:
            break
        taken += 1
    entries = tuple(held.entries)
    if stored is not None and begun is not None and stored.number > begun.snapshots:
        entries = tuple(entry for entry in entries if entry.index <= stored.last)  # the log was not cut yet
    beyond = (entry for group in (*groups[taken:], *log.beyond) for entry in group.entries)
    return Salvaged(held.snapshot, entries, tuple(beyond))


def _behind(base: int, group: Group) -> Group:
    """What `group` says of the entries behind `base`."""
    entries = tuple(entry for entry in group.entries if entry.index > base)
    cut = max(group.truncate_from, base + 1) if group.truncate_from else 0
    return Group(group.hard_state, cut, entries)


def _follows(entries: tuple[Entry, ...], index: int) -> None:
    for expected, entry in enumerate(entries, index):
        if entry.index != expected:
            raise ValueError(f"expected the entry of index {expected}, got that of {entry.index}")


def group_of(effect: Persist) -> Group:
    """Returns what `effect` stores, as a record of the log."""
    return Group(HardState(effect.term, effect.vote), effect.truncate_from, effect.entries)
