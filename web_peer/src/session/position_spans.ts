/*
 * Which positions of a session were given and which were sampled, and the steps that send them (twin of
 * peer/session/position_spans.py).
 *
 * Pure. Spans count given and sampled positions by turns, given ones first. Attention adds up in another order for one
 * token than for several: given positions are computed together, in any chunks, sampled ones alone, and only so do
 * bits repeat.
 */

import { rows } from './activation_log';
import { integers, type Tensor, tensorOf } from '../wire/tensors';

export const CHUNK_TOKENS = 32; // prompt tokens a step carries: small enough that stages overlap (docs/benchmarks.md)

/** [position, stop) of the steps that send positions `start` to `stop`: given ones in chunks, sampled ones alone. */
export function stepsOf(
  start: number,
  stop: number,
  spans: readonly number[],
): { readonly position: number; readonly stop: number }[] {
  const steps: { position: number; stop: number }[] = [];
  let end = 0;
  let given = true;
  for (const count of spans) {
    const first = Math.max(start, end);
    end = Math.min(end + count, stop);
    const size = given ? CHUNK_TOKENS : 1;
    for (let at = first; at < end; at += size) steps.push({ position: at, stop: Math.min(at + size, end) });
    given = !given;
  }
  return steps;
}

/** `spans` and `count` positions more. */
export function extended(spans: readonly number[], count: number, given: boolean): number[] {
  if (count === 0) return [...spans];
  if (spans.length === 0) return given ? [count] : [0, count];
  if ((spans.length % 2 === 1) === given) return [...spans.slice(0, -1), (spans.at(-1) ?? 0) + count];
  return [...spans, count];
}

/** The spans of the first `length` positions. */
export function cutSpans(spans: readonly number[], length: number): number[] {
  const kept: number[] = [];
  let left = length;
  for (const count of spans) {
    if (left <= 0) break;
    kept.push(Math.min(count, left));
    left -= count;
  }
  return kept;
}

/** The sum of the counts. */
export function sumOf(counts: readonly number[]): number {
  return counts.reduce((sum, count) => sum + count, 0);
}

/** How many leading tokens `a` and `b` share. */
export function commonPrefix(a: readonly number[], b: readonly number[]): number {
  const most = Math.min(a.length, b.length);
  for (let index = 0; index < most; index++) if (a[index] !== b[index]) return index;
  return most;
}

// --- rows in place of token ids (peer/session/given_rows.py)

/** Rows, float32 (count, hidden), for positions from `first` on. Those of one prompt rise and do not overlap. */
export interface GivenRows {
  readonly first: number;
  readonly tensor: Tensor;
  /** By how many places less than its rows those behind move on. */
  readonly lost?: number;
}

export const MAX_SHIFT = 2 ** 24; // places

interface Between {
  readonly position: number;
  readonly stop: number;
}

function sameTensor(a: Tensor, b: Tensor): boolean {
  return String(a.shape) === String(b.shape) && a.data.every((byte, at) => byte === b.data[at]);
}

function stopOf({ first, tensor }: GivenRows): number {
  return first + (tensor.shape[0] ?? 0);
}

/** The steps cut where rows begin and end, so that each is of ids alone or of rows alone. */
export function cutAt(steps: readonly Between[], given: readonly GivenRows[]): Between[] {
  const borders = [...new Set(given.flatMap((each) => [each.first, stopOf(each)]))].sort((a, b) => a - b);
  return steps.flatMap(({ position, stop }) => {
    const inside = borders.filter((border) => position < border && border < stop);
    const ends = [...inside, stop];
    return [position, ...inside].map((first, at) => ({ position: first, stop: ends[at] ?? stop }));
  });
}

/** The rows of a step from `position` to `stop`; null where it has token ids. */
export function rowsAt(given: readonly GivenRows[], position: number, stop: number): Tensor | null {
  const found = given.find((each) => each.first <= position && stop <= stopOf(each));
  return found === undefined ? null : rows(found.tensor, position - found.first, stop - found.first);
}

/** How many of the first `keep` positions have the same rows, or none, in both prompts. */
export function alikeUpTo(keep: number, before: readonly GivenRows[], after: readonly GivenRows[]): number {
  const firsts = [...before, ...after].map(({ first }) => first).filter((first) => first < keep);
  for (const position of firsts.sort((a, b) => a - b)) {
    const [old, fresh] = [before, after].map((given) => given.find(({ first }) => first === position));
    if (old === undefined || fresh === undefined || !sameTensor(old.tensor, fresh.tensor)) return position;
  }
  return keep;
}

/** By how much the place of the token at `position` differs from it. */
export function shiftAt(given: readonly GivenRows[], position: number): number {
  return given.reduce((sum, each) => (stopOf(each) <= position ? sum - (each.lost ?? 0) : sum), 0);
}

/** A step of token ids: int32 (count,), or (count, 2) with the shift of each. */
export function shiftedIds(ids: readonly number[], shift: number): Tensor {
  if (shift === 0) return tensorOf(Int32Array.from(ids), [ids.length]);
  return tensorOf(Int32Array.from(ids.flatMap((id) => [id, shift])), [ids.length, 2]);
}

/** The ids and the shift of a step; null for one of another form. */
export function idsOf(tensor: Tensor): { readonly ids: Int32Array; readonly shift: number } | null {
  const array = integers(tensor);
  const [count = 0, width] = tensor.shape;
  if (tensor.shape.length === 1) return { ids: array, shift: 0 };
  if (tensor.shape.length !== 2 || width !== 2 || count === 0) return null;
  const shift = array[1] ?? 0;
  if (Math.abs(shift) > MAX_SHIFT) return null;
  const ids = array.filter((_, at) => at % 2 === 0);
  return array.every((value, at) => at % 2 === 0 || value === shift) ? { ids, shift } : null;
}

const SHIFT_COLUMNS = 4; // at the end of rows whose places have axes: three of these, and a 0
const SHIFT_STEP = 2 ** -14; // what one place is in these columns

/** Rows of an embedding, (rows, width), with the shift of their tokens. */
export function shifted(made: Float32Array, width: number, shift: number): Float32Array {
  if (shift === 0) return made;
  const found = made.slice();
  for (let row = width; row <= found.length; row += width) {
    found.fill(shift * SHIFT_STEP, row - SHIFT_COLUMNS, row - 1);
    found[row - 1] = 0;
  }
  return found;
}
