"""Decides what a peer shows to get into a mesh: its own key and name, and the invite it came with."""

from __future__ import annotations

from dataclasses import dataclass

from signaling.errors import BadName
from signaling.generated.messages import MAX_NAME_CHARS
from signaling.invites import Grant, InviteLink, founder_grant
from signaling.keys import Identity
from signaling.message_fields import is_clean


@dataclass(frozen=True)
class Credentials:
    """What lets a peer in: its own key and name, and the invite (for the founder: the mesh key). Or BadName."""

    identity: Identity
    name: str
    mesh: str
    invite: Identity
    grant: Grant | None = None
    membership: Grant | None = None
    voucher: Identity | None = None  # the counted key of the same person, for which this peer is a viewer

    def __post_init__(self) -> None:
        if not 1 <= len(self.name) <= MAX_NAME_CHARS or not is_clean(self.name):
            raise BadName(
                f"a name has 1 to {MAX_NAME_CHARS} printable characters: choose another with --name"
            )

    @classmethod
    def from_link(
        cls,
        link: InviteLink,
        identity: Identity,
        name: str,
        membership: Grant | None = None,
        voucher: Identity | None = None,
    ) -> Credentials:
        """Of a peer that came with an invite link."""
        return cls(identity, name, link.mesh, link.invite(), None, membership, voucher)

    @classmethod
    def founder(cls, mesh_key: Identity, identity: Identity, name: str) -> Credentials:
        """Of the peer that holds the key of the mesh."""
        return cls(identity, name, mesh_key.id, mesh_key, founder_grant(mesh_key), None)

    @property
    def person(self) -> Identity:
        """Whose place this peer takes, and whom its membership is for."""
        return self.voucher or self.identity

    @property
    def is_founder(self) -> bool:
        """Whether this peer shows the key of the mesh itself."""
        return self.invite.id == self.mesh
