"""Decides who may come in: invite links, grants, memberships, revocations, and how often each was used.
Pure.

An invite is an Ed25519 key pair of its own. Its secret seed is the part of the link behind the mesh id and
stays in the fragment, which no browser sends to a server. The mesh key signs a grant for the invite's public
key. Once a peer is in, the founder signs a membership for the peer's own key, so that the peer may come back
when the invite has expired or is used up. A revocation, signed too, ends the invite and every membership
that came through it.
"""

from __future__ import annotations

import hashlib
import ipaddress
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import urlsplit

from signaling.errors import (
    ForgedGrant,
    ForgedRevocation,
    InviteExpired,
    InviteRevoked,
    InviteUsedUp,
    TooManyGrants,
    WrongLink,
    WrongMesh,
)
from signaling.keys import (
    SEED_BYTES,
    Identity,
    from_text,
    identity_from_seed,
    is_id,
    key_id,
    public_key,
    to_text,
    transcript,
)

CHECK_BYTES = 4  # a mistyped link passes by chance once in four billion
SECRET_CHARS = (SEED_BYTES + CHECK_BYTES) * 4 // 3  # of base64 at the end of a link
MAX_GRANTS = 1024  # per mesh, as many revocations: bounds what a founder can make a server keep
MAX_ADMITTED = 4096  # peers remembered per invite
MAX_USES = 1_000_000
EXPIRED_KEPT_S = 30 * 86_400
MAX_UNIX = 253_402_300_799  # end of the year 9999


class Role(StrEnum):
    """What a member may do."""

    FOUNDER = "founder"  # holds the mesh key
    PEER = "peer"  # lends memory and compute, and asks
    GUEST = "guest"  # asks only


@dataclass(frozen=True)
class Grant:
    """What the mesh key allows `key`: an invite (`via` empty), or a membership that came `via` an invite."""

    mesh_key: bytes
    key: bytes
    role: Role
    expires_unix: int  # 0: never
    uses: int  # distinct peer keys; 0: unlimited
    via: bytes
    signature: bytes

    @property
    def mesh(self) -> str:
        """The id of the mesh whose key signed it."""
        return key_id(self.mesh_key)

    @property
    def is_membership(self) -> bool:
        """Whether it is of one peer, made from an invite, and not the invite itself."""
        return bool(self.via)

    @property
    def origin(self) -> bytes:
        """The invite key that this grant stands or falls with."""
        return self.via or self.key


@dataclass(frozen=True)
class Revocation:
    """The mesh key withdraws the invite `key`."""

    mesh_key: bytes
    key: bytes
    signature: bytes

    @property
    def mesh(self) -> str:
        """The id of the mesh whose key signed it."""
        return key_id(self.mesh_key)


@dataclass(frozen=True)
class InviteLink:
    """A decoded link: where to meet, which mesh, and the secret that lets one in (never in repr)."""

    server: str  # scheme://host[:port]
    mesh: str
    seed: bytes = field(repr=False)

    def url(self) -> str:
        """The link itself. It is a secret: show it to the person who asked for it, never log it."""
        return f"{self.server}/#{self.mesh}.{to_text(self.seed + _check(self.mesh, self.seed))}"

    def invite(self) -> Identity:
        """The key pair of the invite, made from the secret of the link."""
        return identity_from_seed(self.seed)


def _check(mesh: str, seed: bytes) -> bytes:
    return hashlib.sha256(transcript("link", mesh, seed)).digest()[:CHECK_BYTES]


def _signed_grant(grant: Grant) -> bytes:
    return transcript(
        "grant", grant.mesh_key, grant.key, grant.role.value, grant.expires_unix, grant.uses, grant.via
    )


def _sign(mesh_key: Identity, grant: Grant) -> Grant:
    return Grant(
        grant.mesh_key,
        grant.key,
        grant.role,
        grant.expires_unix,
        grant.uses,
        grant.via,
        mesh_key.sign(_signed_grant(grant)),
    )


