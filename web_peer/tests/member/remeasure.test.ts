/*
 * When a tab measures itself once more because it is asked to, and what it tells; the measuring itself is a real
 * browser's.
 */

import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import type { MeasureAnswer } from '../../src/wire/generated/requests';
import { BadCommand } from '../../src/errors';
import type { Decoder } from '../../src/planner/manifest';
import type { candidate, Times } from '../../src/runtime/self_benchmark';
import { type Measurable, MeasuringAgain } from '../../src/member/remeasure';
import type { Member, MemberMeasured, Profile } from '../../src/state/generated/commands';
import { EMPTY_STATE, type MeshState } from '../../src/state/mesh_state';

const ME = 'tab';
const BOSS = 'boss';
const ASKED = { model: 'm' };
const BUSY = { measured: false, busy: true };
const DONE = { measured: true, busy: false };
const RUN = { first: 0, stop: 3 };
const MIB = 1 << 20;
const PROFILE: Profile = {
  memoryBytes: 1 << 30,
  overheadBytes: 150 * MIB,
  decodeNs: new Map([['attn', 8_000_000]]),
  prefillNs: new Map([['attn', 1000]]),
  batchNs: new Map([['attn', 500]]),
  stepNs: 1000,
  provider: 'wasm',
  threads: 2,
  arithmetic: 'wasm/simd128/wide/9f3ac1d2e4b07755',
};
const TIMES: Times = {
  ...PROFILE,
  overheadBytes: 999,
  decodeNs: new Map([['attn', 5_000_000]]),
  prefillNs: new Map([['attn', 900]]),
  batchNs: new Map([['attn', 400]]),
  stepNs: 800,
  arithmetic: 'wasm/simd128/wide/0000000000000000', // what is loaded computes as it was found at first
};

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

/** A tab that lends and is at rest; `measures` answers when the test says so. */
class Tab implements Measurable {
  readonly lending = this;
  readonly model = { decoder: {} as Decoder };
  readonly signal = new AbortController().signal;
  readonly told: { readonly command: MemberMeasured; readonly again: boolean }[] = [];
  readonly view = {
    me: ME,
    state: stateWith('measured'),
    measured: (command: MemberMeasured, again = false): Promise<void> => {
      this.told.push({ command, again });
      return Promise.resolve();
    },
  };
  profile: Profile | null = PROFILE;
  isResting = true;
  weightBytes = 100 * MIB;
  steps = 0;
  asked: { readonly provider: string; readonly threads: number; readonly signal: AbortSignal }[] = [];
  end: (times: Times) => void = () => undefined;

  readonly measures: typeof candidate = (_, provider, threads, signal) => {
    this.asked.push({ provider, threads, signal });
    return new Promise((resolve, reject) => {
      this.end = resolve;
      signal.addEventListener('abort', () => reject(new Error('ended')));
    });
  };

  measured(profile: Profile): void {
    this.profile = profile;
  }

  isAtRest(): boolean {
    return this.isResting;
  }

  facts(): ReturnType<Measurable['lending']['facts']> {
    const pledgeBytes = this.profile?.memoryBytes ?? 0;
    const rest = { kvBytes: 0, provider: 'wasm', threads: 2, tokensHelped: this.steps, tokensPerS: 0 };
    return { pledgeBytes, weightBytes: this.weightBytes, runs: [RUN], ...rest };
  }
}

function stateWith(status: Member['status'], standby: readonly string[] = []): MeshState {
  const profile = {
    ...PROFILE,
    surroundings: { hazardMilli: 9000, machine: 'a'.repeat(32), network: '', owner: '' },
  };
  const member = { peer: ME, name: 'Tab', compute: true, status, profile, held: [RUN], reason: '' };
  const stages = [
    { ...RUN, primary: ME, standbys: [] },
    { first: 3, stop: 6, primary: BOSS, standbys: standby },
  ];
  return {
    ...EMPTY_STATE,
    model: { model: 'm' },
    plan: { version: 1, stages },
    members: new Map([[ME, member]]),
  } as unknown as MeshState;
}

async function measured(tab: Tab, again: MeasuringAgain): Promise<MeasureAnswer> {
  const answer = again.answer(ASKED);
  await vi.advanceTimersByTimeAsync(1000);
  tab.end(TIMES);
  return answer;
}

it('tells times that are new, and all else as it was', async () => {
  const tab = new Tab();
  expect(await measured(tab, new MeasuringAgain(tab, tab.measures))).toEqual(DONE);
  expect(tab.asked.map(({ provider, threads }) => [provider, threads])).toEqual([['wasm', 2]]);
  const [said] = tab.told;
  expect(said?.again).toBe(true);
  const { decodeNs, prefillNs, batchNs, stepNs } = TIMES;
  const profile = { ...PROFILE, decodeNs, prefillNs, batchNs, stepNs };
  const surroundings = { hazardMilli: 9000, machine: 'a'.repeat(32), network: '', owner: '' };
  expect(said?.command).toEqual({
    kind: 'MemberMeasured',
    peer: ME,
    profile: { ...profile, surroundings },
    links: [],
  });
  expect(tab.profile).toEqual(profile); // what it says when it joins again
});

it('refuses to measure for another model', async () => {
  const tab = new Tab();
  const again = new MeasuringAgain(tab, tab.measures);
  await expect(again.answer({ model: 'n' })).rejects.toThrow(BadCommand);
  expect(tab.asked).toEqual([]);
});

it.each<[string, (tab: Tab) => void, MeasureAnswer]>([
  ['computes', (tab) => (tab.isResting = false), BUSY],
  ['drains', (tab) => (tab.view.state = stateWith('draining')), BUSY],
  ['loads', (tab) => (tab.view.state = stateWith('measured', [ME])), BUSY],
  ['has no room', (tab) => (tab.weightBytes = 700 * MIB), { measured: false, busy: false }],
])('does not measure while it %s', async (_, makes, answer) => {
  const tab = new Tab();
  makes(tab);
  expect(await new MeasuringAgain(tab, tab.measures).answer(ASKED)).toEqual(answer);
  expect(tab.asked).toEqual([]);
});

it.each<[string, (tab: Tab) => void]>([
  ['an answer', (tab) => (tab.isResting = false)],
  ['a step behind another stage', (tab) => (tab.steps += 1)],
])('ends a measurement for %s, and is not kept busy by whoever asks', async (_, begins) => {
  const tab = new Tab();
  const again = new MeasuringAgain(tab, tab.measures);
  const answer = again.answer(ASKED);
  await vi.advanceTimersByTimeAsync(1000);
  expect(await again.answer(ASKED)).toEqual(BUSY); // one at a time
  begins(tab);
  await vi.advanceTimersByTimeAsync(100);
  expect(await answer).toEqual(BUSY);
  expect(tab.told).toEqual([]);
  tab.isResting = true;
  let begun = 0;
  for (let second = 0; second < 3600; second++) {
    const asked = again.answer(ASKED);
    await vi.advanceTimersByTimeAsync(1000);
    tab.end(TIMES);
    begun += (await asked)['measured'] ? 1 : 0;
  }
  expect(begun).toBe(12); // of an hour
});
