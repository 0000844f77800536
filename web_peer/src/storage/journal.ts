/*
 * Keeps a tab's transaction log in IndexedDB, so that after a reload it knows what it held and was doing (twin of
 * peer/storage/journal.py). Edge. Nothing here ends a tab: a damaged log is set aside and what can be read of it is
 * used, a database that cannot be used means a log in memory only until it can, and what it refuses is written later.
 */

import { type DBSchema, type IDBPDatabase, openDB } from 'idb';

import { textOf, TransactionError, WrongRecord } from '../errors';
import {
  decodeRecord,
  encodeRecord,
  type LogRecord,
  type Operation,
  type Place,
  type Units,
} from './journal_records';
import { type LogEffect, type LogEvent, NOTHING, type Recovered, Transactions } from './journal_core';

const DATABASE = 'shoal-transactions';
const VERSION = 1;
const WITHIN_MS = 3000; // a database that does not answer must keep nobody from joining, loading or leaving
const AGAIN_MS = 10_000; // between tries to use a database that refuses
const MAX_RECORDS = 100_000; // read of one log; checkpoints keep it under a thousand

type Key = [log: string, number: number];

interface Schema extends DBSchema {
  records: { key: Key; value: string };
  damaged: { key: string; value: unknown[] }; // logs that were set aside, by log and time, for whoever looks into it
}

/** The records of one log, `${peer}:${model}`. */
class RecordShelf {
  private readonly database: IDBPDatabase<Schema>;
  private readonly log: string;
  private next = 0;

  private constructor(database: IDBPDatabase<Schema>, log: string) {
    this.database = database;
    this.log = log;
  }

  static async open(log: string): Promise<RecordShelf> {
    const opening = openDB<Schema>(DATABASE, VERSION, {
      upgrade: (database) => {
        database.createObjectStore('records');
        database.createObjectStore('damaged');
      },
    });
    try {
      return new RecordShelf(await inTime(opening), log);
    } catch (error) {
      void opening.then((database) => database.close()).catch(() => undefined); // it may still open
      throw error;
    }
  }

  /** What lies there, as far as it is without a gap: whatever stands for a record that is missing is undefined. */
  async read(): Promise<unknown[]> {
    const reading = this.database.transaction('records');
    const [lines, keys] = await Promise.all([
      reading.store.getAll(this.range(), MAX_RECORDS),
      reading.store.getAllKeys(this.range(), MAX_RECORDS),
      reading.done,
    ]);
    this.next = (keys.at(-1)?.[1] ?? -1) + 1;
    return lines.flatMap((line, at): unknown[] =>
      at > 0 && keys[at]?.[1] !== (keys[at - 1]?.[1] ?? 0) + 1 ? [undefined, line] : [line],
    );
  }

  /** A batch, whole or not at all; resolves when what has to be durable is. */
  async write(effects: readonly LogEffect[]): Promise<void> {
    const strict = effects.some((effect) => effect.kind === 'compact' || effect.durable);
    const durability = strict ? 'strict' : 'relaxed';
    const writing = this.database.transaction('records', 'readwrite', { durability });
    const { store } = writing;
    try {
      for (const effect of effects) {
        if (effect.kind === 'compact') void store.delete(this.range()).catch(() => undefined); // `done` tells
        const record = effect.kind === 'compact' ? effect.checkpoint : effect.record;
        void store.put(encodeRecord(record), [this.log, this.next]).catch(() => undefined);
        this.next += 1;
      }
    } catch (error) {
      void writing.done.catch(() => undefined);
      writing.abort(); // whole or not at all
      throw error;
    }
    await writing.done;
  }

  async setAside(lines: unknown[]): Promise<void> {
    const moving = this.database.transaction(['records', 'damaged'], 'readwrite');
    await Promise.all([
      moving.objectStore('damaged').put(lines, `${this.log}@${Date.now()}`),
      moving.objectStore('records').delete(this.range()),
      moving.done,
    ]);
  }

