/* The consensus log in IndexedDB: reloads, two tabs, full and refusing databases, lost and damaged records. */

import 'fake-indexeddb/auto';

import { IDBFactory } from 'fake-indexeddb';
import { openDB } from 'idb';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';

import { Config, type Entry } from '../../src/consensus/records';
import type { Persist, StoreSnapshot } from '../../src/consensus/events';
import { MIN_SNAPSHOT_BYTES } from '../../src/storage/stored_log';
import { type ConsensusStore, openConsensusStore, salvageLog } from '../../src/storage/log_store';
import { DiskFull, LogInUse, StateUnusable } from '../../src/errors';

const LOG = 'mesh:peer';
let told: string[] = [];
let opened: ConsensusStore[] = [];

async function open(log: string | null = LOG): Promise<ConsensusStore> {
  const store = await openConsensusStore(log, (text) => told.push(text));
  opened.push(store);
  return store;
}

function entry(index: number, term = 1, data = new TextEncoder().encode(`entry ${index} of ${term}`)): Entry {
  return { index, term, kind: 'command', data };
}

function persist(term: number, vote: string, entries: Entry[] = [], truncateFrom = 0): Persist {
  return { kind: 'persist', token: 0, term, vote, entries, truncateFrom };
}

const CONFIG = new Config([
  { id: 'pa', incarnation: 7, voter: true },
  { id: 'pb', incarnation: Number.MAX_SAFE_INTEGER, voter: false },
]);

function snapshot(index: number, term: number, first: number, last: number, size = 5): StoreSnapshot {
  const data = new Uint8Array(size).fill(index);
  return { kind: 'store_snapshot', token: 0, snapshot: { index, term, config: CONFIG, data }, first, last };
}

function perform(store: ConsensusStore, step: Persist | StoreSnapshot): Promise<void> {
  return step.kind === 'persist' ? store.persist(step) : store.storeSnapshot(step);
}

const STEPS: readonly (Persist | StoreSnapshot)[] = [
  persist(1, ''),
  snapshot(1, 1, 2, 1),
  persist(1, 'pa', [entry(2), entry(3)]),
  persist(2, '', [entry(3, 2), entry(4, 2)], 3),
  snapshot(3, 2, 2, 4),
  persist(3, 'pb'),
  snapshot(9, 3, 10, 9),
  persist(3, 'pb', [entry(10, 3), entry(11, 3)]),
];
const AFTER: readonly (readonly [term: number, vote: string, base: number, indexes: number[]])[] = [
  [0, '', 0, []],
  [1, '', 0, []],
  [1, '', 1, []],
  [1, 'pa', 1, [2, 3]],
  [2, '', 1, [2, 3, 4]],
  [2, '', 3, [2, 3, 4]],
  [3, 'pb', 3, [2, 3, 4]],
  [3, 'pb', 9, []],
  [3, 'pb', 9, [10, 11]],
];

function expectAfter({ kept }: ConsensusStore, count: number): void {
  const [term, vote, base, indexes] = AFTER[count] ?? [0, '', 0, []];
  expect(kept.hardState).toEqual({ term, vote });
  expect(kept.snapshot?.index ?? 0).toBe(base);
  expect(kept.entries.map(({ index }) => index)).toEqual(indexes);
}

type Begin = (this: IDBDatabase, ...given: Parameters<IDBDatabase['transaction']>) => IDBTransaction;
const BEGIN = Reflect.get(IDBDatabase.prototype, 'transaction') as Begin;

beforeEach(() => {
  vi.stubGlobal('indexedDB', new IDBFactory());
  told = [];
  opened = [];
});

afterEach(() => {
  for (const store of opened) store.close();
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
});

