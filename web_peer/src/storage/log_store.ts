/*
 * Keeps term, vote, entries and snapshot of the consensus log in IndexedDB, so that what it says is durable survives a
 * crash of the browser (twin of peer/storage/log_store.py). Edge.
 *
 * Every persist, and every snapshot with the cut of the log for it, is one transaction of durability "strict": whole or
 * not at all. Where nothing is stored, was evicted, or is what no peer can have written, a new life of this peer
 * begins, with a higher incarnation; what was there is set aside and stays. The tab that opened a log last owns it: every transaction looks, so that two tabs
 * never answer as one peer. What is written over is deleted, so the database holds one snapshot and the entries that
 * are kept.
 */

import { type DBSchema, type IDBPDatabase, type IDBPTransaction, openDB } from 'idb';

import type { Entry } from '../consensus/records';
import type { Persist, StoreSnapshot } from '../consensus/events';
import { Held, type Kept, NotFollowing } from './stored_log';
import { FORMAT, type Salvaged, salvaged, type State, type StoredSnapshot, whole } from './log_records';
import { DiskFull, LogInUse, StateUnusable, textOf } from '../errors';

const DATABASE = 'shoal-consensus';
const VERSION = 2; // 2: logs that were set aside
const WITHIN_MS = 5000; // a database that does not open must not keep this peer from joining
const PROBE = 'probe'; // the name of no log
const PROBE_BYTES = 1 << 20; // a database that takes so much is worth a try
const RANDOM_BITS = 11; // of an incarnation; the others are milliseconds, and last beyond the year 2100

interface Schema extends DBSchema {
  states: { key: string; value: State };
  entries: { key: [log: string, index: number]; value: Entry };
  snapshots: { key: string; value: StoredSnapshot };
  aside: { key: [log: string, unixMs: number]; value: Stored };
}

/** All that is there of one log, as it was found. */
interface Stored {
  readonly state: unknown;
  readonly entries: readonly unknown[];
  readonly snapshot: unknown;
}

const ALL = ['states', 'entries', 'snapshots'] as const;
const EVERY = [...ALL, 'aside'] as const;
type Writing = IDBPTransaction<Schema, typeof ALL, 'readwrite'>;
type Moving = IDBPTransaction<Schema, typeof EVERY, 'readwrite'>;

/** What is stored is durable when the promise resolves. Calls are served one after the other. */
export interface ConsensusStore {
  /** Whether what is stored outlives this page, and was written through to the disk when a call resolved. */
  readonly durable: boolean;
  /** Whether the browser promised not to evict it by itself; asked for when the store opens. */
  readonly persisted: Promise<boolean>;
  readonly kept: Kept; // as it was when the store opened
  readonly owner: string | null; // this opening of the log, which may write; null: in memory
  readonly wantsSnapshot: boolean;
  /**
   * Rejects with DiskFull (nothing changed, the same may be tried again), LogInUse, StateUnusable (nothing more is).
   */
  persist(effect: Persist): Promise<void>;
  /** The same. */
  storeSnapshot(effect: StoreSnapshot): Promise<void>;
  close(): void;
}

/**
 * The log named `log`; in memory, with a notice, where the browser keeps nothing. Null: in memory. A new life has an
 * incarnation higher than `above`.
 */
export async function openConsensusStore(
  log: string | null,
  notice: (text: string) => void,
  above = 0,
): Promise<ConsensusStore> {
  if (log === null) return new MemoryStore(above);
  try {
    return await IndexedStore.open(log, notice, above);
  } catch (error) {
    notice(
      `this browser keeps no consensus log (${textOf(error)}): after a reload this tab learns everything anew`,
    );
    return new MemoryStore(above);
  }
}

