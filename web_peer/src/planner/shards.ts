/*
 * The ONNX graphs for a run of units, as planner/model/shards.py writes them for browsers: what is computed, with
 * weights handed over when the runtime asks. A tab builds them itself, so it needs nobody's word for what it runs.
 *
 * The location of weights is "<unit>/<tensor>". For "wasm" every linear `name` is "<unit>/<name>.w", float32 (N, K),
 * whatever form is stored (weight_unpacking.ts unpacks it), in slices of rows where it is large. For "webgpu" a float32
 * matrix (`.w`, `.rest`) is "<unit>/<tensor>.T", widened and transposed, because the GPU has no product with a
 * transposed one; packed weights are as stored.
 *
 * The attention kernel takes heads of whole groups of 16 values. Others are filled up with zeros, each half of a head
 * by itself, because values of both halves rotate in pairs: no score and no sum changes.
 */

import { CannotServe } from '../errors';
import {
  type Architecture,
  kernelHeadSize,
  type Manifest,
  type ManifestUnit,
  type StoredTensor,
} from './manifest';
import {
  type Attribute,
  type ConstantTensor,
  type ExternalTensor,
  type Graph,
  type Node,
  type TensorType,
  type Value,
  encodeModel,
} from './onnx_protobuf';

export type Provider = 'wasm' | 'webgpu';

export const BLOCK = 32; // columns that share a scale
const VERSIONS = {
  ir: 10,
  opsets: [
    ['', 21],
    ['com.microsoft', 1],
  ],
} as const;
const MICROSOFT = 'com.microsoft';
const SLICE_BYTES = 16 << 20; // on "wasm": onnxruntime repacks a matrix while it holds the original
const SLICE_ROWS = 64; // slices end where the kernels' tiles do
const ACCURACY_GPU = 0; // float32 activations: a GPU multiplies them at no cost

/** Body and head of units [first, stop), each null where the run has no such part. */
export interface Graphs {
  readonly body: Uint8Array<ArrayBuffer> | null;
  readonly head: Uint8Array<ArrayBuffer> | null;
}

/** Raises CannotServe when a unit's tensors do not have the architecture's shapes. */
export function makeGraphs(manifest: Manifest, first: number, stop: number, provider: Provider): Graphs {
  const units = manifest.units.slice(first, stop);
  const blocks = units.filter((unit) => unit.kind === 'attn' || unit.kind === 'ffn');
  const last = units.at(-1);
  return {
    body: blocks.length ? body(blocks, manifest.architecture, provider) : null,
    head: last?.kind === 'head' ? head(last, manifest.architecture, provider) : null,
  };
}

/** How many angles a position has: one for two values of a head; what fills heads up does not turn. */
export function anglesOf(a: Architecture): number {
  return (a.ropeDims + kernelHeadSize(a) - a.headSize) / 2;
}

/** cos and sin, each (positions, angles), with the model's frequency scaling applied. */
export function rotaryTables(a: Architecture, positions: number): { cos: Float32Array; sin: Float32Array } {
  const half = a.ropeDims / 2;
  const angles = anglesOf(a);
  const cos = new Float32Array(positions * angles);
  const sin = new Float32Array(positions * angles);
  for (let at = 0; at < angles; at++) {
    const frequency = at < half ? frequencyOf(a, at, half) : 0;
    for (let position = 0; position < positions; position++) {
      cos[position * angles + at] = Math.cos(position * frequency);
      sin[position * angles + at] = Math.sin(position * frequency);
    }
  }
  return { cos, sin };
}

function frequencyOf(a: Architecture, at: number, half: number): number {
  let frequency = a.ropeBase ** (-at / half);
  const scaling = a.ropeScaling;
  if (a.ropeFactors !== null) {
    frequency /= a.ropeFactors[at] ?? 1;
  } else if (scaling?.kind === 'llama3') {
    const turns = (scaling.originalContext * frequency) / (2 * Math.PI);
    const span = scaling.highFreqFactor - scaling.lowFreqFactor;
    const smooth = Math.min(Math.max((turns - scaling.lowFreqFactor) / span, 0), 1);
    frequency *= smooth + (1 - smooth) / scaling.factor;
  }
  return scaling?.kind === 'linear' ? frequency / scaling.factor : frequency;
}

