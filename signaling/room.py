"""Decides who is in which room and who hears what: events in, effects out. Pure.

The hub knows sockets by number. A socket is first waiting (it has a nonce and must join), then in a room.
Every message goes to members of the sender's own room and to nobody else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import assert_never

from signaling.errors import (
    ForgedGrant,
    InviteRevoked,
    MessageError,
    OutOfOrder,
    ProtocolMismatch,
    Replaced,
    ReplayedJoin,
    RoomFull,
    SignalingError,
    TooManyGrants,
    TooManyRooms,
    UnknownInvite,
    UnknownPeer,
    WrongMesh,
    code_of,
)
from signaling.generated.messages import (
    MAX_TEXT_CHARS,
    SIGNALING_PROTOCOL,
    Admit,
    Admitted,
    Challenge,
    ClientMessage,
    Ice,
    Join,
    Joined,
    Leave,
    Left,
    Refused,
    Register,
    Registered,
    Relay,
    Revoked,
    ServerMessage,
    Welcome,
)
from signaling.ice import IceServer, TurnService
from signaling.invites import Admissions, Grant, Revocation, verify_grant
from signaling.limits import JoinGate, Limits
from signaling.presence import MAX_VIEWERS, Presence, Signal, verify_presence

# --- events


@dataclass(frozen=True)
class Opened:
    """A socket was accepted; `nonce` was drawn for it."""

    socket: int
    address: str
    nonce: bytes


@dataclass(frozen=True)
class Received:
    """A decoded message from a socket."""

    socket: int
    message: ClientMessage


@dataclass(frozen=True)
class Broke:
    """The socket broke a rule outside the hub: a malformed message, a rate, a full queue."""

    socket: int
    error: SignalingError


@dataclass(frozen=True)
class Closed:
    """The socket is gone."""

    socket: int


@dataclass(frozen=True)
class LentAnew:
    """The credentials that members have for the TURN relay end before long."""


Event = Opened | Received | Broke | Closed | LentAnew

# --- effects


@dataclass(frozen=True)
class Send:
    """Send one message to each of these sockets."""

    sockets: tuple[int, ...]
    message: ServerMessage


@dataclass(frozen=True)
class Drop:
    """Say why, if there is a reason, then close the socket."""

    socket: int
    error: SignalingError | None


@dataclass(frozen=True)
class Persist:
    """The admissions of this mesh changed: keep them before performing what follows."""

    mesh: str


@dataclass(frozen=True)
class Forget:
    """This mesh is no longer remembered."""

    mesh: str


Effect = Send | Drop | Persist | Forget


@dataclass(frozen=True)
class Policy:
    """What a server is set to: its limits, the meshes it serves (None: any), and its ICE servers."""

    limits: Limits = field(default_factory=Limits)
    meshes: frozenset[str] | None = None
    ice_servers: tuple[IceServer, ...] = ()
    turn: TurnService | None = None

    def ice_for(self, peer: str, now_unix: float) -> tuple[IceServer, ...]:
        """The ICE servers that one member is told."""
        return self.ice_servers + ((self.turn.lend(peer, now_unix),) if self.turn else ())


@dataclass(frozen=True)
class _Waiting:
    address: str
    nonce: bytes


@dataclass(frozen=True)
class _Inside:
    mesh: str
    peer: str


@dataclass(frozen=True)
class _Member:
    socket: int
    presence: Presence


class Room:
    """One mesh: who is in, and who may come in."""

    def __init__(self, admissions: Admissions) -> None:
        self.admissions = admissions
        self.members: dict[str, _Member] = {}

    def sockets(self, besides: str = "") -> tuple[int, ...]:
        """Returns the sockets of all members, but for the peer `besides`."""
        return tuple(m.socket for peer, m in self.members.items() if peer != besides)


class Hub:
    """All rooms of one server."""

    def __init__(self, policy: Policy, remembered: Iterable[Admissions] = ()) -> None:
        self._policy = policy
        self._gate = JoinGate(policy.limits.joins)
        self._sockets: dict[int, _Waiting | _Inside] = {}
        self.rooms: dict[str, Room] = {a.mesh: Room(a) for a in remembered}
        self._entries = {mesh: room.admissions.entries for mesh, room in self.rooms.items()}
        self._all_entries = sum(self._entries.values())

    def occupied(self) -> int:
        """Rooms with somebody in."""
        return sum(1 for room in self.rooms.values() if room.members)

    def members(self) -> int:
        """How many members all rooms have."""
        return sum(len(room.members) for room in self.rooms.values())

    def is_inside(self, socket: int) -> bool:
        """Whether this socket has joined a room and is still in it."""
        return isinstance(self._sockets.get(socket), _Inside)

    def step(self, event: Event, now_unix: float) -> list[Effect]:
        """What to do about one event. Effects are to be performed in order."""
        match event:
            case Opened(socket, address, nonce):
                self._sockets[socket] = _Waiting(address, nonce)
                return [Send((socket,), Challenge(SIGNALING_PROTOCOL, nonce))]
            case Received(socket, message):
                state = self._sockets.get(socket)
                if state is None:
                    return []  # dropped a moment ago, the message was on its way
                try:
                    return self._received(socket, state, message, now_unix)
                except SignalingError as error:
                    return self._refuse(socket, state, error)
            case Broke(socket, error):
                return [*self._out(socket, code_of(error)), Drop(socket, error)]
            case Closed(socket):
                return self._out(socket, "disconnected")
            case LentAnew():
                return [
                    Send((member.socket,), Ice(self._policy.ice_for(peer, now_unix)))
                    for room in self.rooms.values()
                    for peer, member in room.members.items()
                ]
            case _:
                assert_never(event)

    def _refuse(self, socket: int, state: _Waiting | _Inside, error: SignalingError) -> list[Effect]:
        if isinstance(state, _Waiting) or isinstance(error, MessageError):
            return [*self._out(socket, code_of(error)), Drop(socket, error)]
        return [Send((socket,), refusal(error, ends=False))]

    def _received(
        self, socket: int, state: _Waiting | _Inside, message: ClientMessage, now_unix: float
    ) -> list[Effect]:
        if isinstance(message, Leave):
            return [*self._out(socket, "left"), Drop(socket, None)]
        if isinstance(state, _Waiting):
            if not isinstance(message, Join):
                raise OutOfOrder("the first message is a join, this one is not")
            return self._join(socket, state, message, now_unix)
        room = self.rooms[state.mesh]
        match message:
            case Join():
                raise OutOfOrder("this socket has joined already: open another one to join again")
            case Register():
                return self._register(socket, room, message, now_unix)
            case Admit(membership):
                return self._admit(room, membership)
            case Relay(signal):
                return self._relay(room, state.peer, signal)
            case _:
                assert_never(message)

    def _join(self, socket: int, state: _Waiting, join: Join, now_unix: float) -> list[Effect]:
        if join.protocol != SIGNALING_PROTOCOL:
            raise ProtocolMismatch(
                f"this server speaks signaling protocol {SIGNALING_PROTOCOL}, you speak {join.protocol}: update the "
                f"older one"
            )
        late = self._gate.join(state.address, now_unix)
        if late is not None:
            raise late
        if self._policy.meshes is not None and join.mesh not in self._policy.meshes:
            raise WrongMesh(f"this server does not serve mesh {join.mesh}: check the host of the link")
        room = self.rooms.get(join.mesh) or Room(Admissions(join.mesh))
        room.admissions.check_key(join.invite)
        grant = room.admissions.grants.get(join.invite) or join.grant
        if grant is None or grant.key != join.invite:
            raise UnknownInvite(
                "this server does not know the mesh of this link: it is not running now, or the link has expired or is "
                "of a mesh that was not kept; ask the founder to run shoal serve, or for a new link"
            )
        if join.room_nonce != state.nonce:
            raise ReplayedJoin("the join was made for another socket: it is a copy, refused")
        presence = Presence(
            join.key,
            join.name,
            join.room_nonce,
            join.join_nonce,
            join.invite_proof,
            join.peer_proof,
            grant,
            join.membership,
            join.vouch,
        )
        verify_presence(presence, join.mesh, now_unix, admitted=True)  # the date is checked next
        room.admissions.check(grant, presence.person, now_unix, join.membership)
        return self._enter(socket, room, presence, now_unix)

    def _enter(self, socket: int, room: Room, presence: Presence, now_unix: float) -> list[Effect]:
        effects: list[Effect] = []
        limits, mesh, peer = self._policy.limits, presence.mesh, presence.peer
        old = room.members.get(peer)
        if old is None and len(room.members) >= limits.members:
            raise RoomFull(f"the room has its {limits.members} members: somebody must leave first")
        viewers = [
            m
            for m in room.members.values()
            if m.presence.vouch and m.presence.person == presence.person and m is not old
        ]
        if presence.vouch is not None and len(viewers) >= MAX_VIEWERS:
            raise RoomFull(f"{MAX_VIEWERS} more tabs of this browser are in the room already: close some")
        if old is None and not room.members and self.occupied() >= limits.rooms:
            raise TooManyRooms(f"this server has its {limits.rooms} rooms: use another server")
        if self._is_full(room) and presence.person not in room.admissions.admitted.get(
            presence.grant.key, {}
        ):
            raise TooManyRooms("this server has no memory for more members of this mesh: use another server")
        if old is not None:
            room.members.pop(peer)
            del self._sockets[old.socket]
            effects.append(Drop(old.socket, Replaced("the same peer key joined again from another place")))
        if mesh not in self.rooms:
            effects.extend(self._make_room())
            self.rooms[mesh] = room
        new = room.admissions.admit(presence.grant, presence.person)
        if presence.grant.key not in room.admissions.grants and not _is_over(presence.grant, now_unix):
            room.admissions.register(presence.grant)
            new = True
        others = tuple(m.presence for m in room.members.values())
        room.members[peer] = _Member(socket, presence)
        self._sockets[socket] = _Inside(mesh, peer)
        if new:
            effects.extend(self._counted(room))
            effects.append(Persist(mesh))
        revocations = tuple(room.admissions.revocations.values())
        effects.append(
            Send((socket,), Welcome(presence, others, revocations, self._policy.ice_for(peer, now_unix)))
        )
        effects.append(Send(room.sockets(besides=peer), Joined(presence)))
        return effects

    def _make_room(self) -> list[Effect]:
        """Forgets a mesh where one more would be too many."""
        if len(self.rooms) < self._policy.limits.remembered + self._policy.limits.rooms:
            return []
        return self._forget_one()

    def _forget_one(self) -> list[Effect]:
        """Forgets the mesh that nobody has used for longest, of those with nobody in, if possible one without counted
        uses.
        """
        empty = [room.admissions for room in self.rooms.values() if not room.members]
        light = (a for a in empty if not a.revocations and not any(g.uses for g in a.grants.values()))
        found = next(light, empty[0] if empty else None)
        if found is None:
            return []
        del self.rooms[found.mesh]
        self._all_entries -= self._entries.pop(found.mesh, 0)
        return [Forget(found.mesh)]

    def _counted(self, room: Room) -> list[Effect]:
        """After entries of a room came or went: forgets others while all have too many."""
        mesh, entries = room.admissions.mesh, room.admissions.entries
        self._all_entries += entries - self._entries.get(mesh, 0)
        self._entries[mesh] = entries
        effects: list[Effect] = []
        while self._all_entries > self._policy.limits.entries:
            gone = self._forget_one()
            if not gone:
                break
            effects += gone
        return effects

    def _is_full(self, room: Room) -> bool:
        """Whether it may have no further entry: all have as many as may be, and this one no less than its share."""
        limits = self._policy.limits
        if self._all_entries < limits.entries or room.admissions.entries < limits.entries_of_mesh:
            return False
        return all(other.members for other in self.rooms.values())  # else one is forgotten

    def _check_full(self, room: Room) -> None:
        if self._is_full(room):
            raise TooManyGrants("this server has no memory for more invites of this mesh: use another server")

    def _register(self, socket: int, room: Room, register: Register, now_unix: float) -> list[Effect]:
        admissions = room.admissions
        admissions.forget_expired(now_unix)
        effects = self._counted(room)
        answer = Registered(register.request)
        fresh: list[Revocation] = []
        try:
            for revocation in register.revocations:  # what was taken before an error stays: it is signed
                if revocation.key not in admissions.revocations:
                    self._check_full(room)
                if admissions.revoke(revocation):
                    fresh.append(revocation)
                    effects += self._counted(room)
            for grant in register.grants:
                if grant.key not in admissions.grants:
                    self._check_full(room)
                admissions.register(grant)
                effects += self._counted(room)
        except SignalingError as error:
            answer = Registered(register.request, code_of(error), str(error)[:MAX_TEXT_CHARS])
        effects.append(Persist(admissions.mesh))
        for revocation in fresh:
            effects.append(Send(room.sockets(), Revoked(revocation)))
            gone = [m for m in room.members.values() if m.presence.grant.key == revocation.key]
            for member in gone:
                why = InviteRevoked("the founder withdrew the invite you came with: ask for a new link")
                effects.extend(self._out(member.socket, code_of(why)))
                effects.append(Drop(member.socket, why))
        if socket in self._sockets:
            effects.append(Send((socket,), answer))
        return effects

    def _admit(self, room: Room, membership: Grant) -> list[Effect]:
        verify_grant(membership, room.admissions.mesh)
        theirs = [m for m in room.members.values() if m.presence.person_key == membership.key]
        if not theirs:
            raise UnknownPeer("the peer that this membership is for is not in the room")
        fitting = [
            m
            for m in theirs
            if (m.presence.grant.key, m.presence.grant.role) == (membership.via, membership.role)
        ]
        if not fitting:
            raise ForgedGrant("a membership carries the invite and role that its peer came with")
        for member in fitting:
            known = replace(member.presence, membership=membership)
            room.members[known.peer] = _Member(member.socket, known)
        return [Send(room.sockets(), Admitted(membership))]

    def _relay(self, room: Room, peer: str, signal: Signal) -> list[Effect]:
        if signal.sender != peer:
            raise UnknownPeer(f"you are peer {peer}, the {signal.kind} says it is from peer {signal.sender}")
        receiver = room.members.get(signal.receiver)
        if receiver is None or signal.receiver == peer:
            raise UnknownPeer(f"peer {signal.receiver} is not in the room")
        return [Send((receiver.socket,), Relay(signal))]

    def _out(self, socket: int, reason: str) -> list[Effect]:
        state = self._sockets.pop(socket, None)
        if not isinstance(state, _Inside):
            return []
        room = self.rooms[state.mesh]
        del room.members[state.peer]
        if not room.members:  # newest at the end: the front is what nobody used for longest
            self.rooms[state.mesh] = self.rooms.pop(state.mesh)
        return [Send(room.sockets(), Left(state.peer, reason))] if room.members else []


def refusal(error: SignalingError, ends: bool) -> Refused:
    """The error as the other side gets it; `ends`: the socket is closed after it."""
    return Refused(code_of(error), str(error)[:MAX_TEXT_CHARS], ends)


def _is_over(grant: Grant, now_unix: float) -> bool:
    return bool(grant.expires_unix) and now_unix > grant.expires_unix
