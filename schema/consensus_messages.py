"""The messages between Raft servers: read from consensus.toml, and written for both languages and the protocol."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from schema.definitions import SchemaError, load
from schema.layout import camel, camel_doc, docstring, jsdoc
from schema.protocol_tables import row
from schema.python_code import HEAD
from schema.python_records import snake

SOURCE: Final = "schema/consensus.toml"
_PYTHON: Final = {
    "uint": "int",
    "flag": "bool",
    "id": "str",
    "data": "bytes",
    "config": "Config",
    "entries": "tuple[Entry, ...]",
}
_TYPESCRIPT: Final = {
    "uint": "number",
    "flag": "boolean",
    "id": "string",
    "data": "Uint8Array",
    "config": "Config",
    "entries": "readonly Entry[]",
}


@dataclass(frozen=True, slots=True)
class MessageField:
    """A field, and its key on the wire."""

    name: str
    key: str
    type: str
    doc: str


@dataclass(frozen=True, slots=True)
class RaftMessage:
    """One kind of message."""

    name: str
    doc: str
    fields: tuple[MessageField, ...]


@dataclass(frozen=True, slots=True)
class RaftMessages:
    """The fields of every message, and all kinds in the order of their numbers."""

    head: tuple[MessageField, ...]
    messages: tuple[RaftMessage, ...]


def read_raft_messages() -> RaftMessages:
    """Returns the messages. Raises SchemaError for an unknown type, and for a key that a message has twice."""
    source = load("consensus")
    head = _fields(source["head"])
    messages = tuple(
        RaftMessage(name, given["doc"].strip(), _fields(given["fields"]))
        for name, given in source["messages"].items()
    )
    for message in messages:
        keys = ["k", *(field.key for field in (*head, *message.fields))]
        if len(set(keys)) != len(keys):
            raise SchemaError(f"{message.name}: two fields have the same key")
    return RaftMessages(head, messages)


def _fields(given: dict[str, Any]) -> tuple[MessageField, ...]:
    for name, field in given.items():
        if field["type"] not in _PYTHON:
            raise SchemaError(f"{name}: there is no type {field['type']}")
    return tuple(
        MessageField(name, field["key"], field["type"], field.get("doc", "")) for name, field in given.items()
    )


def python_module(found: RaftMessages) -> str:
    """Returns peer/consensus/messages.py."""
    union = " | ".join(message.name for message in found.messages)
    head = "".join(f"    {field.name}: {_PYTHON[field.type]}\n" for field in found.head)
    rows = "".join(
        f"({message.name}, ({''.join(_python_row(field) + ', ' for field in message.fields)})),\n"
        for message in found.messages
    )
    return (
        '"""The messages between Raft servers; message_codec has their bytes. Pure.\n\n'
        "Every message carries its sender, the incarnations of sender and receiver, mesh and epoch, and the sender's\n"
        f"term. {HEAD.format(source=SOURCE)}\n"
        '"""\n\nfrom __future__ import annotations\n\nfrom dataclasses import dataclass\n'
        "from typing import Any, Final\n\nfrom peer.consensus.records import Config, Entry\n\n\n"
        + "".join(_python_class(message) for message in found.messages)
        + f"Body = {union}\n\n\n@dataclass(frozen=True, slots=True)\nclass Message:\n"
        f'    """A message with its envelope."""\n\n{head}    body: Body\n\n\n'
        "# Name, key on the wire and type of each field.\n"
        f"HEAD_FIELDS: Final = ({''.join(_python_row(field) + ', ' for field in found.head)})\n"
        '# The kind "k" on the wire is the place here.\n'
        "BODY_FIELDS: Final[tuple[tuple[type[Any], tuple[tuple[str, str, str], ...]], ...]] = (\n"
        f"{rows})\n"
    )


def _python_class(message: RaftMessage) -> str:
    fields = "".join(
        f"    {field.name}: {_PYTHON[field.type]}{f'  # {field.doc}' if field.doc else ''}\n"
        for field in message.fields
    )
    return (
        f"@dataclass(frozen=True, slots=True)\nclass {message.name}:\n{docstring(message.doc)}\n{fields}\n\n"
    )


def _python_row(field: MessageField) -> str:
    return f'("{field.name}", "{field.key}", "{field.type}")'


def typescript_module(found: RaftMessages) -> str:
    """Returns web_peer/src/consensus/messages.ts."""
    head = "".join(f"  readonly {camel(field.name)}: {_TYPESCRIPT[field.type]};\n" for field in found.head)
    rows = "".join(
        f"  ['{snake(message.name)}', [{_typescript_rows(message.fields)}]],\n" for message in found.messages
    )
    return (
        "/*\n * The messages between Raft servers; message_codec has their bytes. Pure.\n *\n"
        " * Every message carries its sender, the incarnations of sender and receiver, mesh and epoch, and the\n"
        f" * sender's term. {HEAD.format(source=SOURCE)}\n */\n\n"
        "import type { Config, Entry } from './records';\n\n"
        + "".join(_typescript_interface(message) for message in found.messages)
        + "export type Body ="
        + "".join(f"\n  | {message.name}" for message in found.messages)
        + f";\n\n/** A message with its envelope. */\nexport interface Message {{\n{head}  readonly body: Body;\n}}\n\n"
        "export type FieldType = "
        + " | ".join(f"'{each}'" for each in _TYPESCRIPT)
        + ";\n\n/** A field's name here, its name in errors, its key on the wire, and its type. */\n"
        "export type FieldRow = readonly [own: string, name: string, key: string, type: FieldType];\n\n"
        f"export const HEAD_FIELDS: readonly FieldRow[] = [{_typescript_rows(found.head)}];\n\n"
        '/** The kind "k" on the wire is the place here. */\n'
        "export const BODY_FIELDS: readonly (readonly [kind: Body['kind'], fields: readonly FieldRow[]])[] = [\n"
        f"{rows}];\n"
    )


def _typescript_interface(message: RaftMessage) -> str:
    fields = "".join(
        f"  readonly {camel(field.name)}: {_TYPESCRIPT[field.type]};{f' // {field.doc}' if field.doc else ''}\n"
        for field in message.fields
    )
    return (
        f"{jsdoc(camel_doc(message.doc))}export interface {message.name} {{\n"
        f"  readonly kind: '{snake(message.name)}';\n{fields}}}\n\n"
    )


def _typescript_rows(fields: Iterable[MessageField]) -> str:
    rows = [f"\n    ['{camel(each.name)}', '{each.name}', '{each.key}', '{each.type}']," for each in fields]
    return "".join(rows) + ("\n  " if rows else "")


def message_table(found: RaftMessages) -> str:
    """Returns the table of docs/protocol.md."""
    rows = [row("all", "", _words(found.head))]
    rows += [
        row(message.name, str(kind), _words(message.fields)) for kind, message in enumerate(found.messages)
    ]
    return "| message | `k` | fields, each with its key and type |\n| --- | --- | --- |\n" + "".join(rows)


def _words(fields: Iterable[MessageField]) -> str:
    return ", ".join(f"{field.name} `{field.key}` {field.type}" for field in fields)