def make_invite(
    mesh_key: Identity, server: str, seed: bytes, role: Role, expires_unix: int = 0, uses: int = 0
) -> tuple[InviteLink, Grant]:
    """A new invite: the link for a person and the grant for the server. `seed`: 32 drawn bytes."""
    if role is Role.FOUNDER:
        raise ForgedGrant("an invite carries the role peer or guest; the founder is who holds the mesh key")
    invite = identity_from_seed(seed)
    unsigned = Grant(mesh_key.public.encoded, invite.public.encoded, role, expires_unix, uses, b"", b"")
    return InviteLink(_origin_of(server), mesh_key.id, seed), _sign(mesh_key, unsigned)


def founder_grant(mesh_key: Identity) -> Grant:
    """The grant with which the founder comes in: the mesh key signs for itself."""
    key = mesh_key.public.encoded
    return _sign(mesh_key, Grant(key, key, Role.FOUNDER, 0, 0, b"", b""))


def make_membership(mesh_key: Identity, peer_key: bytes, invite: Grant) -> Grant:
    """The right of one peer to come back, whatever becomes of the number and date of its invite."""
    return _sign(mesh_key, Grant(mesh_key.public.encoded, peer_key, invite.role, 0, 1, invite.key, b""))


def make_revocation(mesh_key: Identity, invite_key: bytes) -> Revocation:
    """Returns the word of the mesh key that the invite with `invite_key` is revoked."""
    own = mesh_key.public.encoded
    return Revocation(own, invite_key, mesh_key.sign(transcript("revocation", own, invite_key)))


def verify_grant(grant: Grant, mesh: str) -> None:
    """WrongMesh or ForgedGrant unless the key behind the id `mesh` signed this."""
    if grant.mesh != mesh:
        raise WrongMesh(f"the grant is for mesh {grant.mesh}, the link names mesh {mesh}: ask for a new link")
    if not public_key(grant.mesh_key).verifies(grant.signature, _signed_grant(grant)):
        raise ForgedGrant(f"the grant does not carry the signature of mesh {mesh}: somebody made it up")
    if (grant.role is Role.FOUNDER) != (grant.key == grant.mesh_key):
        raise ForgedGrant("the role founder belongs to the mesh key and to no other key")


def verify_revocation(revocation: Revocation, mesh: str) -> None:
    """WrongMesh or ForgedRevocation unless the key behind the id `mesh` signed this."""
    if revocation.mesh != mesh:
        raise WrongMesh(f"the revocation is for mesh {revocation.mesh}, not for mesh {mesh}")
    signed = transcript("revocation", revocation.mesh_key, revocation.key)
    if not public_key(revocation.mesh_key).verifies(revocation.signature, signed):
        raise ForgedRevocation(
            f"the revocation does not carry the signature of mesh {mesh}: somebody made it up"
        )


class Admissions:
    """Grants, revocations and uses of one mesh. Kept by the server, and again by every member for itself."""

    def __init__(self, mesh: str) -> None:
        self.mesh = mesh
        self.grants: dict[bytes, Grant] = {}  # invite key -> grant
        self.revocations: dict[bytes, Revocation] = {}  # invite key -> revocation
        self.admitted: dict[bytes, dict[str, None]] = {}  # invite key -> peer ids, oldest first

    @property
    def entries(self) -> int:
        """How many grants, revocations and uses it has."""
        return len(self.grants) + len(self.revocations) + sum(map(len, self.admitted.values()))

    def register(self, grant: Grant) -> None:
        """Keep an invite's grant after checking it."""
        verify_grant(grant, self.mesh)
        if grant.is_membership:
            raise ForgedGrant("only grants of invites are registered, this one is a membership")
        if grant.key not in self.grants and len(self.grants) >= MAX_GRANTS:
            raise TooManyGrants(f"a mesh keeps at most {MAX_GRANTS} invites")
        self.grants[grant.key] = grant

    def revoke(self, revocation: Revocation) -> bool:
        """Withdraw an invite for good; False when that was known already."""
        verify_revocation(revocation, self.mesh)
        if revocation.key in self.revocations:
            return False
        if len(self.revocations) >= MAX_GRANTS:
            raise TooManyGrants(f"a mesh keeps at most {MAX_GRANTS} revocations")
        self.revocations[revocation.key] = revocation
        return True

    def check_key(self, invite_key: bytes) -> None:
        """InviteRevoked when this invite was withdrawn, whether or not its grant is known."""
        if invite_key in self.revocations:
            raise InviteRevoked("this invite was withdrawn by the founder: ask for a new link")

    def check(self, grant: Grant, peer: str, now_unix: float, membership: Grant | None = None) -> None:
        """Whether `peer` may come in with this verified grant now; raises the reason why not."""
        self.check_key(grant.origin)
        admitted = self.admitted.get(grant.key, {})
        if membership is not None or peer in admitted:
            return
        if grant.expires_unix and now_unix > grant.expires_unix:
            late_s = int(now_unix - grant.expires_unix)
            raise InviteExpired(f"this invite expired {_span(late_s)} ago: ask for a new link")
        if grant.uses and len(admitted) >= grant.uses:
            raise InviteUsedUp(
                f"this invite was for {grant.uses} peer(s), who have all come: ask for a new link"
            )

    def admit(self, grant: Grant, peer: str) -> bool:
        """Count `peer` as a user of this invite; False when it was counted before."""
        admitted = self.admitted.setdefault(grant.key, {})
        if peer in admitted:
            return False
        if len(admitted) >= MAX_ADMITTED:
            del admitted[next(iter(admitted))]
        admitted[peer] = None
        return True

    def forget_expired(self, now_unix: float) -> None:
        """Drop grants that let nobody in any more, so that a long-lived mesh does not fill up.

        For a while they are kept, unless room is short: who comes late should hear why, not of an unknown invite.
        """
        kept_s = EXPIRED_KEPT_S if len(self.grants) < MAX_GRANTS // 2 else 0
        expired = [k for k, g in self.grants.items() if g.expires_unix and now_unix > g.expires_unix + kept_s]
        for key in expired:
            del self.grants[key]
        spent = [key for key in self.admitted if key not in self.grants]
        for key in spent[: max(0, len(spent) - MAX_GRANTS)]:
            del self.admitted[key]


