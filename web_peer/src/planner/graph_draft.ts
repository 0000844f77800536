/* One ONNX graph under construction: nodes, constants, and weights that lie elsewhere, each added once. */

import {
  ATTRIBUTE,
  ELEMENT_TYPES,
  external,
  GRAPH,
  IR_VERSION,
  MODEL,
  NODE,
  OPSET,
  TENSOR,
  valueInfo,
} from './compose';
import type { ValueType } from './graph_manifest';
import { integerItem, Message, textItem, writeMessage } from './onnx_messages';

export const MICROSOFT = 'com.microsoft';
export const OPSETS = [
  ['', 21],
  [MICROSOFT, 1],
] as const;
export const KINDS = { float: 1, integer: 2, text: 3, graph: 5 } as const; // of attributes

/** Integers are written as INT, `float` as FLOAT, `graph` as GRAPH. */
export type Attribute = number | { readonly float: number } | { readonly graph: Message };

/** A graph input or output; sizes that vary have names. */
export interface Port {
  readonly name: string;
  readonly dtype: ValueType;
  readonly shape: readonly (number | string)[];
}

/** `bytes` from `offset` of what lies at `location`. */
export interface Placed {
  readonly dtype: ValueType;
  readonly shape: readonly number[];
  readonly location: string;
  readonly offset: number;
  readonly bytes: number;
}

/** Nodes and initializers of one graph. */
export class GraphDraft {
  private readonly nodes: Message[] = [];
  private readonly initializers: Message[] = [];
  private readonly known = new Set<string>(); // names of initializers
  private made = 0;
  private readonly around: GraphDraft | null;

  /** `around`: the graph that this is a branch of, which counts names and holds constants and weights for both. */
  constructor(around: GraphDraft | null = null) {
    this.around = around;
  }

  /** A name that nothing else has. */
  fresh(): string {
    if (this.around !== null) return this.around.fresh();
    return `x${this.made++}`;
  }

  /** Adds a node; gives its first output. */
  add(
    operator: string,
    inputs: readonly string[],
    outputs: string | readonly [string, ...string[]],
    attributes: Readonly<Record<string, Attribute>> = {},
    domain = '',
  ): string {
    const names: readonly [string, ...string[]] = typeof outputs === 'string' ? [outputs] : outputs;
    const sorted = Object.entries(attributes).sort(([a], [b]) => (a < b ? -1 : 1));
    this.nodes.push(
      new Message('Node', {
        [NODE.inputs]: inputs.map(textItem),
        [NODE.outputs]: names.map(textItem),
        [NODE.operator]: [textItem(operator)],
        [NODE.attributes]: sorted.map(([name, value]) => attributeItem(name, value)),
        [NODE.domain]: [textItem(domain)],
      }),
    );
    return names[0];
  }

  /** Adds a node whose names become what `rename` makes of them, without what is for people. */
  keepNode(node: Message, rename: (name: Uint8Array) => Uint8Array): void {
    this.nodes.push(
      new Message('Node', {
        [NODE.inputs]: node.bytes(NODE.inputs).map(rename),
        [NODE.outputs]: node.bytes(NODE.outputs).map(rename),
        [NODE.operator]: node.bytes(NODE.operator),
        [NODE.attributes]: node.messages(NODE.attributes),
        [NODE.domain]: [node.bytes(NODE.domain)[0] ?? textItem('')],
      }),
    );
  }

  /** Adds an initializer as it is. */
  keepConstant(tensor: Message): void {
    this.initializers.push(tensor);
  }

  /** A vector of int64, the same for all that have these values. */
  vector(values: readonly number[]): string {
    if (this.around !== null) return this.around.vector(values);
    const name = `i64/${values.join(',')}`;
    if (this.known.has(name)) return name;
    this.known.add(name);
    this.initializers.push(
      new Message('Tensor', {
        [TENSOR.dims]: [integerItem(values.length)],
        [TENSOR.type]: [integerItem(ELEMENT_TYPES.int64)],
        [TENSOR.name]: [textItem(name)],
        [TENSOR.raw]: [new Uint8Array(new BigInt64Array(values.map(BigInt)).buffer)],
      }),
    );
    return name;
  }

  /** Weights outside the graph; the same name is the same weights. */
  weights(name: string, placed: Placed): string {
    if (this.around !== null) return this.around.weights(name, placed);
    const { dtype, shape, location, offset, bytes } = placed;
    if (this.known.has(name)) return name;
    this.known.add(name);
    this.initializers.push(external({ dtype, shape, offset, bytes }, location, name));
    return name;
  }

  /** This as a branch of an If. */
  branch(output: Port): Message {
    return new Message('Graph', {
      [GRAPH.nodes]: this.nodes,
      [GRAPH.name]: [textItem('branch')],
      [GRAPH.initializers]: this.initializers,
      [GRAPH.outputs]: [valueInfo(output)],
    });
  }

  /** The model's bytes. */
  finish(inputs: readonly Port[], outputs: readonly Port[]): Uint8Array<ArrayBuffer> {
    const graph = new Message('Graph', {
      [GRAPH.nodes]: this.nodes,
      [GRAPH.name]: [textItem('shard')],
      [GRAPH.initializers]: this.initializers,
      [GRAPH.inputs]: inputs.map(valueInfo),
      [GRAPH.outputs]: outputs.map(valueInfo),
    });
    return writeMessage(
      new Message('Model', {
        [MODEL.irVersion]: [integerItem(IR_VERSION)],
        [MODEL.graph]: [graph],
        [MODEL.opsets]: OPSETS.map(
          ([domain, version]) =>
            new Message('OperatorSetId', {
              [OPSET.domain]: [textItem(domain)],
              [OPSET.version]: [integerItem(version)],
            }),
        ),
      }),
    );
  }
}

function attributeItem(name: string, value: Attribute): Message {
  const written = (field: number, kind: number, held: Uint8Array | Message): Message =>
    new Message('Attribute', {
      [ATTRIBUTE.name]: [textItem(name)],
      [field]: [held],
      [ATTRIBUTE.kind]: [integerItem(kind)],
    });
  if (typeof value === 'number') return written(ATTRIBUTE.integer, KINDS.integer, integerItem(value));
  if ('graph' in value) return written(ATTRIBUTE.graph, KINDS.graph, value.graph);
  return written(ATTRIBUTE.float, KINDS.float, new Uint8Array(new Float32Array([value.float]).buffer));
}
