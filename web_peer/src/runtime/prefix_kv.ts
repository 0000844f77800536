/*
 * The caches of fronts of prompts, beside those of sessions: copied from a session that computed one, into others (twin
 * of peer/runtime/prefix_kv.py). In the worker of one runtime; prefix_cache.ts decides what is kept.
 */

import type { Execution, KvCopy } from './execution';
import type { KvSlots } from './kv_slots';

/** What becomes of the front of `digest`, whose cache is, or is to be, that of `session`. */
export interface FrontWork {
  readonly what: 'keep' | 'share' | 'drop';
  readonly session: string;
  readonly digest: string;
  readonly count: number; // positions
}

/** Keys and values of prompts' beginnings that conversations share, the least recently used first to go. */
export class KeptFronts {
  private readonly execution: Execution;
  private readonly slots: KvSlots;
  private readonly all = new Map<string, KvCopy>(); // by digest

  constructor(execution: Execution, slots: KvSlots) {
    this.execution = execution;
    this.slots = slots;
  }

  get bytes(): number {
    let sum = 0;
    for (const { bytes } of this.all.values()) sum += bytes;
    return sum;
  }

  get size(): number {
    return this.all.size;
  }

  /** Between two calls of the execution. What cannot be done is left: whoever needs those positions computes them. */
  do({ what, session, digest, count }: FrontWork): void {
    switch (what) {
      case 'keep': {
        const row = this.slots.row(session);
        if (row === null || this.slots.length(session) < count || this.all.has(digest)) return;
        const copy = this.execution.copied(row, count);
        if (copy !== null) this.all.set(digest, copy);
        return;
      }
      case 'share': {
        const copy = this.all.get(digest);
        const row = copy === undefined || count >= this.slots.context ? null : this.slots.admit(session);
        if (copy === undefined || row === null) return;
        this.execution.ensure(this.slots, row + 1, count + 1);
        this.execution.put(row, copy);
        this.slots.setLength(session, count);
        return;
      }
      case 'drop':
        this.all.get(digest)?.free();
        this.all.delete(digest);
        return;
      default:
        what satisfies never;
    }
  }

  /** Gives all of them up: memory is short. */
  clear(): void {
    for (const copy of this.all.values()) copy.free();
    this.all.clear();
  }
}
