"""Messages between a member and the signaling server, and what each may hold. Pure.

Generated from schema/signaling.toml by `make generate`: change that, not this.
"""

from __future__ import annotations

from dataclasses import dataclass

from signaling.ice import IceServer
from signaling.invites import MAX_GRANTS, MAX_UNIX, MAX_USES, Grant, Revocation, Role
from signaling.keys import ED25519_BYTES, P256_BYTES, SIGNATURE_BYTES
from signaling.message_fields import Bytes, Flag, Id, Int, List, Maybe, Record, Text, Word
from signaling.presence import NONCE_BYTES, Presence, Signal, SignalKind, Vouch

SIGNALING_PROTOCOL = 2  # the version of these messages
MAX_CLIENT_BYTES = 256 * 1024  # what a server takes: the largest message is a registration or an SDP
MAX_JOIN_BYTES = 16 * 1024  # what a server takes of who has not joined: a join has 1-2 KB
MAX_SERVER_BYTES = 1024 * 1024  # what a client takes: a welcome lists every member and revocation
MAX_SDP_CHARS = 64 * 1024  # real ones have 1-5 KB
MAX_NAME_CHARS = 64
MAX_TEXT_CHARS = 500
MAX_MEMBERS = 512
MAX_ICE_SERVERS = 16
MAX_REQUEST = 2**31 - 1
MAX_BATCH = 64  # grants or revocations in one registration


@dataclass(frozen=True)
class Challenge:
    """First message on every socket. The nonce is for one join on this socket."""

    protocol: int
    room_nonce: bytes


@dataclass(frozen=True)
class Join:
    """Prove the link and the own key. A grant or membership that the joiner has comes along: a server that lost
    its memory then lets it in again.
    """

    protocol: int
    mesh: str
    invite: bytes
    key: bytes
    name: str
    room_nonce: bytes
    join_nonce: bytes
    invite_proof: bytes
    peer_proof: bytes
    grant: Grant | None
    membership: Grant | None
    vouch: Vouch | None


@dataclass(frozen=True)
class Register:
    """Signed grants and revocations for the server to keep. `request` comes back with the answer."""

    request: int
    grants: tuple[Grant, ...]
    revocations: tuple[Revocation, ...]


@dataclass(frozen=True)
class Admit:
    """The founder makes a peer a lasting member."""

    membership: Grant


@dataclass(frozen=True)
class Leave:
    """The member goes for good; the server closes."""


@dataclass(frozen=True)
class Welcome:
    """The join was taken: the own record as everyone sees it, everyone else's, and how to reach them."""

    you: Presence
    members: tuple[Presence, ...]
    revocations: tuple[Revocation, ...]
    ice_servers: tuple[IceServer, ...]


@dataclass(frozen=True)
class Joined:
    """A member came, or came again with new nonces."""

    member: Presence


@dataclass(frozen=True)
class Left:
    """A member's socket is gone. Its connections to others may well go on."""

    peer: str
    reason: str


@dataclass(frozen=True)
class Registered:
    """All of registration `request` is kept (on disk, with a state folder), or why not (`code`)."""

    request: int
    code: str = ""
    text: str = ""


@dataclass(frozen=True)
class Revoked:
    """The founder withdrew an invite."""

    revocation: Revocation


@dataclass(frozen=True)
class Refused:
    """A message was not taken, or (`ends`) the socket closes now: an error of signaling by name."""

    code: str
    text: str
    ends: bool


@dataclass(frozen=True)
class Ice:
    """The ICE servers from now on: the credentials that came before end soon."""

    ice_servers: tuple[IceServer, ...]


@dataclass(frozen=True)
class Relay:
    """An offer, answer or candidate. The server looks at the receiver only."""

    signal: Signal


@dataclass(frozen=True)
class Admitted:
    """Server to members: the founder made a peer a lasting member."""

    membership: Grant


ClientMessage = Join | Register | Admit | Leave | Relay
ServerMessage = Challenge | Welcome | Joined | Left | Registered | Revoked | Refused | Ice | Relay | Admitted
Message = ClientMessage | ServerMessage

