/* Routes, spans, lateness and activation logs as tables, equal to tests/peer/session/test_session_parts.py. */

import { describe, expect, it } from 'vitest';

import { ActivationLog } from '../../src/session/activation_log';
import { Lateness } from '../../src/session/lateness';
import { apply, EMPTY_STATE } from '../../src/state/mesh_state';
import type { Command } from '../../src/state/member_commands';
import type { PlanRecord } from '../../src/state/generated/commands';
import type { Run } from '../../src/state/plan_record';
import { ANY, choose, type Choice } from '../../src/session/routes';
import { commonPrefix, cutSpans, extended, stepsOf } from '../../src/session/position_spans';
import { floats, type Tensor, tensorOf } from '../../src/wire/tensors';

const stage = (first: number, stop: number, primary: string, standbys: string[]) => ({
  ...{ first, stop, primary, standbys, weightBytes: 0, kvBytes: 0, overheadBytes: 0 },
});
const PLAN: PlanRecord = {
  ...{ version: 7, predictedTokenUs: 0, predictedRateMilli: 0, why: [], choices: [] },
  stages: [stage(0, 2, 'a', ['b', 'c']), stage(2, 4, 'b', ['c'])],
};
const HELD: Record<string, Run[]> = {
  a: [{ first: 0, stop: 2 }],
  b: [
    { first: 0, stop: 2 },
    { first: 2, stop: 4 },
  ],
  c: [{ first: 2, stop: 4 }],
};
const COMMANDS = Object.entries(HELD).flatMap(([peer, held]): Command[] => [
  { kind: 'MemberJoined', peer, name: peer, compute: true },
  { kind: 'UnitsHeld', peer, held },
]);
const STATE = COMMANDS.reduce(apply, EMPTY_STATE);

describe('routes', () => {
  const cases: [string, Partial<Choice>, string | null, string?][] = [
    ['', {}, 'ab', '0b 1c'],
    ['', { shadows: false }, 'ab', ''],
    ['a', {}, 'bb', '0a 1c'],
    ['b', {}, 'ac', '0b 1b'],
    ['b', { standbys: false }, null],
    ['ab', {}, null],
    ['', { avoid: new Set('a') }, 'bb', '0a 1c'],
    ['b', { avoid: new Set('a') }, 'ac', '0b 1b'],
    ['', { order: (able) => [...able].sort().reverse() }, 'bc', '0a 1b'],
  ];
  it.each(cases)('without "%s" and %o', (gone, more, peers, shadows) => {
    const route = choose(STATE, PLAN, { ...ANY, gone: new Set(gone), ...more });
    expect(route?.peers.join('') ?? null).toBe(peers);
    expect(route?.shadows.map(({ stage: at, peer }) => `${at}${peer}`).join(' ')).toBe(shadows);
  });
});

it('spans and their steps', () => {
  expect(extended([], 4, true)).toEqual([4]);
  expect(extended([], 4, false)).toEqual([0, 4]);
  expect(extended([4, 2], 1, false)).toEqual([4, 3]);
  expect(extended([4, 2], 1, true)).toEqual([4, 2, 1]);
  expect([0, 3, 4, 5, 99].map((length) => cutSpans([4, 2, 3], length))).toEqual([
    [],
    [3],
    [4],
    [4, 1],
    [4, 2, 3],
  ]);
  const pairs = (start: number, stop: number): number[][] =>
    stepsOf(start, stop, [36, 2, 2]).map((step) => [step.position, step.stop]);
  expect(pairs(0, 40)).toEqual([
    [0, 32],
    [32, 36],
    [36, 37],
    [37, 38],
    [38, 40],
  ]);
  expect(pairs(40, 40)).toEqual([]);
  expect(commonPrefix([1, 2], [1, 2, 3])).toBe(2);
});

it.each([
  [[], 0.4],
  [Array<number>(4).fill(0.1), 0.18],
  [[...Array<number>(31).fill(0.1), 9], 0.18],
  [Array<number>(9).fill(0.001), 0.08],
  [Array<number>(9).fill(9), 2],
])('after the gaps %j a token is late after %d s', (gaps, lateS) => {
  const lateness = new Lateness();
  for (const gap of gaps) lateness.gap(gap);
  expect(lateness.lateS).toBeCloseTo(lateS);
});

describe('a log', () => {
  const rowsOf = (position: number, count: number): Tensor =>
    tensorOf(
      Float32Array.from({ length: count }, (_, at) => position + at),
      [count, 1],
    );
  const since = (log: ActivationLog, position: number): number[] | null =>
    log.since(position)?.flatMap(({ tensor }) => [...floats(tensor)]) ?? null;

  it('gives what it took and forgets the oldest', () => {
    const log = new ActivationLog(6 * 4);
    log.append(0, rowsOf(0, 3));
    log.append(3, rowsOf(3, 3));
    expect(since(log, 2)).toEqual([2, 3, 4, 5]);
    log.append(6, rowsOf(6, 1));
    expect([log.start, log.stop, log.bytes]).toEqual([3, 7, 16]);
    expect(since(log, 2)).toBeNull();
    log.cut(5);
    expect(since(log, 3)).toEqual([3, 4]);
    log.append(9, rowsOf(9, 1)); // beyond a gap
    expect([log.start, since(log, 9), since(log, 8)]).toEqual([9, [9], null]);
    log.append(10, rowsOf(10, 7)); // more than it may hold
    expect([log.start, log.stop, log.bytes]).toEqual([17, 17, 0]);
  });
});
