"""Writes the TypeScript half: limits and frames as modules of source text, laid out as they stay."""

from __future__ import annotations

from collections.abc import Iterable

from schema.definitions import Enumeration, Frame, FrameField, Frames, LimitGroup, Number, SchemaError, Type
from schema.layout import camel, camel_doc, jsdoc, used

HEAD = "Generated from {source} by `make generate`: change that, not this."


def limits_module(groups: Iterable[LimitGroup]) -> str:
    """Returns web_peer/src/limits.ts."""
    made = [
        "/*\n * Limits and timeouts that both sides of a connection share. Pure.\n *\n"
        f" * {HEAD.format(source='schema/limits.toml')}\n */\n"
    ]
    for group in groups:
        made.append(f"\n// {group.title}\n")
        for limit in group.limits:
            comment = f" // {limit.doc}" if limit.doc else ""
            made.append(f"export const {limit.name} = {number(limit.number)};{comment}\n")
    return "".join(made)


def number(given: Number) -> str:
    """Returns a number in TypeScript's spelling."""
    return given.text.removesuffix(".0")


# --- frames -----------------------------------------------------------------------------------------------


def frames_module(frames: Frames, limits: Iterable[str]) -> str:
    """Returns web_peer/src/wire/generated/frames.ts."""
    union = "".join(f"\n  | {frame.name}" for frame in frames.frames)
    of_session = [
        frame.kind for frame in frames.frames if any(field.name == "session" for field in frame.fields)
    ]
    channels = " | ".join(f"'{name.lower()}'" for name in frames.channels)
    ids = ", ".join(f"{name.lower()}: {number}" for name, number in frames.channels.items())
    body = "".join(
        [
            f"/** Data channels of a connection. */\nexport type Channel = {channels};\n\n",
            "/** The negotiated channel ids. */\n",
            f"export const CHANNEL_IDS: Readonly<Record<Channel, number>> = {{ {ids} }};\n\n",
            *(_enum(each) for each in frames.enums),
            "/** A session's 16 bytes in lower-case hex. */\nexport type SessionId = string;\n\n",
            *(_interface(frame) for frame in frames.frames),
            f"export type Frame ={union};\n\nexport type Kind = Frame['kind'];\n\n",
            _LAYOUT,
            "export const LAYOUTS: { readonly [K in Kind]: Layout<Extract<Frame, { kind: K }>> } = {\n",
            *(_layout(frame) for frame in frames.frames),
            "};\n\n",
            "/** Kinds that belong to the session that they name. */\n",
            "export const OF_SESSION: ReadonlySet<Kind> = new Set<Kind>([\n",
            *(f"  '{kind}',\n" for kind in of_session),
            "]);\n",
        ]
    )
    helpers = used(body, ("bytesFromHex", "hexFromBytes", "integer", "integers", "text", "texts"))
    return (
        "/*\n * Frames: what two peers say to each other (docs/protocol.md, chapter Frames). Pure.\n *\n"
        f" * {HEAD.format(source='schema/frames.toml')}\n */\n\n"
        f"import {{\n{''.join(f'  {name},{chr(10)}' for name in used(body, limits))}}} from '../../limits';\n"
        f"import {{ {', '.join(helpers)} }} from '../frame_fields';\n"
        "import type { Decoded, Value } from '../frame_header';\n"
        "import type { Tensor } from '../tensors';\n\n" + body
    )


_LAYOUT = """/**
 * How one kind is laid out: its number, its channel, how its header is written and read, and what follows the header.
 *
 * `toWire` returns the kind's number and the fields in order; `fromWire` reads `count` fields in order. Both raise
 * WrongField for a value that does not fit.
 */
export interface Layout<F> {
  readonly kind: Kind;
  readonly number: number;
  readonly channel: Channel;
  readonly count: number;
  readonly toWire: (frame: F) => Value[];
  readonly fromWire: (values: readonly Decoded[]) => Omit<F, 'body' | 'history' | 'tensor'>;
  readonly payload: 'none' | 'body' | 'tokens' | 'tensor';
  readonly maxPayloadBytes: number;
}

"""


def _enum(enum: Enumeration) -> str:
    values = ", ".join(f"{camel(name.lower())}: {number}" for name, number in enum.values)
    return f"{jsdoc(enum.doc)}export const {enum.name.upper()} = {{ {values} }} as const;\n\n"


def _interface(frame: Frame) -> str:
    fields = "".join(f"  readonly {camel(field.name)}: {_annotation(field)};\n" for field in frame.fields)
    match frame.payload:
        case "body":
            fields += f"  readonly body{'?' if frame.payload_optional else ''}: Uint8Array;\n"
        case "tokens":
            fields += "  readonly history: Int32Array;\n"
        case "tensor":
            fields += "  readonly tensor: Tensor;\n"
    head = (
        f"{jsdoc(camel_doc(frame.doc))}export interface {frame.name} {{\n  readonly kind: '{frame.kind}';\n"
    )
    return f"{head}{fields}}}\n\n"


def _annotation(field: FrameField) -> str:
    match field.type:
        case Type("int"):
            return "number"
        case Type("text"):
            return "string"
        case Type("bytes"):
            return "SessionId" if field.spelled == "session" else "string"
        case Type("list", (Type("text"), *_)):
            return "readonly string[]"
        case Type("list"):
            return "readonly number[]"
    raise SchemaError(f"frames: there is no type {field.type.name}")


def _layout(frame: Frame) -> str:
    names = [camel(field.name) for field in frame.fields]
    values = "".join(
        f"      {_passed(frame, field, f'frame.{camel(field.name)}', to_wire=True)},\n"
        for field in frame.fields
    )
    made = "".join(
        f"      {name}: {_passed(frame, field, f'values[{place}]', to_wire=False)},\n"
        for place, (name, field) in enumerate(zip(names, frame.fields, strict=True))
    )
    to_wire = f"(frame) => [\n      {frame.number},\n{values}    ]" if names else f"() => [{frame.number}]"
    from_wire = f"(values) => ({{\n      kind: '{frame.kind}',\n{made}    }})"
    if not names:
        from_wire = f"() => ({{ kind: '{frame.kind}' }})"
    return (
        f"  {frame.kind}: {{\n    kind: '{frame.kind}',\n    number: {frame.number},\n"
        f"    channel: '{frame.channel.lower()}',\n    count: {len(names)},\n"
        f"    toWire: {to_wire},\n    fromWire: {from_wire},\n"
        f"    payload: '{frame.payload}',\n    maxPayloadBytes: {frame.payload_max.text},\n  }},\n"
    )


def _passed(frame: Frame, field: FrameField, value: str, *, to_wire: bool) -> str:
    """The call that checks one field, and turns it into what the other side of the call holds."""
    where = f"'{frame.kind}.{camel(field.name)}'"
    match field.type:
        case Type("int") as type_:
            return f"integer({value}, {number(type_.number(0))}, {number(type_.number(1))}, {where})"
        case Type("text") as type_:
            return f"text({value}, {number(type_.number(0))}, {where})"
        case Type("bytes") as type_:
            call = "bytesFromHex" if to_wire else "hexFromBytes"
            return f"{call}({value}, {number(type_.number(0))}, {where})"
        case Type("list", (Type("text") as each, *_)) as type_:
            return f"texts({value}, {number(type_.number(1))}, {number(each.number(0))}, {where})"
        case Type("list", (Type("int") as each, *_)) as type_:
            bounds = f"{number(each.number(0))}, {number(each.number(1))}"
            return f"integers({value}, {number(type_.number(1))}, {bounds}, {where})"
    raise SchemaError(f"frames: there is no type {field.type.name}")
