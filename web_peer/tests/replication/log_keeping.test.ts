/* Where a tab keeps its part of the log: epochs, new lives, and the first entry of another epoch. */

import 'fake-indexeddb/auto';

import { IDBFactory } from 'fake-indexeddb';
import { beforeEach, expect, test } from 'vitest';

import { logsKept } from '../../src/storage/log_store';
import { LogKeeping } from '../../src/replication/log_keeping';
import { decodeState, EMPTY_STATE } from '../../src/state/mesh_state';

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

test('another life has an empty log, and nothing is left of the others', async () => {
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
