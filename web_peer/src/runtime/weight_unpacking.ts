/*
 * Decides how stored tensors become what a runtime is handed: float32 matrices from packed ones (planner/model/units.py
 * has the forms), rows of the embedding, and the bytes behind each location of a shard's graphs.
 */

import { CannotServe } from '../errors';
import { BLOCK, type Location, tensorOf } from '../planner/linear';
import type { Graphs, Table } from '../planner/lowering';
import type { ManifestUnit, StoredTensor } from '../planner/manifest';

/** A unit's blob, whole, and the unit it belongs to. */
export interface UnitBlob {
  readonly unit: ManifestUnit;
  readonly blob: Uint8Array;
}

/** Rows [first, stop) of a matrix. */
export interface Rows {
  readonly first: number;
  readonly stop: number;
}

/** Which rows of a matrix lie at [begin, end) of its bytes; undefined where it is none that is made. */
export function rowsAt({ tensor, columns }: Location, begin: number, end: number): Rows | undefined {
  if (columns === null || !tensor.endsWith('.w')) return undefined;
  return { first: begin / (4 * columns), stop: end / (4 * columns) };
}

/**
 * The bytes at a location of a graph, or `rows` of them where it is a matrix on "wasm"; see lowering.ts for what is made
 * on the way.
 */
export function weightBytes(
  { unit, blob }: UnitBlob,
  { tensor, columns }: Location,
  rows?: Rows,
): Uint8Array {
  const stored = tensorOf(unit, tensor);
  if (columns === null) {
    if (stored === undefined) throw new CannotServe(`unit ${unit.name} has no tensor ${tensor}`);
    return bytesAt(blob, stored);
  }
  const [, name = '', part = '', transposed] = /^(.*)\.(w|rest)(\.T)?$/.exec(tensor) ?? [];
  const rest = part === 'rest' ? tensorOf(unit, `${name}.rest`) : undefined;
  const wide = rest === undefined ? unpacked({ unit, blob }, name, columns, rows) : floatsAt(blob, rest);
  const width = rest === undefined ? columns : columns / BLOCK;
  const made = transposed === undefined ? wide : transpose(wide, width);
  return new Uint8Array(made.buffer, made.byteOffset, made.byteLength);
}

/** What lies at the locations of a unit. */
export function locationsOf({ locations }: Graphs, unit: { readonly name: string }): Location[] {
  return [...locations.values()].filter((location) => location.unit === unit.name);
}

/** (rows, columns) -> (columns, rows). */
function transpose(matrix: Float32Array, columns: number): Float32Array {
  const rows = matrix.length / columns;
  const made = new Float32Array(matrix.length);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      made[column * rows + row] = matrix[row * columns + column] as number;
    }
  }
  return made;
}

/** Linear `name` as float32 (N, `columns`), or `rows` of it: scale * (q - zero) + rest, or the widened halves. */
export function unpacked(source: UnitBlob, name: string, columns: number, rows?: Rows): Float32Array {
  const all =
    ['w', 'scale'].map((form) => tensorOf(source.unit, `${name}.${form}`)?.shape[0]).find(Boolean) ?? 0;
  const wanted = rows ?? { first: 0, stop: all };
  const whole = wholeBlocks(source, name, wanted);
  const count = wanted.stop - wanted.first;
  const stored = whole.length / count;
  if (stored === columns) return whole;
  const trimmed = new Float32Array(count * columns);
  for (let row = 0; row < count; row++) {
    trimmed.set(whole.subarray(row * stored, row * stored + columns), row * columns);
  }
  return trimmed;
}

function wholeBlocks({ unit, blob }: UnitBlob, name: string, rows: Rows): Float32Array {
  const part = (suffix: string): StoredTensor | undefined => {
    const found = unit.tensors.find((tensor) => tensor.name === `${name}.${suffix}`);
    return found === undefined ? undefined : rowsOf(found, rows);
  };
  const whole = part('w');
  if (whole !== undefined) return widened(blob, whole);
  const scale = part('scale');
  const q8 = part('q8');
  const q4 = part('q4');
  if (scale === undefined || (q8 ?? q4) === undefined) {
    throw new CannotServe(`unit ${unit.name} has no linear ${name} in a known form; import the model again`);
  }
  const scales = floatsAt(blob, scale);
  if (q8 !== undefined) return from8bit(bytesAt(blob, q8), scales);
  const zero = part('zero');
  if (q4 === undefined || zero === undefined) {
    throw new CannotServe(
      `unit ${unit.name}, linear ${name}: zero points are missing; import the model again`,
    );
  }
  const rest = part('rest');
  return from4bit(bytesAt(blob, q4), scales, bytesAt(blob, zero), rest ? floatsAt(blob, rest) : null, scale);
}

