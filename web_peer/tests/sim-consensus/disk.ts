/* What a simulated server keeps: a disk that may be slow and loses what it has not written, and a state machine. */

import type { Entry, HardState, Snapshot } from '../../src/consensus/records';
import type { Persist, StoreSnapshot } from '../../src/consensus/events';

/** Something that must hold does not; the text says what. */
export class Wrong extends Error {}

/** Entries first..last, without a gap. */
export class Log {
  first: number;
  entries: Entry[];

  constructor(first = 1, entries: readonly Entry[] = []) {
    this.first = first;
    this.entries = [...entries];
  }

  get last(): number {
    return this.first + this.entries.length - 1;
  }

  at(index: number): Entry | undefined {
    return index < this.first ? undefined : this.entries[index - this.first];
  }

  write(truncateFrom: number, entries: readonly Entry[]): void {
    if (truncateFrom > 0) {
      if (truncateFrom < this.first) {
        throw new Wrong(`drops entries from ${truncateFrom} on, the log begins at ${this.first}`);
      }
      this.entries.length = Math.min(this.entries.length, truncateFrom - this.first);
    }
    for (const entry of entries) {
      if (entry.index !== this.last + 1)
        throw new Wrong(`writes entry ${entry.index} where ${this.last + 1} is next`);
      this.entries.push(entry);
    }
  }

  /** Keeps exactly first..last. */
  cut(first: number, last: number): void {
    if (first > last) {
      this.first = first;
      this.entries = [];
      return;
    }
    if (first < this.first || last > this.last) {
      throw new Wrong(`keeps ${first}..${last} of a log that has ${this.first}..${this.last}`);
    }
    this.entries = this.entries.slice(first - this.first, last - this.first + 1);
    this.first = first;
  }
}

/** What survives a crash. */
export class Disk {
  term = 0;
  vote = '';
  snapshot: Snapshot | null = null;
  log = new Log();
  waiting: (Persist | StoreSnapshot)[] = []; // not durable yet, in order

  get hardState(): HardState {
    return { term: this.term, vote: this.vote };
  }

  /** Makes one of them durable. A snapshot that is not `whole` is there, and the log not cut yet. */
  write(effect: Persist | StoreSnapshot, whole = true): void {
    if (effect.kind === 'persist') {
      this.term = effect.term;
      this.vote = effect.vote;
      this.log.write(effect.truncateFrom, effect.entries);
    } else {
      this.snapshot = effect.snapshot;
      if (whole) this.log.cut(effect.first, effect.last);
    }
  }

  /** The first `survive` of what waits were written after all; of a snapshot that is next, all but the cut. */
  crash(survive: number, torn: boolean, durable: (effect: Persist | StoreSnapshot) => void): void {
    for (const effect of this.waiting.slice(0, survive)) {
      this.write(effect);
      durable(effect);
    }
    const next = this.waiting[survive];
    if (torn && next?.kind === 'store_snapshot') {
      this.write(next, false);
      durable(next);
    }
    this.waiting = [];
  }
}

const TO_UTF8 = new TextEncoder();
const FROM_UTF8 = new TextDecoder();

/** A checksum over all commands in order: any other history gives another one. */
export class Machine {
  index = 0;
  value = 0;

  take(entry: Entry): void {
    this.index = entry.index;
    if (entry.kind !== 'command') return;
    for (const byte of entry.data) this.value = Math.imul(this.value ^ byte, 0x01000193) >>> 0;
    this.value = Math.imul(this.value ^ 0xff, 0x01000193) >>> 0;
  }

  get data(): Uint8Array {
    return TO_UTF8.encode(`${this.index}:${this.value}`);
  }

  copy(): Machine {
    const made = new Machine();
    made.index = this.index;
    made.value = this.value;
    return made;
  }

  static of(data: Uint8Array): Machine {
    const [index, value] = FROM_UTF8.decode(data).split(':').map(Number);
    const made = new Machine();
    made.index = index ?? 0;
    made.value = value ?? 0;
    return made;
  }
}

export function sameBytes(a: Uint8Array, b: Uint8Array): boolean {
  return a === b || (a.length === b.length && a.every((byte, at) => byte === b[at]));
}

export function sameEntry(a: Entry | undefined, b: Entry | undefined): boolean {
  if (a === b) return true;
  if (a === undefined || b === undefined) return false;
  return a.index === b.index && a.term === b.term && a.kind === b.kind && sameBytes(a.data, b.data);
}
