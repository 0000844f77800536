"""Decides what the bytes of a frame are (docs/protocol.md, chapter Frames).

A frame is the length of its header (4 bytes, little-endian), the header (a msgpack array of the kind and the
fields in order), and the payload.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from operator import attrgetter
from typing import Any, Final, assert_never

import msgpack
import numpy as np

from peer.errors import (
    OversizeFrame,
    TruncatedFrame,
    UnknownKind,
    VersionMismatch,
    WrongChannel,
    WrongField,
)
from peer.wire.frame_fields import MAX_INT, Field, integer, integers, shown, text, texts, unpacked
from peer.wire.frame_types import (
    Bundle,
    Bye,
    ByeAck,
    Cancel,
    Channel,
    Consensus,
    Credit,
    Feed,
    Finish,
    Frame,
    Hello,
    Here,
    Kind,
    Open,
    Piece,
    PieceRequest,
    Ping,
    Pong,
    Probe,
    ProbeAck,
    Refuse,
    Release,
    Request,
    Response,
    Role,
    Step,
    Token,
    Where,
)
from peer.wire.tensors import MAX_TENSOR_BYTES, Tensor, tensor_from_wire

__all__ = [
    "HIGHEST_VERSION",
    "LAYOUTS",
    "LOWEST_VERSION",
    "MAX_BUNDLE_BYTES",
    "MAX_BUNDLE_FRAMES",
    "MAX_CONSENSUS_BYTES",
    "MAX_CONTROL_FRAME_BYTES",
    "MAX_DATA_FRAME_BYTES",
    "MAX_END_TOKENS",
    "MAX_FRAME_BYTES",
    "MAX_HEADER_BYTES",
    "MAX_HISTORY",
    "MAX_LIKELY_BYTES",
    "MAX_NAME_BYTES",
    "MAX_PROBE_BYTES",
    "MAX_RANGE_BYTES",
    "MAX_ROUTE",
    "MAX_SAMPLING",
    "MAX_SHADOWS",
    "MAX_SPANS",
    "MAX_TEXT_BYTES",
    "SESSION_BYTES",
    "Bundle",
    "Bye",
    "ByeAck",
    "Cancel",
    "Channel",
    "Consensus",
    "Credit",
    "Feed",
    "Finish",
    "Frame",
    "Hello",
    "Here",
    "Kind",
    "Layout",
    "Open",
    "Payload",
    "Piece",
    "PieceRequest",
    "Ping",
    "Pong",
    "Probe",
    "ProbeAck",
    "Refuse",
    "Release",
    "Request",
    "Response",
    "Role",
    "Step",
    "Token",
    "Where",
    "channel_of",
    "decode",
    "encode",
    "sessions_of",
]

LOWEST_VERSION: Final = 3  # of the protocol; frames are alike in all versions from here on
HIGHEST_VERSION: Final = 4

SESSION_BYTES: Final = 16
MAX_NAME_BYTES: Final = 128  # peer ids, display names, agent strings, method names
MAX_TEXT_BYTES: Final = 4096  # reasons and messages meant for people
MAX_ROUTE: Final = 64  # stages
MAX_SAMPLING: Final = 32
MAX_END_TOKENS: Final = 64
MAX_SPANS: Final = 512  # of given and sampled positions in one session
MAX_SHADOWS: Final = 128
MAX_HISTORY: Final = 256 * 1024  # tokens; above any context length in use
MAX_PROBE_BYTES: Final = 1024 * 1024
MAX_RANGE_BYTES: Final = (
    256 * 1024
)  # of a piece of weights in one frame: an activation behind it waits no longer
HASH_BYTES: Final = 32
MAX_CONSENSUS_BYTES: Final = 512 * 1024  # an entry as long as any may be, and room for its message
MAX_LIKELY_BYTES: Final = 8 * 21  # of a token and 20 others
MAX_BUNDLE_FRAMES: Final = 64
MAX_BUNDLE_BYTES: Final = 1024 * 1024

MAX_CONTROL_FRAME_BYTES: Final = 1024 * 1024
MAX_DATA_FRAME_BYTES: Final = 16 * 1024 * 1024
MAX_HEADER_BYTES: Final = 16 * 1024  # bounds what a nest of arrays can make the msgpack decoder allocate
_HEADER_LENGTH_BYTES: Final = 4


MAX_FRAME_BYTES: Final[dict[Channel, int]] = {
    Channel.CONTROL: MAX_CONTROL_FRAME_BYTES,
    Channel.DATA: MAX_DATA_FRAME_BYTES,
}


class Payload(Enum):
    """What follows the header."""

    NONE = "nothing"
    BODY = "the attribute `body`"
    TENSOR = "a tensor's bytes; its data type code and shape are the last two header fields"
    TOKENS = "the attribute `history`, as int32"


@dataclass(frozen=True, slots=True)
class Layout:
    """How one kind is laid out: its number, channel, header fields in order, and what follows the header."""

    frame: type[Any]
    kind: Kind
    channel: Channel
    header: tuple[tuple[str, Field], ...]
    payload: Payload
    max_payload_bytes: int
    values: Callable[[Any], Any]


_UINT: Final = integer(0, MAX_INT)
_NAME: Final = text(MAX_NAME_BYTES)
_TEXT: Final = text(MAX_TEXT_BYTES)
_SESSION: Final = Field(f"{SESSION_BYTES} bytes", lambda v: type(v) is bytes and len(v) == SESSION_BYTES)

_HASH: Final = Field(f"{HASH_BYTES} bytes", lambda v: type(v) is bytes and len(v) == HASH_BYTES)


def _layout(
    kind: Kind,
    channel: Channel,
    frame: type[Any],
    header: tuple[Field, ...] = (),
    payload: Payload = Payload.NONE,
    max_payload_bytes: int = 0,
) -> Layout:
    names = [f.name for f in fields(frame)][: len(header)]
    return Layout(
        frame,
        kind,
        channel,
        tuple(zip(names, header, strict=True)),
        payload,
        max_payload_bytes,
        _getter(names),
    )


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    match names:
        case []:
            return lambda frame: ()
        case [name]:
            return lambda frame: (getattr(frame, name),)
        case _:
            return attrgetter(*names)


_CONTROL: Final = Channel.CONTROL
_DATA: Final = Channel.DATA
_BODY: Final = (Payload.BODY, MAX_CONTROL_FRAME_BYTES - MAX_HEADER_BYTES)
_PLACE: Final = integer(0, MAX_ROUTE - 1)
_FLAG: Final = integer(0, 1)
_TOKEN: Final = integer(0, 2**31 - 1)

LAYOUTS: Final[tuple[Layout, ...]] = (
    _layout(Kind.HELLO, _CONTROL, Hello, (_UINT, _NAME, _NAME, _NAME)),
    _layout(Kind.PING, _CONTROL, Ping, (_UINT,)),
    _layout(Kind.PONG, _CONTROL, Pong, (_UINT,)),
    _layout(Kind.BYE, _CONTROL, Bye, (_TEXT, _UINT)),
    _layout(Kind.BYE_ACK, _CONTROL, ByeAck),
    _layout(Kind.CREDIT, _CONTROL, Credit, (integer(_DATA, _DATA), _UINT)),
    _layout(Kind.REQUEST, _CONTROL, Request, (_UINT, _NAME), *_BODY),
    _layout(Kind.RESPONSE, _CONTROL, Response, (_UINT, integer(0, 65535), _TEXT), *_BODY),
    _layout(Kind.CONSENSUS, _CONTROL, Consensus, (), Payload.BODY, MAX_CONSENSUS_BYTES),
    _layout(
        Kind.OPEN,
        _DATA,
        Open,
        (
            *(_SESSION, _UINT, _UINT, texts(MAX_ROUTE, _NAME), _PLACE, _NAME, _UINT, _UINT, _UINT),
            *(
                integers(MAX_SAMPLING, -MAX_INT),
                integers(MAX_END_TOKENS, 0, 2**31 - 1),
                integer(0, MAX_HISTORY),
                integer(0, max(Role)),
                *(_UINT, _UINT, _UINT, integers(MAX_SPANS, 0)),
                integers(MAX_SHADOWS, 0, MAX_ROUTE - 1),
                texts(MAX_SHADOWS, _NAME),
            ),
        ),
        Payload.TOKENS,
        MAX_HISTORY * 4,
    ),
    _layout(
        Kind.STEP,
        _DATA,
        Step,
        (_SESSION, _UINT, _PLACE, _UINT, integer(1, 2**31 - 1), _FLAG),
        Payload.TENSOR,
        MAX_TENSOR_BYTES,
    ),
    _layout(
        Kind.TOKEN,
        _DATA,
        Token,
        (_SESSION, _UINT, _UINT, _TOKEN, integer(0, max(Finish))),
        Payload.BODY,
        MAX_LIKELY_BYTES,
    ),
    _layout(Kind.REFUSE, _DATA, Refuse, (_SESSION, _UINT, _PLACE, _UINT, _UINT, integer(0, 255), _TEXT)),
    _layout(Kind.CANCEL, _DATA, Cancel, (_SESSION, _UINT, _UINT, _TEXT)),
    _layout(Kind.RELEASE, _DATA, Release, (_SESSION,)),
    _layout(Kind.PROBE, _DATA, Probe, (_UINT,), Payload.BODY, MAX_PROBE_BYTES),
    _layout(Kind.PROBE_ACK, _DATA, ProbeAck, (_UINT, _UINT)),
    _layout(
        Kind.BUNDLE,
        _DATA,
        Bundle,
        (integers(MAX_BUNDLE_FRAMES, 1),),
        payload=Payload.BODY,
        max_payload_bytes=MAX_BUNDLE_BYTES,
    ),
    _layout(Kind.FEED, _DATA, Feed, (_SESSION, _UINT, _PLACE, _UINT)),
    _layout(Kind.WHERE, _DATA, Where, (_SESSION, _UINT, _PLACE)),
    _layout(Kind.HERE, _DATA, Here, (_SESSION, _UINT, _PLACE, _UINT, _UINT, _UINT)),
    _layout(Kind.PIECE_REQUEST, _DATA, PieceRequest, (_UINT, _HASH, _UINT, integer(1, MAX_RANGE_BYTES))),
    _layout(Kind.PIECE, _DATA, Piece, (_UINT, _FLAG), Payload.BODY, MAX_RANGE_BYTES),
)
_BY_TYPE: Final[dict[type[Any], Layout]] = {layout.frame: layout for layout in LAYOUTS}
_BY_KIND: Final[dict[int, Layout]] = {int(layout.kind): layout for layout in LAYOUTS}
_SHAPE: Final = integers(8, 0)
_HISTORY: Final = integers(MAX_HISTORY, 0, 2**31 - 1)
_PACKER: Final = msgpack.Packer(use_bin_type=True)


def channel_of(frame: Frame) -> Channel:
    """The channel that the frame's kind belongs to."""
    return _BY_TYPE[type(frame)].channel


