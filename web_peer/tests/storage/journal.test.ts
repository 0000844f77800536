/* The transaction log in IndexedDB: reloads, damaged records, a database that refuses. */

import 'fake-indexeddb/auto';

import { IDBFactory } from 'fake-indexeddb';
import { type IDBPDatabase, openDB } from 'idb';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';

import { decodeRecord, type Operation } from '../../src/storage/journal_records';
import { Journal } from '../../src/storage/journal';
import { Transactions } from '../../src/storage/journal_core';

const LOG = 'peer:model';
const A: Operation = { kind: 'load', first: 0, stop: 31 };
const B: Operation = { kind: 'load', first: 31, stop: 62 };
const SESSION = '00'.repeat(16);

let told: string[] = [];
const open = (log: string | null = LOG): Promise<Journal> => Journal.open(log, (text) => told.push(text));

async function done(journal: Journal, ...operations: Operation[]): Promise<void> {
  for (const operation of operations) {
    await journal.begin(operation);
    journal.commit(operation);
  }
}

beforeEach(() => {
  vi.stubGlobal('indexedDB', new IDBFactory());
  told = [];
});

test('what was held is known after a reload', async () => {
  const journal = await open();
  await done(journal, A, B);
  journal.opened(SESSION);
  journal.tokens(7);
  await journal.close();
  const { recovered } = await open();
  expect(recovered.held).toEqual([
    { first: 0, stop: 31 },
    { first: 31, stop: 62 },
  ]);
  expect(recovered.places).toEqual([{ session: SESSION, stage: 0 }]);
  expect(recovered.tokens).toBe(7);
  expect((await open('another:model')).recovered.held).toEqual([]);
  expect(told).toEqual([]);
});

test('a page that ends without a word leaves nothing half done', async () => {
  const journal = await open();
  await done(journal, A);
  await journal.begin(B);
  await journal.begin({ kind: 'unload', first: 0, stop: 31 });
  const again = await open(); // the first one is never closed
  expect(again.recovered.held).toEqual([{ first: 0, stop: 31 }]);
  expect(again.recovered.undone).toHaveLength(2);
  expect(again.core.begun).toEqual([]);
  expect(again.core.kept).toEqual([{ first: 0, stop: 31 }]);
  again.giveUp({ first: 0, stop: 31 });
  await again.close();
  expect((await open()).recovered.held).toEqual([]);
});

test('begins are written strictly, what sessions do is not', async () => {
  const journal = await open();
  const asked: (string | undefined)[] = [];
  type Begin = (this: IDBDatabase, ...given: Parameters<IDBDatabase['transaction']>) => IDBTransaction;
  const real = Reflect.get(IDBDatabase.prototype, 'transaction') as Begin;
  const spy = vi.spyOn(IDBDatabase.prototype, 'transaction').mockImplementation(function (
    this: IDBDatabase,
    ...given
  ) {
    asked.push(given[2]?.durability);
    return real.apply(this, given);
  });
  await journal.begin(A);
  expect(asked).toEqual(['strict']);
  journal.opened(SESSION);
  await vi.waitFor(() => expect(asked).toEqual(['strict', 'relaxed']), { timeout: 60_000 });
  spy.mockRestore();
  await journal.close();
});

test.each([['hello'], ['["committed","load",0,31]']])('damaged records are set aside: %s', async (line) => {
  const database = await recordsLeft([]);
  await database.put('records', line, [LOG, 0]);
  const journal = await open();
  expect(told).toHaveLength(1);
  expect(told[0]).toMatch(
    /it is kept, and this tab (begins as if it held nothing|goes on with the 1 records)/,
  );
  expect(await database.getAll('damaged')).toEqual([[line]]);
  database.close();
  await done(journal, A);
  await journal.close();
  expect((await open()).recovered.held).toEqual([{ first: 0, stop: 31 }]);
  expect(told).toHaveLength(1);
});

/** A log of A and B as a page leaves it that ends without a word; or other lines. */
async function recordsLeft(lines?: unknown[]): Promise<IDBPDatabase> {
  const journal = await open();
  await done(journal, A, B);
  await journal.begin({ kind: 'unload', first: 0, stop: 31 });
  const database = await openDB('shoal-transactions');
  if (lines !== undefined) await database.clear('records');
  return database;
}

const LENGTH = 6; // a checkpoint of nothing, and what was noted since
const DAMAGES: [string, (database: IDBPDatabase, number: number) => Promise<unknown>][] = [
  [
    'flipped',
    async (db, at) => db.put('records', flipped(String(await db.get('records', [LOG, at]))), [LOG, at]),
  ],
  [
    'cut',
    async (db, at) => db.put('records', String(await db.get('records', [LOG, at])).slice(0, 5), [LOG, at]),
  ],
  ['of another type', (db, at) => db.put('records', new Uint8Array(9), [LOG, at])],
  ['doubled', async (db, at) => db.put('records', await db.get('records', [LOG, at]), [LOG, LENGTH])],
];
const flipped = (text: string): string => text.replace('[', 'Z');

