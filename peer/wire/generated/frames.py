"""Frames: what two peers say to each other (docs/protocol.md, chapter Frames). Pure.

Generated from schema/frames.toml by `make generate`: change that, not this.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple

from peer.limits import (
    HASH_BYTES,
    MAX_BODY_BYTES,
    MAX_BUNDLE_BYTES,
    MAX_BUNDLE_FRAMES,
    MAX_CONSENSUS_BYTES,
    MAX_END_TOKENS,
    MAX_HISTORY,
    MAX_INT,
    MAX_LIKELY_BYTES,
    MAX_NAME_BYTES,
    MAX_PROBE_BYTES,
    MAX_RANGE_BYTES,
    MAX_ROUTE,
    MAX_SAMPLING,
    MAX_SHADOWS,
    MAX_SPANS,
    MAX_TEAM,
    MAX_TEAM_ROWS,
    MAX_TENSOR_BYTES,
    MAX_TEXT_BYTES,
    MAX_TOKEN,
    MAX_VALUE_RANK,
    SESSION_BYTES,
)
from peer.wire.frame_fields import fits_integers, fits_text, fits_texts, wrong_count, wrong_field
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
    RUN_VALUE = 56
    RUN_GO = 57
    RUN_ITEM_FAILED = 58
    TEAM_STEP = 64
    TEAM_PART = 65
    TEAM_ROWS = 66
    TEAM_END = 67


class Finish(IntEnum):
    """Why a TOKEN is the last one, or that it is not."""

    MORE = 0
    END_TOKEN = 1
    LENGTH = 2


class Role(IntEnum):
    """What an OPEN asks its receiver to be for a session: compute and pass on, or keep up behind those that serve."""

    SERVE = 0
    SHADOW = 1


class TeamWork(IntEnum):
    """What a TEAM_STEP has computed: tokens of one row, one token of each of several rows, or logits."""

    PROMPT = 0
    DECODE = 1
    HEAD = 2


class TeamKeep(IntEnum):
    """What becomes of the rows that members keep: arrays of another size, one row copied to another, rows let go."""

    GROW = 0
    MOVE = 1
    LET_GO = 2


@dataclass(frozen=True, slots=True)
class Hello:
    """First frame of each side. `peer` is the sender's peer id, `agent` its software and version."""

    protocol: int
    peer: str
    name: str
    agent: str


@dataclass(frozen=True, slots=True)
class Ping:
    """Asks for a PONG of the same nonce."""

    nonce: int


@dataclass(frozen=True, slots=True)
class Pong:
    """The answer to a PING."""

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
    """The answer to a BYE."""


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
    """The answer to a REQUEST. `status` 0 is success; `body` is JSON."""

    id: int
    status: int
    message: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Consensus:
    """One message between the Raft cores of two peers (consensus/messages); `body` is msgpack."""

    body: bytes


@dataclass(frozen=True, slots=True)
class Open:
    """Opens a turn of a session on its receiver, which is stage `stage` of `route`, or shadows it (`role`).

    An answer may take several turns: `answer` is the first turn of this one, `before` that of the one before
    it (0: none), of which the first `keep` cached positions still hold. `start` is the first position that
    is sent unasked. `spans` are counts of positions, by turns given and sampled, that add up to
    `prompt_tokens`: given ones are computed together, sampled ones alone. `shadows` stand by for the stages
    in `shadow_stages`, one to one. `history` holds the token ids before the first sampled one, for
    repetition penalties (payload, int32); the last `generated` of them were sampled in this answer (an
    answer that goes on).
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
    """`count` positions from `position` on, for stage `stage`: int32 tokens (count,), or with shifts (count,
    2), or float32 states (count, hidden).
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
    """`body`: for an origin that wants them, probabilities (docs/protocol.md, chapter Steering); no tab does."""

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
    """The answer to a PROBE: how many bytes came."""

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
class Feed:
    """The sender, at place `stage`, asks for its input from `position` on: of the stage before it, or of the origin."""

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
class PieceRequest:
    """Asks for `count` bytes from `offset` on of the piece of weights with this SHA-256."""

    id: int
    sha256: bytes
    offset: int
    count: int


@dataclass(frozen=True, slots=True)
class Piece:
    """The answer to a PIECE_REQUEST. `status` 0: `body` is what was asked for; 1: it is not here."""

    id: int
    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class RunValue:
    """A part of a value of item `item` of a run, from `offset` on of `total` bytes (chapter Runs). Parts come
    in order.

    `value` is its place in the manifest's values, which say its data type; `shape` fits what they say.
    """

    run: bytes
    epoch: int
    item: int
    value: int
    shape: tuple[int, ...]
    offset: int
    total: int
    body: bytes


