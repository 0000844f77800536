"""Decides who may do what in a mesh: roles, and which invites there are and were revoked, as facts of its log.

Pure; the same in web_peer/src/state/roles.ts. An invite stands here by its public key and never by its secret.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, assert_never, get_args

from peer.limits import MAX_ITEMS
from peer.state.generated.commands import (
    MAX_INVITES,
    Invite,
    InviteRecorded,
    InviteRevoked,
    People,
    PeopleCommand,
    Revocation,
    Role,
    RoleGiven,
    RoleTaken,
)

ROLES: Final[tuple[Role, ...]] = get_args(Role)


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
