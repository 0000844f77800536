"""Decides whether a member is who it says, and whether an offer, answer or candidate is its own. Pure.

A join signs (mesh, invite key, peer key, name, room nonce, join nonce) twice: with the invite key, which
proves the link, and with the peer key, which proves the peer. The room nonce is drawn by the server for one
socket, so a copied join fits no other socket; the join nonce is drawn by the joiner, so members recognise a
copy without the server. An offer, answer or candidate signs both sides' join nonces, the connection id and
the DTLS fingerprint of the SDP, and the SHA-256 of the whole text, so that nothing in it can be changed on
the way.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from signaling.errors import (
    BadDescription,
    BadKey,
    ForgedGrant,
    ForgedPresence,
    InviteExpired,
    ReplayedDescription,
    SwappedDescription,
    WrongMesh,
)
from signaling.invites import Grant, Role, verify_grant
from signaling.keys import Identity, PublicKey, key_id, public_key, transcript

NONCE_BYTES = 16
_FINGERPRINT = re.compile(r"^a=fingerprint:\s*(\S+)\s+(\S+)\s*$", re.IGNORECASE | re.MULTILINE)
_SHA256_HEX = re.compile(r"^(?:[0-9A-F]{2}:){31}[0-9A-F]{2}$")


@dataclass(frozen=True)
class Presence:
    """A member as it proved itself; every other member checks it again."""

    key: bytes
    name: str
    room_nonce: bytes
    join_nonce: bytes
    invite_proof: bytes
    peer_proof: bytes
    grant: Grant
    membership: Grant | None = None

    @cached_property
    def peer(self) -> str:
        return key_id(self.key)

    @property
    def role(self) -> Role:
        return self.grant.role

    @property
    def mesh(self) -> str:
        return self.grant.mesh


class SignalKind(StrEnum):
    """What is said about a connection that is being made."""

    OFFER = "offer"
    ANSWER = "answer"
    CANDIDATE = "candidate"


@dataclass(frozen=True)
class Signal:
    """An offer, an answer or one ICE candidate, on its way from member to member."""

    kind: SignalKind
    connection: bytes  # 16 bytes, drawn by the side that offers
    sender: str
    receiver: str
    sender_nonce: bytes
    receiver_nonce: bytes
    text: str  # SDP, or a candidate line
    signature: bytes


def join_transcript(
    mesh: str, invite_key: bytes, key: bytes, name: str, room_nonce: bytes, join_nonce: bytes
) -> bytes:
    """What both proofs of a join sign."""
    return transcript("join", mesh, invite_key, key, name, room_nonce, join_nonce)


def make_presence(
    identity: Identity,
    invite: Identity,
    grant: Grant,
    name: str,
    nonces: tuple[bytes, bytes],
    membership: Grant | None = None,
) -> Presence:
    """A proved presence for (room nonce, join nonce)."""
    room_nonce, join_nonce = nonces
    key = identity.public.encoded
    signed = join_transcript(grant.mesh, grant.key, key, name, room_nonce, join_nonce)
    return Presence(
        key, name, room_nonce, join_nonce, invite.sign(signed), identity.sign(signed), grant, membership
    )


def verify_presence(presence: Presence, mesh: str, now_unix: float, admitted: bool = False) -> PublicKey:
    """The peer's checked key, or the reason why this is no member of `mesh`.

    `admitted`: this peer came in with the same grant before, so the date of its invite no longer matters.
    """
    grant = presence.grant
    verify_grant(grant, mesh)
    if grant.is_membership:
        raise ForgedGrant("a member comes in with an invite; a membership only lets it come back")
    membership = presence.membership
    if membership is not None:
        verify_grant(membership, mesh)
        if membership.key != presence.key or membership.via != grant.key or membership.role is not grant.role:
            raise ForgedGrant("the membership was signed for another peer, invite or role")
    signed = join_transcript(
        mesh, grant.key, presence.key, presence.name, presence.room_nonce, presence.join_nonce
    )
    try:
        invite_key, peer_key = public_key(grant.key), public_key(presence.key)
    except BadKey as error:
        raise ForgedPresence(f"peer {presence.peer} shows a key that is none") from error
    if not invite_key.verifies(presence.invite_proof, signed):
        raise ForgedPresence(f"peer {presence.peer} did not prove that it holds the invite link: refused")
    if not peer_key.verifies(presence.peer_proof, signed):
        raise ForgedPresence(f"peer {presence.peer} did not prove that it holds its own key: refused")
    if membership is None and not admitted and grant.expires_unix and now_unix > grant.expires_unix:
        raise InviteExpired(f"the invite of peer {presence.peer} has expired: it needs a new link")
    return peer_key


def fingerprint_of(sdp: str) -> str:
    """The SHA-256 DTLS fingerprint of an SDP as upper-case hex with colons; BadDescription unless it has
    just one.

    Fingerprints by other hash functions may stand beside it; the signature covers the whole text, so they
    are bound too.
    """
    found = {value.upper() for kind, value in _FINGERPRINT.findall(sdp) if kind.lower() == "sha-256"}
    if not found:
        raise BadDescription("the SDP has no a=fingerprint line by sha-256, so nothing ties it to its sender")
    if len(found) > 1:
        raise BadDescription(f"the SDP has {len(found)} different sha-256 fingerprints, one was expected")
    value: str = found.pop()
    if not _SHA256_HEX.match(value):
        raise BadDescription("the sha-256 fingerprint of the SDP is not 32 hex bytes with colons")
    return value


def _signal_transcript(signal: Signal, mesh: str) -> bytes:
    fingerprint = "" if signal.kind is SignalKind.CANDIDATE else fingerprint_of(signal.text)
    return transcript(
        "signal",
        mesh,
        signal.kind.value,
        signal.connection,
        signal.sender,
        signal.receiver,
        signal.sender_nonce,
        signal.receiver_nonce,
        fingerprint,
        hashlib.sha256(signal.text.encode()).digest(),
    )


def make_signal(
    identity: Identity, own: Presence, receiver: Presence, kind: SignalKind, connection: bytes, text: str
) -> Signal:
    """A signed offer, answer or candidate from `own` to `receiver`, two members of one mesh."""
    unsigned = Signal(
        kind, connection, own.peer, receiver.peer, own.join_nonce, receiver.join_nonce, text, b""
    )
    signature = identity.sign(_signal_transcript(unsigned, own.mesh))
    return Signal(
        kind, connection, own.peer, receiver.peer, own.join_nonce, receiver.join_nonce, text, signature
    )


def verify_signal(signal: Signal, sender: Presence, receiver: Presence, sender_key: PublicKey) -> None:
    """ReplayedDescription or SwappedDescription unless `sender` made this for this join of `receiver`."""
    if sender.mesh != receiver.mesh:
        raise WrongMesh("sender and receiver are not in one mesh")
    if signal.receiver_nonce != receiver.join_nonce or signal.sender_nonce != sender.join_nonce:
        raise ReplayedDescription(
            f"the {signal.kind} from peer {signal.sender} belongs to an earlier join: refused, a new one is "
            f"needed"
        )
    if (signal.sender, signal.receiver) != (sender.peer, receiver.peer) or not sender_key.verifies(
        signal.signature, _signal_transcript(signal, sender.mesh)
    ):
        raise SwappedDescription(
            f"the {signal.kind} from peer {signal.sender} was changed on the way (its signature does not "
            f"fit): refused"
        )
