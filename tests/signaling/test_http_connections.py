"""Connections that ask nothing: they end in time, are so many at most, and keep nobody out."""

from __future__ import annotations

import asyncio
import socket

import aiohttp
import pytest

from signaling.http_connections import ConnectionRoom
from signaling.server import RunningServer, ServerOptions, serve
from tests.patience import WITHIN_S

SOON = ConnectionRoom(most=8, most_of_address=4, first_s=0.2, idle_s=0.2)
HEAD = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"

Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def opened(server: RunningServer, said: bytes = b"", address: str = "127.0.0.1") -> Line:
    line = await asyncio.open_connection("127.0.0.1", server.port, local_addr=(address, 0))
    line[1].write(said)
    await line[1].drain()
    return line


async def ended(line: Line) -> bytes:
    """What came until the other side closed."""
    async with asyncio.timeout(WITHIN_S):
        try:
            return await line[0].read()
        except ConnectionResetError:
            return b""
        finally:
            line[1].close()


async def health(server: RunningServer) -> int:
    async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{server.port}/healthz") as answer:
        return answer.status


@pytest.mark.parametrize("said", [b"", b"G", HEAD, b"GET / HTTP/1.1\r\n" + b"X: 1\r\n" * 50])
async def test_a_head_that_does_not_end_ends_its_connection(said: bytes) -> None:
    async with serve(ServerOptions(connections=SOON)) as server:
        assert await ended(await opened(server, said)) == b""
        assert await health(server) == 200


async def test_a_head_that_comes_a_byte_at_a_time_wins_no_time() -> None:
    async with serve(ServerOptions(connections=SOON)) as server:
        reader, writer = await opened(server, HEAD + b"X: ")

        async def slowly() -> None:
            while True:
                writer.write(b"x")
                await asyncio.sleep(0.01)

        sending = asyncio.ensure_future(slowly())
        try:
            assert await ended((reader, writer)) == b""
        finally:
            sending.cancel()


async def test_a_connection_that_asked_is_ended_when_it_asks_no_more() -> None:
    async with serve(ServerOptions(connections=SOON)) as server:
        said = await ended(await opened(server, HEAD + b"\r\n"))
        assert said.startswith(b"HTTP/1.1 200")


async def test_the_oldest_of_who_has_most_make_room() -> None:
    slow = ConnectionRoom(most=4, most_of_address=3, first_s=WITHIN_S, idle_s=WITHIN_S)
    async with serve(ServerOptions(connections=slow)) as server:
        other = await opened(server, HEAD, "127.0.0.2")
        lines = []
        for _ in range(3):
            lines.append(await opened(server, HEAD))
        lines.append(await opened(server, HEAD))  # too many of one address
        assert await ended(lines.pop(0)) == b""
        lines.append(await opened(server, HEAD, "127.0.0.3"))  # too many of all
        assert await ended(lines.pop(0)) == b""
        for line in (other, *lines):  # those go on
            line[1].write(b"Connection: close\r\n\r\n")
            assert (await ended(line)).startswith(b"HTTP/1.1 200")


async def test_five_hundred_that_say_nothing_keep_nobody_out() -> None:
    async with serve(ServerOptions()) as server:
        idle = []
        for _ in range(500):
            made = socket.create_connection(("127.0.0.1", server.port))
            made.send(b"GET /healthz HTTP/1.1\r\n")
            idle.append(made)
            await asyncio.sleep(0)
        try:
            assert await health(server) == 200
        finally:
            for each in idle:
                each.close()


async def test_a_websocket_stays_though_it_says_nothing_for_longer(kit: object) -> None:
    async with (
        serve(ServerOptions(connections=SOON)) as server,
        aiohttp.ClientSession() as http,
        http.ws_connect(f"http://127.0.0.1:{server.port}/ws") as ws,
    ):
        await ws.receive()  # its greeting
        with pytest.raises(TimeoutError):
            await ws.receive(timeout=1.0)
        assert not ws.closed
