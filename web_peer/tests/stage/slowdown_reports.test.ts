/* A tab whose steps take longer than they did says so, by its own measurement, and again when nobody heard it. */

import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import type { RunStep } from '../../src/session/effects';
import type { Manifest } from '../../src/planner/manifest';
import type { Member, Profile } from '../../src/state/generated/commands';
import { EMPTY_STATE, type MeshState } from '../../src/state/mesh_state';
import { Pacing } from '../../src/stage/slowdown_reports';

const ME = 'tab';
const RUN = { first: 0, stop: 3 };
const MANIFEST = { units: [{ kind: 'embed' }, { kind: 'attn' }, { kind: 'ffn' }] } as unknown as Manifest;
const STEP_MS = 20; // of one token through these units, as measured
const PROFILE: Profile = {
  memoryBytes: 1 << 30,
  overheadBytes: 1 << 20,
  decodeNs: new Map([
    ['attn', 8_000_000],
    ['embed', 4_000_000],
    ['ffn', 8_000_000],
  ]),
  prefillNs: new Map([
    ['attn', 1000],
    ['ffn', 1000],
  ]),
  batchNs: new Map([['attn', 500]]),
  stepNs: 1_000_001,
  provider: 'wasm',
  threads: 1,
};

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['performance'] });
});
afterEach(() => {
  vi.useRealTimers();
});

function stateWith(profile: Profile, status: Member['status'] = 'measured'): MeshState {
  const member = { peer: ME, name: 'Tab', compute: true, status, profile, held: [RUN], reason: '' };
  return { ...EMPTY_STATE, members: new Map([[ME, member as unknown as Member]]) };
}

let position = 0;

/** Steps that take `slower` times as long as measured; what was told meanwhile, and when to forget it. */
function work(pacing: Pacing, state: MeshState, seconds: number, slower: number): ReturnType<Pacing['look']> {
  const until = performance.now() + seconds * 1000;
  while (performance.now() < until) {
    position += 1;
    const key = { run: RUN, session: '00'.repeat(16), epoch: 1, position };
    const step = { kind: 'runStep', ...key, count: 1, behind: false } as unknown as RunStep;
    pacing.begun(step);
    vi.advanceTimersByTime(STEP_MS * slower);
    pacing.ended({ ...key, count: 1, hidden: null, token: null });
    const told = pacing.look(state);
    if (told !== null) return told;
  }
  return null;
}

function learned(): Pacing {
  const pacing = new Pacing(ME, MANIFEST);
  vi.advanceTimersByTime(5000);
  expect(pacing.look(stateWith(PROFILE))).toBeNull();
  expect(work(pacing, stateWith(PROFILE), 8, 1.5)).toBeNull();
  return pacing;
}

it('tells what it measured, at the pace that it has', () => {
  const told = work(learned(), stateWith(PROFILE), 8, 6);
  expect(told?.command).toEqual({
    kind: 'MemberMeasured',
    peer: ME,
    links: [],
    profile: {
      ...PROFILE,
      decodeNs: new Map([
        ['attn', 32_000_000],
        ['embed', 16_000_000],
        ['ffn', 32_000_000],
      ]),
      prefillNs: new Map([
        ['attn', 4000],
        ['ffn', 4000],
      ]),
      batchNs: new Map([['attn', 2000]]),
      stepNs: 4_000_004,
    },
  });
});

it('tells it again when nobody heard it, and not when everybody did', () => {
  const pacing = learned();
  const told = work(pacing, stateWith(PROFILE), 8, 6);
  const profile = told?.command.profile ?? PROFILE;
  told?.unheard();
  expect(work(pacing, stateWith(PROFILE), 8, 6)?.command.profile).toEqual(profile);
  expect(work(pacing, stateWith(structuredClone(profile)), 8, 6)).toBeNull();
  expect(work(pacing, stateWith(profile), 8, 1.5)?.command.profile).toEqual(PROFILE);
});

it('waits for the log to have it', () => {
  const pacing = learned();
  const profile = work(pacing, stateWith(PROFILE), 8, 6)?.command.profile ?? PROFILE;
  expect(work(pacing, stateWith(PROFILE), 4, 6)).toBeNull();
  expect(work(pacing, stateWith(structuredClone(PROFILE)), 0.5, 6)).toBeNull();
  expect(work(pacing, stateWith(profile), 20, 6)).toBeNull();
  expect(work(pacing, stateWith(profile), 8, 1.5)?.command.profile).toEqual(PROFILE);
});

it('tells it again when a word that crossed it put the first pace back', () => {
  const surroundings = { hazardMilli: 500, machine: '', network: '', owner: '' };
  const pacing = learned();
  const profile = work(pacing, stateWith(PROFILE), 8, 6)?.command.profile ?? PROFILE;
  expect(work(pacing, stateWith(profile), 1, 6)).toBeNull();
  const crossed = stateWith({ ...PROFILE, surroundings });
  expect(work(pacing, crossed, 3, 6)).toBeNull();
  expect(work(pacing, crossed, 3, 6)?.command.profile).toEqual({ ...profile, surroundings });
});

it('says nothing while it does not lend, and learns anew when it has measured anew', () => {
  const pacing = learned();
  expect(work(pacing, stateWith(PROFILE, 'paused'), 8, 6)).toBeNull();
  expect(work(pacing, stateWith({ ...PROFILE, provider: 'webgpu' }), 8, 6)).toBeNull();
});

it('counts its pace from a fresh measurement, and is not steady while it told a slower one', () => {
  const pacing = learned();
  expect(pacing.isSteady()).toBe(true);
  const fresh = stateWith({ ...PROFILE, decodeNs: new Map([['attn', 4_000_000]]) });
  expect(work(pacing, fresh, 10, 1.5)).toBeNull();
  const told = work(pacing, fresh, 8, 6);
  expect(told?.command.profile.decodeNs).toEqual(new Map([['attn', 16_000_000]]));
  expect(pacing.isSteady()).toBe(false);
});

it('what it says of its surroundings is no pace, and goes along with it', () => {
  const pacing = new Pacing(ME, MANIFEST);
  const place = 'a2'.repeat(16);
  const near = { hazardMilli: 500, machine: '', network: place, owner: '' };
  const far = { ...near, hazardMilli: 1500 };
  expect(work(pacing, stateWith({ ...PROFILE, surroundings: near }), 6, 1)).toBeNull();
  const told = work(pacing, stateWith({ ...PROFILE, surroundings: far }), 60, 3);
  expect(told?.command.profile.surroundings).toEqual(far);
});
