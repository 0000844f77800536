/* What a header field may hold, and how a wrong one is refused: what the generated layouts of frames call. */

import { WrongField } from '../errors';
import { type Decoded, shown } from './frame_header';
import { fromHex, toHex } from './hex';

const UTF8 = new TextEncoder();
const HEX = /^(?:[0-9a-f]{2})*$/;

/** Whether `value` is an integer from `low` to `high`. */
export function isInteger(value: unknown, low: number, high: number): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= low && value <= high;
}

/** An integer from `low` to `high`. Raises WrongField, as all of these do; `where` is KIND.field. */
export function integer(value: unknown, low: number, high: number, where: string): number {
  if (isInteger(value, low, high)) return value;
  throw wrongField(where, `an integer from ${low} to ${high}`, value);
}

/** Text of at most `limit` bytes of UTF-8. */
export function text(value: unknown, limit: number, where: string): string {
  if (isText(value, limit)) return value;
  throw wrongField(where, `text of at most ${limit} bytes`, value);
}

/** At most `most` integers from `low` to `high`. */
export function integers(
  value: unknown,
  most: number,
  low: number,
  high: number,
  where: string,
): readonly number[] {
  if (areIntegers(value, most, low, high)) return value;
  throw wrongField(where, `at most ${most} integers from ${low} to ${high}`, value);
}

/** Whether `value` is a list of at most `most` integers from `low` to `high`. */
export function areIntegers(
  value: unknown,
  most: number,
  low: number,
  high: number,
): value is readonly number[] {
  return Array.isArray(value) && value.length <= most && value.every((each) => isInteger(each, low, high));
}

/** At most `most` texts, each of at most `limit` bytes. */
export function texts(value: unknown, most: number, limit: number, where: string): readonly string[] {
  if (Array.isArray(value) && value.length <= most && value.every((each) => isText(each, limit)))
    return value;
  throw wrongField(where, `at most ${most} texts, each text of at most ${limit} bytes`, value);
}

/** The `count` bytes of an id, which this side holds as lower-case hex: text can be the key of a Map. */
export function bytesFromHex(value: string, count: number, where: string): Uint8Array {
  if (typeof value === 'string' && value.length === 2 * count && HEX.test(value)) return fromHex(value);
  throw wrongField(where, `${count} bytes`, value);
}

/** The lower-case hex of an id of `count` bytes that came. */
export function hexFromBytes(value: Decoded | undefined, count: number, where: string): string {
  if (value instanceof Uint8Array && value.length === count) return toHex(value);
  throw wrongField(where, `${count} bytes`, value);
}

/** The refusal of a field. */
export function wrongField(where: string, expected: string, value: unknown): WrongField {
  return new WrongField(`${where}: expected ${expected}, got ${shown(value)}`);
}

function isText(value: unknown, limit: number): value is string {
  if (typeof value !== 'string' || value.length > limit) return false;
  return value.length * 3 <= limit || UTF8.encode(value).length <= limit;
}
