/*
 * Decides whether what lies in the database is a consensus log that a peer can have written (twin of
 * peer/storage/log_records.py, where files are). Pure.
 */

import { Config, type Entry, type EntryKind, type Server, type Snapshot } from '../consensus/records';
import { Held, NotFollowing } from './stored_log';

export const FORMAT = 1;
const MAX_ID_BYTES = 128;
const KINDS: readonly unknown[] = ['noop', 'command', 'config'] satisfies EntryKind[];

/** Beside the entries of a log, and changed with them. */
export interface State {
  readonly format: number;
  readonly incarnation: number;
  readonly owner: string; // the opening of the log that may write
  readonly term: number;
  readonly vote: string;
}

export interface StoredSnapshot {
  readonly index: number;
  readonly term: number;
  readonly servers: readonly Server[];
  readonly data: Uint8Array<ArrayBuffer>;
}

/** What was stored; null: nothing. Throws NotFollowing for what no peer can have written. */
export function whole(state: unknown, entries: readonly unknown[], snapshot: unknown): Held | null {
  if (state === undefined && entries.length === 0 && snapshot === undefined) return null;
  const { format, incarnation, term, vote } = fieldsOf(state, 'the state');
  if (format !== FORMAT) throw new NotFollowing(`expected format ${FORMAT}, got ${String(format)}`);
  return new Held({
    hardState: { term: integer(term, 'term'), vote: name(vote) },
    snapshot: snapshot === undefined ? null : snapshotOf(snapshot),
    entries: entries.map(entryOf),
    incarnation: integer(incarnation, 'incarnation', 1),
  });
}

/** What of a log that no peer can have written can be used. Nobody votes by it: what came last may be missing. */
export interface Salvaged {
  readonly snapshot: Snapshot | null;
  readonly entries: readonly Entry[]; // follow on the snapshot without a gap
}

/** The snapshot, and the entries that can be read and follow on it without a gap. */
export function salvaged(entries: readonly unknown[], stored: unknown): Salvaged {
  const snapshot = readable(() => (stored === undefined ? null : snapshotOf(stored)));
  const base = snapshot?.index ?? 0;
  const found: Entry[] = [];
  for (const value of entries) {
    const entry = readable(() => entryOf(value));
    if (entry === null) continue; // the next one does not follow, unless the snapshot has this one
    if (entry.index > base + found.length + 1) break;
    if (entry.index === base + found.length + 1) found.push(entry);
  }
  return { snapshot, entries: found };
}

function readable<T>(read: () => T): T | null {
  try {
    return read();
  } catch (error) {
    if (error instanceof NotFollowing) return null;
    throw error;
  }
}

function snapshotOf(value: unknown): Snapshot {
  const { index, term, servers, data } = fieldsOf(value, 'the snapshot');
  if (!Array.isArray(servers)) throw new NotFollowing('the servers of the snapshot are no array');
  const config = new Config(servers.map(serverOf));
  return { index: integer(index, 'index', 1), term: integer(term, 'term'), config, data: bytes(data) };
}

function serverOf(value: unknown): Server {
  const { id, incarnation, voter } = fieldsOf(value, 'a server');
  if (typeof voter !== 'boolean') throw new NotFollowing('a server that neither votes nor does not');
  return { id: name(id), incarnation: integer(incarnation, 'incarnation'), voter };
}

function entryOf(value: unknown): Entry {
  const { index, term, kind, data } = fieldsOf(value, 'an entry');
  if (!KINDS.includes(kind)) throw new NotFollowing(`an entry of the kind ${String(kind)}`);
  return {
    index: integer(index, 'index', 1),
    term: integer(term, 'term'),
    kind: kind as EntryKind,
    data: bytes(data),
  };
}

function fieldsOf(value: unknown, what: string): Readonly<Record<string, unknown>> {
  if (typeof value !== 'object' || value === null) throw new NotFollowing(`${what} is not there`);
  return value as Readonly<Record<string, unknown>>;
}

function integer(value: unknown, what: string, least = 0): number {
  if (Number.isSafeInteger(value) && (value as number) >= least) return value as number;
  throw new NotFollowing(`${what} is no whole number from ${least} to 2^53-1`);
}

function name(value: unknown): string {
  if (typeof value === 'string' && value.length <= MAX_ID_BYTES) return value;
  throw new NotFollowing('an id is no text, or too long');
}

function bytes(value: unknown): Uint8Array {
  // Not `instanceof`: a clone may come from another realm.
  if (ArrayBuffer.isView(value) && Object.prototype.toString.call(value) === '[object Uint8Array]') {
    return value as Uint8Array;
  }
  throw new NotFollowing('data are no bytes');
}
