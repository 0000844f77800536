/* A replica whose disk is full for a while: it stands still, promises nothing, and goes on. */

import { expect, test, vi } from 'vitest';

import { type Beginning, type Keeper, Replica } from '../../src/replication/replica';
import { DiskFull, StateUnusable } from '../../src/errors';
import { EMPTY_STATE, encodeState } from '../../src/state/mesh_state';
import { founding } from '../../src/consensus/records';

const NOTHING = new TextEncoder().encode('no command, which is counted');

function beginning(): Beginning {
  const snapshot = founding('a', 7, encodeState(EMPTY_STATE));
  return {
    hardState: { term: snapshot.term, vote: '' },
    snapshot,
    entries: [],
    incarnation: 7,
    mesh: 'mesh',
    epoch: 1,
    me: 'a',
  };
}

/** A replica of a peer that votes alone, over a store that fails so often after its first two writes. */
function lone(error: Error, fails: number): { replica: Replica; told: string[] } {
  let writes = 0;
  let left = fails;
  const write = (): Promise<void> => {
    writes += 1;
    if (writes <= 2 || left === 0) return Promise.resolve();
    left -= 1;
    return Promise.reject(error);
  };
  const told: string[] = [];
  const keeper: Keeper = { persist: write, storeSnapshot: write };
  const replica: Replica = new Replica(beginning(), keeper, () => undefined, {
    logChanged: () => undefined,
    roleChanged: () => told.push(replica.role),
    logRefused: (why) => told.push(`refused: ${why}`),
    logLost: (why) => told.push(`lost: ${why}`),
  });
  replica.start();
  return { replica, told };
}

async function refusedAll(replica: Replica): Promise<unknown[]> {
  const asked = [1, 2, 3].map(() => replica.propose(NOTHING).catch((error: unknown) => error));
  return Promise.all(asked);
}

test('a full disk makes it stand still, and it leads on when there is room', async () => {
  vi.useFakeTimers();
  try {
    const { replica, told } = lone(new DiskFull('the disk is full'), 3);
    await vi.waitFor(() => expect(replica.leads).toBe(true));
    await refusedAll(replica);
    expect(told.slice(-2)).toEqual(['follower', 'refused: the disk is full']);
    await expect(replica.propose(NOTHING)).rejects.toThrow('the disk is full');
    await vi.advanceTimersByTimeAsync(5000);
    expect(told.filter((line) => line.startsWith('refused'))).toEqual([
      'refused: the disk is full',
      'refused: ',
    ]);
    expect(replica.leads).toBe(true);
    await replica.propose(NOTHING);
    replica.close();
  } finally {
    vi.useRealTimers();
  }
});

test('a store that fails otherwise ends it', async () => {
  const { replica, told } = lone(new StateUnusable('the storage was cleared'), 99);
  await vi.waitFor(() => expect(replica.leads).toBe(true));
  await refusedAll(replica);
  expect(told.at(-1)).toBe('lost: the storage was cleared');
  await expect(replica.propose(NOTHING)).rejects.toThrow('leaving');
});
