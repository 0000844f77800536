/*
 * Which row of the KV arrays belongs to which session, how far it is filled, and when the arrays must grow. Pure.
 *
 * Rows of live sessions are 0..n-1 without holes, so that one call serves a contiguous range of them. Freeing a
 * row moves the last one into it. The arrays double in rows and in positions up to the limits.
 */

import { firstKept, type KvWindow, windowCapacity, windowHolds } from '../planner/kv_window';
import type { SessionId } from '../wire/generated/frames';

export const FIRST_CAPACITY = 128; // positions per row at first; a short question and its answer

/** Copy `length` positions of row `source` to row `target`. */
export interface Move {
  readonly source: number;
  readonly target: number;
  readonly length: number;
}

/** Allocated rows and positions. */
export interface Shape {
  readonly rows: number;
  readonly capacity: number;
}

/** Rows [start, stop). */
export interface Span {
  readonly start: number;
  readonly stop: number;
}

interface Row {
  readonly session: SessionId;
  length: number;
}

/** Sessions, their rows and lengths. `limit` sessions at most, `context` positions each. */
export class KvSlots {
  readonly limit: number;
  readonly context: number;
  private readonly filled: Row[] = [];
  private readonly rows = new Map<SessionId, number>();

  constructor(limit: number, context: number) {
    if (limit < 1 || context < 1) {
      throw new RangeError(`at least one slot and one position expected, got ${limit} and ${context}`);
    }
    this.limit = limit;
    this.context = context;
  }

  row(session: SessionId): number | null {
    return this.rows.get(session) ?? null;
  }

  /** Cached positions; 0 for an unknown session. */
  length(session: SessionId): number {
    const row = this.rows.get(session);
    return row === undefined ? 0 : this.lengthOfRow(row);
  }

  /** 0 for a row without a session. */
  lengthOfRow(row: number): number {
    return this.filled[row]?.length ?? 0;
  }

  lengths(): Map<SessionId, number> {
    return new Map(this.filled.map(({ session, length }) => [session, length]));
  }

  /** The session's row, given now if it had none; null when all slots are taken. */
  admit(session: SessionId): number | null {
    const row = this.rows.get(session);
    if (row !== undefined) return row;
    if (this.filled.length >= this.limit) return null;
    this.filled.push({ session, length: 0 });
    this.rows.set(session, this.filled.length - 1);
    return this.filled.length - 1;
  }

  setLength(session: SessionId, length: number): void {
    const row = this.filled[this.rows.get(session) ?? -1];
    if (row === undefined) throw new RangeError('a session that has a row expected');
    if (!(length >= 0 && length <= this.context)) {
      throw new RangeError(`a length from 0 to ${this.context} expected, got ${length}`);
    }
    row.length = length;
  }

  /** Forgets the session; the move (if any) that keeps the rows without holes must be done before the next step. */
  release(session: SessionId): Move | null {
    const target = this.rows.get(session);
    if (target === undefined) return null;
    this.rows.delete(session);
    const source = this.filled.length - 1;
    const moved = this.filled.pop();
    if (target === source || moved === undefined) return null;
    this.filled[target] = moved;
    this.rows.set(moved.session, target);
    return { source, target, length: moved.length };
  }

  /**
   * The least shape, by doubling from `shape`, that holds `rows` rows of `positions` each.
   *
   * One position beyond the context is allowed, so that a full row can sit idle inside another row's batch.
   */
  grown(shape: Shape, rows: number, positions: number): Shape {
    let rowCount = Math.max(shape.rows, 1);
    let capacity = Math.max(shape.capacity, FIRST_CAPACITY);
    while (rowCount < rows) rowCount *= 2;
    while (capacity < positions) capacity *= 2;
    return { rows: Math.min(rowCount, this.limit), capacity: Math.min(capacity, this.context + 1) };
  }
}

/**
 * Covers sorted `rows` by contiguous spans; idle gaps of up to `gapRows` rows ride along, cheaper than another call.
 */
export function spans(rows: readonly number[], gapRows: number): Span[] {
  const found: { start: number; stop: number }[] = [];
  for (const row of rows) {
    const last = found.at(-1);
    if (last !== undefined && row - last.stop <= gapRows) last.stop = row + 1;
    else found.push({ start: row, stop: row + 1 });
  }
  return found;
}

/** One array of keys or of values: a row of it is float32 (heads, capacity, headSize). */
export interface KvArray {
  readonly name: string;
  readonly outputs: readonly string[]; // of graphs, that lie in it
  readonly heads: number;
  readonly headSize: number;
  readonly isWindowed: boolean;
}

/** In arrays with a window, `count` positions of `row` move to its beginning from where `by` others end. */
export interface Drop {
  readonly row: number;
  readonly by: number;
  readonly count: number;
}

/** In arrays with a window a row begins at position `first`; those before were dropped. */
export class KvRows {
  readonly isWindowed: boolean; // whether one of the arrays has a window, so that graphs ask for it
  private readonly window: KvWindow | null; // null: nothing is dropped
  private readonly firsts: number[] = []; // by row; absent: 0

  constructor(arrays: readonly KvArray[], window: KvWindow | null) {
    this.isWindowed = arrays.some(({ isWindowed }) => isWindowed);
    this.window = this.isWindowed ? window : null;
  }

  /** Positions that an array has room for. */
  capacity({ isWindowed }: KvArray, { capacity }: Shape): number {
    return isWindowed && this.window !== null ? Math.min(capacity, windowCapacity(this.window)) : capacity;
  }

  /** The first position that an array has of a row. */
  first({ isWindowed }: KvArray, row: number): number {
    return isWindowed ? this.firstOf(row) : 0;
  }

  /** As `first`, of the arrays with a window. */
  firstOf(row: number): number {
    return this.firsts[row] ?? 0;
  }

  /** The first position of a copy of `have`. */
  begin({ isWindowed }: KvArray, have: number): number {
    return isWindowed && this.window !== null ? firstKept(this.window, have) : 0;
  }

  /** Whether a row has what comes after its first `length` positions looks at. */
  holds(row: number, length: number): boolean {
    return this.suffices(this.firstOf(row), length);
  }

  /** The same of a row that begins at `first`. */
  suffices(first: number, length: number): boolean {
    return this.window === null || windowHolds(this.window, first, length);
  }

  /** Whether a copy of `have` positions can be made of a row. */
  copies(row: number, have: number): boolean {
    return this.window === null || this.firstOf(row) <= firstKept(this.window, have);
  }

  /**
   * What must be dropped so that `tokens` more fit behind `length` positions of a row; null: nothing. Raises RangeError
   * for more tokens than a call may have.
   */
  makeRoom(row: number, length: number, tokens: number, { capacity }: Shape): Drop | null {
    const { window } = this;
    if (window === null) return null;
    if (length === 0) this.firsts[row] = 0;
    const first = this.firstOf(row);
    const room = Math.min(capacity, windowCapacity(window));
    if (length - first + tokens <= room) return null;
    const fresh = firstKept(window, length);
    if (length - fresh + tokens > room) {
      throw new RangeError(`${tokens} tokens in one call do not fit ${room} positions`);
    }
    this.firsts[row] = fresh;
    return { row, by: fresh - first, count: length - fresh };
  }

  /** A row was copied into another one. */
  moved({ source, target }: Move): void {
    this.firsts[target] = this.firstOf(source);
  }

  /** A row begins at `first` from now on. */
  put(row: number, first: number): void {
    this.firsts[row] = first;
  }
}
