"""Writes the commands of the log as a Python module: types, codecs, and what is known of each kind; the parts that
every module of records has are here, too.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable

from schema.definitions import SchemaError, Type
from schema.layout import docstring, used
from schema.python_code import HEAD
from schema.records import Commands, Record, RecordField, Vocabulary

KIT = (
    "Codec",
    "exactly",
    "flag",
    "integer",
    "listed",
    "matching",
    "maybe",
    "one_of",
    "prose",
    "record",
    "span",
    "table",
    "text",
    "uint",
    "up_to",
)


def commands_module(commands: Commands, limits: Iterable[str]) -> str:
    """Returns peer/state/generated/commands.py."""
    records = [*commands.records, *(command.record for command in commands.commands)]
    groups = commands.groups()
    body = "".join(
        [
            values_head(commands),
            "# --- commands " + "-" * 93 + "\n\n\n",
            *(record_class(commands, command.record) for command in commands.commands),
            *(
                f"{title(group)}Command = {' | '.join(each.record.name for each in members)}\n"
                for group, members in groups.items()
            ),
            "KnownCommand = " + " | ".join(each.record.name for each in commands.commands) + "\n",
            "\n\n# --- on the wire " + "-" * 90 + "\n\n",
            wire_head(commands),
            *(record_codec(commands, record) for record in records),
            "CODECS: Final[Mapping[type[Any], Codec[Any]]] = {\n",
            *(
                f"    {each.name}: {snake(each.name)}_codec,\n"
                for each in (c.record for c in commands.commands)
            ),
            "}\n\n# The version of the protocol that brought a command, where that is above the lowest one.\n",
            "SINCE: Final[Mapping[type[Any], int]] = {\n",
            *(f"    {each.record.name}: {each.since},\n" for each in commands.commands if each.since),
            "}\n\n# Who may propose a command: the leader, an owner, a member that is there to stay (headless), the\n"
            "# member that the named field names, or as the rules of conversations and operations have it.\n",
            "PROPOSED_BY: Final[Mapping[type[Any], str]] = {\n",
            *(f"    {each.record.name}: {_quoted(each.by)},\n" for each in commands.commands),
            "}\n",
        ]
    )
    by_module: dict[str, set[str]] = {}
    for each in commands.by_hand.values():
        by_module.setdefault(each.module, set()).update(used(body, (each.type, each.codec)))
    names = set(re.findall(r"[A-Z]\w+", " ".join(f.absent or "" for r in records for f in r.fields)))
    for module, each_name in _constants(commands, records):
        by_module.setdefault(module, set()).update({each_name} & names)
    imports = "".join(
        f"from peer.state.{module} import {', '.join(sorted(found))}\n" for module, found in by_module.items()
    )
    return (
        '"""Commands of the log and the values in them (docs/protocol.md, chapter Mesh state). Pure.\n\n'
        f"{HEAD.format(source='schema/commands.toml')}\n"
        '"""\n\n'
        "from __future__ import annotations\n\n"
        "from collections.abc import Mapping\n"
        "from dataclasses import dataclass, field\n"
        "from typing import Any, Final, Literal\n\n"
        f"from peer.limits import {', '.join(used(body, limits))}\n"
        f"{imports}"
        f"from peer.wire.json_codec import {', '.join(used(body, KIT))}\n\n" + body
    )


def values_head(words: Vocabulary) -> str:
    """Returns limits, words and the values that stand in fields."""
    return "".join(
        [
            *(_limit(each.name, each.number.text, each.doc) for each in words.limits),
            "\n",
            *(
                f"{name} = Literal[{', '.join(_quoted(each) for each in allowed)}]\n"
                for name, allowed in words.words.items()
            ),
            "\n\n# --- values " + "-" * 95 + "\n\n\n",
            *(record_class(words, record) for record in words.records),
        ]
    )


def wire_head(words: Vocabulary) -> str:
    """Returns the codecs of patterns and words."""
    return "".join(
        [
            *(
                f"{name}_pattern: Final = matching({_quoted(each.matches)}, {_quoted(each.expected)})\n"
                for name, each in words.patterns.items()
            ),
            *(
                f"{snake(name)}_codec: Final[Codec[{name}]] = one_of({', '.join(_quoted(each) for each in allowed)})\n"
                for name, allowed in words.words.items()
            ),
        ]
    )


