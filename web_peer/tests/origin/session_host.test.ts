/* What sessions of this peer find out about others: one failure of a peer counts once, whoever finds it. */

import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import { NotLeader } from '../../src/errors';
import { SessionHost } from '../../src/origin/session_host';
import { OriginSession } from '../../src/session/origin';
import { EMPTY_STATE } from '../../src/state/mesh_state';

const SESSION = '07'.repeat(16);

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

function host(): { readonly sessions: SessionHost; readonly told: unknown[] } {
  const told: unknown[] = [];
  const never = (): (() => void) => () => undefined;
  const links = {
    me: 'me',
    ...{ onConnected: never, onGone: never, connection: () => null },
  };
  const view = {
    ...{ state: EMPTY_STATE, subscribe: never },
    askLeader: ({ method }: { readonly method: string }, body: unknown) => {
      told.push([method, body]);
      return Promise.reject(new NotLeader('nobody coordinates now'));
    },
  };
  const sessions = new SessionHost(
    links as unknown as SessionHost['links'],
    view as unknown as SessionHost['view'],
  );
  return { sessions, told };
}

it('the coordinator hears once of what several sessions find', async () => {
  const { sessions, told } = host();
  for (let times = 0; times < 3; times += 1) sessions.suspect('ann');
  sessions.suspect('bob');
  await vi.advanceTimersByTimeAsync(999);
  sessions.suspect('ann');
  const first = ['ann', 'bob'].map((peer) => ['suspect', { peer }]);
  expect(told).toEqual(first);
  await vi.advanceTimersByTimeAsync(1);
  sessions.suspect('ann');
  expect(told).toEqual([...first, ['suspect', { peer: 'ann' }]]);
});

it('a session is known from when it is taken in until it is let go', () => {
  const { sessions } = host();
  const over: string[] = [];
  const core = new OriginSession(SESSION, 'me');
  sessions.attach(core, ({ kind }) => over.push(kind));
  expect([sessions.size, sessions.attached(SESSION), sessions.tokens(SESSION)]).toEqual([1, true, []]);
  sessions.detach(SESSION);
  expect([sessions.size, sessions.attached(SESSION), sessions.route()]).toEqual([0, false, null]);
});