/** Nodes and initializers of one graph under construction. */
class Draft {
  readonly nodes: Node[] = [];
  readonly initializers: (ExternalTensor | ConstantTensor)[] = [];
  readonly provider: Provider;

  constructor(provider: Provider) {
    this.provider = provider;
  }

  add(
    operator: string,
    inputs: readonly string[],
    outputs: string | readonly [string, ...string[]],
    attributes: Readonly<Record<string, Attribute>> = {},
    domain = '',
  ): string {
    const names: readonly [string, ...string[]] = typeof outputs === 'string' ? [outputs] : outputs;
    this.nodes.push({ name: names[0], operator, domain, inputs, outputs: names, attributes });
    return names[0];
  }

  constant(name: string, values: readonly number[]): string {
    this.initializers.push({ name, values });
    return name;
  }

  /** A constant that several nodes use. */
  shared(name: string, values: readonly number[]): string {
    const known = this.initializers.some((one) => one.name === name);
    return known ? name : this.constant(name, values);
  }

  external(name: string, unit: ManifestUnit, tensor: StoredTensor): string {
    const location = `${unit.name}/${tensor.name}`;
    return this.outside(name, tensor.dtype, tensor.shape, location, 0, tensor.bytes);
  }

  private outside(
    name: string,
    type: TensorType,
    shape: readonly number[],
    location: string,
    offset: number,
    length: number,
  ): string {
    this.initializers.push({ name, type, shape, location, offset, length });
    return name;
  }

  /** A float32 matrix that weight_unpacking.ts makes from what is stored, from row `first` on. */
  made(
    name: string,
    unit: ManifestUnit,
    location: string,
    shape: readonly [number, number],
    first = 0,
  ): string {
    const [rows, columns] = shape;
    const place = `${unit.name}/${location}`;
    return this.outside(name, 'f32', shape, place, 4 * first * columns, 4 * rows * columns);
  }

  /** `source` times a matrix of (outputs, inputs), or on a GPU of (inputs, outputs). */
  times(source: string, matrix: string, output: string): string {
    return this.provider === 'webgpu'
      ? this.add('MatMul', [source, matrix], output)
      : this.add('FusedMatMul', [source, matrix], output, { transB: 1 }, MICROSOFT);
  }

  has(output: string): boolean {
    return this.nodes.some((node) => node.outputs.includes(output));
  }

  /** The graph; its last node's output is called `result`. */
  finish(result: string, inputs: readonly Value[], outputs: readonly Value[]): Uint8Array<ArrayBuffer> {
    const nodes = this.nodes.map((node, at) =>
      at === this.nodes.length - 1 ? { ...node, outputs: [result, ...node.outputs.slice(1)] } : node,
    );
    const graph: Graph = { nodes, initializers: this.initializers, inputs, outputs };
    return encodeModel(graph, VERSIONS);
  }
}

function need(unit: ManifestUnit, name: string, dtype: TensorType, shape: readonly number[]): StoredTensor {
  const tensor = unit.tensors.find((one) => one.name === name);
  if (tensor?.dtype !== dtype || String(tensor.shape) !== String(shape)) {
    const found = tensor === undefined ? 'none' : `${tensor.dtype} (${String(tensor.shape)})`;
    throw new CannotServe(
      `unit ${unit.name}, tensor ${name}: ${dtype} (${String(shape)}) expected, got ${found}; import the model again`,
    );
  }
  return tensor;
}

