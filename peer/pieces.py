"""Gives other peers pieces of weights from this machine's store, a little at a time.

Edge. One range after the other for each peer, and the next only when the last has left: activations go first.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from peer.connection import Connection
from peer.errors import BadCommand, PeerError
from peer.frames import Piece, PieceRequest
from planner.errors import PlannerError
from planner.manifest import Manifest
from planner.store import PIECE_BYTES, BlobRef, Store

MAX_WAITING: Final = 16  # requests of one peer; an honest one has two or three
HERE, ABSENT = 0, 1

log = logging.getLogger(__name__)


class Pieces:
    """`connection(peer)` is the open connection to a peer, if there is one."""

    def __init__(
        self, store: Store, manifest: Manifest, connection: Callable[[str], Connection | None]
    ) -> None:
        self._store = store
        self._connection = connection
        self._places: dict[bytes, tuple[BlobRef, int]] = {}  # SHA-256 of a piece: its blob, its number
        for blob in (*manifest.blobs(0, len(manifest.units)), manifest.tokenizer):
            for index, sha256 in enumerate(blob.pieces):
                self._places[bytes.fromhex(sha256)] = (blob, index)
        self._waiting: dict[str, deque[PieceRequest]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.given_bytes = 0

    def requested(self, peer: str, frame: PieceRequest) -> None:
        """Answers when its turn comes. Raises BadCommand when the other side asks for too much at once."""
        waiting = self._waiting.get(peer)
        if waiting is not None:
            if len(waiting) >= MAX_WAITING:
                raise BadCommand(f"expected at most {MAX_WAITING} open requests for pieces")
            waiting.append(frame)
            return
        self._waiting[peer] = deque([frame])
        task = asyncio.ensure_future(self._give(peer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Ends the answers under way."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _give(self, peer: str) -> None:
        waiting = self._waiting[peer]
        try:
            while waiting:
                frame = waiting[0]
                body = await asyncio.to_thread(self._read, frame)
                connection = self._connection(peer)
                if connection is None:
                    return
                connection.send(Piece(frame.id, HERE if body else ABSENT, body))
                self.given_bytes += len(body)
                await connection.drained()
                waiting.popleft()
        except PeerError as error:
            log.info("no more pieces for %s: %s", peer[:8], error)
        finally:
            del self._waiting[peer]

    def _read(self, frame: PieceRequest) -> bytes:
        """The bytes asked for; b"" when they are not here."""
        place = self._places.get(frame.sha256)
        if place is None:
            return b""
        blob, index = place
        left = blob.piece_bytes(index) - frame.offset
        if left <= 0:
            return b""
        try:
            with self._store.blob_path(blob.sha256).open("rb") as file:
                file.seek(index * PIECE_BYTES + frame.offset)
                return file.read(min(frame.count, left))
        except (PlannerError, OSError) as error:
            log.info("a piece cannot be read: %s", error)
            return b""
