/* Whom a cache of an answer that moves is asked of, what is given, and what of an answer is believed. */

import { createHash } from 'node:crypto';

import { describe, expect, it } from 'vitest';

import { CacheOrders } from '../../src/runtime/kv_requests';
import { BadCommand } from '../../src/errors';
import type { Body } from '../../src/wire/json_codec';
import {
  cacheBytes,
  remembered,
  sourcesOf,
  toldOf,
  wishRequest,
  wishOf,
} from '../../src/session/kv_transfer_rules';
import type { Manifest } from '../../src/planner/manifest';
import { EMPTY_STATE } from '../../src/state/mesh_state';
import type { PlanRecord } from '../../src/state/generated/commands';
import type { Run } from '../../src/state/plan_record';
import type { CacheWork } from '../../src/runtime/kv_transfer';
import type { CacheRead } from '../../src/runtime/worker_messages';
import { vectors } from '../vectors';
import { KV_COPY } from '../../src/wire/generated/requests';
import { readAnswer } from '../../src/wire/request_kind';

type Pair = [number, number];
interface Vectors {
  readonly sources: {
    readonly borders: number[] | null;
    readonly peers: string[];
    readonly run: Pair;
    readonly sources: { readonly peer: string; readonly run: Pair; readonly units: Pair }[] | null;
  }[];
  readonly wishes: {
    readonly plan: number[] | null;
    readonly proposed: number[] | null;
    readonly peer: string;
    readonly body: Body;
    readonly wish: { readonly session: string; readonly run: Pair; readonly units: Pair } | null;
  }[];
  readonly answers: { readonly body: Body; readonly most: number; readonly told: object | null }[];
  readonly plans: {
    readonly plan: number;
    readonly proposed: number;
    readonly stop: number;
    readonly known: number[][];
  }[];
}
const VECTORS = vectors('kv_copy') as Vectors;
const runOf = ([first, stop]: Pair): Run => ({ first, stop });

/** Peer `p0` holds units up to the first border, `p1` those up to the next, and so on; `s` stands by everywhere. */
function planOf(version: number, borders: readonly number[]): PlanRecord {
  const stages = borders.map((stop, place) => ({
    first: borders[place - 1] ?? 0,
    stop,
    primary: `p${place}`,
    standbys: ['s'],
  }));
  return { version, stages } as unknown as PlanRecord;
}

function orRefused<T>(decode: () => T): T | null {
  try {
    return decode();
  } catch (error) {
    if (!(error instanceof BadCommand)) throw error;
    return null;
  }
}

describe('as in Python', () => {
  it('sources are found', () => {
    for (const { borders, peers, run, sources } of VECTORS.sources) {
      const plan = borders === null ? undefined : planOf(1, borders);
      const expected = sources?.map((each) => ({
        ...each,
        run: runOf(each.run),
        units: runOf(each.units),
      }));
      expect(sourcesOf(plan, peers, runOf(run))).toEqual(expected ?? null);
    }
  });

  it('wishes are understood, or refused', () => {
    for (const { plan, proposed, peer, body, wish } of VECTORS.wishes) {
      const state = {
        ...EMPTY_STATE,
        plan: plan && planOf(1, plan),
        proposed: proposed && planOf(2, proposed),
      };
      const expected = wish && { session: wish.session, run: runOf(wish.run), units: runOf(wish.units) };
      expect(
        orRefused(() => wishOf(KV_COPY.codec.decode(body, 'kv_copy'), peer, state)),
        JSON.stringify(body),
      ).toEqual(expected);
      if (expected !== null) expect(KV_COPY.codec.encode(wishRequest(expected))).toEqual(body);
    }
  });

  it('answers are believed, or not', () => {
    for (const { body, most, told } of VECTORS.answers) {
      expect(
        orRefused(() => toldOf(readAnswer(KV_COPY, body), most)),
        JSON.stringify(body),
      ).toEqual(told);
    }
  });

  it('plans are remembered', () => {
    let known: PlanRecord[] = [];
    for (const { plan, proposed, stop, known: expected } of VECTORS.plans) {
      known = remembered(known, {
        ...EMPTY_STATE,
        plan: plan > 0 ? planOf(plan, [stop]) : null,
        proposed: planOf(proposed, [stop, 99]),
      });
      expect(known.map(({ version, stages }) => [version, stages.length, stages[0]?.stop])).toEqual(expected);
    }
  });
});

