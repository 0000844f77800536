"""Keeps term, vote, entries and snapshot of the consensus log: what it says is durable survives a power loss.

Edge; every method blocks and belongs to one thread. Of a folder it uses two files, as log_records.py lays them
out: `log`, to which every Persist adds one record with one fsync, and `snapshot`. The log is written anew, aside, when
a snapshot is stored or when more than half of it is void. The snapshot is durable before the log is cut for it; a
crash between the two is made up for by `load`. So the folder never holds more than two snapshots, three times the
entries that are kept, MAX_VOID_BYTES and one record, and `wants_snapshot` bounds the entries.

A folder without both files begins a new life of this peer: a new incarnation, higher than all before it unless the
clock was set back. Files that no peer can have written raise DamagedStore and stay as they are.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NoReturn

from peer.consensus.events import HardState, Persist, StoreSnapshot
from peer.errors import DamagedStore, DiskFull, StateUnusable
from peer.storage.log_folder import Folder
from peer.storage.log_records import (
    SALT_BYTES,
    Beginning,
    SnapshotFile,
    group_bytes,
    log_bytes,
    read_log,
    read_snapshot,
    snapshot_bytes,
)
from peer.storage.stored_log import Held, Kept, group_of
from planner.model.durable_files import DISK_FULL

MAX_VOID_BYTES: Final = 1 << 20  # of a log: entries written over, terms that are past
LOG: Final = "log"
SNAPSHOT: Final = "snapshot"
NO_FILES: Final[Mapping[str, bytes]] = {}
_RANDOM_BITS: Final = 11  # of an incarnation; the others are milliseconds, and last beyond the year 2100


def new_incarnation() -> int:
    """Below 2^53, and higher than those drawn in earlier milliseconds, unless the clock was set back."""
    return (time.time_ns() // 1_000_000 << _RANDOM_BITS) + secrets.randbits(_RANDOM_BITS)


def _fresh() -> Held:
    return Held(Beginning(new_incarnation(), 0, 1, HardState(), ()))


class MemoryStore:
    """For a peer without a folder: nothing outlives the process, so that every start is a new life."""

    durable: Final = False

    def __init__(self) -> None:
        self._held = _fresh()

    def load(self) -> Kept:
        """Returns what is held."""
        return self._held.kept()

    def persist(self, effect: Persist) -> None:
        """Stores term, vote and entries until the process ends."""
        self._held.take(group_of(effect))

    def store_snapshot(self, effect: StoreSnapshot) -> None:
        """Stores a snapshot until the process ends, and cuts the log to it."""
        file = SnapshotFile(self._held.snapshots + 1, effect.first, effect.last, effect.snapshot)
        self._held = self._held.with_snapshot(file)

    @property
    def wants_snapshot(self) -> bool:
        """Whether the log has grown enough for a snapshot to be worth it."""
        return self._held.wants_snapshot

    def close(self) -> None:
        """Nothing to let go."""


class FileStore:
    """The store in a folder. `load` comes first; after StateUnusable that is not DiskFull nothing more is stored."""

    durable: Final = True

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._held: Held | None = None
        self._salt = b""
        self._bytes = 0  # of the log file
        self._records = 0
        self._rewrite_at = 0  # at so many bytes
        self._broken = ""

    def load(self) -> Kept:
        """What is stored; a new life where nothing is. Raises DamagedStore, StateUnusable."""
        with self._naming("read"):
            log, snapshot = self._folder.read(LOG), self._folder.read(SNAPSHOT)
            if log is None and snapshot is None:
                held = _fresh()
                self._rewrite(held)
            else:
                held = self._read(log, snapshot)
        self._held = held
        return held.kept()

    def persist(self, effect: Persist) -> None:
        """Whole or not at all; durable when it returns. Raises DiskFull, StateUnusable."""
        held, group = self._ready(), group_of(effect)
        held.check(group)
        record = group_bytes(self._salt, self._records, group)
        with self._naming("written"):
            try:
                self._folder.append(LOG, self._bytes, record)
            except OSError as error:
                self._undo(error)
        held.take(group)
        self._bytes += len(record)
        self._records += 1
        if self._bytes > self._rewrite_at:
            self._tidy(held)

    def store_snapshot(self, effect: StoreSnapshot) -> None:
        """The snapshot, then the log cut for it. Raises DiskFull, StateUnusable."""
        held = self._ready()
        file = SnapshotFile(held.snapshots + 1, effect.first, effect.last, effect.snapshot)
        held = held.with_snapshot(file)
        with self._naming("written"):
            self._rewrite(held, {SNAPSHOT: snapshot_bytes(file)})
        self._held = held

    @property
    def wants_snapshot(self) -> bool:
        """Whether the log has grown enough for a snapshot to be worth it."""
        return self._ready().wants_snapshot

    def close(self) -> None:
        """Lets the folder go; nothing waits to be written."""
        self._folder.close()
        self._broken = self._broken or "it is closed"

    # --- inner moves

    def _read(self, log: bytes | None, snapshot: bytes | None) -> Held:
        name = LOG
        try:
            if log is None:
                raise DamagedStore("there is a snapshot beside it, but the log is gone")
            file = read_log(log)
            held = Held(file.beginning)
            for group in file.groups:
                held.take(group)
            name = SNAPSHOT
            stored = read_snapshot(snapshot) if snapshot is not None else None
            number = stored.number if stored is not None else 0
            if not held.snapshots <= number <= held.snapshots + 1:
                raise DamagedStore(
                    f"expected number {held.snapshots}, for which the log was cut, got {number}"
                )
            cut = stored is not None and number > held.snapshots
            if stored is not None:
                held = held.with_snapshot(stored) if cut else Held(held.beginning(), stored.snapshot)
                if held.first > stored.snapshot.index + 1:
                    raise DamagedStore(
                        f"it ends at {stored.snapshot.index}, the entries begin at {held.first}"
                    )
        except (DamagedStore, ValueError) as error:
            raise DamagedStore(
                f"{self._folder.path / name} is damaged ({error}): move the folder {self._folder.path} away, "
                "then this peer begins anew and learns everything from the others"
            ) from error
        self._salt, self._bytes, self._records = file.salt, file.good_bytes, 1 + len(file.groups)
        self._rewrite_at = 2 * held.bytes + MAX_VOID_BYTES
        if cut:
            self._rewrite(held)
        elif file.good_bytes < len(log):
            self._folder.cut(LOG, file.good_bytes)
        return held

    def _rewrite(self, held: Held, before: Mapping[str, bytes] = NO_FILES) -> None:
        salt = secrets.token_bytes(SALT_BYTES)
        log = log_bytes(salt, held.beginning())
        self._folder.write({**before, LOG: log})
        self._salt, self._bytes, self._records = salt, len(log), 1
        self._rewrite_at = 2 * held.bytes + MAX_VOID_BYTES

    def _tidy(self, held: Held) -> None:
        try:
            with self._naming("written"):
                self._rewrite(held)
        except DiskFull:
            self._rewrite_at = self._bytes + MAX_VOID_BYTES  # it goes on as it is; later there may be room

    def _undo(self, error: OSError) -> NoReturn:
        """Takes away what a failed append may have left. Refused by fsync, it may be there or not."""
        try:
            self._folder.cut(LOG, self._bytes)
        except OSError as worse:
            self._broken = f"{worse.strerror or worse} after {error.strerror or error}"
        raise error

    def _ready(self) -> Held:
        if self._broken or self._held is None:
            raise StateUnusable(
                f"{self._folder.path} is not used any more: {self._broken or 'not loaded yet'}"
            )
        return self._held

    @contextmanager
    def _naming(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            path = self._folder.path
            reason = error.strerror or str(error)
            if error.errno in DISK_FULL and not self._broken:
                raise DiskFull(f"the disk under {path} is full ({reason}): free some space") from error
            self._broken = self._broken or reason
            raise StateUnusable(
                f"{path} cannot be {what}: {self._broken}; this peer votes no more"
            ) from error
        except StateUnusable as error:
            self._broken = self._broken or str(error)
            raise
