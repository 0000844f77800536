"""One connection per pair of peers, made when first needed: who dials, what waits meanwhile, what replaces what.

Edge. When two peers dial each other at the same moment, the offer of the peer with the lower id stands. Frames sent
while a connection comes about wait in order, within a bound.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from peer.errors import BackpressureExceeded, ConnectFailed, ConnectionLost, PeerError
from peer.state.version_negotiation import told
from peer.transport.connection import Connection, ConnectionState, Engine, Times
from peer.transport.udp_relay import Way, with_candidates
from peer.wire.generated.frames import Frame, Hello
from signaling.errors import SignalingError
from signaling.presence import SignalKind

HIGH_WATER_BYTES: Final = 1024 * 1024  # more than this waiting towards a peer counts as congestion
MAX_SPOKEN: Final = 4096  # peers whose version of the protocol is remembered
MAX_FAR: Final = 1024  # peers that are remembered as unreachable
MAX_WAITING_FRAMES: Final = 4096  # towards one peer while its connection comes about

log = logging.getLogger(__name__)


class DialerEvents(Protocol):
    """What the dialer tells its owner, on the loop's thread."""

    def frame(self, peer: str, frame: Frame) -> None:
        """A frame came from `peer`."""

    def connected(self, peer: str) -> None:
        """There is an open connection to `peer`."""

    def disconnected(self, peer: str, reason: str, polite: bool) -> None:
        """There is none to `peer` any more; `polite`: a goodbye was said."""

    def congestion(self, peer: str, full: bool) -> None:
        """The way to `peer` became full, or free again."""


@dataclass(slots=True)
class _Line:
    """All that concerns one other peer."""

    open: Connection | None = None
    attempt: Connection | None = None
    attempt_id: bytes = b""
    outgoing: bool = False
    waiting: deque[Frame] = field(default_factory=deque)
    opened: list[asyncio.Future[Connection]] = field(default_factory=list)
    full: bool = False


