/*
 * Decides which work counts, for whom and against whom, so that nothing counts twice (twin of
 * peer/state/work_ledger.py).
 *
 * Pure. Work is the positions of a session that a peer computed through a run of units. What a session has counted is
 * kept as rectangles of positions and units, and an entry that touches one of them does not count. Of the oldest
 * sessions only the horizon is kept: what began up to then and is not listed does not count any more.
 */

import { BadCommand } from '../errors';
import { type Codec, itemsOf, list, record, type Span, shown, span, table, uint } from '../wire/json_codec';
import { MAX_ITEMS } from '../limits';
import { byBytes } from '../wire/utf8_order';
import type { Work } from './generated/commands';

const MAX_SESSIONS = 4096; // whose work can still be counted
const MAX_AREAS = 64; // rectangles of a session, after joining those that touch

/** Positions through units that have been counted. */
export interface Area {
  readonly units: Span;
  readonly positions: Span;
}

export interface Counted {
  readonly startedMs: number;
  readonly areas: readonly Area[]; // none touches another
}

/** Thousandths of credits that a peer ever earned and spent. */
export interface Balance {
  readonly earned: number;
  readonly spent: number;
}

/** What all earned is what all spent. A session that began by `horizonMs` and is not listed is over. */
export interface Ledger {
  readonly sessions: ReadonlyMap<string, Counted>;
  readonly balances: ReadonlyMap<string, Balance>;
  readonly horizonMs: number;
}

export const EMPTY_LEDGER: Ledger = { sessions: new Map(), balances: new Map(), horizonMs: 0 };

/** The ledger with those of `entries` that count, and for each why it does not ("": it does). */
export function tally(ledger: Ledger, entries: readonly Work[]): { after: Ledger; why: readonly string[] } {
  const sessions = new Map(ledger.sessions);
  const balances = new Map(ledger.balances);
  const why = entries.map((work) => {
    const areas = areasWith(sessions.get(work.session), work, ledger.horizonMs);
    const reason = typeof areas === 'string' ? areas : paid(balances, work);
    if (reason === '' && typeof areas !== 'string') {
      sessions.set(work.session, { startedMs: work.startedMs, areas });
    }
    return reason;
  });
  let horizonMs = ledger.horizonMs;
  if (sessions.size > MAX_SESSIONS) {
    const byAge = [...sessions].sort(
      ([session, { startedMs }], [other, counted]) =>
        startedMs - counted.startedMs || byBytes(session, other),
    );
    for (const [session, { startedMs }] of byAge.slice(0, byAge.length - MAX_SESSIONS)) {
      sessions.delete(session);
      horizonMs = startedMs;
    }
  }
  return { after: { sessions, balances, horizonMs }, why };
}

/** The areas of a session with those of `work`, or why it cannot have them. */
function areasWith(counted: Counted | undefined, work: Work, horizonMs: number): readonly Area[] | string {
  const { units, positions } = work;
  if (counted === undefined) {
    return work.startedMs <= horizonMs ? 'this session began too long ago' : [{ units, positions }];
  }
  if (counted.startedMs !== work.startedMs) return 'this session began at another time';
  let { first, stop } = positions;
  const others: Area[] = [];
  for (const area of counted.areas) {
    if (meet(area.units, units) && meet(area.positions, positions)) return 'this work was counted before';
    const isSame = area.units.first === units.first && area.units.stop === units.stop;
    if (isSame && stop === area.positions.first) stop = area.positions.stop;
    else if (isSame && area.positions.stop === first) first = area.positions.first;
    else others.push(area);
  }
  if (others.length >= MAX_AREAS) return `this session has ${MAX_AREAS} areas, which is the most`;
  others.push({ units, positions: { first, stop } });
  return others.sort((a, b) => bySpan(a.units, b.units) || bySpan(a.positions, b.positions));
}

function meet(one: Span, other: Span): boolean {
  return one.first < other.stop && other.first < one.stop;
}

function bySpan(a: Span, b: Span): number {
  return a.first - b.first || a.stop - b.stop;
}

/** Moves the price from the asker to the peer. Says why not, and moves nothing, where a balance has no room. */
function paid(balances: Map<string, Balance>, { peer, asker, milli }: Work): string {
  const strangers = [...new Set([peer, asker])].filter((each) => !balances.has(each)).length;
  if (strangers > 0 && balances.size + strangers > MAX_ITEMS) {
    return `${MAX_ITEMS} peers have a balance, which is the most`;
  }
  const of = (each: string): Balance => balances.get(each) ?? { earned: 0, spent: 0 };
  const [earned, spent] = [of(peer).earned + milli, of(asker).spent + milli];
  if (Math.max(earned, spent) > Number.MAX_SAFE_INTEGER) return 'a balance holds no more than 2^53-1';
  balances.set(peer, { ...of(peer), earned });
  balances.set(asker, { ...of(asker), spent });
  return '';
}

// --- wire

const area: Codec<Area> = {
  decode(value, where) {
    const numbers = itemsOf(value, where);
    if (numbers.length !== 4) {
      throw new BadCommand(
        `${where}: expected first and stop of units and of positions, got ${shown(value)}`,
      );
    }
    return {
      units: span.decode(numbers.slice(0, 2), where),
      positions: span.decode(numbers.slice(2), where),
    };
  },
  encode: ({ units, positions }) => [units.first, units.stop, positions.first, positions.stop],
};

export const ledgerCodec = record<Ledger>('Ledger', {
  sessions: table(
    record<Counted>('Counted', { startedMs: uint, areas: list(area, MAX_AREAS) }),
    MAX_SESSIONS,
  ),
  balances: table(record<Balance>('Balance', { earned: uint, spent: uint })),
  horizonMs: uint,
});
