"""Whatever a socket sends, it alone is closed, by name, and everyone else goes on."""

from __future__ import annotations

import asyncio
import errno
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from peer.transport.signaling_client import SignalingClient
from planner.model.store import Store
from signaling.generated.messages import MAX_JOIN_BYTES, Leave, Register, Relay
from signaling.limits import Limits, Rate
from signaling.messages import encode
from signaling.presence import SignalKind, make_signal
from signaling.room import Hub, Policy, Received
from signaling.server import ServerOptions, serve
from tests.patience import WITHIN_S


async def refusal(ws: aiohttp.ClientWebSocketResponse) -> str:
    """The code of the refusal that ends the socket, or the WebSocket close code."""
    code = ""
    async with asyncio.timeout(WITHIN_S):
        async for frame in ws:
            if frame.type is aiohttp.WSMsgType.TEXT and json.loads(frame.data)["kind"] == "refused":
                code = json.loads(frame.data)["code"]
    return code or str(ws.close_code)


async def alive(founder: SignalingClient, joiner: SignalingClient, ear: Any, kit: Any, mark: bytes) -> None:
    await founder.send_offer(joiner.peer, mark * 16, kit.sdp())
    await ear.hears("description", founder.peer, mark * 16)


async def test_garbage_closes_only_its_sender(kit: Any) -> None:
    rng = random.Random(7)
    two = kit.ear()
    async with (
        serve(ServerOptions(policy=Policy(Limits(joins=Rate(1000, 1000), sockets_per_address=20)))) as server,
        kit.founder(server.url) as founder,
        aiohttp.ClientSession(server.url) as http,
    ):
        link, grant = kit.invite(server.url)
        await founder.register(grant)
        async with kit.joiner(link, "j", two) as joiner:
            valid = encode(kit.join(founder.own, grant))
            cases: list[tuple[str | bytes, str]] = [
                (b"\x00\x01", "MalformedMessage"),
                (b"", "MalformedMessage"),
                ("", "MalformedMessage"),
                ("{}", "MalformedMessage"),
                ("[" * MAX_JOIN_BYTES, "MalformedMessage"),
                ("[" * (MAX_JOIN_BYTES + 1), "MessageTooLarge"),
                ('{"kind":"welcome"}', "UnknownMessage"),
                (encode(Register(1, (grant,), ())), "OutOfOrder"),
                (valid, "ReplayedJoin"),
                ("x" * 300_000, "1009"),
                (encode(Leave()), "1000"),
            ]
            for sent, code in cases:
                async with http.ws_connect("/ws") as ws:
                    if isinstance(sent, bytes):
                        await ws.send_bytes(sent)
                    else:
                        await ws.send_str(sent)
                    assert await refusal(ws) == code
            for _ in range(100):
                chars = list(valid)
                for _ in range(rng.randint(1, 5)):
                    chars[rng.randrange(len(chars))] = chr(rng.choice((rng.randrange(128), 0x1F600)))
                async with http.ws_connect("/ws") as ws:
                    await ws.send_str("".join(chars))
                    assert await refusal(ws)
            await alive(founder, joiner, two, kit, b"z")
            text = await (await http.get("/metrics")).text()
            assert 'shoal_rejected_total{reason="MalformedMessage"}' in text
            assert 'shoal_rejected_total{reason="MessageTooLarge"} 2.0' in text
            assert 'shoal_relayed_messages_total{kind="offer"} 1.0' in text
            assert "shoal_rooms 1.0" in text
            assert "shoal_members 2.0" in text


async def test_floods_and_idlers_are_closed(kit: Any) -> None:
    limits = Limits(messages=Rate(1, 20), join_within_s=0.5)
    async with (
        serve(ServerOptions(policy=Policy(limits))) as server,
        kit.founder(server.url) as founder,
        aiohttp.ClientSession(server.url) as http,
    ):
        async with http.ws_connect("/ws") as idle:
            assert await refusal(idle) == "OutOfOrder"
        text = encode(Register(1, (), ()))
        link, grant = kit.invite(server.url)
        await founder.register(grant)
        flooding = kit.ear()
        async with kit.joiner(link, "j", flooding) as joiner:
            assert joiner._link is not None
            ws = joiner._link.ws
            for _ in range(30):
                await ws.send_str(text)
            await flooding.until(lambda: any("TooFast" in str(heard) for heard in flooding.heard))
        assert founder.members() == {} or joiner.peer in founder.members()
        await founder.register(grant)


async def test_too_many_sockets(kit: Any) -> None:
    limits = Limits(sockets_per_address=2)
    async with (
        serve(ServerOptions(policy=Policy(limits))) as server,
        kit.founder(server.url) as founder,
        aiohttp.ClientSession(server.url) as http,
        http.ws_connect("/ws"),
    ):
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await http.ws_connect("/ws")
        assert refused.value.status == 503
        assert founder.members() == {}