describe('a reload', () => {
  test.each(STEPS.map((_, count) => ({ count })).concat({ count: STEPS.length }))(
    'after $count steps finds them, and goes on',
    async ({ count }) => {
      const store = await open();
      for (const step of STEPS.slice(0, count)) await perform(store, step);
      const again = await open(); // the first one is never closed
      expectAfter(again, count);
      expect(again.kept.incarnation).toBe(store.kept.incarnation);
      expect(again.durable).toBe(true);
      for (const step of STEPS.slice(count)) await perform(again, step);
      expectAfter(await open(), STEPS.length);
      expect(told).toEqual([]);
    },
  );

  test('finds every byte of entries and snapshot', async () => {
    const store = await open();
    for (const step of STEPS) await perform(store, step);
    const { kept } = await open();
    expect(kept.entries).toEqual([entry(10, 3), entry(11, 3)]);
    expect(kept.snapshot).toEqual(snapshot(9, 3, 10, 9).snapshot);
  });

  test('of steps that were not waited for finds them in their order', async () => {
    const store = await open();
    await Promise.all(STEPS.map((step) => perform(store, step)));
    expectAfter(await open(), STEPS.length);
  });

  test('knows that nothing was voted in the later term of a snapshot', async () => {
    const store = await open();
    await store.persist(persist(2, 'pa'));
    await store.storeSnapshot(snapshot(5, 4, 6, 5));
    expect((await open()).kept.hardState).toEqual({ term: 4, vote: '' });
  });

  test('of another log finds nothing', async () => {
    await (await open()).persist(persist(1, 'pa', [entry(1)]));
    const other = await open('mesh:other');
    expectAfter(other, 0);
    await other.persist(persist(5, '', [entry(1)]));
    expect((await open()).kept.hardState).toEqual({ term: 1, vote: 'pa' });
  });
});

test('everything is written strictly, one transaction for each step', async () => {
  const asked: [string | undefined, string | undefined][] = [];
  vi.spyOn(IDBDatabase.prototype, 'transaction').mockImplementation(function (this: IDBDatabase, ...given) {
    asked.push([given[1], given[2]?.durability]);
    return BEGIN.apply(this, given);
  });
  const store = await open();
  for (const step of STEPS) await perform(store, step);
  const writing = asked.filter(([mode]) => mode !== 'versionchange');
  expect(writing).toEqual(Array(STEPS.length + 1).fill(['readwrite', 'strict']));
});

test('a browser that has no say in durability is not called durable', async () => {
  vi.spyOn(IDBDatabase.prototype, 'transaction').mockImplementation(function (this: IDBDatabase, ...given) {
    const begun = BEGIN.apply(this, given);
    Object.defineProperty(begun, 'durability', { value: undefined });
    return begun;
  });
  expect((await open()).durable).toBe(false);
});

test('an entry does not keep the message alive that it came in', async () => {
  const message = new Uint8Array(4096).fill(7);
  await (await open()).persist(persist(1, '', [entry(1, 1, message.subarray(10, 20))]));
  const [found] = (await open()).kept.entries;
  expect(found?.data.length).toBe(10);
  expect(found?.data.buffer.byteLength).toBe(10);
});

test('the last tab that opened a log owns it', async () => {
  const first = await open();
  await first.persist(persist(1, 'pa'));
  const second = await open();
  await expect(first.persist(persist(1, 'pb'))).rejects.toBeInstanceOf(LogInUse);
  await expect(first.storeSnapshot(snapshot(1, 1, 2, 1))).rejects.toBeInstanceOf(LogInUse);
  await second.persist(persist(2, 'pc'));
  expect((await open()).kept.hardState).toEqual({ term: 2, vote: 'pc' });
});

test('a step that does not follow is refused and changes nothing', async () => {
  const store = await open();
  await store.persist(persist(1, '', [entry(1), entry(2)]));
  for (const wrong of [
    persist(2, '', [entry(4)]),
    persist(2, '', [entry(2)]),
    persist(2, '', [entry(3, 2)], 2),
    snapshot(2, 1, 1, 5),
  ]) {
    await expect(perform(store, wrong)).rejects.toThrow(/entr/);
  }
  await store.persist(persist(1, 'pa', [entry(3)]));
  const { kept } = await open();
  expect(kept.entries.map(({ index }) => index)).toEqual([1, 2, 3]);
  expect(kept.hardState).toEqual({ term: 1, vote: 'pa' });
});

