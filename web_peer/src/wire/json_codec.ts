/*
 * Decides how a value of this mesh stands in JSON, in one canonical spelling, and checks each field on the way in (twin
 * of peer/wire/json_codec.py).
 *
 * Pure. Keys are sorted and nothing is spaced. Integers, text, true, false, null, lists and objects only, so that
 * Python and JavaScript spell every value alike. Names are written with underscores, as in Python. Fields of a newer
 * peer are passed over.
 */

import { crc32 } from './crc32';
import { BadCommand } from '../errors';
import { MAX_DEPTH, MAX_ITEMS, MAX_TEXT } from '../limits';
import { byBytes } from './utf8_order';

const MAX_DIGITS = 16; // of a number, as 2^53 has
const LONE_SURROGATE = /\p{Surrogate}/u; // JSON can spell it, UTF-8 cannot: no entry could carry it

export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

/** What a question between peers and its answer carry: an object of which nothing is checked yet. */
export type Body = Readonly<Record<string, unknown>>;

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
    return value + 0; // -0 can be spelled in JSON
  },
  encode: (value) => value,
};

/** With those below zero. */
export const integer: Codec<number> = {
  decode(value, where) {
    if (typeof value !== 'number' || !Number.isSafeInteger(value)) {
      throw new BadCommand(`${where}: expected an integer below 2^53, got ${shown(value)}`);
    }
    return value + 0;
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

/** An integer from 0 to `most`. */
export function upTo(most: number): Codec<number> {
  return {
    decode(value, where) {
      if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 0 || value > most) {
        throw new BadCommand(`${where}: expected an integer from 0 to ${most}, got ${shown(value)}`);
      }
      return value + 0;
    },
    encode: (value) => value,
  };
}

/** Text of at most `mostBytes` bytes of UTF-8. */
export function prose(mostBytes: number): Codec<string> {
  return {
    decode(value, where) {
      if (typeof value !== 'string' || utf8Bytes(value) > mostBytes || LONE_SURROGATE.test(value)) {
        throw new BadCommand(`${where}: expected a text of at most ${mostBytes} bytes; send it in parts`);
      }
      return value;
    },
    encode: (value) => value,
  };
}

/** Text that `pattern` fits, which names its begin and end: only what means the same in Python and JavaScript. */
export function matching(pattern: RegExp, expected: string): Codec<string> {
  return {
    decode(value, where) {
      if (typeof value !== 'string' || !pattern.test(value)) {
        throw new BadCommand(`${where}: expected ${expected}, got ${shown(value)}`);
      }
      return value;
    },
    encode: (value) => value,
  };
}

/** One of these texts; decoding raises BadCommand for any other. */
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

/** What `inner` codes, or null. */
export function maybe<T>(inner: Codec<T>): Codec<T | null> {
  return {
    decode: (value, where) => (value === null ? null : inner.decode(value, where)),
    encode: (value) => (value === null ? null : inner.encode(value)),
  };
}

/** A list of at most `most` items, each by `inner`; or BadCommand. */
export function list<T>(inner: Codec<T>, most = MAX_ITEMS): Codec<readonly T[]> {
  return {
    decode: (value, where) => itemsOf(value, where, most).map((item) => inner.decode(item, where)),
    encode: (value) => value.map((item) => inner.encode(item)),
  };
}

/** A list of `count` items, each by `inner`; or BadCommand. */
export function exactly<T>(inner: Codec<T>, count: number): Codec<readonly T[]> {
  const some = list(inner, count);
  return {
    decode(value, where) {
      const found = some.decode(value, where);
      if (found.length !== count) throw new BadCommand(`${where}: expected a list of ${count} entries`);
      return found;
    },
    encode: (value) => some.encode(value),
  };
}

/** An object of at most `most` names, each value by `inner`, as a Map; or BadCommand. */
export function table<T>(inner: Codec<T>, most = MAX_ITEMS): Codec<ReadonlyMap<string, T>> {
  return {
    decode(value, where) {
      const entries = isObject(value) ? Object.entries(value) : undefined;
      if (entries === undefined || entries.length > most) {
        throw new BadCommand(`${where}: expected a map of at most ${most} entries`);
      }
      return new Map(
        entries.map(([key, item]) => [text.decode(key, where), inner.decode(item, `${where}.${key}`)]),
      );
    },
    encode: (value) => Object.fromEntries([...value].map(([key, item]) => [key, inner.encode(item)])),
  };
}

/**
 * An object with these fields. `since`: those that may be missing, and what they mean then; those of them in `omit` are
 * not written where they mean that. `kind`: a constant that the object carries besides.
 */
export function record<T extends object>(
  name: string,
  fields: { readonly [K in Exclude<keyof T, 'kind'>]: Codec<T[K]> },
  {
    since = {},
    omit = [],
    kind,
  }: { readonly since?: Partial<T>; readonly omit?: readonly (keyof T)[]; readonly kind?: string } = {},
): Codec<T> {
  const missing = new Map<string, unknown>(Object.entries(since));
  const omitted = new Set<unknown>(omit);
  const known = Object.entries<unknown>(fields).map(([key, codec]) => ({
    key,
    wire: snake(key),
    codec: codec as Codec<unknown>,
  }));
  const needed = known.filter(({ key }) => !missing.has(key)).map(({ wire }) => wire);
  return {
    decode(value, where) {
      if (!isObject(value)) throw new BadCommand(`${where}: expected an object with the fields of ${name}`);
      if (!needed.every((wire) => Object.hasOwn(value, wire))) {
        throw new BadCommand(
          `${where}: expected the fields ${needed.join(', ')}, got ${Object.keys(value).join(', ').slice(0, 200)}`,
        );
      }
      const made: Record<string, unknown> = kind === undefined ? {} : { kind };
      for (const { key, wire, codec } of known) {
        made[key] = Object.hasOwn(value, wire)
          ? codec.decode(value[wire], `${where}.${wire}`)
          : missing.get(key);
      }
      return made as T;
    },
    encode(value) {
      const made: Record<string, Json> = kind === undefined ? {} : { kind };
      const given = value as Readonly<Record<string, unknown>>;
      for (const { key, wire, codec } of known) {
        const each = given[key] === undefined ? missing.get(key) : given[key];
        if (!omitted.has(key) || !isEmpty(each, missing.get(key))) made[wire] = codec.encode(each);
      }
      return made;
    },
  };
}

/** Whether a value is what a field means that is missing: the same, or a list without items as that is. */
function isEmpty(value: unknown, absent: unknown): boolean {
  if (Array.isArray(value) && Array.isArray(absent)) return value.length + absent.length === 0;
  return value === absent;
}

/** [first, stop) of units, positions and the like. */
export interface Span {
  readonly first: number;
  readonly stop: number;
}

export const span: Codec<Span> = {
  decode(value, where) {
    const [first, stop, ...more] = itemsOf(value, where);
    if (first === undefined || stop === undefined || more.length > 0) throw notASpan(value, where);
    const made = { first: uint.decode(first, where), stop: uint.decode(stop, where) };
    if (made.first >= made.stop) throw notASpan(value, where);
    return made;
  },
  encode: ({ first, stop }) => [first, stop],
};

function notASpan(value: unknown, where: string): BadCommand {
  return new BadCommand(`${where}: expected pairs [first, stop) with first < stop, got ${shown(value)}`);
}

/** The value, if it is a list of at most `most` items that are not looked at; or BadCommand. */
export function itemsOf(value: unknown, where: string, most = MAX_ITEMS): readonly unknown[] {
  if (!Array.isArray(value) || value.length > most) {
    throw new BadCommand(`${where}: expected a list of at most ${most} entries`);
  }
  return value;
}

/** Whether a JSON value is an object: no list, and not null. */
export function isObject(value: unknown): value is Body {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The bytes of canonical JSON. */
export function dump(value: Json): Uint8Array<ArrayBuffer> {
  return UTF8.encode(written(value));
}

/** The object in `bytes`. BadCommand for anything else, and for numbers with a point or an exponent anywhere. */
export function load(bytes: Uint8Array): Body {
  let parsed: unknown;
  try {
    const source = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
    parsed = JSON.parse(source);
    membersSpelt(source);
  } catch (error) {
    throw new BadCommand(`expected JSON, got ${bytes.length} bytes that are not: ${String(error)}`);
  }
  if (!isObject(parsed)) throw new BadCommand(`expected a JSON object, got ${shown(parsed)}`);
  return parsed;
}

/** The value of a text that doubles no name and has integers below 2^53 only. Raises a SyntaxError for another one. */
export function parseStrict(source: string): Json {
  const value = JSON.parse(source) as Json;
  if (membersSpelt(source) !== membersOf(value)) throw new SyntaxError('a name occurs twice in one object');
  return value;
}

function membersOf(value: Json): number {
  if (typeof value === 'number' && !Number.isSafeInteger(value)) {
    throw new SyntaxError('an integer beyond 2^53');
  }
  if (typeof value !== 'object' || value === null) return 0;
  const inside = Object.values<Json>(value);
  return inside.reduce((sum: number, each) => sum + membersOf(each), isList(value) ? 0 : inside.length);
}

/**
 * How many members the objects of `source`, which is JSON, are spelt with. Raises a SyntaxError for other numbers than
 * integers and for more depth than there may be: what is passed over must not decide who reads on, so both languages
 * refuse the same there, too.
 */
function membersSpelt(source: string): number {
  let depth = 0;
  let digits = 0;
  let members = 0;
  for (let at = 0; at < source.length; at++) {
    const letter = source[at] ?? '';
    if (letter === '"') {
      at = endOfString(source, at);
      digits = 0;
    } else if (letter >= '0' && letter <= '9') {
      digits += 1;
      if (digits > MAX_DIGITS) throw new SyntaxError('a number that is no integer below 2^53');
    } else {
      if (digits > 0 && '.eE'.includes(letter)) throw new SyntaxError('a number that is no integer');
      digits = 0;
      if (letter === ':') members += 1;
      else if (letter === '[' || letter === '{') depth += 1;
      else if (letter === ']' || letter === '}') depth -= 1;
      if (depth > MAX_DEPTH) {
        throw new SyntaxError(`more than ${MAX_DEPTH} lists and objects inside one another`);
      }
    }
  }
  return members;
}

/** Where the string that begins at `start` ends. */
function endOfString(source: string, start: number): number {
  for (let end = source.indexOf('"', start + 1); ; end = source.indexOf('"', end + 1)) {
    let slashes = 0;
    while (source[end - 1 - slashes] === '\\') slashes += 1;
    if (slashes % 2 === 0) return end;
  }
}

/** 16 hex digits that tell two states apart: CRC-32 and length. Against mistakes, not against malice. */
export function checksum(bytes: Uint8Array): string {
  return [crc32(bytes), bytes.length].map((word) => (word >>> 0).toString(16).padStart(8, '0')).join('');
}

const UTF8 = new TextEncoder();

/** How many bytes the text takes in UTF-8. */
export function utf8Bytes(text: string): number {
  return UTF8.encode(text).length;
}

/** The first 60 characters of a value's JSON, for messages of errors. */
export function shown(value: unknown): string {
  return ((JSON.stringify(value) as string | undefined) ?? 'nothing').slice(0, 60);
}

/** By hand, since an object would put keys that look like numbers first. */
function written(value: Json): string {
  if (isList(value)) return `[${value.map(written).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const keys = Object.keys(value).sort(byBytes);
  return `{${keys.map((key) => `${JSON.stringify(key)}:${written(value[key] ?? null)}`).join(',')}}`;
}

function isList(value: Json): value is readonly Json[] {
  return Array.isArray(value);
}

function snake(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}
