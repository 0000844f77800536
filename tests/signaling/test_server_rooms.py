"""Real sockets on 127.0.0.1: founder, joiners, signals, revocation, restart, two rooms."""

from __future__ import annotations

import asyncio
import shutil
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from peer.transport.credentials import Credentials
from peer.transport.signaling_client import (
    ClientSettings,
    ClientState,
    SignalingClient,
    SignalingEvents,
    backoff_s,
)
from signaling.errors import (
    BadDescription,
    BadName,
    ForgedPresence,
    InviteExpired,
    InviteRevoked,
    InviteUsedUp,
    NotConnected,
    PortInUse,
    Replaced,
    RoomFull,
    ServerError,
    ServerUnreachable,
    UnknownInvite,
    UnknownPeer,
    WrongMesh,
)
from signaling.ice import IceServer, TurnService
from signaling.invites import Role
from signaling.keys import identity_from_seed
from signaling.limits import Limits
from signaling.presence import SignalKind
from signaling.room import Policy
from signaling.server import ServerOptions, serve
from signaling.state import StateFolder
from tests.patience import WITHIN_S


async def test_two_peers_meet_and_signal(kit: Any) -> None:
    one, two = kit.ear(), kit.ear()
    async with serve(ServerOptions()) as server, kit.founder(server.url, one) as founder:
        link, grant = kit.invite(server.url)
        await founder.register(grant)
        async with kit.joiner(link, "j", two) as joiner:
            await two.hears("member", founder.peer)
            await one.hears("member", joiner.peer)
            member = founder.members()[joiner.peer]
            assert (member.name, member.role) == ("bob", Role.PEER)
            assert joiner.members()[founder.peer].role is Role.FOUNDER
            await founder.send_offer(joiner.peer, b"c" * 16, kit.sdp())
            await two.hears("description", founder.peer, b"c" * 16, SignalKind.OFFER, kit.sdp())
            await joiner.send_answer(founder.peer, b"c" * 16, kit.sdp("CD"))
            await one.hears("description", joiner.peer, b"c" * 16, SignalKind.ANSWER, kit.sdp("CD"))
            for line in ("candidate:1 1 udp 1 127.0.0.1 9 typ host", ""):  # the empty one ends the list
                await joiner.send_candidate(founder.peer, b"c" * 16, line)
                await one.hears("candidate", joiner.peer, b"c" * 16, line)
            with pytest.raises(UnknownPeer):
                await founder.send_offer(kit.key("x").id, b"d" * 16, kit.sdp())
            with pytest.raises(BadDescription):
                await founder.send_offer(joiner.peer, b"d" * 16, "v=0\r\n")
            with pytest.raises(ForgedPresence):
                await joiner.revoke(grant.key)
        await one.hears("left", joiner.peer, "left")
        with pytest.raises(UnknownPeer):
            await founder.send_offer(joiner.peer, b"e" * 16, kit.sdp())
    assert not one.said("rejected")
    assert not two.said("rejected")


async def test_refusals_are_named(kit: Any) -> None:
    async with serve(ServerOptions()) as server, kit.founder(server.url) as founder:
        expired = kit.invite(server.url, "o", expires=1_000_000)
        once = kit.invite(server.url, "1", uses=1)
        unknown = kit.invite(server.url, "u")
        await founder.register(expired[1], once[1])
        for link, wanted in ((expired[0], InviteExpired), (unknown[0], UnknownInvite)):
            with pytest.raises(wanted) as refused:
                await kit.joiner(link).__aenter__()
            assert "\n" not in str(refused.value)
        async with kit.joiner(once[0], "j"):
            with pytest.raises(InviteUsedUp):
                await kit.joiner(once[0], "k").__aenter__()
        async with kit.joiner(once[0], "j"):  # the same key may come again
            pass
        stranger = Credentials(kit.key("s"), "eve", kit.mesh.id, kit.key("x"), once[1])
        with pytest.raises(UnknownInvite):  # a grant for another invite key opens nothing
            await SignalingClient(server.url, stranger, settings=kit.fast).__aenter__()


async def test_a_second_tab_of_a_person_needs_no_place_of_a_single_use_invite(kit: Any) -> None:
    one, two = kit.ear(), kit.ear()
    async with serve(ServerOptions()) as server, kit.founder(server.url, one) as founder:
        link, once = kit.invite(server.url, uses=1)
        await founder.register(once)
        person = kit.key("j")
        async with kit.joiner(link, "j") as first, kit.joiner(link, "v", two, voucher="j") as viewer:
            await one.hears("member", viewer.peer)
            await two.hears("membership", person.public.encoded)
            assert founder.members()[viewer.peer].role is Role.GUEST
            assert founder.members()[first.peer].role is Role.PEER
            with pytest.raises(InviteUsedUp):
                await kit.joiner(link, "k").__aenter__()
            with pytest.raises(InviteUsedUp):
                await kit.joiner(link, "w", voucher="k").__aenter__()
        assert not one.said("rejected")
        assert not two.said("rejected")


