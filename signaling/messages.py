"""Decides which messages exist between a member and the server, and what each may hold. Pure.

A message is one JSON object in a WebSocket text frame: `kind` and the fields of the table at the end of this
file, all of them and no others. Bytes are base64url without padding. There are no floats. Decoding checks
size, types, lengths and ranges before anything is built, and raises a MessageError that names the field.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NoReturn, Protocol, TypeVar

from signaling.errors import MalformedMessage, MessageTooLarge, UnknownMessage
from signaling.invites import MAX_GRANTS, MAX_UNIX, MAX_USES, Grant, Revocation, Role
from signaling.keys import ED25519_BYTES, P256_BYTES, SIGNATURE_BYTES, from_text, is_id, to_text
from signaling.presence import NONCE_BYTES, Presence, Signal, SignalKind, Vouch

PROTOCOL = 2
MAX_CLIENT_BYTES = 256 * 1024  # what a server takes: the largest message is a registration or an SDP
MAX_SERVER_BYTES = 1024 * 1024  # what a client takes: a welcome lists every member and revocation
MAX_SDP_CHARS = 64 * 1024  # real ones have 1-5 KB
MAX_NAME_CHARS = 64
MAX_TEXT_CHARS = 500
MAX_MEMBERS = 512
MAX_ICE_SERVERS = 16
MAX_REQUEST = (1 << 31) - 1
MAX_BATCH = 64  # grants or revocations in one registration


@dataclass(frozen=True)
class IceServer:
    """One STUN or TURN server, as WebRTC names it. The credential stays out of repr."""

    urls: tuple[str, ...]
    username: str = ""
    credential: str = ""

    def __repr__(self) -> str:
        return f"IceServer({', '.join(self.urls)})"


# --- member to server


@dataclass(frozen=True)
class Join:
    """Prove the link and the own key. A grant or membership that the joiner has comes along: a server that
    lost its memory then lets it in again.
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


# --- server to member


@dataclass(frozen=True)
class Challenge:
    """First message on every socket. The nonce is for one join on this socket."""

    protocol: int
    room_nonce: bytes


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


# --- both ways


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

# --- codec

T = TypeVar("T")
K = TypeVar("K", covariant=True)


class Field(Protocol[K]):
    """How one field is written and checked; JSON values are Any until a field has checked them."""

    def write(self, value: Any) -> Any:
        """Returns the value as JSON holds it."""

    def read(self, raw: Any, name: str) -> K:
        """Returns the value in parsed JSON. Raises MalformedMessage that names the field."""


def _wrong(name: str, expected: str, raw: object) -> NoReturn:
    came = type(raw).__name__
    if isinstance(raw, str | list | dict):
        came += f" of length {len(raw)}"
    raise MalformedMessage(f"field {name}: expected {expected}, got {came}")


@dataclass(frozen=True)
class _Text:
    most: int
    least: int = 0
    lines: bool = False  # CR and LF allowed; other control characters never are

    def write(self, value: str) -> str:
        return value

    def read(self, raw: Any, name: str) -> str:
        if not isinstance(raw, str) or not self.least <= len(raw) <= self.most:
            _wrong(name, f"text of {self.least} to {self.most} characters", raw)
        if not is_clean(raw, self.lines):
            raise MalformedMessage(f"field {name}: control characters and lone surrogates are not allowed")
        return raw


@dataclass(frozen=True)
class _Id:
    def write(self, value: str) -> str:
        return value

    def read(self, raw: Any, name: str) -> str:
        if not isinstance(raw, str) or not is_id(raw):
            _wrong(name, "an id of 32 characters a-z, 2-7", raw)
        return raw


@dataclass(frozen=True)
class _Bytes:
    lengths: tuple[int, ...]

    def write(self, value: bytes) -> str:
        return to_text(value)

    def read(self, raw: Any, name: str) -> bytes:
        expected = "base64url of " + " or ".join(map(str, self.lengths)) + " bytes"
        if not isinstance(raw, str) or len(raw) > 2 * max(self.lengths):
            _wrong(name, expected, raw)
        try:
            value = from_text(raw)
        except ValueError:
            _wrong(name, expected, raw)
        if len(value) not in self.lengths:
            _wrong(name, expected, raw)
        return value


@dataclass(frozen=True)
class _Int:
    most: int

    def write(self, value: int) -> int:
        return value

    def read(self, raw: Any, name: str) -> int:
        if not isinstance(raw, int) or isinstance(raw, bool) or not 0 <= raw <= self.most:
            _wrong(name, f"an integer from 0 to {self.most}", raw)
        return raw


