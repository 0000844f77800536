/*
 * Which arrays may stand for a value of a model, and how their bytes lie on the wire (docs/protocol.md, chapter Runs;
 * twin of peer/dataflow/value_codec.py). A tab keeps them as they lie there. Pure.
 */

import { WrongTensor } from '../errors';
import { MAX_VALUE_BYTES } from '../limits';
import type { Value, ValueType } from '../planner/graph_manifest';

/** Row-major, little-endian; strings are UTF-8, each after its length. `shape` fits the value. */
export interface ValueArray {
  readonly shape: readonly number[];
  readonly data: Uint8Array;
}

export const LENGTH_BYTES = 4;

/** Bytes of an element; of a string, of its length. Other types do not leave a peer. */
export const ELEMENT_BYTES: ReadonlyMap<ValueType, number> = new Map([
  ['float32', 4],
  ['float64', 8],
  ['float16', 2],
  ['int8', 1],
  ['uint8', 1],
  ['int16', 2],
  ['uint16', 2],
  ['int32', 4],
  ['uint32', 4],
  ['int64', 8],
  ['uint64', 8],
  ['bool', 1],
  ['complex64', 8],
  ['complex128', 16],
  ['string', LENGTH_BYTES],
]);

/** Raises WrongTensor unless the shape has the value's axes; symbolic sizes are any. */
export function checkShape(shape: readonly number[], value: Value): void {
  const fits = shape.every(
    (size, axis) => typeof value.shape[axis] === 'string' || value.shape[axis] === size,
  );
  if (fits && shape.length === value.shape.length) return;
  throw new WrongTensor(
    `${value.name}: shape (${value.shape.join(', ')}) expected, got (${shape.join(', ')})`,
  );
}

/** Raises WrongTensor unless so many bytes hold a value of that shape. Strings: at least their lengths. */
export function checkTotal(total: number, shape: readonly number[], value: Value): void {
  const least = elementsOf(shape) * elementBytes(value);
  if (total > MAX_VALUE_BYTES || total < least || (total !== least && value.dtype !== 'string')) {
    throw new WrongTensor(
      `${value.name}: ${least} bytes expected for shape (${shape.join(', ')}), got ${total}`,
    );
  }
}

/** The bytes of an array that was checked. */
export function toBytes(array: ValueArray): Uint8Array {
  return array.data;
}

/** The array in `data`. Raises WrongTensor unless shape and bytes agree. */
export function fromBytes(data: Uint8Array, shape: readonly number[], value: Value): ValueArray {
  checkShape(shape, value);
  checkTotal(data.length, shape, value);
  if (value.dtype === 'string') readStrings(data, elementsOf(shape), value.name);
  return { shape, data };
}

/** The strings in `data`. */
export function stringsOf(data: Uint8Array, shape: readonly number[], name: string): string[] {
  return readStrings(data, elementsOf(shape), name);
}

/** As `stringsOf` reads them. */
export function bytesOfStrings(words: readonly string[]): Uint8Array<ArrayBuffer> {
  const encoder = new TextEncoder();
  const encoded = words.map((word) => encoder.encode(word));
  const made = new Uint8Array(encoded.reduce((sum, word) => sum + LENGTH_BYTES + word.length, 0));
  const view = new DataView(made.buffer);
  let at = 0;
  for (const word of encoded) {
    view.setUint32(at, word.length, true);
    made.set(word, at + LENGTH_BYTES);
    at += LENGTH_BYTES + word.length;
  }
  return made;
}

/** How many elements an array of that shape has. */
export function elementsOf(shape: readonly number[]): number {
  return shape.reduce((made, size) => made * size, 1);
}

function readStrings(data: Uint8Array, count: number, name: string): string[] {
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
  const words: string[] = [];
  let at = 0;
  for (let read = 0; read < count; read++) {
    const start = at + LENGTH_BYTES;
    const stop = start <= data.length ? start + view.getUint32(at, true) : Infinity;
    if (stop > data.length) {
      throw new WrongTensor(`${name}: a string ends after the ${data.length} bytes of the value`);
    }
    try {
      words.push(decoder.decode(data.subarray(start, stop)));
    } catch {
      throw new WrongTensor(`${name}: strings in UTF-8 expected`);
    }
    at = stop;
  }
  if (at !== data.length) {
    throw new WrongTensor(`${name}: ${at} bytes of strings expected, got ${data.length}`);
  }
  return words;
}

function elementBytes({ name, dtype }: Value): number {
  const bytes = ELEMENT_BYTES.get(dtype);
  if (bytes === undefined) {
    throw new WrongTensor(`${name}: values of ${dtype} cannot leave a peer; import the model again`);
  }
  return bytes;
}
