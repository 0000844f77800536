"""Writes the tables of docs/protocol.md: each stands between two comments there, which name it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from schema.definitions import Frame, FrameField, Frames, SchemaError, Type
from schema.records import Command, Commands, RecordField, Vocabulary

_TABLE = r"(<!-- generated: {name} -->\n).*?(<!-- end of {name} -->)"


def filled(page: str, tables: Mapping[str, str]) -> str:
    """Returns `page` with each table between its comments. Raises SchemaError where a table has no place."""
    for name, table in tables.items():
        pattern = re.compile(_TABLE.format(name=re.escape(name)), re.DOTALL)
        before, *rest = pattern.split(page)
        if len(rest) != 3:
            raise SchemaError(
                f"docs/protocol.md: expected the comments of {name!r} once, got {len(rest) // 3}"
            )
        page = f"{before}{rest[0]}\n{table}\n{''.join(rest[1:])}"
    return page


def frame_tables(frames: Frames) -> dict[str, str]:
    """Returns the tables of frames by name: one for each channel."""
    head = "| kind | number | fields | payload |\n| --- | --- | --- | --- |\n"
    return {
        f"frames {channel.lower()}": head
        + "".join(_frame_row(frames, frame) for frame in frames.frames if frame.channel == channel)
        for channel in frames.channels
    }


def _frame_row(frames: Frames, frame: Frame) -> str:
    fields = [_frame_field(frames, field) for field in frame.fields]
    if frame.payload == "tensor":
        fields += ["*data type*", "*shape*"]
    payload = frame.payload_note.replace("{max}", str(frame.payload_max.value))
    return row(frame.kind, str(frame.number), ", ".join(fields), payload)


def row(*cells: str) -> str:
    """Returns a line of a table."""
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells) + "\n"


def _frame_field(frames: Frames, field: FrameField) -> str:
    words = field.shown or _words(frames, field)
    named = field.name if words == field.name != "name" else f"{field.name} {words}"
    return f"{named} {field.note}".rstrip()


def _words(frames: Frames, field: FrameField) -> str:
    if field.spelled.isidentifier():
        return "0 or 1" if field.spelled == "flag" else field.spelled
    if enum := re.fullmatch(r"enum\((\w+)\)", field.spelled):
        values = next(each.values for each in frames.enums if each.name == enum[1])
        return ", ".join(f"{number} {name.lower().replace('_', ' ')}" for name, number in values)
    match field.type:
        case Type("int") as type_:
            return f"{type_.number(0).value} to {_bound(int(type_.number(1).value))}"
        case Type("bytes") as type_:
            return f"({type_.number(0).value} bytes)"
        case Type("list") as type_:
            inside = re.fullmatch(r"list\((\w+), \w+\)", field.spelled)
            each = type_.type()
            if inside:
                what = f"{inside[1]}s"
            else:
                low = each.number(0).value
                what = "integers" if low < 0 else f"integers from {low}"
            return f"(at most {type_.number(1).value} {what})"
    raise SchemaError(f"frames: {field.name} has a type without words")


def _bound(value: int) -> str:
    return "2^31-1" if value == 2**31 - 1 else str(value)


# --- commands ---------------------------------------------------------------------------------------------


def command_tables(commands: Commands) -> dict[str, str]:
    """Returns the tables of commands by name: one for each group."""
    head = "| kind | fields |\n| --- | --- |\n"
    groups: dict[str, str] = {}
    for command in commands.commands:
        groups.setdefault(command.group, head)
        groups[command.group] += _command_row(commands, command)
    return {f"commands {group}": table for group, table in groups.items()}


def _command_row(commands: Commands, command: Command) -> str:
    fields = ", ".join(record_field(commands, field) for field in command.record.fields)
    return row(command.record.name, fields + command.note)


def record_field(words: Vocabulary, field: RecordField) -> str:
    """Returns what a table says of a field."""
    said = field.note or _said(words, field.type)
    absent = f" = {field.absent}" if field.absent is not None else ""
    return f"`{field.name}`{absent}{f' {said}' if said else ''}"


def _said(words: Vocabulary, type_: Type) -> str:
    """What the table says of a type that is not only text, a number or a flag."""
    match type_:
        case Type("word"):
            return "(" + ", ".join(f'"{each}"' for each in words.words[type_.type().name]) + ")"
        case Type("span"):
            return "([first, stop))"
        case Type("list", (Type("span"), *_)):
            return "(list of [first, stop))"
        case Type("list", (Type("record") as each, *rest)):
            record = next(known for known in words.records if known.name == each.type().name)
            fields = ", ".join(record_field(words, field) for field in record.fields)
            most = f"at most {type_.number(1).value}, " if rest else ""
            return f"({most}each {fields})" if most else ""
        case Type("list", (_, _)):
            return f"(at most {type_.number(1).value})"
    return ""