/** Whether the database opens and takes something, and no other opening than `owner` has the log named `log` since. */
export async function canKeepLog(log: string, owner: string | null): Promise<boolean> {
  try {
    return await withDatabase(async (database) => {
      const found = await database.get('states', log);
      if (owner !== null && found !== undefined && found.owner !== owner) return false;
      const trial = database.transaction(ALL, 'readwrite', { durability: 'strict' });
      const filling = { index: 0, term: 0, servers: [], data: new Uint8Array(PROBE_BYTES) };
      quietly(trial.objectStore('snapshots').put(filling, PROBE));
      await trial.done;
      await database.delete('snapshots', PROBE);
      return true;
    });
  } catch {
    return false;
  }
}

/** The names of the logs that this browser keeps whose names begin with `prefix`; none where it keeps nothing. */
export async function logsKept(prefix: string): Promise<readonly string[]> {
  try {
    return await withDatabase(async (database) => {
      const names = await database.getAllKeys('states');
      return names.filter((name) => name.startsWith(prefix));
    });
  } catch {
    return [];
  }
}

/** What is kept of that log is set aside, and stays. Whoever has it open finds that it was cleared. */
export async function setLogAside(log: string): Promise<void> {
  await withDatabase(async (database) => {
    const moving = database.transaction(EVERY, 'readwrite', { durability: 'strict' });
    setAside(moving, log, await storedOf(moving, log));
    await moving.done;
  });
}

/** What can be used of the log that was set aside last among those whose names begin with `prefix`; null: nothing. */
export async function salvageLog(prefix: string): Promise<Salvaged | null> {
  try {
    return await withDatabase(async (database) => {
      const keys = await database.getAllKeys('aside');
      const rising = keys.filter(([log]) => log.startsWith(prefix)).sort(([, one], [, other]) => one - other);
      for (const key of rising.reverse()) {
        const stored = await database.get('aside', key);
        const found = stored === undefined ? null : salvaged(stored.entries, stored.snapshot);
        if (found !== null && (found.snapshot !== null || found.entries.length > 0)) return found;
      }
      return null;
    });
  } catch {
    return null;
  }
}

/** Throws away what is kept of that log. Whoever has it open finds that it was cleared. */
export async function forgetLog(log: string): Promise<void> {
  await withDatabase(async (database) => {
    const writing = database.transaction(ALL, 'readwrite', { durability: 'strict' });
    quietly(writing.objectStore('states').delete(log));
    quietly(writing.objectStore('entries').delete(range(log)));
    quietly(writing.objectStore('snapshots').delete(log));
    await writing.done;
  });
}

/** Below 2^53, and higher than `above` and, unless the clock was set back, those drawn in earlier milliseconds. */
function newIncarnation(above: number): number {
  const [random = 0] = crypto.getRandomValues(new Uint16Array(1));
  return Math.max(Date.now() * 2 ** RANDOM_BITS + (random % 2 ** RANDOM_BITS), above + 1);
}

function fresh(above: number): Kept {
  const incarnation = newIncarnation(above);
  return { hardState: { term: 0, vote: '' }, snapshot: null, entries: [], incarnation };
}

class MemoryStore implements ConsensusStore {
  readonly durable = false;
  readonly owner = null;
  readonly persisted = Promise.resolve(false);
  readonly kept: Kept;
  private held: Held;

  constructor(above: number) {
    this.kept = fresh(above);
    this.held = new Held(this.kept);
  }

  get wantsSnapshot(): boolean {
    return this.held.wantsSnapshot;
  }

  persist(effect: Persist): Promise<void> {
    return new Promise((resolve) => {
      this.held.take(effect);
      resolve();
    });
  }

  storeSnapshot(effect: StoreSnapshot): Promise<void> {
    return new Promise((resolve) => {
      this.held = this.held.withSnapshot(effect);
      resolve();
    });
  }

  close(): void {
    this.held = new Held(this.kept);
  }
}

class IndexedStore implements ConsensusStore {
  readonly durable: boolean;
  readonly persisted = askToPersist();
  readonly kept: Kept;
  private readonly database: IDBPDatabase<Schema>;
  private readonly log: string;
  readonly owner: string;
  private held: Held;
  private broken: StateUnusable | null = null;
  private last: Promise<void> = Promise.resolve();