GRANT = Record(
    Grant,
    (
        ("mesh_key", Bytes((ED25519_BYTES,))),
        (
            "key",
            Bytes(
                (
                    ED25519_BYTES,
                    P256_BYTES,
                )
            ),
        ),
        ("role", Word(Role)),
        ("expires_unix", Int(MAX_UNIX)),
        ("uses", Int(MAX_USES)),
        (
            "via",
            Bytes(
                (
                    0,
                    ED25519_BYTES,
                )
            ),
        ),
        ("signature", Bytes((SIGNATURE_BYTES,))),
    ),
)
REVOCATION = Record(
    Revocation,
    (
        ("mesh_key", Bytes((ED25519_BYTES,))),
        ("key", Bytes((ED25519_BYTES,))),
        ("signature", Bytes((SIGNATURE_BYTES,))),
    ),
)
VOUCH = Record(
    Vouch,
    (
        (
            "key",
            Bytes(
                (
                    ED25519_BYTES,
                    P256_BYTES,
                )
            ),
        ),
        ("proof", Bytes((SIGNATURE_BYTES,))),
    ),
)
PRESENCE = Record(
    Presence,
    (
        (
            "key",
            Bytes(
                (
                    ED25519_BYTES,
                    P256_BYTES,
                )
            ),
        ),
        ("name", Text(MAX_NAME_CHARS, 1)),
        ("room_nonce", Bytes((NONCE_BYTES,))),
        ("join_nonce", Bytes((NONCE_BYTES,))),
        ("invite_proof", Bytes((SIGNATURE_BYTES,))),
        ("peer_proof", Bytes((SIGNATURE_BYTES,))),
        ("grant", GRANT),
        ("membership", Maybe(GRANT)),
        ("vouch", Maybe(VOUCH)),
    ),
)
SIGNAL = Record(
    Signal,
    (
        ("kind", Word(SignalKind)),
        ("connection", Bytes((NONCE_BYTES,))),
        ("sender", Id()),
        ("receiver", Id()),
        ("sender_nonce", Bytes((NONCE_BYTES,))),
        ("receiver_nonce", Bytes((NONCE_BYTES,))),
        ("text", Text(MAX_SDP_CHARS, lines=True)),
        ("signature", Bytes((SIGNATURE_BYTES,))),
    ),
)
ICE_SERVER = Record(
    IceServer,
    (
        ("urls", List(Text(200, 1), 8)),
        ("username", Text(MAX_TEXT_CHARS)),
        ("credential", Text(MAX_TEXT_CHARS)),
    ),
)
CLIENT: dict[str, Record[ClientMessage]] = {
    "join": Record(
        Join,
        (
            ("protocol", Int(2**31)),
            ("mesh", Id()),
            ("invite", Bytes((ED25519_BYTES,))),
            (
                "key",
                Bytes(
                    (
                        ED25519_BYTES,
                        P256_BYTES,
                    )
                ),
            ),
            ("name", Text(MAX_NAME_CHARS, 1)),
            ("room_nonce", Bytes((NONCE_BYTES,))),
            ("join_nonce", Bytes((NONCE_BYTES,))),
            ("invite_proof", Bytes((SIGNATURE_BYTES,))),
            ("peer_proof", Bytes((SIGNATURE_BYTES,))),
            ("grant", Maybe(GRANT)),
            ("membership", Maybe(GRANT)),
            ("vouch", Maybe(VOUCH)),
        ),
    ),
    "register": Record(
        Register,
        (
            ("request", Int(MAX_REQUEST)),
            ("grants", List(GRANT, MAX_BATCH)),
            ("revocations", List(REVOCATION, MAX_BATCH)),
        ),
    ),
    "admit": Record(Admit, (("membership", GRANT),)),
    "leave": Record(Leave, ()),
    "relay": Record(Relay, (("signal", SIGNAL),)),
}
SERVER: dict[str, Record[ServerMessage]] = {
    "challenge": Record(
        Challenge,
        (
            ("protocol", Int(2**31)),
            ("room_nonce", Bytes((NONCE_BYTES,))),
        ),
    ),
    "welcome": Record(
        Welcome,
        (
            ("you", PRESENCE),
            ("members", List(PRESENCE, MAX_MEMBERS)),
            ("revocations", List(REVOCATION, MAX_GRANTS)),
            ("ice_servers", List(ICE_SERVER, MAX_ICE_SERVERS)),
        ),
    ),
    "joined": Record(Joined, (("member", PRESENCE),)),
    "left": Record(
        Left,
        (
            ("peer", Id()),
            ("reason", Text(MAX_TEXT_CHARS)),
        ),
    ),
    "registered": Record(
        Registered,
        (
            ("request", Int(MAX_REQUEST)),
            ("code", Text(40)),
            ("text", Text(MAX_TEXT_CHARS)),
        ),
    ),
    "revoked": Record(Revoked, (("revocation", REVOCATION),)),
    "refused": Record(
        Refused,
        (
            ("code", Text(40, 1)),
            ("text", Text(MAX_TEXT_CHARS)),
            ("ends", Flag()),
        ),
    ),
    "ice": Record(Ice, (("ice_servers", List(ICE_SERVER, MAX_ICE_SERVERS)),)),
    "relay": Record(Relay, (("signal", SIGNAL),)),
    "admitted": Record(Admitted, (("membership", GRANT),)),
}