def title(group: str) -> str:
    """Returns a group as its union is called."""
    return group.title()


def snake(name: str) -> str:
    """Returns the name of a type as values are named: `MemberJoined` is `member_joined`."""
    return re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()


def python_name(name: str) -> str:
    """Returns the name of a field in Python, where words of the language get a line below behind them."""
    return f"{name}_" if keyword.iskeyword(name) else name


def _constants(commands: Commands, records: Iterable[Record]) -> list[tuple[str, str]]:
    """The modules and names of constants that fields by hand have where they are absent."""
    return [
        (commands.by_hand[field.type.type().name].module, field.absent)
        for record in records
        for field in record.fields
        if field.type.name == "hand" and field.absent is not None
    ]


def _limit(name: str, text: str, doc: str) -> str:
    return f"{name}: Final = {text}{f'  # {doc}' if doc else ''}\n"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\") + '"'


def record_class(words: Vocabulary, record: Record) -> str:
    """Returns the class of a record."""
    lines = []
    for field in record.fields:
        value = "" if field.default is None else f" = {_default(field.default)}"
        comment = f"  # {field.doc.replace('null:', 'None:')}" if field.doc else ""
        lines.append(f"    {python_name(field.name)}: {_annotation(words, field.type)}{value}{comment}\n")
    doc = record.doc.replace(" null", " None")
    quoted = docstring(doc)
    return f"@dataclass(frozen=True, slots=True)\nclass {record.name}:\n{quoted}\n{''.join(lines)}\n\n"


def _default(value: str) -> str:
    if value == "{}":
        return "field(default_factory=dict)"
    return {"null": "None", "false": "False", "true": "True", "[]": "()"}.get(value, value)


def _annotation(words: Vocabulary, type_: Type) -> str:
    match type_.name:
        case "text" | "prose" | "pattern":
            return "str"
        case "uint" | "integer" | "up_to":
            return "int"
        case "flag":
            return "bool"
        case "span":
            return "tuple[int, int]"
        case "word" | "record":
            return type_.type().name
        case "hand":
            return words.by_hand[type_.type().name].type
        case "maybe":
            return f"{_annotation(words, type_.type())} | None"
        case "list" | "exactly":
            return f"tuple[{_annotation(words, type_.type())}, ...]"
        case "table":
            return f"Mapping[str, {_annotation(words, type_.type())}]"
    raise SchemaError(f"records: there is no type {type_.name}")


def record_codec(words: Vocabulary, record: Record) -> str:
    """Returns the codec of a record."""
    fields = ", ".join(f'"{python_name(field.name)}": {_of(words, field.type)}' for field in record.fields)
    absent = [field for field in record.fields if field.absent is not None]
    since = "".join(f'"{field.name}": {_absent(field)}, ' for field in absent)
    more = f", since={{{since}}}" if absent else ""
    if omitted := [python_name(field.name) for field in record.fields if field.omit]:
        more += f", omit={{{', '.join(_quoted(name) for name in omitted)}}}"
    return f"{snake(record.name)}_codec: Final = record({record.name}, {{{fields}}}{more})\n"


def _absent(field: RecordField) -> str:
    return _default(field.absent or "").replace("field(default_factory=dict)", "{}")


def _of(words: Vocabulary, type_: Type) -> str:
    match type_.name:
        case "text" | "uint" | "integer" | "flag" | "span":
            return type_.name
        case "prose":
            return f"prose({type_.number(0).text})"
        case "up_to":
            return f"up_to({type_.number(0).text})"
        case "pattern":
            return f"{type_.type().name}_pattern"
        case "word" | "record":
            return f"{snake(type_.type().name)}_codec"
        case "hand":
            return words.by_hand[type_.type().name].codec
        case "maybe":
            return f"maybe({_of(words, type_.type())})"
        case "exactly":
            return f"exactly({_of(words, type_.type())}, {type_.number(1).text})"
        case "list" | "table":
            kind = "listed" if type_.name == "list" else "table"
            most = f", {type_.number(1).text}" if len(type_.args) > 1 else ""
            return f"{kind}({_of(words, type_.type())}{most})"
    raise SchemaError(f"records: there is no type {type_.name}")
