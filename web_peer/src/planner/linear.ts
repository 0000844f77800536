/* How a provider multiplies by a stored matrix: the forms of planner/model/units.py as nodes of a graph. */

import { CannotServe } from '../errors';
import type { ManifestUnit, StoredTensor } from './manifest';
import { type GraphDraft, MICROSOFT } from './graph_draft';

export type Provider = 'wasm' | 'webgpu';

export const BLOCK = 32; // columns that share a scale
const SLICE_BYTES = 16 << 20; // on "wasm": onnxruntime repacks a matrix while it holds the original
const SLICE_ROWS = 64; // slices end where the kernels' tiles do
const ACCURACY_GPU = 0; // float32 activations: a GPU multiplies them at no cost

/** What lies at a location: `columns` of a matrix that is made of what is stored, null where it is as stored. */
export interface Location {
  readonly unit: string;
  readonly tensor: string;
  readonly bytes: number;
  readonly columns: number | null;
}

/** One graph under construction for one provider. */
export interface Making {
  readonly draft: GraphDraft;
  readonly provider: Provider;
  readonly isFlat: boolean; // rows are (batch, hidden), not (batch, tokens, hidden)
  readonly locations: Map<string, Location>; // by "<unit>/<tensor>"
  readonly sums: Map<string, string>; // of the blocks of a value
  readonly matrices: Map<string, string>; // that are made, by location and first row
}

/** A linear of a unit: `source` times its matrix (rows, columns), plus `bias` unless that is ''. */
export interface Linear {
  readonly unit: ManifestUnit;
  readonly place: number;
  readonly weight: string;
  readonly rows: number;
  readonly columns: number;
  readonly source: string;
  readonly bias: string;
  readonly output: string;
}

/** Raises CannotServe when the stored tensors do not have its shape. */
export function addLinear(making: Making, linear: Linear): void {
  const { draft, provider } = making;
  const { unit, weight, rows, columns, source, bias, output } = linear;
  const whole = tensorOf(unit, `${weight}.w`);
  if (whole !== undefined) need(unit, `${weight}.w`, whole.dtype === 'f16' ? 'f16' : 'f32', [rows, columns]);
  if (provider === 'webgpu' && whole === undefined) {
    addPacked(making, linear);
    return;
  }
  if (whole === undefined) packedOf(linear); // for its checks
  const product = bias === '' ? output : draft.fresh();
  if (provider === 'wasm') addWide(making, linear, product);
  else times(making, source, matrix(making, linear, `${weight}.w.T`, [columns, rows]), product);
  if (bias !== '') draft.add('Add', [product, bias], output);
}

/** The tensor of a unit that a node names, as an initializer. */
export function addStored(making: Making, unit: ManifestUnit, place: number, tensor: StoredTensor): string {
  const location = `${unit.name}/${tensor.name}`;
  const { bytes, shape } = tensor;
  const dtype = ({ f32: 'float32', f16: 'float16', u8: 'uint8' } as const)[tensor.dtype];
  locate(making, { unit: unit.name, tensor: tensor.name, bytes, columns: null });
  return making.draft.weights(`u${place}/${tensor.name}`, { dtype, shape, location, offset: 0, bytes });
}

/** Raises CannotServe where something else is to lie there. */
function locate({ locations }: Making, location: Location): void {
  const { unit, tensor, bytes, columns } = location;
  const key = `${unit}/${tensor}`;
  const known = locations.get(key);
  if (known !== undefined && (known.bytes !== bytes || known.columns !== columns)) {
    throw new CannotServe(`unit ${unit}: ${tensor} expected to be a matrix of Linear or a tensor, not both`);
  }
  locations.set(key, location);
}

/** The stored tensor of that name. */
export function tensorOf(unit: ManifestUnit, name: string): StoredTensor | undefined {
  return unit.tensors.find((tensor) => tensor.name === name);
}

/** The tensor of that name, type and shape. Raises CannotServe. */
export function need(
  unit: ManifestUnit,
  name: string,
  dtype: StoredTensor['dtype'],
  shape: readonly number[],
): StoredTensor {
  const tensor = tensorOf(unit, name);
  if (tensor?.dtype !== dtype || String(tensor.shape) !== String(shape)) {
    const found = tensor === undefined ? 'none' : `${tensor.dtype} (${String(tensor.shape)})`;
    throw new CannotServe(
      `unit ${unit.name}, tensor ${name}: ${dtype} (${String(shape)}) expected, got ${found}; import the model again`,
    );
  }
  return tensor;
}

/** A float32 matrix that weight_unpacking.ts makes from what is stored, from row `first` on. */
function matrix(
  making: Making,
  { unit, rows, columns }: Linear,
  tensor: string,
  shape: readonly [number, number],
  first = 0,
): string {
  const { draft, matrices } = making;
  const location = `${unit.name}/${tensor}`;
  const isRest = tensor.endsWith('.rest.T');
  const all = isRest ? 4 * shape[0] * shape[1] : 4 * rows * columns;
  locate(making, { unit: unit.name, tensor, bytes: all, columns });
  const key = `${location} ${first}`;
  const known = matrices.get(key);
  if (known !== undefined) return known;
  const bytes = 4 * shape[0] * shape[1];
  const placed = { dtype: 'float32', shape, location, offset: 4 * first * shape[1], bytes } as const;
  const name = draft.weights(draft.fresh(), placed);
  matrices.set(key, name);
  return name;
}