class Dialer:
    """`signal(kind, peer, connection id, text)` sends through the signaling server; `new_id()` draws 16 bytes."""

    def __init__(
        self,
        hello: Hello,
        engine: Callable[[], Engine],
        signal: Callable[[SignalKind, str, bytes, str], Awaitable[None]],
        events: DialerEvents,
        new_id: Callable[[], bytes],
        times: Times | None = None,
        way: Callable[[str], Awaitable[Way | None]] | None = None,
    ) -> None:
        """`way(peer)` finds a way to a peer through a third one; None: there is none."""
        self.me = hello.peer
        self._hello = hello
        self._own, _ = told(hello)
        self._spoken: dict[str, int] = {}  # by peer that was connected, the oldest first
        self._engine = engine
        self._signal = signal
        self._events = events
        self._new_id = new_id
        self._times = times or Times()
        self._way = way
        self._far: set[str] = set()  # peers that could not be reached directly
        self._ways: dict[bytes, Way] = {}  # by connection id, while an answer is awaited
        self._lines: dict[str, _Line] = {}
        self._by_id: dict[bytes, Connection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False

    # --- use

    def speaks(self, peer: str) -> int:
        """The version of the protocol that `peer` and this peer speak: of the last connection; else the lowest one."""
        if peer == self.me:
            return self._own.highest
        return self._spoken.get(peer, self._own.lowest)

    def connection(self, peer: str) -> Connection | None:
        """The open connection to `peer`, if there is one."""
        line = self._lines.get(peer)
        return line.open if line is not None else None

    def relayed(self, peer: str) -> bool | None:
        """Whether the connection to `peer` goes through a relay or a third peer; None: unknown, or there is none."""
        connection = self.connection(peer)
        return connection.path.relayed() if connection is not None else None

    def own_description(self, peer: str) -> str:
        """The SDP of this side of the connection to `peer`; "" where there is none."""
        connection = self.connection(peer)
        return connection.path.mine if connection is not None else ""

    def connected_peers(self) -> tuple[str, ...]:
        """Peers with an open connection, sorted."""
        return tuple(sorted(peer for peer, line in self._lines.items() if line.open is not None))

    def send(self, peer: str, frame: Frame) -> None:
        """Sends now, or dials and sends when the connection is there. Raises ConnectionLost when that cannot be."""
        line = self._line(peer)
        if line.open is not None:
            self._send(peer, line, line.open, frame)
            return
        if self._closing or len(line.waiting) >= MAX_WAITING_FRAMES:
            raise ConnectionLost(f"there is no connection to peer {peer}")
        line.waiting.append(frame)
        self._ensure_attempt(peer, line)

    async def dial(self, peer: str) -> Connection:
        """The open connection to `peer`. Raises ConnectFailed or ConnectionLost when there will be none."""
        line = self._line(peer)
        if line.open is not None:
            return line.open
        if self._closing:
            raise ConnectionLost("this peer is leaving")
        future: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
        line.opened.append(future)
        self._ensure_attempt(peer, line)
        return await future

    def prepare(self, peer: str) -> None:
        """Begins to connect to `peer`, which may be needed soon."""
        line = self._line(peer)
        if line.open is None and not self._closing:
            self._ensure_attempt(peer, line)

    def described(self, peer: str, connection_id: bytes, kind: SignalKind, sdp: str) -> None:
        """Takes a verified offer or answer of another member."""
        if self._closing:
            return
        if kind is SignalKind.OFFER:
            self._offered(peer, connection_id, sdp)
        elif (connection := self._by_id.get(connection_id)) is not None:
            way = self._ways.pop(connection_id, None)
            if way is not None:
                sdp = with_candidates(sdp, way.mine)
            self._start(self._guard(peer, connection, connection.set_answer(sdp)))

    def candidate(self, peer: str, connection_id: bytes, text: str) -> None:
        """Takes a verified ICE candidate of another member."""
        if (connection := self._by_id.get(connection_id)) is not None and not self._closing:
            self._start(self._guard(peer, connection, connection.add_candidate(text)))

    async def hang_up(self, peer: str, reason: str) -> None:
        """Says goodbye to one peer."""
        line = self._lines.get(peer)
        connections = [c for c in (line.open, line.attempt) if c is not None] if line is not None else []
        await asyncio.gather(*(connection.close(reason) for connection in connections))

    async def close(self, reason: str) -> None:
        """Says goodbye to everyone; no connection, socket or task of this dialer is left afterwards."""
        self._closing = True
        await asyncio.gather(*(self.hang_up(peer, reason) for peer in list(self._lines)))
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- making connections

    def _line(self, peer: str) -> _Line:
        return self._lines.setdefault(peer, _Line())

    def _ensure_attempt(self, peer: str, line: _Line) -> None:
        if line.attempt is None:
            connection = self._attempt(peer, line, self._new_id(), outgoing=True)
            self._start(self._guard(peer, connection, self._call(peer, line.attempt_id, connection)))

    def _attempt(self, peer: str, line: _Line, connection_id: bytes, *, outgoing: bool) -> Connection:
        connection = Connection(
            self._engine(),
            self._hello,
            lambda _, frame: self._events.frame(peer, frame),
            lambda connection, state: self._state(peer, connection, state),
            expected_peer=peer,
            times=self._times,
        )
        line.attempt, line.attempt_id, line.outgoing = connection, connection_id, outgoing
        self._by_id[connection_id] = connection
        return connection

    async def _call(
        self, peer: str, connection_id: bytes, connection: Connection, way: Way | None = None
    ) -> None:
        offer = await connection.offer()
        if way is None and peer in self._far and self._way is not None:
            way = await self._way(peer)
        if way is not None:
            log.info("tries to reach %s through a third peer", peer[:8])
            self._ways[connection_id] = way
            offer = with_candidates(offer, way.theirs)
        await self._signal(SignalKind.OFFER, peer, connection_id, offer)

    async def _answer(self, peer: str, connection_id: bytes, connection: Connection, offer: str) -> None:
        answer = await connection.accept(offer)
        await self._signal(SignalKind.ANSWER, peer, connection_id, answer)

    def _offered(self, peer: str, connection_id: bytes, offer: str) -> None:
        line = self._line(peer)
        if line.attempt is not None and line.outgoing:
            if self.me < peer:
                return  # both dialled: the other side takes this side's offer
            mine, line.attempt = line.attempt, None
            self._start(mine.close("the other peer's offer stands"))
        elif line.attempt is not None:
            stale, line.attempt = line.attempt, None
            self._start(stale.close("replaced by a newer offer"))
        connection = self._attempt(peer, line, connection_id, outgoing=False)
        self._start(self._guard(peer, connection, self._answer(peer, connection_id, connection, offer)))

    async def _guard(self, peer: str, connection: Connection, step: Awaitable[None]) -> None:
        """Runs one step of setting up; its failure ends that attempt only."""
        try:
            await step
        except (PeerError, SignalingError) as error:
            log.info("no connection to %s: %s", peer[:8], error)
            line = self._line(peer)
            if line.attempt is connection:
                self._failed(peer, line, str(error))  # before its end, which would give a poorer reason
            await connection.close("setting up failed")

    def _start(self, step: Awaitable[None]) -> None:
        task = asyncio.ensure_future(step)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a connection task failed: %s: %s", type(error).__name__, error)

    # --- their life

    def _state(self, peer: str, connection: Connection, state: ConnectionState) -> None:
        line = self._line(peer)
        match state:
            case ConnectionState.OPEN:
                self._opened(peer, line, connection)
            case ConnectionState.CLOSING | ConnectionState.CLOSED | ConnectionState.FAILED:
                self._ended(peer, line, connection, state)
            case ConnectionState.NEW | ConnectionState.CONNECTING:
                return

    def _opened(self, peer: str, line: _Line, connection: Connection) -> None:
        if line.attempt is connection:
            line.attempt = None
        replaced, line.open = line.open, connection
        if replaced is not None:
            self._start(replaced.close("replaced by a newer connection"))
        for future in line.opened:
            if not future.done():
                future.set_result(connection)
        line.opened.clear()
        if replaced is not None:  # the other side lost it first: what was on its way there is lost
            self._events.disconnected(peer, "replaced by a newer connection", False)
        self._spoken[peer] = connection.version
        while len(self._spoken) > MAX_SPOKEN:
            del self._spoken[next(iter(self._spoken))]
        self._events.connected(peer)
        while line.waiting and line.open is connection:
            self._send(peer, line, connection, line.waiting.popleft())

    def _ended(self, peer: str, line: _Line, connection: Connection, state: ConnectionState) -> None:
        for connection_id in [key for key, value in self._by_id.items() if value is connection]:
            del self._by_id[connection_id]
            self._ways.pop(connection_id, None)
        reason = connection.reason or (str(connection.error) if connection.error else "closed")
        if line.open is connection:
            line.open, line.full = None, False
            self._events.disconnected(peer, reason, state is not ConnectionState.FAILED)
        elif line.attempt is connection:
            if line.outgoing and line.open is None and peer not in self._far and not self._closing:
                line.attempt = None
                self._far.add(peer)
                self._start(self._by_third(peer, line, reason))
                return
            self._failed(peer, line, reason)
        self._forget(peer, line)

    async def _by_third(self, peer: str, line: _Line, reason: str) -> None:
        """Once more, through a third peer where there is one; who waits learns of the failure otherwise."""
        way = await self._way(peer) if self._way is not None else None
        if line.attempt is not None or line.open is not None:
            return
        if way is None or self._closing:
            self._far.discard(peer)
            self._failed(peer, line, reason)
            self._forget(peer, line)
        else:
            connection = self._attempt(peer, line, self._new_id(), outgoing=True)
            self._start(self._guard(peer, connection, self._call(peer, line.attempt_id, connection, way)))

    def _forget(self, peer: str, line: _Line) -> None:
        """Peers come and go: nothing is kept of one that nobody waits for."""
        busy = line.open or line.attempt or line.waiting or line.opened
        if not busy and len(self._far) > MAX_FAR:
            self._far.discard(peer)
        if not busy and self._lines.get(peer) is line:
            del self._lines[peer]

    def _failed(self, peer: str, line: _Line, reason: str) -> None:
        line.attempt = None
        if line.open is not None:
            return
        waited = bool(line.waiting)
        line.waiting.clear()
        for future in line.opened:
            if not future.done():
                future.set_exception(ConnectFailed(f"no connection to peer {peer}: {reason}"))
        line.opened.clear()
        if waited:
            self._events.disconnected(peer, reason, False)

    def _send(self, peer: str, line: _Line, connection: Connection, frame: Frame) -> None:
        try:
            connection.send(frame)
        except BackpressureExceeded as error:
            log.warning("hanging up on %s: %s", peer[:8], error)
            self._start(connection.close("too much waits for this peer"))
            return
        except ConnectionLost:
            return  # its end is being told through `disconnected`
        if not line.full and connection.queued_bytes > HIGH_WATER_BYTES:
            line.full = True
            self._events.congestion(peer, True)
            self._start(self._relieve(peer, line, connection))

    async def _relieve(self, peer: str, line: _Line, connection: Connection) -> None:
        try:
            await connection.drained()
        except ConnectionLost:
            return
        if line.open is connection:
            line.full = False
            self._events.congestion(peer, False)
