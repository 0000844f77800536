/*
 * Decides what keeps a mesh going: which standbys are ready, what its peers have begun, and where they meet again (twin
 * of peer/state/upkeep.py).
 *
 * Pure. It also keeps what a newer version said and this one does not know.
 */

import { BadCommand } from '../errors';
import { type Codec, utf8Bytes } from '../wire/json_codec';
import { MAX_ITEMS } from '../limits';
import { byBytes } from '../wire/utf8_order';
import {
  MAX_KEPT,
  MAX_KEPT_BYTES,
  MAX_TRANSACTIONS,
  type Skipped,
  type Transaction,
  type TransactionBegun,
  type TransactionEnded,
  skippedCodec,
} from './generated/commands';

export const NOTHING_SKIPPED: Skipped = { count: 0, broken: 0, kept: [] };

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

export const boundedSkippedCodec: Codec<Skipped> = {
  decode(value, where) {
    const found = skippedCodec.decode(value, where);
    if (bytesOf(found.kept) > MAX_KEPT_BYTES) {
      throw new BadCommand(`${where}: expected at most ${MAX_KEPT_BYTES} bytes of commands`);
    }
    return found;
  },
  encode: (value) => skippedCodec.encode(value),
};
