"""The hub as a function: events and a time in, effects out. Limits, rates and guards beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from signaling.errors import (
    ForgedGrant,
    HostRefused,
    InviteExpired,
    InviteUsedUp,
    MalformedMessage,
    OriginRefused,
    OutOfOrder,
    ProtocolMismatch,
    Replaced,
    ReplayedJoin,
    RoomFull,
    TooManyJoins,
    TooManyRooms,
    TooSlow,
    UnknownInvite,
)
from signaling.generated.messages import (
    SIGNALING_PROTOCOL,
    Admit,
    Admitted,
    Challenge,
    Joined,
    Leave,
    Left,
    Refused,
    Register,
    Registered,
    Relay,
    Revoked,
    Welcome,
)
from signaling.guard import BadRange, check_host, check_origin, is_loopback, parse_range
from signaling.invites import founder_grant, make_membership, make_revocation
from signaling.keys import identity_from_seed
from signaling.limits import JoinGate, Limits, Rate, SocketMeter, TokenBucket
from signaling.presence import MAX_VIEWERS, SignalKind, make_presence, make_signal
from signaling.room import Broke, Closed, Drop, Effect, Forget, Hub, Opened, Persist, Policy, Received, Send


def nonce_of(socket: int) -> bytes:
    return bytes([socket]) * 16


class Desk:
    """A hub with sockets 1, 2, 3, ... and short ways to use them."""

    def __init__(self, kit: Any, policy: Policy | None = None) -> None:
        self.kit = kit
        self.hub = Hub(policy or Policy())
        self.now = float(kit.now)

    def open(self, socket: int, address: str = "here") -> list[Effect]:
        return self.hub.step(Opened(socket, address, nonce_of(socket)), self.now)

    def join(self, socket: int, presence: Any, grant: Any = None) -> list[Effect]:
        return self.hub.step(Received(socket, self.kit.join(presence, grant)), self.now)

    def say(self, socket: int, message: Any) -> list[Effect]:
        return self.hub.step(Received(socket, message), self.now)

    def founder(self, socket: int, mesh: Any = None) -> Any:
        mesh = mesh or self.kit.mesh
        nonces = (nonce_of(socket), bytes([100 + socket]) * 16)
        return make_presence(self.kit.key("f"), mesh, founder_grant(mesh), "ann", nonces)

    def peer(self, socket: int, letter: str, grant: Any, invite: str = "i", membership: Any = None) -> Any:
        nonces = (nonce_of(socket), bytes([100 + socket]) * 16)
        return make_presence(
            self.kit.key(letter), self.kit.key(invite), grant, f"peer {letter}", nonces, membership
        )

    def with_founder(self, *grants: Any) -> Any:
        """Socket 1 holds the founder, who registered these grants."""
        self.open(1)
        record = self.founder(1)
        self.join(1, record, record.grant)
        self.say(1, Register(1, grants, ()))
        return record


def errors_of(effects: list[Effect]) -> list[type[Exception]]:
    return [type(e.error) for e in effects if isinstance(e, Drop) and e.error is not None]


def test_a_meeting_from_start_to_end(kit: Any) -> None:
    desk = Desk(kit)
    assert desk.open(1) == [Send((1,), Challenge(SIGNALING_PROTOCOL, nonce_of(1)))]
    ann = desk.founder(1)
    assert desk.join(1, ann, ann.grant) == [
        Persist(ann.mesh),
        Send((1,), Welcome(ann, (), (), ())),
        Send((), Joined(ann)),
    ]
    _, grant = kit.invite()
    assert desk.say(1, Register(9, (grant,), ())) == [Persist(ann.mesh), Send((1,), Registered(9))]
    desk.open(2)
    bob = desk.peer(2, "b", grant)
    assert desk.join(2, bob) == [
        Persist(ann.mesh),
        Send((2,), Welcome(bob, (ann,), (), ())),
        Send((1,), Joined(bob)),
    ]
    membership = make_membership(kit.mesh, bob.key, grant)
    assert desk.say(1, Admit(membership)) == [Send((1, 2), Admitted(membership))]
    offer = make_signal(kit.key("f"), ann, bob, SignalKind.OFFER, b"c" * 16, kit.sdp())
    assert desk.say(1, Relay(offer)) == [Send((2,), Relay(offer))]
    assert (desk.hub.occupied(), desk.hub.members()) == (1, 2)
    assert desk.say(2, Leave()) == [Send((1,), Left(bob.peer, "left")), Drop(2, None)]
    assert desk.hub.step(Closed(2), desk.now) == []
    assert desk.hub.step(Closed(1), desk.now) == []
    assert (desk.hub.occupied(), desk.hub.members()) == (0, 0)


def test_joins_that_are_dropped(kit: Any) -> None:
    _, grant = kit.invite()
    _, old = kit.invite(letter="o", expires=kit.now - 1)
    cases = [
        (lambda d: kit.join(d.peer(2, "b", grant), protocol=SIGNALING_PROTOCOL - 1), ProtocolMismatch),
        (lambda d: kit.join(d.peer(3, "b", grant)), ReplayedJoin),  # made for another socket
        (lambda d: kit.join(d.peer(2, "b", kit.invite(letter="u")[1], "u")), UnknownInvite),
        (lambda d: kit.join(d.peer(2, "b", old, "o"), old), InviteExpired),
        (
            lambda d: kit.join(d.peer(2, "b", kit.invite(letter="u")[1], "u"), replace(grant, uses=9)),
            UnknownInvite,
        ),
        (lambda d: kit.join(d.peer(2, "b", grant, membership=replace(grant, via=grant.key))), ForgedGrant),
        (lambda d: Leave(), None),
        (lambda d: Register(1, (), ()), OutOfOrder),
    ]
    for make, wanted in cases:
        desk = Desk(kit)
        desk.with_founder(grant)
        desk.open(2)
        effects = desk.say(2, make(desk))
        assert errors_of(effects) == ([wanted] if wanted else [])
        assert Drop in {type(e) for e in effects}
        assert not any(isinstance(e, Send) for e in effects)
        assert desk.say(2, Leave()) == []  # what comes after is not heard


def test_a_grant_that_comes_along_is_checked_and_kept(kit: Any) -> None:
    """A server without memory lets a peer in that brings its grant, once its signature holds."""
    _, grant = kit.invite()
    desk = Desk(kit)
    desk.open(2)
    assert errors_of(desk.join(2, desk.peer(2, "b", replace(grant, uses=7)), replace(grant, uses=7))) == [
        ForgedGrant
    ]
    desk.open(3)
    bob = desk.peer(3, "b", grant)
    assert errors_of(desk.join(3, bob, grant)) == []
    desk.open(4)
    assert errors_of(desk.join(4, desk.peer(4, "c", grant))) == []  # known from now on


def test_the_same_key_replaces_itself(kit: Any) -> None:
    _, grant = kit.invite(uses=1)
    desk = Desk(kit)
    desk.with_founder(grant)
    desk.open(2)
    desk.join(2, desk.peer(2, "b", grant))
    desk.open(3)
    again = desk.peer(3, "b", grant)
    effects = desk.join(3, again)
    assert isinstance(effects[0], Drop)
    assert (effects[0].socket, errors_of(effects)) == (2, [Replaced])
    assert effects[-1] == Send((1,), Joined(again))
    assert desk.hub.step(Closed(2), desk.now) == []  # the old socket's end says nothing about the new one
    assert desk.hub.members() == 2


def test_viewers_take_no_place_of_an_invite(kit: Any) -> None:
    _, once = kit.invite(uses=1)
    desk = Desk(kit)
    desk.with_founder(once)

    def joining(socket: int, letter: str, voucher: str | None) -> Any:
        desk.open(socket)
        nonces = (nonce_of(socket), bytes([100 + socket]) * 16)
        seed = kit.key(voucher) if voucher else None
        record = make_presence(kit.key(letter), kit.key("i"), once, "tab", nonces, None, seed)
        return record, errors_of(desk.join(socket, record))

    viewer, errors = joining(2, "v", "b")  # before the tab that lends
    assert errors == []
    bob, errors = joining(3, "b", None)
    assert errors == []
    assert joining(4, "c", None)[1] == [InviteUsedUp]
    assert joining(5, "w", "c")[1] == [InviteUsedUp]
    membership = make_membership(kit.mesh, bob.key, once)
    assert desk.say(1, Admit(membership)) == [Send((1, 2, 3), Admitted(membership))]
    room = desk.hub.rooms[kit.mesh.id]
    assert {room.members[peer].presence.membership for peer in (viewer.peer, bob.peer)} == {membership}
    for socket in range(6, 6 + MAX_VIEWERS - 1):
        assert joining(socket, chr(ord("A") + socket), "b")[1] == []
    assert joining(20, "x", "b")[1] == [RoomFull]
    again = make_presence(
        kit.key("v"), kit.key("i"), once, "tab", (nonce_of(21), b"z" * 16), None, kit.key("b")
    )
    desk.open(21)
    assert errors_of(desk.join(21, again)) == [Replaced]  # the same viewer takes its own place


def test_revocation_puts_members_out(kit: Any) -> None:
    _, grant = kit.invite()
    desk = Desk(kit)
    ann = desk.with_founder(grant)
    desk.open(2)
    bob = desk.peer(2, "b", grant)
    desk.join(2, bob)
    revocation = make_revocation(kit.mesh, grant.key)
    effects = desk.say(2, Register(5, (), (revocation,)))  # whoever brings it: it is signed
    assert effects[0] == Persist(ann.mesh)
    assert effects[1] == Send((1, 2), Revoked(revocation))
    assert effects[2] == Send((1,), Left(bob.peer, "InviteRevoked"))
    assert isinstance(effects[3], Drop)
    assert len(effects) == 4
    assert desk.say(1, Register(6, (), (revocation,))) == [Persist(ann.mesh), Send((1,), Registered(6))]
    forged = replace(revocation, key=kit.key("x").public.encoded)
    answer = desk.say(1, Register(7, (), (forged,)))[-1]
    assert isinstance(answer, Send)
    assert isinstance(answer.message, Registered)
    assert answer.message.code == "ForgedRevocation"


def test_what_a_member_may_not_do_and_stays(kit: Any) -> None:
    _, grant = kit.invite()
    desk = Desk(kit)
    ann = desk.with_founder(grant)
    desk.open(2)
    bob = desk.peer(2, "b", grant)
    desk.join(2, bob)
    offer = make_signal(kit.key("f"), ann, bob, SignalKind.OFFER, b"c" * 16, kit.sdp())
    absent = make_membership(kit.mesh, kit.key("z").public.encoded, grant)
    other = make_membership(kit.mesh, bob.key, kit.invite(letter="o")[1])
    for socket, message, code in (
        (2, Relay(offer), "UnknownPeer"),  # says it is from ann
        (1, Relay(replace(offer, receiver=ann.peer)), "UnknownPeer"),
        (1, Relay(replace(offer, receiver=kit.key("z").id)), "UnknownPeer"),
        (1, Admit(absent), "UnknownPeer"),
        (1, Admit(other), "ForgedGrant"),
        (2, Admit(replace(other, uses=5)), "ForgedGrant"),
    ):
        (effect,) = desk.say(socket, message)
        assert isinstance(effect, Send)
        assert isinstance(effect.message, Refused)
        assert (effect.sockets, effect.message.code, effect.message.ends) == ((socket,), code, False)
    assert errors_of(desk.join(2, desk.peer(2, "b", grant))) == [OutOfOrder]  # a second join on one socket
    assert desk.hub.members() == 1


def test_a_broken_socket_is_told_and_the_room_hears(kit: Any) -> None:
    desk = Desk(kit)
    _, grant = kit.invite()
    desk.with_founder(grant)
    desk.open(2)
    bob = desk.peer(2, "b", grant)
    desk.join(2, bob)
    error = MalformedMessage("nonsense")
    assert desk.hub.step(Broke(2, error), desk.now) == [
        Send((1,), Left(bob.peer, "MalformedMessage")),
        Drop(2, error),
    ]
    desk.open(3)
    slow = TooSlow("x")
    assert desk.hub.step(Broke(3, slow), desk.now) == [Drop(3, slow)]


def test_limits_of_rooms_members_and_joins(kit: Any) -> None:
    desk = Desk(kit, Policy(Limits(rooms=1, members=2, joins=Rate(1, 4))))
    _, grant = kit.invite()
    desk.with_founder(grant)
    for socket, letter, wanted in ((2, "b", []), (3, "c", [RoomFull])):
        desk.open(socket)
        assert errors_of(desk.join(socket, desk.peer(socket, letter, grant))) == wanted
    other = identity_from_seed(b"M" * 32)
    desk.open(4)
    record = desk.founder(4, other)
    assert errors_of(desk.join(4, record, record.grant)) == [TooManyRooms]
    desk.open(5)
    assert errors_of(desk.join(5, desk.peer(5, "b", grant))) == [TooManyJoins]
    desk.open(6, "elsewhere")
    assert errors_of(desk.join(6, desk.peer(6, "b", grant))) == [Replaced]
    desk.now += 2
    desk.open(7)
    assert errors_of(desk.join(7, desk.peer(7, "c", grant))) == [RoomFull]


def test_meshes_are_forgotten_oldest_and_lightest_first(kit: Any) -> None:
    desk = Desk(kit, Policy(Limits(rooms=1, remembered=2)))
    meshes = [identity_from_seed(bytes([i]) * 32) for i in range(1, 7)]
    forgotten = []
    for socket, mesh in enumerate(meshes, start=1):
        desk.open(socket)
        record = desk.founder(socket, mesh)
        effects = desk.join(socket, record, record.grant)
        forgotten += [e.mesh for e in effects if isinstance(e, Forget)]
        if socket == 1:  # this one has something to remember
            desk.say(1, Register(1, (), (make_revocation(mesh, kit.key("i").public.encoded),)))
        desk.hub.step(Closed(socket), desk.now)
    assert forgotten == [m.id for m in meshes[1:4]]
    assert set(desk.hub.rooms) == {meshes[0].id, meshes[4].id, meshes[5].id}


def test_all_meshes_together_have_so_many_entries_and_each_its_share(kit: Any) -> None:
    """A flood of invites of made-up meshes takes no more memory than this, and keeps out no mesh with few."""
    desk = Desk(kit, Policy(Limits(entries=8, entries_of_mesh=4)))
    floods = [identity_from_seed(bytes([i]) * 32) for i in (1, 2)]
    grants = {
        mesh: [kit.invite(letter=letter, mesh=mesh)[1] for letter in "abcdefgh"]
        for mesh in (*floods, kit.mesh)
    }
    answers: dict[Any, str] = {}
    forgotten: list[str] = []
    for socket, mesh in enumerate((*floods, kit.mesh), start=1):
        desk.open(socket)
        record = desk.founder(socket, mesh)
        effects = desk.join(socket, record, record.grant)
        assert errors_of(effects) == []
        many = 2 if mesh is kit.mesh else 8
        effects += desk.say(socket, Register(1, tuple(grants[mesh][:many]), ()))
        answers[mesh] = next(
            e.message.code for e in effects if isinstance(e, Send) and isinstance(e.message, Registered)
        )
        forgotten += [e.mesh for e in effects if isinstance(e, Forget)]
        if mesh is floods[0]:
            desk.hub.step(Closed(socket), desk.now)
    assert [answers[mesh] for mesh in (*floods, kit.mesh)] == ["TooManyGrants", "TooManyGrants", ""]
    assert forgotten == [floods[0].id], "nobody is in there"
    sizes = {mesh: room.admissions.entries for mesh, room in desk.hub.rooms.items()}
    assert sizes == {floods[1].id: 8, kit.mesh.id: 4}
    desk.open(9)
    assert errors_of(desk.join(9, desk.founder(9, floods[1]))) == [Replaced], "who was there comes back"


# --- rates


def test_token_bucket() -> None:
    bucket = TokenBucket(Rate(2, 3), 10.0)
    assert [bucket.take(10.0) for _ in range(4)] == [True, True, True, False]
    assert bucket.take(10.5)
    assert not bucket.take(10.5)
    assert not bucket.take(3.0)  # the clock went back: nothing gained
    assert bucket.take(3.5)
    assert [bucket.take(1000.0) for _ in range(4)] == [True, True, True, False]


def test_socket_meter_counts_messages_and_bytes() -> None:
    limits = Limits(messages=Rate(1, 2), bytes=Rate(10, 100))
    meter = SocketMeter(limits, 0.0)
    assert meter.count(40, 0.0) is None
    assert "bytes" in str(meter.count(61, 0.0))
    assert "messages" in str(meter.count(1, 0.0))
    assert meter.count(40, 1.0) is None


def test_join_gate_forgets_addresses() -> None:
    gate = JoinGate(Rate(1, 1))
    assert gate.join("a", 0.0) is None
    assert isinstance(gate.join("a", 0.0), TooManyJoins)
    for i in range(10_000):
        gate.join(f"b{i}", 0.0)
    assert gate.join("a", 0.0) is None


# --- hosts, origins, ranges


@pytest.mark.parametrize(
    ("host", "bound", "allowed", "ok"),
    [
        ("127.0.0.1:8080", "127.0.0.1", "", True),
        ("localhost", "127.0.0.1", "", True),
        ("[::1]:8080", "::1", "", True),
        ("evil.example:8080", "127.0.0.1", "", False),
        ("127.0.0.1.evil.example", "127.0.0.1", "", False),
        ("", "127.0.0.1", "", False),
        ("[bad", "127.0.0.1", "", False),
        ("shoal.example", "127.0.0.1", "shoal.example", True),
        ("anything.example", "0.0.0.0", "", True),
    ],
)
def test_host(host: str, bound: str, allowed: str, ok: bool) -> None:
    try:
        check_host(host, bound, frozenset(filter(None, [allowed])))
    except HostRefused:
        assert not ok
    else:
        assert ok


@pytest.mark.parametrize(
    ("origin", "host", "allowed", "ok"),
    [
        (None, "h:1", "", True),
        ("http://h:1", "h:1", "", True),
        ("https://H", "h", "", True),
        ("http://h:2", "h:1", "", False),
        ("http://evil", "h:1", "", False),
        ("null", "h:1", "", False),
        ("", "", "", False),
        ("http://[bad", "h", "", False),
        ("https://app.example", "h:1", "https://app.example", True),
    ],
)
def test_origin(origin: str | None, host: str, allowed: str, ok: bool) -> None:
    try:
        check_origin(origin, host, frozenset(filter(None, [allowed])))
    except OriginRefused:
        assert not ok
    else:
        assert ok


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("10.0.0.1", False),
        ("x", False),
    ],
)
def test_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        (None, None),
        ("bytes=0-0", (0, 1)),
        ("bytes=2-", (2, 10)),
        ("bytes=2-99", (2, 10)),
        ("bytes=-3", (7, 10)),
        ("bytes=-99", (0, 10)),
        ("bytes=5-2", None),
        ("bytes=-", None),
        ("bytes=0-1,3-4", None),
        ("items=0-1", None),
        ("bytes=10-", BadRange),
        ("bytes=-0", BadRange),
        ("bytes=" + "9" * 19 + "-", BadRange),
        ("bytes=" + "9" * 30 + "-", None),
    ],
)
def test_ranges(header: str | None, wanted: Any) -> None:
    if wanted is BadRange:
        with pytest.raises(BadRange):
            parse_range(header, 10)
    else:
        assert parse_range(header, 10) == wanted
