/*
 * Reads and writes the messages of onnx.proto as Python's protobuf does: what is known is kept and written in canonical
 * form, what is unknown is dropped. Bytes come from a stranger: whatever they say, what is made of them is bounded.
 */

const DEPTH = 100; // of messages within messages, as protobuf allows
const MAX_ITEMS = 1 << 19; // of one model; each takes some 300 bytes, and a graph of the most nodes has fewer
const MOST_BYTES = 0x7fffffff;

/**
 * By message and number of the field: what it holds, `*` for many, `+` for many in one piece, `|` and the name of the
 * group of which one can be there. An enum is followed by its highest value. A string is `bytes`: names are read where
 * they are used. The tests compare it with the package onnx.
 */
const MESSAGES: Readonly<Record<string, Readonly<Record<number, string>>>> = {
  Attribute: {
    ...{ 1: 'bytes', 2: 'float', 3: 'int64', 4: 'bytes', 5: 'Tensor', 6: 'Graph', 7: 'float*', 8: 'int64*' },
    ...{ 9: 'bytes*', 10: 'Tensor*', 11: 'Graph*', 13: 'bytes', 14: 'Type', 15: 'Type*', 20: 'enum 14' },
    ...{ 21: 'bytes', 22: 'SparseTensor', 23: 'SparseTensor*' },
  },
  DeviceConfiguration: { 1: 'bytes', 2: 'int32', 3: 'bytes*' },
  Function: {
    ...{ 1: 'bytes', 4: 'bytes*', 5: 'bytes*', 6: 'bytes*', 7: 'Node*', 8: 'bytes', 9: 'OperatorSetId*' },
    ...{ 10: 'bytes', 11: 'Attribute*', 12: 'ValueInfo*', 13: 'bytes', 14: 'StringStringEntry*' },
  },
  Graph: {
    ...{ 1: 'Node*', 2: 'bytes', 5: 'Tensor*', 10: 'bytes', 11: 'ValueInfo*', 12: 'ValueInfo*' },
    ...{ 13: 'ValueInfo*', 14: 'TensorAnnotation*', 15: 'SparseTensor*', 16: 'StringStringEntry*' },
  },
  IntIntListEntry: { 1: 'int64', 2: 'int64*' },
  Model: {
    ...{ 1: 'int64', 2: 'bytes', 3: 'bytes', 4: 'bytes', 5: 'int64', 6: 'bytes', 7: 'Graph' },
    ...{ 8: 'OperatorSetId*', 14: 'StringStringEntry*', 20: 'TrainingInfo*', 25: 'Function*' },
    ...{ 26: 'DeviceConfiguration*' },
  },
  Node: {
    ...{ 1: 'bytes*', 2: 'bytes*', 3: 'bytes', 4: 'bytes', 5: 'Attribute*', 6: 'bytes', 7: 'bytes' },
    ...{ 8: 'bytes', 9: 'StringStringEntry*', 10: 'NodeDeviceConfiguration*' },
  },
  NodeDeviceConfiguration: { 1: 'bytes', 2: 'ShardingSpec*', 3: 'int32' },
  OperatorSetId: { 1: 'bytes', 2: 'int64' },
  ShardedDim: { 1: 'int64', 2: 'SimpleShardedDim*' },
  ShardingSpec: { 1: 'bytes', 2: 'int64*', 3: 'IntIntListEntry*', 4: 'ShardedDim*' },
  SimpleShardedDim: { 1: 'int64 | dim', 2: 'bytes | dim', 3: 'int64' },
  SparseTensor: { 1: 'Tensor', 2: 'Tensor', 3: 'int64*' },
  StringStringEntry: { 1: 'bytes', 2: 'bytes' },
  Tensor: {
    ...{ 1: 'int64*', 2: 'int32', 3: 'Tensor.Segment', 4: 'float+', 5: 'int32+', 6: 'bytes*', 7: 'int64+' },
    ...{ 8: 'bytes', 9: 'bytes', 10: 'double+', 11: 'uint64+', 12: 'bytes', 13: 'StringStringEntry*' },
    ...{ 14: 'enum 1', 16: 'StringStringEntry*' },
  },
  'Tensor.Segment': { 1: 'int64', 2: 'int64' },
  TensorAnnotation: { 1: 'bytes', 2: 'StringStringEntry*' },
  TensorShape: { 1: 'TensorShape.Dimension*' },
  'TensorShape.Dimension': { 1: 'int64 | value', 2: 'bytes | value', 3: 'bytes' },
  TrainingInfo: { 1: 'Graph', 2: 'Graph', 3: 'StringStringEntry*', 4: 'StringStringEntry*' },
  Type: {
    ...{ 1: 'Type.Tensor | value', 4: 'Type.Sequence | value', 5: 'Type.Map | value', 6: 'bytes' },
    ...{ 7: 'Type.Opaque | value', 8: 'Type.SparseTensor | value', 9: 'Type.Optional | value' },
  },
  'Type.Map': { 1: 'int32', 2: 'Type' },
  'Type.Opaque': { 1: 'bytes', 2: 'bytes' },
  'Type.Optional': { 1: 'Type' },
  'Type.Sequence': { 1: 'Type' },
  'Type.SparseTensor': { 1: 'int32', 2: 'TensorShape' },
  'Type.Tensor': { 1: 'int32', 2: 'TensorShape' },
  ValueInfo: { 1: 'bytes', 2: 'Type', 3: 'bytes', 4: 'StringStringEntry*' },
};