async def test_revocation_ends_presence_and_joining(kit: Any) -> None:
    one, two = kit.ear(), kit.ear()
    async with serve(ServerOptions()) as server, kit.founder(server.url, one) as founder:
        link, grant = kit.invite(server.url)
        other = kit.invite(server.url, "2")
        await founder.register(grant, other[1])
        async with kit.joiner(link, "j", two) as joiner, kit.joiner(other[0], "k") as stays:
            await one.hears("member", joiner.peer)
            await founder.revoke(grant.key)
            await two.hears("state", ClientState.REFUSED, InviteRevoked)
            await one.hears("left", joiner.peer, "InviteRevoked")
            assert list(founder.members()) == [stays.peer]
        with pytest.raises(InviteRevoked):
            await kit.joiner(link, "k").__aenter__()


async def test_same_key_twice_replaces_the_first(kit: Any) -> None:
    first = kit.ear()
    async with (
        serve(ServerOptions()) as server,
        kit.founder(server.url, first) as before,
        kit.founder(server.url) as again,
    ):
        await first.hears("state", ClientState.REFUSED, Replaced)
        assert again.state is ClientState.JOINED
        with pytest.raises(NotConnected):
            _ = before.own


async def test_the_server_goes_and_comes_back_without_memory(kit: Any) -> None:
    """Peers keep what they know, come back by the same port, and bring grants, memberships and revocations."""
    one, two = kit.ear(), kit.ear()
    async with AsyncExitStack() as clients:
        async with AsyncExitStack() as first:
            server = await first.enter_async_context(serve(ServerOptions()))
            link, grant = kit.invite(server.url, uses=1)
            gone = kit.invite(server.url, "g")
            founder = await clients.enter_async_context(kit.founder(server.url, one))
            await founder.register(grant, gone[1])
            await founder.revoke(gone[1].key)
            joiner = await clients.enter_async_context(kit.joiner(link, "j", two))
            await one.hears("member", joiner.peer)
            await two.hears("membership", kit.key("j").public.encoded)
        await one.hears("state", ClientState.LOST)
        await two.hears("state", ClientState.LOST)
        assert joiner.peer in founder.members()
        with pytest.raises(NotConnected):
            await founder.send_offer(joiner.peer, b"c" * 16, kit.sdp())
        one.heard.clear()
        two.heard.clear()
        async with serve(ServerOptions(port=server.port)):
            await asyncio.gather(founder.joined(), joiner.joined())
            await one.hears("member", joiner.peer)
            await founder.send_offer(joiner.peer, b"c" * 16, kit.sdp())
            await two.hears("description", founder.peer)
            with pytest.raises(InviteUsedUp):
                await kit.joiner(link, "k").__aenter__()
            with pytest.raises(InviteRevoked):
                await kit.joiner(gone[0], "l").__aenter__()
    assert not one.said("rejected")
    assert not two.said("rejected")


