/*
 * What one runtime caches of a session that is to be cached for another one: given as numbers, taken as such, or copied
 * between two rows. In the worker of one runtime; kv_transfer_service.ts decides what goes where.
 */

import type { CachePart, Execution } from './execution';
import type { SessionId } from '../wire/generated/frames';
import type { KvSlots } from './kv_slots';

/** Between two calls of the execution. `done` hears what came of it, which may be nothing: then it is computed anew. */
export type CacheWork =
  | {
      readonly what: 'read';
      readonly session: SessionId;
      readonly count: number;
      readonly names: readonly string[];
      done(values: Promise<Float32Array<ArrayBuffer>> | null): void;
    }
  | {
      readonly what: 'write';
      readonly session: SessionId;
      readonly count: number;
      readonly parts: readonly CachePart[];
      done(isThere: boolean): void;
    }
  | {
      readonly what: 'share';
      readonly session: SessionId;
      readonly source: SessionId;
      readonly count: number;
      done(isThere: boolean): void;
    };

/** `ensure` makes room for so many rows of so many positions, or raises an Error. */
export class MovedCaches {
  private readonly execution: Execution;
  private readonly slots: KvSlots;
  private readonly ensure: (rows: number, positions: number) => void;

  constructor(execution: Execution, slots: KvSlots, ensure: (rows: number, positions: number) => void) {
    this.execution = execution;
    this.slots = slots;
    this.ensure = ensure;
  }

  do(work: CacheWork): void {
    const { slots } = this;
    switch (work.what) {
      case 'read': {
        const row = slots.row(work.session);
        const isThere = row !== null && slots.length(work.session) >= work.count;
        work.done(isThere ? this.execution.read(row, work.count, work.names) : null);
        return;
      }
      case 'write': {
        const row = this.room(work.session, work.count);
        const isThere = row !== null && this.execution.write(row, work.count, work.parts);
        work.done(this.filled(isThere ? row : null, work.session, work.count));
        return;
      }
      case 'share': {
        const from = slots.length(work.source) >= work.count ? slots.row(work.source) : null;
        const source = from !== null && this.execution.holds(from, work.count) ? from : null;
        const row = source === null ? null : this.room(work.session, work.count);
        if (source !== null && row !== null) {
          this.execution.move({ source, target: row, length: work.count });
        }
        work.done(this.filled(row, work.session, work.count));
        return;
      }
      default:
        work satisfies never;
    }
  }

  /** A row for the session's first positions; null where there is none. */
  private room(session: SessionId, count: number): number | null {
    const row = count < this.slots.context ? this.slots.admit(session) : null;
    if (row !== null) this.ensure(row + 1, count + 1);
    return row;
  }

  private filled(row: number | null, session: SessionId, count: number): boolean {
    if (row !== null) this.slots.setLength(session, count);
    return row !== null;
  }
}
