"""The error tree of signaling. Every message is one line: what was expected, what came, what to do.

SignalingError
├── InviteError                a person cannot come in with this link
│   ├── WrongLink              not a link of this project, or mistyped
│   ├── WrongMesh              signed for another mesh than the link names
│   ├── UnknownInvite          the server has never seen the grant of this invite
│   ├── InviteExpired
│   ├── InviteUsedUp
│   └── InviteRevoked
├── IdentityError              a signature, key or nonce is not what it claims
│   ├── BadKey
│   ├── ForgedGrant
│   ├── ForgedRevocation
│   ├── ForgedPresence
│   ├── ReplayedJoin
│   ├── UnknownPeer            the other side is not a verified member of this room
│   ├── BadDescription         an SDP without one agreed SHA-256 fingerprint
│   ├── SwappedDescription
│   ├── ReplayedDescription
│   └── UnexpectedAnswer       an answer to an offer that was never made
├── MessageError               a message breaks the protocol
│   ├── MessageTooLarge
│   ├── MalformedMessage
│   ├── UnknownMessage
│   ├── OutOfOrder             before the join, or a second join
│   └── ProtocolMismatch       the other side speaks another version
├── LimitError                 a limit of the server
│   ├── TooFast
│   ├── TooManyJoins
│   ├── TooManyRooms
│   ├── TooManyGrants
│   ├── RoomFull
│   └── TooSlow                the reader did not keep up
├── ServerError                the server cannot start or refuses a request
│   ├── PortInUse
│   ├── BadCertificate         the files of --cert and --key do not serve for HTTPS
│   ├── OriginRefused
│   ├── HostRefused
│   ├── Replaced               the same key joined again on another socket
│   ├── Stopping
│   └── CorruptState
└── ClientError                the client cannot do this now
    ├── ServerUnreachable
    └── NotConnected
"""

from __future__ import annotations

from collections.abc import Iterator


class SignalingError(Exception):
    """Root of signaling's errors. The class name is the code on the wire."""


class InviteError(SignalingError):
    """A person cannot come in with this link."""


class WrongLink(InviteError):
    """Not an invite link, or mistyped."""


class WrongMesh(InviteError):
    """Signed for another mesh than the link names."""


class UnknownInvite(InviteError):
    """The server has never seen the grant of this invite."""


class InviteExpired(InviteError):
    """The invite was valid until a moment that has passed."""


class InviteUsedUp(InviteError):
    """As many peers as the invite allows have come in with it."""


class InviteRevoked(InviteError):
    """The founder withdrew the invite."""


class IdentityError(SignalingError):
    """A signature, key or nonce is not what it claims to be."""


class BadKey(IdentityError):
    """Bytes that are no public key or seed of a known type."""


class ForgedGrant(IdentityError):
    """A grant or membership that the mesh key did not sign."""


class ForgedRevocation(IdentityError):
    """A revocation that the mesh key did not sign."""


class ForgedPresence(IdentityError):
    """A presence record whose proofs do not hold."""


class ReplayedJoin(IdentityError):
    """A join or presence that was used before."""


class UnknownPeer(IdentityError):
    """The other side is not a verified member of this room."""


class BadDescription(IdentityError):
    """An SDP without exactly one SHA-256 fingerprint."""


class SwappedDescription(IdentityError):
    """An offer, answer or candidate that its sender did not sign."""


class ReplayedDescription(IdentityError):
    """An offer, answer or candidate from an earlier join or connection."""


class UnexpectedAnswer(IdentityError):
    """An answer to an offer that was never made."""


class MessageError(SignalingError):
    """A message breaks the protocol."""


class MessageTooLarge(MessageError):
    """More bytes than a message may have."""


class MalformedMessage(MessageError):
    """Not JSON, or a field that is absent, of a wrong type or out of range."""


class UnknownMessage(MessageError):
    """A kind that this side does not take."""


class OutOfOrder(MessageError):
    """A message before the join, or a second join."""


class ProtocolMismatch(MessageError):
    """The other side speaks another version."""


class LimitError(SignalingError):
    """A limit of the server was reached."""


class TooFast(LimitError):
    """More messages or bytes per second than one socket may send."""


class TooManyJoins(LimitError):
    """More joins from one address than the server takes."""


class TooManyRooms(LimitError):
    """The server holds as many rooms as it may."""


class TooManyGrants(LimitError):
    """The mesh has as many grants or revocations as the server keeps."""


class RoomFull(LimitError):
    """The room has as many members as it may."""


class TooSlow(LimitError):
    """The reader did not take what was sent to it."""


class ServerError(SignalingError):
    """The server cannot start, or refuses a request."""


class PortInUse(ServerError):
    """Another process listens on this address and port."""


class BadCertificate(ServerError):
    """The files of --cert and --key do not serve for HTTPS."""


class BadIceServer(ServerError):
    """What --stun, --turn and --turn-secret say does not make a server for ICE."""


class OriginRefused(ServerError):
    """A browser page from an origin that is not allowed."""


class HostRefused(ServerError):
    """A Host header that a server on loopback does not answer to."""


class Replaced(ServerError):
    """The same key joined again on another socket."""


class Stopping(ServerError):
    """The server is shutting down."""


class CorruptState(ServerError):
    """The state file cannot be used."""


class ClientError(SignalingError):
    """The client cannot do this now."""


class BadName(ClientError):
    """A name that other people's terminals should not show."""


class ServerUnreachable(ClientError):
    """Nothing answers at this address, or it is not this project's server."""


class NotConnected(ClientError):
    """There is no joined socket at the moment; a new one is being made."""


# A peer that gets one of these must not try again by itself: the same join would be refused again.
FINAL: tuple[type[SignalingError], ...] = (
    InviteError,
    IdentityError,
    ProtocolMismatch,
    Replaced,
    OriginRefused,
)


def code_of(error: SignalingError) -> str:
    """The word that stands for this error on the wire and in metrics."""
    return type(error).__name__


def from_wire(code: str, text: str) -> SignalingError:
    """The error that the other side named; an unknown code gives the root class with the code in the text."""
    kind = _BY_CODE.get(code)
    return kind(text) if kind is not None else SignalingError(f"{code}: {text}")


def _subclasses(root: type[SignalingError]) -> Iterator[type[SignalingError]]:
    yield root
    for child in root.__subclasses__():
        yield from _subclasses(child)


_BY_CODE = {kind.__name__: kind for kind in _subclasses(SignalingError)}