def parse_link(link: str) -> InviteLink:
    """Decode a link that a person gave; WrongLink says what is wrong with it."""
    text = link.strip()
    address, mark, fragment = text.partition("#")
    server = _origin_of(address)
    if not mark or not fragment:
        raise WrongLink(
            "the link ends before its secret part: it looks like https://host/#<mesh>.<invite>, copy all of "
            "it "
            "(in a shell, put it in quotes)"
        )
    mesh, dot, secret = fragment.partition(".")
    if not dot:
        raise WrongLink(
            "the part behind # has the form <mesh>.<invite>, this one has no dot: copy the whole link"
        )
    if not is_id(mesh):
        raise WrongLink(
            f"the mesh id behind # has 32 characters a-z and 2-7, this one has {len(mesh)}: copy it again"
        )
    if len(secret) != SECRET_CHARS:
        raise WrongLink(
            f"the invite at the end of the link has {SECRET_CHARS} characters, this one has {len(secret)}: "
            "copy it again"
        )
    try:
        raw = from_text(secret)
    except ValueError as error:
        raise WrongLink(
            "the invite at the end of the link has a character it cannot have: copy it again"
        ) from error
    seed, check = raw[:SEED_BYTES], raw[SEED_BYTES:]
    if check != _check(mesh, seed):
        raise WrongLink("the link is mistyped (its checksum does not fit): copy it again")
    return InviteLink(server, mesh, seed)


def _origin_of(address: str) -> str:
    """scheme://host[:port] of a server address, checked."""
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError as error:
        raise WrongLink("the link's host or port cannot be read: copy it again") from error
    host = parts.hostname or ""
    if parts.scheme not in ("http", "https") or not host or parts.username or parts.password:
        raise WrongLink("a link starts with https://host/ (or http:// on this machine or a private network)")
    if parts.path not in ("", "/") or parts.query:
        raise WrongLink("a link has nothing between the host and /#")
    if parts.scheme == "http" and not _is_private(host):
        raise WrongLink(
            f"a link to {host} starts with https://, plain http:// is for this machine or a private network"
        )
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}" + (f":{port}" if port is not None else "")


def _is_private(host: str) -> bool:
    if host == "localhost" or host.endswith((".localhost", ".local", ".internal")):
        return True
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return False


def _span(seconds: int) -> str:
    if seconds < 120:
        return f"{seconds} s"
    if seconds < 7200:
        return f"{seconds // 60} min"
    return f"{seconds // 3600} h" if seconds < 172_800 else f"{seconds // 86_400} days"
