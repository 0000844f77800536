"""Decides which frames exist and what their bytes are (docs/protocol.md, chapter Frames).

A frame is: header length (4 bytes, little-endian), header (msgpack array: kind, then the fields in order), payload.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import IntEnum
from operator import attrgetter
from typing import Any, Final

import msgpack

from peer.errors import (
    OversizeFrame,
    TruncatedFrame,
    UnknownKind,
    VersionMismatch,
    WrongChannel,
    WrongField,
)
from peer.tensors import Tensor, tensor_from_wire

PROTOCOL_VERSION: Final = 1

MAX_INT: Final = 2**53 - 1  # the largest integer that JavaScript numbers hold exactly
SESSION_BYTES: Final = 16
MAX_NAME_BYTES: Final = 128  # peer ids, display names, agent strings, method names
MAX_TEXT_BYTES: Final = 4096  # reasons and messages meant for people
MAX_ROUTE: Final = 64  # stages
MAX_SAMPLING: Final = 32
MAX_END_TOKENS: Final = 64
MAX_HISTORY: Final = 256 * 1024  # tokens; bounded by any context length in use
MAX_PROBE_BYTES: Final = 1024 * 1024

MAX_CONTROL_FRAME_BYTES: Final = 1024 * 1024
MAX_DATA_FRAME_BYTES: Final = 16 * 1024 * 1024
_HEADER_LENGTH_BYTES: Final = 4


class Channel(IntEnum):
    """Data channels of a connection; the number is the negotiated channel id."""

    CONTROL = 1
    DATA = 2


MAX_FRAME_BYTES: Final[dict[Channel, int]] = {
    Channel.CONTROL: MAX_CONTROL_FRAME_BYTES,
    Channel.DATA: MAX_DATA_FRAME_BYTES,
}


class Kind(IntEnum):
    """Kind numbers. 48 (PIECE_REQUEST) and 49 (PIECE) are reserved for weights between peers."""

    HELLO = 1
    PING = 2
    PONG = 3
    BYE = 4
    BYE_ACK = 5
    CREDIT = 6
    REQUEST = 16
    RESPONSE = 17
    ENTRY = 18
    SNAPSHOT = 19
    OPEN = 32
    STEP = 33
    TOKEN = 34
    REFUSE = 35
    CANCEL = 36
    RELEASE = 37
    PROBE = 38
    PROBE_ACK = 39


class Finish(IntEnum):
    """Why a TOKEN is the last one, or that it is not."""

    MORE = 0
    END_TOKEN = 1
    LENGTH = 2


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
    """The last frame a side sends, apart from BYE_ACK. `reason` is for people and logs."""

    reason: str


@dataclass(frozen=True, slots=True)
class ByeAck:
    pass


@dataclass(frozen=True, slots=True)
class Credit:
    """The receiver of this frame may send piece bytes on `channel` up to this total since the connection opened."""

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
class Entry:
    """One log entry; `body` is the JSON command."""

    term: int
    index: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state that the log up to (term, index) builds; `body` is JSON."""

    term: int
    index: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Open:
    """Opens a turn of a session on the receiver, which is stage `stage` of `route`. `start` is the first position to come."""

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
    history: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """`count` positions from `position` on: int32 tokens (count,) or float32 hidden states (count, hidden)."""

    session: bytes
    turn: int
    plan: int
    position: int
    count: int
    last: int
    tensor: Tensor


@dataclass(frozen=True, slots=True)
class Token:
    session: bytes
    turn: int
    position: int
    token: int
    finish: int


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
    nonce: int
    received_bytes: int


Frame = (
    Hello
    | Ping
    | Pong
    | Bye
    | ByeAck
    | Credit
    | Request
    | Response
    | Entry
    | Snapshot
    | Open
    | Step
    | Token
    | Refuse
    | Cancel
    | Release
    | Probe
    | ProbeAck
)


