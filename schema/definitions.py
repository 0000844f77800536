"""The schema as values: limits, types of fields, frames; read from the TOML files of this folder.

A type is an expression such as `list(int(0, MAX_ROUTE - 1), MAX_SHADOWS)`: a name, or a call with types, numbers and
texts. Numbers are expressions, too; their text is kept, since Python and TypeScript spell them alike.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parent


class SchemaError(Exception):
    """The schema says what cannot be: the message names the place."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number as the schema spells it, and its value."""

    text: str
    value: float | int


@dataclass(frozen=True, slots=True)
class Type:
    """What a field may hold: a name, and for some the types, numbers and texts in its brackets."""

    name: str
    args: tuple[Type | Number | str, ...] = ()

    def number(self, place: int) -> Number:
        """Returns the argument at `place`, which is a number. Raises SchemaError."""
        found = self.args[place] if place < len(self.args) else None
        if not isinstance(found, Number):
            raise SchemaError(f"{self.name}: expected a number in its brackets at place {place}")
        return found

    def type(self, place: int = 0) -> Type:
        """Returns the argument at `place`, which is a type. Raises SchemaError."""
        found = self.args[place] if place < len(self.args) else None
        if not isinstance(found, Type):
            raise SchemaError(f"{self.name}: expected a type in its brackets at place {place}")
        return found


@dataclass(frozen=True, slots=True)
class Limit:
    """A shared number with its reason."""

    name: str
    number: Number
    doc: str


@dataclass(frozen=True, slots=True)
class LimitGroup:
    """Limits under one title."""

    title: str
    limits: tuple[Limit, ...]


@dataclass(frozen=True, slots=True)
class Enumeration:
    """Named numbers or words."""

    name: str
    doc: str
    values: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class FrameField:
    """One field of a header. `spelled` is its type as the schema has it; `note` and `shown` are for the protocol."""

    name: str
    spelled: str
    type: Type
    note: str
    shown: str


@dataclass(frozen=True, slots=True)
class Frame:
    """One kind of frame."""

    name: str
    kind: str
    number: int
    channel: str
    doc: str
    fields: tuple[FrameField, ...]
    payload: str
    payload_max: Number
    payload_note: str
    payload_optional: bool


@dataclass(frozen=True, slots=True)
class Frames:
    """All frames, the channels by name, and the enumerations that they use."""

    channels: Mapping[str, int]
    enums: tuple[Enumeration, ...]
    frames: tuple[Frame, ...]


class Reader:
    """Reads type expressions; knows the limits, the names that stand for longer types, and enumerations."""

    def __init__(
        self,
        limits: Mapping[str, Number],
        names: Mapping[str, str] | None = None,
        enums: Mapping[str, Enumeration] | None = None,
    ) -> None:
        self._limits = limits
        self._names = dict(names or {})
        self._enums = dict(enums or {})

    def number(self, text: str | int | float) -> Number:
        """Returns a number by its expression. Raises SchemaError."""
        source = str(text)
        try:
            tree = ast.parse(source, mode="eval").body
        except SyntaxError:
            raise SchemaError(f"expected a number, got {source!r}") from None
        return Number(ast.unparse(tree), self._value(tree))

    def type(self, text: str) -> Type:
        """Returns a type by its expression. Raises SchemaError."""
        try:
            return self._type(ast.parse(text, mode="eval").body)
        except SyntaxError:
            raise SchemaError(f"expected a type, got {text!r}") from None

    def _type(self, tree: ast.expr) -> Type:
        match tree:
            case ast.Name(id=name) if name in self._names:
                return self.type(self._names[name])
            case ast.Name(id=name) if not name.isupper():
                return Type(name)
            case ast.Call(func=ast.Name(id="enum"), args=[ast.Name(id=name)]) if name in self._enums:
                highest = max(number for _, number in self._enums[name].values)
                return Type("int", (self.number(0), self.number(highest)))
            case ast.Call(func=ast.Name(id=name), args=args):
                return Type(name, tuple(self._argument(each) for each in args))
        raise SchemaError(f"expected a type or a limit, got {ast.unparse(tree)}")

    def _argument(self, tree: ast.expr) -> Type | Number | str:
        match tree:
            case ast.Constant(value=str(text)):
                return text
            case ast.Call():
                return self._type(tree)
            case ast.Name(id=name) if name not in self._limits:
                return self._type(tree)
        return Number(ast.unparse(tree), self._value(tree))

    def _value(self, tree: ast.expr) -> float | int:
        match tree:
            case ast.Constant(value=int(value)) | ast.Constant(value=float(value)):
                return value
            case ast.Name(id=name) if name in self._limits:
                return self._limits[name].value
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self._value(operand)
            case ast.BinOp(left=left, op=op, right=right):
                one, other = self._value(left), self._value(right)
                match op:
                    case ast.Add():
                        return one + other
                    case ast.Sub():
                        return one - other
                    case ast.Mult():
                        return one * other
                    case ast.Pow():
                        return int(one**other)
        raise SchemaError(f"expected a number or a limit, got {ast.unparse(tree)}")


def load(name: str) -> dict[str, Any]:
    """Returns what `name`.toml holds."""
    return tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


def read_limits() -> tuple[LimitGroup, ...]:
    """Returns the shared limits in their order. Raises SchemaError."""
    known: dict[str, Number] = {}
    groups = []
    for group in load("limits")["group"]:
        limits = []
        for name, given in group["limits"].items():
            if name in known:
                raise SchemaError(f"limit {name}: it stands there twice")
            number = Reader(known).number(given["value"])
            known[name] = number
            limits.append(Limit(name, number, given.get("doc", "")))
        groups.append(LimitGroup(group["title"], tuple(limits)))
    return tuple(groups)


def numbers_of(groups: tuple[LimitGroup, ...]) -> dict[str, Number]:
    """Returns the limits by name."""
    return {limit.name: limit.number for group in groups for limit in group.limits}


def read_frames(limits: Mapping[str, Number]) -> Frames:
    """Returns the frames. Raises SchemaError, as for a number or a kind that stands there twice."""
    source = load("frames")
    enums = tuple(
        Enumeration(name, given["doc"], tuple(given["values"].items()))
        for name, given in source["enums"].items()
    )
    reader = Reader(limits, source["types"], {enum.name: enum for enum in enums})
    frames = tuple(_frame(reader, name, given) for name, given in source["frames"].items())
    for what in ("kind", "number"):
        if len({getattr(frame, what) for frame in frames}) != len(frames):
            raise SchemaError(f"frames: two have the same {what}")
    return Frames(source["channels"], enums, frames)


def _frame(reader: Reader, name: str, given: Mapping[str, Any]) -> Frame:
    fields = tuple(
        FrameField(
            field["name"],
            field["type"],
            reader.type(field["type"]),
            field.get("note", ""),
            field.get("shown", ""),
        )
        for field in given["fields"]
    )
    return Frame(
        name,
        given["kind"],
        given["number"],
        given["channel"],
        given["doc"].strip(),
        fields,
        given.get("payload", "none"),
        reader.number(given.get("payload_max", 0)),
        given.get("payload_note", ""),
        given.get("payload_optional", False),
    )
