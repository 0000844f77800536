"""Values of runs on their way between peers: cut into parts, one value after the other to each peer, and put together.

Edge. Parts are frames of no session, so tokens go between them; the next part is queued once there is room for it.
Between two processes of one machine a large value goes through the memory that they share instead.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from peer.dataflow.flow_stage import SendValue
from peer.dataflow.value_codec import Array, check_shape, check_total, from_bytes, to_bytes
from peer.errors import BadCommand, MeshError, PeerError
from peer.limits import MAX_RANGE_BYTES
from peer.transport import shared_memory
from peer.transport.peer_links import PeerLinks
from peer.transport.shared_memory import Inbox
from peer.wire.generated.frames import RunValue
from peer.wire.generated.requests import RUN_FOLDER, RUN_LEFT, RunFolderAnswer, RunLeftRequest
from planner.model.graph_manifest import Value

MAX_OPEN: Final = 64  # values of one peer that have begun to come; an honest one sends one after the other
LEFT_AT_ONCE: Final = 4  # values in shared memory for one peer: while it reads one, the next is written
QUICK_BYTES: Final = 256 << 10  # are copied before a thread would have woken up to do it

log = logging.getLogger(__name__)


class ValueTaker(Protocol):
    """Whom values are for."""

    def wanted(self, peer: str, run: bytes, epoch: int, item: int, value: int) -> Value | None:
        """What the manifest says of it; None: it is not wanted here (any more)."""

    def unable(self, peer: str, run: bytes, epoch: int, item: int, text: str) -> None:
        """Takes that a value that is wanted is not taken, and why."""

    def came(self, peer: str, run: bytes, epoch: int, item: int, value: int, array: Array) -> None:
        """Takes a whole value."""


@dataclass(slots=True)
class _Coming:
    value: Value
    shape: tuple[int, ...]
    total: int
    data: bytearray


@dataclass(frozen=True, slots=True)
class _Parcel:
    """A value on its way out, and its bytes."""

    effect: SendValue
    data: bytes | memoryview


class ValueExchange:
    """Sends values to peers, and hands those that come to `taker`, up to `most_bytes` of unfinished ones.

    `inbox`: where processes of this machine leave values; None: nowhere, all go over connections.
    """

    def __init__(
        self, links: PeerLinks, taker: ValueTaker, most_bytes: int, inbox: Inbox | None = None
    ) -> None:
        self._links = links
        self._taker = taker
        self._most_bytes = most_bytes
        self._waiting: dict[str, deque[tuple[SendValue, Value]]] = {}
        self._pumps: dict[str, asyncio.Task[None]] = {}
        self._coming: dict[tuple[str, bytes, int, int, int], _Coming] = {}
        self._coming_bytes = 0
        self.sent_bytes = 0
        self.left_bytes = 0  # through shared memory
        self._inbox = inbox
        self._outboxes: dict[str, Path | None] = {}  # by peer: where to leave values for it; None: nowhere
        if inbox is not None:
            links.on(RUN_FOLDER, self._folder)
            links.on(RUN_LEFT, self._left)

    def send(self, effect: SendValue, value: Value) -> None:
        """Sends it when those before it have gone. To this peer itself it comes soon."""
        if effect.peer == self._links.me:
            asyncio.get_running_loop().call_soon(self._to_self, effect)
            return
        self._waiting.setdefault(effect.peer, deque()).append((effect, value))
        if effect.peer not in self._pumps:
            self._pumps[effect.peer] = asyncio.ensure_future(self._pump(effect.peer))

    def frame(self, peer: str, frame: RunValue) -> None:
        """Takes a part. Raises BadCommand or WrongTensor for one that no peer sends."""
        key = (peer, frame.run, frame.epoch, frame.item, frame.value)
        coming = self._coming.get(key)
        if frame.offset == 0:
            coming = self._begun(key, frame)
        if coming is None:
            return  # not wanted when it began
        wrong = frame.offset != len(coming.data) or frame.total != coming.total
        if wrong or frame.offset + len(frame.body) > coming.total:
            raise BadCommand(
                f"RUN_VALUE: expected byte {len(coming.data)} of {coming.total}, got {frame.offset}"
            )
        coming.data += frame.body
        if len(coming.data) < coming.total:
            if not frame.body:
                raise BadCommand("RUN_VALUE: expected bytes in a part that is not the last")
            return
        self._drop(key)
        self._taker.came(*key, from_bytes(coming.data, coming.shape, coming.value))

    def forget(self, run: bytes) -> None:
        """Neither sends nor takes values of that run any more."""
        for key in [key for key in self._coming if key[1] == run]:
            self._drop(key)
        for waiting in self._waiting.values():
            kept = [parcel for parcel in waiting if parcel[0].run != run]
            waiting.clear()
            waiting.extend(kept)

    def gone(self, peer: str) -> None:
        """The connection to a peer ended: what was on its way is lost, and sent again when its run says so."""
        for key in [key for key in self._coming if key[0] == peer]:
            self._drop(key)
        self._waiting.pop(peer, None)
        self._outboxes.pop(peer, None)
        if self._inbox is not None:
            self._inbox.forget(peer)
        pump = self._pumps.pop(peer, None)
        if pump is not None:
            pump.cancel()

    async def close(self) -> None:
        """Sends nothing any more."""
        pumps = list(self._pumps.values())
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        if self._inbox is not None:
            self._inbox.close()

    def _to_self(self, effect: SendValue) -> None:
        self._taker.came(self._links.me, effect.run, effect.epoch, effect.item, effect.value, effect.array)

    # --- through shared memory

    async def _folder(self, peer: str, _: None) -> RunFolderAnswer:
        """Where that peer may leave values. Raises CannotServe."""
        assert self._inbox is not None
        return RunFolderAnswer(self._inbox.folder(peer))

    async def _left(self, peer: str, said: RunLeftRequest) -> None:
        """Takes a value that a peer left. Raises BadCommand or WrongTensor for one that no peer leaves."""
        assert self._inbox is not None
        key = (peer, bytes.fromhex(said.run), said.epoch, said.item, said.value)
        value = self._taker.wanted(*key)
        if value is None:
            self._inbox.drop(peer, said.file)
            return
        check_shape(said.shape, value)
        check_total(said.total, said.shape, value)
        if self._coming_bytes + said.total > self._most_bytes:
            self._inbox.drop(peer, said.file)
            self._taker.unable(*key[:4], _no_room(said.total))
            return
        self._coming_bytes += said.total
        try:
            if said.total <= QUICK_BYTES:
                data = self._inbox.take(peer, said.file, said.total)
            else:
                data = await asyncio.to_thread(self._inbox.take, peer, said.file, said.total)
        finally:
            self._coming_bytes -= said.total
        if self._taker.wanted(*key) is not None:
            self._taker.came(*key, from_bytes(data, said.shape, value))

    async def _leave(self, peer: str, folder: Path, parcel: _Parcel) -> bool:
        """Whether the peer took the value from shared memory. Raises ConnectionLost, or TimeoutError."""
        effect, data = parcel.effect, parcel.data
        if len(data) <= QUICK_BYTES:
            file = shared_memory.leave(folder, data)
        else:
            file = await asyncio.to_thread(shared_memory.leave, folder, data)
        if file is None:
            return False
        shape = tuple(effect.array.shape)
        run = effect.run.hex()
        said = RunLeftRequest(run, effect.epoch, effect.item, effect.value, shape, len(data), file.name)
        try:
            await self._links.ask(peer, RUN_LEFT, said)
        except MeshError as error:
            log.info("%s does not take a value from shared memory: %s", peer[:8], error)
            self._outboxes[peer] = None
            return False
        finally:
            shared_memory.remove(file)
        self.left_bytes += len(data)
        return True

    async def _outbox(self, peer: str) -> Path | None:
        """Where to leave values for a peer; it is asked once a connection."""
        if self._inbox is None:
            return None
        if peer not in self._outboxes:
            folder = ""
            try:
                folder = (await self._links.ask(peer, RUN_FOLDER, None)).folder
            except MeshError as error:  # it runs elsewhere, or is older
                log.info("%s shares no memory: %s", peer[:8], error)
            self._outboxes[peer] = self._inbox.outbox(folder, peer)
        return self._outboxes[peer]

    # --- in parts

    def _begun(self, key: tuple[str, bytes, int, int, int], frame: RunValue) -> _Coming | None:
        """What begins to come, where it is wanted; it begins anew where it had come in part."""
        self._drop(key)
        value = self._taker.wanted(*key)
        if value is None:
            return None
        check_shape(frame.shape, value)
        check_total(frame.total, frame.shape, value)
        open_now = sum(other[0] == key[0] for other in self._coming)
        if open_now >= MAX_OPEN or self._coming_bytes + frame.total > self._most_bytes:
            self._taker.unable(*key[:4], _no_room(frame.total))
            return None
        coming = self._coming[key] = _Coming(value, tuple(frame.shape), frame.total, bytearray())
        self._coming_bytes += frame.total
        return coming

    def _drop(self, key: tuple[str, bytes, int, int, int]) -> None:
        coming = self._coming.pop(key, None)
        if coming is not None:
            self._coming_bytes -= coming.total

    async def _pump(self, peer: str) -> None:
        waiting = self._waiting[peer]
        try:
            await self._links.dialer.dial(peer)
            await self._all(peer, waiting)
        except (PeerError, TimeoutError) as error:
            log.info("values for %s are not sent: %s", peer[:8], error)
            waiting.clear()
        finally:
            if self._pumps.get(peer) is asyncio.current_task():
                del self._pumps[peer]
                self._waiting.pop(peer, None)

    async def _all(self, peer: str, waiting: deque[tuple[SendValue, Value]]) -> None:
        """Sends what waits and comes meanwhile. Raises PeerError, or TimeoutError."""
        leaving: dict[asyncio.Task[bool], _Parcel] = {}
        try:
            while waiting or leaving:
                while waiting and len(leaving) < LEFT_AT_ONCE:
                    parcel = await _parcel(*waiting.popleft())
                    large = len(parcel.data) >= shared_memory.LEAST_BYTES
                    folder = await self._outbox(peer) if large else None
                    if folder is None:
                        await self._parts(peer, parcel)
                    else:
                        leaving[asyncio.ensure_future(self._leave(peer, folder, parcel))] = parcel
                done, _ = (
                    await asyncio.wait(leaving, return_when=asyncio.FIRST_COMPLETED) if leaving else ((), ())
                )
                for task in done:
                    parcel = leaving.pop(task)
                    if not task.result():
                        await self._parts(peer, parcel)
        finally:
            for task in leaving:
                task.cancel()
            await asyncio.gather(*leaving, return_exceptions=True)

    async def _parts(self, peer: str, parcel: _Parcel) -> None:
        effect, data = parcel.effect, parcel.data
        shape, total = effect.array.shape, len(data)
        for offset in range(0, max(total, 1), MAX_RANGE_BYTES):
            connection = self._links.dialer.connection(peer)
            if connection is None:
                return
            body = bytes(data[offset : offset + MAX_RANGE_BYTES])
            self._links.send(
                peer,
                RunValue(effect.run, effect.epoch, effect.item, effect.value, shape, offset, total, body),
            )
            self.sent_bytes += len(body)
            await connection.drained()


async def _parcel(effect: SendValue, value: Value) -> _Parcel:
    """The bytes of an array as it lies are those of the value; else they are copied, in a thread."""
    if value.dtype != "string" and effect.array.flags.c_contiguous:
        return _Parcel(effect, to_bytes(effect.array, value))
    return _Parcel(effect, await asyncio.to_thread(to_bytes, effect.array, value))


def _no_room(total: int) -> str:
    return f"this peer has no room for a value of {total} bytes now: fewer items at once, or smaller ones"