  close(): void {
    this.database.close();
  }

  private range(): IDBKeyRange {
    return IDBKeyRange.bound([this.log, 0], [this.log, Number.MAX_SAFE_INTEGER]);
  }
}

/**
 * What the tab says of its operations. Those on units are awaited: `begin` resolves when its record is on the disk.
 * What sessions do is noted on the way and written soon, so that no token waits for a disk.
 */
export class Journal {
  recovered: Recovered = NOTHING;
  core = new Transactions();
  private shelf: RecordShelf | null = null;
  private log: string | null = null; // its name; null: in memory for good
  private retry: ReturnType<typeof setTimeout> | null = null; // set while the database refuses
  private warn: (text: string) => void = () => undefined;
  private on = true;
  private begun = false; // with what the database had
  private waiting: LogEffect[] = [];
  private writing: Promise<void> | null = null;

  /** The log named `log`; in memory only where there is no name, or as long as the database cannot be used. */
  static async open(log: string | null, warn: (text: string) => void): Promise<Journal> {
    const journal = new Journal();
    journal.warn = warn;
    if (log === null) return journal;
    journal.log = log;
    try {
      journal.shelf = await RecordShelf.open(log);
      await inTime(journal.recover(journal.shelf));
    } catch (error) {
      journal.withoutShelf(`this browser keeps no transaction log (${textOf(error)})`);
    }
    return journal;
  }

  /** Whether what is noted here outlives the page. */
  get kept(): boolean {
    return this.shelf !== null && this.on;
  }

  /** Whether the mesh wants logs. Off, the log is emptied: it must not tell of a time that is long past. */
  turn(on: boolean): void {
    if (on === this.on) return;
    this.on = on;
    this.write([(on ? this.core : new Transactions()).compacted()]);
  }

  // --- units: their operations are awaited

  /** Notes that `operation` begins; resolves when that is on the disk. Never rejects. */
  async begin(operation: Operation): Promise<void> {
    this.step({ kind: 'begun', operation });
    if (this.kept && this.writing !== null) await inTime(this.writing).catch(() => undefined);
  }

  commit(operation: Operation): void {
    this.step({ kind: 'committed', operation });
  }

  rollBack(operation: Operation): void {
    this.step({ kind: 'rolled_back', operation });
  }

  /** Units that were held before the reload are not wanted, or not here, any more. */
  giveUp({ first, stop }: Units): void {
    if (this.core.standing({ first, stop }) === 'kept') this.atOnce({ kind: 'unload', first, stop });
  }

  // --- sessions: noted on the way

  /** A session has a place here. Said again for a later turn, it changes nothing. */
  opened(session: string, stage = 0): void {
    const place: Place = { session, stage };
    if (this.core.standing(place) === 'absent') this.atOnce({ kind: 'open', ...place });
  }

  /** A session goes on here in the place of a lost peer. */
  tookOver(session: string, stage = 0): void {
    this.atOnce({ kind: 'take_over', session, stage });
  }

  /** A session left its place. For one that is not known here, nothing happens: the oldest are forgotten. */
  closed(session: string, stage = 0): void {
    const place: Place = { session, stage };
    if (this.core.standing(place) === 'present') this.atOnce({ kind: 'close', ...place });
  }

  /** This tab helped to make so many tokens more. */
  tokens(count: number): void {
    this.step({ kind: 'sampled', count });
  }

  /** Writes what waits, and a checkpoint, and lets the database go. */
  async close(): Promise<void> {
    this.log = null;
    if (this.retry !== null) clearTimeout(this.retry);
    this.retry = null;
    if (this.on) this.write([this.core.compacted()]);
    this.on = false;
    if (this.writing !== null) await inTime(this.writing).catch(() => undefined);
    this.shelf?.close();
    this.shelf = null;
  }

