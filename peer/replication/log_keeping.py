"""Decides where this peer keeps its part of the mesh's log, and what it begins with: what is kept, or a new life.

Edge. A folder for each epoch beside the file with the peer's key, the newest counts; a peer whose key nobody keeps has
its log in memory only, and is another life with each start.

A log that is damaged, or of an epoch that is over, is set aside whole, under another name, and never deleted: it may
hold what nobody else has. What it acknowledged last may be missing from a damaged log, so no life goes on with it;
`salvage` tells what another epoch can begin with.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

from peer.consensus.errors import BadMessage
from peer.consensus.events import Persist, StoreSnapshot, founding
from peer.consensus.message_codec import parse_config
from peer.consensus.records import Config, Entry, HardState, Snapshot
from peer.errors import DamagedStore, MeshError, StateUnusable
from peer.replication.replica import Beginning
from peer.state.mesh_state import MeshState, apply_entry, decode_state, encode_state
from peer.storage.log_folder import Folder
from peer.storage.log_store import FileStore, MemoryStore, is_blank, salvage
from peer.storage.stored_log import Salvaged
from planner.model.durable_files import free_name, rename_durably

FIRST_EPOCH: Final = 1
PROBE_BYTES: Final = 1 << 20  # a disk that takes so much is worth a try
_NAME: Final = re.compile(r"(.+)-log-(\d{1,9})(?:\.aside-(\d{1,9}))?")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Salvage:
    """What a log that is in use no more knew."""

    state: MeshState
    folder: Path
    alone: bool  # whether nobody else voted, as far as can be read


class LogKeeping:
    """Of peer `me` in `mesh`. `beside`: files that this peer alone keeps have names that begin so; None: in memory.
    `tell`: what a person should know of the files.
    """

    def __init__(
        self, mesh: str, me: str, beside: Path | None, tell: Callable[[str], None] = log.warning
    ) -> None:
        self.mesh = mesh
        self.me = me
        self.beside = beside
        self._tell = tell
        self.store: FileStore | MemoryStore | None = None  # the one in use
        self._incarnation = 0  # the last that was used

    @property
    def durable(self) -> bool:
        """Whether the log is kept on disk."""
        return self.beside is not None

    def epochs(self) -> list[int]:
        """Of which a log is kept, rising."""
        return sorted(epoch for epoch, aside, _ in self._folders() if not aside)

    def newest(self) -> int:
        """The newest epoch of which something is kept, in use or set aside; 0: none."""
        return max((epoch for epoch, _, _ in self._folders()), default=0)

    def open(self, epoch: int, above: int = 0) -> Beginning:
        """What is kept of that epoch; a new life where nothing is or it is damaged, of an incarnation higher than
        `above` and than those of this peer before. Raises StateUnusable.
        """
        self.close()
        above = max(above, self._incarnation)
        if self.beside is None:
            return self._begin(epoch, MemoryStore(above), above)
        try:
            return self._begin(epoch, FileStore(Folder(self._folder(epoch)), self._tell), above)
        except DamagedStore as error:
            self.set_aside(epoch, str(error))
            return self.open(epoch, above)

    def set_aside(self, epoch: int, why: str = "") -> None:
        """What is kept of that epoch stays under another name. `why` is for people. Raises StateUnusable."""
        self.close()
        folder = self._folder(epoch)
        aside = free_name(folder)
        try:
            rename_durably(folder, aside)
        except OSError as error:
            raise StateUnusable(f"{folder} cannot be renamed: {error.strerror or error}") from error
        if why:
            self._tell(f"{why}; the whole log is kept as {aside}, and this peer begins another one")

    def anew(self, epoch: int, above: int = 0) -> Beginning:
        """A new life with an empty log, as whoever leads that epoch wants it, who has all of it that was committed,
        and says above which incarnation. Logs of other epochs are set aside. Raises StateUnusable.
        """
        self.close()
        for known in self.epochs():
            if known == epoch:
                self._throw_away(known)
            else:
                self._leave(known)
        return self.open(epoch, above)

    def found(self, state: MeshState, epoch: int = FIRST_EPOCH) -> Beginning:
        """Begins a mesh, or another epoch of it, with this peer as its only voter. Raises StateUnusable."""
        earlier = self.epochs()
        if epoch in earlier:
            self.set_aside(epoch)
        fresh = self.open(epoch)
        assert self.store is not None
        snapshot = founding(self.me, fresh.incarnation, encode_state(state))
        self.store.store_snapshot(StoreSnapshot(1, snapshot, snapshot.index + 1, snapshot.index))
        self.store.persist(Persist(2, snapshot.term, "", (), 0))
        store, self.store = self.store, None
        for known in earlier:
            if known != epoch:
                self._leave(known)  # only now that all of it is in the new one
        self.store = store
        return Beginning(
            self.mesh,
            epoch,
            self.me,
            fresh.incarnation,
            _seed(),
            HardState(snapshot.term, ""),
            snapshot,
            (),
        )

    def salvage(self) -> Salvage | None:
        """The newest log that is in use no more and says something; None: there is none. Raises StateUnusable."""
        newest = max(self.epochs(), default=0)
        for epoch, aside, folder in sorted(self._folders(), reverse=True):
            if not aside and epoch == newest:
                continue  # in use
            try:
                found = salvage(folder)
            except OSError as error:
                raise StateUnusable(f"{folder} cannot be read: {error.strerror or error}") from error
            if found.snapshot is not None or found.entries:
                with suppress(MeshError):  # what no version of ours wrote tells nothing
                    state = state_of(found.snapshot, found.entries)
                    return Salvage(state, folder, self._alone(found))
        return None

    def can_write(self) -> bool:
        """Whether the disk takes a file where the log is kept."""
        if self.beside is None:
            return False
        try:
            with TemporaryFile(dir=self.beside.parent) as file:
                file.write(bytes(PROBE_BYTES))
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Lets go of what is in use."""
        store, self.store = self.store, None
        if store is not None:
            store.close()

    def _begin(self, epoch: int, store: FileStore | MemoryStore, above: int) -> Beginning:
        try:
            kept = store.load(above) if isinstance(store, FileStore) else store.load()
        except BaseException:
            store.close()
            raise
        self.store = store
        incarnation = kept.incarnation
        self._incarnation = max(self._incarnation, incarnation)
        return Beginning(
            self.mesh,
            epoch,
            self.me,
            incarnation,
            _seed(),
            kept.hard_state,
            kept.snapshot,
            kept.entries,
        )

    def _alone(self, found: Salvaged) -> bool:
        entries = (*found.entries, *found.beyond)
        configs = [config for entry in entries if (config := _config(entry)) is not None]
        if found.snapshot is not None:
            configs.append(found.snapshot.config)
        return bool(configs) and all(config.voters == (self.me,) for config in configs)

    def _folders(self) -> Iterator[tuple[int, int, Path]]:
        """Epoch, number among those that were set aside (0: in use), and path of each log."""
        beside = self.beside
        if beside is None or not beside.parent.is_dir():
            return
        for path in beside.parent.iterdir():
            match = _NAME.fullmatch(path.name)
            if match is not None and match[1] == beside.name:
                yield int(match[2]), int(match[3] or 0), path

    def _folder(self, epoch: int) -> Path:
        assert self.beside is not None
        return self.beside.with_name(f"{self.beside.name}-log-{epoch}")

    def _leave(self, epoch: int) -> None:
        """Sets aside what says something."""
        folder = self._folder(epoch)
        try:
            blank = is_blank(folder)
        except OSError as error:
            raise StateUnusable(f"{folder} cannot be read: {error.strerror or error}") from error
        if blank:
            self._throw_away(epoch)
        else:
            self.set_aside(epoch)

    def _throw_away(self, epoch: int) -> None:
        folder = self._folder(epoch)
        try:
            shutil.rmtree(folder)
        except OSError as error:
            raise StateUnusable(f"{folder} cannot be removed: {error.strerror or error}") from error


def state_of(snapshot: Snapshot | None, entries: tuple[Entry, ...]) -> MeshState:
    """What a log builds with all its entries, those among them that nobody committed. Raises BadCommand."""
    state, after = MeshState(), 0
    if snapshot is not None:
        state, after = decode_state(snapshot.data), snapshot.index
    for entry in entries:
        if entry.index > after and entry.kind == "command":
            state = apply_entry(state, entry.data)
    return state


def _config(entry: Entry) -> Config | None:
    if entry.kind != "config":
        return None
    try:
        return parse_config(entry.data)
    except BadMessage:
        return None


def _seed() -> int:
    return secrets.randbelow(2**32 - 1) + 1
