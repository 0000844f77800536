/*
 * How a run of units becomes one ONNX model whose weights lie in blobs (twin of planner/model/compose.py, byte for
 * byte). A graph comes from a stranger: what is not bounded, does not resolve or reaches outside is refused.
 */

import { CannotServe } from '../errors';
import { toHex } from '../wire/hex';
import { sha256 } from '../wire/sha256';
import {
  givenBy,
  type GraphManifest,
  type GraphUnit,
  neededBy,
  quoted,
  type Value,
  type ValueType,
  type Weight,
} from './graph_manifest';
import type { BlobRef } from './blob_ref';
import {
  integerItem,
  integerOf,
  type Item,
  Message,
  readMessage,
  textItem,
  writeMessage,
} from './onnx_messages';

export const IR_VERSION = 10;
const MAX_GRAPH_BYTES = 4 << 20; // of a unit; parsed, hostile bytes take many times as much
export const MAX_RUN_BYTES = 64 << 20; // of the graphs of one run, equal ones counted each time
const MAX_NODES = 1 << 16; // of a unit, those of bodies included
const MAX_DEPTH = 8; // of bodies within bodies: If in Loop in Scan
const EXTERNAL = 1;
const SHOWN_CHARS = 80; // of a name in an error

/** Numbers of data types in ONNX. */
export const ELEMENT_TYPES: Readonly<Record<ValueType, number>> = {
  float32: 1,
  uint8: 2,
  int8: 3,
  uint16: 4,
  int16: 5,
  int32: 6,
  int64: 7,
  string: 8,
  bool: 9,
  float16: 10,
  float64: 11,
  uint32: 12,
  uint64: 13,
  complex64: 14,
  complex128: 15,
  bfloat16: 16,
  uint4: 21,
  int4: 22,
};

/** Fields of the messages, by their numbers in onnx.proto. */
export const MODEL = { irVersion: 1, graph: 7, opsets: 8, training: 20, functions: 25 } as const;
export const OPSET = { domain: 1, version: 2 } as const;
export const GRAPH = { nodes: 1, name: 2, initializers: 5, doc: 10, inputs: 11, outputs: 12, infos: 13, quantization: 14, sparse: 15, metadata: 16 } as const; // prettier-ignore
export const NODE = { inputs: 1, outputs: 2, name: 3, operator: 4, attributes: 5, doc: 6, domain: 7, overload: 8, metadata: 9, devices: 10 } as const; // prettier-ignore
export const ATTRIBUTE = { name: 1, float: 2, integer: 3, text: 4, tensor: 5, graph: 6, tensors: 10, graphs: 11, kind: 20, reference: 21, sparse: 22, sparses: 23 } as const; // prettier-ignore
export const TENSOR = { dims: 1, type: 2, name: 8, raw: 9, external: 13, location: 14 } as const;
export const NAMED = 1; // the field with the name of a ValueInfo

/**
 * Units of a model as one ONNX model. Its inputs and outputs are called as the values of `inputs` and `outputs`, in this
 * order. Its weights are external data: `location` is the SHA-256 of a blob. `weightBytes`: of all of them, each counted
 * once, those of bodies each time.
 */
export interface Composed {
  readonly model: Uint8Array<ArrayBuffer>;
  readonly inputs: readonly Value[];
  readonly outputs: readonly Value[];
  readonly weightBytes: number;
}

