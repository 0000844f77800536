"""A stand-in for two peers' UDP sockets: sends datagrams through a relay and says what arrives."""

from __future__ import annotations

import asyncio
import socket
from typing import cast

from peer.transport.connection import EngineEvents
from peer.wire.generated.frames import Channel


class Talker(asyncio.DatagramProtocol):
    """A UDP socket on loopback that keeps what it hears."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[tuple[bytes, tuple[str, int]]] = asyncio.Queue()
        self.transport: asyncio.DatagramTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.heard.put_nowait((data, addr))

    @property
    def port(self) -> int:
        return int(self.transport.get_extra_info("sockname")[1])


class StandIn:
    """An engine that only describes itself."""

    name = "stand-in"

    def __init__(self, port: int) -> None:
        self._sdp = f"v=0\r\na=candidate:1 1 UDP 7 127.0.0.1 {port} typ host\r\na=end-of-candidates\r\n"

    def attach(self, events: EngineEvents) -> None: ...
    async def offer(self) -> str:
        return self._sdp

    async def accept(self, offer: str) -> str:
        return self._sdp

    async def set_answer(self, answer: str) -> None: ...
    async def add_candidate(self, candidate: str) -> None: ...
    def send(self, channel: Channel, data: bytes) -> None: ...
    def buffered_bytes(self, channel: Channel) -> int:
        return 0

    async def close(self) -> None: ...


async def talker() -> Talker:
    loop = asyncio.get_running_loop()
    _, made = await loop.create_datagram_endpoint(Talker, local_addr=("127.0.0.1", 0), family=socket.AF_INET)
    return made
