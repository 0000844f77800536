/*
 * @vitest-environment jsdom
 *
 * When a tab tries again to come in; what joining does is a real browser's.
 */

import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import { ConnectFailed, NotAdmitted } from '../../src/errors';
import type { MeshMember } from '../../src/member/mesh_member';
import { Tab, type TabOptions } from '../../src/member/tab';
import { signalingError } from '../../src/signaling/errors';

const tries = vi.hoisted(() => ({ made: 0, outcomes: [] as unknown[], names: [] as string[] }));

// Each try takes the next outcome: an error, or the mesh.
vi.mock('../../src/member/joining', () => ({
  join: (_: unknown, { name }: TabOptions): Promise<unknown> => {
    tries.names.push(name);
    const outcome = tries.outcomes[tries.made];
    tries.made += 1;
    return outcome instanceof Error ? Promise.reject(outcome) : Promise.resolve(outcome);
  },
}));

const nothing = (): Promise<void> => Promise.resolve();
const MESH = {
  ended: null,
  leadership: { current: null },
  lending: { pause: nothing, drain: nothing, resume: nothing },
  onEnded: () => undefined,
  leave: nothing,
} as unknown as MeshMember;
const AWAY = signalingError('ServerUnreachable', 'no signaling server answers');
const REVOKED = signalingError('InviteRevoked', 'the founder withdrew it');

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

/** A tab whose tries end so, after the first of them. */
async function started(...outcomes: unknown[]): Promise<Tab> {
  Object.assign(tries, { made: 0, outcomes, names: [] });
  const options = { name: 'Ada', memoryBytes: 1, lends: true } as TabOptions;
  const tab = new Tab('https://mesh.example.org/#a.b', options, {
    changed: () => undefined,
    notice: () => undefined,
  });
  void tab.start();
  await vi.advanceTimersByTimeAsync(0);
  return tab;
}

/** How often it had tried, `seconds` after each other. */
async function triedAfter(...seconds: number[]): Promise<number[]> {
  const made: number[] = [];
  for (const each of seconds) {
    await vi.advanceTimersByTimeAsync(each * 1000);
    made.push(tries.made);
  }
  return made;
}

it('comes in by itself once what kept it out is over', async () => {
  const tab = await started(AWAY, new ConnectFailed('nobody is there'), new NotAdmitted('try again'), MESH);
  expect(tab.state).toEqual({ kind: 'waiting', error: AWAY, untilMs: performance.now() + 1000 });
  expect(await triedAfter(0.9, 0.1, 1.9, 0.1, 3.9)).toEqual([1, 2, 2, 3, 3]);
  expect(tab.state.kind).toBe('waiting');
  expect(await triedAfter(0.1)).toEqual([4]);
  expect(tab.state).toEqual({ kind: 'in', mesh: MESH });
  expect(await triedAfter(3600)).toEqual([4]);
});

it('tries a link once that is expired, revoked or wrong', async () => {
  const tab = await started(REVOKED, MESH);
  expect(await triedAfter(3600)).toEqual([1]);
  expect(tab.state).toEqual({ kind: 'out', error: REVOKED, left: false });
});

it('ends its tries when the link turns out to be revoked', async () => {
  const tab = await started(AWAY, REVOKED, MESH);
  expect(await triedAfter(1, 3600)).toEqual([2, 2]);
  expect(tab.state).toEqual({ kind: 'out', error: REVOKED, left: false });
});

it.each([
  ['a person wishes it', (tab: Tab): void => void tab.retry()],
  ['the network is back', (): unknown => window.dispatchEvent(new Event('online'))],
])('tries at once when %s', async (_, act) => {
  const tab = await started(AWAY, AWAY, MESH);
  await triedAfter(1);
  act(tab);
  expect(await triedAfter(0)).toEqual([3]);
  expect(tab.state.kind).toBe('in');
});

it.each([
  ['leaves', (tab: Tab): Promise<void> => tab.leave()],
  [
    'is closed',
    (tab: Tab): Promise<void> => {
      tab.close();
      return Promise.resolve();
    },
  ],
])('tries no more when it %s', async (_, act) => {
  const tab = await started(AWAY, MESH);
  await act(tab);
  expect(await triedAfter(3600)).toEqual([1]);
  expect(tab.mesh).toBeNull();
});

it('takes another name in the mesh, and comes in again by that', async () => {
  const renamed: string[] = [];
  const rename = (name: string): Promise<void> => {
    renamed.push(name);
    return Promise.resolve();
  };
  const tab = await started(AWAY, Object.assign(Object.create(MESH) as MeshMember, { rename }), MESH);
  tab.rename('Ann');
  expect(await triedAfter(1)).toEqual([2]);
  tab.rename('Mira');
  expect([tries.names, renamed]).toEqual([['Ada', 'Ann'], ['Mira']]);
});