@dataclass(frozen=True, slots=True)
class RunGo:
    """All stages of a run have opened `epoch`. Items below `below` are done: what is kept of them is let go."""

    run: bytes
    epoch: int
    below: int


@dataclass(frozen=True, slots=True)
class RunItemFailed:
    """An item that a stage of the run cannot compute, to the origin; the items beside it go on."""

    run: bytes
    epoch: int
    item: int
    message: str


@dataclass(frozen=True, slots=True)
class TeamStep:
    """The lead of a team (chapter Teams) has its members compute: `count` rows of float32 states, which are the
    payload.

    `call` rises by one with each TEAM_STEP and TEAM_ROWS of a team. PROMPT: tokens of row `row` from
    position `lengths[0]` on; DECODE: one token of each of the rows from `row` on, at positions `lengths`;
    HEAD: logits, without rows.
    """

    session: bytes
    call: int
    work: int
    row: int
    count: int
    lengths: tuple[int, ...]
    tensor: Tensor


@dataclass(frozen=True, slots=True)
class TeamPart:
    """What `member` made of unit `unit` in `call`: its part of the sum, or of the logits; `count` rows of float32."""

    session: bytes
    call: int
    unit: int
    member: int
    count: int
    tensor: Tensor


@dataclass(frozen=True, slots=True)
class TeamRows:
    """The lead changes the rows that members keep.

    `numbers`: for GROW how many rows and positions, then how many positions each row has; for MOVE the row,
    where it goes and how many positions; for LET_GO how many rows stay.
    """

    session: bytes
    call: int
    what: int
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TeamEnd:
    """The team is over for its sender, and why; each member lets go of what it keeps for it."""

    session: bytes
    message: str


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
    | Feed
    | Where
    | Here
    | PieceRequest
    | Piece
    | RunValue
    | RunGo
    | RunItemFailed
    | TeamStep
    | TeamPart
    | TeamRows
    | TeamEnd
)


class Layout(NamedTuple):
    """How one kind is laid out: its number, its channel, the fields of its header, and what follows the header.

    `values` returns a frame's fields in order; `check` raises WrongField unless such values fit.
    """

    frame: type[Any]
    kind: Kind
    channel: Channel
    values: Callable[[Any], tuple[Any, ...]]
    check: Callable[[Sequence[Any]], None]
    payload: Literal["none", "body", "tokens", "tensor"]
    max_payload_bytes: int


def _check_hello(values: Sequence[Any]) -> None:
    if len(values) != 4:
        raise wrong_count("HELLO", 4, values)
    protocol, peer, name, agent = values
    if type(protocol) is not int or not 0 <= protocol <= MAX_INT:
        raise wrong_field("HELLO.protocol", "an integer from 0 to 9007199254740991", protocol)
    if not fits_text(peer, MAX_NAME_BYTES):
        raise wrong_field("HELLO.peer", "text of at most 128 bytes", peer)
    if not fits_text(name, MAX_NAME_BYTES):
        raise wrong_field("HELLO.name", "text of at most 128 bytes", name)
    if not fits_text(agent, MAX_NAME_BYTES):
        raise wrong_field("HELLO.agent", "text of at most 128 bytes", agent)


def _check_ping(values: Sequence[Any]) -> None:
    if len(values) != 1:
        raise wrong_count("PING", 1, values)
    (nonce,) = values
    if type(nonce) is not int or not 0 <= nonce <= MAX_INT:
        raise wrong_field("PING.nonce", "an integer from 0 to 9007199254740991", nonce)


def _check_pong(values: Sequence[Any]) -> None:
    if len(values) != 1:
        raise wrong_count("PONG", 1, values)
    (nonce,) = values
    if type(nonce) is not int or not 0 <= nonce <= MAX_INT:
        raise wrong_field("PONG.nonce", "an integer from 0 to 9007199254740991", nonce)


def _check_bye(values: Sequence[Any]) -> None:
    if len(values) != 2:
        raise wrong_count("BYE", 2, values)
    reason, data_bytes = values
    if not fits_text(reason, MAX_TEXT_BYTES):
        raise wrong_field("BYE.reason", "text of at most 4096 bytes", reason)
    if type(data_bytes) is not int or not 0 <= data_bytes <= MAX_INT:
        raise wrong_field("BYE.data_bytes", "an integer from 0 to 9007199254740991", data_bytes)


def _check_bye_ack(values: Sequence[Any]) -> None:
    if len(values) != 0:
        raise wrong_count("BYE_ACK", 0, values)