@dataclass(frozen=True, slots=True)
class Field:
    """What a header field may hold."""

    expected: str
    fits: Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Layout:
    """How one kind is laid out: its number, channel, header fields in order, and what follows the header."""

    frame: type[Any]
    kind: Kind
    channel: Channel
    header: tuple[tuple[str, Field], ...]
    payload: str  # "none", "bytes" (the attribute `body`) or "tensor" (dtype and shape end the header)
    max_payload_bytes: int
    values: Callable[[Any], Any]


def _integer(low: int, high: int) -> Field:
    return Field(f"an integer from {low} to {high}", lambda v: type(v) is int and low <= v <= high)


def _text(limit: int) -> Field:
    return Field(
        f"text of at most {limit} bytes",
        lambda v: type(v) is str and len(v) <= limit and (len(v) * 4 <= limit or len(v.encode()) <= limit),
    )


def _integers(limit: int, low: int) -> Field:
    def fits(value: Any) -> bool:
        if type(value) is not tuple or len(value) > limit:
            return False
        return all(type(v) is int and low <= v <= MAX_INT for v in value)

    return Field(f"at most {limit} integers from {low} to {MAX_INT}", fits)


def _texts(limit: int, each: Field) -> Field:
    return Field(
        f"at most {limit} texts, each {each.expected}",
        lambda v: type(v) is tuple and len(v) <= limit and all(each.fits(t) for t in v),
    )


_UINT: Final = _integer(0, MAX_INT)
_NAME: Final = _text(MAX_NAME_BYTES)
_TEXT: Final = _text(MAX_TEXT_BYTES)
_SESSION: Final = Field(f"{SESSION_BYTES} bytes", lambda v: type(v) is bytes and len(v) == SESSION_BYTES)


def _layout(
    frame: type[Any],
    kind: Kind,
    channel: Channel,
    *header: Field,
    payload: str = "none",
    max_payload_bytes: int = 0,
) -> Layout:
    names = [f.name for f in fields(frame)][: len(header)]
    match len(names):
        case 0:
            values: Callable[[Any], Any] = lambda _: ()  # noqa: E731
        case 1:
            get = attrgetter(*names)
            values = lambda frame: (get(frame),)  # noqa: E731
        case _:
            values = attrgetter(*names)
    return Layout(
        frame, kind, channel, tuple(zip(names, header, strict=True)), payload, max_payload_bytes, values
    )


_BODY_BYTES: Final = MAX_CONTROL_FRAME_BYTES - 16 * 1024