/** Units [first, stop) as one model; `graphs` are the blobs of their graphs, by hash. Raises CannotServe. */
export function compose(
  manifest: GraphManifest,
  graphs: ReadonlyMap<string, Uint8Array>,
  first: number,
  stop: number,
): Composed {
  const units = manifest.units.slice(first, stop);
  if (units.length !== stop - first || first < 0 || units.length === 0) {
    throw new Error(`units [${first}, ${stop}) of ${manifest.units.length}`);
  }
  if (units.reduce((sum, { graph }) => sum + graph.bytes, 0) > MAX_RUN_BYTES) {
    throw new CannotServe(`units ${first} to ${stop - 1}: graphs of at most ${MAX_RUN_BYTES} bytes expected`);
  }
  const values = new Map(manifest.values.map((value) => [value.name, value]));
  const named = (name: string): Value => {
    const found = values.get(name);
    if (found === undefined) throw new Error(`the manifest was not checked: no value ${name}`);
    return found;
  };
  const inputs = neededBy(manifest, first, stop).map(named);
  const outputs = givenBy(manifest, first, stop).map(named);
  const mark = markOf(manifest);
  const opsets = new Map<string, Uint8Array>();
  const weights = new Map<string, string>();
  const initializers: Message[] = [];
  const nodes: Message[] = [];
  let weightBytes = 0;
  units.forEach((unit, at) => {
    const part = checkedGraph(unit, graphs);
    for (const opset of part.messages(MODEL.opsets)) {
      const domain = textOf(opset.bytes(OPSET.domain)[0], unit);
      const version = opset.bytes(OPSET.version)[0] ?? integerItem(0);
      const known = opsets.get(domain) ?? version;
      opsets.set(domain, known);
      if (toHex(known) !== toHex(version)) {
        throw wrongGraph(unit, `one version of the operators of ${quoted(domain)} in all units expected`);
      }
    }
    const prefix = `${mark}${first + at}/`;
    const names = new Map<string, string>();
    unit.inputs.forEach((name, number) => names.set(`in.${number}`, name));
    unit.outputs.forEach((name, number) => names.set(`out.${number}`, name));
    const [graph] = part.messages(MODEL.graph);
    if (graph === undefined) return; // one without outputs was refused
    const inner = innerOf(graph);
    for (const tensor of unit.tensors) {
      const blob = unit.weights[tensor.blob]?.sha256 ?? '';
      const ofBody = inner.get(tensor.name);
      if (ofBody !== undefined) {
        replace(ofBody, external(tensor, blob, tensor.name));
        weightBytes += tensor.bytes;
        continue;
      }
      const same = `${blob} ${tensor.offset} ${tensor.dtype} ${tensor.shape.join(' ')}`;
      let name = weights.get(same);
      if (name === undefined) {
        name = `${prefix}${tensor.name}`;
        weights.set(same, name);
        weightBytes += tensor.bytes;
        initializers.push(external(tensor, blob, name));
      }
      names.set(tensor.name, name);
    }
    rename(graph, names, prefix, unit);
    for (const tensor of graph.messages(GRAPH.initializers)) initializers.push(tensor);
    for (const node of graph.messages(GRAPH.nodes)) nodes.push(node);
  });
  const model = new Message('Model', {
    [MODEL.irVersion]: [integerItem(IR_VERSION)],
    [MODEL.graph]: [
      new Message('Graph', {
        [GRAPH.nodes]: nodes,
        [GRAPH.name]: [textItem('run')],
        [GRAPH.initializers]: initializers,
        [GRAPH.inputs]: inputs.map(valueInfo),
        [GRAPH.outputs]: outputs.map(valueInfo),
      }),
    ],
    [MODEL.opsets]: [...opsets]
      .map(([domain, version]) => [textItem(domain), version] as const)
      .sort(([a], [b]) => (toHex(a) < toHex(b) ? -1 : 1))
      .map(
        ([domain, version]) =>
          new Message('OperatorSetId', { [OPSET.domain]: [domain], [OPSET.version]: [version] }),
      ),
  });
  return { model: writeMessage(model), inputs, outputs, weightBytes };
}

/** How local names begin, as no value's name does. */
function markOf({ values }: GraphManifest): string {
  let mark = 'u';
  while (values.some(({ name }) => name.startsWith(mark))) mark += '_';
  return mark;
}

/** A tensor whose bytes lie in a blob. */
export function external(
  tensor: Pick<Weight, 'dtype' | 'shape' | 'offset' | 'bytes'>,
  blob: string,
  name: string,
): Message {
  return new Message('Tensor', {
    [TENSOR.dims]: tensor.shape.map(integerItem),
    [TENSOR.type]: [integerItem(ELEMENT_TYPES[tensor.dtype])],
    [TENSOR.name]: [textItem(name)],
    [TENSOR.external]: [
      entry('location', blob),
      entry('offset', String(tensor.offset)),
      entry('length', String(tensor.bytes)),
    ],
    [TENSOR.location]: [integerItem(EXTERNAL)],
  });
}

/** Makes `message` what `other` is. */
function replace(message: Message, other: Message): void {
  message.fields.clear();
  for (const [number, items] of other.fields) message.fields.set(number, items);
}

/** The initializers of bodies, by name; names that are no UTF-8 are refused elsewhere. */
function innerOf(graph: Message, found = new Map<string, Message>()): Map<string, Message> {
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  for (const node of graph.messages(GRAPH.nodes)) {
    for (const body of node.messages(NODE.attributes).flatMap(bodiesOf)) {
      for (const tensor of body.messages(GRAPH.initializers)) {
        found.set(decoder.decode(nameOf(tensor, TENSOR.name)), tensor);
      }
      innerOf(body, found);
    }
  }
  return found;
}

function entry(key: string, value: string): Message {
  return new Message('StringStringEntry', { 1: [textItem(key)], 2: [textItem(value)] });
}

