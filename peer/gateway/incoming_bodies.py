"""Bodies of requests while they come in and are read: how many at a time, of whom, how many bytes, and for how long.

Edge. Where more come than there is room for, the oldest that is still on its way makes room: what is sent in one go is
there within moments, so many slow senders keep nobody out, and hold no more memory than this. No client has more than
half of the memory, nor more than a few bodies read at a time: others find room in the same processes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web

from peer.errors import ApiError
from peer.gateway.request_queue import too_many

MAX_BODY_BYTES: Final = 4 << 20  # a prompt that long fits no model that is served here
SMALL_BYTES: Final = 64 << 10  # a question of a person, with what was said before
RETRY_AFTER_S: Final = 2


@dataclass(frozen=True, slots=True)
class Room:
    """Bounds of what comes in. A client is a key, or an address where there are no keys."""

    most: int = 256  # on their way at a time
    most_of_client: int = 128
    most_bytes: int = 64 << 20  # of all, on their way or being read; of one client half as many
    most_read_of_client: int = 8  # at a time, of those that are there; the others wait
    within_s: float = 30.0  # from a request's head to the end of its body


@dataclass(slots=True, eq=False)
class _Body:
    client: str
    limit: asyncio.Timeout
    chunks: list[bytes] = field(default_factory=list)
    count: int = 0
    ended: ApiError | None = None  # why it may not go on


@dataclass(slots=True)
class _Places:
    free: asyncio.Semaphore
    wanted: int = 0  # by so many, who have one or wait


class IncomingBodies:
    """For one event loop."""

    def __init__(self, room: Room = Room()) -> None:
        self._room = room
        self._coming: dict[_Body, None] = {}  # the oldest first
        self._bytes = 0
        self._bytes_of: Counter[str] = Counter()  # by client
        self._reading: dict[str, _Places] = {}

    @asynccontextmanager
    async def body(self, request: web.Request, client: str) -> AsyncIterator[bytes]:
        """The whole body, which counts until the block ends. Raises ApiError; before anything was received where its
        head says enough.
        """
        if request.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise ApiError("a request's body is sent as it is here, without Content-Encoding", 415)
        if (request.content_length or 0) > MAX_BODY_BYTES:
            raise _too_large()
        body = _Body(client, asyncio.timeout(self._room.within_s))
        try:
            whole = await self._received(request, body)
            async with self.place(client):
                yield whole
        finally:
            self._count(body, -body.count)

    @asynccontextmanager
    async def place(self, client: str) -> AsyncIterator[None]:
        """One of the places at which bodies of a client, or what they ask for, are read."""
        places = self._reading.setdefault(client, _Places(asyncio.Semaphore(self._room.most_read_of_client)))
        places.wanted += 1
        try:
            async with places.free:
                yield
        finally:
            places.wanted -= 1
            if not places.wanted:
                del self._reading[client]

    def _count(self, body: _Body, more: int) -> None:
        body.count += more
        self._bytes += more
        self._bytes_of[body.client] += more
        if not self._bytes_of[body.client]:
            del self._bytes_of[body.client]

    async def _received(self, request: web.Request, body: _Body) -> bytes:
        try:
            async with body.limit:
                self._coming[body] = None
                self._make_place(body)
                async for chunk in request.content.iter_any():
                    body.chunks.append(chunk)
                    self._count(body, len(chunk))
                    if body.count > MAX_BODY_BYTES:
                        raise _too_large()
                    self._make_room(body)
                    if body.ended is not None:
                        raise body.ended
        except TimeoutError:
            late = ApiError(f"the body did not come within {self._room.within_s:g} s", 408)
            raise body.ended or late from None
        finally:
            self._coming.pop(body, None)
        whole = b"".join(body.chunks)
        body.chunks.clear()
        return whole

    def _make_place(self, last: _Body) -> None:
        of_client = [each for each in self._coming if each.client == last.client]
        if len(of_client) > self._room.most_of_client:
            self._end(of_client[0], _too_many())
        if len(self._coming) > self._room.most:
            self._end(self._oldest_of_greatest(lambda _: 1), _full())

    def _make_room(self, last: _Body) -> None:
        """Ends what is on its way, maybe `last` itself, until the bytes of its client and of all fit. A small one
        always does.
        """
        most = self._room.most_bytes
        while self._bytes_of[last.client] > most // 2 and last.count > SMALL_BYTES and last.ended is None:
            self._end(next(each for each in self._coming if each.client == last.client), _too_many())
        while self._bytes > most and last.count > SMALL_BYTES and last.ended is None:
            self._end(self._oldest_of_greatest(lambda each: each.count), _full())

    def _oldest_of_greatest(self, weight: Callable[[_Body], int]) -> _Body:
        """The oldest of the client that has most on its way."""
        weights: dict[str, int] = {}
        for each in self._coming:
            weights[each.client] = weights.get(each.client, 0) + weight(each)
        greatest = max(weights, key=lambda client: weights[client])
        return next(each for each in self._coming if each.client == greatest)

    def _end(self, body: _Body, why: ApiError) -> None:
        del self._coming[body]
        self._count(body, -body.count)
        body.chunks.clear()
        body.ended = why
        body.limit.reschedule(asyncio.get_running_loop().time())


def _too_large() -> ApiError:
    return ApiError(f"a request has up to {MAX_BODY_BYTES} bytes here", 413, code="request_too_large")


def _too_many() -> ApiError:
    return too_many("too many requests of one client are on their way: send fewer at a time", RETRY_AFTER_S)


def _full() -> ApiError:
    return ApiError(
        "more requests come in than there is room for: try again",
        503,
        "server_error",
        code="gateway_full",
        retry_after_s=RETRY_AFTER_S,
    )
