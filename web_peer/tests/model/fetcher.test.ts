import { createHash } from 'node:crypto';
import { beforeEach, describe, expect, test, vi } from 'vitest';

import { PieceCache } from '../../src/model/piece_cache';
import { CannotServe } from '../../src/errors';
import { Fetcher, type FetchProgress, HttpStore, type PieceSource } from '../../src/model/fetcher';
import { type BlobRef, PIECE_BYTES } from '../../src/planner/blob_ref';

type Bytes = Uint8Array<ArrayBuffer>;
const hashOf = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

/** A blob of two pieces and a bit, its pieces all different. */
function blobOf(seed: number): { ref: BlobRef; bytes: Bytes } {
  const bytes = new Uint8Array(2 * PIECE_BYTES + 1000);
  [seed, seed + 1, seed + 2].forEach((value, at) =>
    bytes.fill(value, at * PIECE_BYTES, (at + 1) * PIECE_BYTES),
  );
  const pieces = [0, 1, 2].map((at) => hashOf(bytes.subarray(at * PIECE_BYTES, (at + 1) * PIECE_BYTES)));
  return { ref: { sha256: hashOf(bytes), bytes: bytes.length, pieces }, bytes };
}

const one = blobOf(10);
const other = blobOf(20);
const known = new Map([one, other].map(({ ref, bytes }) => [ref.sha256, bytes]));
const pieceOf = (ref: BlobRef, index: number): Bytes =>
  (known.get(ref.sha256) ?? new Uint8Array()).slice(index * PIECE_BYTES, (index + 1) * PIECE_BYTES);

function source(name: string, asked: string[], give = pieceOf): PieceSource {
  return {
    name,
    piece: (ref, index) => {
      asked.push(`${name} ${index}`);
      return Promise.resolve().then(() => give(ref, index));
    },
  };
}

const same = (found: Uint8Array | undefined, wanted: Uint8Array): boolean =>
  found !== undefined && Buffer.compare(found, wanted) === 0; // toEqual takes seconds over megabytes

let cache: PieceCache;
let wrong: string[];
const { signal } = new AbortController();

function fetcher(...sources: PieceSource[]): Fetcher {
  return new Fetcher(cache, {
    sources: () => sources,
    manifestFrom: () => Promise.reject(new CannotServe('no manifest here')),
    now: () => performance.now(),
    wrongPiece: (name) => wrong.push(name),
  });
}

beforeEach(async () => {
  vi.stubGlobal('indexedDB', undefined);
  cache = await PieceCache.open({ limitBytes: 2 ** 30, now: () => 0, notice: () => undefined });
  wrong = [];
});

