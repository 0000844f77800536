"""Decides how the two channels run over aiortc, the engine that is always there."""

from typing import cast

from aiortc import (
    InvalidStateError,
    RTCConfiguration,
    RTCDataChannel,
    RTCIceServer,
    RTCIceTransportPolicy,
    RTCPeerConnection,
    RTCSessionDescription,
)
from aiortc.sdp import candidate_from_sdp

from peer.errors import ConnectionLost, SignalingFault
from peer.limits import LOW_WATER_BYTES
from peer.state.failure_domains import End
from peer.transport.connection import EngineEvents
from peer.transport.engines.aiortc_ice import BoundConnection
from peer.transport.engines.aiortc_tuned import TunedSctp, has_local_line, tune, with_local_line
from peer.transport.engines.settings import EngineSettings, check_bind
from peer.wire.generated.frames import Channel


class AiortcEngine:
    """One RTCPeerConnection with the negotiated channels `control` and `data`."""

    name = "aiortc"

    def __init__(self, settings: EngineSettings) -> None:
        check_bind(settings.bind)
        self._bind = settings.bind
        servers = [
            RTCIceServer(urls=list(s.urls), username=s.username, credential=s.credential)
            for s in settings.ice_servers
        ]
        policy = RTCIceTransportPolicy.RELAY if settings.relay_only else RTCIceTransportPolicy.ALL
        self._pc = RTCPeerConnection(RTCConfiguration(iceServers=servers, iceTransportPolicy=policy))
        self._channels: dict[Channel, RTCDataChannel] = {}
        self._events: EngineEvents
        self._closing = False
        self._takes_local = False  # larger packets within this machine, as the other side says
        self._pc.on("connectionstatechange", self._state_changed)

    def attach(self, events: EngineEvents) -> None:
        """Takes whom to tell what happens."""
        self._events = events

    async def offer(self) -> str:
        """Begins, and gives the offer (SDP)."""
        self._make_channels()
        await self._pc.setLocalDescription(await self._pc.createOffer())
        return self._description()

    async def accept(self, offer: str) -> str:
        """Takes the offer (SDP) of the other side, and gives the answer."""
        await self._describe(offer, "offer")
        self._make_channels()
        await self._pc.setLocalDescription(await self._pc.createAnswer())
        return self._description()

    async def set_answer(self, answer: str) -> None:
        """Takes the answer (SDP) of the other side."""
        await self._describe(answer, "answer")

    async def add_candidate(self, candidate: str) -> None:
        """Takes one more address, or "" for the end of them; SignalingFault where aiortc refuses it."""
        try:
            parsed = candidate_from_sdp(candidate.removeprefix("candidate:")) if candidate else None
            if parsed is not None and self._pc.sctp is not None:
                parsed.sdpMid = self._pc.sctp.mid
            await self._pc.addIceCandidate(parsed)
        except Exception as error:
            raise SignalingFault(
                f"expected an ICE candidate line, got one that aiortc refuses: {error}"
            ) from error

    def send(self, channel: Channel, data: bytes) -> None:
        """Puts one message into a channel; or ConnectionLost."""
        try:
            self._channels[channel].send(data)
        except InvalidStateError:
            raise ConnectionLost(f"expected channel {channel.name} to be open, it is closed") from None

    def buffered_bytes(self, channel: Channel) -> int:
        """How much waits in a channel to be sent."""
        return int(self._channels[channel].bufferedAmount)

    async def close(self) -> None:
        """Ends the transport."""
        self._closing = True
        await self._pc.close()

    def selected(self) -> tuple[End, End] | None:
        """The two ends of what ICE uses."""
        pair = self._pc.sctp.transport.transport._connection._nominated.get(1) if self._pc.sctp else None
        if pair is None:
            return None
        ends = (pair.local_candidate, pair.remote_candidate)
        mine, theirs = (End(str(each.host), int(each.port), str(each.type)) for each in ends)
        return mine, theirs

    async def _describe(self, sdp: str, kind: str) -> None:
        try:
            await self._pc.setRemoteDescription(RTCSessionDescription(sdp=sdp, type=kind))
        except Exception as error:
            raise SignalingFault(f"expected an SDP {kind}, got one that aiortc refuses: {error}") from error
        self._takes_local = has_local_line(sdp)
        if isinstance(self._pc.sctp, TunedSctp):
            self._pc.sctp.takes_local = self._takes_local

    def _description(self) -> str:
        sdp = str(self._pc.localDescription.sdp)
        return with_local_line(sdp) if isinstance(self._pc.sctp, TunedSctp) else sdp

    def _make_channels(self) -> None:
        for channel in Channel:
            made = self._pc.createDataChannel(channel.name.lower(), negotiated=True, id=int(channel))
            made.bufferedAmountLowThreshold = LOW_WATER_BYTES
            made.on("open", self._channel_open)
            made.on("message", lambda data, channel=channel: self._events.engine_message(channel, data))
            made.on("bufferedamountlow", lambda channel=channel: self._events.engine_writable(channel))
            made.on("close", lambda channel=channel: self._gone(f"channel {channel.name.lower()} was closed"))
            self._channels[channel] = made
        assert self._pc.sctp is not None, "made by the first channel"
        ice = self._pc.sctp.transport.transport._connection
        ice.__class__ = BoundConnection
        ice.bind = self._bind
        if tune(self._pc.sctp, self._gone):
            cast(TunedSctp, self._pc.sctp).takes_local = self._takes_local

    def _channel_open(self) -> None:
        if all(c.readyState == "open" for c in self._channels.values()):
            self._events.engine_open()

    def _state_changed(self) -> None:
        state = self._pc.connectionState
        if state in ("failed", "closed"):
            self._gone(f"the transport {'failed' if state == 'failed' else 'was closed'}")

    def _gone(self, reason: str) -> None:
        if not self._closing:
            self._closing = True
            self._events.engine_closed(reason)
