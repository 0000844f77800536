"""Servers for ICE: how they are named, and that whoever is in a room has credentials that are still good."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from signaling.errors import BadIceServer
from signaling.generated.messages import Ice
from signaling.ice import LIFETIME_S, IceServer, TurnService, ice_services
from signaling.room import Hub, LentAnew, Opened, Policy, Received, Send
from signaling.server import ServerOptions, serve
from tests.patience import WITHIN_S

SECRET = b"0123456789abcdef"
TURN = "turn:relay.example.org:3478?transport=udp"


def test_servers_as_they_were_named() -> None:
    stuns = ("stun:stun.example.org", "stuns:[2001:db8::1]:5349")
    assert ice_services((), (), None) == ((), None)
    assert ice_services(stuns, (), None) == ((IceServer(stuns),), None)
    assert ice_services((), (TURN,), SECRET) == ((), TurnService((TURN,), SECRET, LIFETIME_S))


@pytest.mark.parametrize(
    ("stun", "turn", "secret", "said"),
    [
        (["relay.example.org"], [], None, "expected an address such as stun:"),
        (["turn:relay.example.org"], [], None, "expected an address such as stun:"),
        ([], ["stun:relay.example.org"], SECRET, "expected an address such as turn:"),
        ([], ["turn:a b"], SECRET, "expected an address such as turn:"),
        ([], ["turn:a?transport=sctp"], SECRET, "expected an address such as turn:"),
        ([], [TURN], None, "--turn-secret"),
        ([], [], SECRET, "--turn-secret"),
        ([], [TURN], SECRET[1:], "at least 16 bytes"),
    ],
)
def test_what_makes_no_server_is_refused(
    stun: list[str], turn: list[str], secret: bytes | None, said: str
) -> None:
    with pytest.raises(BadIceServer, match=said) as refused:
        ice_services(stun, turn, secret)
    assert SECRET.decode() not in str(refused.value)


def test_everyone_inside_is_lent_anew(kit: Any) -> None:
    hub = Hub(Policy(turn=TurnService((TURN,), SECRET)))
    ann = kit.founder_presence("a")
    hub.step(Opened(1, "here", ann.room_nonce), 100.0)
    hub.step(Opened(2, "here", b"w" * 16), 100.0)  # waits outside
    hub.step(Received(1, kit.join(ann, ann.grant)), 100.0)
    (sent,) = hub.step(LentAnew(), 5000.0)
    assert isinstance(sent, Send)
    assert sent.sockets == (1,)
    assert isinstance(sent.message, Ice)
    (server,) = sent.message.ice_servers
    assert server.urls == (TURN,)
    assert server.username == f"{5000 + LIFETIME_S}:{ann.peer}"


async def test_a_client_gets_new_credentials_while_it_stays(kit: Any) -> None:
    policy = Policy(turn=TurnService((TURN,), SECRET, 1))
    async with serve(ServerOptions(policy=policy)) as server, kit.founder(server.url) as founder:
        first = founder.ice_servers
        async with asyncio.timeout(WITHIN_S):
            while founder.ice_servers == first:  # noqa: ASYNC110 - the client has no event for what it keeps
                await asyncio.sleep(0.02)
        assert founder.ice_servers[0].urls == (TURN,)
