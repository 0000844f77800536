"""Decides where this peer keeps its part of the mesh's log, and what it begins with: what is kept, or a new life.

Edge. A folder for each epoch beside the file with the peer's key, the newest counts; a peer whose key nobody keeps has
its log in memory only, and is another life with each start.
"""

from __future__ import annotations

import logging
import re
import secrets
import shutil
from pathlib import Path
from typing import Final

from peer.consensus.events import Persist, StoreSnapshot, founding
from peer.consensus.records import HardState
from peer.errors import DamagedStore, StateUnusable
from peer.replication.replica import Beginning
from peer.state.mesh_state import MeshState, encode_state
from peer.storage.log_folder import Folder
from peer.storage.log_store import FileStore, MemoryStore

FIRST_EPOCH: Final = 1
_NAME: Final = re.compile(r"(.+)-log-(\d{1,9})")

log = logging.getLogger(__name__)


class LogKeeping:
    """Of peer `me` in `mesh`. `beside`: files that this peer alone keeps have names that begin so; None: in memory."""

    def __init__(self, mesh: str, me: str, beside: Path | None) -> None:
        self.mesh = mesh
        self.me = me
        self.beside = beside
        self.store: FileStore | MemoryStore | None = None  # the one in use
        self._incarnation = 0  # the last that was used

    @property
    def durable(self) -> bool:
        """Whether the log is kept on disk."""
        return self.beside is not None

    def epochs(self) -> list[int]:
        """Of which something is kept, rising."""
        beside = self.beside
        if beside is None or not beside.parent.is_dir():
            return []
        found = (_NAME.fullmatch(path.name) for path in beside.parent.iterdir())
        return sorted(int(match[2]) for match in found if match is not None and match[1] == beside.name)

    def open(self, epoch: int) -> Beginning:
        """What is kept of that epoch; a new life where nothing is or it is damaged. Raises StateUnusable."""
        self.close()
        if self.beside is None:
            return self._begin(epoch, MemoryStore())
        try:
            return self._begin(epoch, FileStore(Folder(self._folder(epoch))))
        except DamagedStore as error:
            log.warning("%s", error)
            return self.anew(epoch)

    def anew(self, epoch: int) -> Beginning:
        """A new life with an empty log; what was kept of all epochs is thrown away. Raises StateUnusable."""
        self.close()
        for known in self.epochs():
            self._throw_away(known)
        return self.open(epoch)

    def found(self, state: MeshState, epoch: int = FIRST_EPOCH) -> Beginning:
        """Begins a mesh, or another epoch of it, with this peer as its only voter. Raises StateUnusable."""
        fresh = self.anew(epoch) if self.durable else self.open(epoch)
        assert self.store is not None
        snapshot = founding(self.me, fresh.incarnation, encode_state(state))
        self.store.store_snapshot(StoreSnapshot(1, snapshot, snapshot.index + 1, snapshot.index))
        self.store.persist(Persist(2, snapshot.term, "", (), 0))
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

    def close(self) -> None:
        """Lets go of what is in use."""
        store, self.store = self.store, None
        if store is not None:
            store.close()

    def _begin(self, epoch: int, store: FileStore | MemoryStore) -> Beginning:
        try:
            kept = store.load()
        except BaseException:
            store.close()
            raise
        self.store = store
        incarnation = kept.incarnation
        if not self.durable:
            incarnation = max(incarnation, self._incarnation + 1)
        self._incarnation = incarnation
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

    def _folder(self, epoch: int) -> Path:
        assert self.beside is not None
        return self.beside.with_name(f"{self.beside.name}-log-{epoch}")

    def _throw_away(self, epoch: int) -> None:
        folder = self._folder(epoch)
        try:
            shutil.rmtree(folder)
        except OSError as error:
            raise StateUnusable(f"{folder} cannot be removed: {error.strerror or error}") from error


def _seed() -> int:
    return secrets.randbelow(2**32 - 1) + 1
