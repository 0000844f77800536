/*
 * Decides who may ask, whose word convicts whom of wrong work, and what a convicted peer loses (twin of
 * peer/state/fairness.py).
 *
 * Pure. Work of the ledger earns; a finding is one peer's word that another one's result is not what its units make of
 * their input. One word convicts nobody: two different peers must have found the same step wrong. Who is convicted
 * loses what it earned, earns no more, and no plan uses it until an owner pardons it.
 */

import { type Codec, list, record, table, uint } from '../wire/json_codec';
import { type Ledger, tally } from './work_ledger';
import {
  ALLOWANCE_MILLI,
  CHECKS_PPM,
  type CheckFailed,
  type FairnessCommand,
  MAX_FINDINGS,
  MAX_QUARANTINED,
  MAX_SERVED,
  type Policy,
  type Quarantine,
  type WorkRecorded,
  bareCheckFailedCodec,
  policyCodec,
  quarantineCodec,
  sessionPattern,
} from './generated/commands';

const MILLI = 1000;

/** `served`: the last sessions of each peer with a place in a counted work. */
export interface Fairness {
  readonly policy: Policy;
  readonly allowanceMilli: number;
  readonly checksPpm: number;
  readonly findings: readonly CheckFailed[];
  readonly quarantined: ReadonlyMap<string, Quarantine>;
  readonly served: ReadonlyMap<string, readonly string[]>;
}

export const OPEN_TO_ALL: Fairness = {
  policy: 'open',
  allowanceMilli: ALLOWANCE_MILLI,
  checksPpm: CHECKS_PPM,
  findings: [],
  quarantined: new Map(),
  served: new Map(),
};

/** What both parts are after a command. */
interface Settled {
  readonly ledger: Ledger;
  readonly fairness: Fairness;
}

/** What `peer` spent beyond what it earned; below zero where it is the other way round. */
export function owedMilli(ledger: Ledger, peer: string): number {
  const { earned, spent } = ledger.balances.get(peer) ?? { earned: 0, spent: 0 };
  return spent - earned;
}

/** The same where the mesh counts work, else 0: what orders those who wait. */
export function countedMilli({ policy }: Fairness, ledger: Ledger, peer: string): number {
  return policy === 'off' ? 0 : owedMilli(ledger, peer);
}

/** Why `peer` may not ask now, and what to do; "" when it may. */
export function mayAsk({ policy, allowanceMilli }: Fairness, ledger: Ledger, peer: string): string {
  const owed = owedMilli(ledger, peer);
  if (policy !== 'fair' || owed <= allowanceMilli) return '';
  const credits = (milli: number): number => Math.floor(milli / MILLI);
  return (
    `this mesh shares fairly: you have asked for ${credits(owed)} credits more than you contributed, and ` +
    `${credits(allowanceMilli)} are allowed; lend a machine with shoal join, or lend this tab's memory, ` +
    'and ask again when it has computed for others'
  );
}

/** The ledger after `command` and who served, or why none of its entries counts. Who is convicted earns nothing. */
export function accountFairly(ledger: Ledger, fairness: Fairness, command: WorkRecorded): Settled | string {
  if (fairness.policy === 'off') return 'this mesh counts no work';
  const entries = command.entries.filter(({ peer }) => !fairness.quarantined.has(peer));
  const { after, why } = tally(ledger, entries);
  const counted = entries.filter((_, place) => why[place] === '');
  if (counted.length === 0) {
    const none = command.entries.length > 0 ? 'the peer was convicted of wrong work' : 'there are no entries';
    return why[0] ?? none;
  }
  const served = new Map(fairness.served);
  for (const { peer, session } of counted) {
    const others = (served.get(peer) ?? []).filter((each) => each !== session);
    served.set(peer, [...others, session].slice(-MAX_SERVED));
  }
  const known = new Map([...served].filter(([peer]) => after.balances.has(peer)));
  return { ledger: after, fairness: { ...fairness, served: known } };
}

/** Ledger and fairness after `command`, or why it changes nothing. */
export function settle(ledger: Ledger, fairness: Fairness, command: FairnessCommand): Settled | string {
  switch (command.kind) {
    case 'FairnessChosen': {
      const { policy, allowanceMilli, checksPpm } = command;
      const isSame =
        policy === fairness.policy &&
        allowanceMilli === fairness.allowanceMilli &&
        checksPpm === fairness.checksPpm;
      if (isSame) return 'it is so already';
      return { ledger, fairness: { ...fairness, policy, allowanceMilli, checksPpm } };
    }
    case 'PeerPardoned': {
      if (!fairness.quarantined.has(command.peer)) return 'this peer is not convicted';
      const quarantined = new Map([...fairness.quarantined].filter(([peer]) => peer !== command.peer));
      const findings = fairness.findings.filter(({ peer }) => peer !== command.peer);
      return { ledger, fairness: { ...fairness, quarantined, findings } };
    }
    case 'CheckFailed':
      return found(ledger, fairness, command);
    default:
      return command satisfies never;
  }
}

function found(ledger: Ledger, fairness: Fairness, command: CheckFailed): Settled | string {
  const { session, position, units, peer, by, whenMs } = command;
  if (by === peer) return 'nobody judges itself';
  if (fairness.quarantined.has(by)) return 'the word of a convicted peer does not count';
  if (fairness.quarantined.has(peer)) return 'this peer is convicted already';
  const same = fairness.findings.filter((each) => step(each) === step(command));
  if (same.some((each) => each.by === by)) return 'it said so before';
  if (same.length === 0) {
    const finding: CheckFailed = { kind: 'CheckFailed', session, position, units, peer, by, whenMs };
    return {
      ledger,
      fairness: { ...fairness, findings: [...fairness.findings, finding].slice(-MAX_FINDINGS) },
    };
  }
  if (fairness.quarantined.size >= MAX_QUARANTINED) {
    return `${MAX_QUARANTINED} peers are convicted, which is the most`;
  }
  const words = [...new Set([...same.map((each) => each.by), by])];
  const balance = ledger.balances.get(peer);
  const served = fairness.served.get(peer) ?? [];
  const sessions = [...new Set([...served, session])].slice(-MAX_SERVED);
  const verdict: Quarantine = { whenMs, by: words, lostMilli: balance?.earned ?? 0, sessions };
  const findings = fairness.findings.filter((each) => each.peer !== peer && each.by !== peer);
  const quarantined = new Map(fairness.quarantined).set(peer, verdict);
  const after = { ...fairness, findings, quarantined };
  if (balance === undefined) return { ledger, fairness: after };
  const balances = new Map(ledger.balances).set(peer, { ...balance, earned: 0 });
  return { ledger: { ...ledger, balances }, fairness: after };
}

function step({ session, position, units, peer }: CheckFailed): string {
  return JSON.stringify([session, position, units.first, units.stop, peer]);
}

// --- wire

export const fairnessCodec: Codec<Fairness> = record<Fairness>('Fairness', {
  policy: policyCodec,
  allowanceMilli: uint,
  checksPpm: uint,
  findings: list(bareCheckFailedCodec, MAX_FINDINGS),
  quarantined: table(quarantineCodec, MAX_QUARANTINED),
  served: table(list(sessionPattern, MAX_SERVED)),
});
