"""Writes the commands of the log as a TypeScript module: types, codecs, and what is known of each kind; the parts that
every module of records has are here, too.
"""

from __future__ import annotations

from collections.abc import Iterable

from schema.definitions import Limit, SchemaError, Type
from schema.layout import camel, camel_doc, jsdoc, used
from schema.python_records import title
from schema.records import Command, Commands, Record, RecordField, Vocabulary
from schema.typescript_code import HEAD, number

KIT = (
    "exactly",
    "flag",
    "integer",
    "list",
    "matching",
    "maybe",
    "oneOf",
    "prose",
    "record",
    "span",
    "table",
    "text",
    "uint",
    "upTo",
)


def commands_module(commands: Commands, limits: Iterable[str]) -> str:
    """Returns web_peer/src/state/generated/commands.ts."""
    body = "".join(
        [
            values_head(commands),
            "// --- commands\n\n",
            *(record_interface(commands, each.record, each.record.name) for each in commands.commands),
            *(_union(group, members) for group, members in commands.groups().items()),
            "export type KnownCommand ="
            + "".join(f"\n  | {each.record.name}" for each in commands.commands)
            + ";\n",
            "\n// --- on the wire\n\n",
            wire_head(commands),
            *(record_codec(commands, each.record, each) for each in commands.commands),
            "\nexport const CODECS: {\n"
            "  readonly [K in KnownCommand['kind']]: Codec<Extract<KnownCommand, { kind: K }>>;\n} = {\n",
            *(f"  {each.record.name}: {value_name(each.record.name)}Codec,\n" for each in commands.commands),
            "};\n\n"
            "/** The version of the protocol that brought a command, where that is above the lowest one. */\n",
            "export const SINCE: ReadonlyMap<string, number> = new Map([\n",
            *(f"  ['{each.record.name}', {each.since}],\n" for each in commands.commands if each.since),
            "]);\n\n/**\n"
            " * Who may propose a command: the leader, an owner, a member that is there to stay (headless), the\n"
            " * member that the named field names, or as the rules of conversations and operations have it.\n */\n",
            "export const PROPOSED_BY: Readonly<Record<KnownCommand['kind'], string>> = {\n",
            *(f"  {each.record.name}: '{each.by}',\n" for each in commands.commands),
            "};\n",
            *(_guard(group, members) for group, members in commands.groups().items() if len(members) > 1),
        ]
    )
    imports = "".join(
        f"import {{ {', '.join(found)} }} from '../{each.module}';\n"
        for each in commands.by_hand.values()
        if (found := _by_hand(body, each.type, camel(each.codec), "UNKNOWN"))
    )
    return (
        "/*\n * Commands of the log and the values in them (docs/protocol.md, chapter Mesh state). Pure.\n *\n"
        f" * {HEAD.format(source='schema/commands.toml')}\n */\n\n"
        f"import {{ {', '.join(used(body, limits))} }} from '../../limits';\n"
        "import {\n  type Codec,\n"
        + "".join(f"  {name},\n" for name in used(body, KIT))
        + "  type Span,\n} from '../../wire/json_codec';\n"
        + imports
        + "\n"
        + body
    )


def values_head(words: Vocabulary) -> str:
    """Returns limits, words and the values that stand in fields."""
    return "".join(
        [
            *(_limit(each) for each in words.limits),
            "\n",
            *(
                f"export type {name} = {' | '.join(_quoted(each) for each in allowed)};\n"
                for name, allowed in words.words.items()
            ),
            "\n// --- values\n\n",
            *(record_interface(words, record, "") for record in words.records),
        ]
    )


def wire_head(words: Vocabulary) -> str:
    """Returns the codecs of patterns, words and values."""
    return "".join(
        [
            *(
                f"export const {camel(name)}Pattern = matching(/{_regex(each.matches)}/, {_quoted(each.expected)});\n"
                for name, each in words.patterns.items()
            ),
            *(
                f"export const {value_name(name)}Codec = oneOf<{name}>"
                f"({', '.join(_quoted(each) for each in allowed)});\n"
                for name, allowed in words.words.items()
            ),
            *(record_codec(words, record, None) for record in words.records),
        ]
    )


def _by_hand(body: str, type_: str, codec: str, constant: str) -> list[str]:
    found = [f"type {type_}", codec]
    if type_ == "Surroundings" and used(body, (constant,)):
        found.append(constant)
    return found


def _limit(limit: Limit) -> str:
    comment = f" // {limit.doc}" if limit.doc else ""
    return f"export const {limit.name} = {number(limit.number)};{comment}\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _regex(pattern: str) -> str:
    """A pattern that all of a text must match; brackets need no backslash inside brackets there, slashes outside do."""
    return "^" + pattern.replace("\\[\\]", "[\\]").replace("://", ":\\/\\/") + "$"


def value_name(name: str) -> str:
    """Returns the name of a type as values are named: `MemberJoined` is `memberJoined`."""
    return name[0].lower() + name[1:]