function norm(
  draft: Draft,
  prefix: string,
  unit: ManifestUnit,
  name: string,
  size: number,
  source: string,
  a: Architecture,
): string {
  const weight = draft.external(`${prefix}.${name}`, unit, need(unit, name, 'f32', [size]));
  return draft.add('SimplifiedLayerNormalization', [source, weight], `${prefix}.${name}.out`, {
    axis: -1,
    epsilon: { float: a.normEpsilon },
    stash_type: 1,
  });
}

function linear(
  draft: Draft,
  unit: ManifestUnit,
  name: string,
  rows: number,
  columns: number,
  source: string,
  bias = '',
): string {
  const prefix = `${unit.name}.${name}`;
  const output = `${prefix}.out`;
  if (draft.provider === 'wasm') {
    const target = bias ? `${output}.product` : output;
    const product = wideProduct(draft, unit, name, rows, columns, source, target);
    return bias ? draft.add('Add', [product, bias], output) : product;
  }
  if (unit.tensors.some((tensor) => tensor.name === `${name}.w`)) {
    const weight = draft.made(`${prefix}.w`, unit, `${name}.w.T`, [columns, rows]);
    const product = draft.times(source, weight, bias ? `${output}.product` : output);
    return bias ? draft.add('Add', [product, bias], output) : product;
  }
  return packedLinear(draft, unit, name, rows, columns, source, bias);
}

/** `source` times the linear's float32 matrix, a slice of its rows at a time. */
function wideProduct(
  draft: Draft,
  unit: ManifestUnit,
  name: string,
  rows: number,
  columns: number,
  source: string,
  output: string,
): string {
  const prefix = `${unit.name}.${name}`;
  const location = `${name}.w`;
  const most = Math.max(Math.floor(SLICE_BYTES / (4 * columns * SLICE_ROWS)), 1) * SLICE_ROWS;
  if (rows <= most) {
    return draft.times(source, draft.made(`${prefix}.w`, unit, location, [rows, columns]), output);
  }
  const slices: string[] = [];
  for (let first = 0; first < rows; first += most) {
    const shape = [Math.min(most, rows - first), columns] as const;
    const matrix = draft.made(`${prefix}.w.${first}`, unit, location, shape, first);
    slices.push(draft.times(source, matrix, `${output}.${first}`));
  }
  return draft.add('Concat', slices, output, { axis: -1 });
}

function packedLinear(
  draft: Draft,
  unit: ManifestUnit,
  name: string,
  rows: number,
  columns: number,
  source: string,
  bias: string,
): string {
  const prefix = `${unit.name}.${name}`;
  const output = `${prefix}.out`;
  const blocks = Math.ceil(columns / BLOCK);
  const scale = draft.external(`${prefix}.scale`, unit, need(unit, `${name}.scale`, 'f32', [rows, blocks]));
  const bits = unit.tensors.some((tensor) => tensor.name === `${name}.q4`) ? 4 : 8;
  const packed = need(unit, `${name}.q${bits}`, 'u8', [rows, blocks, (BLOCK * bits) / 8]);
  let zero = '';
  let hasRest = false;
  if (bits === 4) {
    const zeros = need(unit, `${name}.zero`, 'u8', [rows, Math.ceil(blocks / 2)]);
    zero = draft.external(`${prefix}.zero`, unit, zeros);
    if (unit.tensors.some((tensor) => tensor.name === `${name}.rest`)) {
      need(unit, `${name}.rest`, 'f32', [rows, blocks]);
      hasRest = true;
    }
  }
  const weight = draft.external(`${prefix}.q${bits}`, unit, packed);
  const product = draft.add(
    'MatMulNBits',
    [source, weight, scale, zero, '', bias],
    hasRest ? `${output}.product` : output,
    { K: columns, N: rows, bits, block_size: BLOCK, accuracy_level: ACCURACY_GPU },
    MICROSOFT,
  );
  if (!hasRest) return product;
  const sums = blockSums(draft, source, columns);
  const restful = draft.made(`${prefix}.rest`, unit, `${name}.rest.T`, [blocks, rows]);
  const correction = draft.times(sums, restful, `${output}.rest`);
  return draft.add('Add', [product, correction], output);
}

