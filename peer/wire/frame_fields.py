"""Decides what the header of a frame may hold, and how a wrong field is shown."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgpack

from peer.errors import TruncatedFrame, WrongField

_MAX_HEADER_ITEMS: Final = 1024  # per msgpack array: bounds what the decoder allocates
MAX_INT: Final = 2**53 - 1  # the largest integer that JavaScript numbers hold exactly


@dataclass(frozen=True, slots=True)
class Field:
    """What a header field may hold."""

    expected: str
    fits: Callable[[Any], bool]


def integer(low: int, high: int) -> Field:
    return Field(f"an integer from {low} to {high}", lambda v: type(v) is int and low <= v <= high)


def text(limit: int) -> Field:
    return Field(
        f"text of at most {limit} bytes",
        lambda v: type(v) is str and len(v) <= limit and (len(v) * 4 <= limit or len(v.encode()) <= limit),
    )


def integers(limit: int, low: int, high: int = MAX_INT) -> Field:
    def fits(value: Any) -> bool:
        if type(value) is not tuple or len(value) > limit:
            return False
        return all(type(v) is int and low <= v <= high for v in value)

    return Field(f"at most {limit} integers from {low} to {high}", fits)


def texts(limit: int, each: Field) -> Field:
    return Field(
        f"at most {limit} texts, each {each.expected}",
        lambda v: type(v) is tuple and len(v) <= limit and all(each.fits(t) for t in v),
    )


def shown(value: object) -> str:
    """A number as it is; of anything that people may have written only its type and length."""
    match value:
        case bool() | int() | float() | None:
            return repr(value)[:40]
        case str() | bytes() | tuple():
            return f"{type(value).__name__} of length {len(value)}"
        case _:
            return type(value).__name__


def unpacked(header: bytes) -> tuple[Any, ...]:
    """The items of a frame's header. Raises TruncatedFrame or WrongField; nothing nested or long is built."""
    try:
        values = msgpack.unpackb(
            header, use_list=False, raw=False, max_array_len=_MAX_HEADER_ITEMS, max_map_len=0, max_ext_len=0
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