  private constructor(database: IDBPDatabase<Schema>, log: string, owner: string, found: Found) {
    this.database = database;
    this.log = log;
    this.owner = owner;
    this.held = found.held;
    this.kept = found.held.kept();
    this.durable = found.strict;
    database.addEventListener('close', () => this.breaks(new StateUnusable(CLEARED))); // not by `close` below
  }

  static async open(log: string, notice: (text: string) => void, above: number): Promise<IndexedStore> {
    const opening = opened();
    try {
      const database = await inTime(opening);
      const owner = crypto.randomUUID();
      const found = await inTime(takeOwnership(database, log, owner, above));
      if (found.damage !== null) {
        notice(
          `this browser's consensus log is damaged (${found.damage}): it is kept, and this tab learns everything anew ` +
            'from the others',
        );
      }
      return new IndexedStore(database, log, owner, found);
    } catch (error) {
      void opening.then((database) => database.close()).catch(() => undefined); // it may still open
      throw error;
    }
  }

  get wantsSnapshot(): boolean {
    return this.held.wantsSnapshot;
  }

  persist(effect: Persist): Promise<void> {
    return this.next(async () => {
      this.held.check(effect);
      const { term, vote, truncateFrom, entries } = effect;
      await this.write((writing, state) => {
        const store = writing.objectStore('entries');
        if (truncateFrom > 0) quietly(store.delete(range(this.log, truncateFrom)));
        for (const entry of entries) quietly(store.put(own(entry), [this.log, entry.index]));
        quietly(writing.objectStore('states').put({ ...state, term, vote }, this.log));
      });
      this.held.take(effect);
    });
  }

  storeSnapshot(effect: StoreSnapshot): Promise<void> {
    return this.next(async () => {
      const held = this.held.withSnapshot(effect);
      const { snapshot, first, last } = effect;
      const { index, term, config, data } = snapshot;
      await this.write((writing) => {
        const store = writing.objectStore('entries');
        const stored = { index, term, servers: config.servers, data: owned(data) };
        quietly(writing.objectStore('snapshots').put(stored, this.log));
        if (first > last) quietly(store.delete(range(this.log)));
        else {
          quietly(store.delete(range(this.log, last + 1)));
          if (first > 0) quietly(store.delete(range(this.log, 0, first - 1)));
        }
      });
      this.held = held;
    });
  }

  close(): void {
    this.broken ??= new StateUnusable('the consensus log of this tab is closed');
    this.database.close();
  }

  /** One after the other, so that nothing builds on what failed. */
  private next(work: () => Promise<void>): Promise<void> {
    const done = this.last.then(() => {
      if (this.broken !== null) throw this.broken;
      return work();
    });
    this.last = done.catch(() => undefined);
    return done;
  }

  private async write(deeds: (writing: Writing, state: State) => void): Promise<void> {
    try {
      const writing = this.database.transaction(ALL, 'readwrite', { durability: 'strict' });
      const done = writing.done;
      done.catch(() => undefined); // it is awaited below, unless what comes before fails
      try {
        const state = await writing.objectStore('states').get(this.log);
        if (state === undefined) throw new StateUnusable(CLEARED);
        if (state.owner !== this.owner) throw new LogInUse('another tab of this browser is this peer now');
        deeds(writing, state);
      } catch (error) {
        quietly(Promise.resolve().then(() => writing.abort()));
        throw error;
      }
      await done;
    } catch (error) {
      throw this.named(error);
    }
  }

  private named(error: unknown): StateUnusable {
    if (error instanceof DOMException && error.name === 'QuotaExceededError') {
      return new DiskFull('this browser has no room for the consensus log: free some space');
    }
    return this.breaks(
      error instanceof StateUnusable
        ? error
        : new StateUnusable(
            `this browser refuses to keep the consensus log (${textOf(error)}): reload this tab`,
          ),
    );
  }

