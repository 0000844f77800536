/* Which steps are checked, by whom, and what counts as the same: the vectors that both languages replay. */

import { describe, expect, it } from 'vitest';

import { inOrder, judgesOf, mostBetween, NextCheck, pause } from '../../src/audit/check_policy';
import { decodeEnvelopes, Envelopes } from '../../src/audit/norm_envelopes';
import { BadCommand } from '../../src/errors';
import { type Computes, distance } from '../../src/session/evidence';
import { placeOf } from '../../src/audit/step_place';
import { samplingFromWire } from '../../src/session/sampling';
import { fits } from '../../src/session/sampling_check';
import { vectors } from '../vectors';
import { CHECK } from '../../src/wire/generated/requests';

type Op =
  | { readonly unable: boolean; readonly left: number | null }
  | {
      readonly rolls: readonly number[];
      readonly suspected: boolean;
      readonly busy: boolean;
      readonly due: boolean;
      readonly left: number;
    };
type Told = [provider: string, arithmetic: string];

interface Vectors {
  readonly pauses: [number, number, number, number][];
  readonly traces: { name: string; ppm: number; ops: Op[] }[];
  readonly judges: {
    holders: [string, ...Told][];
    weights: string;
    theirs: Told;
    near: string[];
    judges: string[];
  }[];
  readonly orders: { stages: number[]; route: string[]; suspects: string[]; order: number[] }[];
  readonly most: [string, Told, Told, number][];
  readonly distances: { seen: number[]; computed: number[]; distance: number | null }[];
  readonly tokens: {
    logits: number[];
    position: number;
    history: number[];
    answer: number[];
    cases: [number[], number, number, boolean][];
  }[];
  readonly envelopes: { files: [string, boolean][]; rows: [number, number[], number | null][] }[];
  readonly places: { asked: Record<string, unknown>; read: Record<string, unknown> | null }[];
}

const VECTORS = vectors('check_choices') as Vectors;
const computing = ([provider, arithmetic]: Told): Computes => ({ provider, arithmetic });

it('tokens until the next check', () => {
  for (const [ppm, times, roll, tokens] of VECTORS.pauses) expect(pause(ppm, times, () => roll)).toBe(tokens);
});

describe('when a check is due', () => {
  it.each(VECTORS.traces)('$name', ({ ppm, ops }) => {
    const next = new NextCheck();
    for (const op of ops) {
      if ('unable' in op) {
        next.checked(op.unable);
      } else {
        const rolls = [...op.rolls];
        const due = next.token(ppm, () => rolls.shift() ?? NaN, op.suspected, op.busy);
        expect({ due, rolls }).toEqual({ due: op.due, rolls: [] });
      }
      expect(next.left).toBe(op.left);
    }
  });
});

it('who is asked, and which stage first', () => {
  for (const { holders, weights, theirs, near, judges } of VECTORS.judges) {
    const all = holders.map(([peer, ...told]) => ({ peer, ...computing(told) }));
    expect(judgesOf(all, weights, computing(theirs), 'me', new Set(near))).toEqual(judges);
  }
  for (const { stages, route, suspects, order } of VECTORS.orders) {
    expect(inOrder(stages, route, new Set(suspects))).toEqual(order);
  }
});

it('how far honest results differ, and how far these do', () => {
  for (const [weights, judge, theirs, most] of VECTORS.most) {
    expect(mostBetween(weights, computing(judge), computing(theirs))).toBe(most);
  }
  for (const { seen, computed, distance: gap } of VECTORS.distances) {
    const found = distance(Float32Array.from(seen), Float32Array.from(computed));
    if (gap === null) expect(found).toBe(Infinity);
    else expect(found).toBeCloseTo(gap, 12);
  }
  expect(distance(Float32Array.of(NaN), Float32Array.of(1))).toBe(Infinity);
});

it('which tokens can have been drawn', () => {
  for (const { logits, position, history, answer, cases } of VECTORS.tokens) {
    for (const [settings, most, token, fine] of cases) {
      const drawn = { token, sampling: samplingFromWire(settings), position, history, answer };
      expect([settings, most, token, fits(Float32Array.from(logits), drawn, most)]).toEqual([
        settings,
        most,
        token,
        fine,
      ]);
    }
  }
});

it('what a request may say of a step', () => {
  for (const { asked, read } of VECTORS.places) {
    if (read === null) expect(() => placeOf(CHECK.codec.decode(asked, 'check'))).toThrow(BadCommand);
    else expect(CHECK.codec.encode(placeOf(CHECK.codec.decode(asked, 'check')))).toEqual(read);
  }
});

it('which rows are odd, and what a file of lengths may say', () => {
  const borders = new Envelopes([
    [0, 2000],
    [3000, 4000],
  ]);
  for (const { files, rows } of VECTORS.envelopes) {
    for (const [file, fine] of files) {
      expect([file, decodeEnvelopes(new TextEncoder().encode(file), 3) !== null]).toEqual([file, fine]);
    }
    for (const [unit, lengths, odd] of rows) {
      const given = Float32Array.from(lengths.flatMap((length) => [0, length, 0, 0]));
      expect([unit, lengths, borders.odd(unit, given, 4)]).toEqual([unit, lengths, odd]);
    }
  }
});
