"""Pieces of weights between peers: gives others what this machine's store has, and asks others for what it lacks.

Edge. Pieces travel in ranges small enough that an activation behind one waits no longer than a person would notice;
to each peer one range after the other goes out, and the next only when the last has left.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator
from itertools import count
from typing import Final

from peer.errors import BadCommand, CannotServe, ConnectionLost, PeerError
from peer.limits import MAX_RANGE_BYTES
from peer.transport.connection import Connection
from peer.wire.generated.frames import Frame, Piece, PieceRequest
from planner.errors import PlannerError
from planner.model.manifest import Manifest
from planner.model.store import PIECE_BYTES, BlobRef, Store

MAX_WAITING: Final = 16  # requests of one peer; an honest one has a handful
OPEN_RANGES: Final = 2  # of one piece: one on the way, one being read
OPEN_LENT: Final = (
    6  # of a cache: people wait for the answer, and whom it leaves may take long for every request
)
RANGE_WITHIN_S: Final = 20.0  # 256 KiB in this time is 13 KB/s
LENT: Final = 32  # caches of answers that move away from here
HERE, ABSENT = 0, 1

log = logging.getLogger(__name__)


class Pieces:
    """`connection(peer)` is the open connection to a peer, if there is one; `send(peer, frame)` hands a frame over."""

    def __init__(
        self,
        store: Store,
        manifest: Manifest,
        connection: Callable[[str], Connection | None],
        send: Callable[[str, Frame], None],
        numbers: Iterator[int] | None = None,
    ) -> None:
        """`numbers` of requests: where several share a connection, each takes its own of one sequence."""
        self._store = store
        self._connection = connection
        self._send = send
        self._numbers = numbers if numbers is not None else count(1)
        self._asked: dict[int, tuple[str, asyncio.Future[bytes]]] = {}  # by id: whom, and who waits
        self._places: dict[bytes, tuple[BlobRef, int]] = {}  # SHA-256 of a piece: its blob, its number
        for blob in (*manifest.blobs(0, len(manifest.units)), manifest.tokenizer):
            for index, sha256 in enumerate(blob.pieces):
                self._places[bytes.fromhex(sha256)] = (blob, index)
        self._waiting: dict[str, deque[PieceRequest]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._lent: dict[bytes, bytes] = {}  # by SHA-256, the last one last
        self._times_lent: Counter[bytes] = Counter()
        self.given_bytes = 0

    def has(self, sha256: bytes) -> bool:
        """Whether a piece of that hash is one of this model, or of a cache that is lent."""
        return sha256 in self._places or sha256 in self._lent

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

    def lend(self, sha256: bytes, data: bytes, most_bytes: int) -> None:
        """Gives `data` to whoever asks for it by its SHA-256, until it is forgotten as often as it was lent. The last
        few are remembered, and no more than `most_bytes` beside the last one.
        """
        self._lent.pop(sha256, None)
        self._lent[sha256] = data
        self._times_lent[sha256] += 1
        while len(self._lent) > LENT or (len(self._lent) > 1 and self.lent_bytes > most_bytes):
            del self._lent[next(iter(self._lent))]

    def forget(self, sha256: bytes) -> None:
        """One of those whom it was lent to asks no more."""
        self._times_lent -= Counter([sha256])  # drops what comes to nothing
        if sha256 not in self._times_lent:
            self._lent.pop(sha256, None)

    @property
    def lent_bytes(self) -> int:
        """How many bytes of caches are kept for other peers."""
        return sum(len(data) for data in self._lent.values())

    async def fetch(self, peer: str, sha256: bytes, size: int, open_ranges: int = OPEN_RANGES) -> bytes:
        """The piece with that hash from `peer`; whoever asks checks it. Raises CannotServe or ConnectionLost."""
        made = bytearray(size)
        offsets = iter(range(0, size, MAX_RANGE_BYTES))

        async def ranges() -> None:
            for offset in offsets:
                wanted = min(MAX_RANGE_BYTES, size - offset)
                body = await self._range(peer, sha256, offset, wanted)
                if len(body) != wanted:
                    raise CannotServe(f"it gave {len(body)} bytes of {wanted}")
                made[offset : offset + wanted] = body

        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(open_ranges):
                    tasks.create_task(ranges())
        except* PeerError as group:
            raise group.exceptions[0] from None
        return bytes(made)

    def came(self, peer: str, frame: Piece) -> None:
        """Takes an answer; one to nothing is ignored."""
        whom, waiting = self._asked.get(frame.id, ("", None))
        if waiting is None or whom != peer or waiting.done():
            return
        if frame.status == HERE:
            waiting.set_result(frame.body)
        else:
            waiting.set_exception(CannotServe("it does not have that piece"))

    def gone(self, peer: str) -> None:
        """Fails what waits for `peer`."""
        for whom, waiting in self._asked.values():
            if whom == peer and not waiting.done():
                waiting.set_exception(ConnectionLost(f"peer {peer} is gone"))

    async def close(self) -> None:
        """Ends the answers under way."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _range(self, peer: str, sha256: bytes, offset: int, size: int) -> bytes:
        number = next(self._numbers)
        waiting: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._asked[number] = (peer, waiting)
        try:
            self._send(peer, PieceRequest(number, sha256, offset, size))
            async with asyncio.timeout(RANGE_WITHIN_S):
                return await waiting
        except TimeoutError:
            raise CannotServe("it took too long") from None
        finally:
            del self._asked[number]

    async def _give(self, peer: str) -> None:
        waiting = self._waiting[peer]
        try:
            while waiting:
                frame = waiting[0]
                lent = self._lent.get(frame.sha256)
                if lent is not None:  # a thread would only have to be waited for
                    body = lent[frame.offset : frame.offset + frame.count]
                else:
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
        """The bytes asked for, of the store; b"" when they are not here."""
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