@pytest.mark.parametrize("behind_proxy", [True, False])
async def test_behind_a_proxy_sockets_count_for_the_address_that_it_saw(behind_proxy: bool) -> None:
    limits = Limits(sockets_per_address=1)
    options = ServerOptions(policy=Policy(limits), behind_proxy=behind_proxy)

    def seen(address: str) -> dict[str, str]:
        return {"X-Forwarded-For": f"198.51.100.9, {address}"}  # what comes first anybody can write

    async with (
        serve(options) as server,
        aiohttp.ClientSession(server.url) as http,
        http.ws_connect("/ws", headers=seen("192.0.2.1")),
    ):
        if behind_proxy:
            async with http.ws_connect("/ws", headers=seen("192.0.2.2")):
                pass
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await http.ws_connect("/ws", headers=seen("192.0.2.1" if behind_proxy else "192.0.2.2"))
        assert refused.value.status == 503


@pytest.mark.parametrize("bound", [{"queued_bytes": 200_000}, {"queued_in_all": 200_000}])
async def test_a_reader_that_does_not_read_is_cut_off(kit: Any, bound: dict[str, int]) -> None:
    """The joiner's socket stops being read; the founder goes on, and hears that the joiner is gone."""
    one = kit.ear()
    limits = Limits(**bound, messages=Rate(1e6, 1e6), bytes=Rate(1e9, 1e9))
    async with (
        serve(ServerOptions(policy=Policy(limits))) as server,
        kit.founder(server.url, one) as founder,
        aiohttp.ClientSession(server.url, read_bufsize=1024) as http,
    ):
        _, grant = kit.invite(server.url)
        await founder.register(grant)
        async with http.ws_connect("/ws", max_msg_size=0) as ws:
            challenge = json.loads(await ws.receive_str())
            nonces = (_bytes(challenge["room_nonce"]), b"n" * 16)
            slow = _presence(kit, grant, nonces)
            await ws.send_str(encode(kit.join(slow)))
            await one.hears("member", slow.peer)
            assert founder._link is not None
            own = founder.own
            sdp = kit.sdp() + "a=x\r\n" * 10_000
            gone: Callable[[], bool] = lambda: bool(one.said("left"))  # noqa: E731
            for i in range(2000):
                connection = i.to_bytes(16, "big")
                signal = make_signal(kit.key("f"), own, slow, SignalKind.OFFER, connection, sdp)
                await founder._link.ws.send_str(encode(Relay(signal)))
                if gone():
                    break
            await one.until(gone)
        text = await (await http.get("/metrics")).text()
        assert 'shoal_rejected_total{reason="TooSlow"}' in text


def _bytes(text: str) -> bytes:
    from signaling.keys import from_text

    return from_text(text)


def _presence(kit: Any, grant: Any, nonces: tuple[bytes, bytes]) -> Any:
    from signaling.presence import make_presence

    return make_presence(kit.key("s"), kit.key("i"), grant, "slow", nonces)


async def test_where_memory_runs_out_members_join_again_by_themselves(
    kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may run out in the middle of a step, which leaves some of what is known half changed."""
    one = kit.ear()
    step, failing = Hub.step, [False]

    def stepped(self: Hub, event: Any, now_unix: float) -> Any:
        if isinstance(event, Received) and failing[0]:
            failing[0] = False
            self._sockets.clear()
            raise MemoryError
        return step(self, event, now_unix)

    monkeypatch.setattr(Hub, "step", stepped)
    async with serve(ServerOptions()) as server, kit.founder(server.url, one) as founder:
        link, grant = kit.invite(server.url)
        await founder.register(grant)
        async with kit.joiner(link, "j") as joiner:
            await one.hears("member", joiner.peer)
            failing[0] = True
            assert founder._link is not None
            await founder._link.ws.send_str(encode(Register(9, (), ())))
            await one.until(lambda: len(one.said("member")) >= 2)
            async with kit.joiner(link, "k") as third:
                await one.hears("member", third.peer)


@pytest.mark.parametrize("problem", [MemoryError(), OSError(errno.EMFILE, "too many files")])
async def test_a_blob_that_cannot_be_opened_now_is_not_said_to_be_absent(
    problem: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object) -> None:
        raise problem

    monkeypatch.setattr(Store, "blob_path", no_room)
    async with (
        serve(ServerOptions(), Store(tmp_path)) as server,
        aiohttp.ClientSession(server.url) as http,
        http.get(f"/blobs/{'a' * 64}") as answer,
    ):
        assert (answer.status, answer.headers["Retry-After"]) == (503, "5")
        assert "short of memory or open files" in await answer.text()