LAYOUTS: Final[tuple[Layout, ...]] = (
    _layout(Hello, Kind.HELLO, Channel.CONTROL, _UINT, _NAME, _NAME, _NAME),
    _layout(Ping, Kind.PING, Channel.CONTROL, _UINT),
    _layout(Pong, Kind.PONG, Channel.CONTROL, _UINT),
    _layout(Bye, Kind.BYE, Channel.CONTROL, _TEXT),
    _layout(ByeAck, Kind.BYE_ACK, Channel.CONTROL),
    _layout(Credit, Kind.CREDIT, Channel.CONTROL, _integer(Channel.DATA, Channel.DATA), _UINT),
    _layout(
        Request, Kind.REQUEST, Channel.CONTROL, _UINT, _NAME, payload="bytes", max_payload_bytes=_BODY_BYTES
    ),
    _layout(
        Response,
        Kind.RESPONSE,
        Channel.CONTROL,
        _UINT,
        _integer(0, 65535),
        _TEXT,
        payload="bytes",
        max_payload_bytes=_BODY_BYTES,
    ),
    _layout(Entry, Kind.ENTRY, Channel.CONTROL, _UINT, _UINT, payload="bytes", max_payload_bytes=_BODY_BYTES),
    _layout(
        Snapshot, Kind.SNAPSHOT, Channel.CONTROL, _UINT, _UINT, payload="bytes", max_payload_bytes=_BODY_BYTES
    ),
    _layout(
        Open,
        Kind.OPEN,
        Channel.DATA,
        _SESSION,
        _UINT,
        _UINT,
        _texts(MAX_ROUTE, _NAME),
        _integer(0, MAX_ROUTE - 1),
        _NAME,
        _UINT,
        _UINT,
        _UINT,
        _integers(MAX_SAMPLING, -MAX_INT),
        _integers(MAX_END_TOKENS, 0),
        _integers(MAX_HISTORY, 0),
    ),
    _layout(
        Step,
        Kind.STEP,
        Channel.DATA,
        _SESSION,
        _UINT,
        _UINT,
        _UINT,
        _integer(1, 2**31 - 1),
        _integer(0, 1),
        payload="tensor",
        max_payload_bytes=MAX_DATA_FRAME_BYTES,
    ),
    _layout(
        Token,
        Kind.TOKEN,
        Channel.DATA,
        _SESSION,
        _UINT,
        _UINT,
        _integer(0, 2**31 - 1),
        _integer(0, max(Finish)),
    ),
    _layout(
        Refuse,
        Kind.REFUSE,
        Channel.DATA,
        _SESSION,
        _UINT,
        _integer(0, MAX_ROUTE - 1),
        _UINT,
        _UINT,
        _integer(0, 255),
        _TEXT,
    ),
    _layout(Cancel, Kind.CANCEL, Channel.DATA, _SESSION, _UINT, _UINT, _TEXT),
    _layout(Release, Kind.RELEASE, Channel.DATA, _SESSION),
    _layout(Probe, Kind.PROBE, Channel.DATA, _UINT, payload="bytes", max_payload_bytes=MAX_PROBE_BYTES),
    _layout(ProbeAck, Kind.PROBE_ACK, Channel.DATA, _UINT, _UINT),
)
_BY_TYPE: Final[dict[type[Any], Layout]] = {layout.frame: layout for layout in LAYOUTS}
_BY_KIND: Final[dict[int, Layout]] = {int(layout.kind): layout for layout in LAYOUTS}
_SHAPE: Final = _integers(8, 0)
_PACKER: Final = msgpack.Packer(use_bin_type=True)


def channel_of(frame: Frame) -> Channel:
    """The channel that the frame's kind belongs to."""
    return _BY_TYPE[type(frame)].channel


def encode(frame: Frame) -> bytes:
    """The frame's bytes. Raises the FrameError that the receiver would raise, so that a fault stays with its maker."""
    layout = _BY_TYPE[type(frame)]
    values = layout.values(frame)
    _check_fields(layout, values)
    match layout.payload:
        case "tensor":
            tensor: Tensor = frame.tensor  # type: ignore[union-attr]
            payload = tensor.data
            header = _PACKER.pack((int(layout.kind), *values, int(tensor.dtype), tensor.shape))
            _check_step(values[4], tensor)
        case "bytes":
            payload = frame.body  # type: ignore[union-attr]
            header = _PACKER.pack((int(layout.kind), *values))
        case _:
            payload = b""
            header = _PACKER.pack((int(layout.kind), *values))
    encoded = len(header).to_bytes(_HEADER_LENGTH_BYTES, "little") + header + payload
    _check_size(layout, len(encoded), len(payload))
    return encoded


