/* Whom a cache of an answer that moves is asked of, what is given, and what of an answer is believed. */

import { createHash } from 'node:crypto';

import { describe, expect, it } from 'vitest';

import { CacheOrders } from '../src/cache_orders';
import { BadCommand, CannotServe } from '../src/errors';
import { arrayBytes, remembered, sourcesOf, toldOf, wishBody, wishOf } from '../src/kv_copy';
import type { Architecture } from '../src/manifest';
import { EMPTY_STATE, type MeshState, type PlanRecord, type Run } from '../src/mesh_state';
import type { CacheWork } from '../src/moved_caches';
import type { CacheRead } from '../src/runtime_messages';

const SESSION = 'ab'.repeat(16);
const runOf = (first: number, stop: number): Run => ({ first, stop });

/** Peer `p0` holds units up to the first cut, `p1` those up to the next, and so on; `s` stands by everywhere. */
function planOf(version: number, ...borders: number[]): PlanRecord {
  const stages = borders.map((stop, place) => ({
    first: borders[place - 1] ?? 0,
    stop,
    primary: `p${place}`,
    standbys: ['s'],
  }));
  return { version, stages } as unknown as PlanRecord;
}

function stateWith(plan: PlanRecord | null, proposed: PlanRecord | null = null): MeshState {
  return { ...EMPTY_STATE, plan, proposed };
}

describe('sources', () => {
  const plan = planOf(3, 4, 9, 12);
  it.each([
    ['the same units', runOf(4, 9), [['b', runOf(4, 9), runOf(4, 9)]]],
    ['some of them', runOf(5, 8), [['b', runOf(4, 9), runOf(5, 8)]]],
    [
      'more than one peer has',
      runOf(2, 10),
      [
        ['a', runOf(0, 4), runOf(2, 4)],
        ['b', runOf(4, 9), runOf(4, 9)],
        ['c', runOf(9, 12), runOf(9, 10)],
      ],
    ],
  ] as [string, Run, [string, Run, Run][]][])('%s', (_, run, expected) => {
    const found = sourcesOf(plan, ['a', 'b', 'c'], run);
    expect(found).toEqual(expected.map(([peer, of, units]) => ({ peer, run: of, units })));
  });

  it("of a route that is not that plan's, or of no plan that is known, are none", () => {
    expect(sourcesOf(plan, ['a', 'b'], runOf(0, 4))).toBeNull();
    expect(sourcesOf(undefined, [], runOf(0, 4))).toBeNull();
    expect(sourcesOf(plan, ['a', 'b', 'c'], runOf(11, 13))).toBeNull();
  });

  it('are looked for in the last eight plans', () => {
    let known: PlanRecord[] = [];
    for (let version = 1; version <= 12; version++) {
      known = remembered(known, stateWith(planOf(version, 4), planOf(version + 1, 5)));
    }
    expect(known.map(({ version }) => version)).toEqual([6, 7, 8, 9, 10, 11, 12, 13]);
    expect(known.at(-2)?.stages[0]?.stop).toBe(4); // as it was heard of last
  });
});

describe('kv_copy', () => {
  const wish = { session: SESSION, run: runOf(0, 9), units: runOf(4, 8) };
  const state = stateWith(planOf(1, 4, 9), planOf(2, 6, 9));

  it('is understood as it was asked', () => {
    expect(wishOf(wishBody(wish), 'p1', state)).toEqual(wish);
    expect(wishOf(wishBody(wish), 's', stateWith(null, planOf(1, 4, 9)))).toEqual(wish);
  });

  it.each([
    ["another peer's units", 'p0', {}],
    ['more units than it gets', 'p1', { first: 3 }],
    ['units that are not inside', 'p1', { to: 7 }],
    ['no units', 'p1', { stop: 4 }],
    ['no session', 'p1', { session: 'ab' }],
    ['a number for a session', 'p1', { session: 7 }],
    ['no whole number', 'p1', { first: 4.5 }],
    ['a unit below the first', 'p1', { from: -1 }],
    ['text for a number', 'p1', { to: '9' }],
  ])('refuses %s', (_, peer, change) => {
    expect(() => wishOf({ ...wishBody(wish), ...change }, peer, state)).toThrow(BadCommand);
  });

  it.each([
    ['more positions than there can be', { have: 101, sha256: 'a'.repeat(64) }],
    ['no count', { sha256: '' }],
    ['a fraction', { have: 0.5, sha256: '' }],
    ['a hash that is none', { have: 5, sha256: 'A'.repeat(64) }],
    ['no hash', { have: 5 }],
  ])('believes no answer with %s', (_, body) => {
    expect(() => toldOf(body, 100)).toThrow(/expected/);
  });

  it('is answered with positions and a hash', () => {
    expect(toldOf({ have: 100, sha256: 'a'.repeat(64) }, 100)).toEqual({ have: 100, sha256: 'a'.repeat(64) });
    expect(() => toldOf({ have: 101, sha256: '' }, 100)).toThrow(CannotServe);
    expect(arrayBytes({ kvHeads: 3, headSize: 64 } as Architecture, 10)).toBe(7680);
  });
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