describe('blobs', () => {
  test('come whole, with progress up to the end, and from the cache the second time', async () => {
    const asked: string[] = [];
    const seen: FetchProgress[] = [];
    const fetching = fetcher(source('store', asked));
    const found = await fetching.blobs([one.ref, other.ref], signal, (progress) => seen.push(progress));
    expect(same(found.get(one.ref.sha256), one.bytes)).toBe(true);
    expect(same(found.get(other.ref.sha256), other.bytes)).toBe(true);
    const total = one.ref.bytes + other.ref.bytes;
    expect(seen.at(-1)).toMatchObject({ hereBytes: total, totalBytes: total, networkBytes: total, leftS: 0 });
    expect(fetching.networkBytes).toBe(total);
    const again = fetcher(source('store', asked));
    expect(same((await again.blobs([one.ref], signal)).get(one.ref.sha256), one.bytes)).toBe(true);
    expect(again.networkBytes).toBe(0);
    expect(asked).toHaveLength(6);
  });

  test('go on where an interrupted visit stopped', async () => {
    await cache.write(one.ref.pieces[1] ?? '', pieceOf(one.ref, 1));
    const asked: string[] = [];
    await fetcher(source('store', asked)).blobs([one.ref], signal);
    expect(asked.sort()).toEqual(['store 0', 'store 2']);
  });

  test('come from peers first, who share the work; the store comes last', async () => {
    const asked: string[] = [];
    const peers = ['a', 'b'].map((name) => source(name, asked));
    await fetcher(...peers, source('store', asked)).blobs([one.ref, other.ref], signal);
    expect(asked.filter((ask) => ask.startsWith('a'))).toHaveLength(3);
    expect(asked.filter((ask) => ask.startsWith('b'))).toHaveLength(3);
  });

  test('a source without the piece is passed over', async () => {
    const asked: string[] = [];
    const empty = source('peer', asked, () => {
      throw new Error('not held here');
    });
    const found = await fetcher(empty, source('store', asked)).blobs([one.ref], signal);
    expect(same(found.get(one.ref.sha256), one.bytes)).toBe(true);
    expect(wrong).toEqual([]);
  });

  test('a wrong piece is refused, its source found out and not asked again', async () => {
    const asked: string[] = [];
    const liar = source('liar', asked, (ref, index) => pieceOf(ref, index).fill(0));
    const short = source('short', asked, (ref, index) => pieceOf(ref, index).slice(1));
    const found = await fetcher(liar, short, source('store', asked)).blobs([one.ref], signal);
    expect(same(found.get(one.ref.sha256), one.bytes)).toBe(true);
    expect([...new Set(wrong)].sort()).toEqual(['liar', 'short']);
    const before = asked.length;
    const fetching = fetcher(liar, source('store', asked));
    await fetching.blobs([other.ref], signal);
    const more = asked.length;
    await cache.clear();
    await fetching.blobs([other.ref], signal);
    expect(asked.slice(more).every((ask) => ask.startsWith('store'))).toBe(true);
    expect(more).toBeGreaterThan(before);
  });

  test('nobody has it: an error that names the piece', async () => {
    vi.useFakeTimers();
    const failing = fetcher(
      source('store', [], () => {
        throw new Error('it answered 404');
      }),
    ).blobs([one.ref], signal);
    const outcome = expect(failing).rejects.toThrow(/cannot fetch piece \d of .*it answered 404/);
    await vi.runAllTimersAsync();
    await outcome;
    vi.useRealTimers();
  });

  test('stop when told to', async () => {
    const stop = new AbortController();
    const hanging: PieceSource = {
      name: 'store',
      piece: (_ref, _index, until) =>
        new Promise((_resolve, reject) =>
          until.addEventListener('abort', () => reject(new Error('aborted'))),
        ),
    };
    const fetching = fetcher(hanging).blobs([one.ref], stop.signal);
    stop.abort();
    await expect(fetching).rejects.toThrow();
  });
});

test('a manifest with another hash is refused', async () => {
  const fetching = new Fetcher(cache, {
    sources: () => [],
    manifestFrom: () => Promise.resolve(new TextEncoder().encode('{}')),
    now: () => 0,
    wrongPiece: () => undefined,
  });
  await expect(fetching.manifest('ab'.repeat(32), signal)).rejects.toThrow(/do not use this server/);
});

describe('the store over HTTP', () => {
  const answer = (status: number, body: Bytes): void => {
    vi.stubGlobal('fetch', () => Promise.resolve(new Response(body, { status })));
  };

  test('gives the range asked for', async () => {
    answer(206, pieceOf(one.ref, 2));
    expect(await new HttpStore('').piece(one.ref, 2, signal)).toEqual(pieceOf(one.ref, 2));
  });

  test.each([
    { name: 'another status', status: 404, size: 10, error: 'it answered 404' },
    { name: 'the whole blob', status: 200, size: 10, error: 'it answered 200' },
    { name: 'more than was asked for', status: 206, size: 1001, error: 'more than the 1000 bytes' },
  ])('refuses $name', async ({ status, size, error }) => {
    answer(status, new Uint8Array(size));
    await expect(new HttpStore('').piece(one.ref, 2, signal)).rejects.toThrow(error);
  });
});
