"""Decides which frames exist: what two peers can say to each other (docs/protocol.md, chapter Frames)."""

from dataclasses import dataclass
from enum import IntEnum

from peer.wire.tensors import Tensor


class Channel(IntEnum):
    """Data channels of a connection; the number is the negotiated channel id."""

    CONTROL = 1
    DATA = 2


class Kind(IntEnum):
    """Kind numbers."""

    HELLO = 1
    PING = 2
    PONG = 3
    BYE = 4
    BYE_ACK = 5
    CREDIT = 6
    REQUEST = 16
    RESPONSE = 17
    CONSENSUS = 20
    OPEN = 32
    STEP = 33
    TOKEN = 34
    REFUSE = 35
    CANCEL = 36
    RELEASE = 37
    PROBE = 38
    PROBE_ACK = 39
    BUNDLE = 40
    FEED = 41
    WHERE = 42
    HERE = 43
    PIECE_REQUEST = 48
    PIECE = 49


class Finish(IntEnum):
    """Why a TOKEN is the last one, or that it is not."""

    MORE = 0
    END_TOKEN = 1
    LENGTH = 2


class Role(IntEnum):
    """What an OPEN asks its receiver to be for a session."""

    SERVE = 0  # compute and pass on
    SHADOW = 1  # keep up behind those that serve, pass nothing on


@dataclass(frozen=True, slots=True)
class Hello:
    """First frame of each side. `peer` is the sender's peer id, `agent` its software and version."""

    protocol: int
    peer: str
    name: str
    agent: str


@dataclass(frozen=True, slots=True)
class Ping:
    nonce: int


@dataclass(frozen=True, slots=True)
class Pong:
    nonce: int


@dataclass(frozen=True, slots=True)
class Bye:
    """The last frame a side sends, apart from BYE_ACK. `reason` is for people and logs.

    `data_bytes` is the total of pieces sent on the data channel: BYE_ACK follows when all of them have come.
    """

    reason: str
    data_bytes: int


@dataclass(frozen=True, slots=True)
class ByeAck:
    pass


@dataclass(frozen=True, slots=True)
class Credit:
    """Its receiver may send `total_bytes` of pieces on `channel`, counted since the connection opened."""

    channel: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Request:
    """A question to the other peer; `body` is JSON."""

    id: int
    method: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Response:
    """The answer to a REQUEST. status 0 is success; `body` is JSON."""

    id: int
    status: int
    message: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Consensus:
    """One message between the Raft cores of two peers (peer.consensus.messages); `body` is msgpack."""

    body: bytes


@dataclass(frozen=True, slots=True)
class Open:
    """Opens a turn of a session on its receiver, which is stage `stage` of `route`, or shadows it (`role`).

    An answer may take several turns: `answer` is the first turn of this one, `before` that of the one before it (0:
    none), of which the first `keep` cached positions still hold. `start` is the first position that is sent unasked.
    `spans` are counts of positions, by turns given and sampled, that add up to `prompt_tokens`: given ones are
    computed together, sampled ones alone. `shadows` stand by for the stages in `shadow_stages`, one to one.
    `history` holds the token ids before the first sampled one, for repetition penalties (payload, int32); the
    last `generated` of them were sampled in this answer (an answer that goes on).
    """

    session: bytes
    turn: int
    plan: int
    route: tuple[str, ...]
    stage: int
    origin: str
    start: int
    prompt_tokens: int
    max_tokens: int
    sampling: tuple[int, ...]
    end_tokens: tuple[int, ...]
    generated: int
    role: int
    answer: int
    before: int
    keep: int
    spans: tuple[int, ...]
    shadow_stages: tuple[int, ...]
    shadows: tuple[str, ...]
    history: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """`count` positions from `position` on, for stage `stage`: int32 tokens (count,) or float32 states
    (count, hidden).
    """

    session: bytes
    turn: int
    stage: int
    position: int
    count: int
    last: int
    tensor: Tensor


@dataclass(frozen=True, slots=True)
class Token:
    """`body`: for an asker that wants them, probabilities (peer.session.steering.likely)."""

    session: bytes
    turn: int
    position: int
    token: int
    finish: int
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Refuse:
    """A step that `stage` could not take; `have` is the number of positions it has cached."""

    session: bytes
    turn: int
    stage: int
    position: int
    have: int
    reason: int
    message: str


@dataclass(frozen=True, slots=True)
class Feed:
    """The sender, at place `stage`, asks for its input from `position` on: of the stage before it, or of the asker."""

    session: bytes
    turn: int
    stage: int
    position: int


@dataclass(frozen=True, slots=True)
class Where:
    """Asks how far stage `stage` has come."""

    session: bytes
    turn: int
    stage: int


@dataclass(frozen=True, slots=True)
class Here:
    """The answer: positions that came in order, positions computed, and steps that the peer ran for anybody so far."""

    session: bytes
    turn: int
    stage: int
    received: int
    computed: int
    steps: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stops a turn; the first `keep` positions stay cached."""

    session: bytes
    turn: int
    keep: int
    reason: str


@dataclass(frozen=True, slots=True)
class Release:
    """Frees the session's slot."""

    session: bytes


@dataclass(frozen=True, slots=True)
class Probe:
    """Bytes to be counted, to measure a link."""

    nonce: int
    body: bytes


@dataclass(frozen=True, slots=True)
class ProbeAck:
    nonce: int
    received_bytes: int


@dataclass(frozen=True, slots=True)
class Bundle:
    """Data frames that were made together, to be handled together: their encoded bytes, one after the other.

    `sizes` are their lengths in order. A bundle holds no bundle.
    """

    sizes: tuple[int, ...]
    body: bytes


@dataclass(frozen=True, slots=True)
class PieceRequest:
    """Asks for `count` bytes from `offset` on of the piece of weights with this SHA-256."""

    id: int
    sha256: bytes
    offset: int
    count: int


@dataclass(frozen=True, slots=True)
class Piece:
    """The answer to a PIECE_REQUEST. status 0: `body` is what was asked for; 1: it is not here."""

    id: int
    status: int
    body: bytes


Frame = (
    Hello
    | Ping
    | Pong
    | Bye
    | ByeAck
    | Credit
    | Request
    | Response
    | Consensus
    | Open
    | Step
    | Token
    | Refuse
    | Cancel
    | Release
    | Probe
    | ProbeAck
    | Bundle
    | PieceRequest
    | Piece
    | Feed
    | Where
    | Here
)
