"""A server's log: its entries, the configuration that follows from them, and how much of it is durable.

Thesis 3.5 (log), 4.1 (the newest configuration in the log holds), 5 (compaction). Bookkeeping only: replication
decides who may append what.
"""

from __future__ import annotations

from itertools import pairwise

from peer.consensus.errors import BadBoot, BadMessage
from peer.consensus.message_codec import parse_config
from peer.consensus.records import Config, Entry, Snapshot


class Log:
    """Entries first_index..last_index, contiguous; first_index <= snapshot_index + 1.

    Entries before the snapshot's index are a kept tail; before them there is only the snapshot.
    """

    def __init__(self, snapshot: Snapshot | None, entries: tuple[Entry, ...]) -> None:
        """Raises BadBoot where there is a gap. `stale` tells that the stored log has to be cut to what is here."""
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
            self.stale = True
            self.entries = []
        self.first_index = self.entries[0].index if self.entries else base + 1
        for entry in self.entries:
            if entry.kind == "config" and entry.index > base:
                try:
                    self.configs.append((entry.index, parse_config(entry.data)))
                except BadMessage as error:
                    raise BadBoot(
                        f"log: entry {entry.index} is a configuration that cannot be read"
                    ) from error
        self.durable_index = self.last_index
        self.pending_writes: list[list[int]] = []  # [token, last index once that is durable], rising tokens
        self.unsaved_from = self.last_index + 1  # the first entry that no Persist has carried yet
        self.truncate_from = 0  # where the next Persist has to cut the stored log; 0: nowhere

    def _agrees(self, snapshot: Snapshot) -> bool:
        """Whether the entry at the snapshot's index is the one that it ends with, or lies just before the log."""
        start = self.entries[0].index
        if start == snapshot.index + 1:
            return True
        place = snapshot.index - start
        return 0 <= place < len(self.entries) and self.entries[place].term == snapshot.term

    # --- reading ------------------------------------------------------------------------------------------

    @property
    def last_index(self) -> int:
        """Index of the last entry; of what came before, where there are none."""
        return self.first_index + len(self.entries) - 1

    @property
    def last_term(self) -> int:
        """Term at `last_index`; 0 where it is unknown."""
        return self.term_at(self.last_index) or 0

    @property
    def snapshot_index(self) -> int:
        """The index that the snapshot ends with; 0 without one."""
        return self.snapshot.index if self.snapshot is not None else 0

    def term_at(self, index: int) -> int | None:
        """Returns the term of the entry at `index`, or None where it is not known (any more)."""
        place = index - self.first_index
        if 0 <= place < len(self.entries):
            return self.entries[place].term
        if self.snapshot is not None and index == self.snapshot.index:
            return self.snapshot.term
        # Behind a snapshot nothing is known of the start.
        return 0 if index == 0 and self.first_index == 1 else None

    def span(self, start: int, stop: int) -> tuple[Entry, ...]:
        """Returns entries start..stop, both included."""
        return tuple(self.entries[start - self.first_index : stop - self.first_index + 1])

    def batch(self, start: int, max_bytes: int, max_entries: int) -> tuple[Entry, ...]:
        """Returns entries from `start` on, as many as fit, at least one if there is one."""
        place = start - self.first_index
        stop, room = place, max_bytes
        while stop < len(self.entries) and stop - place < max_entries:
            room -= len(self.entries[stop].data) + 16
            if room < 0 and stop > place:
                break
            stop += 1
        return tuple(self.entries[place:stop])

    @property
    def config(self) -> Config:
        """The newest configuration, committed or not."""
        if self.configs:
            return self.configs[-1][1]
        return self.snapshot.config if self.snapshot is not None else Config()

    @property
    def config_index(self) -> int:
        """The index of the newest configuration's entry, or of the snapshot that holds it."""
        return self.configs[-1][0] if self.configs else self.snapshot_index

    def config_at(self, index: int) -> Config:
        """Returns the configuration that held once the entry at `index` was there (index >= snapshot_index)."""
        found = self.snapshot.config if self.snapshot is not None else Config()
        for at, config in self.configs:
            if at <= index:
                found = config
        return found

    # --- changing -----------------------------------------------------------------------------------------

    def append(self, entries: tuple[Entry, ...]) -> None:
        """Adds entries behind the last. Raises BadMessage where one is a configuration that cannot be read."""
        for entry in entries:
            if entry.kind == "config":
                self.configs.append((entry.index, parse_config(entry.data)))
        self.entries.extend(entries)

    def truncate(self, index: int) -> None:
        """Drops entries from `index` on. Nothing of them is durable any more, also not what is being written."""
        self.configs = [(at, config) for at, config in self.configs if at < index]
        del self.entries[index - self.first_index :]
        if index < self.unsaved_from:
            self.truncate_from = min(self.truncate_from or index, index)
            self.unsaved_from = index
        self._limit_durable(index - 1)

    def _limit_durable(self, index: int) -> None:
        self.durable_index = min(self.durable_index, index)
        for write in self.pending_writes:
            write[1] = min(write[1], index)

    def install(self, snapshot: Snapshot, commit_index: int) -> None:
        """Takes a snapshot of the leader: a suffix that agrees with it stays (figure 5.3, step 6), all else goes."""
        agrees = self.term_at(snapshot.index) == snapshot.term
        keep = self.entries[snapshot.index + 1 - self.first_index :] if agrees else []
        self.configs = [(at, config) for at, config in self.configs if at > snapshot.index and keep]
        self.snapshot, self.entries, self.first_index = snapshot, keep, snapshot.index + 1
        self.truncate_from = 0 if not keep or self.truncate_from <= snapshot.index else self.truncate_from
        self.unsaved_from = max(self.unsaved_from, self.first_index) if keep else self.first_index
        if not keep:
            self._limit_durable(min(commit_index, snapshot.index))

    def compact(self, snapshot: Snapshot, first_index: int) -> None:
        """Takes a snapshot of this server's own; entries before `first_index` go."""
        self.snapshot = snapshot
        self.configs = [(at, config) for at, config in self.configs if at > snapshot.index]
        if first_index > self.first_index:
            del self.entries[: first_index - self.first_index]
            self.first_index = first_index

    # --- durability ---------------------------------------------------------------------------------------

    def write_began(self, token: int, last_index: int) -> None:
        """A Persist or StoreSnapshot was handed out, after which the log reaches `last_index` on disk."""
        self.pending_writes.append([token, last_index])

    def write_ended(self, token: int) -> None:
        """Everything up to this token is durable."""
        while self.pending_writes and self.pending_writes[0][0] <= token:
            self.durable_index = self.pending_writes.pop(0)[1]