  private breaks(error: StateUnusable): StateUnusable {
    if (this.broken === null) {
      this.broken = error;
      this.database.close();
    }
    return error;
  }
}

const CLEARED = "this browser's storage was cleared: reload this tab, which then joins with nothing";

// --- opening

function opened(): Promise<IDBPDatabase<Schema>> {
  return openDB<Schema>(DATABASE, VERSION, {
    upgrade: (database) => {
      for (const name of EVERY)
        if (!database.objectStoreNames.contains(name)) database.createObjectStore(name);
    },
    blocking: (_current, _blocked, event) => (event.target as IDBDatabase).close(),
  });
}

async function withDatabase<T>(work: (database: IDBPDatabase<Schema>) => Promise<T>): Promise<T> {
  const opening = opened();
  try {
    const database = await inTime(opening);
    return await inTime(work(database));
  } finally {
    void opening.then((database) => database.close()).catch(() => undefined); // it may still open
  }
}

interface Found {
  readonly held: Held;
  readonly strict: boolean;
  readonly damage: string | null;
}

/** Reads what is there, or begins anew; from now on only `owner` writes. */
async function takeOwnership(
  database: IDBPDatabase<Schema>,
  log: string,
  owner: string,
  above: number,
): Promise<Found> {
  const writing = database.transaction(EVERY, 'readwrite', { durability: 'strict' });
  const states = writing.objectStore('states');
  const stored = await storedOf(writing, log);
  const { state, entries, snapshot } = stored;
  let held: Held | null = null;
  let damage: string | null = null;
  try {
    held = whole(state, entries, snapshot);
  } catch (error) {
    if (!(error instanceof NotFollowing)) throw error;
    damage = error.message;
  }
  if (held === null) {
    const kept = fresh(above);
    held = new Held(kept);
    if (damage !== null) setAside(writing, log, stored);
    quietly(states.put({ format: FORMAT, incarnation: kept.incarnation, owner, ...kept.hardState }, log));
  } else {
    quietly(states.put({ ...(state as State), owner }, log));
  }
  const { durability } = writing as { durability?: string }; // old browsers have no say in it
  await writing.done;
  return { held, strict: durability === 'strict', damage };
}

async function storedOf(moving: Moving, log: string): Promise<Stored> {
  const [state, entries, snapshot] = await Promise.all([
    moving.objectStore('states').get(log),
    moving.objectStore('entries').getAll(range(log)),
    moving.objectStore('snapshots').get(log),
  ]);
  return { state, entries, snapshot };
}

function setAside(moving: Moving, log: string, stored: Stored): void {
  quietly(moving.objectStore('aside').put(stored, [log, Date.now()]));
  quietly(moving.objectStore('states').delete(log));
  quietly(moving.objectStore('entries').delete(range(log)));
  quietly(moving.objectStore('snapshots').delete(log));
}

// --- writing

/** The entry with bytes of its own: else the database would keep the whole message that they came in. */
function own(entry: Entry): Entry {
  return { ...entry, data: owned(entry.data) };
}

function owned(data: Uint8Array): Uint8Array<ArrayBuffer> {
  return data.slice();
}

function range(log: string, first = 0, last = Number.MAX_SAFE_INTEGER): IDBKeyRange {
  return IDBKeyRange.bound([log, first], [log, last]);
}

/** What fails makes the transaction fail, and that is awaited. */
function quietly(work: Promise<unknown>): void {
  work.catch(() => undefined);
}

/**
 * Whether the browser promises to keep what this page stores. Workers can only look; old browsers have no say in it.
 */
async function askToPersist(): Promise<boolean> {
  try {
    const { storage } = navigator;
    return await ('persist' in storage ? storage.persist() : (storage as StorageManager).persisted());
  } catch {
    return false;
  }
}

async function inTime<T>(work: Promise<T>): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error('IndexedDB does not answer')), WITHIN_MS);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}
