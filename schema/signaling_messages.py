"""The messages of signaling: read from signaling.toml, and written for both languages and the protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from schema.definitions import Limit, Number, Reader, SchemaError, Type, load
from schema.layout import camel, camel_doc, docstring, jsdoc, used
from schema.protocol_tables import row
from schema.python_code import HEAD
from schema.python_records import snake
from schema.typescript_code import number

SOURCE: Final = "schema/signaling.toml"
_SENDERS: Final = {"server": "server", "member": "client", "founder": "client", "both": "both"}
_PYTHON_KIT: Final = ("Bytes", "Flag", "Id", "Int", "List", "Maybe", "Record", "Text", "Word")
_TYPESCRIPT_KIT: Final = ("bytes", "flag", "id", "int", "list", "maybe", "record", "text", "word")


@dataclass(frozen=True, slots=True)
class Shape:
    """A record or a message. `module` is where the type of a record is written by hand; "": it is generated."""

    name: str
    doc: str
    fields: tuple[tuple[str, Type], ...]
    module: str
    sender: str
    note: str
    defaults: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SignalingMessages:
    """Records and messages, and the names that come from other modules."""

    limits: tuple[Limit, ...]
    imported: Mapping[str, tuple[str, ...]]
    words: Mapping[str, Mapping[str, str]]
    records: tuple[Shape, ...]
    messages: tuple[Shape, ...]


def read_signaling_messages() -> SignalingMessages:
    """Returns the messages. Raises SchemaError for a sender, a record or a word that is not there."""
    source = load("signaling")
    own = {name: Reader({}).number(given["value"]) for name, given in source["limits"].items()}
    others = {name: Number(name, 0) for names in source["imported"].values() for name in names}
    reader = Reader({**own, **others}, source["types"])
    found = SignalingMessages(
        tuple(Limit(name, own[name], given.get("doc", "")) for name, given in source["limits"].items()),
        {module: tuple(names) for module, names in source["imported"].items()},
        source["words"],
        tuple(_shape(reader, name, given) for name, given in source["records"].items()),
        tuple(_shape(reader, name, given) for name, given in source["messages"].items()),
    )
    known = {"record": {each.name for each in found.records}, "word": set(found.words)}
    for shape in (*found.records, *found.messages):
        if shape.sender not in ("", *_SENDERS):
            raise SchemaError(f"{shape.name}: nobody is called {shape.sender}")
        for name, type_ in shape.fields:
            inner = type_.type() if type_.name in ("list", "maybe") else type_
            if inner.name in known and inner.type().name not in known[inner.name]:
                raise SchemaError(f"{shape.name}.{name}: there is no {inner.name} {inner.type().name}")
    return found


def _shape(reader: Reader, name: str, given: Mapping[str, Any]) -> Shape:
    fields = tuple((field, reader.type(spelled)) for field, spelled in given["fields"].items())
    return Shape(
        name,
        given.get("doc", "").strip(),
        fields,
        given.get("module", ""),
        given.get("from", ""),
        given.get("note", ""),
        given.get("defaults", {}),
    )


def _sent_by(found: SignalingMessages, side: str) -> list[Shape]:
    return [each for each in found.messages if _SENDERS[each.sender] in (side, "both")]


# --- Python -----------------------------------------------------------------------------------------------


def python_module(found: SignalingMessages) -> str:
    """Returns signaling/generated/messages.py."""
    body = "".join(
        [
            *(
                f"{each.name} = {each.number.text}{f'  # {each.doc}' if each.doc else ''}\n"
                for each in found.limits
            ),
            "\n\n",
            *(_python_class(shape) for shape in found.messages),
            *(
                f"{side.title()}Message = {' | '.join(each.name for each in _sent_by(found, side))}\n"
                for side in ("client", "server")
            ),
            "Message = ClientMessage | ServerMessage\n\n",
            *(f"{snake(each.name).upper()} = {_python_record(each)}\n" for each in found.records),
            *(_python_table(found, side) for side in ("client", "server")),
        ]
    )
    modules: dict[str, set[str]] = {
        module: set(used(body, names)) for module, names in found.imported.items()
    }
    for word, given in found.words.items():
        modules.setdefault(given["module"], set()).update(used(body, (word,)))
    for record in found.records:
        modules.setdefault(record.module, set()).add(record.name)
    imports = "".join(
        f"from signaling.{module} import {', '.join(sorted(names))}\n" for module, names in modules.items()
    )
    return (
        '"""Messages between a member and the signaling server, and what each may hold. Pure.\n\n'
        f'{HEAD.format(source=SOURCE)}\n"""\n\nfrom __future__ import annotations\n\n'
        "from dataclasses import dataclass\n\n"
        f"{imports}from signaling.message_fields import {', '.join(used(body, _PYTHON_KIT))}\n\n" + body
    )