def _check_credit(values: Sequence[Any]) -> None:
    if len(values) != 2:
        raise wrong_count("CREDIT", 2, values)
    channel, total_bytes = values
    if type(channel) is not int or not 2 <= channel <= 2:
        raise wrong_field("CREDIT.channel", "an integer from 2 to 2", channel)
    if type(total_bytes) is not int or not 0 <= total_bytes <= MAX_INT:
        raise wrong_field("CREDIT.total_bytes", "an integer from 0 to 9007199254740991", total_bytes)


def _check_request(values: Sequence[Any]) -> None:
    if len(values) != 2:
        raise wrong_count("REQUEST", 2, values)
    id, method = values
    if type(id) is not int or not 0 <= id <= MAX_INT:
        raise wrong_field("REQUEST.id", "an integer from 0 to 9007199254740991", id)
    if not fits_text(method, MAX_NAME_BYTES):
        raise wrong_field("REQUEST.method", "text of at most 128 bytes", method)


def _check_response(values: Sequence[Any]) -> None:
    if len(values) != 3:
        raise wrong_count("RESPONSE", 3, values)
    id, status, message = values
    if type(id) is not int or not 0 <= id <= MAX_INT:
        raise wrong_field("RESPONSE.id", "an integer from 0 to 9007199254740991", id)
    if type(status) is not int or not 0 <= status <= 65535:
        raise wrong_field("RESPONSE.status", "an integer from 0 to 65535", status)
    if not fits_text(message, MAX_TEXT_BYTES):
        raise wrong_field("RESPONSE.message", "text of at most 4096 bytes", message)


def _check_consensus(values: Sequence[Any]) -> None:
    if len(values) != 0:
        raise wrong_count("CONSENSUS", 0, values)


def _check_open(values: Sequence[Any]) -> None:
    if len(values) != 19:
        raise wrong_count("OPEN", 19, values)
    (
        session,
        turn,
        plan,
        route,
        stage,
        origin,
        start,
        prompt_tokens,
        max_tokens,
        sampling,
        end_tokens,
        generated,
        role,
        answer,
        before,
        keep,
        spans,
        shadow_stages,
        shadows,
    ) = values
    if type(session) is not bytes or len(session) != SESSION_BYTES:
        raise wrong_field("OPEN.session", "16 bytes", session)
    if type(turn) is not int or not 0 <= turn <= MAX_INT:
        raise wrong_field("OPEN.turn", "an integer from 0 to 9007199254740991", turn)
    if type(plan) is not int or not 0 <= plan <= MAX_INT:
        raise wrong_field("OPEN.plan", "an integer from 0 to 9007199254740991", plan)
    if not fits_texts(route, MAX_ROUTE, MAX_NAME_BYTES):
        raise wrong_field("OPEN.route", "at most 64 texts, each text of at most 128 bytes", route)
    if type(stage) is not int or not 0 <= stage <= MAX_ROUTE - 1:
        raise wrong_field("OPEN.stage", "an integer from 0 to 63", stage)
    if not fits_text(origin, MAX_NAME_BYTES):
        raise wrong_field("OPEN.origin", "text of at most 128 bytes", origin)
    if type(start) is not int or not 0 <= start <= MAX_INT:
        raise wrong_field("OPEN.start", "an integer from 0 to 9007199254740991", start)
    if type(prompt_tokens) is not int or not 0 <= prompt_tokens <= MAX_INT:
        raise wrong_field("OPEN.prompt_tokens", "an integer from 0 to 9007199254740991", prompt_tokens)
    if type(max_tokens) is not int or not 0 <= max_tokens <= MAX_INT:
        raise wrong_field("OPEN.max_tokens", "an integer from 0 to 9007199254740991", max_tokens)
    if not fits_integers(sampling, MAX_SAMPLING, -MAX_INT, MAX_INT):
        raise wrong_field(
            "OPEN.sampling", "at most 32 integers from -9007199254740991 to 9007199254740991", sampling
        )
    if not fits_integers(end_tokens, MAX_END_TOKENS, 0, MAX_TOKEN):
        raise wrong_field("OPEN.end_tokens", "at most 64 integers from 0 to 2147483647", end_tokens)
    if type(generated) is not int or not 0 <= generated <= MAX_HISTORY:
        raise wrong_field("OPEN.generated", "an integer from 0 to 262144", generated)
    if type(role) is not int or not 0 <= role <= 1:
        raise wrong_field("OPEN.role", "an integer from 0 to 1", role)
    if type(answer) is not int or not 0 <= answer <= MAX_INT:
        raise wrong_field("OPEN.answer", "an integer from 0 to 9007199254740991", answer)
    if type(before) is not int or not 0 <= before <= MAX_INT:
        raise wrong_field("OPEN.before", "an integer from 0 to 9007199254740991", before)
    if type(keep) is not int or not 0 <= keep <= MAX_INT:
        raise wrong_field("OPEN.keep", "an integer from 0 to 9007199254740991", keep)
    if not fits_integers(spans, MAX_SPANS, 0, MAX_INT):
        raise wrong_field("OPEN.spans", "at most 512 integers from 0 to 9007199254740991", spans)
    if not fits_integers(shadow_stages, MAX_SHADOWS, 0, MAX_ROUTE - 1):
        raise wrong_field("OPEN.shadow_stages", "at most 128 integers from 0 to 63", shadow_stages)
    if not fits_texts(shadows, MAX_SHADOWS, MAX_NAME_BYTES):
        raise wrong_field("OPEN.shadows", "at most 128 texts, each text of at most 128 bytes", shadows)


