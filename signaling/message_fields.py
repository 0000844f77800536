"""How the fields of a message are written and checked: what the generated table of messages is made of. Pure.

Bytes are base64url without padding; there are no floats. A field that does not fit raises a MalformedMessage that
names it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NoReturn, Protocol, TypeVar

from signaling.errors import MalformedMessage
from signaling.keys import from_text, is_id, to_text

T = TypeVar("T")
K = TypeVar("K", covariant=True)


class Field(Protocol[K]):
    """How one field is written and checked; JSON values are Any until a field has checked them."""

    def write(self, value: Any) -> Any:
        """The value as it stands in JSON."""

    def read(self, raw: Any, name: str) -> K:
        """The value of the field `name`, checked; or MalformedMessage."""


def _wrong(name: str, expected: str, raw: object) -> NoReturn:
    came = type(raw).__name__
    if isinstance(raw, str | list | dict):
        came += f" of length {len(raw)}"
    raise MalformedMessage(f"field {name}: expected {expected}, got {came}")


@dataclass(frozen=True)
class Text:
    """Text of `least` to `most` characters."""

    most: int
    least: int = 0
    lines: bool = False  # CR and LF allowed; other control characters never are

    def write(self, value: str) -> str:
        """The text itself."""
        return value

    def read(self, raw: Any, name: str) -> str:
        """Text that fits; or MalformedMessage."""
        if not isinstance(raw, str) or not self.least <= len(raw) <= self.most:
            _wrong(name, f"text of {self.least} to {self.most} characters", raw)
        if not is_clean(raw, self.lines):
            raise MalformedMessage(f"field {name}: control characters and lone surrogates are not allowed")
        return raw


@dataclass(frozen=True)
class Id:
    """The id of a key: 32 characters of base32."""

    def write(self, value: str) -> str:
        """The id itself."""
        return value

    def read(self, raw: Any, name: str) -> str:
        """An id; or MalformedMessage."""
        if not isinstance(raw, str) or not is_id(raw):
            _wrong(name, "an id of 32 characters a-z, 2-7", raw)
        return raw


@dataclass(frozen=True)
class Bytes:
    """Bytes of one of `lengths`, as base64url."""

    lengths: tuple[int, ...]

    def write(self, value: bytes) -> str:
        """Base64url without padding."""
        return to_text(value)

    def read(self, raw: Any, name: str) -> bytes:
        """The bytes; or MalformedMessage."""
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
class Int:
    """An integer from 0 to `most`."""

    most: int

    def write(self, value: int) -> int:
        """The integer itself."""
        return value

    def read(self, raw: Any, name: str) -> int:
        """The integer; or MalformedMessage."""
        if not isinstance(raw, int) or isinstance(raw, bool) or not 0 <= raw <= self.most:
            _wrong(name, f"an integer from 0 to {self.most}", raw)
        return raw


@dataclass(frozen=True)
class Flag:
    """True or false."""

    def write(self, value: bool) -> bool:
        """The flag itself."""
        return value

    def read(self, raw: Any, name: str) -> bool:
        """The flag; or MalformedMessage."""
        if not isinstance(raw, bool):
            _wrong(name, "true or false", raw)
        return raw


@dataclass(frozen=True)
class Word(Generic[T]):
    """A member of an enumeration of text, by its value."""

    kind: Callable[[str], T]

    def write(self, value: Any) -> str:
        """The value of the member."""
        return str(value.value)

    def read(self, raw: Any, name: str) -> T:
        """The member of that value; or MalformedMessage."""
        try:
            if isinstance(raw, str):
                return self.kind(raw)
        except ValueError:
            pass
        _wrong(name, "a word of the protocol", raw)


@dataclass(frozen=True)
class List(Generic[K]):
    """At most `most` items, as a tuple."""

    item: Field[K]
    most: int

    def write(self, value: tuple[Any, ...]) -> list[Any]:
        """A list of the written items."""
        return [self.item.write(v) for v in value]

    def read(self, raw: Any, name: str) -> tuple[K, ...]:
        """The items, each checked; or MalformedMessage."""
        if not isinstance(raw, list) or len(raw) > self.most:
            _wrong(name, f"a list of at most {self.most}", raw)
        return tuple(self.item.read(v, f"{name}[{i}]") for i, v in enumerate(raw))


@dataclass(frozen=True)
class Maybe(Generic[K]):
    """What `item` stands for, or None."""

    item: Field[K]

    def write(self, value: Any) -> Any:
        """None, or what `item` writes."""
        return None if value is None else self.item.write(value)

    def read(self, raw: Any, name: str) -> K | None:
        """None, or what `item` reads; or MalformedMessage."""
        return None if raw is None else self.item.read(raw, name)


@dataclass(frozen=True)
class Record(Generic[T]):
    """An object with exactly these fields, built into `kind`."""

    kind: Callable[..., T]
    fields: tuple[tuple[str, Field[object]], ...]

    def write(self, value: Any) -> dict[str, Any]:
        """An object of the written fields."""
        return {name: f.write(getattr(value, name)) for name, f in self.fields}

    def read(self, raw: Any, name: str) -> T:
        """A `kind` of the checked fields; or MalformedMessage."""
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
