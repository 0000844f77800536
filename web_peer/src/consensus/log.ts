/*
 * What a server's log holds, which configuration follows from it, and how much of it is durable (twin of
 * peer/consensus/log.py). Pure.
 *
 * Thesis 3.5 (log), 4.1 (the newest configuration in the log holds), 5 (compaction). Bookkeeping only: who may append
 * what is decided in replication.
 */

import { BadBoot, BadMessage } from './errors';
import { Config, type Entry, type Snapshot } from './records';
import { parseConfig } from './message_codec';

const NOBODY = new Config();

/** Entries first..last, contiguous. `first` <= snapshot.index + 1; before it there is only the snapshot. */
export class Log {
  readonly bug: number;
  snapshot: Snapshot | null;
  entries: Entry[];
  first: number;
  configs: (readonly [index: number, config: Config])[] = []; // entries behind the snapshot, rising
  stale = false; // the stored log has to be cut to first..last
  durable: number;
  pending: [token: number, last: number][] = []; // the last index once that token is durable; rising
  unsaved: number; // the first entry that no Persist has carried yet
  cut = 0; // where the stored log has to be cut by the next Persist; 0: nowhere

  /** Raises BadBoot where there is a gap. */
  constructor(snapshot: Snapshot | null, entries: readonly Entry[], bug: number) {
    this.bug = bug;
    this.snapshot = snapshot;
    this.entries = [...entries];
    const base = this.base;
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
      this.stale = bug !== 24;
      if (this.stale) this.entries = [];
    }
    this.first = this.entries[0]?.index ?? base + 1;
    for (const { kind, index, data } of this.entries) {
      if (kind !== 'config' || index <= base) continue;
      try {
        this.configs.push([index, parseConfig(data)]);
      } catch (error) {
        if (!(error instanceof BadMessage)) throw error;
        throw new BadBoot(`log: entry ${index} is a configuration that cannot be read`);
      }
    }
    this.durable = this.last;
    this.unsaved = this.last + 1;
  }

  /** Whether the entry at the snapshot's index is the one that it ends with, or lies just before the log. */
  private agrees(start: Entry, snapshot: Snapshot): boolean {
    if (start.index === snapshot.index + 1) return true;
    return this.entries[snapshot.index - start.index]?.term === snapshot.term;
  }

  // --- reading ------------------------------------------------------------------------------------------------

  get last(): number {
    return this.first + this.entries.length - 1;
  }

  get lastTerm(): number {
    return this.termAt(this.last) ?? 0;
  }

  /** The index that the snapshot ends with. */
  get base(): number {
    return this.snapshot?.index ?? 0;
  }

  /** The term of the entry at `index`; null where that is not known (any more). */
  termAt(index: number): number | null {
    const entry = this.entries[index - this.first];
    if (entry !== undefined) return entry.term;
    if (this.snapshot !== null && index === this.snapshot.index) return this.snapshot.term;
    return index === 0 && this.first === 1 ? 0 : null; // behind a snapshot nothing is known of the start
  }

  /** Entries start..stop, both included. */
  span(start: number, stop: number): Entry[] {
    return this.entries.slice(start - this.first, stop - this.first + 1);
  }

  /** From `start` on as many as fit, at least one. */
  batch(start: number, maxBytes: number, maxEntries: number): Entry[] {
    const place = start - this.first;
    let stop = place;
    let room = maxBytes;
    while (stop < this.entries.length && stop - place < maxEntries) {
      room -= (this.entries[stop]?.data.length ?? 0) + 16;
      if (room < 0 && stop > place) break;
      stop += 1;
    }
    return this.entries.slice(place, stop);
  }

  get config(): Config {
    return this.configs.at(-1)?.[1] ?? this.snapshot?.config ?? NOBODY;
  }

  get configIndex(): number {
    return this.configs.at(-1)?.[0] ?? this.base;
  }

  /** The configuration that held once the entry at `index` was there (index >= base). */
  configAt(index: number): Config {
    let found = this.snapshot?.config ?? NOBODY;
    for (const [at, config] of this.configs) if (at <= index) found = config;
    return found;
  }

  // --- changing -----------------------------------------------------------------------------------------------

  /** Behind the last. */
  append(entries: readonly Entry[]): void {
    for (const entry of entries) {
      if (entry.kind === 'config') this.configs.push([entry.index, parseConfig(entry.data)]);
      this.entries.push(entry);
    }
  }

  /** Drop entries from `index` on. Nothing of them is durable any more, also not what is being written. */
  truncate(index: number): void {
    if (this.bug !== 32) this.configs = this.configs.filter(([at]) => at < index);
    this.entries.splice(index - this.first);
    if (index < this.unsaved) {
      this.cut = Math.min(this.cut > 0 ? this.cut : index, index);
      this.unsaved = index;
    }
    if (this.bug !== 19) this.cap(index - 1);
  }

  private cap(index: number): void {
    this.durable = Math.min(this.durable, index);
    for (const record of this.pending) record[1] = Math.min(record[1], index);
  }

  /** Take a snapshot from the leader: a suffix that agrees with it stays (figure 5.3, step 6), all else goes. */
  install(snapshot: Snapshot, commit: number): void {
    const agrees = this.termAt(snapshot.index) === snapshot.term || this.bug === 21;
    const keep = agrees && this.bug !== 20 ? this.entries.slice(snapshot.index + 1 - this.first) : [];
    this.configs = this.configs.filter(([at]) => at > snapshot.index && keep.length > 0);
    this.snapshot = snapshot;
    this.entries = keep;
    this.first = snapshot.index + 1;
    this.cut = keep.length === 0 || this.cut <= snapshot.index ? 0 : this.cut;
    this.unsaved = keep.length > 0 ? Math.max(this.unsaved, this.first) : this.first;
    if (keep.length === 0) this.cap(Math.min(commit, snapshot.index));
  }

  /** Take a snapshot of one's own; entries before `first` go. */
  compact(snapshot: Snapshot, first: number): void {
    this.snapshot = snapshot;
    this.configs = this.configs.filter(([at]) => at > snapshot.index);
    if (first > this.first) {
      this.entries.splice(0, first - this.first);
      this.first = first;
    }
  }

  // --- durability ---------------------------------------------------------------------------------------------

  /** A Persist or StoreSnapshot was handed out, after which the log reaches `last` on disk. */
  written(token: number, last: number): void {
    this.pending.push([token, last]);
  }

  /** Everything up to this token is durable. */
  settled(token: number): void {
    for (let [next] = this.pending; next !== undefined && next[0] <= token; [next] = this.pending) {
      this.durable = next[1];
      this.pending.shift();
    }
  }
}
