/* Who is called next where all seats are taken, and how long the others will wait: the traces of both languages. */

import { describe, expect, it } from 'vitest';

import { type Busy, headStartMs, Line, type Room, waitingText } from '../../src/session/admission_queue';
import { type Run, runKey } from '../../src/state/plan_record';
import { vectors } from '../vectors';

type Parts = readonly [number, number, number];
type Pair = readonly [number, number];
type Who = readonly [string, string];
type Op = {
  readonly now_ms: number;
  readonly stand: readonly (readonly [string, string, Pair, number, number])[];
  readonly but: Who;
  readonly kept: readonly number[];
} & (
  | { readonly do: 'enter'; readonly who: Who; readonly run: Pair; readonly wants: Parts }
  | { readonly do: 'leave'; readonly who: Who }
  | { readonly do: 'put_back'; readonly who: Who }
  | { readonly do: 'gone'; readonly who: Who }
  | { readonly do: 'ran'; readonly gap_us: number; readonly count: number; readonly given: boolean }
  | { readonly do: 'ended'; readonly tokens: number }
  | { readonly do: 'look'; readonly rooms: readonly (readonly [Pair, number, readonly [string, Parts][]])[] }
);
interface Vectors {
  readonly head_starts: readonly { readonly owed_milli: number; readonly ms: number }[];
  readonly words: readonly { readonly place: number; readonly wait_ms: number; readonly text: string }[];
  readonly traces: readonly {
    readonly name: string;
    readonly owed: Record<string, number>;
    readonly ops: Op[];
  }[];
}

const VECTORS = vectors('admission') as Vectors;
const RUNS: readonly Run[] = [
  { first: 0, stop: 2 },
  { first: 2, stop: 5 },
];
const ASKERS = ['pa', 'pb', 'pc', 'pd'];

const busyOf = ([positions, made, most]: Parts): Busy => ({ positions, made, most });
const runOf = ([first, stop]: Pair): Run => ({ first, stop });

it.each(VECTORS.head_starts)('a balance of $owed_milli is worth $ms ms', ({ owed_milli: owed, ms }) => {
  expect(headStartMs(owed)).toBe(ms);
});

it.each(VECTORS.words)('$text', ({ place, wait_ms: waitMs, text }) => {
  expect(waitingText(place, waitMs)).toBe(text);
});

describe('traces', () => {
  it.each(VECTORS.traces)('$name', ({ owed, ops }) => {
    const line = new Line();
    for (const op of ops) {
      if (op.do === 'enter') line.enter(op.now_ms, ...op.who, runOf(op.run), busyOf(op.wants));
      else if (op.do === 'leave') line.leave(...op.who);
      else if (op.do === 'put_back') line.putBack(...op.who);
      else if (op.do === 'gone') line.gone(op.who[0]);
      else if (op.do === 'ran') line.pace.ran(op.gap_us, op.count, op.given);
      else if (op.do === 'ended') line.pace.ended(op.tokens);
      else {
        const rooms = op.rooms.map(([run, seats, busy]): [string, Room] => [
          runKey(runOf(run)),
          { seats, busy: busy.map(([asker, each]) => [asker, busyOf(each)]) },
        ]);
        line.look(op.now_ms, new Map(rooms), (asker) => owed[asker] ?? 0);
      }
      const stand = ASKERS.flatMap((asker) => ['x', 'y', 'z'].map((session) => line.find(asker, session)));
      const shown = stand.flatMap((each) =>
        each === undefined
          ? []
          : [[each.asker, each.session, [each.run.first, each.run.stop], each.place, each.waitMs]],
      );
      expect(shown).toEqual(op.stand);
      expect(RUNS.map((run) => line.kept(run, ...op.but))).toEqual(op.kept);
    }
  });
});
