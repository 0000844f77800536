/*
 * What of the consensus log is stored, as values: how every persist and store_snapshot changes it (twin of
 * peer/storage/stored_log.py). Pure; the same for a database and for memory.
 */

import type { Entry, HardState, Snapshot } from '../consensus/records';
import type { Persist, StoreSnapshot } from '../consensus/events';

export const MIN_SNAPSHOT_BYTES = 1 << 20; // of entries since the last snapshot, before another one is worth its writing
const ENTRY_BYTES = 32; // of an entry beside its data, at most

/** What a peer boots from. `entries` are without gaps and may begin before the snapshot's index. */
export interface Kept {
  readonly hardState: HardState;
  readonly snapshot: Snapshot | null;
  readonly entries: readonly Entry[];
  readonly incarnation: number;
}

/** Entries that do not follow from those before. */
export class NotFollowing extends Error {}

/** Throws NotFollowing for what does not follow, and is then as it was. */
export class Held {
  private readonly incarnation: number;
  private readonly snapshot: Snapshot | null;
  private readonly first: number; // index of the first entry, or of the first that will be
  private readonly entries: Entry[] = [];
  private hardState: HardState;
  private sinceBytes = 0; // of the entries after the snapshot

  constructor({ hardState, snapshot, entries, incarnation }: Kept) {
    this.incarnation = incarnation;
    this.hardState = hardState;
    this.snapshot = snapshot;
    const next = (snapshot?.index ?? 0) + 1;
    this.first = entries[0]?.index ?? next;
    if (this.first > next) {
      throw new NotFollowing(`the entries begin at ${this.first}, the snapshot ends at ${next - 1}`);
    }
    follows(entries, this.first);
    this.append(entries);
  }

  /** How many entries stay when `effect` is done. */
  check({ truncateFrom, entries }: Persist): number {
    const length = this.entries.length;
    const stay = truncateFrom === 0 ? length : Math.min(length, Math.max(0, truncateFrom - this.first));
    follows(entries, this.first + stay);
    return stay;
  }

  take(effect: Persist): void {
    const stay = this.check(effect);
    for (const entry of this.entries.splice(stay)) this.sinceBytes -= this.weight(entry);
    this.append(effect.entries);
    this.hardState = { term: effect.term, vote: effect.vote };
  }

  /** The same after that snapshot was stored and the log cut for it. */
  withSnapshot({ snapshot, first, last }: StoreSnapshot): Held {
    const entries = this.entries.filter(({ index }) => first <= index && index <= last);
    if (entries.length !== Math.max(0, last + 1 - first)) {
      throw new NotFollowing(`entries ${first} to ${last} do not all stand in the log`);
    }
    return new Held({ incarnation: this.incarnation, hardState: this.hardState, snapshot, entries });
  }

  /** A snapshot of a later term than the stored one: this peer has not voted in that term. */
  kept(): Kept {
    const { snapshot, incarnation } = this;
    const later = snapshot !== null && snapshot.term > this.hardState.term;
    const hardState = later ? { term: snapshot.term, vote: '' } : this.hardState;
    return { hardState, snapshot, entries: [...this.entries], incarnation };
  }

  /** Whether the log has grown enough for a snapshot to be worth it. */
  get wantsSnapshot(): boolean {
    return this.sinceBytes > Math.max(MIN_SNAPSHOT_BYTES, this.snapshot?.data.length ?? 0);
  }

  private append(entries: readonly Entry[]): void {
    for (const entry of entries) {
      this.entries.push(entry);
      this.sinceBytes += this.weight(entry);
    }
  }

  private weight({ index, data }: Entry): number {
    return index > (this.snapshot?.index ?? 0) ? data.length + ENTRY_BYTES : 0;
  }
}

function follows(entries: readonly Entry[], first: number): void {
  for (const [number, { index }] of entries.entries()) {
    const expected = first + number;
    if (index !== expected) {
      throw new NotFollowing(`expected the entry of index ${expected}, got that of ${index}`);
    }
  }
}
