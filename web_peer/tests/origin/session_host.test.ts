/* What sessions of this peer find out about others: one failure of a peer counts once, whoever finds it. */

import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import { NotLeader } from '../../src/errors';
import { SessionHost } from '../../src/origin/session_host';
import { OriginSession } from '../../src/session/origin';
import { GREEDY } from '../../src/session/sampling';
import { decodeCommand } from '../../src/state/member_commands';
import { apply, EMPTY_STATE, type MeshState } from '../../src/state/mesh_state';
import { vectors } from '../vectors';

const SESSION = '07'.repeat(16);

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

interface Vectors {
  readonly routes: readonly { readonly name: string; readonly commands: readonly string[] }[];
}

/** Three stages over a, c and e; b stands by for c and holds its units, d is to hold them. */
function everybody(): MeshState {
  const row = (vectors('session_rules') as Vectors).routes.find(({ name }) => name === 'everybody');
  if (row === undefined) throw new Error('the vectors have everybody');
  return row.commands.map((text) => decodeCommand(new TextEncoder().encode(text))).reduce(apply, EMPTY_STATE);
}

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

it('who is to hold what was lost is asked when the log does not say for long that it does', async () => {
  const opened: string[][] = [];
  const never = (): (() => void) => () => undefined;
  const sendOrLose = (_: string, frame: { readonly kind: string; readonly route?: string[] }): void => {
    if (frame.kind === 'OPEN') opened.push(frame.route ?? []);
  };
  const links = {
    ...{ me: 'me', connection: () => null, prepare: never, speaks: () => 99 },
    ...{ sendOrLose, spare: () => undefined },
  };
  const view = {
    ...{ state: everybody(), subscribe: never, nameOf: (peer: string) => peer, hopeful: () => true },
    askLeader: () => Promise.reject(new NotLeader('nobody coordinates now')),
  };
  const sessions = new SessionHost(
    links as unknown as SessionHost['links'],
    view as unknown as SessionHost['view'],
  );
  const core = new OriginSession(SESSION, 'me');
  sessions.attach(core, () => undefined);
  const now = (): number => performance.now() / 1000;
  const ask = { prompt: [1, 2, 3], maxTokens: 10, sampling: GREEDY, endTokens: [0] };
  const route = { plan: 1, peers: ['a', 'c', 'e'], shadows: [] };
  sessions.perform(SESSION, core.begin(now(), route, ask));
  sessions.perform(SESSION, core.peerGone(now(), 'c', 'it was lost'));
  expect(opened).toEqual([
    ['a', 'c', 'e'],
    ['a', 'b', 'e'],
  ]);
  sessions.perform(SESSION, core.peerGone(now(), 'b', 'it was lost'));
  await vi.advanceTimersByTimeAsync(4900);
  expect([opened.length, core.phase]).toEqual([2, 'rerouting']);
  await vi.advanceTimersByTimeAsync(1000);
  expect(opened.slice(2)).toEqual([['a', 'd', 'e']]);
  sessions.detach(SESSION);
});
