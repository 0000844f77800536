/* An asker acknowledges what was computed, at the same price: the traces that both languages replay. */

import { describe, expect, it } from 'vitest';

import type { Span } from '../../src/wire/json_codec';
import { OPEN_TO_ALL } from '../../src/state/fairness';
import { EMPTY_LEDGER, tally } from '../../src/state/work_ledger';
import type { Work } from '../../src/state/generated/commands';
import { priced, Receipts, unitCosts } from '../../src/audit/receipts';
import { vectors } from '../vectors';

type Shown = Readonly<Record<'session' | 'peer' | 'asker', string>> &
  Readonly<Record<'started_ms' | 'milli', number>> &
  Readonly<Record<'positions' | 'units', readonly [number, number]>>;
type Op = { readonly now: number } & (
  | { readonly do: 'opened'; readonly turn: readonly [string, number, number, string[], boolean] }
  | { readonly do: 'token'; readonly session: string; readonly position: number }
  | { readonly do: 'ended'; readonly session: string }
  | { readonly do: 'due'; readonly works: readonly Shown[]; readonly taken: readonly Shown[] }
);
interface Vectors {
  readonly costs: { kinds: string[]; tables: Record<string, number>[]; costs: number[] }[];
  readonly traces: { name: string; ops: Op[] }[];
}

const VECTORS = vectors('receipts') as Vectors;
const RUNS: readonly Span[] = [
  { first: 0, stop: 2 },
  { first: 2, stop: 5 },
  { first: 5, stop: 6 },
];

function work({ started_ms: startedMs, positions, units, ...rest }: Shown): Work {
  const span = ([first, stop]: readonly [number, number]): Span => ({ first, stop });
  return { ...rest, startedMs, positions: span(positions), units: span(units) };
}

it.each(VECTORS.costs)('units cost the median of what peers measured', ({ kinds, tables, costs }) => {
  const measured = tables.map((table) => new Map(Object.entries(table)));
  expect(unitCosts(kinds, measured)).toEqual(costs);
});

describe('traces', () => {
  it.each(VECTORS.traces)('$name', ({ ops }) => {
    const receipts = new Receipts();
    const costs = VECTORS.costs[0]?.costs ?? [];
    let ledger = EMPTY_LEDGER;
    for (const op of ops) {
      if (op.do === 'opened') {
        const [session, answer, start, route, pinned] = op.turn;
        const sampling = pinned ? [] : [0];
        receipts.opened(op.now, { session, origin: 'me', answer, start, route, sampling }, RUNS);
      } else if (op.do === 'token') receipts.token(op.session, op.position);
      else if (op.do === 'ended') receipts.ended(op.session);
      else {
        const said = receipts.due(ledger, OPEN_TO_ALL);
        expect(said.map((claim) => priced(claim, 'me', costs))).toEqual(op.works.map(work));
        ledger = tally(ledger, op.taken.map(work)).after;
      }
    }
  });
});