def _python_class(shape: Shape) -> str:
    fields = "".join(
        f"    {name}: {_python_annotation(type_)}{f' = {shape.defaults[name]}' if name in shape.defaults else ''}\n"
        for name, type_ in shape.fields
    )
    return f"@dataclass(frozen=True)\nclass {shape.name}:\n{docstring(shape.doc)}\n{fields}\n\n"


def _python_annotation(type_: Type) -> str:
    match type_.name:
        case "chars" | "lines" | "id":
            return "str"
        case "uint":
            return "int"
        case "flag":
            return "bool"
        case "bytes":
            return "bytes"
        case "word" | "record":
            return type_.type().name
        case "maybe":
            return f"{_python_annotation(type_.type())} | None"
        case "list":
            return f"tuple[{_python_annotation(type_.type())}, ...]"
    raise SchemaError(f"signaling: there is no type {type_.name}")


def _python_record(shape: Shape) -> str:
    fields = "".join(f'("{name}", {_python_field(type_)}), ' for name, type_ in shape.fields)
    return f"Record({shape.name}, ({fields}))"


def _python_field(type_: Type) -> str:
    texts = [arg.text for arg in type_.args if isinstance(arg, Number)]
    match type_.name:
        case "chars":
            return f"Text({', '.join(texts)})"
        case "lines":
            return f"Text({texts[0]}, lines=True)"
        case "id" | "flag":
            return f"{type_.name.title()}()"
        case "uint":
            return f"Int({texts[0]})"
        case "bytes":
            return f"Bytes(({', '.join(texts)},))"
        case "word":
            return f"Word({type_.type().name})"
        case "record":
            return snake(type_.type().name).upper()
        case "maybe":
            return f"Maybe({_python_field(type_.type())})"
        case "list":
            return f"List({_python_field(type_.type())}, {texts[0]})"
    raise SchemaError(f"signaling: there is no type {type_.name}")


def _python_table(found: SignalingMessages, side: str) -> str:
    rows = "".join(f'"{each.name.lower()}": {_python_record(each)},\n' for each in _sent_by(found, side))
    return f"{side.upper()}: dict[str, Record[{side.title()}Message]] = {{\n{rows}}}\n"


# --- TypeScript -------------------------------------------------------------------------------------------


def typescript_module(found: SignalingMessages) -> str:
    """Returns web_peer/src/signaling/generated/messages.ts."""
    own = [record for record in found.records if record.module == "ice"]
    body = "".join(
        [
            *(
                f"export const {each.name} = {number(each.number)};{f' // {each.doc}' if each.doc else ''}\n"
                for each in found.limits
            ),
            "\n",
            *(_typescript_interface(shape, "") for shape in own),
            *(_typescript_interface(shape, shape.name.lower()) for shape in found.messages),
            *(
                f"export type {side.title()}Message ="
                + "".join(f"\n  | {each.name}" for each in _sent_by(found, side))
                + ";\n\n"
                for side in ("client", "server")
            ),
            *(
                f"const {snake(each.name).upper()} = record({_typescript_fields(found, each)});\n"
                for each in found.records
            ),
            *(_typescript_table(found, side) for side in ("client", "server")),
        ]
    )
    modules: dict[str, list[str]] = {module: used(body, names) for module, names in found.imported.items()}
    for given in found.words.values():
        modules.setdefault(given["module"], []).append(given["typescript"])
    for record in found.records:
        if record not in own:
            modules.setdefault(record.module, []).append(f"type {record.name}")
    modules.setdefault("keys", []).append("type Base64")
    imports = "".join(
        f"import {{ {', '.join(names)} }} from '../{module}';\n" for module, names in modules.items()
    )
    return (
        "/*\n * Messages between a member and the signaling server, and what each may hold. Pure.\n *\n"
        f" * {HEAD.format(source=SOURCE)}\n */\n\n{imports}"
        f"import {{ {', '.join(used(body, _TYPESCRIPT_KIT))}, type Read }} from '../message_fields';\n\n"
        + body
    )


