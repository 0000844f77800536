"""Decides who may do what in a mesh: roles, and which invites there are and were revoked, as facts of its log.

Pure; the same in web_peer/src/state/roles.ts. An invite stands here by its public key and never by its secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, assert_never, get_args

from peer.wire.json_codec import MAX_ITEMS, Codec, Fields, matching, one_of, record, table, text, uint

Role = Literal["owner", "member", "viewer"]  # decides all; asks; reads
ROLES: Final[tuple[Role, ...]] = get_args(Role)
MAX_INVITES: Final = 1024


@dataclass(frozen=True, slots=True)
class Invite:
    """A link that somebody was given. `proof`: the signed grant as JSON, or empty."""

    role: Role
    expires_unix: int  # seconds; 0: never
    uses: int  # 0: unlimited
    by: str
    when_ms: int
    proof: str


@dataclass(frozen=True, slots=True)
class Revocation:
    """An invite with which nobody comes in any more. `proof`: the signed revocation as JSON, or empty."""

    by: str
    when_ms: int
    proof: str


@dataclass(frozen=True, slots=True)
class People:
    """Roles by peer, also of peers that are not here; invites and revocations by the invite's public key."""

    roles: Mapping[str, Role] = field(default_factory=dict)
    invites: Mapping[str, Invite] = field(default_factory=dict)
    revocations: Mapping[str, Revocation] = field(default_factory=dict)


# --- commands ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RoleGiven:
    """A member has another role in the mesh."""

    peer: str
    role: Role


@dataclass(frozen=True, slots=True)
class RoleTaken:
    """A member has no role of its own in the mesh any more."""

    peer: str


@dataclass(frozen=True, slots=True)
class InviteRecorded:
    """An invite of the mesh, with the proof of who made it."""

    key: str
    role: Role
    expires_unix: int
    uses: int
    by: str
    when_ms: int
    proof: str


@dataclass(frozen=True, slots=True)
class InviteRevoked:
    """An invite that admits no one any more, with the proof of who revoked it."""

    key: str
    by: str
    when_ms: int
    proof: str


PeopleCommand = RoleGiven | RoleTaken | InviteRecorded | InviteRevoked


def govern(people: People, command: PeopleCommand) -> People | str:
    """The people after `command`, or why it changes nothing."""
    match command:
        case RoleGiven(peer, role):
            if peer not in people.roles and len(people.roles) >= MAX_ITEMS:
                return f"{MAX_ITEMS} peers have a role, which is the most; take one first"
            return replace(people, roles={**people.roles, peer: role})
        case RoleTaken(peer):
            if peer not in people.roles:
                return "this peer has no role"
            return replace(people, roles={each: role for each, role in people.roles.items() if each != peer})
        case InviteRecorded():
            return _invited(people, command)
        case InviteRevoked(key, by, when_ms, proof):
            if key in people.revocations:
                return "this invite was revoked before"
            if len(people.revocations) >= MAX_ITEMS:
                return f"{MAX_ITEMS} invites were revoked, which is the most"
            revoked = Revocation(by, when_ms, proof)
            return replace(people, revocations={**people.revocations, key: revoked})
        case _:
            assert_never(command)


def _invited(people: People, command: InviteRecorded) -> People | str:
    if command.key in people.invites:
        return "this invite was recorded before"
    invites = dict(people.invites)
    if len(invites) >= MAX_INVITES:  # revocations are kept apart, so the oldest invite can go
        del invites[min(invites, key=lambda key: (invites[key].when_ms, key))]
    invites[command.key] = Invite(
        command.role, command.expires_unix, command.uses, command.by, command.when_ms, command.proof
    )
    return replace(people, invites=invites)


# --- wire -------------------------------------------------------------------------------------------------

# A public key, 33 bytes with tag 1. The secret of a link has another length, so that it cannot stand here by mistake.
_key: Final = matching("A[Q-Za-f][0-9A-Za-z_-]{42}", "the public key of an invite")
role: Final = one_of(*ROLES)
_proof: Final[Fields] = {"by": text, "when_ms": uint, "proof": text}
_invite: Final[Fields] = {"role": role, "expires_unix": uint, "uses": uint, **_proof}
people_codec: Final = record(
    People,
    {
        "roles": table(role),
        "invites": table(record(Invite, _invite), MAX_INVITES),
        "revocations": table(record(Revocation, _proof)),
    },
)
PEOPLE_COMMANDS: Final[Mapping[type[Any], Codec[Any]]] = {
    RoleGiven: record(RoleGiven, {"peer": text, "role": role}),
    RoleTaken: record(RoleTaken, {"peer": text}),
    InviteRecorded: record(InviteRecorded, {"key": _key, **_invite}),
    InviteRevoked: record(InviteRevoked, {"key": _key, **_proof}),
}
