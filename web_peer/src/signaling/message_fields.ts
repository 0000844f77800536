/*
 * How the fields of a message are checked: what the generated table of messages is made of (twin of
 * signaling/message_fields.py). A field that does not fit raises a MalformedMessage that names it.
 */

import { fromText, isId } from './keys';
import { signalingError } from './errors';
import type { Json } from '../wire/json_codec';

/** Checks one JSON value and gives what it stands for. */
export type Read = (raw: Json, name: string) => unknown;

function wrong(name: string, expected: string, raw: Json): never {
  let came: string = raw === null ? 'null' : Array.isArray(raw) ? 'list' : typeof raw;
  if (typeof raw === 'string' || Array.isArray(raw)) came += ` of length ${raw.length}`;
  throw signalingError('MalformedMessage', `field ${name}: expected ${expected}, got ${came}`);
}

/** Text of `least` to `most` characters, without control characters; `lines` allows CR and LF. */
export function text(most: number, least = 0, lines = false): Read {
  return (raw, name) => {
    if (typeof raw !== 'string' || charsOf(raw) < least || charsOf(raw) > most) {
      return wrong(name, `text of ${least} to ${most} characters`, raw);
    }
    if (!isClean(raw, lines)) {
      throw signalingError(
        'MalformedMessage',
        `field ${name}: control characters and lone surrogates are not allowed`,
      );
    }
    return raw;
  };
}

function charsOf(words: string): number {
  let count = words.length;
  for (let at = 0; at < words.length; at++) if ((words.codePointAt(at) ?? 0) > 0xffff) count--;
  return count;
}

/** An id of a key: 32 characters of base32. */
export const id: Read = (raw, name) =>
  typeof raw === 'string' && isId(raw) ? raw : wrong(name, 'an id of 32 characters a-z, 2-7', raw);

/** Bytes of one of these lengths; stays the base64url text that came. */
export function bytes(...lengths: readonly number[]): Read {
  const expected = `base64url of ${lengths.join(' or ')} bytes`;
  const most = 2 * Math.max(...lengths);
  return (raw, name) => {
    if (typeof raw !== 'string' || raw.length > most) return wrong(name, expected, raw);
    try {
      if (lengths.includes(fromText(raw).length)) return raw;
    } catch {
      return wrong(name, expected, raw);
    }
    return wrong(name, expected, raw);
  };
}

/** A number from 0 to `most`. */
export function int(most: number): Read {
  return (raw, name) =>
    typeof raw === 'number' && raw >= 0 && raw <= most
      ? raw
      : wrong(name, `an integer from 0 to ${most}`, raw);
}

/** True or false. */
export const flag: Read = (raw, name) => (typeof raw === 'boolean' ? raw : wrong(name, 'true or false', raw));

/** One of `words`. */
export function word(words: readonly string[]): Read {
  return (raw, name) =>
    typeof raw === 'string' && words.includes(raw) ? raw : wrong(name, 'a word of the protocol', raw);
}

/** At most `most` items; a fault names the index. */
export function list(item: Read, most: number): Read {
  return (raw, name) =>
    Array.isArray(raw) && raw.length <= most
      ? (raw as readonly Json[]).map((each, index) => item(each, `${name}[${index}]`))
      : wrong(name, `a list of at most ${most}`, raw);
}

/** What `item` reads, or null. */
export function maybe(item: Read): Read {
  return (raw, name) => (raw === null ? null : item(raw, name));
}

/** Field names in camel case, in the order in which they are written. */
export type Fields = Readonly<Record<string, Read>>;

/** An object with exactly these fields: snake_case in the message, camelCase here. */
export function record(fields: Fields): Read {
  const names = Object.keys(fields).map((name) => [name, snake(name)] as const);
  return (raw, where) => {
    if (raw === null || typeof raw !== 'object' || Array.isArray(raw)) return wrong(where, 'an object', raw);
    const object = raw as Readonly<Record<string, Json>>;
    const absent = names.find(([, wire]) => !Object.hasOwn(object, wire));
    if (absent !== undefined) {
      throw signalingError('MalformedMessage', `${where}: field ${absent[1]} is absent`);
    }
    const came = Object.keys(object).length;
    if (came !== names.length) {
      throw signalingError('MalformedMessage', `${where}: ${names.length} fields expected, got ${came}`);
    }
    return Object.fromEntries(
      names.map(([name, wire]) => [name, fields[name]?.(object[wire] ?? null, `${where}.${wire}`)]),
    );
  };
}

/** A name of this code as messages spell it: "expiresAt" is "expires_at". */
export function snake(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

/** Whether text can be shown: no control characters, lone surrogates or overrides of the reading direction. */
export function isClean(words: string, lines = false): boolean {
  for (const letter of words) {
    const code = letter.codePointAt(0) ?? 0;
    if (code < 32 && !(lines && (letter === '\r' || letter === '\n'))) return false;
    if ((code >= 0x7f && code < 0xa0) || (code >= 0xd800 && code < 0xe000)) return false;
    if ((code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069)) return false;
  }
  return true;
}
