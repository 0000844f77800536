"""Connections of HTTP that ask nothing at the moment: how many at a time, of whom, and for how long.

Edge. A connection that says nothing, or says its head a byte at a time, costs a descriptor and memory and is no request
yet, so no bound of requests sees it. Where there is no room the oldest such connection of the address that has most of
them makes room: one that asks is past its head within moments, so idle ones keep nobody out. A connection whose request
is being answered, or that became a WebSocket, is bounded by what answers it.
"""

from __future__ import annotations

import asyncio
import errno
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

FIRST_S: Final = 15.0  # from the connection to the end of its first head
IDLE_S: Final = 75.0  # from an answer to the end of the next head
HANDSHAKE_S: Final = 10.0  # of TLS, before there is a connection
SHORTAGE_RETRY_AFTER_S: Final = 5
_SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN})

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def is_shortage(problem: BaseException) -> bool:
    """Whether this machine lacks memory or descriptors for the moment, so that the same can be tried again."""
    return isinstance(problem, MemoryError) or getattr(problem, "errno", None) in _SHORTAGES


@dataclass(frozen=True, slots=True)
class ConnectionRoom:
    """Bounds of connections that ask nothing. Behind a proxy all have one address."""

    most: int = 512
    most_of_address: int = 128
    first_s: float = FIRST_S
    idle_s: float = IDLE_S


@dataclass(frozen=True, slots=True, eq=False)
class _Quiet:
    address: str
    timer: asyncio.TimerHandle


class HttpConnections:
    """The connections of one server, in one event loop."""

    def __init__(self, room: ConnectionRoom = ConnectionRoom()) -> None:
        self._room = room
        self._quiet: dict[asyncio.BaseTransport, _Quiet] = {}  # the longest quiet first
        self._of_address: Counter[str] = Counter()

    @property
    def quiet(self) -> int:
        """How many ask nothing."""
        return len(self._quiet)

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Around every other: its connection asks now, and is quiet again afterwards."""
        transport = request.transport
        if transport is not None:
            self.asks(transport)
        try:
            return await handler(request)
        finally:
            if transport is not None and not transport.is_closing():
                self._became_quiet(transport, self._room.idle_s)

    def opened(self, transport: asyncio.Transport) -> None:
        """A connection is there, which may ask."""
        self._became_quiet(transport, self._room.first_s)
        if len(self._quiet) > self._room.most:
            self._end_one(max(self._of_address, key=lambda each: self._of_address[each]))
        address = _address(transport)
        if self._of_address[address] > self._room.most_of_address:
            self._end_one(address)

    def asks(self, transport: asyncio.BaseTransport) -> None:
        """It asks, or is gone."""
        quiet = self._quiet.pop(transport, None)
        if quiet is not None:
            quiet.timer.cancel()
            self._of_address[quiet.address] -= 1
            if not self._of_address[quiet.address]:
                del self._of_address[quiet.address]

    def _became_quiet(self, transport: asyncio.Transport, for_s: float) -> None:
        self.asks(transport)
        address = _address(transport)
        timer = asyncio.get_running_loop().call_later(for_s, self._end, transport)
        self._quiet[transport] = _Quiet(address, timer)
        self._of_address[address] += 1

    def _end_one(self, address: str) -> None:
        self._end(next(each for each, quiet in self._quiet.items() if quiet.address == address))

    def _end(self, transport: asyncio.BaseTransport) -> None:
        self.asks(transport)
        if isinstance(transport, asyncio.WriteTransport):
            transport.abort()


class _Watched(web.RequestHandler):
    """A connection of HTTP that says when it opens and ends."""

    __slots__ = ("_connections",)

    def __init__(self, server: web.Server, connections: HttpConnections, **settings: Any) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), **settings)
        self._connections = connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert isinstance(transport, asyncio.Transport)
        self._connections.opened(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        if self.transport is not None:
            self._connections.asks(self.transport)
        super().connection_lost(exc)


@asynccontextmanager
async def listening(
    runner: web.AppRunner,
    connections: HttpConnections,
    at: tuple[str, int],
    context: ssl.SSLContext | None = None,
    **settings: Any,
) -> AsyncIterator[tuple[str, int]]:
    """Listens at host and port for an application whose first middleware is that of `connections`, until the block
    ends; gives host and port. `settings` are those of aiohttp for each connection. Raises OSError.
    """
    server = runner.server
    if server is None:
        raise ValueError("a runner that is set up expected")
    made = await asyncio.get_running_loop().create_server(
        lambda: _Watched(server, connections, **settings),
        *at,
        ssl=context,
        ssl_handshake_timeout=HANDSHAKE_S if context is not None else None,
        backlog=128,
    )
    try:
        host, port = made.sockets[0].getsockname()[:2]
        yield host, port
    finally:
        made.close()


def _address(transport: asyncio.BaseTransport) -> str:
    name = transport.get_extra_info("peername")
    return str(name[0]) if isinstance(name, tuple) and name else ""
