/*
 * Decides what keeps a mesh going: which standbys are ready, what its peers have begun, and where they meet again (twin
 * of peer/state/upkeep.py).
 *
 * Pure. It also keeps what a newer version said and this one does not know.
 */

import { BadCommand } from '../errors';
import {
  type Codec,
  list,
  matching,
  MAX_ITEMS,
  maybe,
  oneOf,
  prose,
  record,
  type Span,
  span,
  text,
  uint,
  utf8Bytes,
} from '../wire/json_codec';
import { byBytes } from '../wire/utf8_order';

export type OperationKind = 'load' | 'unload' | 'migrate' | 'open' | 'take-over' | 'close';
export type Outcome = 'begun' | 'committed' | 'rolled-back';
const MAX_TRANSACTIONS = 512; // remembered; the oldest that are over go first
const MAX_ADDRESSES = 16;
const MAX_KEPT = 64; // commands of a newer version
const MAX_KEPT_BYTES = 65536; // of all of them

/** Runs of units that a peer can take over at once, for the plan of this version. */
export interface Standby {
  readonly version: number;
  readonly ready: readonly Span[];
}

/** An operation of a peer on a run of units or on a session. */
export interface Transaction {
  readonly id: string;
  readonly peer: string;
  readonly operation: OperationKind;
  readonly units: Span | null;
  readonly session: string;
  readonly to: string; // the peer that units migrate to
  readonly whenMs: number;
  readonly state: Outcome;
  readonly reason: string;
}

/** Commands of a newer version: how many, and the last ones as they came. `broken`: entries that are no commands. */
export interface Skipped {
  readonly count: number;
  readonly broken: number;
  readonly kept: readonly string[];
}

export const NOTHING_SKIPPED: Skipped = { count: 0, broken: 0, kept: [] };

// --- commands

export interface StandbyReady extends Standby {
  readonly kind: 'StandbyReady';
  readonly peer: string;
}

export interface TransactionBegun extends Omit<Transaction, 'state' | 'reason'> {
  readonly kind: 'TransactionBegun';
}

export interface TransactionEnded {
  readonly kind: 'TransactionEnded';
  readonly id: string;
  readonly state: Exclude<Outcome, 'begun'>;
  readonly reason: string;
}

/** Where peers meet from now on, the best first. */
export interface SignalingListed {
  readonly kind: 'SignalingListed';
  readonly addresses: readonly string[];
}

/** The borders of stages, fixed by hand; null: the planner decides. */
export interface CutsFixed {
  readonly kind: 'CutsFixed';
  readonly cuts: readonly number[] | null;
}

export type UpkeepCommand = StandbyReady | TransactionBegun | TransactionEnded | SignalingListed | CutsFixed;

/** The transactions with that one, or why it changes nothing. */
export function begun(
  transactions: readonly Transaction[],
  command: TransactionBegun,
): readonly Transaction[] | string {
  const { id, peer, operation, units, session, to, whenMs } = command;
  if (transactions.some((each) => each.id === id)) return 'this transaction was begun before';
  const kept = [...transactions];
  if (kept.length >= MAX_TRANSACTIONS) {
    const over = kept.findIndex(({ state }) => state !== 'begun');
    kept.splice(Math.max(0, over), 1);
  }
  return [...kept, { id, peer, operation, units, session, to, whenMs, state: 'begun', reason: '' }];
}

/** The transactions with that one over, or why it changes nothing. */
export function ended(
  transactions: readonly Transaction[],
  { id, state, reason }: TransactionEnded,
): readonly Transaction[] | string {
  const isThat = (each: Transaction): boolean => each.id === id && each.state === 'begun';
  if (!transactions.some(isThat)) return 'no such transaction is open';
  return transactions.map((each) => (isThat(each) ? { ...each, state, reason } : each));
}

/** The highest incarnation of every peer, with that of `peer`. None is kept for a peer that never had another. */
export function seen(
  incarnations: ReadonlyMap<string, number>,
  peer: string,
  incarnation: number,
): ReadonlyMap<string, number> {
  if (incarnation <= (incarnations.get(peer) ?? 0)) return incarnations;
  const known = new Map(incarnations).set(peer, incarnation);
  if (known.size > MAX_ITEMS) {
    const [first = ''] = [...known.keys()].filter((each) => each !== peer).sort(byBytes);
    known.delete(first);
  }
  return known;
}

/** With a command that this build does not know; the oldest that are kept make room for it. */
export function skip(skipped: Skipped, body: string): Skipped {
  const kept = [...skipped.kept];
  if (utf8Bytes(body) <= MAX_KEPT_BYTES) kept.push(body);
  let size = bytesOf(kept);
  while (kept.length > MAX_KEPT || size > MAX_KEPT_BYTES) size -= utf8Bytes(kept.shift() ?? '');
  return { ...skipped, count: skipped.count + 1, kept };
}

function bytesOf(kept: readonly string[]): number {
  return kept.reduce((sum, each) => sum + utf8Bytes(each), 0);
}

// --- wire

const id = matching(/^[0-9A-Za-z_.:-]{1,64}$/, 'an id of 1 to 64 letters, digits and _.:-');
const address = matching(/^https?:\/\/[0-9A-Za-z_.:/~%[\]-]{1,256}$/, 'an address such as https://host:8443');
export const addresses = list(address, MAX_ADDRESSES);
export const cuts = maybe(list(uint));
const readyFields = { version: uint, ready: list(span) };
const transactionFields = {
  id,
  peer: text,
  operation: oneOf('load', 'unload', 'migrate', 'open', 'take-over', 'close'),
  units: maybe(span),
  session: matching(/^([0-9a-f]{32})?$/, 'a session of 16 bytes in hex, or nothing'),
  to: text,
  whenMs: uint,
};

export const standby = record<Standby>('Standby', readyFields);
export const transactions = list(
  record<Transaction>('Transaction', {
    ...transactionFields,
    state: oneOf('begun', 'committed', 'rolled-back'),
    reason: text,
  }),
  MAX_TRANSACTIONS,
);

const skippedFields = record<Skipped>('Skipped', {
  count: uint,
  broken: uint,
  kept: list(prose(MAX_KEPT_BYTES), MAX_KEPT),
});
export const skipped: Codec<Skipped> = {
  decode(value, where) {
    const found = skippedFields.decode(value, where);
    if (bytesOf(found.kept) > MAX_KEPT_BYTES) {
      throw new BadCommand(`${where}: expected at most ${MAX_KEPT_BYTES} bytes of commands`);
    }
    return found;
  },
  encode: (value) => skippedFields.encode(value),
};

export const UPKEEP_COMMANDS: {
  readonly [K in UpkeepCommand['kind']]: Codec<Extract<UpkeepCommand, { kind: K }>>;
} = {
  StandbyReady: record<StandbyReady>(
    'StandbyReady',
    { peer: text, ...readyFields },
    { kind: 'StandbyReady' },
  ),
  TransactionBegun: record<TransactionBegun>('TransactionBegun', transactionFields, {
    kind: 'TransactionBegun',
  }),
  TransactionEnded: record<TransactionEnded>(
    'TransactionEnded',
    { id, state: oneOf('committed', 'rolled-back'), reason: text },
    { kind: 'TransactionEnded' },
  ),
  SignalingListed: record<SignalingListed>('SignalingListed', { addresses }, { kind: 'SignalingListed' }),
  CutsFixed: record<CutsFixed>('CutsFixed', { cuts }, { kind: 'CutsFixed' }),
};
