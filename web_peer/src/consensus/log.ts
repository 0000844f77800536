/*
 * A server's log: its entries, the configuration that follows from them, and how much of it is durable (twin of
 * peer/consensus/log.py). Pure.
 *
 * Thesis 3.5 (log), 4.1 (the newest configuration in the log holds), 5 (compaction). Bookkeeping only: replication
 * decides who may append what.
 */

import { BadBoot, BadMessage } from './errors';
import { Config, type Entry, type Snapshot } from './records';
import { parseConfig } from './message_codec';

const NOBODY = new Config();

/**
 * Entries firstIndex..lastIndex, contiguous; firstIndex <= snapshotIndex + 1.
 *
 * Entries before the snapshot's index are a kept tail; before them there is only the snapshot.
 */
export class Log {
  snapshot: Snapshot | null;
  entries: Entry[];
  firstIndex: number;
  configs: (readonly [index: number, config: Config])[] = []; // entries behind the snapshot, rising
  stale = false; // the stored log has to be cut to what is here
  durableIndex: number;
  pendingWrites: [token: number, last: number][] = []; // the last index once that token is durable; rising
  unsavedFrom: number; // the first entry that no Persist has carried yet
  truncateFrom = 0; // where the next Persist has to cut the stored log; 0: nowhere

  /** Raises BadBoot where there is a gap. */
  constructor(snapshot: Snapshot | null, entries: readonly Entry[]) {
    this.snapshot = snapshot;
    this.entries = [...entries];
    const base = this.snapshotIndex;
    entries.forEach((after, place) => {
      const before = entries[place - 1];
      if (before !== undefined && (after.index !== before.index + 1 || after.term < before.term)) {
        throw new BadBoot(
          `log: expected entry ${before.index + 1} after ${before.index}, got ${after.index}`,
        );
      }
    });
    const [start] = entries;
    if (start !== undefined && start.index > base + 1) {
      throw new BadBoot(
        `log: expected it to begin at ${base + 1} at the latest, it begins at ${start.index}`,
      );
    }
    if (start !== undefined && snapshot !== null && !this.agrees(start, snapshot)) {
      // A crash came between storing an installed snapshot and cutting the log (figure 5.3).
      this.stale = true;
      this.entries = [];
    }
    this.firstIndex = this.entries[0]?.index ?? base + 1;
    for (const { kind, index, data } of this.entries) {
      if (kind !== 'config' || index <= base) continue;
      try {
        this.configs.push([index, parseConfig(data)]);
      } catch (error) {
        if (!(error instanceof BadMessage)) throw error;
        throw new BadBoot(`log: entry ${index} is a configuration that cannot be read`);
      }
    }
    this.durableIndex = this.lastIndex;
    this.unsavedFrom = this.lastIndex + 1;
  }

  /** Whether the entry at the snapshot's index is the one that it ends with, or lies just before the log. */
  private agrees(start: Entry, snapshot: Snapshot): boolean {
    if (start.index === snapshot.index + 1) return true;
    return this.entries[snapshot.index - start.index]?.term === snapshot.term;
  }

  // --- reading ------------------------------------------------------------------------------------------------

  get lastIndex(): number {
    return this.firstIndex + this.entries.length - 1;
  }

  get lastTerm(): number {
    return this.termAt(this.lastIndex) ?? 0;
  }

  /** The index that the snapshot ends with; 0 without one. */
  get snapshotIndex(): number {
    return this.snapshot?.index ?? 0;
  }

  /** Returns the term of the entry at `index`, or null where it is not known (any more). */
  termAt(index: number): number | null {
    const entry = this.entries[index - this.firstIndex];
    if (entry !== undefined) return entry.term;
    if (this.snapshot !== null && index === this.snapshot.index) return this.snapshot.term;
    return index === 0 && this.firstIndex === 1 ? 0 : null; // behind a snapshot nothing is known of the start
  }

  /** Returns entries start..stop, both included. */
  span(start: number, stop: number): Entry[] {
    return this.entries.slice(start - this.firstIndex, stop - this.firstIndex + 1);
  }

