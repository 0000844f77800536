/* Where a tab keeps its part of the log: epochs, new lives, and the first entry of another epoch. */

import 'fake-indexeddb/auto';

import { IDBFactory } from 'fake-indexeddb';
import { openDB } from 'idb';
import { beforeEach, expect, test } from 'vitest';

import { logsKept } from '../../src/storage/log_store';
import { LogKeeping } from '../../src/replication/log_keeping';
import { decodeState, EMPTY_STATE, type MeshState } from '../../src/state/mesh_state';

beforeEach(() => {
  globalThis.indexedDB = new IDBFactory();
});

function keeping(keeps = true): LogKeeping {
  return new LogKeeping('mesh', 'me', keeps, () => undefined);
}

async function vote(log: LogKeeping, term: number): Promise<void> {
  await log.store?.persist({
    kind: 'persist',
    token: 1,
    term,
    vote: 'other',
    entries: [{ index: 1, term, kind: 'command', data: new Uint8Array([1]) }],
    truncateFrom: 0,
  });
}

test('who comes back is the peer that it was', async () => {
  const log = keeping();
  const first = await log.open(1);
  expect(first).toMatchObject({ mesh: 'mesh', epoch: 1, me: 'me', entries: [] });
  await vote(log, 3);
  log.close();
  const back = keeping();
  expect(await back.epochs()).toEqual([1]);
  const again = await back.open(1);
  expect(again.incarnation).toBe(first.incarnation);
  expect(again.hardState).toEqual({ term: 3, vote: 'other' });
  expect(again.entries).toHaveLength(1);
});

test('another life has an empty log, and those of other epochs are set aside', async () => {
  const log = keeping();
  const first = await log.open(1);
  await vote(log, 3);
  await log.open(4);
  const life = await log.anew(2);
  expect(life.incarnation).toBeGreaterThan(first.incarnation);
  expect(life.hardState).toEqual({ term: 0, vote: '' });
  expect(await log.epochs()).toEqual([2]);
});

test('logs of other peers and meshes are left alone', async () => {
  const log = keeping();
  await log.open(1);
  const other = new LogKeeping('mesh', 'other', true, () => undefined);
  await other.open(1);
  await log.anew(1);
  expect(await other.epochs()).toEqual([1]);
  expect(await logsKept('')).toEqual(['mesh:me:1', 'mesh:other:1']);
});

test('the next epoch begins with what is known, and this peer votes alone', async () => {
  const log = keeping();
  await log.open(1);
  const begun = await log.found({ ...EMPTY_STATE, refused: 'why' }, 2);
  log.close();
  const back = await keeping().open(2);
  expect(back.incarnation).toBe(begun.incarnation);
  expect(back.snapshot?.config.voters).toEqual(['me']);
  expect(decodeState(back.snapshot?.data ?? new Uint8Array()).refused).toBe('why');
  expect(back.hardState.term).toBe(1);
});

test('what nobody keeps is another life each time', async () => {
  const log = keeping(false);
  const first = await log.open(1);
  expect(log.durable).toBe(false);
  const second = await log.open(1);
  expect(second.incarnation).toBeGreaterThan(first.incarnation);
  expect(await log.epochs()).toEqual([]);
});

// --- damage

const SAYS_A: MeshState = { ...EMPTY_STATE, refused: 'a' };

/** A log of this peer alone, with a snapshot and three entries behind it. */
async function lived(): Promise<void> {
  const log = keeping();
  await log.found(SAYS_A, 1);
  for (const index of [2, 3, 4]) {
    await log.store?.persist({
      kind: 'persist',
      token: 1,
      term: 1,
      vote: '',
      entries: [{ index, term: 1, kind: 'command', data: new TextEncoder().encode(`no command ${index}`) }],
      truncateFrom: 0,
    });
  }
  log.close();
}

async function spoil(
  deed: (database: Awaited<ReturnType<typeof openDB>>) => Promise<unknown>,
): Promise<void> {
  const database = await openDB('shoal-consensus', 2);
  await deed(database);
  database.close();
}

const KEY = 'mesh:me:1';
const WRONG = { index: 3, term: 1, kind: 'x', data: new Uint8Array() };
test.each<[string, number, (database: Awaited<ReturnType<typeof openDB>>) => Promise<unknown>]>([
  ['the state is gone', 3, (database) => database.delete('states', KEY)],
  ['the first entry is gone', 0, (database) => database.delete('entries', [KEY, 2])],
  ['an entry is gone', 1, (database) => database.delete('entries', [KEY, 3])],
  ['an entry of no kind', 1, (database) => database.put('entries', WRONG, [KEY, 3])],
  ['an entry of null', 2, (database) => database.put('entries', null, [KEY, 4])],
])('a log that is damaged is set aside, and the next epoch goes on from it: %s', async (_, count, deed) => {
  await lived();
  await spoil(deed);
  for (let start = 1; start <= 2; start += 1) {
    const log = keeping();
    const begin = await log.open(1);
    expect(begin.snapshot).toBeNull();
    expect(log.salvage?.refused).toBe('a');
    expect(log.salvage?.index).toBe(SAYS_A.index + count); // each is counted, though it is no command
    log.close();
  }
  const database = await openDB('shoal-consensus', 2);
  expect(await database.count('aside')).toBe(1);
  database.close();
});

test('a log of an epoch that is over is set aside, one that its leader has is not', async () => {
  await lived();
  const log = keeping();
  await log.anew(2);
  expect(log.salvage?.refused).toBe('a');
  await log.anew(2);
  const database = await openDB('shoal-consensus', 2);
  expect((await database.getAllKeys('aside')).map((key) => (key as unknown[])[0])).toEqual([KEY]);
  database.close();
});

test('the epoch before is there until the next one is whole', async () => {
  await lived();
  const log = keeping();
  await log.open(2); // as a page that ended before it wrote more
  log.close();
  expect(await keeping().epochs()).toEqual([1, 2]);
  await keeping().found(SAYS_A, 2);
  expect(await keeping().epochs()).toEqual([2]);
});