def decode(data: bytes, channel: Channel | None = None) -> Frame:
    """The frame for `data`, which came on `channel` (None: any). Raises a FrameError that names what is wrong."""
    if len(data) < _HEADER_LENGTH_BYTES:
        raise TruncatedFrame(f"expected {_HEADER_LENGTH_BYTES} bytes of header length, got {len(data)} bytes")
    header_end = _HEADER_LENGTH_BYTES + int.from_bytes(data[:_HEADER_LENGTH_BYTES], "little")
    if header_end > MAX_DATA_FRAME_BYTES:
        raise OversizeFrame(
            f"expected a header within {MAX_DATA_FRAME_BYTES} bytes, got one of {header_end} bytes"
        )
    if header_end > len(data):
        raise TruncatedFrame(f"expected a header up to byte {header_end}, got {len(data)} bytes")
    values = _unpack(data[_HEADER_LENGTH_BYTES:header_end])
    kind = values[0]
    layout = _BY_KIND.get(kind) if type(kind) is int else None
    if layout is None:
        raise UnknownKind(f"expected a frame kind of protocol {PROTOCOL_VERSION}, got {_shown(kind)}")
    if channel is not None and layout.channel is not channel:
        raise WrongChannel(
            f"expected {layout.kind.name} on channel {layout.channel.name}, got it on {channel.name}"
        )
    if (
        layout.kind is Kind.HELLO
        and len(values) > 1
        and _UINT.fits(values[1])
        and values[1] != PROTOCOL_VERSION
    ):
        raise VersionMismatch(
            f"expected protocol {PROTOCOL_VERSION}, the other peer speaks {values[1]}; update the older of the two"
        )
    payload_bytes = len(data) - header_end
    _check_size(layout, len(data), payload_bytes)
    if layout.payload == "tensor":
        *rest, dtype, shape = values[1:] if len(values) > 2 else (None, None)
        _check_fields(layout, tuple(rest))
        if type(dtype) is not int or not _SHAPE.fits(shape):
            raise WrongField(
                f"{layout.kind.name}: expected a data type code and a shape, got {_shown(dtype)} and {_shown(shape)}"
            )
        tensor = tensor_from_wire(dtype, shape, data[header_end:])
        _check_step(rest[4], tensor)
        return layout.frame(*rest, tensor)  # type: ignore[no-any-return]
    _check_fields(layout, values[1:])
    if layout.payload == "bytes":
        return layout.frame(*values[1:], data[header_end:])  # type: ignore[no-any-return]
    return layout.frame(*values[1:])  # type: ignore[no-any-return]


def _unpack(header: bytes) -> tuple[Any, ...]:
    try:
        values = msgpack.unpackb(header, use_list=False, raw=False, max_map_len=0, max_ext_len=0)
    except (ValueError, msgpack.UnpackException) as error:
        if "incomplete" in str(error) or not header:
            raise TruncatedFrame(
                f"expected a whole msgpack header, it ends after {len(header)} bytes"
            ) from None
        raise WrongField(f"expected a msgpack array as header, got other bytes: {str(error)[:80]}") from None
    if type(values) is not tuple or not values:
        raise WrongField(f"expected a msgpack array of kind and fields as header, got {_shown(values)}")
    return values


def _check_fields(layout: Layout, values: tuple[Any, ...]) -> None:
    if len(values) != len(layout.header):
        raise WrongField(f"{layout.kind.name}: expected {len(layout.header)} fields, got {len(values)}")
    for (name, field), value in zip(layout.header, values, strict=True):
        if not field.fits(value):
            raise WrongField(f"{layout.kind.name}.{name}: expected {field.expected}, got {_shown(value)}")


def _check_size(layout: Layout, frame_bytes: int, payload_bytes: int) -> None:
    if frame_bytes > MAX_FRAME_BYTES[layout.channel] or payload_bytes > layout.max_payload_bytes:
        raise OversizeFrame(
            f"{layout.kind.name}: expected at most {layout.max_payload_bytes} bytes after the header and "
            f"{MAX_FRAME_BYTES[layout.channel]} in all, got {payload_bytes} and {frame_bytes}"
        )


def _check_step(count: int, tensor: Tensor) -> None:
    if not tensor.shape or tensor.shape[0] != count:
        raise WrongField(f"STEP: expected a tensor of {count} positions, got shape {list(tensor.shape)}")


def _shown(value: object) -> str:
    """A value cut short, by type and length only where it may hold what people wrote."""
    match value:
        case bool() | int() | float() | None:
            return repr(value)[:40]
        case str() | bytes() | tuple():
            return f"{type(value).__name__} of length {len(value)}"
        case _:
            return type(value).__name__
