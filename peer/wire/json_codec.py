"""Decides how a value of this mesh stands in JSON, in one canonical spelling, and checks each field on the way in.

Pure; the same in web_peer/src/wire/json_codec.ts. Keys are sorted and nothing is spaced. Integers, text, true, false,
null, lists and objects only, so that Python and JavaScript spell every value alike. Fields of a newer peer are passed
over.
"""

from __future__ import annotations

import dataclasses
import json
import re
import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, Generic, TypeVar, cast

from peer.errors import BadCommand
from peer.limits import MAX_DEPTH, MAX_INT, MAX_ITEMS, MAX_TEXT

T = TypeVar("T")
L = TypeVar("L", bound=str)
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # JSON can spell it, UTF-8 cannot: no entry could carry it
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NO_INTEGER = re.compile(r"[0-9][.eE]|[0-9]{17}|[NI]")  # fractions, exponents, more digits than 2^53 has, NaN
_NO_BRACKETS = re.compile(r"[^][{}]+")
_NONE: Final[Mapping[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class Codec(Generic[T]):
    """Both directions of one kind of value. `decode` is told the place, for its error messages."""

    decode: Callable[[Any, str], T]
    encode: Callable[[T], Any]


Fields = Mapping[str, Codec[Any]]
Body = dict[str, Any]  # of a request or its answer


# --- single values ----------------------------------------------------------------------------------------


def _same(value: Any) -> Any:
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT or _LONE_SURROGATE.search(value):
        raise BadCommand(f"{where}: expected a string of at most {MAX_TEXT} characters")
    return value


def _uint(value: Any, where: str) -> int:
    if type(value) is not int or not 0 <= value <= MAX_INT:
        raise BadCommand(f"{where}: expected an integer from 0 to 2^53-1, got {value!r:.60}")
    return value


def _integer(value: Any, where: str) -> int:
    if type(value) is not int or not -MAX_INT <= value <= MAX_INT:
        raise BadCommand(f"{where}: expected an integer below 2^53, got {value!r:.60}")
    return value


def _flag(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise BadCommand(f"{where}: expected true or false")
    return value


text: Final = Codec(_text, cast(Callable[[str], Any], _same))
uint: Final = Codec(_uint, cast(Callable[[int], Any], _same))
integer: Final = Codec(_integer, cast(Callable[[int], Any], _same))  # with those below zero
flag: Final = Codec(_flag, cast(Callable[[bool], Any], _same))


def up_to(most: int) -> Codec[int]:
    """An integer from 0 to `most`."""

    def decode(value: Any, where: str) -> int:
        if type(value) is not int or not 0 <= value <= most:
            raise BadCommand(f"{where}: expected an integer from 0 to {most}, got {value!r:.60}")
        return value

    return Codec(decode, _same)


def prose(most_bytes: int) -> Codec[str]:
    """Text of at most `most_bytes` bytes of UTF-8."""

    def decode(value: Any, where: str) -> str:
        if not isinstance(value, str) or len(value) > most_bytes or _LONE_SURROGATE.search(value):
            raise BadCommand(f"{where}: expected a text of at most {most_bytes} bytes; send it in parts")
        if 4 * len(value) > most_bytes and len(value.encode()) > most_bytes:
            raise BadCommand(f"{where}: expected a text of at most {most_bytes} bytes; send it in parts")
        return value

    return Codec(decode, _same)


def matching(pattern: str, expected: str) -> Codec[str]:
    """Text that all of `pattern` fits: only what means the same in Python and JavaScript."""
    whole = re.compile(pattern)

    def decode(value: Any, where: str) -> str:
        if not isinstance(value, str) or whole.fullmatch(value) is None:
            raise BadCommand(f"{where}: expected {expected}, got {value!r:.60}")
        return value

    return Codec(decode, _same)


def one_of(*allowed: L) -> Codec[L]:
    """One of these texts; decoding raises BadCommand for any other."""

    def decode(value: Any, where: str) -> L:
        if not isinstance(value, str) or value not in allowed:
            raise BadCommand(f"{where}: expected one of {', '.join(allowed)}, got {value!r:.60}")
        return value

    return Codec(decode, _same)


# --- of several values ------------------------------------------------------------------------------------


def maybe(inner: Codec[T]) -> Codec[T | None]:
    """What `inner` codes, or None."""
    return Codec(
        lambda value, where: None if value is None else inner.decode(value, where),
        lambda value: None if value is None else inner.encode(value),
    )


def items_of(value: Any, where: str, most: int = MAX_ITEMS) -> list[Any]:
    """The value, if it is a list of at most `most` items that are not looked at; or BadCommand."""
    if not isinstance(value, list) or len(value) > most:
        raise BadCommand(f"{where}: expected a list of at most {most} entries")
    return value


def listed(inner: Codec[T], most: int = MAX_ITEMS) -> Codec[tuple[T, ...]]:
    """A list of at most `most` items, each by `inner`, as a tuple; or BadCommand."""
    return Codec(
        lambda value, where: tuple([inner.decode(item, where) for item in items_of(value, where, most)]),
        lambda value: [inner.encode(item) for item in value],
    )


def exactly(inner: Codec[T], count: int) -> Codec[tuple[T, ...]]:
    """A list of `count` items, each by `inner`, as a tuple; or BadCommand."""
    some = listed(inner, count)

    def decode(value: Any, where: str) -> tuple[T, ...]:
        found = some.decode(value, where)
        if len(found) != count:
            raise BadCommand(f"{where}: expected a list of {count} entries")
        return found

    return Codec(decode, some.encode)


def table(inner: Codec[T], most: int = MAX_ITEMS) -> Codec[Mapping[str, T]]:
    """An object of at most `most` names, each value by `inner`; or BadCommand."""

    def decode(value: Any, where: str) -> Mapping[str, T]:
        if not isinstance(value, dict) or len(value) > most:
            raise BadCommand(f"{where}: expected a map of at most {most} entries")
        return {_text(key, where): inner.decode(item, f"{where}.{key}") for key, item in value.items()}

    return Codec(decode, lambda value: {key: inner.encode(item) for key, item in value.items()})


def record(
    kind: type[T], fields: Fields, since: Mapping[str, Any] = _NONE, omit: Collection[str] = ()
) -> Codec[T]:
    """An object with these fields. `since`: those that may be missing, and what they mean then; those of them in `omit`
    are not written where they mean that. A field whose name is a word of Python has a line below behind it, which does
    not stand in JSON.
    """
    names = [field.name for field in dataclasses.fields(cast(Any, kind))]
    if set(names) != set(fields):
        raise TypeError(f"{kind.__name__} has the fields {names}, its codec {sorted(fields)}")
    needed = frozenset(name.rstrip("_") for name in names) - frozenset(since)
    known = [(name.rstrip("_"), fields[name].decode) for name in names]
    out = [(name.rstrip("_"), name, fields[name].encode) for name in names]

    def decode(value: Any, where: str) -> T:
        if not isinstance(value, dict):
            raise BadCommand(f"{where}: expected an object with the fields of {kind.__name__}")
        if not needed <= value.keys():
            raise BadCommand(
                f"{where}: expected the fields {', '.join(sorted(needed))}, got {sorted(value)!r:.200}"
            )
        return kind(
            *[each(value[name], f"{where}.{name}") if name in value else since[name] for name, each in known]
        )

    def whole_of(value: T) -> Body:
        return {said: each(getattr(value, name)) for said, name, each in out}

    def short(value: T) -> Body:
        return {
            said: each(getattr(value, name))
            for said, name, each in out
            if name not in omit or getattr(value, name) != since[said]
        }

    return Codec(decode, short if omit else whole_of)


def _span(value: Any, where: str) -> tuple[int, int]:
    pair = items_of(value, where)
    if len(pair) != 2 or _uint(pair[0], where) >= _uint(pair[1], where):
        raise BadCommand(f"{where}: expected pairs [first, stop) with first < stop, got {value!r:.60}")
    return (pair[0], pair[1])


span: Final = Codec(_span, list)  # [first, stop)


# --- bytes ------------------------------------------------------------------------------------------------


def dump(body: object) -> bytes:
    """Canonical JSON."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def load(data: bytes) -> dict[str, Any]:
    """The JSON object in `data`. Raises BadCommand, as it does for numbers with a point or an exponent anywhere."""
    try:
        source = data.decode()
        body = json.loads(source)
        _check_all(source)
    except (ValueError, RecursionError) as error:
        raise BadCommand(f"expected JSON, got {len(data)} bytes that are not: {error!s:.200}") from None
    if not isinstance(body, dict):
        raise BadCommand(f"expected a JSON object, got {body!r:.60}")
    return body


def _check_all(source: str) -> None:
    """What is passed over must not decide who reads on: both languages refuse the same there, too."""
    bare = _STRING.sub("", source)
    if _NO_INTEGER.search(bare):
        raise ValueError("a number that is no integer below 2^53")
    depths = accumulate(1 if bracket in "[{" else -1 for bracket in _NO_BRACKETS.sub("", bare))
    if max(depths, default=0) > MAX_DEPTH:
        raise ValueError(f"more than {MAX_DEPTH} lists and objects inside one another")


def has_more_values(data: bytes, most: int) -> bool:
    """Whether JSON has more than `most` lists, objects and items of them, told in a small part of the time in which it
    is read. What strings spell does not count; for bytes that are no JSON, either may be said.
    """
    plain = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    if plain.count(b'"') // 2 > 2 * most:  # strings: each is an item, or the name of one
        return True
    bare = b"".join(plain.split(b'"')[::2])
    return sum(map(bare.count, (b",", b"[", b"{"))) > most


def checksum(data: bytes) -> str:
    """16 hex digits that tell two states apart: CRC-32 and length. Against mistakes, not against malice."""
    return f"{zlib.crc32(data):08x}{len(data) & 0xFFFFFFFF:08x}"