def record_interface(words: Vocabulary, record: Record, kind: str) -> str:
    """Returns the type of a record, of a command with its `kind`."""
    lines = [f"  readonly kind: '{kind}';\n"] if kind else []
    for field in record.fields:
        mark = "?" if field.optional else ""
        comment = f" // {field.doc}" if field.doc else ""
        lines.append(f"  readonly {camel(field.name)}{mark}: {_annotation(words, field.type)};{comment}\n")
    return f"{jsdoc(camel_doc(record.doc))}export interface {record.name} {{\n{''.join(lines)}}}\n\n"


def _annotation(words: Vocabulary, type_: Type) -> str:
    match type_.name:
        case "text" | "prose" | "pattern":
            return "string"
        case "uint" | "integer" | "up_to":
            return "number"
        case "flag":
            return "boolean"
        case "span":
            return "Span"
        case "word" | "record":
            return type_.type().name
        case "hand":
            return words.by_hand[type_.type().name].type
        case "maybe":
            return f"{_annotation(words, type_.type())} | null"
        case "list" | "exactly":
            inner = _annotation(words, type_.type())
            return f"readonly ({inner})[]" if " " in inner else f"readonly {inner}[]"
        case "table":
            return f"ReadonlyMap<string, {_annotation(words, type_.type())}>"
    raise SchemaError(f"records: there is no type {type_.name}")


def _union(group: str, members: list[Command]) -> str:
    return (
        f"export type {title(group)}Command ="
        + "".join(f"\n  | {each.record.name}" for each in members)
        + ";\n"
    )


def _guard(group: str, members: list[Command]) -> str:
    name = f"{title(group)}Command"
    kinds = "".join(f"\n  '{each.record.name}'," for each in members)
    return (
        f"\nconst {group.upper()}_KINDS: ReadonlySet<string> = new Set([{kinds}\n]);\n\n"
        f"/** Whether a command is one of its group. */\n"
        f"export function is{name}(command: {{ readonly kind: string }}): command is {name} {{\n"
        f"  return {group.upper()}_KINDS.has(command.kind);\n}}\n"
    )


def record_codec(words: Vocabulary, record: Record, command: Command | None) -> str:
    """Returns the codec of a record."""
    fields = "".join(f"    {camel(field.name)}: {_of(words, field.type)},\n" for field in record.fields)
    absent = [field for field in record.fields if field.absent is not None]
    options = []
    if command is not None:
        options.append(f"kind: '{record.name}'")
    if absent:
        options.append(f"since: {{ {', '.join(f'{camel(each.name)}: {_absent(each)}' for each in absent)} }}")
    if omitted := [_quoted(camel(field.name)) for field in record.fields if field.omit]:
        options.append(f"omit: [{', '.join(omitted)}]")
    more = f", {{ {', '.join(options)} }}" if options else ""
    optional = any(field.optional for field in record.fields)
    type_ = f"Required<{record.name}>" if optional else record.name
    cast = f" as Codec<{record.name}>" if optional else ""
    value = value_name(record.name)
    made = f"export const {value}Codec = record<{type_}>(\n  '{record.name}',\n  {{\n{fields}  }}{more})"
    made = f"{made}{cast};\n"
    if command is not None and command.bare:
        bare = [each for each in options if not each.startswith("kind:")]
        more = f", {{ {', '.join(bare)} }}" if bare else ""
        made += (
            f"const {value}Fields = record<{type_}>(\n  '{record.name}',\n  {{\n{fields}  }}{more}){cast};\n"
            f"/** As it stands in a snapshot: without its kind. */\n"
            f"export const bare{record.name}Codec: Codec<{record.name}> = {{\n"
            f"  decode: (value, where) => ({{ ...{value}Fields.decode(value, where), kind: '{record.name}' }}),\n"
            f"  encode: (value) => {value}Fields.encode(value),\n}};\n"
        )
    return made


def _absent(field: RecordField) -> str:
    return {"{}": "new Map()", '""': "''"}.get(field.absent or "", field.absent or "")


def _of(words: Vocabulary, type_: Type) -> str:
    match type_.name:
        case "text" | "uint" | "integer" | "flag" | "span":
            return type_.name
        case "prose":
            return f"prose({type_.number(0).text})"
        case "up_to":
            return f"upTo({type_.number(0).text})"
        case "pattern":
            return f"{camel(type_.type().name)}Pattern"
        case "word" | "record":
            return f"{value_name(type_.type().name)}Codec"
        case "hand":
            return camel(words.by_hand[type_.type().name].codec)
        case "maybe":
            return f"maybe({_of(words, type_.type())})"
        case "exactly":
            return f"exactly({_of(words, type_.type())}, {type_.number(1).text})"
        case "list" | "table":
            most = f", {type_.number(1).text}" if len(type_.args) > 1 else ""
            return f"{type_.name}({_of(words, type_.type())}{most})"
    raise SchemaError(f"records: there is no type {type_.name}")