def _check_step(values: Sequence[Any]) -> None:
    if len(values) != 6:
        raise wrong_count("STEP", 6, values)
    session, turn, stage, position, count, last = values
    if type(session) is not bytes or len(session) != SESSION_BYTES:
        raise wrong_field("STEP.session", "16 bytes", session)
    if type(turn) is not int or not 0 <= turn <= MAX_INT:
        raise wrong_field("STEP.turn", "an integer from 0 to 9007199254740991", turn)
    if type(stage) is not int or not 0 <= stage <= MAX_ROUTE - 1:
        raise wrong_field("STEP.stage", "an integer from 0 to 63", stage)
    if type(position) is not int or not 0 <= position <= MAX_INT:
        raise wrong_field("STEP.position", "an integer from 0 to 9007199254740991", position)
    if type(count) is not int or not 1 <= count <= MAX_TOKEN:
        raise wrong_field("STEP.count", "an integer from 1 to 2147483647", count)
    if type(last) is not int or not 0 <= last <= 1:
        raise wrong_field("STEP.last", "an integer from 0 to 1", last)


def _check_token(values: Sequence[Any]) -> None:
    if len(values) != 5:
        raise wrong_count("TOKEN", 5, values)
    session, turn, position, token, finish = values
    if type(session) is not bytes or len(session) != SESSION_BYTES:
        raise wrong_field("TOKEN.session", "16 bytes", session)
    if type(turn) is not int or not 0 <= turn <= MAX_INT:
        raise wrong_field("TOKEN.turn", "an integer from 0 to 9007199254740991", turn)
    if type(position) is not int or not 0 <= position <= MAX_INT:
        raise wrong_field("TOKEN.position", "an integer from 0 to 9007199254740991", position)
    if type(token) is not int or not 0 <= token <= MAX_TOKEN:
        raise wrong_field("TOKEN.token", "an integer from 0 to 2147483647", token)
    if type(finish) is not int or not 0 <= finish <= 2:
        raise wrong_field("TOKEN.finish", "an integer from 0 to 2", finish)


def _check_refuse(values: Sequence[Any]) -> None:
    if len(values) != 7:
        raise wrong_count("REFUSE", 7, values)
    session, turn, stage, position, have, reason, message = values
    if type(session) is not bytes or len(session) != SESSION_BYTES:
        raise wrong_field("REFUSE.session", "16 bytes", session)
    if type(turn) is not int or not 0 <= turn <= MAX_INT:
        raise wrong_field("REFUSE.turn", "an integer from 0 to 9007199254740991", turn)
    if type(stage) is not int or not 0 <= stage <= MAX_ROUTE - 1:
        raise wrong_field("REFUSE.stage", "an integer from 0 to 63", stage)
    if type(position) is not int or not 0 <= position <= MAX_INT:
        raise wrong_field("REFUSE.position", "an integer from 0 to 9007199254740991", position)
    if type(have) is not int or not 0 <= have <= MAX_INT:
        raise wrong_field("REFUSE.have", "an integer from 0 to 9007199254740991", have)
    if type(reason) is not int or not 0 <= reason <= 255:
        raise wrong_field("REFUSE.reason", "an integer from 0 to 255", reason)
    if not fits_text(message, MAX_TEXT_BYTES):
        raise wrong_field("REFUSE.message", "text of at most 4096 bytes", message)


def _check_cancel(values: Sequence[Any]) -> None:
    if len(values) != 4:
        raise wrong_count("CANCEL", 4, values)
    session, turn, keep, reason = values
    if type(session) is not bytes or len(session) != SESSION_BYTES:
        raise wrong_field("CANCEL.session", "16 bytes", session)
    if type(turn) is not int or not 0 <= turn <= MAX_INT:
        raise wrong_field("CANCEL.turn", "an integer from 0 to 9007199254740991", turn)
    if type(keep) is not int or not 0 <= keep <= MAX_INT:
        raise wrong_field("CANCEL.keep", "an integer from 0 to 9007199254740991", keep)
    if not fits_text(reason, MAX_TEXT_BYTES):
        raise wrong_field("CANCEL.reason", "text of at most 4096 bytes", reason)