def encode(frame: Frame) -> bytes:
    """The frame's bytes. Raises the FrameError that its receiver would raise."""
    layout = _BY_TYPE[type(frame)]
    values = layout.values(frame)
    _check_fields(layout, values)
    payload = b""
    match frame:
        case Step(tensor=tensor):
            _check_positions(frame.count, tensor)
            values = (*values, int(tensor.dtype), tensor.shape)
            payload = tensor.data
        case Open(history=history):
            if not _HISTORY.fits(history):
                raise WrongField(f"OPEN.history: expected {_HISTORY.expected}, got {shown(history)}")
            payload = np.array(history, "<i4").tobytes()
        case (
            Request(body=body)
            | Response(body=body)
            | Consensus(body=body)
            | Probe(body=body)
            | Bundle(body=body)
            | Piece(body=body)
            | Token(body=body)
        ):
            payload = body
        case _:
            pass
    header: bytes = _PACKER.pack((int(layout.kind), *values))
    _check_size(layout, len(header), len(payload))
    return len(header).to_bytes(_HEADER_LENGTH_BYTES, "little") + header + payload


def sessions_of(frame: Frame) -> tuple[bytes, ...]:
    """The sessions that a frame belongs to; a bundle may belong to several. b"" stands for no session."""
    match frame:
        case Open() | Step() | Token() | Refuse() | Cancel() | Release() | Feed() | Where() | Here():
            return (frame.session,)
        case Bundle(sizes=sizes, body=body):
            found: set[bytes] = set()
            start = 0
            for size in sizes:
                first = unpacked(_header_of(body[start : start + size]))[1:2]
                found.add(first[0] if first and _SESSION.fits(first[0]) else b"")
                start += size
            return tuple(sorted(found))
        case _:
            return (b"",)