test.each(DAMAGES)(
  'a record that is %s costs nothing of the others, whichever it is',
  async (how, damage) => {
    for (let number = 0; number < LENGTH; number += 1) {
      vi.stubGlobal('indexedDB', new IDBFactory());
      told = [];
      const database = await recordsLeft();
      const before: unknown[] = await database.getAll('records');
      expect(before).toHaveLength(LENGTH);
      await damage(database, number);
      const damaged: unknown[] = await database.getAll('records');
      const journal = await open();
      const readable = how === 'doubled' ? damaged : before.filter((_, at) => at !== number);
      const [, { held }] = Transactions.recover(
        readable.map((line) => decodeRecord(String(line))),
        true,
      );
      expect(journal.recovered.held).toEqual(held);
      if (told.length > 0) {
        expect(told).toEqual([expect.stringContaining(`goes on with the ${readable.length} records`)]);
        expect(await database.getAll('damaged')).toEqual([damaged]);
      } else expect(how).toBe('doubled');
      database.close();
      await journal.close();
    }
  },
);

test('a record that is gone from the middle is damage', async () => {
  const database = await recordsLeft();
  await database.delete('records', [LOG, 2]);
  const journal = await open();
  expect(told).toHaveLength(1);
  expect(journal.recovered.held).toEqual([{ first: 31, stop: 62 }]);
  database.close();
  await journal.close();
});

test('no IndexedDB at all: memory, with a notice', async () => {
  vi.stubGlobal('indexedDB', {
    open: () => {
      throw new DOMException('denied', 'SecurityError');
    },
  });
  const journal = await open();
  await done(journal, A);
  expect(journal.kept).toBe(false);
  expect(journal.core.held).toEqual([{ first: 0, stop: 31 }]);
  expect(told).toHaveLength(1);
  await journal.close();
});

describe('a database that is back', () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  });
  afterEach(() => {
    vi.useRealTimers();
  });
  /** Time goes by, with turns of the database between the seconds. */
  async function pass(seconds: number): Promise<void> {
    for (let second = 0; second < seconds; second += 1) {
      await vi.advanceTimersByTimeAsync(1000);
      for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve));
    }
  }
  const again = 'this browser keeps the transaction log again';

  test('gets all that was noted meanwhile', async () => {
    const journal = await open();
    await done(journal, A);
    const spy = vi.spyOn(IDBObjectStore.prototype, 'put').mockImplementation(() => {
      throw new DOMException('no room', 'QuotaExceededError');
    });
    await done(journal, B);
    await pass(1);
    expect(journal.kept).toBe(false);
    await pass(30);
    expect(told).toHaveLength(1);
    spy.mockRestore();
    await pass(11);
    expect(journal.kept).toBe(true);
    expect(told.slice(1)).toEqual([again]);
    await journal.begin({ kind: 'unload', first: 0, stop: 31 });
    journal.commit({ kind: 'unload', first: 0, stop: 31 });
    await journal.close();
    expect(vi.getTimerCount()).toBe(0);
    expect((await open()).recovered.held).toEqual([{ first: 31, stop: 62 }]);
  });

  test('and could not be read at first keeps what it had, aside', async () => {
    const database = await recordsLeft();
    const before: unknown[] = await database.getAll('records');
    const real = indexedDB;
    vi.stubGlobal('indexedDB', {
      open: () => {
        throw new DOMException('not now', 'UnknownError');
      },
    });
    const journal = await open();
    await done(journal, B);
    vi.stubGlobal('indexedDB', real);
    await pass(11);
    expect(journal.kept).toBe(true);
    expect(told.slice(1)).toEqual([again]);
    await journal.close();
    expect(await database.getAll('damaged')).toEqual([before]);
    expect((await open()).recovered.held).toEqual([{ first: 31, stop: 62 }]);
    database.close();
  });
});

test('a database that refuses to write is told once', async () => {
  const journal = await open();
  const spy = vi.spyOn(IDBObjectStore.prototype, 'put').mockImplementation(() => {
    throw new DOMException('no room', 'QuotaExceededError');
  });
  await done(journal, A, B);
  spy.mockRestore();
  expect(journal.kept).toBe(false);
  expect(told).toHaveLength(1);
  expect(told[0]).toContain('not known after a reload');
});

test('off forgets what is kept; on again writes all', async () => {
  const journal = await open();
  await done(journal, A);
  journal.turn(false);
  await done(journal, B);
  await journal.close();
  const again = await open();
  expect(again.recovered.held).toEqual([]);
  again.turn(false);
  await done(again, A);
  again.turn(true);
  await again.close();
  expect((await open()).recovered.held).toEqual([{ first: 0, stop: 31 }]);
});

test('a log without a name is in memory, and says nothing', async () => {
  const journal = await open(null);
  await done(journal, A);
  journal.closed(SESSION);
  journal.commit(B);
  journal.opened(SESSION);
  journal.opened(SESSION);
  journal.tookOver(SESSION);
  expect(journal.core.places).toHaveLength(1);
  expect(told).toEqual([]);
  await journal.close();
});