def _typescript_interface(shape: Shape, kind: str) -> str:
    head = f"  readonly kind: '{kind}';\n" if kind else ""
    fields = "".join(
        f"  readonly {camel(name)}: {_typescript_annotation(type_)};\n" for name, type_ in shape.fields
    )
    return f"{jsdoc(camel_doc(shape.doc))}export interface {shape.name} {{\n{head}{fields}}}\n\n"


def _typescript_annotation(type_: Type) -> str:
    match type_.name:
        case "chars" | "lines" | "id":
            return "string"
        case "uint":
            return "number"
        case "flag":
            return "boolean"
        case "bytes":
            return "Base64"
        case "word" | "record":
            return type_.type().name
        case "maybe":
            return f"{_typescript_annotation(type_.type())} | null"
        case "list":
            return f"readonly {_typescript_annotation(type_.type())}[]"
    raise SchemaError(f"signaling: there is no type {type_.name}")


def _typescript_fields(found: SignalingMessages, shape: Shape) -> str:
    rows = "".join(f"\n  {camel(name)}: {_typescript_field(found, type_)}," for name, type_ in shape.fields)
    return f"{{{rows}\n}}" if rows else "{}"


def _typescript_field(found: SignalingMessages, type_: Type) -> str:
    texts = [number(arg) for arg in type_.args if isinstance(arg, Number)]
    match type_.name:
        case "chars":
            return f"text({', '.join(texts)})"
        case "lines":
            return f"text({texts[0]}, 0, true)"
        case "id" | "flag":
            return type_.name
        case "uint":
            return f"int({texts[0]})"
        case "bytes":
            return f"bytes({', '.join(texts)})"
        case "word":
            return f"word({found.words[type_.type().name]['typescript']})"
        case "record":
            return snake(type_.type().name).upper()
        case "maybe":
            return f"maybe({_typescript_field(found, type_.type())})"
        case "list":
            return f"list({_typescript_field(found, type_.type())}, {texts[0]})"
    raise SchemaError(f"signaling: there is no type {type_.name}")


def _typescript_table(found: SignalingMessages, side: str) -> str:
    rows = "".join(
        f"  {each.name.lower()}: record({_typescript_fields(found, each)}),\n"
        for each in _sent_by(found, side)
    )
    name = f"{side.title()}Message"
    return f"\nexport const {side.upper()}: Readonly<Record<{name}['kind'], Read>> = {{\n{rows}}};\n"


# --- docs -------------------------------------------------------------------------------------------------


def signaling_tables(found: SignalingMessages) -> dict[str, str]:
    """Returns the tables of docs/protocol.md."""
    messages = "".join(
        row(f"`{each.name.lower()}`", each.sender, f"{_words(each)} {each.note}".strip())
        for each in found.messages
    )
    records = "".join(row(snake(each.name).replace("_", " "), _words(each)) for each in found.records)
    return {
        "signaling messages": "| kind | from | fields |\n| --- | --- | --- |\n" + messages,
        "signaling records": "| record | fields |\n| --- | --- |\n" + records,
    }


def _words(shape: Shape) -> str:
    return ", ".join(f"{name}{_said(type_)}" for name, type_ in shape.fields)


def _said(type_: Type) -> str:
    match type_.name:
        case "maybe":
            return " or null"
        case "list" if most := type_.number(1).value:
            return f" (≤ {most})"
        case "chars" | "lines":
            return f" (≤ {type_.number(0).value} characters)"
    return ""
