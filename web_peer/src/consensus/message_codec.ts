/*
 * The bytes of a message: strictly checked msgpack (twin of peer/consensus/message_codec.py). Pure.
 *
 * One message is one msgpack map with the short keys of schema/consensus.toml. Unknown keys are skipped, so that later
 * versions may add some; anything else that does not fit raises BadMessage naming the field.
 */

import { BadMessage } from './errors';
import {
  type Append,
  type Body,
  BODY_FIELDS,
  type FieldRow,
  type FieldType,
  HEAD_FIELDS,
  type Message,
} from './messages';
import { type Limits, NotPacked, type Packed, Packer, unpacked } from '../wire/msgpack';
import type { Config, Entry } from './records';
import {
  type BareEntry,
  bytes,
  config,
  entries,
  fail,
  flag,
  identity,
  integer,
  MAX_INT,
  packedConfig,
  packedEntries,
} from './message_fields';

export { configBytes, MAX_ENTRIES, MAX_SERVERS, parseConfig } from './message_fields';

export const MAX_SNAPSHOT_BYTES = 2 ** 28;
export const MAX_MESSAGE_BYTES = 2 ** 22;

/** Its name here, its name in errors, its key, and what it may hold. */
type Field = readonly [
  own: string,
  name: string,
  key: string,
  check: (value: unknown, name: string) => unknown,
];

const CHECKS: Readonly<Record<FieldType, Field[3]>> = {
  uint: integer,
  flag,
  id: identity,
  data: bytes,
  config,
  entries,
};
const HEAD = HEAD_FIELDS.map(checked);
const BODIES: readonly (readonly [Body['kind'], readonly Field[]])[] = BODY_FIELDS.map(([kind, rows]) => [
  kind,
  rows.map(checked),
]);
const LIMITS: Limits = { items: 1024, entries: 32, depth: 1024 }; // as Python has them
const KIND_OF = new Map(BODIES.map(([name], kind) => [name, kind]));

function checked([own, name, key, type]: FieldRow): Field {
  return [own, name, key, CHECKS[type]];
}

/** The bytes on the wire. */
export function encode(message: Message): Uint8Array {
  const kind = KIND_OF.get(message.body.kind) ?? 0;
  const wire: Record<string, Packed> = { k: kind };
  const put = (from: object, fields: readonly Field[]): void => {
    for (const [own, , key, check] of fields) {
      const value = (from as Readonly<Record<string, unknown>>)[own];
      if (check === entries) wire[key] = packedEntries(value as readonly Entry[]);
      else if (check === config) wire[key] = packedConfig(value as Config);
      else wire[key] = value as Packed;
    }
  };
  put(message, HEAD);
  put(message.body, BODIES[kind]?.[1] ?? []);
  return new Packer().packed(wire);
}

/** The message in `data`. Raises BadMessage; allocates no more than a small multiple of what came. */
export function decode(data: Uint8Array): Message {
  if (data.length > MAX_MESSAGE_BYTES) {
    throw new BadMessage(`message: expected at most ${MAX_MESSAGE_BYTES} bytes, got ${data.length}`);
  }
  const wire = unpackedMap(data);
  const place = integer(wire.get('k'), 'kind');
  const layout = BODIES[place];
  if (layout === undefined) {
    throw fail('kind', `a kind of message from 0 to ${BODIES.length - 1}`, place);
  }
  const [kind, fields] = layout;
  const take = (from: readonly Field[]): Record<string, unknown> =>
    Object.fromEntries(from.map(([own, name, key, check]) => [own, check(wire.get(key), name)]));
  const values = take(fields);
  const head = take(HEAD) as unknown as Omit<Message, 'body'>;
  return { ...head, body: whole({ kind, ...values } as unknown as Body, head.term) };
}

function unpackedMap(data: Uint8Array): ReadonlyMap<string, unknown> {
  let wire: unknown;
  try {
    wire = unpacked(data, LIMITS);
  } catch (error) {
    if (!(error instanceof NotPacked)) throw error;
    throw new BadMessage(`message: expected a msgpack map, got other bytes (${error.why})`);
  }
  if (!(wire instanceof Map)) throw fail('message', 'a msgpack map', wire);
  return wire;
}

/** The body, once its fields fit each other as well. */
function whole(body: Body, term: number): Body {
  if (body.kind === 'append') return { ...body, entries: placed(body, body.entries, term) };
  if (body.kind === 'install') {
    const { index, snapshotTerm, total, offset, data, crc } = body;
    if (index === 0 || snapshotTerm === 0 || snapshotTerm > term) {
      throw fail('snapshot_term', `an entry of a term from 1 to ${term}`, snapshotTerm);
    }
    if (total > MAX_SNAPSHOT_BYTES) throw fail('total', `at most ${MAX_SNAPSHOT_BYTES} bytes`, total);
    if (offset + data.length > total) throw fail('offset', 'a piece inside the snapshot', offset);
    if (crc >= 2 ** 32) throw fail('crc', 'an integer from 0 to 2^32 - 1', crc);
  }
  return body;
}

function placed({ prevIndex, prevTerm }: Append, bare: readonly BareEntry[], term: number): Entry[] {
  let last = prevTerm;
  const made: Entry[] = [];
  for (const entry of bare) {
    if (entry.term < last || entry.term > term || entry.term === 0) {
      throw new BadMessage(`entries: expected terms that rise from prev_term to ${term}, got ${entry.term}`);
    }
    last = entry.term;
    made.push({ index: prevIndex + 1 + made.length, ...entry });
  }
  if (prevIndex + made.length > MAX_INT) throw fail('prev_index', 'room for the entries after it', prevIndex);
  if (prevTerm > term || (prevIndex === 0) !== (prevTerm === 0)) {
    throw fail('prev_term', `0 before the first entry, else a term from 1 to ${term}`, prevTerm);
  }
  return made;
}
