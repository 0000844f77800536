/* How a peer comes to tell that it is slower: both languages say the same at the same time. */

import { expect, it } from 'vitest';

import { atPace, Pace, shouldTake } from '../../src/runtime/slowdown';
import { vectors } from '../vectors';

type Key = readonly [run: readonly [number, number], session: string, epoch: number, position: number];
type Op =
  | readonly ['begun' | 'dropped', number, Key, number]
  | readonly ['ended', number, Key, boolean]
  | readonly ['look', number, number | null, readonly [learned: boolean, steady: boolean]]
  | readonly ['unheard', number, number, number];
type Row = Readonly<Record<string, number>>;
interface Vectors {
  readonly traces: readonly { readonly ops: readonly Op[] }[];
  readonly should_take: readonly {
    readonly given: readonly [Row, Row, Row, number];
    readonly gives: number;
  }[];
  readonly at_pace: readonly { readonly given: readonly [Row, number]; readonly gives: Row }[];
}

const VECTORS = vectors('pace') as Vectors;
const mapOf = (row: Row): Map<string, number> => new Map(Object.entries(row));

it.each(VECTORS.traces)('trace %#', ({ ops }) => {
  const pace = new Pace();
  ops.forEach((op, at) => {
    const now = op[1] / 1e6;
    switch (op[0]) {
      case 'begun':
        pace.begun(now, keyOf(op[2]), op[3] / 1e6);
        break;
      case 'ended':
        pace.ended(now, keyOf(op[2]), op[3]);
        break;
      case 'dropped':
        pace.dropped(now, keyOf(op[2]).run, op[2][1]);
        break;
      case 'look':
        expect([at, pace.look(now), [pace.learned, pace.isSteady(now)]]).toEqual([at, op[2], op[3]]);
        break;
      case 'unheard':
        pace.unheard();
        expect([at, pace.toldMilli]).toEqual([at, op[2]]);
        break;
      default:
        op satisfies never;
    }
  });
});

it.each(VECTORS.should_take)(
  'a step should take $gives s',
  ({ given: [kinds, decode, prefill, tokens], gives }) => {
    expect(shouldTake(mapOf(kinds), mapOf(decode), mapOf(prefill), tokens)).toBe(gives);
  },
);

it.each(VECTORS.at_pace)('times at the pace of $given.1 thousandths', ({ given: [table, milli], gives }) => {
  expect(Object.fromEntries(atPace(mapOf(table), milli))).toEqual(gives);
});

function keyOf([[first, stop], session, epoch, position]: Key): Parameters<Pace['ended']>[1] {
  return { run: { first, stop }, session, epoch, position };
}
