"""Bodies that come slowly, in numbers, or too large: what they are told, and that they keep nobody else out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

import pytest
from aiohttp import web

from peer.errors import ApiError
from peer.gateway.incoming_bodies import MAX_BODY_BYTES, SMALL_BYTES, IncomingBodies, Room
from tests.patience import WITHIN_S

MIB = 1 << 20


class Site:
    """A server that reads bodies; with "hold" as first byte it goes on reading one until `gate` is open."""

    def __init__(self, room: Room) -> None:
        self.incoming = IncomingBodies(room)
        self.gate = asyncio.Event()
        self.held = asyncio.Semaphore(0)
        self.port = 0

    async def handle(self, request: web.Request) -> web.Response:
        try:
            async with self.incoming.body(request, request.headers.get("X-Client", "")) as raw:
                if raw.startswith(b"hold"):
                    self.held.release()
                    await self.gate.wait()
                return web.Response(text=str(len(raw)))
        except ApiError as error:
            after = {} if error.retry_after_s is None else {"Retry-After": str(error.retry_after_s)}
            return web.Response(status=error.status, text=str(error), headers=after)

    @asynccontextmanager
    async def sent(
        self, body: bytes = b"", length: int | None = None, client: str = "a", more: str = ""
    ) -> AsyncIterator[asyncio.StreamReader]:
        """The answer to a request of which `body` was sent; it may announce more."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        with closing(writer):
            said = more or f"Content-Length: {len(body) if length is None else length}\r\n"
            writer.write(f"POST / HTTP/1.1\r\nHost: here\r\nX-Client: {client}\r\n{said}\r\n".encode() + body)
            yield reader

    async def asked(self, *args: object, **named: object) -> int:
        """The status of that answer."""
        async with self.sent(*args, **named) as reader:  # type: ignore[arg-type]
            return (await answer(reader))[0]

    async def coming(self, count: int, size: int = 0) -> None:
        """Waits until so many bodies, and of them so many bytes, are on their way."""
        async with asyncio.timeout(WITHIN_S):
            while len(self.incoming._coming) != count or self.incoming._bytes < size:  # noqa: ASYNC110
                await asyncio.sleep(0.005)


async def answer(reader: asyncio.StreamReader) -> tuple[int, str]:
    """Status and head of an answer."""
    async with asyncio.timeout(WITHIN_S):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
    return int(head.split()[1]), head


@asynccontextmanager
async def site(room: Room) -> AsyncIterator[Site]:
    made = Site(room)
    app = web.Application()
    app.router.add_post("/", made.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0, lingering_time=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        made.port = runner.addresses[0][1]
        yield made
        made.gate.set()
        await made.coming(0)
        async with asyncio.timeout(WITHIN_S):
            while made.incoming._bytes:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({"body": b"x" * MAX_BODY_BYTES}, 200),
        ({"length": MAX_BODY_BYTES + 1}, 413),  # before any of it came
        ({"body": b"5\r\nhello\r\n0\r\n\r\n", "more": "Transfer-Encoding: chunked\r\n"}, 200),
        (
            {
                "body": b"%x\r\n" % (5 * MIB) + b"x" * (4 * MIB + 99),
                "more": "Transfer-Encoding: chunked\r\n",
            },
            413,
        ),
        ({"more": "Content-Encoding: gzip\r\nContent-Length: 9\r\n"}, 415),
    ],
)
async def test_what_is_too_large_is_refused_before_it_is_received(
    asked: dict[str, object], status: int
) -> None:
    async with site(Room()) as here:
        assert await here.asked(**asked) == status


async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    async with site(Room(within_s=0.05)) as here:
        assert await here.asked(b"x", 100) == 408


@pytest.mark.parametrize(
    ("room", "clients", "status"),
    [
        (Room(most_of_client=2), "aaa", 429),
        (Room(most=2), "aab", 503),
        (Room(most_bytes=MIB), "abc", 503),
    ],
)
async def test_the_oldest_makes_room_for_the_next(room: Room, clients: str, status: int) -> None:
    slow = MIB // 2 - 100
    async with site(room) as here, here.sent(b"x" * slow, MIB, clients[0]) as first:
        await here.coming(1, slow)
        async with here.sent(b"x" * slow, MIB, clients[1]) as second:
            await here.coming(2, 2 * slow)
            assert await here.asked(b"y" * (2 * SMALL_BYTES), client=clients[2]) == 200
            said, head = await answer(first)
            assert (said, "Retry-After" in head) == (status, True)
            assert not second.at_eof()
            await here.coming(1)


async def test_bodies_that_are_being_read_count_and_small_ones_always_fit() -> None:
    half = b"hold" + b"x" * (MIB // 2 - 99)
    async with (
        site(Room(most_bytes=MIB)) as here,
        here.sent(half, client="a") as held,
        here.sent(half, client="b"),
    ):
        for _ in range(2):
            await here.held.acquire()
        assert await here.asked(b"x" * (2 * SMALL_BYTES), client="c") == 503
        assert await here.asked(b"x" * SMALL_BYTES, client="c") == 200
        here.gate.set()
        assert (await answer(held))[0] == 200
        assert await here.asked(b"x" * (2 * SMALL_BYTES), client="c") == 200


async def test_one_client_has_half_of_the_memory_and_others_find_room() -> None:
    async with site(Room(most_bytes=MIB)) as here, here.sent(b"hold" + b"x" * (MIB // 2 - 99)):
        await here.held.acquire()
        assert await here.asked(b"x" * (2 * SMALL_BYTES)) == 429
        assert await here.asked(b"x" * SMALL_BYTES) == 200
        assert await here.asked(b"x" * (2 * SMALL_BYTES), client="b") == 200
        here.gate.set()


async def test_few_bodies_of_one_client_are_read_at_a_time_and_those_of_others_meanwhile() -> None:
    async with (
        site(Room(most_read_of_client=1)) as here,
        here.sent(b"hold") as first,
        here.sent(b"hold") as second,
    ):
        await here.held.acquire()
        assert await here.asked(b"x", client="b") == 200
        assert here.held.locked(), "the other waits"
        here.gate.set()
        assert [(await answer(each))[0] for each in (first, second)] == [200, 200]
        assert not here.incoming._reading
