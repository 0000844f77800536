"""What a server's log holds, which configuration follows from it, and how much of it is durable.

Thesis 3.5 (log), 4.1 (the newest configuration in the log holds), 5 (compaction). Pure bookkeeping: who may append
what is decided in replication.
"""

from __future__ import annotations

from itertools import pairwise

from peer.consensus.errors import BadBoot, BadMessage
from peer.consensus.message_codec import parse_config
from peer.consensus.records import Config, Entry, Snapshot


class Log:
    """Entries first..last, contiguous. `first` <= snapshot.index + 1; before it there is only the snapshot."""

    def __init__(self, snapshot: Snapshot | None, entries: tuple[Entry, ...], bug: int) -> None:
        """Raises BadBoot where there is a gap. `stale` tells that the stored log has to be cut to first..last."""
        self.bug = bug
        self.snapshot = snapshot
        self.entries = list(entries)
        self.configs: list[tuple[int, Config]] = []  # entries of kind "config" behind the snapshot, rising
        base = snapshot.index if snapshot is not None else 0
        for before, after in pairwise(entries):
            if after.index != before.index + 1 or after.term < before.term:
                raise BadBoot(
                    f"log: expected entry {before.index + 1} after {before.index}, got {after.index}"
                )
        if entries and entries[0].index > base + 1:
            raise BadBoot(
                f"log: expected it to begin at {base + 1} at the latest, it begins at {entries[0].index}"
            )
        self.stale = False
        if entries and snapshot is not None and not self._agrees(snapshot):
            # A crash came between storing an installed snapshot and cutting the log (figure 5.3).
            self.stale = self.bug != 24
            if self.stale:
                self.entries = []
        self.first = self.entries[0].index if self.entries else base + 1
        for entry in self.entries:
            if entry.kind == "config" and entry.index > base:
                try:
                    self.configs.append((entry.index, parse_config(entry.data)))
                except BadMessage as error:
                    raise BadBoot(
                        f"log: entry {entry.index} is a configuration that cannot be read"
                    ) from error
        self.durable = self.last
        self.pending: list[list[int]] = []  # [token, last index once that is durable], rising tokens
        self.unsaved = self.last + 1  # the first entry that no Persist has carried yet
        self.cut = 0  # where the stored log has to be cut by the next Persist; 0: nowhere

    def _agrees(self, snapshot: Snapshot) -> bool:
        """Whether the entry at the snapshot's index is the one that it ends with, or lies just before the log."""
        start = self.entries[0].index
        if start == snapshot.index + 1:
            return True
        place = snapshot.index - start
        return 0 <= place < len(self.entries) and self.entries[place].term == snapshot.term

    # --- reading ------------------------------------------------------------------------------------------

    @property
    def last(self) -> int:
        return self.first + len(self.entries) - 1

    @property
    def last_term(self) -> int:
        return self.term_at(self.last) or 0

    @property
    def base(self) -> int:
        """The index that the snapshot ends with."""
        return self.snapshot.index if self.snapshot is not None else 0

    def term_at(self, index: int) -> int | None:
        """The term of the entry at `index`; None where that is not known (any more)."""
        place = index - self.first
        if 0 <= place < len(self.entries):
            return self.entries[place].term
        if self.snapshot is not None and index == self.snapshot.index:
            return self.snapshot.term
        return (
            0 if index == 0 and self.first == 1 else None
        )  # behind a snapshot nothing is known of the start

    def span(self, start: int, stop: int) -> tuple[Entry, ...]:
        """Entries start..stop, both included."""
        return tuple(self.entries[start - self.first : stop - self.first + 1])

    def batch(self, start: int, max_bytes: int, max_entries: int) -> tuple[Entry, ...]:
        """From `start` on as many as fit, at least one."""
        place = start - self.first
        stop, room = place, max_bytes
        while stop < len(self.entries) and stop - place < max_entries:
            room -= len(self.entries[stop].data) + 16
            if room < 0 and stop > place:
                break
            stop += 1
        return tuple(self.entries[place:stop])

    @property
    def config(self) -> Config:
        if self.configs:
            return self.configs[-1][1]
        return self.snapshot.config if self.snapshot is not None else Config()

    @property
    def config_index(self) -> int:
        return self.configs[-1][0] if self.configs else self.base

    def config_at(self, index: int) -> Config:
        """The configuration that held once the entry at `index` was there (index >= base)."""
        found = self.snapshot.config if self.snapshot is not None else Config()
        for at, config in self.configs:
            if at <= index:
                found = config
        return found

    # --- changing -----------------------------------------------------------------------------------------

    def append(self, entries: tuple[Entry, ...]) -> None:
        """Behind the last."""
        for entry in entries:
            if entry.kind == "config":
                self.configs.append((entry.index, parse_config(entry.data)))
        self.entries.extend(entries)

    def truncate(self, index: int) -> None:
        """Drop entries from `index` on. Nothing of them is durable any more, also not what is being written."""
        if self.bug != 32:
            self.configs = [(at, config) for at, config in self.configs if at < index]
        del self.entries[index - self.first :]
        if index < self.unsaved:
            self.cut = min(self.cut or index, index)
            self.unsaved = index
        if self.bug != 19:
            self._cap(index - 1)

    def _cap(self, index: int) -> None:
        self.durable = min(self.durable, index)
        for record in self.pending:
            record[1] = min(record[1], index)

    def install(self, snapshot: Snapshot, commit: int) -> None:
        """Take a snapshot from the leader: a suffix that agrees with it stays (figure 5.3, step 6), all else goes."""
        agrees = self.term_at(snapshot.index) == snapshot.term or self.bug == 21
        keep = self.entries[snapshot.index + 1 - self.first :] if agrees and self.bug != 20 else []
        self.configs = [(at, config) for at, config in self.configs if at > snapshot.index and keep]
        self.snapshot, self.entries, self.first = snapshot, keep, snapshot.index + 1
        self.cut = 0 if not keep or self.cut <= snapshot.index else self.cut
        self.unsaved = max(self.unsaved, self.first) if keep else self.first
        if not keep:
            self._cap(min(commit, snapshot.index))

    def compact(self, snapshot: Snapshot, first: int) -> None:
        """Take a snapshot of one's own; entries before `first` go."""
        self.snapshot = snapshot
        self.configs = [(at, config) for at, config in self.configs if at > snapshot.index]
        if first > self.first:
            del self.entries[: first - self.first]
            self.first = first

    # --- durability ---------------------------------------------------------------------------------------

    def written(self, token: int, last: int) -> None:
        """A Persist or StoreSnapshot was handed out, after which the log reaches `last` on disk."""
        self.pending.append([token, last])

    def settled(self, token: int) -> None:
        """Everything up to this token is durable."""
        while self.pending and self.pending[0][0] <= token:
            self.durable = self.pending.pop(0)[1]
