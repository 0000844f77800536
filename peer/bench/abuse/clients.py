"""Ten clients that abuse one mesh in one way, in a process of their own: `KIND MODEL API KEY SERVER LINK`.

It says "ready" once everything is made that is to be sent, begins with the first line on standard input, ends with the
end of that, and says last what it was answered: a JSON object of counts. It stands behind all others of this machine,
since who abuses a mesh from afar takes none of its processors.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, assert_never
from urllib.parse import urlsplit

import aiohttp

from peer.bench.abuse.kinds import ENDLESS_BYTES, KINDS, Abuse, Messages, Nothing, Posts, Requests, Way
from peer.errors import PeerError
from peer.member.joining import join
from peer.member.peer_options import PeerOptions
from peer.wire.generated.frames import Request
from peer.wire.generated.requests import PROPOSE
from planner.model.store import Store

CLIENTS: Final = 10
SLOW_S: Final = 1.0  # between two bytes of a slow body
PAUSE_S: Final = 0.02  # between two requests of one client, whatever it was told
CHUNK: Final = bytes(64 << 10)
ANSWER_S: Final = 60.0
FRAME_S: Final = 0.1  # between two requests of one member
LEAST_NICE: Final = 19

Count = Callable[[str], None]


def main() -> None:
    """The program."""
    kind, model, api, key, server, link = sys.argv[1:]
    stand_behind()
    with suppress(KeyboardInterrupt):
        asyncio.run(_run(KINDS[kind](model), Api(api, key), server, link))


def stand_behind() -> None:
    """Leaves the processors to all others."""
    os.nice(LEAST_NICE)
    if os.getsid(0) == os.getpid():  # Linux with automatic groups weighs sessions, not processes
        with suppress(OSError):
            Path("/proc/self/autogroup").write_text(str(LEAST_NICE))


@dataclass(frozen=True, slots=True)
class Api:
    """A gateway, and the key that all ten have."""

    base: str
    key: str


async def _run(abuse: Abuse, api: Api, server: str, link: str) -> None:
    counts: Counter[str] = Counter()
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)

    def count(what: str) -> None:
        counts[what] += 1

    async with AsyncExitStack() as stack:
        start = Start(asyncio.Event(), asyncio.Semaphore(0))
        clients = await _clients(stack, abuse, api, server, link, start, count)
        running = [asyncio.ensure_future(client) for client in clients]
        try:
            await _all_ready(start, running)
            _say("ready")
            if await lines.readline():
                start.begin.set()
                await lines.read()  # to its end
        finally:
            for each in running:
                each.cancel()
            await asyncio.gather(*running, return_exceptions=True)
    _say(json.dumps(counts))


async def _all_ready(start: Start, running: Sequence[asyncio.Future[None]]) -> None:
    """Raises why a client ended before it was."""

    async def ready() -> None:
        for _ in running:
            await start.ready.acquire()

    waiting = asyncio.ensure_future(ready())
    try:
        await asyncio.wait([waiting, *running], return_when=asyncio.FIRST_COMPLETED)
        for each in running:
            if each.done():
                each.result()
    finally:
        waiting.cancel()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


@dataclass(frozen=True, slots=True)
class Start:
    """Of all clients at once: each says that it is ready, and then waits for `begin`."""

    begin: asyncio.Event
    ready: asyncio.Semaphore

    async def wait(self) -> None:
        """Waits until all may begin."""
        self.ready.release()
        await self.begin.wait()


async def _clients(
    stack: AsyncExitStack, abuse: Abuse, api: Api, server: str, link: str, start: Start, count: Count
) -> list[Coroutine[Any, Any, None]]:
    match abuse:
        case Posts():
            at = urlsplit(server if abuse.path == "/plan" else api.base)
            assert at.hostname is not None
            assert at.port is not None
            numbers = iter(range(10**9))
            asks = _Asks((at.hostname, at.port), api.key, abuse, numbers.__next__)
            return [_posts(asks, start, count) for _ in range(CLIENTS * abuse.at_once)]
        case Messages():
            http = await stack.enter_async_context(aiohttp.ClientSession())
            return [_sockets(http, f"{server}/ws", abuse, first, start, count) for first in range(CLIENTS)]
        case Requests():
            store = Store(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shoal-abuse-"))))
            return [_frames(link, store, abuse, first, start, count) for first in range(CLIENTS)]
        case Nothing():
            return [_computes(start, count) for _ in range(CLIENTS)]
        case _:
            assert_never(abuse)


async def _computes(start: Start, count: Count) -> None:
    await start.wait()
    while True:
        sum(range(100_000))
        count("computed")
        await asyncio.sleep(0)


# --- HTTP


@dataclass(frozen=True, slots=True)
class _Asks:
    address: tuple[str, int]
    key: str
    posts: Posts
    number: Callable[[], int]  # of the next request


async def _posts(asks: _Asks, start: Start, count: Count) -> None:
    await start.wait()
    while True:
        try:
            async with asyncio.timeout(ANSWER_S):
                count(await _posted(asks, asks.posts.body(asks.number())))
        except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
            count(type(error).__name__)
        await asyncio.sleep(PAUSE_S)


async def _posted(asks: _Asks, body: bytes) -> str:
    """The status of the answer, or how it went without one."""
    address, posts = asks.address, asks.posts
    length = ENDLESS_BYTES if posts.way is Way.ENDLESS else len(body)
    head = (
        f"POST {posts.path} HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {asks.key}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(head.encode())
        match posts.way:
            case Way.WHOLE:
                sending = asyncio.ensure_future(_all(writer, body))
            case Way.LEFT:
                await _all(writer, body)
                return "left"
            case Way.SLOW:
                sending = asyncio.ensure_future(_slowly(writer, body))
            case Way.ENDLESS:
                sending = asyncio.ensure_future(_endlessly(writer))
            case _:
                assert_never(posts.way)
        try:
            words = (await reader.readline()).split()
            return words[1].decode() if len(words) > 1 else "closed"
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
    finally:
        writer.transport.abort()


async def _all(writer: asyncio.StreamWriter, body: bytes) -> None:
    writer.write(body)
    await writer.drain()


async def _slowly(writer: asyncio.StreamWriter, body: bytes) -> None:
    for place in range(len(body)):
        await _all(writer, body[place : place + 1])
        await asyncio.sleep(SLOW_S)


async def _endlessly(writer: asyncio.StreamWriter) -> None:
    for _ in range(ENDLESS_BYTES // len(CHUNK)):
        await _all(writer, CHUNK)


# --- the signaling server


async def _sockets(
    http: aiohttp.ClientSession, url: str, abuse: Messages, first: int, start: Start, count: Count
) -> None:
    await start.wait()
    place = first
    while True:
        place += 1
        try:
            async with asyncio.timeout(ANSWER_S), http.ws_connect(url, max_msg_size=0) as socket:
                await socket.send_str(abuse.texts[place % len(abuse.texts)])
                async for _ in socket:
                    pass
            count(f"closed {socket.close_code}")
        except (OSError, aiohttp.ClientError, TimeoutError) as error:
            count(type(error).__name__)
        await asyncio.sleep(PAUSE_S)


# --- members


async def _frames(link: str, store: Store, abuse: Requests, first: int, start: Start, count: Count) -> None:
    me = PeerOptions(f"abuser {first}", 0, 1, "cpu", "auto", ("127.0.0.1",))
    async with join(link, me, store) as member:
        await start.wait()
        for number in itertools.count(first):
            try:
                leader = member.view.leader or ""
                await member.links.dialer.dial(leader)
                body = abuse.bodies[number % len(abuse.bodies)]
                member.links.dialer.send(leader, Request(2**40 + number, PROPOSE.method, body))
                count("sent")
            except (PeerError, TimeoutError) as error:
                count(type(error).__name__)
            await asyncio.sleep(FRAME_S)


if __name__ == "__main__":
    main()