/** A graph's input or output as a message. */
export function valueInfo({ name, dtype, shape }: Pick<Value, 'name' | 'dtype' | 'shape'>): Message {
  const dims = shape.map((size) =>
    typeof size === 'number'
      ? new Message('TensorShape.Dimension', { 1: [integerItem(size)] })
      : new Message('TensorShape.Dimension', { 2: [textItem(size)] }),
  );
  const tensor = new Message('Type.Tensor', {
    1: [integerItem(ELEMENT_TYPES[dtype])],
    2: [new Message('TensorShape', { 1: dims })],
  });
  return new Message('ValueInfo', { [NAMED]: [textItem(name)], 2: [new Message('Type', { 1: [tensor] })] });
}

/** The error for the graph of that unit. */
export function wrongGraph({ name }: Pick<GraphUnit, 'name'>, problem: string): CannotServe {
  const short = [...name].slice(0, SHOWN_CHARS).join('');
  return new CannotServe(`graph of unit ${short}: ${problem}; import the model again`);
}

/** A name; none is ''. Raises CannotServe for bytes that are no UTF-8. */
export function textOf(item: Uint8Array | undefined, unit: Pick<GraphUnit, 'name'>): string {
  if (item === undefined) return '';
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(item);
  } catch {
    throw wrongGraph(unit, 'names in UTF-8 expected');
  }
}

/** Whose graph it is. */
export interface GraphOwner {
  readonly name: string;
  readonly graph: BlobRef;
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly tensors: readonly { readonly name: string }[];
}

/** The checked graph of a unit. */
export function checkedGraph(unit: GraphOwner, graphs: ReadonlyMap<string, Uint8Array>): Message {
  const model = readMessage('Model', graphBytes(unit, graphs));
  if (model === null) throw wrongGraph(unit, 'an ONNX model expected');
  const domains = model.messages(MODEL.opsets).map((opset) => textOf(opset.bytes(OPSET.domain)[0], unit));
  if (model.has(MODEL.functions) || model.has(MODEL.training) || new Set(domains).size !== domains.length) {
    throw wrongGraph(unit, 'no functions, no training, each domain of operators once expected');
  }
  const graph = model.messages(MODEL.graph)[0] ?? new Message('Graph');
  const inputs = unit.inputs.map((_, number) => `in.${number}`);
  const outputs = unit.outputs.map((_, number) => `out.${number}`);
  if (!isNamed(graph, GRAPH.inputs, inputs) || !isNamed(graph, GRAPH.outputs, outputs)) {
    const last = `in.${inputs.length - 1}, outputs out.0 to out.${outputs.length - 1}`;
    throw wrongGraph(unit, `inputs in.0 to ${last} expected`);
  }
  const names = new Names(unit);
  const inner = innerOf(graph);
  for (const { name } of unit.tensors) if (!inner.has(name)) names.define(textItem(name));
  const made = check(graph, unit, names, 0);
  if (!outputs.every((name) => made.has(name))) throw wrongGraph(unit, 'each output made by a node expected');
  return model;
}

function isNamed(graph: Message, field: number, names: readonly string[]): boolean {
  const found = graph.messages(field).map((value) => value.bytes(NAMED)[0] ?? new Uint8Array());
  return (
    found.length === names.length &&
    found.every((name, at) => toHex(name) === toHex(textItem(names[at] ?? '')))
  );
}

function graphBytes(unit: GraphOwner, graphs: ReadonlyMap<string, Uint8Array>): Uint8Array {
  const { graph } = unit;
  if (graph.bytes > MAX_GRAPH_BYTES) {
    throw wrongGraph(unit, `at most ${MAX_GRAPH_BYTES} bytes expected, got ${graph.bytes}`);
  }
  const encoded = graphs.get(graph.sha256);
  const short = graph.sha256.slice(0, 12);
  if (encoded === undefined) throw new CannotServe(`blob ${short} is not here; fetch it`);
  if (toHex(sha256(encoded)) !== graph.sha256) {
    throw new CannotServe(`blob ${short} has other bytes than its name says; fetch it again`);
  }
  return encoded;
}

/** Which names of a unit can be used at a place, each made once in the whole unit. */
class Names {
  nodes = 0;
  private readonly unit: GraphOwner;
  private readonly made = new Set<string>();
  private readonly visible = new Set<string>();

  constructor(unit: GraphOwner) {
    this.unit = unit;
  }

  /** Takes that it is made here, and gives it as text. */
  define(item: Uint8Array): string {
    const name = textOf(item, this.unit);
    if (name === '' || this.made.has(name)) {
      throw wrongGraph(this.unit, `names that differ expected, got ${quoted(name)} twice or empty`);
    }
    this.made.add(name);
    this.visible.add(name);
    return name;
  }

  use(item: Uint8Array): void {
    const name = textOf(item, this.unit);
    if (!this.visible.has(name)) throw wrongGraph(this.unit, `${quoted(name)} is used and not made before`);
  }

