/* Decides what a header field of a frame may hold, and how it stands on the wire. */

import type { Decoded, Value } from './frame_header';
import { fromHex, toHex } from './hex';

export const MAX_INT = Number.MAX_SAFE_INTEGER;

/** What a header field may hold. Both ways give undefined for a value that does not fit. */
export interface Field {
  readonly expected: string;
  fromWire(value: Decoded): unknown;
  toWire(value: unknown): Value | undefined;
}

const UTF8 = new TextEncoder();

export function isInteger(value: unknown, low: number, high: number): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= low && value <= high;
}

export function integer(low: number, high: number): Field {
  const checked = (value: unknown): number | undefined => (isInteger(value, low, high) ? value : undefined);
  return { expected: `an integer from ${low} to ${high}`, fromWire: checked, toWire: checked };
}

export function text(limit: number): Field {
  const checked = (value: unknown): string | undefined => {
    if (typeof value !== 'string' || value.length > limit) return undefined;
    return value.length * 3 <= limit || UTF8.encode(value).length <= limit ? value : undefined;
  };
  return { expected: `text of at most ${limit} bytes`, fromWire: checked, toWire: checked };
}

export function integers(limit: number, low: number, high: number = MAX_INT): Field {
  const checked = (value: unknown): readonly number[] | undefined => {
    if (!Array.isArray(value) || value.length > limit) return undefined;
    return value.every((each) => isInteger(each, low, high)) ? value : undefined;
  };
  return {
    expected: `at most ${limit} integers from ${low} to ${high}`,
    fromWire: checked,
    toWire: checked,
  };
}

export function texts(limit: number, each: Field): Field {
  const checked = (value: unknown): readonly string[] | undefined => {
    if (!Array.isArray(value) || value.length > limit) return undefined;
    return value.every((one) => each.toWire(one) !== undefined) ? (value as readonly string[]) : undefined;
  };
  return { expected: `at most ${limit} texts, each ${each.expected}`, fromWire: checked, toWire: checked };
}

/** An id of `count` bytes, which this side holds as lower-case hex: text can be the key of a Map. */
export function id(count: number): Field {
  const pattern = new RegExp(`^[0-9a-f]{${count * 2}}$`);
  return {
    expected: `${count} bytes`,
    fromWire: (value) => (value instanceof Uint8Array && value.length === count ? toHex(value) : undefined),
    toWire: (value) => (typeof value === 'string' && pattern.test(value) ? fromHex(value) : undefined),
  };
}
