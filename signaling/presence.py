"""Decides whether a member is who it says, and whether an offer, answer or candidate is its own. Pure.

A join signs (mesh, invite key, peer key, name, room nonce, join nonce) twice: with the invite key, which
proves the link, and with the peer key, which proves the peer. The room nonce is drawn by the server for one
socket, so a copied join fits no other socket; the join nonce is drawn by the joiner, so members recognise a
copy without the server. An offer, answer or candidate signs both sides' join nonces, the connection id and
the DTLS fingerprint of the SDP, and the SHA-256 of the whole text, so that nothing in it can be changed on
the way.

A person may be in a room more than once, as with two tabs of one browser: each further peer has a key of its own, and
the person's counted key signs its join as well. Such a viewer only asks, and takes no place of a counted invite.
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
MAX_VIEWERS = 8  # of one person in a room, besides its own key
_FINGERPRINT = re.compile(r"^a=fingerprint:\s*(\S+)\s+(\S+)\s*$", re.IGNORECASE | re.MULTILINE)
_SHA256_HEX = re.compile(r"^(?:[0-9A-F]{2}:){31}[0-9A-F]{2}$")


@dataclass(frozen=True)
class Vouch:
    """The counted key of the person that a viewer belongs to, and its signature of this very join."""

    key: bytes
    proof: bytes


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
    vouch: Vouch | None = None

    @cached_property
    def peer(self) -> str:
        """The id of the peer: a hash of its key."""
        return key_id(self.key)

    @property
    def person_key(self) -> bytes:
        """The key by which places of an invite are counted, and which a membership is for."""
        return self.vouch.key if self.vouch is not None else self.key

    @cached_property
    def person(self) -> str:
        """The id of the person: a hash of that key."""
        return key_id(self.person_key)

    @property
    def role(self) -> Role:
        """What this member may do: a viewer asks only, whatever its invite allows."""
        return self.grant.role if self.vouch is None else Role.GUEST

    @property
    def mesh(self) -> str:
        """The id of the mesh whose key signed the grant."""
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


def make_vouch(voucher: Identity, joined: bytes) -> Vouch:
    """The person's counted key vouches for the join whose transcript is `joined`."""
    key = voucher.public.encoded
    return Vouch(key, voucher.sign(vouch_transcript(key, joined)))


def vouch_transcript(key: bytes, joined: bytes) -> bytes:
    """What the counted key `key` signs for the join of another one."""
    return transcript("vouch", key, joined)


def make_presence(
    identity: Identity,
    invite: Identity,
    grant: Grant,
    name: str,
    nonces: tuple[bytes, bytes],
    membership: Grant | None = None,
    voucher: Identity | None = None,
) -> Presence:
    """A proved presence for (room nonce, join nonce)."""
    room_nonce, join_nonce = nonces
    key = identity.public.encoded
    signed = join_transcript(grant.mesh, grant.key, key, name, room_nonce, join_nonce)
    proofs = (invite.sign(signed), identity.sign(signed))
    vouch = make_vouch(voucher, signed) if voucher is not None else None
    return Presence(key, name, room_nonce, join_nonce, *proofs, grant, membership, vouch)


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
        same = membership.key == presence.person_key and membership.via == grant.key
        if not same or membership.role is not grant.role:
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
    if presence.vouch is not None:
        _verify_vouch(presence, presence.vouch, signed)
    if membership is None and not admitted and grant.expires_unix and now_unix > grant.expires_unix:
        raise InviteExpired(f"the invite of peer {presence.peer} has expired: it needs a new link")
    return peer_key


def _verify_vouch(presence: Presence, vouch: Vouch, joined: bytes) -> None:
    """ForgedPresence unless the other key of `vouch` signed this very join."""
    if presence.grant.role is Role.FOUNDER or vouch.key == presence.key:
        raise ForgedPresence(
            f"peer {presence.peer} comes by itself: nobody vouches for a founder or for their own key"
        )
    try:
        key = public_key(vouch.key)
    except BadKey as error:
        raise ForgedPresence(f"the key that vouches for peer {presence.peer} is none") from error
    if not key.verifies(vouch.proof, vouch_transcript(vouch.key, joined)):
        raise ForgedPresence(f"the key that vouches for peer {presence.peer} did not sign this join: refused")


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