const WIRE = { int64: 0, uint64: 0, int32: 0, enum: 0, double: 1, bytes: 2, float: 5 } as const;
type Scalar = keyof typeof WIRE;

interface FieldShape {
  readonly scalar: Scalar | null; // null: a message
  readonly message: string;
  readonly most: number; // of an enum
  readonly many: '' | '*' | '+';
  readonly rivals: readonly number[]; // of which none is there beside it
}

const SHAPES = new Map(
  Object.entries(MESSAGES).map(([name, fields]) => [
    name,
    new Map(Object.entries(fields).map(([number, words]) => [Number(number), shapeOf(fields, words)])),
  ]),
);

/** Bytes of a scalar as they are written, several in one piece where there can be many; or a message. */
export type Item = Uint8Array | Message;

/** One message: what its fields hold, by number. */
export class Message {
  readonly kind: string;
  readonly fields = new Map<number, Item[]>();

  constructor(kind: string, fields: Readonly<Record<number, readonly Item[]>> = {}) {
    this.kind = kind;
    for (const [number, items] of Object.entries(fields)) this.fields.set(Number(number), [...items]);
  }

  /** The messages of a field. */
  messages(number: number): readonly Message[] {
    return (this.fields.get(number) ?? []).filter((item) => item instanceof Message);
  }

  /** The bytes of a field, one item of them for each string. */
  bytes(number: number): readonly Uint8Array[] {
    return (this.fields.get(number) ?? []).filter((item) => item instanceof Uint8Array);
  }

  has(number: number): boolean {
    return (this.fields.get(number)?.length ?? 0) > 0;
  }
}

/** What the tests compare with the package onnx. */
export const messageTable = (): typeof MESSAGES => MESSAGES;

/** The message that `bytes` are, or null where they are none, or make too much. */
export function readMessage(kind: string, bytes: Uint8Array): Message | null {
  const made = new Message(kind);
  return new Reader(bytes).into(made, bytes.length, DEPTH) ? made : null;
}

/** The bytes of the message: its fields by their numbers, as Python's protobuf writes them. */
export function writeMessage(message: Message): Uint8Array<ArrayBuffer> {
  const parts: Uint8Array[] = [];
  const numbers = [...message.fields.keys()].sort((a, b) => a - b);
  for (const number of numbers) {
    const shape = SHAPES.get(message.kind)?.get(number);
    const items = message.fields.get(number) ?? [];
    if (shape !== undefined && items.length > 0) writeField(parts, number, shape, items);
  }
  return joined(parts);
}

/** An integer as it stands in a message. */
export function integerItem(value: number): Uint8Array {
  return varint(BigInt.asUintN(64, BigInt(value)));
}

/** A string as it stands in a message. */
export function textItem(value: string): Uint8Array {
  return new TextEncoder().encode(value);
}

