/*
 * Decides how a value of this mesh stands in JSON: canonical (keys sorted, no spaces), integers and text only, every
 * field checked on the way in. Names are written with underscores, as in Python.
 */

import { BadCommand } from './errors';

const MAX_TEXT = 512; // characters of a name, reason or sentence
const MAX_ITEMS = 4096; // entries of a list or map
const LONE_SURROGATE = /\p{Surrogate}/u; // JSON can spell it, UTF-8 cannot: no entry could carry it

export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

/** Both directions of one kind of value. `where` names the place in error messages. */
export interface Codec<T> {
  decode(value: unknown, where: string): T;
  encode(value: T): Json;
}

export const text: Codec<string> = {
  decode(value, where) {
    const short =
      typeof value === 'string' && (value.length <= MAX_TEXT || Array.from(value).length <= MAX_TEXT);
    if (!short || LONE_SURROGATE.test(value)) {
      throw new BadCommand(`${where}: expected a string of at most ${MAX_TEXT} characters`);
    }
    return value;
  },
  encode: (value) => value,
};

export const uint: Codec<number> = {
  decode(value, where) {
    if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 0) {
      throw new BadCommand(`${where}: expected an integer from 0 to 2^53-1, got ${shown(value)}`);
    }
    return value;
  },
  encode: (value) => value,
};

export const flag: Codec<boolean> = {
  decode(value, where) {
    if (typeof value !== 'boolean') throw new BadCommand(`${where}: expected true or false`);
    return value;
  },
  encode: (value) => value,
};

export function oneOf<T extends string>(...allowed: readonly T[]): Codec<T> {
  return {
    decode(value, where) {
      const found = allowed.find((each) => each === value);
      if (found === undefined) {
        throw new BadCommand(`${where}: expected one of ${allowed.join(', ')}, got ${shown(value)}`);
      }
      return found;
    },
    encode: (value) => value,
  };
}

export function maybe<T>(inner: Codec<T>): Codec<T | null> {
  return {
    decode: (value, where) => (value === null ? null : inner.decode(value, where)),
    encode: (value) => (value === null ? null : inner.encode(value)),
  };
}

export function list<T>(inner: Codec<T>): Codec<readonly T[]> {
  return {
    decode: (value, where) => itemsOf(value, where).map((item) => inner.decode(item, where)),
    encode: (value) => value.map((item) => inner.encode(item)),
  };
}

export function table<T>(inner: Codec<T>): Codec<ReadonlyMap<string, T>> {
  return {
    decode(value, where) {
      if (!isObject(value)) throw new BadCommand(`${where}: expected a map of at most ${MAX_ITEMS} entries`);
      const entries = Object.entries(value);
      if (entries.length > MAX_ITEMS) {
        throw new BadCommand(`${where}: expected a map of at most ${MAX_ITEMS} entries`);
      }
      return new Map(
        entries.map(([key, item]) => [text.decode(key, where), inner.decode(item, `${where}.${key}`)]),
      );
    },
    encode: (value) => Object.fromEntries([...value].map(([key, item]) => [key, inner.encode(item)])),
  };
}

/** An object with exactly these fields. `kind`: a constant that the object carries besides. */
export function record<T extends object>(
  name: string,
  fields: { readonly [K in Exclude<keyof T, 'kind'>]: Codec<T[K]> },
  kind?: string,
): Codec<T> {
  const known = Object.entries<unknown>(fields).map(([key, codec]) => ({
    key,
    wire: snake(key),
    codec: codec as Codec<unknown>,
  }));
  const names = [...known.map(({ wire }) => wire), ...(kind === undefined ? [] : ['kind'])].sort();
  return {
    decode(value, where) {
      if (!isObject(value)) throw new BadCommand(`${where}: expected an object with the fields of ${name}`);
      const given = Object.keys(value).sort();
      if (given.length !== names.length || given.some((key, at) => key !== names[at])) {
        throw new BadCommand(
          `${where}: expected the fields ${names.join(', ')}, got ${given.join(', ').slice(0, 200)}`,
        );
      }
      const made: Record<string, unknown> = kind === undefined ? {} : { kind };
      for (const { key, wire, codec } of known) made[key] = codec.decode(value[wire], `${where}.${wire}`);
      return made as T;
    },
    encode(value) {
      const made: Record<string, Json> = kind === undefined ? {} : { kind };
      const given = value as Readonly<Record<string, unknown>>;
      for (const { key, wire, codec } of known) made[wire] = codec.encode(given[key]);
      return made;
    },
  };
}

export function itemsOf(value: unknown, where: string): readonly unknown[] {
  if (!Array.isArray(value) || value.length > MAX_ITEMS) {
    throw new BadCommand(`${where}: expected a list of at most ${MAX_ITEMS} entries`);
  }
  return value;
}

export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The bytes of canonical JSON. */
export function dump(value: Json): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(written(value));
}

/** The object in `bytes`. BadCommand for anything else, and for numbers written with a point or an exponent. */
export function load(bytes: Uint8Array): Readonly<Record<string, unknown>> {
  let parsed: unknown;
  try {
    const source = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    parsed = JSON.parse(source);
    if (/\d[.eE]/.test(source.replace(/"(?:[^"\\]|\\.)*"/gs, '""'))) {
      throw new SyntaxError('a number that is no integer');
    }
  } catch (error) {
    throw new BadCommand(`expected JSON, got ${bytes.length} bytes that are not: ${String(error)}`);
  }
  if (!isObject(parsed)) throw new BadCommand(`expected a JSON object, got ${shown(parsed)}`);
  return parsed;
}

export function shown(value: unknown): string {
  return ((JSON.stringify(value) as string | undefined) ?? 'nothing').slice(0, 60);
}

/** By hand, since an object would put keys that look like numbers first. */
function written(value: Json): string {
  if (isList(value)) return `[${value.map(written).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const keys = Object.keys(value).sort(byCodePoint);
  return `{${keys.map((key) => `${JSON.stringify(key)}:${written(value[key] ?? null)}`).join(',')}}`;
}

function isList(value: Json): value is readonly Json[] {
  return Array.isArray(value);
}

/** Python's order of texts; JavaScript's own compares 16-bit units. */
function byCodePoint(a: string, b: string): number {
  const [left, right] = [Array.from(a), Array.from(b)];
  for (let at = 0; at < Math.min(left.length, right.length); at++) {
    const difference = (left[at]?.codePointAt(0) ?? 0) - (right[at]?.codePointAt(0) ?? 0);
    if (difference !== 0) return difference;
  }
  return left.length - right.length;
}

function snake(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}