@dataclass(frozen=True)
class _Flag:
    def write(self, value: bool) -> bool:
        return value

    def read(self, raw: Any, name: str) -> bool:
        if not isinstance(raw, bool):
            _wrong(name, "true or false", raw)
        return raw


@dataclass(frozen=True)
class _Word(Generic[T]):
    kind: Callable[[str], T]

    def write(self, value: Any) -> str:
        return str(value.value)

    def read(self, raw: Any, name: str) -> T:
        try:
            if isinstance(raw, str):
                return self.kind(raw)
        except ValueError:
            pass
        _wrong(name, "a word of the protocol", raw)


@dataclass(frozen=True)
class _List(Generic[K]):
    item: Field[K]
    most: int

    def write(self, value: tuple[Any, ...]) -> list[Any]:
        return [self.item.write(v) for v in value]

    def read(self, raw: Any, name: str) -> tuple[K, ...]:
        if not isinstance(raw, list) or len(raw) > self.most:
            _wrong(name, f"a list of at most {self.most}", raw)
        return tuple(self.item.read(v, f"{name}[{i}]") for i, v in enumerate(raw))


@dataclass(frozen=True)
class _Maybe(Generic[K]):
    item: Field[K]

    def write(self, value: Any) -> Any:
        return None if value is None else self.item.write(value)

    def read(self, raw: Any, name: str) -> K | None:
        return None if raw is None else self.item.read(raw, name)


@dataclass(frozen=True)
class Record(Generic[T]):
    """An object with exactly these fields, built into `kind`."""

    kind: Callable[..., T]
    fields: tuple[tuple[str, Field[object]], ...]

    def write(self, value: Any) -> dict[str, Any]:
        """Returns the record as an object of its fields."""
        return {name: f.write(getattr(value, name)) for name, f in self.fields}

    def read(self, raw: Any, name: str) -> T:
        """Returns the record in an object that has its fields and no others. Raises MalformedMessage."""
        if not isinstance(raw, dict):
            _wrong(name, "an object", raw)
        absent = [n for n, _ in self.fields if n not in raw]
        if absent:
            raise MalformedMessage(f"{name}: field {absent[0]} is absent")
        if len(raw) != len(self.fields):
            raise MalformedMessage(f"{name}: {len(self.fields)} fields expected, got {len(raw)}")
        return self.kind(**{n: f.read(raw[n], f"{name}.{n}") for n, f in self.fields})


def is_clean(text: str, lines: bool = False) -> bool:
    """Whether text can be shown in a terminal: no control characters, lone surrogates or bidi overrides."""
    return not any(
        (code < 32 and not (lines and c in "\r\n"))
        or 0x7F <= code < 0xA0
        or 0xD800 <= code < 0xE000
        or 0x202A <= code <= 0x202E
        or 0x2066 <= code <= 0x2069
        for c in text
        for code in (ord(c),)
    )


_KEY = _Bytes((ED25519_BYTES, P256_BYTES))
_MESH_KEY = _Bytes((ED25519_BYTES,))
_VIA = _Bytes((0, ED25519_BYTES))
_SIGNATURE = _Bytes((SIGNATURE_BYTES,))
_NONCE = _Bytes((NONCE_BYTES,))
_NAME = _Text(MAX_NAME_CHARS, 1)
_LINE = _Text(MAX_TEXT_CHARS)
GRANT = Record(
    Grant,
    (
        ("mesh_key", _MESH_KEY),
        ("key", _KEY),
        ("role", _Word(Role)),
        ("expires_unix", _Int(MAX_UNIX)),
        ("uses", _Int(MAX_USES)),
        ("via", _VIA),
        ("signature", _SIGNATURE),
    ),
)
REVOCATION = Record(Revocation, (("mesh_key", _MESH_KEY), ("key", _MESH_KEY), ("signature", _SIGNATURE)))
VOUCH = Record(Vouch, (("key", _KEY), ("proof", _SIGNATURE)))
PRESENCE = Record(
    Presence,
    (
        ("key", _KEY),
        ("name", _NAME),
        ("room_nonce", _NONCE),
        ("join_nonce", _NONCE),
        ("invite_proof", _SIGNATURE),
        ("peer_proof", _SIGNATURE),
        ("grant", GRANT),
        ("membership", _Maybe(GRANT)),
        ("vouch", _Maybe(VOUCH)),
    ),
)
SIGNAL = Record(
    Signal,
    (
        ("kind", _Word(SignalKind)),
        ("connection", _NONCE),
        ("sender", _Id()),
        ("receiver", _Id()),
        ("sender_nonce", _NONCE),
        ("receiver_nonce", _NONCE),
        ("text", _Text(MAX_SDP_CHARS, lines=True)),
        ("signature", _SIGNATURE),
    ),
)
ICE_SERVER = Record(
    IceServer, (("urls", _List(_Text(200, 1), 8)), ("username", _LINE), ("credential", _LINE))
)

