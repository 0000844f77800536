import 'fake-indexeddb/auto';

import { IDBFactory } from 'fake-indexeddb';
import { openDB } from 'idb';
import { createHash } from 'node:crypto';
import { beforeEach, describe, expect, test, vi } from 'vitest';

import { PieceCache } from '../../src/model/piece_cache';

const hashOf = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');
const filled = (value: number, size = 100) => new Uint8Array(size).fill(value);

let clock = 0;
let notices: string[] = [];

const open = (limitBytes = 10_000): Promise<PieceCache> =>
  PieceCache.open({ limitBytes, now: () => (clock += 1), notice: (text) => notices.push(text) });

beforeEach(() => {
  vi.stubGlobal('indexedDB', new IDBFactory());
  vi.stubGlobal('navigator', { storage: { persist: () => Promise.resolve(true) } });
  clock = 0;
  notices = [];
});

async function stored(cache: PieceCache, ...values: number[]): Promise<boolean[]> {
  return Promise.all(values.map((value) => cache.has(hashOf(filled(value)))));
}

describe('pieces in IndexedDB', () => {
  test('are there on the next visit', async () => {
    const first = await open();
    expect(await first.write(hashOf(filled(1)), filled(1))).toBe(true);
    first.close();
    const second = await open();
    expect(await second.read(hashOf(filled(1)))).toEqual(filled(1));
    expect(await second.usage()).toEqual({
      where: 'indexeddb',
      persisted: true,
      pieces: 1,
      bytes: 100,
      limitBytes: 10_000,
    });
    expect(notices).toEqual([]);
  });

  test('with another hash are refused on write', async () => {
    const cache = await open();
    expect(await cache.write(hashOf(filled(1)), filled(2))).toBe(false);
    expect((await cache.usage()).pieces).toBe(0);
  });

  test('altered on the disk are found out on first read, and only they are gone', async () => {
    const first = await open();
    await first.write(hashOf(filled(1)), filled(1));
    await first.write(hashOf(filled(2)), filled(2));
    const database = await openDB('shoal-pieces');
    await database.put('pieces', filled(9), hashOf(filled(1)));
    database.close();
    first.close();
    const second = await open();
    expect(await stored(second, 1, 2)).toEqual([false, true]);
    expect((await second.usage()).pieces).toBe(1);
  });

  test('go oldest first when another model needs the room', async () => {
    const first = await open(300);
    for (const value of [1, 2, 3]) await first.write(hashOf(filled(value)), filled(value));
    first.close();
    const second = await open(300);
    await second.read(hashOf(filled(1))); // now the last one used
    await second.write(hashOf(filled(4)), filled(4));
    expect(await stored(second, 1, 2, 3, 4)).toEqual([true, false, true, true]);
    expect(notices).toEqual([]);
  });

  test('of a model larger than the limit are not kept, which is said once', async () => {
    const cache = await open(250);
    for (const value of [1, 2, 3, 4])
      expect(await cache.write(hashOf(filled(value)), filled(value))).toBe(true);
    expect(await stored(cache, 1, 2, 3, 4)).toEqual([true, true, false, false]);
    expect(notices).toHaveLength(1);
    expect(notices[0]).toContain('they stay in memory');
  });

  test('written at the same time keep within the limit together', async () => {
    const cache = await open(250);
    await Promise.all([1, 2, 3, 4].map((value) => cache.write(hashOf(filled(value)), filled(value))));
    expect((await cache.usage()).bytes).toBe(200);
  });
});

describe('where the browser refuses', () => {
  test('no IndexedDB at all: memory, with a notice', async () => {
    vi.stubGlobal('indexedDB', {
      open: () => {
        throw new DOMException('a private window', 'InvalidStateError');
      },
    });
    const cache = await open();
    await cache.write(hashOf(filled(1)), filled(1));
    expect(await stored(cache, 1)).toEqual([true]);
    expect((await cache.usage()).where).toBe('memory');
    expect(notices).toHaveLength(1);
  });

  test.each([
    { times: 1, kept: [false, true], said: 0 },
    { times: 9, kept: [false, false], said: 1 },
  ])('a quota reached $times times: older pieces go first', async ({ times, kept, said }) => {
    const first = await open();
    await first.write(hashOf(filled(1)), filled(1));
    first.close();
    const second = await open();
    let left = times;
    const put = vi.spyOn(IDBObjectStore.prototype, 'put');
    put.mockImplementation(function (this: IDBObjectStore, value: unknown, key?: IDBValidKey) {
      if (this.name === 'pieces' && left-- > 0) throw new DOMException('full', 'QuotaExceededError');
      put.mockRestore();
      return this.put(value, key);
    });
    expect(await second.write(hashOf(filled(2)), filled(2))).toBe(true);
    put.mockRestore();
    expect(await stored(second, 1, 2)).toEqual(kept);
    expect(notices).toHaveLength(said);
  });
});
