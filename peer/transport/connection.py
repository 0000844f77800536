"""Decides the life of one connection to another peer: hello, frames, heartbeat, faults and goodbye.

The transport below is an Engine (peer/transport/engines). All of it runs on one event loop's thread.
"""

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from math import floor
from typing import Final, Protocol, TypeVar, assert_never
from zlib import crc32

from peer.errors import (
    ConnectFailed,
    ConnectionLost,
    FrameError,
    PeerError,
    SignalingFault,
    TransportError,
    WrongField,
    WrongPiece,
)
from peer.limits import CLOSE_S, LINGER_S, LOW_WATER_BYTES, MAX_TEXT_BYTES
from peer.state.version_negotiation import common, told
from peer.transport.connection_path import Path
from peer.transport.flow_control import Receiver, Sender
from peer.transport.heartbeat import Heartbeat, HeartbeatTimes, Verdict
from peer.wire.frame_codec import channel_of, decode, encode, sessions_of
from peer.wire.generated.frames import Bye, ByeAck, Channel, Credit, Frame, Hello, Ping, Pong

_T = TypeVar("_T")

_FINGERPRINT: Final = re.compile(r"^a=fingerprint:(\S+) ([0-9A-Fa-f:]+)\s*$", re.MULTILINE)


class ConnectionState(Enum):
    """Where a connection is in its life; TRANSITIONS says what may follow what."""

    NEW = "new"
    CONNECTING = "connecting"
    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"
    FAILED = "failed"


class Event(Enum):
    """What moves a connection from state to state."""

    START = "an offer is made or taken"
    HELLO = "both channels are open and the other side's HELLO fits"
    CLOSE = "this side closes"
    BYE = "the other side closes"
    DONE = "the goodbye is over"
    FAULT = "anything went wrong"


_S, _E = ConnectionState, Event
TRANSITIONS: Final[dict[tuple[ConnectionState, Event], ConnectionState]] = {
    (_S.NEW, _E.START): _S.CONNECTING,
    (_S.NEW, _E.CLOSE): _S.CLOSING,
    (_S.NEW, _E.FAULT): _S.FAILED,
    (_S.CONNECTING, _E.HELLO): _S.OPEN,
    (_S.CONNECTING, _E.CLOSE): _S.CLOSING,
    (_S.CONNECTING, _E.FAULT): _S.FAILED,
    (_S.OPEN, _E.CLOSE): _S.CLOSING,
    (_S.OPEN, _E.BYE): _S.CLOSING,
    (_S.OPEN, _E.FAULT): _S.FAILED,
    (_S.CLOSING, _E.BYE): _S.CLOSING,
    (_S.CLOSING, _E.DONE): _S.CLOSED,
    (_S.CLOSING, _E.FAULT): _S.CLOSED,
}
ENDED: Final = frozenset({_S.CLOSED, _S.FAILED})
_LEAVING: Final = ENDED | {_S.CLOSING}


class EngineEvents(Protocol):
    """What an engine tells its connection, always on the loop's thread."""

    def engine_open(self) -> None:
        """Both channels are open."""

    def engine_message(self, channel: Channel, data: bytes | str) -> None:
        """A message came; text is a fault."""

    def engine_writable(self, channel: Channel) -> None:
        """What waits on this channel fell under LOW_WATER_BYTES."""

    def engine_closed(self, reason: str) -> None:
        """The transport is gone, or never came about."""


class Engine(Protocol):
    """A WebRTC peer connection with the two channels of docs/protocol.md. Used once."""

    name: str

    def attach(self, events: EngineEvents) -> None:
        """Takes whom to tell what happens."""

    async def offer(self) -> str:
        """Begins, and gives the offer (SDP)."""

    async def accept(self, offer: str) -> str:
        """Takes the offer (SDP) of the other side, and gives the answer."""

    async def set_answer(self, answer: str) -> None:
        """Takes the answer (SDP) of the other side."""

    async def add_candidate(self, candidate: str) -> None:
        """Takes one more address of the other side, as an ICE candidate line; or SignalingFault."""

    def send(self, channel: Channel, data: bytes) -> None:
        """Puts one message into a channel; or ConnectionLost."""

    def buffered_bytes(self, channel: Channel) -> int:
        """How much waits in a channel to be sent."""

    async def close(self) -> None:
        """Ends the transport."""