_CLIENT: dict[str, Record[ClientMessage]] = {
    "join": Record(
        Join,
        (
            ("protocol", _Int(1 << 31)),
            ("mesh", _Id()),
            ("invite", _MESH_KEY),
            ("key", _KEY),
            ("name", _NAME),
            ("room_nonce", _NONCE),
            ("join_nonce", _NONCE),
            ("invite_proof", _SIGNATURE),
            ("peer_proof", _SIGNATURE),
            ("grant", _Maybe(GRANT)),
            ("membership", _Maybe(GRANT)),
            ("vouch", _Maybe(VOUCH)),
        ),
    ),
    "register": Record(
        Register,
        (
            ("request", _Int(MAX_REQUEST)),
            ("grants", _List(GRANT, MAX_BATCH)),
            ("revocations", _List(REVOCATION, MAX_BATCH)),
        ),
    ),
    "admit": Record(Admit, (("membership", GRANT),)),
    "leave": Record(Leave, ()),
    "relay": Record(Relay, (("signal", SIGNAL),)),
}
_SERVER: dict[str, Record[ServerMessage]] = {
    "challenge": Record(Challenge, (("protocol", _Int(1 << 31)), ("room_nonce", _NONCE))),
    "welcome": Record(
        Welcome,
        (
            ("you", PRESENCE),
            ("members", _List(PRESENCE, MAX_MEMBERS)),
            ("revocations", _List(REVOCATION, MAX_GRANTS)),
            ("ice_servers", _List(ICE_SERVER, MAX_ICE_SERVERS)),
        ),
    ),
    "joined": Record(Joined, (("member", PRESENCE),)),
    "left": Record(Left, (("peer", _Id()), ("reason", _LINE))),
    "registered": Record(Registered, (("request", _Int(MAX_REQUEST)), ("code", _Text(40)), ("text", _LINE))),
    "revoked": Record(Revoked, (("revocation", REVOCATION),)),
    "refused": Record(Refused, (("code", _Text(40, 1)), ("text", _LINE), ("ends", _Flag()))),
    "ice": Record(Ice, (("ice_servers", _List(ICE_SERVER, MAX_ICE_SERVERS)),)),
    "relay": Record(Relay, (("signal", SIGNAL),)),
    "admitted": Record(Admitted, (("membership", GRANT),)),
}
_KINDS: dict[Callable[..., object], tuple[str, Record[Any]]] = {
    r.kind: (kind, r) for table in (_CLIENT, _SERVER) for kind, r in table.items()
}


def encode(message: Message) -> str:
    """The JSON text of a message."""
    kind, record = _KINDS[type(message)]
    return json.dumps({"kind": kind, **record.write(message)}, separators=(",", ":"), ensure_ascii=False)


def decode_client(text: str) -> ClientMessage:
    """What a server received; raises a MessageError."""
    return _decode(text, _CLIENT, MAX_CLIENT_BYTES)


def decode_server(text: str) -> ServerMessage:
    """What a client received; raises a MessageError."""
    return _decode(text, _SERVER, MAX_SERVER_BYTES)


def _decode(text: str, table: dict[str, Record[T]], most: int) -> T:
    if len(text) > most:
        raise MessageTooLarge(f"a message has at most {most} bytes, this one has {len(text)}")
    raw = load_json(text)
    kind = raw.pop("kind", None)
    if not isinstance(kind, str):
        raise MalformedMessage("a message has a text field named kind, this one has none")
    record = table.get(kind)
    if record is None:
        raise UnknownMessage(f"messages are {', '.join(table)}; this one is {kind[:40]!r}")
    return record.read(raw, kind)


def load_json(text: str) -> dict[str, Any]:
    """A JSON object without floats or doubled names; raises MalformedMessage."""
    try:
        raw = json.loads(text, parse_float=_no_float, parse_constant=_no_float, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise MalformedMessage("a message is one JSON object; this text is not JSON") from error
    if not isinstance(raw, dict):
        raise MalformedMessage(f"a message is one JSON object, got {type(raw).__name__}")
    return raw


def _no_float(text: str) -> NoReturn:
    raise MalformedMessage(f"numbers are integers, got {text[:20]}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise MalformedMessage("a name occurs twice in one object")
    return made
