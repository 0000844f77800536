"""A server in the middle that swaps, replays, forges and babbles; the members must not believe it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from aiohttp import WSMsgType, web

from peer.transport.credentials import Credentials
from peer.transport.signaling_client import ClientState, SignalingClient
from signaling.errors import (
    ForgedGrant,
    ForgedPresence,
    ForgedRevocation,
    MalformedMessage,
    OutOfOrder,
    ReplayedDescription,
    ReplayedJoin,
    SwappedDescription,
    UnexpectedAnswer,
    UnknownMessage,
    UnknownPeer,
    WrongMesh,
)
from signaling.generated.messages import Admitted, Joined, Left, Relay, Revoked
from signaling.invites import Grant, Revocation, Role, make_membership
from signaling.keys import identity_from_seed
from signaling.messages import decode_client, decode_server, encode
from signaling.presence import SignalKind, make_presence
from signaling.server import ServerOptions, serve

Tamper = Callable[[str], list[str]]


class Liar:
    """Passes WebSocket frames between clients and an honest server, remembers them, and may change them."""

    def __init__(self, honest: str) -> None:
        self.honest = honest
        self.url = ""
        self.to_client: Tamper = lambda text: [text]
        self.from_clients: list[str] = []
        self.to_clients: list[str] = []
        self.sockets: list[web.WebSocketResponse] = []

    async def handle(self, request: web.Request) -> web.WebSocketResponse:
        near = web.WebSocketResponse()
        await near.prepare(request)
        self.sockets.append(near)
        async with aiohttp.ClientSession() as http, http.ws_connect(f"{self.honest}/ws") as far:

            async def up() -> None:
                async for frame in near:
                    if frame.type is WSMsgType.TEXT:
                        self.from_clients.append(frame.data)
                        await far.send_str(frame.data)
                await far.close()

            async with asyncio.TaskGroup() as group:
                task = group.create_task(up())
                async for frame in far:
                    if frame.type is WSMsgType.TEXT:
                        self.to_clients.append(frame.data)
                        for text in self.to_client(frame.data):
                            await near.send_str(text)
                await near.close()
                task.cancel()
        return near

    async def say(self, text: str, to: int = -1) -> None:
        """Put a message of its own into the socket of the `to`-th client."""
        await self.sockets[to].send_str(text)

    def last(self, kind: str) -> str:
        """The latest message of a kind that the honest server sent."""
        return next(t for t in reversed(self.to_clients) if json.loads(t)["kind"] == kind)


@asynccontextmanager
async def lying() -> AsyncIterator[Liar]:
    async with serve(ServerOptions()) as server:
        liar = Liar(server.url)
        app = web.Application()
        app.router.add_get("/ws", liar.handle)
        runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        liar.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield liar
        finally:
            await runner.cleanup()


@asynccontextmanager
async def pair(kit: Any, liar: Liar) -> AsyncIterator[tuple[SignalingClient, Any, SignalingClient, Any]]:
    """The founder, on the honest server, and a joiner whose server lies."""
    one, two = kit.ear(), kit.ear()
    async with kit.founder(liar.honest, one) as founder:
        link, grant = kit.invite(liar.url)
        await founder.register(grant)
        async with kit.joiner(link, "j", two) as joiner:
            await one.hears("member", joiner.peer)
            await two.hears("member", founder.peer)
            yield founder, one, joiner, two


def swap(old: str, new: str) -> Tamper:
    return lambda text: [text.replace(old, new)]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("AB:AB", "CD:CD"),  # the fingerprint
        ("v=0", "v=1"),  # anything else in the SDP
        ('"text":"v=0', '"text":"a=fingerprint:sha-1 00\\r\\nv=0'),
        ('"kind":"offer"', '"kind":"answer"'),
    ],
)
async def test_a_swapped_sdp(kit: Any, old: str, new: str) -> None:
    async with lying() as liar, pair(kit, liar) as (founder, _, joiner, two):
        liar.to_client = swap(old, new)
        await founder.send_offer(joiner.peer, b"c" * 16, kit.sdp())
        await two.hears("rejected", SwappedDescription)
        liar.to_client = swap("", "")
        await founder.send_offer(joiner.peer, b"d" * 16, kit.sdp())
        await two.hears("description", founder.peer, b"d" * 16)
        assert len(two.said("description")) == 1


async def test_a_swapped_candidate(kit: Any) -> None:
    async with lying() as liar, pair(kit, liar) as (founder, _, joiner, two):
        liar.to_client = swap("127.0.0.1", "127.0.0.9")
        await founder.send_candidate(joiner.peer, b"c" * 16, "candidate:1 1 udp 1 127.0.0.1 9 typ host")
        await two.hears("rejected", SwappedDescription)
        assert not two.said("candidate")


async def test_a_replayed_offer_and_an_offer_of_an_earlier_join(kit: Any) -> None:
    async with lying() as liar, pair(kit, liar) as (founder, one, joiner, two):
        await founder.send_offer(joiner.peer, b"c" * 16, kit.sdp())
        await two.hears("description")
        offer = liar.last("relay")
        await liar.say(offer)
        await two.hears("rejected", ReplayedDescription)
        two.heard.clear()
        one.heard.clear()
        await liar.sockets[-1].close()  # the joiner comes back with a fresh nonce
        await two.hears("state", ClientState.LOST)
        await joiner.joined()
        await liar.say(offer)
        await two.hears("rejected", ReplayedDescription)
        assert not two.said("description")


async def test_an_answer_that_nobody_asked_for(kit: Any) -> None:
    async with lying() as liar, pair(kit, liar) as (founder, _, joiner, two):
        await founder.send_answer(joiner.peer, b"c" * 16, kit.sdp())
        await two.hears("rejected", UnexpectedAnswer)
        assert not two.said("description")


async def test_a_join_replayed_to_the_honest_server(kit: Any) -> None:
    async with lying() as liar, pair(kit, liar) as (_, one, joiner, _):
        copy = next(t for t in liar.from_clients if json.loads(t)["kind"] == "join")
        fresh_nonce: list[str] = []
        for change in (False, True):
            async with aiohttp.ClientSession() as http, http.ws_connect(f"{liar.honest}/ws") as ws:
                challenge = json.loads(await ws.receive_str())
                fresh_nonce.append(challenge["room_nonce"])
                join = {**json.loads(copy), **({"room_nonce": challenge["room_nonce"]} if change else {})}
                await ws.send_str(json.dumps(join))
                refused = json.loads(await ws.receive_str())
                assert refused["kind"] == "refused"
                assert refused["code"] == ("ForgedPresence" if change else "ReplayedJoin")
        assert fresh_nonce[0] != fresh_nonce[1]
        assert joiner.state is ClientState.JOINED
        assert not one.said("left")


async def test_a_join_replayed_to_a_member(kit: Any) -> None:
    async with lying() as liar, pair(kit, liar) as (founder, _, _, two):
        record = encode(Joined(founder.own))
        await liar.say(encode(Left(founder.peer, "disconnected")))
        await two.hears("left", founder.peer)
        await liar.say(record)
        await two.hears("rejected", ReplayedJoin)
        assert len(two.said("member")) == 1


async def test_forged_peers(kit: Any) -> None:
    """Own keys, other people's grants, grants of its own, changed records: none becomes a member."""
    eve, fake_mesh = kit.key("e"), identity_from_seed(b"M" * 32)
    async with lying() as liar, pair(kit, liar) as (founder, _, joiner, two):
        real = joiner.own
        no_invite = make_presence(eve, eve, real.grant, "eve", (b"1" * 16, b"2" * 16))
        foreign = make_presence(
            eve, kit.key("x"), kit.invite(letter="x", mesh=fake_mesh)[1], "eve", (b"1" * 16,) * 2
        )
        made_up = Grant(real.grant.mesh_key, eve.public.encoded, Role.PEER, 0, 0, b"", eve.sign(b"I say so"))
        own_grant = make_presence(eve, eve, made_up, "eve", (b"1" * 16, b"3" * 16))
        membership = make_membership(fake_mesh, eve.public.encoded, real.grant)
        cases = [
            (no_invite, ForgedPresence),
            (foreign, WrongMesh),
            (own_grant, ForgedGrant),
            (replace(no_invite, key=founder.own.key), ForgedPresence),
            (replace(founder.own, name="the real ann"), ForgedPresence),
            (replace(founder.own, join_nonce=b"9" * 16), ForgedPresence),
            (replace(founder.own, grant=replace(founder.own.grant, role=Role.PEER)), ForgedGrant),
            (replace(no_invite, membership=membership), WrongMesh),
            (joiner.own, ForgedPresence),  # the joiner itself as somebody else
        ]
        for forged, error in cases:
            two.heard.clear()
            await liar.say(encode(Joined(forged)))
            await two.hears("rejected", error)
            assert not two.said("member")
        assert set(joiner.members()) == {founder.peer}
        assert joiner.members()[founder.peer] == founder.own
        # An offer under the name of a member, or of nobody, signed by the wrong key.
        await founder.send_offer(joiner.peer, b"c" * 16, kit.sdp())
        await two.hears("description")
        offer = decode_server(liar.last("relay"))
        assert isinstance(offer, Relay)
        for signal, error in (
            (replace(offer.signal, sender=eve.id), UnknownPeer),
            (replace(offer.signal, signature=eve.sign(b"x"), connection=b"e" * 16), SwappedDescription),
        ):
            two.heard.clear()
            await liar.say(encode(Relay(signal)))
            await two.hears("rejected", error)
            assert not two.said("description")


