"""Writes the Python half: limits and frames as modules of source text, which `generate` lays out with ruff."""

from __future__ import annotations

from collections.abc import Iterable

from schema.definitions import Enumeration, Frame, FrameField, Frames, LimitGroup, SchemaError, Type
from schema.layout import docstring, used

HEAD = "Generated from {source} by `make generate`: change that, not this."


def limits_module(groups: Iterable[LimitGroup]) -> str:
    """Returns peer/limits.py."""
    made = [
        f'"""Limits and timeouts that both sides of a connection share. Pure.\n\n'
        f'{HEAD.format(source="schema/limits.toml")}\n"""\n\nfrom typing import Final\n'
    ]
    for group in groups:
        made.append(f"\n# {group.title}\n")
        for limit in group.limits:
            if limit.doc:
                made.append(f"# {limit.name}: {limit.doc}\n" if len(limit.doc) > 60 else "")
            comment = f"  # {limit.doc}" if limit.doc and len(limit.doc) <= 60 else ""
            made.append(f"{limit.name}: Final = {limit.number.text}{comment}\n")
    return "".join(made)


# --- frames -----------------------------------------------------------------------------------------------


def frames_module(frames: Frames, limits: Iterable[str]) -> str:
    """Returns peer/wire/generated/frames.py."""
    body = "".join(
        [
            _channels(frames),
            _kinds(frames),
            *(_enum(each) for each in frames.enums),
            *(_frame_class(frame) for frame in frames.frames),
            "Frame = " + " | ".join(frame.name for frame in frames.frames) + "\n\n\n",
            _LAYOUT,
            *(_check(frame) for frame in frames.frames),
            _layouts(frames),
        ]
    )
    helpers = used(body, ("fits_integers", "fits_text", "fits_texts", "wrong_count", "wrong_field"))
    wanted = used(body, limits)
    return (
        '"""Frames: what two peers say to each other (docs/protocol.md, chapter Frames). Pure.\n\n'
        f'{HEAD.format(source="schema/frames.toml")}\n"""\n\n'
        "from collections.abc import Callable, Sequence\n"
        "from dataclasses import dataclass\n"
        "from enum import IntEnum\n"
        "from operator import attrgetter\n"
        "from typing import Any, Final, Literal, NamedTuple\n\n"
        f"from peer.limits import {', '.join(wanted)}\n"
        f"from peer.wire.frame_fields import {', '.join(helpers)}\n"
        "from peer.wire.tensors import Tensor\n\n\n" + body
    )


_LAYOUT = '''class Layout(NamedTuple):
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


'''


def _channels(frames: Frames) -> str:
    lines = "".join(f"    {name} = {number}\n" for name, number in frames.channels.items())
    doc = "Data channels of a connection; the number is the negotiated channel id."
    return f"class Channel(IntEnum):\n{docstring(doc)}\n{lines}\n\n"


def _kinds(frames: Frames) -> str:
    lines = "".join(f"    {frame.kind} = {frame.number}\n" for frame in frames.frames)
    return f"class Kind(IntEnum):\n{docstring('Kind numbers.')}\n{lines}\n\n"


def _enum(enum: Enumeration) -> str:
    lines = "".join(f"    {name} = {number}\n" for name, number in enum.values)
    return f"class {enum.name}(IntEnum):\n{docstring(enum.doc)}\n{lines}\n\n"


def _frame_class(frame: Frame) -> str:
    fields = "".join(f"    {field.name}: {_annotation(field.type)}\n" for field in frame.fields)
    match frame.payload:
        case "body":
            fields += '    body: bytes = b""\n' if frame.payload_optional else "    body: bytes\n"
        case "tokens":
            fields += "    history: tuple[int, ...]\n"
        case "tensor":
            fields += "    tensor: Tensor\n"
    return f"@dataclass(frozen=True, slots=True)\nclass {frame.name}:\n{docstring(frame.doc)}\n{fields}\n\n"


def _annotation(type_: Type) -> str:
    match type_.name:
        case "int":
            return "int"
        case "text":
            return "str"
        case "bytes":
            return "bytes"
        case "list":
            return f"tuple[{_annotation(type_.type())}, ...]"
    raise SchemaError(f"frames: there is no type {type_.name}")


def _check(frame: Frame) -> str:
    name = f"_check_{frame.kind.lower()}"
    lines = [f"def {name}(values: Sequence[Any]) -> None:"]
    count = len(frame.fields)
    lines.append(f"    if len(values) != {count}:")
    lines.append(f'        raise wrong_count("{frame.kind}", {count}, values)')
    if frame.fields:
        comma = "," if count == 1 else ""
        lines.append(f"    {', '.join(field.name for field in frame.fields)}{comma} = values")
    for field in frame.fields:
        refuses, expected = _refuses(field)
        lines.append(f"    if {refuses}:")
        lines.append(f'        raise wrong_field("{frame.kind}.{field.name}", {expected}, {field.name})')
    return "\n".join(lines) + "\n\n\n"


def _refuses(field: FrameField) -> tuple[str, str]:
    """The condition under which a value is refused, and what was expected, as source."""
    type_, name = field.type, field.name
    match type_.name:
        case "int":
            low, high = type_.number(0), type_.number(1)
            refuses = f"type({name}) is not int or not {low.text} <= {name} <= {high.text}"
            return refuses, f'"an integer from {low.value} to {high.value}"'
        case "text":
            limit = type_.number(0)
            return f"not fits_text({name}, {limit.text})", f'"text of at most {limit.value} bytes"'
        case "bytes":
            limit = type_.number(0)
            return f"type({name}) is not bytes or len({name}) != {limit.text}", f'"{limit.value} bytes"'
        case "list":
            most, each = type_.number(1), type_.type()
            if each.name == "text":
                limit = each.number(0)
                return (
                    f"not fits_texts({name}, {most.text}, {limit.text})",
                    f'"at most {most.value} texts, each text of at most {limit.value} bytes"',
                )
            low, high = each.number(0), each.number(1)
            return (
                f"not fits_integers({name}, {most.text}, {low.text}, {high.text})",
                f'"at most {most.value} integers from {low.value} to {high.value}"',
            )
    raise SchemaError(f"frames: there is no type {type_.name}")


def _layouts(frames: Frames) -> str:
    rows = []
    for frame in frames.frames:
        names = [field.name for field in frame.fields]
        match names:
            case []:
                values = "lambda frame: ()"
            case [name]:
                values = f"lambda frame: (frame.{name},)"
            case _:
                values = "attrgetter(" + ", ".join(f'"{name}"' for name in names) + ")"
        rows.append(
            f"Layout({frame.name}, Kind.{frame.kind}, Channel.{frame.channel}, {values}, "
            f'_check_{frame.kind.lower()}, "{frame.payload}", {frame.payload_max.text}),\n'
        )
    of_session = [
        frame.name for frame in frames.frames if any(field.name == "session" for field in frame.fields)
    ]
    return (
        f"LAYOUTS: Final[tuple[Layout, ...]] = (\n{''.join(rows)})\n"
        "# Frames that belong to the session that they name.\n"
        f"OF_SESSION: Final[frozenset[type[Any]]] = frozenset({{{', '.join(of_session)}}})\n"
    )