def decode(data: bytes, channel: Channel | None = None) -> Frame:
    """The frame in `data`, which came on `channel` (None: any). Raises a FrameError that names the fault."""
    header = _header_of(data)
    header_bytes = len(header)
    header_end = _HEADER_LENGTH_BYTES + header_bytes
    kind, *values = unpacked(header)
    layout = _BY_KIND.get(kind) if type(kind) is int else None
    if layout is None:
        raise UnknownKind(f"expected a frame kind of protocol {HIGHEST_VERSION}, got {shown(kind)}")
    if channel is not None and layout.channel is not channel:
        raise WrongChannel(
            f"expected {layout.kind.name} on channel {layout.channel.name}, got it on {channel.name}"
        )
    _check_version(layout, values)
    _check_size(layout, header_bytes, len(data) - header_end)
    match layout.payload:
        case Payload.NONE:
            _check_fields(layout, values)
        case Payload.BODY:
            _check_fields(layout, values)
            values.append(data[header_end:])
        case Payload.TOKENS:
            _check_fields(layout, values)
            values.append(_tokens(layout, data[header_end:]))
        case Payload.TENSOR:
            ending: list[Any] = values[-2:] if len(values) >= 2 else [None, None]
            dtype, shape = ending
            values = values[:-2]
            _check_fields(layout, values)
            if type(dtype) is not int or not _SHAPE.fits(shape):
                raise WrongField(
                    f"{layout.kind.name}: expected a data type code and a shape at the end of the header, "
                    f"got {shown(dtype)} and {shown(shape)}"
                )
            tensor = tensor_from_wire(dtype, shape, data[header_end:])
            _check_positions(values[4], tensor)
            values.append(tensor)
        case _:
            assert_never(layout.payload)
    return layout.frame(*values)  # type: ignore[no-any-return]