describe('a database that refuses', () => {
  test('for want of room changes nothing, and may be asked again', async () => {
    const store = await open();
    await store.persist(persist(1, 'pa', [entry(1)]));
    let puts = 0;
    const put = Reflect.get(IDBObjectStore.prototype, 'put') as (...given: unknown[]) => IDBRequest;
    vi.spyOn(IDBObjectStore.prototype, 'put').mockImplementation(function (this: IDBObjectStore, ...given) {
      puts += 1;
      if (puts === 2) throw new DOMException('full', 'QuotaExceededError');
      return put.apply(this, given) as IDBRequest<IDBValidKey>;
    });
    const step = persist(2, 'pb', [entry(2, 2), entry(3, 2)]);
    await expect(store.persist(step)).rejects.toBeInstanceOf(DiskFull);
    expect(puts).toBe(2);
    await store.persist(step);
    const { kept } = await open();
    expect(kept.entries.map(({ index }) => index)).toEqual([1, 2, 3]);
    expect(kept.hardState).toEqual({ term: 2, vote: 'pb' });
  });

  test('otherwise ends the store', async () => {
    const store = await open();
    await store.persist(persist(1, 'pa'));
    vi.spyOn(IDBObjectStore.prototype, 'put').mockImplementationOnce(() => {
      throw new DOMException('broken', 'UnknownError');
    });
    await expect(store.persist(persist(2, 'pb'))).rejects.toThrow(/refuses to keep .* reload/);
    await expect(store.persist(persist(3, 'pb'))).rejects.toBeInstanceOf(StateUnusable);
    expect((await open()).kept.hardState).toEqual({ term: 1, vote: 'pa' });
  });

  test('from the beginning means memory, and the person is told', async () => {
    vi.stubGlobal('indexedDB', {
      open: () => {
        throw new DOMException('no', 'SecurityError');
      },
    });
    const store = await open();
    expect(store.durable).toBe(false);
    expect(told).toHaveLength(1);
    for (const step of STEPS) await perform(store, step);
    const another = await open();
    expect(another.kept.entries).toEqual([]);
    expect(another.kept.incarnation).not.toBe(store.kept.incarnation);
  });
});

test('after it is closed nothing is stored', async () => {
  const store = await open();
  store.close();
  await expect(store.persist(persist(1, 'pa'))).rejects.toThrow(/closed/);
});

describe('lost or damaged storage is a new life', () => {
  async function spoil(
    deed: (database: Awaited<ReturnType<typeof openDB>>) => Promise<unknown>,
  ): Promise<void> {
    const database = await openDB('shoal-consensus', 2);
    await deed(database);
    database.close();
  }

  async function lived(): Promise<number> {
    const store = await open();
    for (const step of STEPS) await perform(store, step);
    store.close();
    return store.kept.incarnation;
  }

  test('with a higher incarnation, below 2^53', async () => {
    const before = await lived();
    expect(Number.isSafeInteger(before)).toBe(true);
    vi.stubGlobal('indexedDB', new IDBFactory());
    vi.spyOn(Date, 'now').mockReturnValue(Math.floor(before / 2 ** 11) + 1);
    const { kept } = await open();
    expect(kept.incarnation).toBeGreaterThan(before);
    expect(kept.hardState).toEqual({ term: 0, vote: '' });
    expect(told).toEqual([]); // nothing tells an eviction from a first visit
  });

  test('with one above that which is known, whatever the clock says', async () => {
    const before = await lived();
    vi.stubGlobal('indexedDB', new IDBFactory());
    vi.spyOn(Date, 'now').mockReturnValue(Math.floor(before / 2 ** 11) - 6 * 3_600_000);
    for (const log of [LOG, null]) {
      const store = await openConsensusStore(log, (text) => told.push(text), before);
      opened.push(store);
      expect(store.kept.incarnation).toBe(before + 1);
    }
  });

  const state = { format: 1, incarnation: 5, owner: 'x', term: 3, vote: 'pb' };
  test.each<[string, (database: Awaited<ReturnType<typeof openDB>>) => Promise<unknown>]>([
    ['the state is gone', (database) => database.delete('states', LOG)],
    ['the snapshot is gone', (database) => database.delete('snapshots', LOG)],
    ['an entry is gone', (database) => database.delete('entries', [LOG, 10])],
    ['another format', (database) => database.put('states', { ...state, format: 2 }, LOG)],
    ['a term that is none', (database) => database.put('states', { ...state, term: -1 }, LOG)],
    ['a vote that is none', (database) => database.put('states', { ...state, vote: 7 }, LOG)],
    ['an incarnation that is none', (database) => database.put('states', { ...state, incarnation: 0 }, LOG)],
    ['a state that is text', (database) => database.put('states', 'state', LOG)],
    ['an entry elsewhere', (database) => database.put('entries', entry(10), [LOG, 11])],
    ['an entry of no kind', (database) => database.put('entries', { ...entry(11), kind: 'x' }, [LOG, 11])],
    ['an entry of text', (database) => database.put('entries', { ...entry(11), data: 'x' }, [LOG, 11])],
    ['a snapshot of null', (database) => database.put('snapshots', null, LOG)],
    ['a snapshot without servers', (database) => database.put('snapshots', { index: 9, term: 3 }, LOG)],
  ])('%s', async (_, deed) => {
    await lived();
    await spoil(deed);
    const store = await open();
    expectAfter(store, 0);
    expect(told).toEqual([expect.stringMatching(/log is damaged \(.+\).* learns everything anew/)]);
    await store.persist(persist(1, 'pa', [entry(1)]));
    told = [];
    const again = await open();
    expect(again.kept.entries).toEqual([entry(1)]);
    expect(again.kept.snapshot).toBeNull();
    expect(told).toEqual([]);
  });

  test('cleared under an open tab, which then answers no more', async () => {
    const store = await open();
    await store.persist(persist(1, 'pa'));
    await spoil((database) => database.clear('states'));
    await expect(store.persist(persist(1, 'pa'))).rejects.toThrow(/storage was cleared/);
    await expect(store.persist(persist(1, 'pa'))).rejects.toBeInstanceOf(StateUnusable);
  });
});