async def test_forged_orders_of_the_founder(kit: Any) -> None:
    eve = kit.key("e")
    async with lying() as liar, pair(kit, liar) as (founder, _, joiner, two):
        grant = joiner.own.grant
        await two.hears("membership")
        forged = Revocation(grant.mesh_key, founder.own.grant.key, eve.sign(b"x"))
        await liar.say(encode(Revoked(forged)))
        await two.hears("rejected", ForgedRevocation)
        assert set(joiner.members()) == {founder.peer}
        kept = joiner.membership
        assert kept is not None
        await liar.say(encode(Admitted(replace(kept, role=Role.GUEST))))
        await two.hears("rejected", ForgedGrant)
        assert joiner.membership == kept


async def test_garbage_and_greetings_leave_the_client_alive(kit: Any) -> None:
    async with lying() as liar, pair(kit, liar) as (founder, _, joiner, two):
        for text, error in (
            ("not json", MalformedMessage),
            ("[]", MalformedMessage),
            ('{"kind":"dance"}', UnknownMessage),
            ('{"kind":"left","peer":3,"reason":""}', MalformedMessage),
            (liar.last("challenge"), OutOfOrder),
        ):
            two.heard.clear()
            await liar.say(text)
            await two.hears("rejected", error)
        two.heard.clear()
        await liar.sockets[-1].send_bytes(b"\x00")
        await two.hears("rejected", MalformedMessage)
        await founder.send_offer(joiner.peer, b"c" * 16, kit.sdp())
        await two.hears("description", founder.peer)
        two.heard.clear()
        await liar.say(
            "x" * (1024 * 1024 + 1)
        )  # over what a client takes: it leaves this socket and comes back
        await two.hears("state", ClientState.LOST)
        await joiner.joined()


