/* Whom a coordinating tab tries with a known answer, and when: the traces that both languages replay. */

import { describe, expect, it } from 'vitest';

import {
  ABOUT,
  ASKED,
  computing,
  Due,
  question,
  routeOver,
  sampling,
  TIMES,
  tokensWanted,
} from '../../src/audit/canary_policy';
import { EMPTY_STATE, type MeshState } from '../../src/state/mesh_state';
import type { Member, PlanRecord } from '../../src/state/generated/commands';
import { vectors } from '../vectors';

interface Op {
  readonly do: 'look' | 'tried' | 'busy';
  readonly now_s: number;
  readonly leads?: boolean;
  readonly peers?: readonly string[];
  readonly peer?: string;
  readonly due?: readonly string[];
  readonly rolls: readonly number[];
}

const { traces, questions } = vectors('canaries') as {
  traces: { name: string; ops: Op[] }[];
  questions: { asked: string[]; about: string[]; tokens: [number, number] }[];
};

describe('when', () => {
  it.each(traces)('$name', ({ ops }) => {
    const rolls: number[] = [];
    const due = new Due(TIMES, () => {
      const roll = rolls.shift();
      if (roll === undefined) throw new Error('chance was asked once too often');
      return roll;
    });
    for (const op of ops) {
      rolls.push(...op.rolls);
      if (op.do === 'look') expect(due.look(op.now_s, op.leads ?? false, op.peers ?? [])).toEqual(op.due);
      else due[op.do](op.now_s, op.peer ?? '');
      expect(rolls).toEqual([]);
    }
  });
});

describe('what', () => {
  const [told] = questions;
  const rolls = [0, 0.25, 0.5, 0.75, 0.999999];

  it('is asked about the same as by a process', () => {
    expect(ABOUT).toEqual(told?.about);
    expect(ASKED).toEqual(told?.asked);
  });

  it.each(rolls)('is a question with settings, for the roll %d', (roll) => {
    expect(question(() => roll)).not.toMatch(/[{}]/);
    const { temperature, topP, seed } = sampling(() => roll);
    if (roll >= 0.5) expect([temperature, topP]).toEqual([0, 1]);
    else expect(temperature).toBeGreaterThan(0);
    expect(seed).toBeLessThan(2 ** 31);
    const [least = 0, most = 0] = told?.tokens ?? [];
    expect(tokensWanted(() => roll)).toBeGreaterThanOrEqual(least);
    expect(tokensWanted(() => roll)).toBeLessThanOrEqual(most);
  });
});

const FIRST = { first: 0, stop: 3 };
const SECOND = { first: 3, stop: 6 };

function member(peer: string, held: Member['held']): Member {
  return {
    ...{ peer, name: peer, compute: true, status: 'measured', reason: '', profile: null, held },
    ...{ headless: false, durable: true, incarnation: 1 },
  };
}

describe('where', () => {
  const bytes = { weightBytes: 1, kvBytes: 1, overheadBytes: 1 };
  const stages = [
    { ...FIRST, primary: 'a', standbys: ['b', 'c'], ...bytes },
    { ...SECOND, primary: 'b', standbys: ['c'], ...bytes },
  ];
  const plan: PlanRecord = {
    ...{ version: 2, stages, predictedTokenUs: 1, predictedRateMilli: 1, why: [], choices: [] },
  };
  const members = [
    ...[member('a', [FIRST]), member('b', [FIRST, SECOND]), member('c', [FIRST, SECOND])],
    ...[member('idle', []), member('me', [FIRST])],
  ];
  const state: MeshState = {
    ...EMPTY_STATE,
    plan,
    members: new Map(members.map((each) => [each.peer, each])),
  };

  it('others that hold a stage are tried', () => {
    expect(computing(state, 'b')).toEqual(['a', 'c']);
    expect(computing({ ...state, plan: null }, 'b')).toEqual([]);
  });

  it.each([
    [0, 'c'],
    [0, 'b'],
    [1, 'c'],
    [1, 'b'],
  ])('stage %d is tried at %s, who stands by or not', (place, peer) => {
    expect(routeOver(state, plan, place, peer)?.peers[place]).toBe(peer);
  });
});
