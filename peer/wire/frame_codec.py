"""The bytes of a frame, and which bytes are refused (docs/protocol.md, chapter Frames).

A frame is the length of its header (4 bytes, little-endian), the header (a msgpack array of the kind and the
fields in order), and the payload. Which kinds and fields there are stands in schema/frames.toml.
"""

from collections.abc import Sequence
from typing import Any, Final, assert_never

import msgpack
import numpy as np

from peer.errors import OversizeFrame, TruncatedFrame, UnknownKind, VersionMismatch, WrongChannel, WrongField
from peer.limits import (
    HIGHEST_VERSION,
    LOWEST_VERSION,
    MAX_CONTROL_FRAME_BYTES,
    MAX_DATA_FRAME_BYTES,
    MAX_HEADER_BYTES,
    MAX_HEADER_ITEMS,
    MAX_HISTORY,
    MAX_INT,
    MAX_TOKEN,
    SESSION_BYTES,
)
from peer.wire.frame_fields import fits_integers, shown
from peer.wire.generated.frames import LAYOUTS, OF_SESSION, Bundle, Channel, Frame, Kind, Layout
from peer.wire.tensors import Tensor, tensor_from_wire

MAX_FRAME_BYTES: Final[dict[Channel, int]] = {
    Channel.CONTROL: MAX_CONTROL_FRAME_BYTES,
    Channel.DATA: MAX_DATA_FRAME_BYTES,
}
_HEADER_LENGTH_BYTES: Final = 4
_MAX_SHAPE: Final = 8  # numbers of a shape; more than MAX_RANK is for the tensor to refuse
_BY_TYPE: Final[dict[type[Any], Layout]] = {layout.frame: layout for layout in LAYOUTS}
_BY_KIND: Final[dict[int, Layout]] = {int(layout.kind): layout for layout in LAYOUTS}
_PACKER: Final = msgpack.Packer(use_bin_type=True)


def channel_of(frame: Frame) -> Channel:
    """Returns the channel that the frame's kind belongs to."""
    return _BY_TYPE[type(frame)].channel


def encode(frame: Frame) -> bytes:
    """Returns the frame's bytes. Raises the FrameError that its receiver would raise."""
    layout = _BY_TYPE[type(frame)]
    made: Any = frame  # which attributes it has is in its layout
    values = layout.values(frame)
    layout.check(values)
    payload = b""
    match layout.payload:
        case "none":
            pass
        case "body":
            payload = made.body
        case "tokens":
            _check_history(made.history)
            payload = np.array(made.history, "<i4").tobytes()
        case "tensor":
            _check_positions(made.count, made.tensor)
            values = (*values, int(made.tensor.dtype), made.tensor.shape)
            payload = made.tensor.data
        case _:
            assert_never(layout.payload)
    header: bytes = _PACKER.pack((int(layout.kind), *values))
    _check_size(layout, len(header), len(payload))
    return len(header).to_bytes(_HEADER_LENGTH_BYTES, "little") + header + payload


def sessions_of(frame: Frame) -> tuple[bytes, ...]:
    """Returns the sessions that a frame belongs to; a bundle may belong to several. b"" stands for no session."""
    if type(frame) in OF_SESSION:
        return (frame.session,)  # type: ignore[union-attr]
    if not isinstance(frame, Bundle):
        return (b"",)
    found: set[bytes] = set()
    start = 0
    for size in frame.sizes:
        first = _unpacked(_header_of(frame.body[start : start + size]))[1:2]
        session = first[0] if first else b""
        found.add(session if type(session) is bytes and len(session) == SESSION_BYTES else b"")
        start += size
    return tuple(sorted(found))


def decode(data: bytes, channel: Channel | None = None) -> Frame:
    """Returns the frame in `data`, which came on `channel` (None: any). Raises a FrameError that names the fault."""
    header = _header_of(data)
    header_bytes = len(header)
    header_end = _HEADER_LENGTH_BYTES + header_bytes
    kind, *values = _unpacked(header)
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
        case "none":
            layout.check(values)
        case "body":
            layout.check(values)
            values.append(data[header_end:])
        case "tokens":
            layout.check(values)
            values.append(_tokens(layout, data[header_end:]))
        case "tensor":
            ending: list[Any] = values[-2:] if len(values) >= 2 else [None, None]
            dtype, shape = ending
            values = values[:-2]
            layout.check(values)
            if type(dtype) is not int or not fits_integers(shape, _MAX_SHAPE, 0, MAX_INT):
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


def _unpacked(header: bytes) -> tuple[Any, ...]:
    """The items of a frame's header. Raises TruncatedFrame or WrongField; nothing nested or long is built."""
    try:
        values = msgpack.unpackb(
            header, use_list=False, raw=False, max_array_len=MAX_HEADER_ITEMS, max_map_len=0, max_ext_len=0
        )
    except (ValueError, msgpack.UnpackException) as error:
        if "incomplete" in str(error) or not header:
            raise TruncatedFrame(
                f"expected a whole msgpack header, it ends after {len(header)} bytes"
            ) from None
        raise WrongField(
            f"expected a msgpack array as header, got other bytes ({type(error).__name__}: {str(error)[:80]})"
        ) from None
    if type(values) is not tuple or not values:
        raise WrongField(f"expected a msgpack array of kind and fields as header, got {shown(values)}")
    return values


def _check_version(layout: Layout, values: Sequence[Any]) -> None:
    """Refuses a HELLO of a side that begins above this one's highest version: it is not read on.
    peer.state.version_negotiation says the rest.
    """
    if (
        layout.kind is Kind.HELLO
        and values
        and type(values[0]) is int
        and HIGHEST_VERSION < values[0] <= MAX_INT
    ):
        raise VersionMismatch(
            f"expected protocol {LOWEST_VERSION} to {HIGHEST_VERSION}, the other peer speaks {values[0]} and above; "
            "update the older one"
        )


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
    _check_history(tokens)
    return tokens


def _check_history(tokens: tuple[int, ...]) -> None:
    if not fits_integers(tokens, MAX_HISTORY, 0, MAX_TOKEN):
        raise WrongField(
            f"OPEN.history: expected at most {MAX_HISTORY} integers from 0 to {MAX_TOKEN}, got {shown(tokens)}"
        )