/** Sums of each 32 columns, (batch, tokens, columns / 32). */
function blockSums(draft: Draft, source: string, columns: number): string {
  const name = `${source}.sums`;
  if (draft.has(name)) return name;
  const shape = draft.shared(`blocks.shape.${columns}`, [0, 0, columns / BLOCK, BLOCK]);
  const axis = draft.shared('blocks.axis', [-1]);
  const blocks = draft.add('Reshape', [source, shape], `${source}.blocks`);
  return draft.add('ReduceSum', [blocks, axis], name, { keepdims: 0 });
}

function body(units: readonly ManifestUnit[], a: Architecture, provider: Provider): Uint8Array<ArrayBuffer> {
  const draft = new Draft(provider);
  const rows: Value = { name: 'hidden', type: 'f32', shape: ['batch', 'tokens', a.hidden] };
  const inputs: Value[] = [
    rows,
    { name: 'seqlens', type: 'i32', shape: ['batch'] },
    { name: 'total', type: 'i32', shape: [1] },
    { name: 'cos', type: 'f32', shape: ['positions', anglesOf(a)] },
    { name: 'sin', type: 'f32', shape: ['positions', anglesOf(a)] },
  ];
  const outputs: Value[] = [{ ...rows, name: 'hidden.out' }];
  let hidden = 'hidden';
  for (const unit of units) {
    let branch: string;
    if (unit.kind === 'attn') {
      branch = attention(draft, unit, a, hidden);
      for (const name of unit.state) {
        const cache = { type: 'f32', shape: ['batch', a.kvHeads, 'capacity', kernelHeadSize(a)] } as const;
        inputs.push({ name, ...cache });
        outputs.push({ name: `${name}.out`, ...cache });
      }
    } else {
      branch = feedForward(draft, unit, a, hidden);
    }
    hidden = draft.add('Add', [hidden, branch], `${unit.name}.hidden`);
  }
  return draft.finish('hidden.out', inputs, outputs);
}

function attention(draft: Draft, unit: ManifestUnit, a: Architecture, hidden: string): string {
  const queries = a.heads * a.headSize;
  const rows = queries + 2 * a.kvHeads * a.headSize;
  const name = unit.name;
  const [key, value] = unit.state;
  if (key === undefined || value === undefined)
    throw new CannotServe(`unit ${name}: a key and a value expected`);
  const normed = norm(draft, name, unit, 'norm', a.hidden, hidden, a);
  const bias = a.qkvBias
    ? draft.external(`${name}.qkv.bias`, unit, need(unit, 'qkv.bias', 'f32', [rows]))
    : '';
  const qkv = linear(draft, unit, 'qkv', rows, a.hidden, normed, bias);
  const normedOnes = a.qkNorm ? normedHeads(draft, unit, a, qkv) : [qkv, '', ''];
  const isFilled = kernelHeadSize(a) !== a.headSize;
  const operands = isFilled
    ? normedOnes.map((each) => each && filledHeads(draft, name, a, each))
    : normedOnes;
  const attended = draft.add(
    'GroupQueryAttention',
    [...operands, key, value, 'seqlens', 'total', 'cos', 'sin'],
    [`${name}.attended`, `${key}.out`, `${value}.out`],
    {
      num_heads: a.heads,
      kv_num_heads: a.kvHeads,
      do_rotary: 1,
      rotary_interleaved: 0,
      ...(isFilled ? { scale: { float: a.headSize ** -0.5 } } : {}),
    },
    MICROSOFT,
  );
  const given = isFilled ? cutHeads(draft, name, a, attended) : attended;
  return linear(draft, unit, 'o', a.hidden, queries, given);
}

