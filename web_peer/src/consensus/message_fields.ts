/* Decides what the fields of a message may hold, and how a configuration lies in bytes (part of wire). Pure. */

import { BadMessage } from './errors';
import { byBytes } from '../wire/utf8_order';
import { type Packed, Unfit } from '../wire/msgpack';
import { Config, type Entry, type EntryKind, type Server } from './records';

export const MAX_INT = Number.MAX_SAFE_INTEGER; // 2^53 - 1
export const MAX_ID_BYTES = 128;
export const MAX_SERVERS = 1024;
export const MAX_ENTRIES = 1024; // in one message
export const MAX_DATA_BYTES = 1 << 20; // of one entry, or one piece of a snapshot
const KINDS: readonly EntryKind[] = ['noop', 'command', 'config'];

const NO_JSON = 'config: expected canonical JSON, got other bytes';
const LONE_SURROGATE = /\p{Surrogate}/u; // JSON can spell it, UTF-8 cannot
const TO_UTF8 = new TextEncoder();
const FROM_UTF8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** The error that says what field `name` has to hold and what it held; the caller throws it. */
export function fail(name: string, expected: string, value: unknown): BadMessage {
  return new BadMessage(`${name}: expected ${expected}, got ${shown(value)}`);
}

/** A number as it is, of anything else only what it is. */
function shown(value: unknown): string {
  if (typeof value === 'number') return String(value);
  if (typeof value === 'boolean') return value ? 'True' : 'False';
  if (typeof value === 'string') return 'str';
  if (value === null || value === undefined) return 'None';
  if (value instanceof Unfit) return value.what.slice(0, 40);
  if (value instanceof Uint8Array) return 'bytes';
  return Array.isArray(value) ? 'tuple' : 'dict';
}

/** A number that is whole and at least 0; or BadMessage. */
export function integer(value: unknown, name: string): number {
  if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 0) {
    throw fail(name, 'an integer from 0 to 2^53 - 1', value);
  }
  return value;
}

/** True or false; or BadMessage. */
export function flag(value: unknown, name: string): boolean {
  if (typeof value !== 'boolean') throw fail(name, 'true or false', value);
  return value;
}

/** An id of 1 to MAX_ID_BYTES bytes in UTF-8, without lone surrogates; or BadMessage. */
export function identity(value: unknown, name: string): string {
  if (typeof value === 'string' && value !== '' && value.length <= MAX_ID_BYTES) {
    if (LONE_SURROGATE.test(value)) throw new BadMessage(NO_JSON);
    if (value.length * 3 <= MAX_ID_BYTES || TO_UTF8.encode(value).length <= MAX_ID_BYTES) return value;
  }
  throw fail(name, `text of 1 to ${MAX_ID_BYTES} bytes`, value);
}

/** A copy of at most MAX_DATA_BYTES bytes; or BadMessage. */
export function bytes(value: unknown, name: string): Uint8Array {
  if (!(value instanceof Uint8Array) || value.length > MAX_DATA_BYTES) {
    throw fail(name, `at most ${MAX_DATA_BYTES} bytes`, value);
  }
  return value.slice(); // it outlives the message that it came in
}

/** A configuration from its list of [id, incarnation, voter], in the order of the ids; or BadMessage. */
export function config(value: unknown, name: string): Config {
  if (!isList(value) || value.length > MAX_SERVERS) throw fail(name, `at most ${MAX_SERVERS} servers`, value);
  const servers: Server[] = [];
  for (const item of value) {
    if (!isList(item) || item.length !== 3) throw fail(name, 'servers of id, incarnation, voter', item);
    const server = {
      id: identity(item[0], name),
      incarnation: integer(item[1], name),
      voter: flag(item[2], name),
    };
    const last = servers.at(-1);
    if (last !== undefined && byBytes(last.id, server.id) >= 0) {
      throw new BadMessage(
        `${name}: expected servers in the order of their ids, each once, got another order`,
      );
    }
    servers.push(server);
  }
  const made = new Config(servers);
  if (made.voters.length === 0) {
    throw new BadMessage(`${name}: expected at least one voter, got none`);
  }
  return made;
}

/** What a message says of an entry: the index follows from prev_index. */
export type BareEntry = Omit<Entry, 'index'>;

/** Entries from their list of [term, kind, data], whose indices follow from the message; or BadMessage. */
export function entries(value: unknown, name: string): readonly BareEntry[] {
  if (!isList(value) || value.length > MAX_ENTRIES) throw fail(name, `at most ${MAX_ENTRIES} entries`, value);
  const found: BareEntry[] = [];
  for (const item of value) {
    if (!isList(item) || item.length !== 3) throw fail(name, 'entries of term, kind, data', item);
    const kind = KINDS[integer(item[1], name)];
    if (kind === undefined) throw fail(name, 'a kind of entry from 0 to 2', item[1]);
    const data = bytes(item[2], name);
    if (kind === 'config') parseConfig(data);
    else if (kind === 'noop' && data.length > 0) {
      throw new BadMessage(`${name}: expected a noop without data, got ${data.length} bytes`);
    }
    found.push({ term: integer(item[0], name), kind, data });
  }
  return found;
}

function isList(value: unknown): value is readonly unknown[] {
  return Array.isArray(value);
}

/** A list of [term, kind, data], as `entries` reads it. */
export function packedEntries(held: readonly Entry[]): Packed {
  return held.map(({ term, kind, data }) => [term, KINDS.indexOf(kind), data]);
}

/** A list of [id, incarnation, voter], as `config` reads it. */
export function packedConfig({ servers }: Config): Packed {
  return servers.map(({ id, incarnation, voter }) => [id, incarnation, voter]);
}

/** The data of a "config" entry: canonical JSON. */
export function configBytes(held: Config): Uint8Array {
  return TO_UTF8.encode(JSON.stringify({ servers: packedConfig(held) }));
}

/** Raises BadMessage where `data` is no configuration with at least one voter. */
export function parseConfig(data: Uint8Array): Config {
  let wire: unknown;
  try {
    wire = JSON.parse(FROM_UTF8.decode(data));
  } catch {
    throw new BadMessage(NO_JSON);
  }
  const isObject = typeof wire === 'object' && wire !== null && !Array.isArray(wire);
  const servers = isObject ? (wire as { readonly servers?: unknown }).servers : undefined;
  if (!isList(servers)) {
    const what = Array.isArray(wire) ? 'list' : shown(wire);
    throw new BadMessage(`config: expected an object with a list of servers, got ${what}`);
  }
  const found = config(servers, 'config');
  const spelt = configBytes(found);
  if (spelt.length !== data.length || !spelt.every((byte, at) => byte === data[at])) {
    throw new BadMessage('config: expected canonical JSON, got another spelling of it');
  }
  return found;
}