test('the browser is asked to keep it, and the answer is told', async () => {
  const persistent = vi.fn(() => Promise.resolve(true));
  vi.stubGlobal('navigator', { storage: { persist: persistent } });
  expect(await (await open()).persisted).toBe(true);
  expect(persistent).toHaveBeenCalledOnce();
  vi.stubGlobal('navigator', { storage: { persisted: () => Promise.resolve(true) } }); // as a worker sees it
  expect(await (await open()).persisted).toBe(true);
  vi.stubGlobal('navigator', {});
  expect(await (await open()).persisted).toBe(false);
});

test('what is written over and what a snapshot covers is deleted', async () => {
  const store = await open();
  const data = new Uint8Array(MIN_SNAPSHOT_BYTES / 5);
  for (let index = 1; index <= 5; index++) {
    expect(store.wantsSnapshot).toBe(false);
    await store.persist(persist(1, '', [entry(index, 1, data)]));
    if (index < 4) await store.persist(persist(1, '', [entry(index, 1, data)], index));
  }
  expect(store.wantsSnapshot).toBe(true);
  await store.storeSnapshot(snapshot(4, 1, 4, 5));
  expect(store.wantsSnapshot).toBe(false);
  const database = await openDB('shoal-consensus', 2);
  expect(await database.getAllKeys('entries')).toEqual([
    [LOG, 4],
    [LOG, 5],
  ]);
  database.close();
});

describe('of a damaged log everything that can be read', () => {
  const DAMAGES: [string, (value: unknown) => unknown][] = [
    ['of another type', () => 7],
    ['null', () => null],
    ['without its data', (value) => ({ ...(value as object), data: undefined })],
    ['of no kind', (value) => ({ ...(value as object), kind: 'x' })],
    ['of another index', (value) => ({ ...(value as object), index: 99 })],
    ['of no term', (value) => ({ ...(value as object), term: -1 })],
  ];

  test.each(DAMAGES)('is found where an entry is %s, whichever it is', async (_, damaged) => {
    const entries = [1, 2, 3, 4, 5].map((index) => entry(index));
    for (let at = 0; at < entries.length; at += 1) {
      vi.stubGlobal('indexedDB', new IDBFactory());
      told = [];
      const store = await open();
      await store.persist(persist(1, 'pa', entries));
      store.close();
      const database = await openDB('shoal-consensus', 2);
      await database.put('entries', damaged(entries[at]), [LOG, at + 1]);
      const before: unknown[] = await database.getAll('entries');
      expectAfter(await open(), 0);
      expect(told).toHaveLength(1);
      expect(await salvageLog(LOG)).toEqual(
        at === 0 ? null : { snapshot: null, entries: entries.slice(0, at) },
      );
      const [aside] = (await database.getAll('aside')) as { entries: unknown[] }[];
      expect(aside?.entries).toEqual(before); // whole
      database.close();
    }
  });
});