async def test_several_come_in_at_once_though_the_disk_is_slow(
    kit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody hears of who came later before it is welcome itself."""
    save = StateFolder.save

    def slow(*args: Any) -> None:
        time.sleep(0.02)  # in a thread: the others join meanwhile
        save(*args)

    monkeypatch.setattr(StateFolder, "save", slow)
    options = ServerOptions(state_folder=tmp_path / "state")
    async with serve(options) as server, kit.founder(server.url) as founder, AsyncExitStack() as stack:
        link, grant = kit.invite(server.url)
        await founder.register(grant)
        joiners = [kit.joiner(link, letter) for letter in "abcde"]
        await asyncio.gather(*(stack.enter_async_context(each) for each in joiners))
        for each in joiners:
            async with asyncio.timeout(WITHIN_S):
                while len(each.members()) < len(joiners):  # noqa: ASYNC110 - others and the founder
                    await asyncio.sleep(0.01)


async def test_a_state_folder_remembers_over_a_restart(kit: Any, tmp_path: Path) -> None:
    options = ServerOptions(state_folder=tmp_path / "state")
    async with serve(options) as server, kit.founder(server.url) as founder:
        wanted_uses = {"1": 1, "r": 0, "o": 0}
        once, revoked, open_ = (kit.invite(server.url, x, uses=u) for x, u in wanted_uses.items())
        await founder.register(once[1], revoked[1], open_[1])
        await founder.revoke(revoked[1].key)
        async with kit.joiner(once[0], "j"):
            pass
    async with serve(options) as server:  # nobody who knows is there
        for invite, letter, wanted in ((once, "k", InviteUsedUp), (revoked, "k", InviteRevoked)):
            with pytest.raises(wanted):
                await kit.joiner(invite[0], letter, url=server.url).__aenter__()
        for invite, letter in ((once, "j"), (open_, "k")):
            async with kit.joiner(invite[0], letter, url=server.url):
                pass


async def test_a_membership_outlives_its_invite(kit: Any) -> None:
    """A newcomer believes a member whose invite has expired since, because the founder signed for it."""
    now = [float(kit.now)]
    settings = ClientSettings(patience_s=0.0, backoff_s=0.01, backoff_most_s=0.05, now_unix=lambda: now[0])
    one, two = kit.ear(), kit.ear()
    async with serve(ServerOptions()) as server, kit.founder(server.url, one) as founder:
        short = kit.invite(server.url, "s", expires=4_000_000_000)
        long = kit.invite(server.url, "l")
        await founder.register(short[1], long[1])
        async with kit.joiner(short[0], "j", two) as old:
            await two.hears("membership", kit.key("j").public.encoded)
            now[0] = 4_000_000_001.0
            three = kit.ear()
            newcomer = Credentials.from_link(long[0], kit.key("n"), "new")
            async with SignalingClient(server.url, newcomer, three.events(), settings) as new:
                await three.hears("member", old.peer)
                assert set(new.members()) == {old.peer, founder.peer}
                assert not three.said("rejected")


async def test_two_rooms_do_not_hear_each_other(kit: Any) -> None:
    other_mesh = identity_from_seed(b"M" * 32)
    one, two = kit.ear(), kit.ear()
    async with serve(ServerOptions()) as server, kit.founder(server.url, one) as here:
        there = SignalingClient(
            server.url, Credentials.founder(other_mesh, kit.key("t"), "tom"), two.events(), kit.fast
        )
        async with there:
            await two.hears("state", ClientState.JOINED)
            assert not there.members()
            assert not here.members()
            stolen = here.own
            there._roster._present[here.peer] = here._roster._present.get(here.peer) or _known(stolen)
            await there.send_offer(here.peer, b"c" * 16, kit.sdp())  # a client that tries it anyway
            await two.hears("rejected", UnknownPeer)
    assert [heard[0] for heard in one.heard] == ["state"]


def _known(presence: Any) -> Any:
    from signaling.keys import public_key
    from signaling.roster import _Known

    return _Known(presence, public_key(presence.key))


async def test_policy_meshes_members_and_ice(kit: Any) -> None:
    stun = IceServer(("stun:127.0.0.1:3478",))
    policy = Policy(
        Limits(members=2), frozenset({kit.mesh.id}), (stun,), TurnService(("turn:127.0.0.1",), b"secret")
    )
    async with serve(ServerOptions(policy=policy)) as server, kit.founder(server.url) as founder:
        assert founder.ice_servers[0] == stun
        assert founder.ice_servers[1].username.endswith(founder.peer)
        assert "secret" not in repr(policy)
        link, grant = kit.invite(server.url)
        await founder.register(grant)
        async with kit.joiner(link, "j"):
            with pytest.raises(RoomFull):
                await kit.joiner(link, "k").__aenter__()
        foreign = Credentials.founder(identity_from_seed(b"M" * 32), kit.key("t"), "tom")
        with pytest.raises(WrongMesh):
            await SignalingClient(server.url, foreign, settings=kit.fast).__aenter__()


async def test_port_in_use_and_nobody_there(kit: Any) -> None:
    async with serve(ServerOptions()) as server:
        with pytest.raises(PortInUse, match=str(server.port)):
            async with serve(ServerOptions(port=server.port)):
                pass
    with pytest.raises(ServerUnreachable):
        await kit.founder(server.url).__aenter__()


async def test_a_registration_that_the_disk_refuses_is_said_so(kit: Any, tmp_path: Path) -> None:
    folder = tmp_path / "state"
    async with serve(ServerOptions(state_folder=folder)) as server, kit.founder(server.url) as founder:
        shutil.rmtree(folder)
        link, grant = kit.invite(server.url)
        with pytest.raises(ServerError, match="only until it restarts"):
            await founder.register(grant)
        async with kit.joiner(link):
            pass


async def test_a_handler_that_breaks_is_not_swallowed(kit: Any) -> None:
    def broken(_: object) -> None:
        raise LookupError("in a handler")

    async with serve(ServerOptions()) as server:
        credentials = Credentials.founder(kit.mesh, kit.key("f"), "ann")
        client = SignalingClient(server.url, credentials, SignalingEvents(on_member=broken), kit.fast)

        async def meet() -> None:
            async with client, kit.founder(server.url, letter="g"):
                assert client._run is not None
                await asyncio.wait([client._run])

        with pytest.raises(LookupError, match="in a handler"):
            await meet()


@pytest.mark.parametrize("name", ["", "x" * 65, "a\nb", "\u202eevil", "\x1b[2J"])
def test_bad_names(kit: Any, name: str) -> None:
    with pytest.raises(BadName):
        Credentials.founder(kit.mesh, kit.key("f"), name)


async def test_what_the_block_raises_comes_out_as_it_is(kit: Any) -> None:
    async with serve(ServerOptions()) as server:
        with pytest.raises(LookupError):
            async with kit.founder(server.url):
                raise LookupError


@pytest.mark.parametrize(("attempt", "least", "most"), [(1, 0.125, 0.25), (3, 0.5, 1.0), (99, 7.5, 15.0)])
def test_backoff_doubles_up_to_its_limit(attempt: int, least: float, most: float) -> None:
    for chance, wanted in ((0.0, least), (1.0, most)):
        assert backoff_s(ClientSettings(draw=lambda c=chance: c), attempt) == pytest.approx(wanted)