  /** Returns entries from `start` on, as many as fit, at least one if there is one. */
  batch(start: number, maxBytes: number, maxEntries: number): Entry[] {
    const place = start - this.firstIndex;
    let stop = place;
    let room = maxBytes;
    while (stop < this.entries.length && stop - place < maxEntries) {
      room -= (this.entries[stop]?.data.length ?? 0) + 16;
      if (room < 0 && stop > place) break;
      stop += 1;
    }
    return this.entries.slice(place, stop);
  }

  /** The newest configuration, committed or not. */
  get config(): Config {
    return this.configs.at(-1)?.[1] ?? this.snapshot?.config ?? NOBODY;
  }

  /** The index of the newest configuration's entry, or of the snapshot that holds it. */
  get configIndex(): number {
    return this.configs.at(-1)?.[0] ?? this.snapshotIndex;
  }

  /** Returns the configuration that held once the entry at `index` was there (index >= snapshotIndex). */
  configAt(index: number): Config {
    let found = this.snapshot?.config ?? NOBODY;
    for (const [at, config] of this.configs) if (at <= index) found = config;
    return found;
  }

  // --- changing -----------------------------------------------------------------------------------------------

  /** Adds entries behind the last. Raises BadMessage where one is a configuration that cannot be read. */
  append(entries: readonly Entry[]): void {
    for (const entry of entries) {
      if (entry.kind === 'config') this.configs.push([entry.index, parseConfig(entry.data)]);
      this.entries.push(entry);
    }
  }

  /** Drops entries from `index` on. Nothing of them is durable any more, also not what is being written. */
  truncate(index: number): void {
    this.configs = this.configs.filter(([at]) => at < index);
    this.entries.splice(index - this.firstIndex);
    if (index < this.unsavedFrom) {
      this.truncateFrom = Math.min(this.truncateFrom > 0 ? this.truncateFrom : index, index);
      this.unsavedFrom = index;
    }
    this.limitDurable(index - 1);
  }

  private limitDurable(index: number): void {
    this.durableIndex = Math.min(this.durableIndex, index);
    for (const write of this.pendingWrites) write[1] = Math.min(write[1], index);
  }

  /** Takes a snapshot of the leader: a suffix that agrees with it stays (figure 5.3, step 6), all else goes. */
  install(snapshot: Snapshot, commitIndex: number): void {
    const agrees = this.termAt(snapshot.index) === snapshot.term;
    const keep = agrees ? this.entries.slice(snapshot.index + 1 - this.firstIndex) : [];
    this.configs = this.configs.filter(([at]) => at > snapshot.index && keep.length > 0);
    this.snapshot = snapshot;
    this.entries = keep;
    this.firstIndex = snapshot.index + 1;
    this.truncateFrom = keep.length === 0 || this.truncateFrom <= snapshot.index ? 0 : this.truncateFrom;
    this.unsavedFrom = keep.length > 0 ? Math.max(this.unsavedFrom, this.firstIndex) : this.firstIndex;
    if (keep.length === 0) this.limitDurable(Math.min(commitIndex, snapshot.index));
  }

  /** Takes a snapshot of this server's own; entries before `firstIndex` go. */
  compact(snapshot: Snapshot, firstIndex: number): void {
    this.snapshot = snapshot;
    this.configs = this.configs.filter(([at]) => at > snapshot.index);
    if (firstIndex > this.firstIndex) {
      this.entries.splice(0, firstIndex - this.firstIndex);
      this.firstIndex = firstIndex;
    }
  }

  // --- durability ---------------------------------------------------------------------------------------------

  /** A Persist or StoreSnapshot was handed out, after which the log reaches `lastIndex` on disk. */
  writeBegan(token: number, lastIndex: number): void {
    this.pendingWrites.push([token, lastIndex]);
  }

  /** Everything up to this token is durable. */
  writeEnded(token: number): void {
    const { pendingWrites } = this;
    for (let [next] = pendingWrites; next !== undefined && next[0] <= token; [next] = pendingWrites) {
      this.durableIndex = next[1];
      pendingWrites.shift();
    }
  }
}