def _check_release(values: Sequence[Any]) -> None:
    if len(values) != 1:
        raise wrong_count("RELEASE", 1, values)
    (session,) = values
    if type(session) is not bytes or len(session) != SESSION_BYTES:
        raise wrong_field("RELEASE.session", "16 bytes", session)


def _check_probe(values: Sequence[Any]) -> None:
    if len(values) != 1:
        raise wrong_count("PROBE", 1, values)
    (nonce,) = values
    if type(nonce) is not int or not 0 <= nonce <= MAX_INT:
        raise wrong_field("PROBE.nonce", "an integer from 0 to 9007199254740991", nonce)


def _check_probe_ack(values: Sequence[Any]) -> None:
    if len(values) != 2:
        raise wrong_count("PROBE_ACK", 2, values)
    nonce, received_bytes = values
    if type(nonce) is not int or not 0 <= nonce <= MAX_INT:
        raise wrong_field("PROBE_ACK.nonce", "an integer from 0 to 9007199254740991", nonce)
    if type(received_bytes) is not int or not 0 <= received_bytes <= MAX_INT:
        raise wrong_field("PROBE_ACK.received_bytes", "an integer from 0 to 9007199254740991", received_bytes)


def _check_bundle(values: Sequence[Any]) -> None:
    if len(values) != 1:
        raise wrong_count("BUNDLE", 1, values)
    (sizes,) = values
    if not fits_integers(sizes, MAX_BUNDLE_FRAMES, 1, MAX_INT):
        raise wrong_field("BUNDLE.sizes", "at most 64 integers from 1 to 9007199254740991", sizes)


def _check_feed(values: Sequence[Any]) -> None:
    if len(values) != 4:
        raise wrong_count("FEED", 4, values)
    session, turn, stage, position = values
    if type(session) is not bytes or len(session) != SESSION_BYTES:
        raise wrong_field("FEED.session", "16 bytes", session)
    if type(turn) is not int or not 0 <= turn <= MAX_INT:
        raise wrong_field("FEED.turn", "an integer from 0 to 9007199254740991", turn)
    if type(stage) is not int or not 0 <= stage <= MAX_ROUTE - 1:
        raise wrong_field("FEED.stage", "an integer from 0 to 63", stage)
    if type(position) is not int or not 0 <= position <= MAX_INT:
        raise wrong_field("FEED.position", "an integer from 0 to 9007199254740991", position)


def _check_where(values: Sequence[Any]) -> None:
    if len(values) != 3:
        raise wrong_count("WHERE", 3, values)
    session, turn, stage = values
    if type(session) is not bytes or len(session) != SESSION_BYTES:
        raise wrong_field("WHERE.session", "16 bytes", session)
    if type(turn) is not int or not 0 <= turn <= MAX_INT:
        raise wrong_field("WHERE.turn", "an integer from 0 to 9007199254740991", turn)
    if type(stage) is not int or not 0 <= stage <= MAX_ROUTE - 1:
        raise wrong_field("WHERE.stage", "an integer from 0 to 63", stage)


def _check_here(values: Sequence[Any]) -> None:
    if len(values) != 6:
        raise wrong_count("HERE", 6, values)
    session, turn, stage, received, computed, steps = values
    if type(session) is not bytes or len(session) != SESSION_BYTES:
        raise wrong_field("HERE.session", "16 bytes", session)
    if type(turn) is not int or not 0 <= turn <= MAX_INT:
        raise wrong_field("HERE.turn", "an integer from 0 to 9007199254740991", turn)
    if type(stage) is not int or not 0 <= stage <= MAX_ROUTE - 1:
        raise wrong_field("HERE.stage", "an integer from 0 to 63", stage)
    if type(received) is not int or not 0 <= received <= MAX_INT:
        raise wrong_field("HERE.received", "an integer from 0 to 9007199254740991", received)
    if type(computed) is not int or not 0 <= computed <= MAX_INT:
        raise wrong_field("HERE.computed", "an integer from 0 to 9007199254740991", computed)
    if type(steps) is not int or not 0 <= steps <= MAX_INT:
        raise wrong_field("HERE.steps", "an integer from 0 to 9007199254740991", steps)


