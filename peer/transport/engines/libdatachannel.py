"""Decides how the two channels run over libdatachannel (extra `fast`), whose threads do the packets.

This uses aiolibdatachannel's callback layer (`_core`) instead of its asyncio classes: their receive queue drops the
oldest message when 1024 wait, which a reliable channel must not do, and costs a task switch for each message.
"""

import asyncio
import contextlib
import re
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from aioice.ice import get_host_addresses
from aiolibdatachannel import GatheringState, IceServer, RTCError, RTCState, _core

from peer.errors import ConnectionLost, SignalingFault
from peer.limits import LOW_WATER_BYTES
from peer.transport.connection import EngineEvents
from peer.transport.engines.settings import LOOPBACK, EngineSettings, check_bind
from peer.wire.generated.frames import Channel

MAX_MESSAGE_BYTES: Final = 256 * 1024  # told to the other side; pieces are far smaller
GATHER_S: Final = 5.0  # for a STUN or TURN server that does not answer
_HOST_CANDIDATE: Final = re.compile(
    r"^a=candidate:\S+ 1 UDP (\d+) (\S+) (\d+) typ host\s*$", re.MULTILINE | re.IGNORECASE
)


class LibdatachannelEngine:
    """One libdatachannel peer connection with the negotiated channels `control` and `data`."""

    name = "libdatachannel"

    def __init__(self, settings: EngineSettings) -> None:
        check_bind(settings.bind)
        self._bind = settings.bind
        self._loop = asyncio.get_running_loop()
        self._port = 0
        if not get_host_addresses(use_ipv4=True, use_ipv6=True):
            # libdatachannel offers no loopback candidate: with nothing else, fix the port so that one can be written.
            self._bind = self._bind or LOOPBACK
            self._port = _free_port()
        servers = [
            IceServer(url=url, username=server.username, credential=server.credential).to_url()
            for server in settings.ice_servers
            for url in server.urls
        ]
        self._pc = _core.PeerConnection(
            servers,
            port_range_begin=self._port,
            port_range_end=self._port,
            max_message_size=MAX_MESSAGE_BYTES,
            disable_auto_negotiation=True,
        )
        self._channels: dict[Channel, Any] = {}
        self._events: EngineEvents
        self._gathered = asyncio.Event()
        self._open: set[Channel] = set()
        self._closing = False
        self._inbox: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._inbox_due = False
        self._pc.set_on_state_change(lambda state: self._post(self._state_changed, state))
        self._pc.set_on_gathering_state_change(lambda state: self._post(self._gathering_changed, state))

    def attach(self, events: EngineEvents) -> None:
        """Takes whom to tell what happens."""
        self._events = events

    async def offer(self) -> str:
        """Begins, and gives the offer (SDP)."""
        self._make_channels()
        return await self._describe_here("offer")

    async def accept(self, offer: str) -> str:
        """Takes the offer (SDP) of the other side, and gives the answer."""
        await self._describe_there(offer, "offer")
        self._make_channels()
        return await self._describe_here("answer")

    async def set_answer(self, answer: str) -> None:
        """Takes the answer (SDP) of the other side."""
        await self._describe_there(answer, "answer")

    async def add_candidate(self, candidate: str) -> None:
        """Takes one more address; "" stands for the end of them and does nothing."""
        if candidate:
            await self._call(
                f"an ICE candidate line ({candidate[:60]!r})", self._pc.add_remote_candidate, candidate
            )

    def send(self, channel: Channel, data: bytes) -> None:
        """Puts one message into a channel; or ConnectionLost."""
        try:
            self._channels[channel].send_bytes(data)
        except (RuntimeError, RTCError) as error:
            raise ConnectionLost(f"expected channel {channel.name} to be open: {error}") from None

    def buffered_bytes(self, channel: Channel) -> int:
        """How much waits in a channel to be sent."""
        return int(self._channels[channel].buffered_amount())

    async def close(self) -> None:
        """Ends the transport."""
        self._closing = True
        await self._loop.run_in_executor(None, self._destroy)

    def _destroy(self) -> None:
        for made in self._channels.values():
            made.destroy()
        self._pc.destroy()

    async def _describe_there(self, sdp: str, kind: str) -> None:
        await self._call(f"an SDP {kind}", self._pc.set_remote_description, sdp, kind)

    async def _describe_here(self, kind: str) -> str:
        await self._call(f"to make an SDP {kind}", self._pc.set_local_description, kind)
        with contextlib.suppress(TimeoutError):  # then what was found so far has to do
            async with asyncio.timeout(GATHER_S):
                await self._gathered.wait()
        return self._with_bound_candidates(self._pc.get_local_description() or "")

    async def _call(self, expected: str, step: Callable[..., None], *args: str) -> None:
        """Off the loop: libdatachannel may look up host names in these calls."""
        try:
            await self._loop.run_in_executor(None, step, *args)
        except Exception as error:
            raise SignalingFault(f"expected {expected}, libdatachannel refuses: {error}") from error

    def _with_bound_candidates(self, sdp: str) -> str:
        """The SDP with host candidates for the `bind` addresses only.

        The package does not pass on libdatachannel's bind address. Its socket listens on every address, so naming the
        wanted ones with that socket's port is enough for the other side to come through them and no others.
        """
        if not self._bind:
            return sdp
        port = self._port
        for found in _HOST_CANDIDATE.finditer(sdp):
            port = port or int(found[3])
        kept = _HOST_CANDIDATE.sub("", sdp)
        lines = "".join(
            f"a=candidate:b{place} 1 UDP {2122317823 - place * 256} {address} {port} typ host\r\n"
            for place, address in enumerate(self._bind)
        )
        kept = "\r\n".join(line for line in kept.splitlines() if line and line != "a=end-of-candidates")
        return f"{kept}\r\n{lines}a=end-of-candidates\r\n"

    def _make_channels(self) -> None:
        for channel in Channel:
            handle = self._pc.create_data_channel(
                channel.name.lower(), negotiated=True, manual_stream=True, stream=int(channel)
            )
            made = _core.DataChannel(handle)
            self._channels[channel] = made
            made.set_buffered_amount_low_threshold(LOW_WATER_BYTES)
            made.set_on_open(lambda channel=channel: self._post(self._channel_open, channel))
            made.set_on_message(lambda data, channel=channel: self._post(self._message, channel, data))
            made.set_on_buffered_amount_low(lambda channel=channel: self._post(self._writable, channel))
            made.set_on_closed(
                lambda channel=channel: self._post(self._gone, f"channel {channel.name.lower()} was closed")
            )

    def _post(self, step: Callable[..., None], *args: Any) -> None:
        """From libdatachannel's threads to the loop's, in order, with one wake-up for all that waits."""
        self._inbox.append((step, args))
        if not self._inbox_due:
            self._inbox_due = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to tell
                self._loop.call_soon_threadsafe(self._empty_inbox)

    def _empty_inbox(self) -> None:
        self._inbox_due = False
        while self._inbox:
            step, args = self._inbox.popleft()
            step(*args)

    def _channel_open(self, channel: Channel) -> None:
        self._open.add(channel)
        if len(self._open) == len(Channel) and not self._closing:
            self._events.engine_open()

    def _message(self, channel: Channel, data: bytes | str) -> None:
        if not self._closing:
            self._events.engine_message(channel, data)

    def _writable(self, channel: Channel) -> None:
        if not self._closing:
            self._events.engine_writable(channel)

    def _gathering_changed(self, state: int) -> None:
        if state == GatheringState.COMPLETE:
            self._gathered.set()

    def _state_changed(self, state: int) -> None:
        if state == RTCState.FAILED:
            self._gone("the transport failed")
        elif state == RTCState.CLOSED:
            self._gone("the transport was closed")

    def _gone(self, reason: str) -> None:
        if not self._closing:
            self._closing = True
            self._events.engine_closed(reason)


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