  private async recover(shelf: RecordShelf): Promise<void> {
    const lines = await shelf.read();
    try {
      await this.begins(shelf, Transactions.recover(lines.map(recordOf)));
    } catch (error) {
      if (!(error instanceof TransactionError)) throw error;
      await shelf.setAside(lines);
      const readable = lines.flatMap(readableRecord);
      await this.begins(shelf, Transactions.recover(readable, true));
      const goesOn =
        readable.length > 0
          ? `goes on with the ${readable.length} records of it that can be read`
          : 'begins as if it held nothing';
      this.warn(
        `this browser's transaction log is damaged (${error.message}): it is kept, and this tab ${goesOn}`,
      );
    }
  }

  private async begins(
    shelf: RecordShelf,
    [core, recovered, effects]: ReturnType<typeof Transactions.recover>,
  ): Promise<void> {
    await shelf.write(effects.flatMap((effect) => (effect.kind === 'undo' ? [] : [effect])));
    this.core = core;
    this.recovered = recovered;
    this.begun = true;
  }

  private atOnce(operation: Operation): void {
    if (this.step({ kind: 'begun', operation })) this.commit(operation);
  }

  /** False where the log does not follow; the tab goes on, since what it does matters more than the log of it. */
  private step(event: LogEvent): boolean {
    try {
      const effects = this.core.step(event);
      if (this.on) this.write(effects);
      return true;
    } catch (error) {
      if (error instanceof TransactionError) return false;
      throw error;
    }
  }

  private write(effects: readonly LogEffect[]): void {
    if (this.shelf === null || effects.length === 0) return;
    this.waiting.push(...effects);
    this.writing ??= this.writeAll(this.shelf);
  }

  /** Batch after batch until nothing waits. */
  private async writeAll(shelf: RecordShelf): Promise<void> {
    await Promise.resolve(); // what is noted in the same go is written together
    try {
      while (this.waiting.length > 0) await shelf.write(this.waiting.splice(0));
    } catch (error) {
      this.withoutShelf(`this browser refuses to keep the transaction log (${textOf(error)})`);
    } finally {
      this.writing = null;
    }
  }

  private withoutShelf(why: string): void {
    this.shelf?.close();
    this.shelf = null;
    this.waiting = [];
    this.warn(`${why}: until it does, what this tab holds is not known after a reload`);
    this.tryLater();
  }

  private tryLater(): void {
    if (this.log !== null) this.retry = setTimeout(() => void this.tryAgain(this.log), AGAIN_MS);
  }

  /** What stands in the database now is of before it refused: the checkpoint takes its place. */
  private async tryAgain(log: string | null): Promise<void> {
    if (log === null) return;
    let shelf: RecordShelf | null = null;
    try {
      shelf = await RecordShelf.open(log);
      if (this.begun) await inTime(shelf.read());
      else await inTime(this.setAsideUnread(shelf));
      await inTime(shelf.write([(this.on ? this.core : new Transactions()).compacted()]));
    } catch {
      shelf?.close();
      this.tryLater();
      return;
    }
    if (this.retry === null) {
      shelf.close(); // this journal was closed meanwhile
      return;
    }
    this.retry = null;
    this.begun = true;
    this.shelf = shelf;
    if (this.on) this.write([this.core.compacted()]); // with what came in the meantime
    this.warn('this browser keeps the transaction log again');
  }

  /** A log that could not be read when this page began is none of this life. */
  private async setAsideUnread(shelf: RecordShelf): Promise<void> {
    const lines = await shelf.read();
    if (lines.length > 0) await shelf.setAside(lines);
  }
}

function recordOf(line: unknown): LogRecord {
  if (typeof line !== 'string') throw new WrongRecord('expected text in every record');
  return decodeRecord(line);
}

function readableRecord(line: unknown): LogRecord[] {
  try {
    return [recordOf(line)];
  } catch (error) {
    if (error instanceof TransactionError) return [];
    throw error;
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