def _check_piece_request(values: Sequence[Any]) -> None:
    if len(values) != 4:
        raise wrong_count("PIECE_REQUEST", 4, values)
    id, sha256, offset, count = values
    if type(id) is not int or not 0 <= id <= MAX_INT:
        raise wrong_field("PIECE_REQUEST.id", "an integer from 0 to 9007199254740991", id)
    if type(sha256) is not bytes or len(sha256) != HASH_BYTES:
        raise wrong_field("PIECE_REQUEST.sha256", "32 bytes", sha256)
    if type(offset) is not int or not 0 <= offset <= MAX_INT:
        raise wrong_field("PIECE_REQUEST.offset", "an integer from 0 to 9007199254740991", offset)
    if type(count) is not int or not 1 <= count <= MAX_RANGE_BYTES:
        raise wrong_field("PIECE_REQUEST.count", "an integer from 1 to 262144", count)


def _check_piece(values: Sequence[Any]) -> None:
    if len(values) != 2:
        raise wrong_count("PIECE", 2, values)
    id, status = values
    if type(id) is not int or not 0 <= id <= MAX_INT:
        raise wrong_field("PIECE.id", "an integer from 0 to 9007199254740991", id)
    if type(status) is not int or not 0 <= status <= 1:
        raise wrong_field("PIECE.status", "an integer from 0 to 1", status)


def _check_run_value(values: Sequence[Any]) -> None:
    if len(values) != 7:
        raise wrong_count("RUN_VALUE", 7, values)
    run, epoch, item, value, shape, offset, total = values
    if type(run) is not bytes or len(run) != SESSION_BYTES:
        raise wrong_field("RUN_VALUE.run", "16 bytes", run)
    if type(epoch) is not int or not 0 <= epoch <= MAX_INT:
        raise wrong_field("RUN_VALUE.epoch", "an integer from 0 to 9007199254740991", epoch)
    if type(item) is not int or not 0 <= item <= MAX_INT:
        raise wrong_field("RUN_VALUE.item", "an integer from 0 to 9007199254740991", item)
    if type(value) is not int or not 0 <= value <= MAX_INT:
        raise wrong_field("RUN_VALUE.value", "an integer from 0 to 9007199254740991", value)
    if not fits_integers(shape, MAX_VALUE_RANK, 0, MAX_INT):
        raise wrong_field("RUN_VALUE.shape", "at most 16 integers from 0 to 9007199254740991", shape)
    if type(offset) is not int or not 0 <= offset <= MAX_INT:
        raise wrong_field("RUN_VALUE.offset", "an integer from 0 to 9007199254740991", offset)
    if type(total) is not int or not 0 <= total <= MAX_INT:
        raise wrong_field("RUN_VALUE.total", "an integer from 0 to 9007199254740991", total)


def _check_run_go(values: Sequence[Any]) -> None:
    if len(values) != 3:
        raise wrong_count("RUN_GO", 3, values)
    run, epoch, below = values
    if type(run) is not bytes or len(run) != SESSION_BYTES:
        raise wrong_field("RUN_GO.run", "16 bytes", run)
    if type(epoch) is not int or not 0 <= epoch <= MAX_INT:
        raise wrong_field("RUN_GO.epoch", "an integer from 0 to 9007199254740991", epoch)
    if type(below) is not int or not 0 <= below <= MAX_INT:
        raise wrong_field("RUN_GO.below", "an integer from 0 to 9007199254740991", below)


def _check_run_item_failed(values: Sequence[Any]) -> None:
    if len(values) != 4:
        raise wrong_count("RUN_ITEM_FAILED", 4, values)
    run, epoch, item, message = values
    if type(run) is not bytes or len(run) != SESSION_BYTES:
        raise wrong_field("RUN_ITEM_FAILED.run", "16 bytes", run)
    if type(epoch) is not int or not 0 <= epoch <= MAX_INT:
        raise wrong_field("RUN_ITEM_FAILED.epoch", "an integer from 0 to 9007199254740991", epoch)
    if type(item) is not int or not 0 <= item <= MAX_INT:
        raise wrong_field("RUN_ITEM_FAILED.item", "an integer from 0 to 9007199254740991", item)
    if not fits_text(message, MAX_TEXT_BYTES):
        raise wrong_field("RUN_ITEM_FAILED.message", "text of at most 4096 bytes", message)


def _check_team_step(values: Sequence[Any]) -> None:
    if len(values) != 6:
        raise wrong_count("TEAM_STEP", 6, values)
    session, call, work, row, count, lengths = values
    if type(session) is not bytes or len(session) != SESSION_BYTES:
        raise wrong_field("TEAM_STEP.session", "16 bytes", session)
    if type(call) is not int or not 0 <= call <= MAX_INT:
        raise wrong_field("TEAM_STEP.call", "an integer from 0 to 9007199254740991", call)
    if type(work) is not int or not 0 <= work <= 2:
        raise wrong_field("TEAM_STEP.work", "an integer from 0 to 2", work)
    if type(row) is not int or not 0 <= row <= MAX_INT:
        raise wrong_field("TEAM_STEP.row", "an integer from 0 to 9007199254740991", row)
    if type(count) is not int or not 1 <= count <= MAX_TOKEN:
        raise wrong_field("TEAM_STEP.count", "an integer from 1 to 2147483647", count)
    if not fits_integers(lengths, MAX_TEAM_ROWS, 0, MAX_INT):
        raise wrong_field("TEAM_STEP.lengths", "at most 512 integers from 0 to 9007199254740991", lengths)


