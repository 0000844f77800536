"""Decides what a header field of a frame may hold, and how a wrong one is shown."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

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
