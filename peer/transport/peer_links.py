"""This peer's links: frames to other peers, requests both ways, and what becomes of connections. Edge.

Connections are made when they are first needed (`peer.transport.dialer`). A frame to this peer itself takes the same
way, without a connection.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from peer.errors import BadCommand, ConnectionLost, FrameError, PeerError
from peer.state.generated.commands import Member
from peer.state.version_negotiation import told
from peer.transport.connection import Engine
from peer.transport.dialer import Dialer
from peer.transport.link_probe import Prober, link_words
from peer.transport.listeners import Listeners
from peer.transport.request_table import Requests
from peer.transport.rpc import CALL_TIMEOUT_S, Calls
from peer.transport.shadow_sender import Spares
from peer.transport.udp_relay import ThirdPeer, Way, asked_way
from peer.wire.generated.frames import Frame, Hello, Probe, ProbeAck, Request, Response
from peer.wire.generated.requests import MEASURE_LINK, RELAY, MeasureLinkAnswer, RelayAnswer, RelayRequest
from peer.wire.request_kind import RequestKind
from signaling.presence import SignalKind

SPARE_BYTES: Final = 64 * 1024  # waiting towards a peer: beyond that nothing is sent to shadows there

T = TypeVar("T")
A = TypeVar("A")
Gone = Callable[[str, str, bool], None]  # peer, reason, whether it said goodbye

log = logging.getLogger(__name__)


class PeerLinks:
    """`signal` sends an offer, answer or candidate through the signaling server; `new_id()` draws 16 bytes; `third`
    hands on between others that cannot connect (None: this peer does not).
    """

    def __init__(
        self,
        hello: Hello,
        engine: Callable[[], Engine],
        signal: Callable[[SignalKind, str, bytes, str], Awaitable[None]],
        new_id: Callable[[], bytes],
        third: ThirdPeer | None = None,
    ) -> None:
        self.me = hello.peer
        self.agent = told(hello)[1].agent
        self.dialer = Dialer(hello, engine, signal, self, new_id, way=self._way)
        self.prober = Prober(self.send, time.perf_counter)
        self._requests = Requests()
        self._calls = Calls(self.send, self._requests.admit)
        self._spares = Spares(self.send_or_lose, self._has_room)
        self._third = third
        self._members: Mapping[str, Member] = {}
        self._unreached: set[str] = set()
        self._take: Callable[[str, Frame], None] | None = None  # None: not started yet
        self._on_connected = Listeners[Callable[[str], None]]()
        self._on_gone = Listeners[Gone]()
        self._on_congestion = Listeners[Callable[[str, bool], None]]()
        self._measuring: set[str] = set()  # peers whose link is measured for them now
        self.on(MEASURE_LINK, self._measure_link)
        if third is not None:
            self.on(RELAY, self._relay)

    def start(self, take: Callable[[str, Frame], None]) -> None:
        """Has every frame of a connection that is not the connection's own handed to `take(peer, frame)`."""
        self._take = take

    def know(self, members: Mapping[str, Member], leader: str) -> None:
        """Takes who is a member and who leads ("": nobody) from now on: whom `send` dials, whose requests count."""
        self._members = members
        self._unreached &= members.keys()
        self._requests.know(members, leader)

    async def stop_answering(self) -> None:
        """Ends the answers under way, and drops what waits for shadows."""
        self._spares.close()
        await self._calls.close()

    async def close(self, reason: str) -> None:
        """Says goodbye to everyone; no connection, socket or task is left afterwards."""
        try:
            await self.dialer.close(reason)
        finally:
            if self._third is not None:
                self._third.close()

    # --- frames

    def send(self, peer: str, frame: Frame) -> None:
        """Hands a frame to a peer, which may be this one. Raises ConnectionLost, and a FrameError for a wrong frame.

        Only members are dialled: frames of others name askers and stages, and may name anybody.
        """
        if peer == self.me:
            asyncio.get_running_loop().call_soon(self.frame, peer, frame)
        elif peer in self._members or self.dialer.connection(peer) is not None:
            self.dialer.send(peer, frame)
        else:
            raise ConnectionLost(f"peer {peer[:8]} is no member")

    def send_or_lose(self, peer: str, frame: Frame) -> None:
        """Hands a frame to a peer; where that cannot be, the connection to it counts as lost."""
        try:
            self.send(peer, frame)
        except FrameError as error:  # this side's fault, which says nothing about the other peer
            log.error("a frame for %s was not sent: %s", peer[:8], error)
        except PeerError as error:
            log.debug("not sent to %s: %s", peer[:8], error)
            asyncio.get_running_loop().call_soon(self.disconnected, peer, str(error), False)

    def spare(self, peer: str, frame: Frame) -> None:
        """Hands a frame to a peer that shadows a stage, when there is room."""
        self._spares.put(peer, frame)

    def is_connected(self, peer: str) -> bool:
        """Returns whether there is an open connection to `peer`."""
        return self.dialer.connection(peer) is not None

    @property
    def unreached(self) -> frozenset[str]:
        """The members to whom a connection ended, and none opened since."""
        return frozenset(self._unreached)

    def _has_room(self, peer: str) -> bool:
        connection = self.dialer.connection(peer)
        return connection is None or connection.queued_bytes < SPARE_BYTES

    # --- requests

    def on(self, kind: RequestKind[T, A], handler: Callable[[str, T], Awaitable[A]]) -> Callable[[], None]:
        """Answers requests of that kind with `handler(peer, said)`, until what is returned is called."""
        return self._requests.on(kind, handler)

    async def call(self, peer: str, kind: RequestKind[T, A], said: T, timeout_s: float = CALL_TIMEOUT_S) -> A:
        """Returns the answer of a peer that is connected or a member, or of this one. Raises MeshError with its
        refusal, BadCommand for what is too long and for what is no answer to this, ConnectionLost or TimeoutError.
        """
        if peer == self.me:
            async with asyncio.timeout(timeout_s):
                return kind.read_answer(await self._requests.answer(peer, kind.method, kind.body(said)))
        return await self._calls.call(peer, kind, said, timeout_s)

    async def ask(self, peer: str, kind: RequestKind[T, A], said: T, timeout_s: float = CALL_TIMEOUT_S) -> A:
        """Returns the answer of any peer, which is dialled first. Raises ConnectFailed, and as `call`."""
        if peer != self.me:
            await self.dialer.dial(peer)
        return await self.call(peer, kind, said, timeout_s)

    def requested(self, peer: str, frame: Request) -> None:
        """Answers a request. Raises BadCommand when the other side asks too much at once."""
        self._calls.requested(peer, frame)

    def responded(self, peer: str, frame: Response) -> None:
        """Takes the answer to a request of this peer."""
        self._calls.responded(peer, frame)

    def probed(self, peer: str, frame: Probe) -> None:
        """Answers a probe."""
        self.prober.probed(peer, frame)

    def acknowledged(self, peer: str, frame: ProbeAck) -> None:
        """Takes the answer to a probe of this peer."""
        self.prober.acknowledged(peer, frame)

    async def _measure_link(self, peer: str, _: None) -> MeasureLinkAnswer:
        if peer in self._measuring:
            raise BadCommand("expected one measurement of a link at a time")
        self._measuring.add(peer)
        try:
            measured = await self.prober.measure(peer)
        finally:
            self._measuring.discard(peer)
        return link_words(measured, self.dialer.relayed(peer))

    async def _relay(self, peer: str, said: RelayRequest) -> RelayAnswer:
        assert self._third is not None
        other = said.peer
        if other == peer:
            raise BadCommand("relay: expected the id of another peer as `peer`")
        if not self.is_connected(other):
            raise BadCommand("relay: this peer has no connection to that one either")
        return await self._third.open(peer)

    async def _way(self, peer: str) -> Way | None:
        """A way to a peer that is not reached: asks those who are connected, who is there to stay first."""
        near = [other for other in self.dialer.connected_peers() if other != peer]
        stay = {other for other in near if other in self._members and self._members[other].headless}
        return await asked_way(peer, sorted(near, key=lambda other: (other not in stay, other)), self.call)

    # --- what becomes of connections

    def on_connected(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Calls `listener(peer)` for each connection that opens, until what is returned is called."""
        return self._on_connected.add(listener)

    def on_gone(self, listener: Gone) -> Callable[[], None]:
        """Calls `listener(peer, reason, polite)` for each connection that ends, until what is returned is called."""
        return self._on_gone.add(listener)

    def on_congestion(self, listener: Callable[[str, bool], None]) -> Callable[[], None]:
        """Calls `listener(peer, full)` when the way to a peer fills or clears, until what is returned is called."""
        return self._on_congestion.add(listener)

    # --- DialerEvents

    def frame(self, peer: str, frame: Frame) -> None:
        """Takes a frame of `peer`, or of this peer itself. Raises a PeerError for one that ends the connection."""
        if self._take is not None:
            self._take(peer, frame)

    def connected(self, peer: str) -> None:
        """Tells that a connection opened."""
        log.debug("connected to %s", peer[:8])
        self._unreached.discard(peer)
        for listener in self._on_connected:
            listener(peer)

    def disconnected(self, peer: str, reason: str, polite: bool) -> None:
        """Tells that a connection ended: whoever waits for an answer of that peer, and every listener."""
        log.info("connection to %s ended: %s", peer[:8], reason)
        if peer in self._members:
            self._unreached.add(peer)
        self._calls.gone(peer, reason)
        self._spares.forget(peer)
        for listener in self._on_gone:
            listener(peer, reason, polite)

    def congestion(self, peer: str, full: bool) -> None:
        """Tells that the way to a peer is full, or free again."""
        for listener in self._on_congestion:
            listener(peer, full)