/** `rows` of a stored tensor. */
function rowsOf(tensor: StoredTensor, { first, stop }: Rows): StoredTensor {
  const [all = 1, ...inner] = tensor.shape;
  const rowBytes = tensor.bytes / all;
  return {
    ...tensor,
    shape: [stop - first, ...inner],
    offset: tensor.offset + first * rowBytes,
    bytes: (stop - first) * rowBytes,
  };
}

function from8bit(q: Uint8Array, scales: Float32Array): Float32Array {
  const wide = new Float32Array(q.length);
  for (let block = 0, at = 0; block < scales.length; block++) {
    const scale = scales[block] as number;
    for (const end = at + BLOCK; at < end; at++) wide[at] = scale * ((q[at] as number) - 128);
  }
  return wide;
}

function from4bit(
  q: Uint8Array,
  scales: Float32Array,
  zeros: Uint8Array,
  rests: Float32Array | null,
  shape: StoredTensor,
): Float32Array {
  const [rows = 0, blocks = 0] = shape.shape;
  const zeroRow = Math.ceil(blocks / 2);
  const wide = new Float32Array(q.length * 2);
  for (let row = 0, at = 0; row < rows; row++) {
    for (let block = 0; block < blocks; block++) {
      const place = row * blocks + block;
      const scale = scales[place] as number;
      const rest = rests === null ? 0 : (rests[place] as number);
      const zero = ((zeros[row * zeroRow + (block >> 1)] as number) >> ((block & 1) * 4)) & 15;
      for (const end = at + BLOCK; at < end; at += 2) {
        const pair = q[at >> 1] as number;
        wide[at] = scale * ((pair & 15) - zero) + rest;
        wide[at + 1] = scale * ((pair >> 4) - zero) + rest;
      }
    }
  }
  return wide;
}

function widened(blob: Uint8Array, tensor: StoredTensor): Float32Array {
  if (tensor.dtype === 'f32') return floatsAt(blob, tensor);
  const halves = new Uint16Array(blob.buffer, blob.byteOffset + tensor.offset, tensor.bytes / 2);
  return Float32Array.from(halves, float32FromHalf);
}

/** IEEE 754 binary16 -> number. */
export function float32FromHalf(half: number): number {
  const sign = half & 0x8000 ? -1 : 1;
  const exponent = (half >> 10) & 31;
  const fraction = half & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 25) * (1024 + fraction) : 2 ** -24 * fraction);
}

/** The embedding matrix, kept as it is stored; rows are unpacked when they are needed. */
export class EmbeddingTable {
  readonly bytes: number;
  private readonly row: (token: number, target: Float32Array, at: number) => void;
  readonly columns: number;

  /** `blob` is that of the table's unit. */
  constructor({ unit, weight, columns }: Table, blob: Uint8Array) {
    this.columns = columns;
    const whole = tensorOf(unit, `${weight}.w`);
    if (whole !== undefined) {
      this.bytes = whole.bytes;
      this.row = wholeRow(blob, whole, columns);
      return;
    }
    const q8 = tensorOf(unit, `${weight}.q8`);
    const scale = tensorOf(unit, `${weight}.scale`);
    if (q8 === undefined || scale === undefined) {
      throw new CannotServe(`unit ${unit.name} has no embedding in a known form; import the model again`);
    }
    this.bytes = q8.bytes + scale.bytes;
    const q = bytesAt(blob, q8);
    const scales = floatsAt(blob, scale);
    const blocks = Math.ceil(columns / BLOCK);
    this.row = (token, target, at) => {
      for (let column = 0; column < columns; column++) {
        const value = (q[token * blocks * BLOCK + column] as number) - 128;
        target[at + column] = (scales[token * blocks + (column >> 5)] as number) * value;
      }
    };
  }

  /** tokens (T,) -> (T, columns). */
  rows(tokens: Int32Array): Float32Array {
    const found = new Float32Array(tokens.length * this.columns);
    tokens.forEach((token, at) => this.row(token, found, at * this.columns));
    return found;
  }
}

function wholeRow(blob: Uint8Array, whole: StoredTensor, columns: number) {
  if (whole.dtype === 'f16') {
    const halves = new Uint16Array(blob.buffer, blob.byteOffset + whole.offset, whole.bytes / 2);
    return (token: number, target: Float32Array, at: number): void => {
      for (let column = 0; column < columns; column++) {
        target[at + column] = float32FromHalf(halves[token * columns + column] as number);
      }
    };
  }
  const table = floatsAt(blob, whole);
  return (token: number, target: Float32Array, at: number): void =>
    target.set(table.subarray(token * columns, (token + 1) * columns), at);
}

function bytesAt(blob: Uint8Array, tensor: StoredTensor): Uint8Array {
  return blob.subarray(tensor.offset, tensor.offset + tensor.bytes);
}

function floatsAt(blob: Uint8Array, tensor: StoredTensor): Float32Array {
  return new Float32Array(blob.buffer, blob.byteOffset + tensor.offset, tensor.bytes / 4);
}