/** `source` times a matrix of (outputs, inputs), or on a GPU of (inputs, outputs). */
function times({ draft, provider }: Making, source: string, weights: string, output: string): string {
  return provider === 'webgpu'
    ? draft.add('MatMul', [source, weights], output)
    : draft.add('FusedMatMul', [source, weights], output, { transB: 1 }, MICROSOFT);
}

/** `source` times the linear's float32 matrix, a slice of its rows at a time. */
function addWide(making: Making, linear: Linear, output: string): void {
  const { rows, columns, source } = linear;
  const tensor = `${linear.weight}.w`;
  const most = Math.max(Math.floor(SLICE_BYTES / (4 * columns * SLICE_ROWS)), 1) * SLICE_ROWS;
  if (rows <= most) {
    times(making, source, matrix(making, linear, tensor, [rows, columns]), output);
    return;
  }
  const slices: string[] = [];
  for (let first = 0; first < rows; first += most) {
    const made = matrix(making, linear, tensor, [Math.min(most, rows - first), columns], first);
    slices.push(times(making, source, made, making.draft.fresh()));
  }
  making.draft.add('Concat', slices, output, { axis: -1 });
}

/** Raises CannotServe where what is stored of an embedding is no table of (rows, columns). */
export function checkTable(unit: ManifestUnit, weight: string, rows: number, columns: number): void {
  const whole = tensorOf(unit, `${weight}.w`);
  if (whole !== undefined) {
    need(unit, `${weight}.w`, whole.dtype === 'f16' ? 'f16' : 'f32', [rows, columns]);
    return;
  }
  const blocks = Math.ceil(columns / BLOCK);
  need(unit, `${weight}.scale`, 'f32', [rows, blocks]);
  need(unit, `${weight}.q8`, 'u8', [rows, blocks, BLOCK]);
}

interface Packed {
  readonly bits: 4 | 8;
  readonly scale: StoredTensor;
  readonly zero: StoredTensor | null;
  readonly packed: StoredTensor;
  readonly hasRest: boolean;
}

function packedOf({ unit, weight, rows, columns }: Linear): Packed {
  const blocks = Math.ceil(columns / BLOCK);
  const scale = need(unit, `${weight}.scale`, 'f32', [rows, blocks]);
  if (tensorOf(unit, `${weight}.q4`) === undefined) {
    const packed = need(unit, `${weight}.q8`, 'u8', [rows, blocks, BLOCK]);
    return { bits: 8, scale, zero: null, packed, hasRest: false };
  }
  const packed = need(unit, `${weight}.q4`, 'u8', [rows, blocks, BLOCK / 2]);
  const zero = need(unit, `${weight}.zero`, 'u8', [rows, Math.ceil(blocks / 2)]);
  const hasRest = tensorOf(unit, `${weight}.rest`) !== undefined;
  if (hasRest) need(unit, `${weight}.rest`, 'f32', [rows, blocks]);
  if (hasRest && columns % BLOCK !== 0) {
    throw new CannotServe(`unit ${unit.name}, tensor ${weight}.rest: whole blocks expected`);
  }
  return { bits: 4, scale, zero, packed, hasRest };
}

function addPacked(making: Making, linear: Linear): void {
  const { draft } = making;
  const { unit, place, weight, rows, columns, source, bias, output } = linear;
  const { bits, scale, zero, packed, hasRest } = packedOf(linear);
  const weights = addStored(making, unit, place, packed);
  const scales = addStored(making, unit, place, scale);
  const zeros = zero === null ? '' : addStored(making, unit, place, zero);
  const product = draft.add(
    'MatMulNBits',
    [source, weights, scales, zeros, '', bias],
    hasRest ? draft.fresh() : output,
    { K: columns, N: rows, bits, block_size: BLOCK, accuracy_level: ACCURACY_GPU },
    MICROSOFT,
  );
  if (!hasRest) return;
  const sums = blockSums(making, source, columns);
  const blocks = columns / BLOCK;
  const rest = matrix(making, linear, `${weight}.rest.T`, [blocks, rows]);
  const correction = times(making, sums, rest, draft.fresh());
  draft.add('Add', [product, correction], output);
}

/** Sums of each 32 columns, (…, columns / 32). */
function blockSums({ draft, isFlat, sums }: Making, source: string, columns: number): string {
  const known = sums.get(source);
  if (known !== undefined) return known;
  const shape = draft.vector([...(isFlat ? [0] : [0, 0]), columns / BLOCK, BLOCK]);
  const blocks = draft.add('Reshape', [source, shape], draft.fresh());
  const made = draft.add('ReduceSum', [blocks, draft.vector([-1])], draft.fresh(), { keepdims: 0 });
  sums.set(source, made);
  return made;
}