/** The low 32 bits of an integer. */
export function integerOf(item: Uint8Array | undefined): number {
  return item === undefined ? 0 : Number(BigInt.asIntN(32, valueOf(item, 0, item.length)));
}

function shapeOf(fields: Readonly<Record<number, string>>, words: string): FieldShape {
  const [held = '', group] = words.split(' | ');
  const [kind = '', most = '0'] = held.replace(/[*+]$/, '').split(' ');
  const rivals = Object.entries(fields).filter(
    ([, other]) => group !== undefined && other.endsWith(`| ${group}`),
  );
  const many = held.endsWith('*') ? '*' : held.endsWith('+') ? '+' : '';
  return {
    scalar: kind in WIRE ? (kind as Scalar) : null,
    message: kind,
    most: Number(most),
    many,
    rivals: rivals.filter(([, other]) => other !== words).map(([number]) => Number(number)),
  };
}

/** Goes through bytes once; a method gives false, or a place of -1, where they are no message. */
class Reader {
  private readonly all: Uint8Array;
  private at = 0;
  private items = 0;

  constructor(bytes: Uint8Array) {
    this.all = bytes;
  }

  /** Reads fields up to `end` into `message`, where those that it has stay. */
  into(message: Message, end: number, depth: number): boolean {
    const shapes = SHAPES.get(message.kind);
    while (this.at < end) {
      const tag = this.size(end, 0xffffffff);
      const number = tag >>> 3;
      if (tag < 0 || number === 0) return false;
      const shape = shapes?.get(number);
      const read =
        shape === undefined ? this.skip(tag, end, depth) : this.field(message, tag, shape, end, depth);
      if (!read) return false;
    }
    return this.at === end;
  }

  private field(message: Message, tag: number, shape: FieldShape, end: number, depth: number): boolean {
    const number = tag >>> 3;
    const wire = tag & 7;
    const own = shape.scalar === null ? 2 : WIRE[shape.scalar];
    const inPieces = wire === 2 && own !== 2 && shape.many !== '';
    if (wire !== own && !inPieces) return this.skip(tag, end, depth);
    if ((this.items += 1) > MAX_ITEMS) return false;
    if (shape.scalar === null) return this.message(message, number, shape, end, depth);
    const start = this.at;
    let found: Uint8Array | null;
    if (wire === 2) {
      const size = this.size(end, MOST_BYTES);
      if (size < 0 || this.at + size > end) return false;
      const body = this.all.subarray(this.at, (this.at += size));
      found = inPieces ? whole(shape.scalar, body) : body;
    } else if (wire === 0) {
      if (!this.skip(tag, end, depth)) return false;
      found = integers(shape.scalar, this.all.subarray(start, this.at));
      if (shape.scalar === 'enum' && integerOf(found ?? undefined) >>> 0 > shape.most) return true; // unknown
    } else {
      if (!this.skip(tag, end, depth)) return false;
      found = this.all.subarray(start, this.at);
    }
    if (found === null) return false;
    this.put(message, number, shape, found);
    return true;
  }

  private message(into: Message, number: number, shape: FieldShape, end: number, depth: number): boolean {
    const size = this.size(end, MOST_BYTES);
    if (size < 0 || this.at + size > end || depth === 0) return false;
    const known = shape.many === '' ? into.fields.get(number)?.[0] : undefined;
    const inner = known instanceof Message ? known : new Message(shape.message);
    if (inner !== known) this.put(into, number, shape, inner);
    return this.into(inner, this.at + size, depth - 1);
  }

  private put(message: Message, number: number, shape: FieldShape, item: Item): void {
    for (const rival of shape.rivals) message.fields.delete(rival);
    const items = message.fields.get(number);
    if (items === undefined || shape.many === '') message.fields.set(number, [item]);
    else items.push(item);
  }

  /** Passes over what follows a tag. */
  private skip(tag: number, end: number, depth: number): boolean {
    switch (tag & 7) {
      case 0:
        for (let read = 1; read <= 10 && this.at < end; read++) {
          if ((this.all[this.at++] as number) < 128) return true;
        }
        return false;
      case 1:
        return (this.at += 8) <= end;
      case 2: {
        const size = this.size(end, MOST_BYTES);
        return size >= 0 && (this.at += size) <= end;
      }
      case 3:
        return depth > 0 && this.group(tag >>> 3, end, depth - 1);
      case 5:
        return (this.at += 4) <= end;
      default:
        return false;
    }
  }