it('the arrays of units have so many bytes, each of its own size', () => {
  const pair = { key: 'key.0', value: 'value.0', window: null as number | null };
  const kv = [
    [],
    [{ ...pair, heads: 3, headSize: 64 }],
    [
      { ...pair, heads: 1, headSize: 16 },
      { ...pair, heads: 2, headSize: 16 },
    ],
  ];
  const window = { tokens: 5, block: 512 };
  const manifest = { units: kv.map((pairs) => ({ kv: pairs })), window: null } as unknown as Manifest;
  expect(cacheBytes(manifest, { first: 1, stop: 2 }, 10)).toBe(2 * 7680);
  expect(cacheBytes(manifest, { first: 0, stop: 3 }, 10)).toBe(2 * (7680 + 640 + 1280));
  expect(cacheBytes(manifest, { first: 0, stop: 1 }, 10)).toBe(0);
  const shared = [{ kv: [{ ...pair, value: pair.key, heads: 3, headSize: 64 }] }];
  const latent = { units: shared, window: null } as unknown as Manifest;
  expect(cacheBytes(latent, { first: 0, stop: 1 }, 10)).toBe(7680);
  const windowed = kv.map((pairs) => ({
    kv: pairs.map((each, at) => ({ ...each, window: at === 1 ? 5 : null })),
  }));
  const whole = { units: windowed, window } as unknown as Manifest;
  expect(cacheBytes(whole, { first: 0, stop: 3 }, 1000)).toBe(
    1000 * (2 * 4 * 3 * 64 + 2 * 4 * 16) + 488 * 2 * 4 * 32,
  );
});

describe('orders of the page', () => {
  const values = Float32Array.of(1, 2, 3, 4);
  const sha256 = createHash('sha256').update(new Uint8Array(values.buffer)).digest('hex');
  const given = (change: object): CacheRead & { names: string[]; have: number } => ({
    ...{ names: ['key.0'], have: 2, values, sha256 },
    ...change,
  });

  function made(): { orders: CacheOrders; queued: CacheWork[]; told: Promise<unknown[]> } {
    const queued: CacheWork[] = [];
    let tell: (said: unknown[]) => void;
    const told = new Promise<unknown[]>((resolve) => (tell = resolve));
    const orders = new CacheOrders(
      (work) => {
        queued.push(work);
        if (work.what !== 'read') work.done(true);
        else work.done(work.session === 'gone' ? null : Promise.resolve(values));
      },
      (...said) => tell(said),
    );
    return { orders, queued, told };
  }

  it.each([
    ['with the hash that was named', {}, true],
    ['of this peer itself', { sha256: null }, true],
    ['other than was named', { sha256: '0'.repeat(64) }, false],
    ['that are no numbers', { sha256: null, values: Float32Array.of(1, NaN) }, false],
  ])('put numbers %s', async (_, change, isThere) => {
    const { orders, queued, told } = made();
    const parts = [given({}), given(change)];
    orders.take({ id: 5, session: 'b', count: 2, what: 'write', parts });
    expect(await told).toEqual([5, null, isThere]);
    expect(queued).toHaveLength(isThere ? 1 : 0);
  });

  it('put nothing for a session that ended meanwhile', async () => {
    const { orders, queued, told } = made();
    orders.take({ id: 6, session: 'b', count: 2, what: 'write', parts: [given({})] });
    orders.released('b');
    expect(await told).toEqual([6, null, false]);
    expect(queued).toEqual([]);
  });

  it('read with a hash, and say so where nothing is there', async () => {
    const there = made();
    there.orders.take({ id: 7, session: 'a', count: 2, what: 'read', names: [] });
    expect(await there.told).toEqual([7, { values, sha256 }, true]);
    const gone = made();
    gone.orders.take({ id: 8, session: 'gone', count: 2, what: 'read', names: [] });
    expect(await gone.told).toEqual([8, null, false]);
  });
});
