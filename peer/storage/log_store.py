"""Keeps term, vote, entries and snapshot of the consensus log: what it says is durable survives a power loss.

Edge; every method blocks and belongs to one thread. Of a folder it uses three files, as log_records.py lays them out:
`log`, to which every Persist adds one record with one fsync, `snapshot`, and a copy of it. The log is written anew,
aside, when a snapshot is stored or when more than half of it is void. The snapshot is durable before the log is cut for
it; a crash between the two is made up for by `load`. So the folder never holds more than four snapshots, three times
the entries that are kept, MAX_VOID_BYTES and one record, and `wants_snapshot` bounds the entries.

A disk that refuses is asked again by the caller: nothing that was stored is lost meanwhile. A folder without these
files begins a new life of this peer: a new incarnation, higher than all before it unless the clock was set back. Files
that no peer can have written raise DamagedStore and stay as they are; of a snapshot the copy takes the place, and
`salvage` tells what can be used of the rest.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from peer.consensus.events import HardState, Persist, StoreSnapshot
from peer.errors import DamagedStore, DiskFull, DiskRefuses, StateUnusable
from peer.storage.log_folder import Folder
from peer.storage.log_records import (
    SALT_BYTES,
    Beginning,
    SnapshotFile,
    group_bytes,
    log_bytes,
    read_damaged_log,
    read_log,
    read_snapshot,
    snapshot_bytes,
)
from peer.storage.stored_log import Held, Kept, Salvaged, group_of, salvaged
from planner.model.durable_files import DISK_FULL

MAX_VOID_BYTES: Final = 1 << 20  # of a log: entries written over, terms that are past
LOG: Final = "log"
SNAPSHOT: Final = "snapshot"
SNAPSHOTS: Final = (SNAPSHOT, "snapshot-copy")  # one damaged byte must not cost all that a mesh knows
FILES: Final = (LOG, *SNAPSHOTS)
NO_FILES: Final[Mapping[str, bytes]] = {}
_RANDOM_BITS: Final = 11  # of an incarnation; the others are milliseconds, and last beyond the year 2100

log = logging.getLogger(__name__)


def new_incarnation(above: int = 0) -> int:
    """Below 2^53, and higher than `above` and, unless the clock was set back, those drawn in earlier milliseconds."""
    drawn = (time.time_ns() // 1_000_000 << _RANDOM_BITS) + secrets.randbits(_RANDOM_BITS)
    return max(drawn, above + 1)


def _fresh(above: int = 0) -> Held:
    return Held(Beginning(new_incarnation(above), 0, 1, HardState(), ()))


class MemoryStore:
    """For a peer without a folder: nothing outlives the process, so that every start is a new life."""

    durable: Final = False

    def __init__(self, above: int = 0) -> None:
        """As another life, of an incarnation higher than `above`."""
        self._held = _fresh(above)

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
    """The store in a folder. `load` comes first. What DiskRefuses kept from being stored is tried again before anything
    else is stored. `tell` says what was put right.
    """

    durable: Final = True

    def __init__(self, folder: Folder, tell: Callable[[str], None] = log.warning) -> None:
        self._folder = folder
        self._tell = tell
        self._held: Held | None = None
        self._salt = b""
        self._bytes = 0  # of the log file
        self._records = 0
        self._rewrite_at = 0  # at so many bytes
        self._doubtful = False  # a write failed: what of it is on the disk, nobody knows
        self._closed = False

    def load(self, above: int = 0) -> Kept:
        """What is stored; where nothing is, a new life of an incarnation higher than `above`. Raises DamagedStore,
        StateUnusable.
        """
        with self._naming("read"):
            log = self._folder.read(LOG)
            snapshots = {name: self._folder.read(name) for name in SNAPSHOTS}
            if log is None and not any(data is not None for data in snapshots.values()):
                held = _fresh(above)
                self._rewrite(held)
            else:
                held = self._read(log, snapshots)
        self._held = held
        return held.kept()

    def persist(self, effect: Persist) -> None:
        """Whole or not at all; durable when it returns. Raises DiskRefuses."""
        held, group = self._ready(), group_of(effect)
        held.check(group)
        with self._naming("written"):
            if self._doubtful:
                self._rewrite(held)  # nothing may build on what only the page cache may have
            record = group_bytes(self._salt, self._records, group)
            with self._doubted():
                self._folder.append(LOG, self._bytes, record)
        held.take(group)
        self._bytes += len(record)
        self._records += 1
        if self._bytes > self._rewrite_at:
            self._tidy(held)

    def store_snapshot(self, effect: StoreSnapshot) -> None:
        """The snapshot, then the log cut for it. Raises DiskRefuses."""
        held = self._ready()
        file = SnapshotFile(held.snapshots + 1, effect.first, effect.last, effect.snapshot)
        held = held.with_snapshot(file)
        with self._naming("written"):
            self._rewrite(held, dict.fromkeys(SNAPSHOTS, snapshot_bytes(file)))
        self._held = held

    @property
    def wants_snapshot(self) -> bool:
        """Whether the log has grown enough for a snapshot to be worth it."""
        return self._ready().wants_snapshot

    def close(self) -> None:
        """Lets the folder go; nothing waits to be written."""
        self._folder.close()
        self._closed = True

    # --- inner moves

    def _read(self, log: bytes | None, snapshots: Mapping[str, bytes | None]) -> Held:
        name = LOG
        try:
            if log is None:
                raise DamagedStore("there is a snapshot beside it, but the log is gone")
            file = read_log(log)
            held = Held(file.beginning)
            for group in file.groups:
                held.take(group)
            name = SNAPSHOT
            stored, wrong = newest_snapshot(snapshots)
            if stored is None and wrong:
                raise next(iter(wrong.values()))
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
            raise DamagedStore(f"{self._folder.path / name} is damaged ({error})") from error
        if stored is not None:
            self._put_right(stored, snapshots, wrong)
        self._salt, self._bytes, self._records = file.salt, file.good_bytes, 1 + len(file.groups)
        self._rewrite_at = 2 * held.bytes + MAX_VOID_BYTES
        if cut:
            self._rewrite(held)
        elif file.good_bytes < len(log):
            self._folder.cut(LOG, file.good_bytes)
        return held

    def _put_right(
        self,
        stored: SnapshotFile,
        snapshots: Mapping[str, bytes | None],
        wrong: Mapping[str, DamagedStore],
    ) -> None:
        """Both files are that snapshot again. Where only a copy is missing, it may stay so."""
        for name, error in wrong.items():
            aside = self._folder.set_aside(name)
            self._tell(
                f"{self._folder.path / name} is damaged ({error}): it is kept as {aside}, and the copy of it is used"
            )
        right = snapshot_bytes(stored)
        try:
            if any(data != right for data in snapshots.values()):
                self._folder.draft(dict.fromkeys(SNAPSHOTS, right))
                self._folder.rename(SNAPSHOTS)
        except OSError:
            if wrong:
                raise

    def _rewrite(self, held: Held, before: Mapping[str, bytes] = NO_FILES) -> None:
        salt = secrets.token_bytes(SALT_BYTES)
        log = log_bytes(salt, held.beginning())
        files = {**before, LOG: log}
        self._folder.draft(files)
        with self._doubted():
            self._folder.rename(files)
        self._salt, self._bytes, self._records = salt, len(log), 1
        self._rewrite_at = 2 * held.bytes + MAX_VOID_BYTES
        self._doubtful = False

    def _tidy(self, held: Held) -> None:
        try:
            with self._naming("written"):
                self._rewrite(held)
        except DiskRefuses:
            self._rewrite_at = self._bytes + MAX_VOID_BYTES  # it goes on as it is; later there may be room

    def _ready(self) -> Held:
        if self._closed or self._held is None:
            state = "it is closed" if self._closed else "not loaded yet"
            raise StateUnusable(f"{self._folder.path} is not used any more: {state}")
        return self._held

    @contextmanager
    def _doubted(self) -> Iterator[None]:
        """After a write that failed the log is written anew, in another file, from what is known to be stored."""
        try:
            yield
        except BaseException:
            self._doubtful = True
            raise

    @contextmanager
    def _naming(self, what: str) -> Iterator[None]:
        try:
            yield
        except (OSError, MemoryError) as error:
            path = self._folder.path
            number = getattr(error, "errno", None)
            reason = (os.strerror(number) if number else str(error)) or "not enough memory"
            if number in DISK_FULL:
                raise DiskFull(f"the disk under {path} is full ({reason}): free some space") from error
            raise DiskRefuses(f"{path} cannot be {what} now: {reason}") from error


def newest_snapshot(
    snapshots: Mapping[str, bytes | None],
) -> tuple[SnapshotFile | None, dict[str, DamagedStore]]:
    """The newest snapshot that is whole, and what is wrong with the others, by the names of the files."""
    newest: SnapshotFile | None = None
    wrong: dict[str, DamagedStore] = {}
    for name, data in snapshots.items():
        try:
            file = read_snapshot(data) if data is not None else None
        except DamagedStore as error:
            wrong[name] = error
            continue
        if file is not None and (newest is None or file.number > newest.number):
            newest = file
    return newest, wrong


def is_blank(folder: Path) -> bool:
    """Whether it is a whole store into which no entry and no snapshot ever came. Raises OSError."""
    if any((folder / name).exists() for name in SNAPSHOTS):
        return False
    try:
        file = read_log((folder / LOG).read_bytes())
    except (DamagedStore, FileNotFoundError):
        return False
    return not file.beginning.entries and not any(group.entries for group in file.groups)


def salvage(folder: Path) -> Salvaged:
    """What can be used of a folder that is no store any more, and stays as it is. Raises OSError."""
    found = {name: (folder / name).read_bytes() for name in FILES if (folder / name).is_file()}
    snapshot, _ = newest_snapshot({name: found.get(name) for name in SNAPSHOTS})
    return salvaged(read_damaged_log(found.get(LOG, b"")), snapshot)