  private group(number: number, end: number, depth: number): boolean {
    while (this.at < end) {
      const tag = this.size(end, 0xffffffff);
      if (tag < 0 || tag >>> 3 === 0) return false;
      if ((tag & 7) === 4) return tag >>> 3 === number;
      if (!this.skip(tag, end, depth)) return false;
    }
    return false;
  }

  /** A length or a tag; -1: there is none of at most `most`. */
  private size(end: number, most: number): number {
    let value = 0;
    for (let place = 0; place < 5 && this.at < end; place++) {
      const byte = this.all[this.at++] as number;
      value += (byte & 127) * 2 ** (7 * place);
      if (byte < 128) return value <= most ? value : -1;
    }
    return -1;
  }
}

/** Several scalars in one piece; null: they do not end where it does. */
function whole(scalar: Scalar, body: Uint8Array): Uint8Array | null {
  if (WIRE[scalar] === 0) return integers(scalar, body);
  return body.length % (scalar === 'double' ? 8 : 4) === 0 ? body : null;
}

/** Integers in the shortest form; null: the last one does not end, or one is longer than any. */
function integers(scalar: Scalar, body: Uint8Array): Uint8Array | null {
  const parts: Uint8Array[] = [];
  let kept = 0; // what is before it is in parts
  for (let at = 0; at < body.length;) {
    let stop = at;
    while (stop < body.length && (body[stop] as number) > 127) stop++;
    if (stop === body.length || stop - at > 9) return null;
    stop++;
    if (stop - at > 1) {
      const value = valueOf(body, at, stop);
      const is32 = scalar === 'int32' || scalar === 'enum';
      const short = varint(is32 ? BigInt.asUintN(64, BigInt.asIntN(32, value)) : value);
      if (short.length !== stop - at || short.some((byte, place) => byte !== body[at + place])) {
        parts.push(body.subarray(kept, at), short);
        kept = stop;
      }
    }
    at = stop;
  }
  return parts.length === 0 ? body : joined([...parts, body.subarray(kept)]);
}

function valueOf(bytes: Uint8Array, first: number, stop: number): bigint {
  let value = 0n;
  for (let at = stop - 1; at >= first; at--) value = (value << 7n) | BigInt((bytes[at] as number) & 127);
  return BigInt.asUintN(64, value);
}

function varint(value: bigint): Uint8Array {
  const made: number[] = [];
  for (; value > 127n; value >>= 7n) made.push(Number(value & 127n) | 128);
  made.push(Number(value));
  return Uint8Array.from(made);
}

function writeField(parts: Uint8Array[], number: number, shape: FieldShape, items: readonly Item[]): void {
  const tag = (wire: number): Uint8Array => varint(BigInt(number * 8 + wire));
  if (shape.many === '+') {
    const body = joined(items.filter((item) => item instanceof Uint8Array));
    if (body.length > 0) parts.push(tag(2), varint(BigInt(body.length)), body);
    return;
  }
  for (const item of items) {
    if (item instanceof Message || shape.scalar === null || shape.scalar === 'bytes') {
      const body = item instanceof Message ? writeMessage(item) : item;
      parts.push(tag(2), varint(BigInt(body.length)), body);
    } else {
      for (const one of eachOf(shape.scalar, item)) parts.push(tag(WIRE[shape.scalar]), one);
    }
  }
}

/** The scalars of a piece, one by one. */
function* eachOf(scalar: Scalar, piece: Uint8Array): Generator<Uint8Array> {
  const fixed = scalar === 'float' ? 4 : scalar === 'double' ? 8 : 0;
  for (let at = 0; at < piece.length;) {
    let stop = at + fixed;
    if (fixed === 0) {
      while ((piece[stop] as number) > 127) stop++;
      stop++;
    }
    yield piece.subarray(at, stop);
    at = stop;
  }
}

function joined(parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const made = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    made.set(part, at);
    at += part.length;
  }
  return made;
}
