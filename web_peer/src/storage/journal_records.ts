/*
 * Decides what a transaction log can say, and how a record of it is spelled: one line of JSON (twin of
 * peer/storage/journal_records.py). Pure. Integers and strings only, no tokens, prompts or activations.
 */

import { WrongRecord } from '../errors';

export const MAX_SESSIONS = 1024; // places of sessions in one log
export const MAX_RUNS = 1024; // runs of units in one log
const MAX_UNIT = 2 ** 20;
const MAX_STAGE = 2 ** 16;
export const MAX_COUNT = Number.MAX_SAFE_INTEGER;
const MAX_RECORD_CHARS = 2 ** 20;
const SESSION = /^[0-9a-f]{32}$/;
const PEER = /^[0-9A-Za-z_.:-]{1,128}$/;

/** Units [first, stop). */
export interface Units {
  readonly first: number;
  readonly stop: number;
}

/** A session (hex) at a stage of its route. */
export interface Place {
  readonly session: string;
  readonly stage: number;
}

export type Operation =
  | ({ readonly kind: 'load' | 'unload' } & Units)
  | ({ readonly kind: 'migrate'; readonly peer: string } & Units) // held here until answers no longer need them
  | ({ readonly kind: 'open' | 'take_over' | 'close' } & Place);

export interface Step {
  readonly kind: 'begun' | 'committed' | 'rolled_back';
  readonly operation: Operation;
}

/** All that the records before it say. */
export interface Checkpoint {
  readonly kind: 'checkpoint';
  readonly held: readonly Units[];
  readonly kept: readonly Units[];
  readonly places: readonly Place[]; // the oldest first
  readonly begun: readonly Operation[];
  readonly tokens: number;
}

export type LogRecord = Step | Checkpoint;
type Item = string | number;

/** An operation in words. */
export function describe(operation: Operation): string {
  switch (operation.kind) {
    case 'load':
    case 'unload':
      return `${operation.kind} units ${operation.first}-${operation.stop - 1}`;
    case 'migrate':
      return `migrate units ${operation.first}-${operation.stop - 1} to ${operation.peer.slice(0, 8)}`;
    case 'open':
    case 'take_over':
    case 'close': {
      const doing = operation.kind.replace('_', ' ');
      return `${doing} session ${operation.session.slice(0, 8)} at stage ${operation.stage}`;
    }
    default:
      return operation satisfies never;
  }
}

/** An array of integers, strings and arrays of them, as JSON. */
export function encodeRecord(record: LogRecord): string {
  if (record.kind !== 'checkpoint') return JSON.stringify([record.kind, ...arrayOf(record.operation)]);
  const { held, kept, places, begun, tokens } = record;
  return JSON.stringify([
    'checkpoint',
    held.map(({ first, stop }) => [first, stop]),
    kept.map(({ first, stop }) => [first, stop]),
    places.map(({ session, stage }) => [session, stage]),
    begun.map(arrayOf),
    tokens,
  ]);
}

/** The record in `text`. Raises WrongRecord. */
export function decodeRecord(text: string): LogRecord {
  if (text.length > MAX_RECORD_CHARS) {
    throw new WrongRecord(`expected at most ${MAX_RECORD_CHARS} characters, got ${text.length}`);
  }
  const [kind, ...rest] = listOf(parsed(text));
  if (kind === 'begun' || kind === 'committed' || kind === 'rolled_back') {
    return { kind, operation: operationOf(rest) };
  }
  if (kind !== 'checkpoint' || rest.length !== 5) {
    throw new WrongRecord('expected begun, committed, rolled_back or checkpoint with its fields');
  }
  const [held, kept, places, begun] = rest.slice(0, 4).map(listOf) as [
    unknown[],
    unknown[],
    unknown[],
    unknown[],
  ];
  if (held.length + kept.length > MAX_RUNS || places.length > MAX_SESSIONS) {
    throw new WrongRecord('expected a checkpoint within the bounds of runs and sessions');
  }
  return {
    kind,
    held: held.map(unitsOf),
    kept: kept.map(unitsOf),
    places: places.map(placeOf),
    begun: begun.map(operationOf),
    tokens: whole(rest[4], MAX_COUNT),
  };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    throw new WrongRecord('expected a JSON array');
  }
}

function listOf(raw: unknown): unknown[] {
  if (!Array.isArray(raw)) throw new WrongRecord('expected an array');
  return raw as unknown[];
}

function arrayOf(operation: Operation): Item[] {
  const { kind } = operation;
  switch (kind) {
    case 'load':
    case 'unload':
      return [kind, operation.first, operation.stop];
    case 'migrate':
      return [kind, operation.first, operation.stop, operation.peer];
    case 'open':
    case 'take_over':
    case 'close':
      return [kind, operation.session, operation.stage];
    default:
      return kind satisfies never;
  }
}

function operationOf(raw: unknown): Operation {
  const [kind, ...rest] = listOf(raw);
  switch (kind) {
    case 'load':
    case 'unload':
      return { kind, ...unitsOf(rest) };
    case 'migrate': {
      const [first, stop, peer, ...more] = rest;
      if (typeof peer === 'string' && PEER.test(peer) && more.length === 0) {
        return { kind, ...unitsOf([first, stop]), peer };
      }
      break;
    }
    case 'open':
    case 'take_over':
    case 'close':
      return { kind, ...placeOf(rest) };
  }
  throw new WrongRecord('expected an operation: its kind, and a run of units or the place of a session');
}

function unitsOf(raw: unknown): Units {
  const [first, stop, ...more] = listOf(raw);
  const units = { first: whole(first, MAX_UNIT), stop: whole(stop, MAX_UNIT) };
  if (units.first < units.stop && more.length === 0) return units;
  throw new WrongRecord('expected a run of units: first and stop');
}

function placeOf(raw: unknown): Place {
  const [session, stage, ...more] = listOf(raw);
  if (typeof session === 'string' && SESSION.test(session) && more.length === 0) {
    return { session, stage: whole(stage, MAX_STAGE) };
  }
  throw new WrongRecord('expected the place of a session: 32 hex digits and a stage');
}

function whole(value: unknown, most: number): number {
  if (typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 && value <= most) return value;
  throw new WrongRecord(`expected a whole number up to ${most}, got ${JSON.stringify(value)}`);
}
