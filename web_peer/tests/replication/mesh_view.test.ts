/* What this peer knows of the mesh, and who is told when that changes. */

import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import { EMPTY_STATE, type MeshState } from '../../src/state/mesh_state';
import type { Member } from '../../src/state/generated/commands';
import { MeshView } from '../../src/replication/mesh_view';
import type { Beginning } from '../../src/replication/replica';
import { Requests } from '../../src/transport/request_table';
import { readAnswer, type RequestKind } from '../../src/wire/request_kind';

const ME = 'm'.repeat(32);
const BEGIN = {
  ...{ mesh: 'x'.repeat(26), epoch: 1, me: ME, incarnation: 1, snapshot: null, entries: [] },
  hardState: { term: 0, vote: '' },
} as unknown as Beginning;

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

class Known {
  readonly requests = new Requests(() => true);
  readonly told: [string[], string | null][] = [];
  readonly dialled: string[] = [];
  readonly links = {
    me: ME,
    ask: <T, A>(_: string, kind: RequestKind<T, A>): Promise<A> => Promise.resolve(readAnswer(kind, {})),
    isConnected: () => false,
    know: (members: ReadonlyMap<string, unknown>, leader: string | null) =>
      void this.told.push([[...members.keys()], leader]),
    on: this.requests.on.bind(this.requests),
    onGone: () => () => undefined,
    prepare: (peer: string) => void this.dialled.push(peer),
    unreached: new Set<string>(),
    sendOrLose: () => undefined,
  };
  readonly view = new MeshView(this.links);

  /** The log has built another state. */
  become(state: Partial<MeshState>): void {
    const { replica } = this.view;
    if (replica === null) throw new Error('expected to take part');
    replica.state = { ...EMPTY_STATE, ...state };
    this.view.logChanged();
  }
}

it('knows nothing before it takes part', async () => {
  const { view, requests } = new Known();
  expect([view.state, view.replica, view.leader, view.hopeful(false)]).toEqual([
    EMPTY_STATE,
    null,
    null,
    false,
  ]);
  const nobody = { leader: '', term: 0, epoch: 0, voters: [] };
  expect(await requests.answer('peer', 'leader', {})).toEqual(nobody);
});

it('tells links who the members are before anybody else hears of a new state', () => {
  const known = new Known();
  known.view.takePart(BEGIN, null);
  known.told.length = 0;
  const seen: number[] = [];
  const end = known.view.subscribe(() => seen.push(known.told.length));
  known.become({ members: new Map([['ann', { peer: 'ann', name: 'Ann' } as Member]]) });
  expect(known.told).toEqual([[['ann'], null]]);
  expect(seen).toEqual([1]);
  expect(known.view.nameOf('ann')).toBe('Ann');
  end();
  known.become({});
  expect(seen).toEqual([1]);
});

it('dials those that it lost', () => {
  const known = new Known();
  known.view.takePart(BEGIN, null);
  known.links.unreached.add('bob');
  known.view.tick();
  vi.advanceTimersByTime(2000);
  known.view.tick();
  expect(known.dialled).toContain('bob');
});

it('waits for a state, until the time is over or the membership is', async () => {
  const known = new Known();
  known.view.takePart(BEGIN, null);
  const isRefused = ({ refused }: MeshState): boolean => refused !== '';
  const over = new AbortController();
  const waits = [known.view.until(isRefused, 5), known.view.until(isRefused, 5, over.signal)];
  over.abort();
  expect(await waits[1]).toBe(false);
  known.become({ refused: 'no room' });
  expect(await waits[0]).toBe(true);
  const late = known.view.until(({ refused }) => refused === 'other', 5);
  await vi.advanceTimersByTimeAsync(5000);
  expect(await late).toBe(false);
  expect(await known.view.until(isRefused, null)).toBe(true); // it is so already
});

it('is void once the log is given up, of which listeners hear first', () => {
  const known = new Known();
  known.view.takePart(BEGIN, null);
  known.become({ refused: 'no room' });
  const had: unknown[] = [];
  known.view.onLeft(() => had.push(known.view.replica === null, known.view.state.refused));
  known.view.leaveLog();
  expect(had).toEqual([false, 'no room']);
  expect([known.view.replica, known.view.state]).toEqual([null, EMPTY_STATE]);
  expect(known.told.at(-1)).toEqual([[], null]);
});