  forget(names: Iterable<string>): void {
    for (const name of names) this.visible.delete(name);
  }
}

const isFull = (name: Uint8Array): boolean => name.length > 0;
const nameOf = (message: Message, field: number): Uint8Array => message.bytes(field)[0] ?? new Uint8Array();

/** The names that nodes of this graph make. Raises CannotServe for what is not bounded or does not resolve. */
function check(graph: Message, unit: GraphOwner, names: Names, depth: number): Set<string> {
  if (graph.has(GRAPH.sparse)) throw wrongGraph(unit, 'no sparse tensors expected');
  const initializers = graph.messages(GRAPH.initializers);
  const local = [
    ...graph.messages(GRAPH.inputs).map((value) => nameOf(value, NAMED)),
    ...initializers.map((tensor) => nameOf(tensor, TENSOR.name)),
  ].map((name) => names.define(name));
  for (const tensor of initializers) checkTensor(tensor, unit);
  const made = new Set<string>();
  const nodes = graph.messages(GRAPH.nodes);
  names.nodes += nodes.length;
  if (names.nodes > MAX_NODES) throw wrongGraph(unit, `at most ${MAX_NODES} nodes expected`);
  for (const node of nodes) {
    if (node.bytes(NODE.overload).some(isFull) || !node.bytes(NODE.operator).some(isFull)) {
      throw wrongGraph(unit, 'nodes of operators expected, got one of a function or of none');
    }
    for (const name of node.bytes(NODE.inputs).filter(isFull)) names.use(name);
    for (const attribute of node.messages(NODE.attributes)) checkAttribute(attribute, unit, names, depth);
    for (const name of node.bytes(NODE.outputs).filter(isFull)) made.add(names.define(name));
  }
  if (depth > 0) {
    for (const value of graph.messages(GRAPH.outputs)) names.use(nameOf(value, NAMED));
    names.forget(made);
    names.forget(local);
  }
  return made;
}

function checkAttribute(attribute: Message, unit: GraphOwner, names: Names, depth: number): void {
  const refers = attribute.bytes(ATTRIBUTE.reference).some(isFull);
  if (refers || attribute.has(ATTRIBUTE.sparse) || attribute.has(ATTRIBUTE.sparses)) {
    throw wrongGraph(unit, 'attributes without references and sparse tensors expected');
  }
  for (const field of [ATTRIBUTE.tensor, ATTRIBUTE.tensors]) {
    for (const tensor of attribute.messages(field)) checkTensor(tensor, unit);
  }
  for (const body of bodiesOf(attribute)) {
    if (depth === MAX_DEPTH) throw wrongGraph(unit, `bodies at most ${MAX_DEPTH} deep expected`);
    check(body, unit, names, depth + 1);
  }
}

function checkTensor(tensor: Message, unit: GraphOwner): void {
  if (tensor.has(TENSOR.external) || integerOf(tensor.bytes(TENSOR.location)[0]) === EXTERNAL) {
    throw wrongGraph(unit, 'constants that it holds itself expected, got one of a file');
  }
}

/** The graphs that an attribute holds, as If, Loop and Scan do. */
export function bodiesOf(attribute: Message): Message[] {
  return [...attribute.messages(ATTRIBUTE.graph), ...attribute.messages(ATTRIBUTE.graphs)];
}

/** Renames all that a unit's graph names: by `names`, and the rest with the prefix. Drops what is for people. */
function rename(graph: Message, names: ReadonlyMap<string, string>, prefix: string, unit: GraphUnit): void {
  const renamed = (item: Item | undefined): Uint8Array => {
    const name = textOf(item instanceof Uint8Array ? item : undefined, unit);
    return textItem(name === '' ? '' : (names.get(name) ?? prefix + name));
  };
  for (const field of [GRAPH.infos, GRAPH.quantization, GRAPH.metadata, GRAPH.doc])
    graph.fields.delete(field);
  for (const value of [...graph.messages(GRAPH.inputs), ...graph.messages(GRAPH.outputs)]) {
    value.fields.set(NAMED, [renamed(value.bytes(NAMED)[0])]);
  }
  for (const tensor of graph.messages(GRAPH.initializers)) {
    tensor.fields.set(TENSOR.name, [renamed(tensor.bytes(TENSOR.name)[0])]);
  }
  for (const node of graph.messages(GRAPH.nodes)) {
    for (const field of [NODE.name, NODE.doc, NODE.metadata, NODE.devices]) node.fields.delete(field);
    for (const field of [NODE.inputs, NODE.outputs]) {
      node.fields.set(field, node.bytes(field).map(renamed));
    }
    for (const attribute of node.messages(NODE.attributes)) {
      for (const body of bodiesOf(attribute)) rename(body, names, prefix, unit);
    }
  }
}
