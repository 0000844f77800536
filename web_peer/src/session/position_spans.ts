/*
 * Which positions of a session were given and which were sampled, and the steps that send them (twin of
 * peer/session/position_spans.py).
 *
 * Pure. Spans count given and sampled positions by turns, given ones first. Attention adds up in another order for one
 * token than for several: given positions are computed together, in any chunks, sampled ones alone, and only so do
 * bits repeat.
 */

import { rows } from './activation_log';
import type { Tensor } from '../wire/tensors';

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
}

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