/** `source` (batch, tokens, heads * headSize) with zeros behind each half of a head: kernelHeadSize values. */
function filledHeads(draft: Draft, name: string, a: Architecture, source: string): string {
  const lacking = (kernelHeadSize(a) - a.headSize) / 2;
  const parts = halves(draft, name, a.headSize, source);
  const pads = draft.shared(`${name}.pads`, [0, 0, 0, 0, 0, 0, 0, lacking]);
  const padded = draft.add('Pad', [parts, pads], `${source}.padded`);
  return joined(draft, name, padded, `${source}.filled`);
}

/** `source` (batch, tokens, heads * kernelHeadSize) without what filledHeads added. */
function cutHeads(draft: Draft, name: string, a: Architecture, source: string): string {
  const parts = halves(draft, name, kernelHeadSize(a), source);
  const first = draft.shared(`${name}.first`, [0]);
  const stop = draft.shared(`${name}.stop`, [a.headSize / 2]);
  const axis = draft.shared(`${name}.axis`, [-1]);
  const cut = draft.add('Slice', [parts, first, stop, axis], `${source}.sliced`);
  return joined(draft, name, cut, `${source}.cut`);
}

function halves(draft: Draft, name: string, size: number, source: string): string {
  const shape = draft.shared(`${name}.halves.${size}`, [0, 0, -1, size / 2]);
  return draft.add('Reshape', [source, shape], `${source}.halves`);
}

function joined(draft: Draft, name: string, source: string, output: string): string {
  return draft.add('Reshape', [source, draft.shared(`${name}.joined`, [0, 0, -1])], output);
}

/** q, k, v from packed rows, q and k normalized per head. */
function normedHeads(draft: Draft, unit: ManifestUnit, a: Architecture, qkv: string): string[] {
  const name = unit.name;
  const keys = a.kvHeads * a.headSize;
  const sizes = draft.constant(`${name}.sizes`, [a.heads * a.headSize, keys, keys]);
  draft.add('Split', [qkv, sizes], [`${name}.q`, `${name}.k`, `${name}.v`], { axis: -1 });
  const heads = draft.constant(`${name}.heads`, [0, 0, -1, a.headSize]);
  const flat = draft.constant(`${name}.flat`, [0, 0, -1]);
  const found = ['q', 'k'].map((part) => {
    const split = draft.add('Reshape', [`${name}.${part}`, heads], `${name}.${part}.heads`);
    const normed = norm(draft, name, unit, `${part}_norm`, a.headSize, split, a);
    return draft.add('Reshape', [normed, flat], `${name}.${part}.normed`);
  });
  return [...found, `${name}.v`];
}

function feedForward(draft: Draft, unit: ManifestUnit, a: Architecture, hidden: string): string {
  const name = unit.name;
  const normed = norm(draft, name, unit, 'norm', a.hidden, hidden, a);
  const both = linear(draft, unit, 'gate_up', 2 * a.ffn, a.hidden, normed);
  const sizes = draft.constant(`${name}.sizes`, [a.ffn, a.ffn]);
  draft.add('Split', [both, sizes], [`${name}.gate`, `${name}.up`], { axis: -1 });
  const active = draft.add(
    'QuickGelu',
    [`${name}.gate`],
    `${name}.active`,
    { alpha: { float: 1 } },
    MICROSOFT,
  );
  const inner = draft.add('Mul', [active, `${name}.up`], `${name}.inner`);
  return linear(draft, unit, 'down', a.hidden, a.ffn, inner);
}

function head(unit: ManifestUnit, a: Architecture, provider: Provider): Uint8Array<ArrayBuffer> {
  const draft = new Draft(provider);
  const normed = norm(draft, unit.name, unit, 'norm', a.hidden, 'hidden', a);
  linear(draft, unit, 'head', a.vocab, a.hidden, normed);
  return draft.finish(
    'logits',
    [{ name: 'hidden', type: 'f32', shape: ['batch', a.hidden] }],
    [{ name: 'logits', type: 'f32', shape: ['batch', a.vocab] }],
  );
}