@pytest.mark.parametrize(
    "change",
    [
        lambda w: {**w, "you": {**w["you"], "name": "mallory"}},
        lambda w: {**w, "you": {**w["you"], "grant": {**w["you"]["grant"], "uses": 7}}},
        lambda w: {"kind": "left", "peer": "a" * 32, "reason": ""},
    ],
)
async def test_a_false_welcome_is_refused(kit: Any, change: Callable[[Any], Any]) -> None:
    async with lying() as liar:

        def tamper(text: str) -> list[str]:
            message = json.loads(text)
            return [json.dumps(change(message)) if message["kind"] == "welcome" else text]

        liar.to_client = tamper
        credentials = Credentials.founder(kit.mesh, kit.key("f"), "ann")
        with pytest.raises((ForgedPresence, ForgedGrant, OutOfOrder)):
            await SignalingClient(liar.url, credentials, settings=kit.fast).__aenter__()


async def test_the_secret_of_the_link_never_travels(kit: Any) -> None:
    async with lying() as liar, pair(kit, liar) as (founder, _, joiner, two):
        await founder.send_offer(joiner.peer, b"c" * 16, kit.sdp())
        await two.hears("description")
        link, _ = kit.invite(liar.url)
        secret = link.url().rpartition(".")[2][:40]
        everything = "".join(liar.from_clients + liar.to_clients)
        assert decode_client(liar.from_clients[0])
        assert secret not in everything
        assert secret not in repr(link) + repr(joiner._credentials)
        assert link.seed.hex() not in repr(link)
        assert SignalKind.OFFER.value in everything
