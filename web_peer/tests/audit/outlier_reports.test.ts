/* An asker hears of an odd row, and not of each, and has it checked; without recorded lengths nobody looks. */

import { expect, it } from 'vitest';

import { Requests } from '../../src/transport/request_table';
import type { Body } from '../../src/transport/rpc';
import { CheckRequests, Checks } from '../../src/audit/step_checks';
import type { RunStep } from '../../src/session/effects';
import type { Open } from '../../src/wire/generated/frames';
import type { Manifest } from '../../src/planner/manifest';
import type { ModelChosen, PlanRecord } from '../../src/state/generated/commands';
import type { Tab } from '../../src/audit/judge';
import { looksAtRows } from '../../src/audit/outlier_reports';
import { readAnswer, type RequestKind } from '../../src/wire/request_kind';

const SESSION = '01'.repeat(16);
const LENGTHS = '{"format":"shoal-envelopes-1","borders":[[0,2000],[3000,4000]]}';
const MANIFEST = { units: [0, 1, 2], hidden: 4 } as unknown as Manifest;

async function told(encoded: string | null): Promise<readonly unknown[]> {
  const heard: unknown[] = [];
  const links = {
    call: <T, A>(peer: string, kind: RequestKind<T, A>, said: T) => {
      heard.push([peer, kind.method, said]);
      return Promise.resolve(readAnswer(kind, {}));
    },
  };
  let looks: (step: RunStep) => void = () => undefined;
  const stage = {
    core: { asker: () => 'q' },
    onStep: (listener: typeof looks) => {
      looks = listener;
      return () => undefined;
    },
  };
  const file = encoded === null ? null : new TextEncoder().encode(encoded);
  const recorded = (): Promise<Uint8Array | null> => Promise.resolve(file);
  const view = { state: { model: { model: 'm' } as ModelChosen } };
  await looksAtRows({ links, view, stage }, MANIFEST, recorded, new AbortController().signal);
  const step = { session: SESSION, run: { first: 1, stop: 3 }, position: 7 };
  const look = (lengths: readonly number[]): void => {
    const hidden = Float32Array.from(lengths.flatMap((length) => [0, length, 0, 0]));
    looks({ ...step, hidden } as unknown as RunStep);
  };
  look([2, 3]);
  expect(heard).toEqual([]);
  look([2, 99]);
  look([99]);
  return heard;
}

it('an asker hears of the first odd row', async () => {
  expect(await told(LENGTHS)).toEqual([['q', 'odd', { session: SESSION, position: 8 }]]);
  expect(await told(LENGTHS.replace(']]}', ']],"crc32":2588601369}'))).toHaveLength(1);
  expect(await told(LENGTHS.replace(']]}', ']],"crc32":2588601370}'))).toEqual([]);
});

it.each([null, '{}'])('without lengths that make sense nobody looks: %s', async (encoded) => {
  expect(await told(encoded)).toEqual([]);
});

/** What judges are asked to check, as [judge, stage, position]; `tokens` are those of the one answer, over a and b. */
function asking(tokens: number[]): {
  checks: Checks;
  asked: unknown[];
  odd: (position: number) => Promise<void>;
} {
  const asked: unknown[] = [];
  const requests = new Requests(() => true);
  const judge = { peer: 'j', status: 'measured', profile: null, held: [{ first: 0, stop: 1 }] };
  const view = {
    me: 'q',
    state: {
      members: new Map<string, unknown>([
        ...['q', 'a', 'b'].map((peer) => [peer, { ...judge, peer, held: [] }] as const),
        ['j', judge],
      ]),
      fairness: { checksPpm: 1, findings: [], quarantined: new Set() },
    },
  };
  const links = {
    on: requests.on.bind(requests),
    ask: (peer: string, _: string, { stage, position }: Body) => {
      asked.push([peer, stage, position]);
      return Promise.resolve({ verdict: 'same' });
    },
  };
  const sessions = { tokens: () => tokens, hasRows: () => false };
  const rest = { model: { manifest: null }, provider: () => 'wasm' };
  const checks = new Checks({ links, view, sessions, ...rest } as unknown as Tab);
  new CheckRequests(links, () => checks);
  const odd = async (position: number): Promise<void> => {
    await requests.answer('b', 'odd', { session: SESSION, units: [1, 3], position });
  };
  return { checks, asked, odd };
}

const OPENING = {
  ...{ session: SESSION, route: ['a', 'b'], promptTokens: 2, spans: [2], generated: 0 },
  sampling: [0, 1, 0, 0, 0, 0, 0, 0],
} as unknown as Open;
const PLAN = {
  stages: [
    { first: 0, stop: 1 },
    { first: 1, stop: 3 },
  ],
} as unknown as PlanRecord;

/** Everything that nobody waits for has happened. */
function settled(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 0));
}

it('the stage before an odd row is checked at once where the token is known', async () => {
  const { checks, asked, odd } = asking([5, 6, 7, 8]);
  checks.opened(OPENING, PLAN);
  await odd(2);
  await settled();
  expect(asked).toEqual([['j', 0, 2]]);
});

it('and else when its token came, once', async () => {
  const tokens = [5, 6];
  const { checks, asked, odd } = asking(tokens);
  checks.opened(OPENING, PLAN);
  await odd(2);
  for (const token of [7, 8, 9]) {
    checks.emitted(SESSION, tokens.push(token) - 1);
    await settled();
    expect(asked).toEqual(tokens.length < 4 ? [] : [['j', 0, 2]]);
  }
});

it.each(['an answer that is over', 'another turn'])('nothing is due of %s', async (what) => {
  const tokens = [5, 6, 7];
  const { checks, asked, odd } = asking(tokens);
  checks.opened(OPENING, PLAN);
  await odd(2);
  if (what !== 'another turn') checks.ended(SESSION);
  checks.opened(OPENING, PLAN);
  checks.emitted(SESSION, tokens.push(8) - 1);
  await settled();
  expect(asked).toEqual([]);
});
