"""What a header field may hold, and how a wrong one is refused: what the generated checks of frames call."""

from collections.abc import Sequence
from typing import Any

from peer.errors import WrongField


def fits_text(value: Any, limit: int) -> bool:
    """Returns whether `value` is text of at most `limit` bytes of UTF-8."""
    return (
        type(value) is str
        and len(value) <= limit
        and (len(value) * 4 <= limit or len(value.encode()) <= limit)
    )


def fits_texts(value: Any, most: int, limit: int) -> bool:
    """Returns whether `value` is a tuple of at most `most` texts, each of at most `limit` bytes."""
    return type(value) is tuple and len(value) <= most and all(fits_text(text, limit) for text in value)


def fits_integers(value: Any, most: int, low: int, high: int) -> bool:
    """Returns whether `value` is a tuple of at most `most` integers from `low` to `high`."""
    if type(value) is not tuple or len(value) > most:
        return False
    return all(type(each) is int and low <= each <= high for each in value)


def wrong_field(name: str, expected: str, value: Any) -> WrongField:
    """Returns the refusal of a field, to be raised; `name` is KIND.field."""
    return WrongField(f"{name}: expected {expected}, got {shown(value)}")


def wrong_count(kind: str, expected: int, values: Sequence[Any]) -> WrongField:
    """Returns the refusal of a header that has too few or too many fields, to be raised."""
    return WrongField(f"{kind}: expected {expected} fields, got {len(values)}")


def shown(value: object) -> str:
    """Returns a number as it is; of anything that people may have written only its type and length."""
    match value:
        case bool() | int() | float() | None:
            return repr(value)[:40]
        case str() | bytes() | tuple():
            return f"{type(value).__name__} of length {len(value)}"
        case _:
            return type(value).__name__
