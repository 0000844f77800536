"""A third peer hands datagrams on between two that cannot connect, and what it answers is checked."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from peer.errors import BadCommand
from peer.transport.udp_relay import MAX_PAIRS_EACH, ThirdPeer, way_of, with_candidates
from peer.wire.generated.requests import RELAY, RelayAnswer
from tests.patience import WITHIN_S

STUN = b"\x00\x01\x00\x00\x21\x12\xa4\x42" + bytes(12)
HERE = "127.0.0.1"


@pytest.fixture
def ends() -> Iterator[list[socket.socket]]:
    made = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(3)]
    for end in made:
        end.bind((HERE, 0))
        end.setblocking(False)
    yield made
    for end in made:
        end.close()


def test_candidates_stand_behind_those_of_the_description() -> None:
    own = "v=0\r\na=candidate:1 1 udp 1 192.0.2.1 9 typ host\r\n"
    assert with_candidates(f"{own}a=end-of-candidates\r\n", ["candidate:2"]) == (
        f"{own}a=candidate:2\r\na=end-of-candidates\r\n"
    )
    assert with_candidates("v=0\na=x\n", ["candidate:2"]) == "v=0\r\na=x\r\na=candidate:2\r\n"


def test_a_way_is_checked_before_it_is_used() -> None:
    way = way_of(RelayAnswer(("192.0.2.1", "2001:db8::1"), 7, 8))
    assert way.theirs[1] == "candidate:third1 1 udp 65279 2001:db8::1 8 typ host"
    assert way.mine[0] == "candidate:third0 1 udp 65535 192.0.2.1 7 typ host"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"hosts": [], "mine": 7, "theirs": 8},
        {"hosts": ["192.0.2.1 9 typ host\r\na=x"], "mine": 7, "theirs": 8},
        {"hosts": ["192.0.2.1"] * 5, "mine": 7, "theirs": 8},
        {"hosts": ["192.0.2.1"], "mine": 0, "theirs": 8},
        {"hosts": ["192.0.2.1"], "mine": 7, "theirs": 65536},
        {"hosts": ["192.0.2.1"], "mine": 7, "theirs": "8"},
    ],
)
def test_a_way_that_is_none(body: dict[str, Any]) -> None:
    with pytest.raises((BadCommand, ValueError)):
        way_of(RELAY.read_answer(body))


async def test_datagrams_are_handed_on_both_ways_and_not_those_of_strangers(
    ends: list[socket.socket],
) -> None:
    third = ThirdPeer((HERE,))
    try:
        found = await third.open("ann")
        assert found.hosts == (HERE,)
        ann, bob, eve = ends
        loop = asyncio.get_running_loop()

        async def pass_on(src: socket.socket, port: int, data: bytes) -> None:
            await loop.sock_sendto(src, data, (HERE, port))

        async with asyncio.timeout(WITHIN_S):
            await pass_on(ann, found.mine, STUN + b"ann")  # may be lost: nobody spoke at the other port yet
            heard = b""
            while heard != STUN + b"bob":
                await pass_on(bob, found.theirs, STUN + b"bob")
                with suppress(TimeoutError):
                    heard = await asyncio.wait_for(loop.sock_recv(ann, 2000), 0.2)
            await pass_on(ann, found.mine, b"\x16 from ann")
            heard = b""
            while heard != b"\x16 from ann":
                heard = await loop.sock_recv(bob, 2000)
            await pass_on(eve, found.mine, b"\x16 from eve")
            await pass_on(bob, found.theirs, b"\x17 from bob")
            while heard != b"\x17 from bob":
                heard = await loop.sock_recv(ann, 2000)
                assert b"eve" not in heard
            await pass_on(ann, found.mine, b"\x17 again")
            assert await loop.sock_recv(bob, 2000) == b"\x17 again"
    finally:
        third.close()


async def test_one_asker_has_few_ways() -> None:
    third = ThirdPeer((HERE,))
    try:
        for _ in range(MAX_PAIRS_EACH):
            await third.open("ann")
        with pytest.raises(BadCommand, match="as many others as it can"):
            await third.open("ann")
        await third.open("bob")
    finally:
        third.close()


async def test_one_asker_has_few_ways_also_when_it_asks_at_once() -> None:
    third = ThirdPeer((HERE,))
    try:
        made = await asyncio.gather(*(third.open("ann") for _ in range(12)), return_exceptions=True)
        assert sum(isinstance(each, RelayAnswer) for each in made) == MAX_PAIRS_EACH
        assert sum(isinstance(each, BadCommand) for each in made) == 12 - MAX_PAIRS_EACH
    finally:
        third.close()
    with pytest.raises(BadCommand):
        await third.open("bob")