def _check_team_part(values: Sequence[Any]) -> None:
    if len(values) != 5:
        raise wrong_count("TEAM_PART", 5, values)
    session, call, unit, member, count = values
    if type(session) is not bytes or len(session) != SESSION_BYTES:
        raise wrong_field("TEAM_PART.session", "16 bytes", session)
    if type(call) is not int or not 0 <= call <= MAX_INT:
        raise wrong_field("TEAM_PART.call", "an integer from 0 to 9007199254740991", call)
    if type(unit) is not int or not 0 <= unit <= MAX_INT:
        raise wrong_field("TEAM_PART.unit", "an integer from 0 to 9007199254740991", unit)
    if type(member) is not int or not 0 <= member <= MAX_TEAM - 1:
        raise wrong_field("TEAM_PART.member", "an integer from 0 to 15", member)
    if type(count) is not int or not 1 <= count <= MAX_TOKEN:
        raise wrong_field("TEAM_PART.count", "an integer from 1 to 2147483647", count)


def _check_team_rows(values: Sequence[Any]) -> None:
    if len(values) != 4:
        raise wrong_count("TEAM_ROWS", 4, values)
    session, call, what, numbers = values
    if type(session) is not bytes or len(session) != SESSION_BYTES:
        raise wrong_field("TEAM_ROWS.session", "16 bytes", session)
    if type(call) is not int or not 0 <= call <= MAX_INT:
        raise wrong_field("TEAM_ROWS.call", "an integer from 0 to 9007199254740991", call)
    if type(what) is not int or not 0 <= what <= 2:
        raise wrong_field("TEAM_ROWS.what", "an integer from 0 to 2", what)
    if not fits_integers(numbers, MAX_TEAM_ROWS, 0, MAX_INT):
        raise wrong_field("TEAM_ROWS.numbers", "at most 512 integers from 0 to 9007199254740991", numbers)


def _check_team_end(values: Sequence[Any]) -> None:
    if len(values) != 2:
        raise wrong_count("TEAM_END", 2, values)
    session, message = values
    if type(session) is not bytes or len(session) != SESSION_BYTES:
        raise wrong_field("TEAM_END.session", "16 bytes", session)
    if not fits_text(message, MAX_TEXT_BYTES):
        raise wrong_field("TEAM_END.message", "text of at most 4096 bytes", message)


