"""Begins the next epoch of a mesh from what one peer kept, when most of its voters are gone for good.

Edge. A peer that runs is asked by a file beside its key, which it looks for while nobody coordinates; of one that does
not run the kept log itself is begun anew. What only the lost voters knew is lost with them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from peer.errors import StateUnusable
from peer.replication.log_keeping import LogKeeping, state_of
from peer.state.mesh_state import MeshState
from peer.storage.peer_keys import identity_in, write_private
from peer.transport.ticker import After
from planner.model.durable_files import open_locked

LOOKED_FOR_S: Final = 1.0  # a running peer looks this often for a request
ANSWERED_WITHIN_S: Final = 15.0
FOUNDERS: Final = "founder"  # folder of the keys with which meshes were founded, in the state folder


@dataclass(frozen=True, slots=True)
class KeptPeer:
    """A peer of this machine that kept a log. Files that it alone keeps have names that begin with `beside`."""

    mesh: str
    beside: Path
    epoch: int

    @property
    def request(self) -> Path:
        """The file that asks this peer to begin the next epoch."""
        return request_of(self.beside)

    @property
    def answer(self) -> Path:
        """The file in which it says what became of that."""
        return self.beside.with_name(f"{self.beside.name}-recovered")


def request_of(beside: Path) -> Path:
    """The file that asks a running peer to begin the next epoch."""
    return beside.with_name(f"{beside.name}-recover")


def kept_peers(state: Path, mesh: str) -> list[KeptPeer]:
    """Who kept a log under this state folder, in `mesh` or ("") in any."""
    found: list[KeptPeer] = []
    for root in (state, state / FOUNDERS):
        for key in sorted((root / "peers").glob("*/*.json")):
            beside, of = key.with_suffix(""), key.parent.name
            epoch = LogKeeping(of, "", beside).newest()
            if epoch and mesh in ("", of):
                found.append(KeptPeer(of, beside, epoch))
    return found


def recover(peer: KeptPeer, tell: Callable[[str], None]) -> str:
    """Begins the next epoch; what happened, in a sentence. `tell`: what is found on the way. Raises StateUnusable."""
    lock = open_locked(peer.beside.with_suffix(".lock"))
    if lock is None:
        return _ask(peer)
    try:
        me = identity_in(peer.beside.with_suffix(".json"), peer.mesh).id
        kept = LogKeeping(peer.mesh, me, peer.beside, tell)
        begin = kept.open(peer.epoch)
        state = best_state(kept, state_of(begin.snapshot, begin.entries), begin.is_new, tell)
        kept.found(state, peer.epoch + 1)
        kept.close()
    finally:
        os.close(lock)
    return f"epoch {peer.epoch + 1} of the mesh begins when this peer starts again; others join it as they come back"


def best_state(kept: LogKeeping, state: MeshState, is_new: bool, tell: Callable[[str], None]) -> MeshState:
    """`state`; where it is of a log that `is_new`, what the newest one before it knew. Raises StateUnusable."""
    found = kept.salvage() if is_new else None
    if found is None:
        return state
    tell(f"goes on from what can be read of {found.folder}; conversations: {len(found.state.conversations)}")
    return found.state


def _ask(peer: KeptPeer) -> str:
    with suppress(FileNotFoundError):
        peer.answer.unlink()
    write_private(peer.request, "")
    until = time.monotonic() + ANSWERED_WITHIN_S
    while time.monotonic() < until:
        if peer.answer.exists():
            text = peer.answer.read_text("utf-8")
            peer.answer.unlink()
            return text
        time.sleep(0.1)
    with suppress(FileNotFoundError):
        peer.request.unlink()
    raise StateUnusable("the peer that runs here does not answer: end it, then run shoal recover again")


async def requested(beside: Path, after: After) -> None:
    """Returns when somebody asks this running peer to begin the next epoch."""
    while not _is_there(request_of(beside)):
        await after(LOOKED_FOR_S)
    with suppress(OSError):
        request_of(beside).unlink()


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a folder that may not be looked into for a while
        return False


def answered(beside: Path, text: str) -> None:
    """Tells who asked what came of it."""
    with suppress(StateUnusable):
        write_private(beside.with_name(f"{beside.name}-recovered"), text)