@dataclass(frozen=True, slots=True)
class Times:
    """Time limits of a connection."""

    heartbeat: HeartbeatTimes = field(default_factory=HeartbeatTimes)
    connect_s: float = 20.0  # from the first call to HELLO: a person still waits that long
    close_s: float = CLOSE_S  # for what is queued to arrive before the transport goes


class Connection:
    """One connection to another peer.

    `on_frame(connection, frame)` gets every frame that is not the connection's own; a PeerError it raises ends the
    connection and is told to the other side. `on_state(connection, state)` follows every transition; `error` then says
    why a connection FAILED, `reason` why the other side said goodbye. Neither is called after CLOSED or FAILED.
    """

    def __init__(
        self,
        engine: Engine,
        hello: Hello,
        on_frame: Callable[["Connection", Frame], None],
        on_state: Callable[["Connection", ConnectionState], None],
        *,
        expected_peer: str | None = None,
        times: Times = Times(),
    ) -> None:
        self._engine = engine
        self._hello = hello
        self._on_frame = on_frame
        self._on_state = on_state
        self._times = times
        self._loop = asyncio.get_running_loop()
        self._senders = {channel: Sender(channel) for channel in Channel}
        self._receivers = {channel: Receiver(channel) for channel in Channel}
        self._heartbeat = Heartbeat(times.heartbeat, self._loop.time())
        self._timer: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._early: list[Frame] = []  # data frames that overtook the other side's HELLO
        self._channels_open = False
        self._bye: Bye | None = None
        self._bye_due = False  # this side leaves, and has frames to send before it says so
        self._bye_answered = False
        self._bye_acked = False
        self._engine_gone = False
        self.state = ConnectionState.NEW
        self.peer = expected_peer or ""
        self.remote: Hello | None = None
        self.version = 0  # of the protocol, that both sides speak; 0: until HELLO came
        self.error: PeerError | None = None
        self.reason = ""
        self.suspect = False
        self.path = Path(engine)
        engine.attach(self)

    # Setting up

    async def offer(self) -> str:
        """Starts as the offering side; the SDP to send, candidates included."""
        self._start()
        return self.path.own(await self._signal(self._engine.offer()))

    async def accept(self, offer: str) -> str:
        """Starts as the answering side; the SDP to send back, candidates included."""
        self._start()
        self._check_sdp(offer)
        return self.path.own(await self._signal(self._engine.accept(self.path.other(offer))))

    async def set_answer(self, answer: str) -> None:
        """Takes the other side's answer to offer()."""
        self._check_sdp(answer)
        await self._signal(self._engine.set_answer(self.path.other(answer)))

    async def add_candidate(self, candidate: str) -> None:
        """Takes a later ICE candidate of the other side (`candidate:...`, without `a=`); "" ends them."""
        await self._signal(self._engine.add_candidate(self.path.other(candidate)))

    async def opened(self) -> None:
        """Returns once the connection is OPEN. Raises its error, or ConnectionLost, when it ended instead."""
        while self.state in (ConnectionState.NEW, ConnectionState.CONNECTING):
            await self._change()
        if self.state is not ConnectionState.OPEN:
            raise self.error or ConnectionLost(f"expected an open connection to {self.peer}, it is closed")

    # In use

    @property
    def rtt_s(self) -> float | None:
        """Smoothed round trip of the heartbeat; None until the first answer."""
        return self._heartbeat.rtt_s

    @property
    def timeout_s(self) -> float | None:
        """How long an answer of the other peer may take before it is late; None until the first one."""
        return self._heartbeat.timeout_s

    @property
    def queued_bytes(self) -> int:
        """Bytes of frames that wait here, not counting what the engine has."""
        return sum(sender.queued_bytes for sender in self._senders.values())

    def send(self, frame: Frame) -> None:
        """Sends, or queues, a frame. Raises ConnectionLost when not OPEN, BackpressureExceeded when too much waits."""
        if self.state is not ConnectionState.OPEN:
            raise ConnectionLost(
                f"expected an open connection to {self.peer}, it is {self.state.value}"
            ) from self.error
        self._send(frame)

    async def drained(self) -> None:
        """Returns once little waits here. Raises ConnectionLost when the connection is not OPEN."""
        while self.state is ConnectionState.OPEN and self.queued_bytes > LOW_WATER_BYTES:
            await self._change()
        if self.state is not ConnectionState.OPEN:
            raise ConnectionLost(f"expected an open connection to {self.peer}, it is {self.state.value}")

    def hold(self) -> None:
        """Stops granting data credit: this side's consumer is behind. Frames under way still come."""
        self._receivers[Channel.DATA].hold()

    def release(self) -> None:
        """Grants data credit again."""
        self._receivers[Channel.DATA].release()
        self._grant()

    # Ending

    async def close(self, reason: str) -> None:
        """Says goodbye once everything queued has gone, waits until it has arrived (Times.close_s), then closes."""
        self._close(reason)
        await self.wait_closed()

    async def wait_closed(self) -> None:
        """Returns once the connection has ended and all of its sockets and tasks are gone."""
        while self._ending is None:
            await self._change()
        await asyncio.shield(self._ending)

    # EngineEvents

    def engine_open(self) -> None:
        """Both channels are open: says HELLO."""
        if self.state is ConnectionState.CONNECTING:
            self._channels_open = True
            self._send(self._hello)
            self._maybe_open()

    def engine_message(self, channel: Channel, data: bytes | str) -> None:
        """Takes what came; a fault in it ends the connection."""
        now_s = self._loop.time()
        self._heartbeat.heard(now_s)
        self.suspect = False
        try:
            if isinstance(data, str):
                raise WrongPiece(f"expected binary messages only, got text of {len(data)} characters")
            encoded = self._receivers[channel].accept(data)
            if encoded is not None:
                self._take(decode(encoded, channel), now_s)
            if channel is Channel.DATA:
                self._heartbeat.works()
                self._grant()
            if self._bye is not None:
                self._answer_bye()
        except PeerError as error:
            self._fail(error)
        except Exception as error:
            self._loop.call_exception_handler(
                {
                    "message": f"taking a frame from {self.peer} failed; its connection ends",
                    "exception": error,
                }
            )
            self._fail(PeerError(f"a fault of the receiving program ({type(error).__name__})"))

    def engine_writable(self, channel: Channel) -> None:
        """Sends more of what waits for this channel."""
        self._pump(channel)

    def engine_closed(self, reason: str) -> None:
        """The transport is gone: a failure, where nobody said goodbye before."""
        self._engine_gone = True
        match self.state:
            case ConnectionState.NEW | ConnectionState.CONNECTING:
                self._fail(ConnectFailed(f"no connection to {self._other} came about: {reason}"))
            case ConnectionState.OPEN:
                self._fail(ConnectionLost(f"the connection to {self._other} was lost: {reason}"))
            case _:
                self._wake()

    # Inside

    @property
    def _other(self) -> str:
        return self.peer or "the other peer"

    def _start(self) -> None:
        self._move(Event.START)
        self._timer = self._loop.call_later(self._times.connect_s, self._connect_late)

    def _connect_late(self) -> None:
        self._fail(ConnectFailed(f"expected {self._other} to connect within {self._times.connect_s:g} s"))

    def _check_sdp(self, sdp: str) -> None:
        """Engines differ in what they make of an SDP that is none; this is the same for all."""
        try:
            fingerprint_of(sdp)
            if "\nm=application " not in sdp:
                raise SignalingFault("expected an SDP with data channels (m=application), got one without")
        except SignalingFault as error:
            self._fail(error)
            raise

    async def _signal(self, step: Awaitable[_T]) -> _T:
        try:
            return await step
        except Exception as error:
            if self.state in _LEAVING:
                raise ConnectionLost(
                    f"expected to connect to {self._other}, but it was closed meanwhile"
                ) from error
            fault = (
                error if isinstance(error, PeerError) else ConnectFailed(f"the transport failed: {error!r}")
            )
            self._fail(fault)
            raise fault from error

    def _take(self, frame: Frame, now_s: float) -> None:
        match frame:
            case Bye():
                self._take_bye(frame)
            case ByeAck():
                self._bye_acked = True
                self._wake()
            case _ if self.state in ENDED:
                pass
            case Hello():
                self._take_hello(frame)
            case _ if self.remote is None and channel_of(frame) is Channel.CONTROL:
                raise WrongField(f"expected HELLO as the first frame, got {type(frame).__name__}")
            case _ if self.state is ConnectionState.CONNECTING:
                self._early.append(frame)
            case _:
                self._take_open(frame, now_s)

    def _take_open(self, frame: Frame, now_s: float) -> None:
        match frame:
            case Ping(nonce=nonce):
                self._send(Pong(nonce))
            case Pong(nonce=nonce):
                self._heartbeat.answered(nonce, now_s)
            case Credit(total_bytes=total_bytes):
                self._senders[Channel.DATA].grant(total_bytes)
                self._pump(Channel.DATA)
            case _:
                self._on_frame(self, frame)

    def _take_hello(self, hello: Hello) -> None:
        if self.remote is not None:
            raise WrongField("expected one HELLO, got another")
        if self.peer and hello.peer != self.peer:
            raise WrongField(f"HELLO.peer: expected {self.peer}, got {hello.peer!r}")
        spoken, self.remote = told(hello)
        own, _ = told(self._hello)
        self.version = common(own, spoken)
        self.peer = hello.peer
        self._maybe_open()

    def _maybe_open(self) -> None:
        if self.remote is None or not self._channels_open or self.state is not ConnectionState.CONNECTING:
            return
        self._cancel_timer()
        self._heartbeat = Heartbeat(self._times.heartbeat, self._loop.time())
        self._beat()
        self._move(Event.HELLO)
        early, self._early = self._early, []
        for frame in early:
            self._take_open(frame, self._loop.time())
        self._grant()

    def _next_beat(self) -> float:
        """The beats of all connections of a peer come together: one waking up instead of many."""
        interval_s = self._times.heartbeat.interval_s
        phase_s = crc32(self._hello.peer.encode()) / 2**32 * interval_s  # peers of one machine beat apart
        passed = (self._loop.time() - phase_s) / interval_s
        return (floor(passed + 0.01) + 1) * interval_s + phase_s

    def _beat(self) -> None:
        times = self._times.heartbeat
        self._timer = self._loop.call_at(self._next_beat(), self._beat)
        verdict, nonce = self._heartbeat.beat(self._loop.time())
        match verdict:
            case Verdict.LOST:
                self._fail(
                    ConnectionLost(f"expected a sign of life from {self._other} within {times.lost_s:g} s")
                )
                return
            case Verdict.SUSPECT:
                self.suspect = True
            case Verdict.ALIVE:
                pass
            case _:
                assert_never(verdict)
        if nonce is not None:
            self._send(Ping(nonce))

    def _take_bye(self, bye: Bye) -> None:
        match self.state:
            case ConnectionState.OPEN:
                self.reason = bye.reason
                self._bye = bye
                self._move(Event.BYE)
                self._ending = self._loop.create_task(self._part(None))
            case ConnectionState.CLOSING:
                self._bye = bye
                self._move(Event.BYE)
                self._wake()
            case _ if self.state not in ENDED:
                self._fail(ConnectFailed(f"{self._other} refused the connection: {bye.reason}"))

    def _answer_bye(self) -> None:
        """BYE_ACK, once all that the other side sent has come, and after this side's own BYE if it wants to leave."""
        if self._bye is None or self._bye_answered or self._bye_due:
            return
        if self._receivers[Channel.DATA].received_bytes >= self._bye.data_bytes:
            self._bye_answered = True
            self._send(ByeAck())
            self._wake()

    def _close(self, reason: str) -> None:
        match self.state:
            case ConnectionState.OPEN:
                self._bye_due = True
                self._move(Event.CLOSE)
                self._ending = self._loop.create_task(self._part(reason))
            case ConnectionState.NEW | ConnectionState.CONNECTING:
                self._move(Event.CLOSE)
                self._ending = self._loop.create_task(self._leave())
            case _:
                pass

    def _fail(self, error: PeerError) -> None:
        """Ends the connection for cause. What the other side did wrong, it is told."""
        if self.state in ENDED:
            return
        told = isinstance(error, FrameError) or not isinstance(error, TransportError)
        if told:
            self._send(
                Bye(_cut_text(f"{type(error).__name__}: {error}"), self._senders[Channel.DATA].sent_bytes)
            )
        if self.state is ConnectionState.CLOSING:
            self._engine_gone = True
            self._wake()
            return
        self.error = error
        self._move(Event.FAULT)
        self._ending = self._loop.create_task(self._drop(told))

    async def _part(self, reason: str | None) -> None:
        """CLOSING to CLOSED. `reason` is this side's, or None when the other side began."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._times.close_s):
                if reason is not None:
                    await self._until(lambda: self.queued_bytes == 0)
                    self._send(Bye(_cut_text(reason), self._senders[Channel.DATA].sent_bytes))
                    self._bye_due = False
                    self._answer_bye()
                    await self._until(lambda: self._bye_acked)
                await self._until(lambda: self._bye is None or self._bye_answered)
        if reason is None:
            await self._linger(lambda: False)
        await self._leave()

    async def _drop(self, told: bool) -> None:
        if told:
            await self._linger(lambda: self._bye_acked)
        await self._engine.close()

    async def _leave(self) -> None:
        await self._engine.close()
        self._move(Event.DONE)

    async def _linger(self, done: Callable[[], bool]) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                await self._until(done)

    async def _until(self, done: Callable[[], bool]) -> None:
        while not (done() or self._engine_gone):
            await self._change()

    async def _change(self) -> None:
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        await waiter

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _move(self, event: Event) -> None:
        self.state = TRANSITIONS[self.state, event]
        if self.state not in (ConnectionState.CONNECTING, ConnectionState.OPEN):
            self._cancel_timer()
        self._wake()
        self._on_state(self, self.state)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _send(self, frame: Frame) -> None:
        encoded = encode(frame)
        channel = channel_of(frame)
        if channel is Channel.DATA:
            self._heartbeat.works()
        self._senders[channel].push(encoded, _orders_of(frame))
        self._pump(channel)

    def _pump(self, channel: Channel) -> None:
        sender, engine = self._senders[channel], self._engine
        if self._engine_gone or not self._channels_open:
            return
        try:
            while (piece := sender.next(engine.buffered_bytes(channel))) is not None:
                engine.send(channel, piece)
        except TransportError as error:
            self._engine_gone = True
            self._fail(error)
        if self._waiters:
            self._wake()

    def _grant(self) -> None:
        if self.state not in (ConnectionState.OPEN, ConnectionState.CLOSING):
            return
        total_bytes = self._receivers[Channel.DATA].grant()
        if total_bytes is not None:
            self._send(Credit(int(Channel.DATA), total_bytes))


def fingerprint_of(sdp: str) -> str:
    """The strongest DTLS fingerprint in an SDP, as `sha-256 AB:CD:...`. Raises SignalingFault when there is none."""
    found = {match[1].lower(): match[2].upper() for match in _FINGERPRINT.finditer(sdp)}
    for algorithm in ("sha-256", "sha-384", "sha-512"):
        if algorithm in found:
            return f"{algorithm} {found[algorithm]}"
    raise SignalingFault("expected an SDP with a sha-256 fingerprint (a=fingerprint), got none")


def _orders_of(frame: Frame) -> tuple[bytes, ...]:
    """Which frames stay in order: those of a session, and those of the control channel but for beats and credit."""
    match frame:
        case Ping() | Pong() | Credit():
            return (b"beat",)
        case _:
            return sessions_of(frame)


def _cut_text(text: str) -> str:
    return text.encode()[:MAX_TEXT_BYTES].decode(errors="ignore")
