/* Decides how an ONNX model is written as protobuf (onnx.proto, IR 10): just what shards need. */

type Field = Uint8Array;

const encoder = new TextEncoder();

export type TensorType = 'f32' | 'f16' | 'u8' | 'i32' | 'i64';
const TENSOR_TYPES: Readonly<Record<TensorType, number>> = { f32: 1, u8: 2, i32: 6, i64: 7, f16: 10 };

/** Integers are written as INT, `float` as FLOAT. */
export type Attribute = number | { readonly float: number };

export interface Node {
  readonly name: string;
  readonly operator: string;
  readonly domain: string;
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly attributes: Readonly<Record<string, Attribute>>;
}

/** Weights that lie elsewhere: `length` bytes from `offset` of `location`. */
export interface ExternalTensor {
  readonly name: string;
  readonly type: TensorType;
  readonly shape: readonly number[];
  readonly location: string;
  readonly offset: number;
  readonly length: number;
}

/** A small int64 vector inside the graph. */
export interface ConstantTensor {
  readonly name: string;
  readonly values: readonly number[];
}

/** A graph input or output; sizes that vary have names. */
export interface Value {
  readonly name: string;
  readonly type: TensorType;
  readonly shape: readonly (number | string)[];
}

export interface Graph {
  readonly nodes: readonly Node[];
  readonly initializers: readonly (ExternalTensor | ConstantTensor)[];
  readonly inputs: readonly Value[];
  readonly outputs: readonly Value[];
}

export interface Versions {
  readonly ir: number;
  readonly opsets: readonly (readonly [domain: string, version: number])[];
}

/** The model file's bytes; equal to those that planner/model/shards.py writes. */
export function encodeModel(graph: Graph, versions: Versions): Uint8Array<ArrayBuffer> {
  const body = [
    ...graph.nodes.map((node) => nested(1, nodeFields(node))),
    text(2, 'shard'),
    ...graph.initializers.map((tensor) => nested(5, tensorFields(tensor))),
    ...graph.inputs.map((value) => nested(11, valueFields(value))),
    ...graph.outputs.map((value) => nested(12, valueFields(value))),
  ];
  return joined([
    integer(1, versions.ir),
    nested(7, body),
    ...versions.opsets.map(([domain, version]) => nested(8, [text(1, domain), integer(2, version)])),
  ]);
}

function nodeFields(node: Node): Field[] {
  const attributes = Object.entries(node.attributes).sort(([a], [b]) => (a < b ? -1 : 1));
  return [
    ...node.inputs.map((name) => text(1, name)),
    ...node.outputs.map((name) => text(2, name)),
    text(3, node.name),
    text(4, node.operator),
    ...attributes.map(([name, value]) => nested(5, attributeFields(name, value))),
    text(7, node.domain),
  ];
}

function attributeFields(name: string, value: Attribute): Field[] {
  if (typeof value === 'number') return [text(1, name), integer(3, value), integer(20, 2)];
  return [text(1, name), float(2, value.float), integer(20, 1)];
}

function tensorFields(tensor: ExternalTensor | ConstantTensor): Field[] {
  if ('values' in tensor) {
    const raw = new BigInt64Array(tensor.values.map(BigInt));
    return [
      integer(1, tensor.values.length),
      integer(2, TENSOR_TYPES.i64),
      text(8, tensor.name),
      bytes(9, new Uint8Array(raw.buffer)),
    ];
  }
  const entries = [
    ['location', tensor.location],
    ['offset', String(tensor.offset)],
    ['length', String(tensor.length)],
  ] as const;
  return [
    ...tensor.shape.map((size) => integer(1, size)),
    integer(2, TENSOR_TYPES[tensor.type]),
    text(8, tensor.name),
    ...entries.map(([key, value]) => nested(13, [text(1, key), text(2, value)])),
    integer(14, 1), // EXTERNAL
  ];
}

function valueFields(value: Value): Field[] {
  const sizes = value.shape.map((size) =>
    nested(1, [typeof size === 'number' ? integer(1, size) : text(2, size)]),
  );
  const type = [integer(1, TENSOR_TYPES[value.type]), nested(2, sizes)];
  return [text(1, value.name), nested(2, [nested(1, type)])];
}

function integer(field: number, value: number): Field {
  return new Uint8Array([...varint(BigInt(field) << 3n), ...varint(BigInt.asUintN(64, BigInt(value)))]);
}

function float(field: number, value: number): Field {
  const raw = new Uint8Array(new Float32Array([value]).buffer);
  return new Uint8Array([...varint((BigInt(field) << 3n) | 5n), ...raw]);
}

function text(field: number, value: string): Field {
  return bytes(field, encoder.encode(value));
}

function nested(field: number, fields: readonly Field[]): Field {
  return bytes(field, joined(fields));
}

function bytes(field: number, value: Uint8Array): Field {
  const head = [...varint((BigInt(field) << 3n) | 2n), ...varint(BigInt(value.length))];
  const made = new Uint8Array(head.length + value.length);
  made.set(head);
  made.set(value, head.length);
  return made;
}

function joined(fields: readonly Field[]): Uint8Array<ArrayBuffer> {
  const made = new Uint8Array(fields.reduce((size, field) => size + field.length, 0));
  let at = 0;
  for (const field of fields) {
    made.set(field, at);
    at += field.length;
  }
  return made;
}

function varint(value: bigint): number[] {
  const made: number[] = [];
  for (; value > 127n; value >>= 7n) made.push(Number(value & 127n) | 128);
  made.push(Number(value));
  return made;
}