LAYOUTS: Final[tuple[Layout, ...]] = (
    Layout(
        Hello,
        Kind.HELLO,
        Channel.CONTROL,
        attrgetter("protocol", "peer", "name", "agent"),
        _check_hello,
        "none",
        0,
    ),
    Layout(Ping, Kind.PING, Channel.CONTROL, lambda frame: (frame.nonce,), _check_ping, "none", 0),
    Layout(Pong, Kind.PONG, Channel.CONTROL, lambda frame: (frame.nonce,), _check_pong, "none", 0),
    Layout(Bye, Kind.BYE, Channel.CONTROL, attrgetter("reason", "data_bytes"), _check_bye, "none", 0),
    Layout(ByeAck, Kind.BYE_ACK, Channel.CONTROL, lambda frame: (), _check_bye_ack, "none", 0),
    Layout(
        Credit, Kind.CREDIT, Channel.CONTROL, attrgetter("channel", "total_bytes"), _check_credit, "none", 0
    ),
    Layout(
        Request,
        Kind.REQUEST,
        Channel.CONTROL,
        attrgetter("id", "method"),
        _check_request,
        "body",
        MAX_BODY_BYTES,
    ),
    Layout(
        Response,
        Kind.RESPONSE,
        Channel.CONTROL,
        attrgetter("id", "status", "message"),
        _check_response,
        "body",
        MAX_BODY_BYTES,
    ),
    Layout(
        Consensus,
        Kind.CONSENSUS,
        Channel.CONTROL,
        lambda frame: (),
        _check_consensus,
        "body",
        MAX_CONSENSUS_BYTES,
    ),
    Layout(
        Open,
        Kind.OPEN,
        Channel.DATA,
        attrgetter(
            "session",
            "turn",
            "plan",
            "route",
            "stage",
            "origin",
            "start",
            "prompt_tokens",
            "max_tokens",
            "sampling",
            "end_tokens",
            "generated",
            "role",
            "answer",
            "before",
            "keep",
            "spans",
            "shadow_stages",
            "shadows",
        ),
        _check_open,
        "tokens",
        MAX_HISTORY * 4,
    ),
    Layout(
        Step,
        Kind.STEP,
        Channel.DATA,
        attrgetter("session", "turn", "stage", "position", "count", "last"),
        _check_step,
        "tensor",
        MAX_TENSOR_BYTES,
    ),
    Layout(
        Token,
        Kind.TOKEN,
        Channel.DATA,
        attrgetter("session", "turn", "position", "token", "finish"),
        _check_token,
        "body",
        MAX_LIKELY_BYTES,
    ),
    Layout(
        Refuse,
        Kind.REFUSE,
        Channel.DATA,
        attrgetter("session", "turn", "stage", "position", "have", "reason", "message"),
        _check_refuse,
        "none",
        0,
    ),
    Layout(
        Cancel,
        Kind.CANCEL,
        Channel.DATA,
        attrgetter("session", "turn", "keep", "reason"),
        _check_cancel,
        "none",
        0,
    ),
    Layout(Release, Kind.RELEASE, Channel.DATA, lambda frame: (frame.session,), _check_release, "none", 0),
    Layout(
        Probe, Kind.PROBE, Channel.DATA, lambda frame: (frame.nonce,), _check_probe, "body", MAX_PROBE_BYTES
    ),
    Layout(
        ProbeAck,
        Kind.PROBE_ACK,
        Channel.DATA,
        attrgetter("nonce", "received_bytes"),
        _check_probe_ack,
        "none",
        0,
    ),
    Layout(
        Bundle,
        Kind.BUNDLE,
        Channel.DATA,
        lambda frame: (frame.sizes,),
        _check_bundle,
        "body",
        MAX_BUNDLE_BYTES,
    ),
    Layout(
        Feed,
        Kind.FEED,
        Channel.DATA,
        attrgetter("session", "turn", "stage", "position"),
        _check_feed,
        "none",
        0,
    ),
    Layout(Where, Kind.WHERE, Channel.DATA, attrgetter("session", "turn", "stage"), _check_where, "none", 0),
    Layout(
        Here,
        Kind.HERE,
        Channel.DATA,
        attrgetter("session", "turn", "stage", "received", "computed", "steps"),
        _check_here,
        "none",
        0,
    ),
    Layout(
        PieceRequest,
        Kind.PIECE_REQUEST,
        Channel.DATA,
        attrgetter("id", "sha256", "offset", "count"),
        _check_piece_request,
        "none",
        0,
    ),
    Layout(
        Piece, Kind.PIECE, Channel.DATA, attrgetter("id", "status"), _check_piece, "body", MAX_RANGE_BYTES
    ),
    Layout(
        RunValue,
        Kind.RUN_VALUE,
        Channel.DATA,
        attrgetter("run", "epoch", "item", "value", "shape", "offset", "total"),
        _check_run_value,
        "body",
        MAX_RANGE_BYTES,
    ),
    Layout(RunGo, Kind.RUN_GO, Channel.DATA, attrgetter("run", "epoch", "below"), _check_run_go, "none", 0),
    Layout(
        RunItemFailed,
        Kind.RUN_ITEM_FAILED,
        Channel.DATA,
        attrgetter("run", "epoch", "item", "message"),
        _check_run_item_failed,
        "none",
        0,
    ),
    Layout(
        TeamStep,
        Kind.TEAM_STEP,
        Channel.DATA,
        attrgetter("session", "call", "work", "row", "count", "lengths"),
        _check_team_step,
        "tensor",
        MAX_TENSOR_BYTES,
    ),
    Layout(
        TeamPart,
        Kind.TEAM_PART,
        Channel.DATA,
        attrgetter("session", "call", "unit", "member", "count"),
        _check_team_part,
        "tensor",
        MAX_TENSOR_BYTES,
    ),
    Layout(
        TeamRows,
        Kind.TEAM_ROWS,
        Channel.DATA,
        attrgetter("session", "call", "what", "numbers"),
        _check_team_rows,
        "none",
        0,
    ),
    Layout(
        TeamEnd, Kind.TEAM_END, Channel.DATA, attrgetter("session", "message"), _check_team_end, "none", 0
    ),
)
# Frames that belong to the session that they name.
OF_SESSION: Final[frozenset[type[Any]]] = frozenset(
    {Open, Step, Token, Refuse, Cancel, Release, Feed, Where, Here, TeamStep, TeamPart, TeamRows, TeamEnd}
)
