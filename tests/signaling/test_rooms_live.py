"""Real sockets on 127.0.0.1: founder, joiners, signals, revocation, restart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from peer.signaling_client import ClientSettings, ClientState, Credentials, SignalingClient, SignalingEvents
from signaling.errors import (
    InviteExpired,
    InviteRevoked,
    InviteUsedUp,
    NotConnected,
    PortInUse,
    Replaced,
    ServerUnreachable,
    SignalingError,
    UnknownInvite,
    UnknownPeer,
)
from signaling.invites import Grant, InviteLink, Role, make_invite
from signaling.keys import Identity, identity_from_seed
from signaling.presence import Presence, SignalKind
from signaling.server import ServerOptions, serve

MESH = identity_from_seed(b"m" * 32)
FAST = ClientSettings(patience_s=0.0, backoff_s=0.01, backoff_most_s=0.05)


def sdp(byte: str = "AB") -> str:
    return "v=0\r\na=fingerprint:sha-256 " + ":".join([byte] * 32) + "\r\n"


def key(letter: str) -> Identity:
    return identity_from_seed(letter.encode() * 32)


def invite(url: str, letter: str = "i", uses: int = 0, expires_unix: int = 0) -> tuple[InviteLink, Grant]:
    return make_invite(MESH, url, letter.encode() * 32, Role.PEER, expires_unix, uses)


@dataclass
class Ear:
    """Collects what a client reports, and lets a test wait for it."""

    heard: list[tuple[object, ...]] = field(default_factory=list)
    bell: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self, *what: object) -> None:
        self.heard.append(what)
        self.bell.set()

    def events(self) -> SignalingEvents:
        return SignalingEvents(
            on_member=lambda m: self.note("member", m.peer),
            on_left=lambda p, r: self.note("left", p, r),
            on_description=lambda p, c, k, s: self.note("description", p, c, k, s),
            on_candidate=lambda p, c, s: self.note("candidate", p, c, s),
            on_rejected=lambda e: self.note("rejected", type(e)),
            on_state=lambda s, e: self.note("state", s, type(e)),
        )

    async def until(self, found: Callable[[tuple[object, ...]], bool]) -> tuple[object, ...]:
        async with asyncio.timeout(5):
            while True:
                for what in self.heard:
                    if found(what):
                        return what
                self.bell.clear()
                await self.bell.wait()

    async def hears(self, *what: object) -> None:
        await self.until(lambda heard: heard[: len(what)] == what)


async def test_two_peers_meet_and_signal() -> None:
    async with serve(ServerOptions()) as server:
        link, grant = invite(server.url)
        one, two = Ear(), Ear()
        founder = SignalingClient(server.url, Credentials.founder(MESH, key("f"), "ann"), one.events(), FAST)
        async with founder:
            await founder.register(grant)
            joiner = SignalingClient(
                server.url, Credentials.from_link(link, key("j"), "bob"), two.events(), FAST
            )
            async with joiner:
                await two.hears("member", founder.peer)
                await one.hears("member", joiner.peer)
                member = founder.members()[joiner.peer]
                assert isinstance(member, Presence)
                assert (member.name, member.role) == ("bob", Role.PEER)
                await founder.send_offer(joiner.peer, b"c" * 16, sdp())
                await two.hears("description", founder.peer, b"c" * 16, SignalKind.OFFER, sdp())
                await joiner.send_answer(founder.peer, b"c" * 16, sdp("CD"))
                await one.hears("description", joiner.peer, b"c" * 16, SignalKind.ANSWER, sdp("CD"))
                await joiner.send_candidate(
                    founder.peer, b"c" * 16, "candidate:1 1 udp 1 127.0.0.1 9 typ host"
                )
                await one.hears("candidate", joiner.peer, b"c" * 16)
                with pytest.raises(UnknownPeer):
                    await founder.send_offer(key("x").id, b"d" * 16, sdp())
            await one.hears("left", joiner.peer, "left")
            with pytest.raises(UnknownPeer):
                await founder.send_offer(joiner.peer, b"e" * 16, sdp())


async def test_refusals_are_named() -> None:
    async with serve(ServerOptions()) as server:
        old = invite(server.url, "o", expires_unix=1_000_000)
        once = invite(server.url, "1", uses=1)
        unknown = invite(server.url, "u")
        async with SignalingClient(
            server.url, Credentials.founder(MESH, key("f"), "ann"), settings=FAST
        ) as founder:
            await founder.register(old[1], once[1])

            async def join(link: InviteLink, letter: str) -> SignalingClient:
                return SignalingClient(
                    server.url, Credentials.from_link(link, key(letter), "bob"), settings=FAST
                )

            for link, wanted in ((old[0], InviteExpired), (unknown[0], UnknownInvite)):
                client = await join(link, "j")
                with pytest.raises(wanted):
                    await client.__aenter__()
            async with await join(once[0], "j"):
                client = await join(once[0], "k")
                with pytest.raises(InviteUsedUp):
                    await client.__aenter__()
            async with await join(once[0], "j"):  # the same key comes again
                pass


async def test_revocation_ends_presence_and_joining() -> None:
    async with serve(ServerOptions()) as server:
        link, grant = invite(server.url)
        one, two = Ear(), Ear()
        founder = SignalingClient(server.url, Credentials.founder(MESH, key("f"), "ann"), one.events(), FAST)
        joiner = SignalingClient(server.url, Credentials.from_link(link, key("j"), "bob"), two.events(), FAST)
        async with founder:
            await founder.register(grant)
            async with joiner:
                await one.hears("member", joiner.peer)
                await founder.revoke(grant.key)
                await two.hears("state", ClientState.REFUSED, InviteRevoked)
                await one.hears("left", joiner.peer, "InviteRevoked")
            again = SignalingClient(server.url, Credentials.from_link(link, key("k"), "eve"), settings=FAST)
            with pytest.raises(InviteRevoked):
                await again.__aenter__()


async def test_same_key_twice_replaces_the_first() -> None:
    async with serve(ServerOptions()) as server:
        first, second = Ear(), Ear()
        credentials = Credentials.founder(MESH, key("f"), "ann")
        async with (
            SignalingClient(server.url, credentials, first.events(), FAST),
            SignalingClient(server.url, credentials, second.events(), FAST) as again,
        ):
            await first.hears("state", ClientState.REFUSED, Replaced)
            assert again.state is ClientState.JOINED


async def test_restart_of_the_server() -> None:
    async with serve(ServerOptions()) as server:
        link, grant = invite(server.url, uses=1)
        one, two = Ear(), Ear()
        founder = SignalingClient(server.url, Credentials.founder(MESH, key("f"), "ann"), one.events(), FAST)
        joiner = SignalingClient(server.url, Credentials.from_link(link, key("j"), "bob"), two.events(), FAST)
        stop = asyncio.Event()

        async def first() -> None:
            async with serve(ServerOptions(port=0)) as running:
                ports.append(running.port)
                up.set()
                await stop.wait()

        ports: list[int] = []
        up = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            task = group.create_task(first())
            await up.wait()
            url = f"http://127.0.0.1:{ports[0]}"
            founder.server = joiner.server = url
            async with founder:
                await founder.register(grant)
                async with joiner:
                    await one.hears("member", joiner.peer)
                    stop.set()
                    await task
                    await one.hears("state", ClientState.LOST)
                    await two.hears("state", ClientState.LOST)
                    assert joiner.peer in founder.members()
                    with pytest.raises(NotConnected):
                        await founder.send_offer(joiner.peer, b"c" * 16, sdp())
                    one.heard.clear()
                    two.heard.clear()
                    async with serve(ServerOptions(port=ports[0])):
                        await one.hears("state", ClientState.JOINED)
                        await two.hears("state", ClientState.JOINED)
                        await one.hears("member", joiner.peer)
                        await founder.send_offer(joiner.peer, b"c" * 16, sdp())
                        await two.hears("description", founder.peer)


async def test_port_in_use_and_nobody_there() -> None:
    async with serve(ServerOptions()) as server:
        with pytest.raises(PortInUse, match=str(server.port)):
            async with serve(ServerOptions(port=server.port)):
                pass
    client = SignalingClient(server.url, Credentials.founder(MESH, key("f"), "ann"), settings=FAST)
    with pytest.raises(ServerUnreachable) as refused:
        await client.__aenter__()
    assert isinstance(refused.value, SignalingError)
