/* A tab that could not fetch its part lends again once the mesh, or its server, is back; one that was paused does not. */

import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import { Lending } from '../../src/member/lending';
import { Progress } from '../../src/member/progress';
import type { PeerParts } from '../../src/member/peer_parts';

const NOT_FETCHED = 'cannot fetch piece 0 of 4b1b63f4d157: Failed to fetch; is the mesh still up?';

/** What the tests reach into: units that are held, and their failure to load. */
interface Inside {
  lends: boolean;
  holding: object | null;
  cannotLend(text: string): void;
}

/** A tab that lends, and the names of what it asked the leader for. */
function lends(): { readonly lending: Lending; readonly asked: string[]; readonly further: string[] } {
  const asked: string[] = [];
  const further: string[] = [];
  const does = (what: string) => () => void further.push(what);
  const decoder = {
    leave: does('leave'),
    look: does('look'),
    comeBack: does('come back'),
    reportAgain: does('report'),
  };
  const view = {
    askLeader: ({ method }: { readonly method: string }) => {
      asked.push(method);
      return Promise.resolve({});
    },
  };
  const core = { stepsRun: 0, leave: () => [], comeBack: () => undefined };
  const stage = { core, units: null, perform: () => undefined, idle: () => Promise.resolve() };
  const over = new AbortController();
  const events = { changed: () => undefined, notice: () => undefined };
  const decoders = Object.assign([decoder], { bytes: { weights: 0, kv: 0 }, lend: () => undefined });
  const parts = { view, stage, decoders, stages: () => [stage] } as unknown as PeerParts;
  const lending = new Lending(parts, new Progress(() => undefined), over.signal, events);
  (lending as unknown as Inside).lends = true;
  (lending as unknown as Inside).holding = {
    ...{ isLeaving: false, leave: () => undefined, comeBack: () => undefined, look: () => undefined },
  };
  return { lending, asked, further };
}

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

it('what could not be fetched is tried again', async () => {
  const { lending, asked } = lends();
  (lending as unknown as Inside).cannotLend(NOT_FETCHED);
  await vi.advanceTimersByTimeAsync(0);
  expect(lending.state).toEqual({ kind: 'paused', why: NOT_FETCHED, serves: false });
  expect(asked).toEqual(['paused']);
  await lending.fetchAgain();
  expect(lending.state).toEqual({ kind: 'lending' });
});

it('what is held of further models pauses and comes back with it', async () => {
  const { lending, further } = lends();
  const pausing = lending.pause('paused by hand');
  await vi.advanceTimersByTimeAsync(0);
  await pausing;
  expect(further).toEqual(['leave', 'look']);
  await lending.resume();
  expect(further).toEqual(['leave', 'look', 'come back']);
  (lending as unknown as Inside).holding = null;
  await lending.reportAgain();
  expect(further.at(-1)).toBe('report');
});

it('what a person paused stays paused', async () => {
  const { lending } = lends();
  await lending.pause('paused by hand');
  await lending.fetchAgain();
  expect(lending.state).toMatchObject({ kind: 'paused', why: 'paused by hand' });
});

it('where no model answers in words it pauses, drains and comes back as well', async () => {
  const { lending, asked } = lends();
  (lending as unknown as Inside).holding = null;
  lending.measured({
    ...{ memoryBytes: 1e9, overheadBytes: 0, stepNs: 0, provider: 'wasm', threads: 1 },
    ...{ decodeNs: new Map(), prefillNs: new Map(), batchNs: new Map() },
  });
  const measured: string[] = [];
  lending.tellMeasured = ({ provider }) => Promise.resolve(void measured.push(provider));
  const pausing = lending.pause('paused by hand');
  await vi.advanceTimersByTimeAsync(0);
  await pausing;
  expect(lending.state).toEqual({ kind: 'paused', why: 'paused by hand', serves: false });
  await lending.reportAgain();
  expect([asked, measured]).toEqual([['paused', 'paused'], []]);
  await lending.drain('the tab is hidden');
  expect([asked.slice(2), measured]).toEqual([['drain'], ['wasm']]);
  await lending.resume();
  expect(lending.state).toEqual({ kind: 'lending' });
  expect([asked.length, measured]).toEqual([3, ['wasm', 'wasm']]);
});
