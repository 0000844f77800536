/* Decides what a frame's header is: a msgpack array of integers, text, bytes and arrays, nothing else. */

import { TruncatedFrame, WrongField } from '../errors';
import { MAX_HEADER_ITEMS } from '../limits';
import { type Limits, NotPacked, Truncated, unpacked, Unfit, type Unpacked } from './msgpack';

/** What a header may hold. */
export type Value = number | string | Uint8Array | readonly Value[];

/** What a decoded header may hold: what is no Value is refused by the field it stands in. Bytes are views. */
export type Decoded = Unpacked;

const LIMITS: Limits = { items: MAX_HEADER_ITEMS, entries: 0, depth: 16 }; // the deepest layout has 2

/** The values of a header. Raises TruncatedFrame where it ends early, WrongField for anything that is not an array. */
export function decodeHeader(bytes: Uint8Array): readonly Decoded[] {
  let values: Unpacked;
  try {
    values = unpacked(bytes, LIMITS);
  } catch (error) {
    if (error instanceof Truncated) {
      throw new TruncatedFrame(`expected a whole msgpack header, it ends after ${bytes.length} bytes`);
    }
    if (!(error instanceof NotPacked)) throw error;
    throw new WrongField(`expected a msgpack array as header, got other bytes (${error.message})`);
  }
  if (!isArray(values) || values.length === 0) {
    throw new WrongField(`expected a msgpack array of kind and fields as header, got ${shown(values)}`);
  }
  return values;
}

/** A number as it is; of anything that people may have written only its type and length. */
export function shown(value: unknown): string {
  if (typeof value === 'number' || typeof value === 'boolean') return String(value);
  if (typeof value === 'string') return `text of length ${value.length}`;
  if (value === null) return 'nil';
  if (value instanceof Unfit) return value.what;
  if (value instanceof Map) return 'a map';
  if (value instanceof Uint8Array) return `bytes of length ${value.length}`;
  if (Array.isArray(value) || ArrayBuffer.isView(value)) {
    return `list of length ${(value as unknown as ArrayLike<unknown>).length}`;
  }
  return typeof value;
}

function isArray(value: Decoded): value is readonly Decoded[] {
  return Array.isArray(value);
}