def _header_of(data: bytes) -> bytes:
    if len(data) < _HEADER_LENGTH_BYTES:
        raise TruncatedFrame(f"expected {_HEADER_LENGTH_BYTES} bytes of header length, got {len(data)} bytes")
    header_bytes = int.from_bytes(data[:_HEADER_LENGTH_BYTES], "little")
    if header_bytes > MAX_HEADER_BYTES:
        raise OversizeFrame(f"expected a header of at most {MAX_HEADER_BYTES} bytes, got {header_bytes}")
    if _HEADER_LENGTH_BYTES + header_bytes > len(data):
        raise TruncatedFrame(
            f"expected a header of {header_bytes} bytes, got {len(data) - _HEADER_LENGTH_BYTES}"
        )
    return data[_HEADER_LENGTH_BYTES : _HEADER_LENGTH_BYTES + header_bytes]


def _check_version(layout: Layout, values: list[Any]) -> None:
    """What a side speaks that begins above this one's highest version is not read on;
    peer.state.version_negotiation says the rest.
    """
    if layout.kind is Kind.HELLO and values and _UINT.fits(values[0]) and values[0] > HIGHEST_VERSION:
        raise VersionMismatch(
            f"expected protocol {LOWEST_VERSION} to {HIGHEST_VERSION}, the other peer speaks {values[0]} and above; "
            "update the older one"
        )


def _check_fields(layout: Layout, values: Sequence[Any]) -> None:
    if len(values) != len(layout.header):
        raise WrongField(f"{layout.kind.name}: expected {len(layout.header)} fields, got {len(values)}")
    for (name, field), value in zip(layout.header, values, strict=True):
        if not field.fits(value):
            raise WrongField(f"{layout.kind.name}.{name}: expected {field.expected}, got {shown(value)}")


def _check_size(layout: Layout, header_bytes: int, payload_bytes: int) -> None:
    if header_bytes > MAX_HEADER_BYTES or payload_bytes > layout.max_payload_bytes:
        raise OversizeFrame(
            f"{layout.kind.name}: expected at most {MAX_HEADER_BYTES} bytes of header and "
            f"{layout.max_payload_bytes} of payload, got {header_bytes} and {payload_bytes}"
        )


def _check_positions(count: int, tensor: Tensor) -> None:
    if not tensor.shape or tensor.shape[0] != count:
        raise WrongField(f"STEP: expected a tensor of {count} positions, got shape {list(tensor.shape)}")


def _tokens(layout: Layout, payload: bytes) -> tuple[int, ...]:
    if len(payload) % 4:
        raise WrongField(f"{layout.kind.name}: expected token ids of 4 bytes each, got {len(payload)} bytes")
    tokens = tuple(np.frombuffer(payload, "<i4").tolist())
    if not _HISTORY.fits(tokens):
        raise WrongField(f"{layout.kind.name}.history: expected {_HISTORY.expected}, got {shown(tokens)}")
    return tokens
