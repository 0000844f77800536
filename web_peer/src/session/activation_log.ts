/*
 * What a stage handed on for one session, kept so that it can be handed on again (twin of
 * peer/session/activation_log.py).
 *
 * Pure. Positions are contiguous, [start, stop). Over the bound the oldest go: whoever needs those has them computed
 * anew.
 */

import type { Tensor } from '../wire/tensors';

interface Entry {
  readonly position: number;
  readonly tensor: Tensor;
}

/** Outputs of one stage for one session: tensors of shape (count, hidden) at rising positions. */
export class ActivationLog {
  start = 0;
  stop = 0;
  bytes = 0;
  private entries: Entry[] = [];
  private readonly limit: number;

  constructor(limitBytes: number) {
    this.limit = limitBytes;
  }

  /** Takes the output for positions from `position` on; those that were there before give way. */
  append(position: number, tensor: Tensor): void {
    if (position < this.stop) this.cut(position);
    if (position !== this.stop) this.clear(position);
    this.entries.push({ position, tensor });
    this.stop = position + rowsIn(tensor);
    this.bytes += tensor.data.length;
    while (this.bytes > this.limit && this.entries.length > 0) this.dropOldest();
  }

  /** Everything from `position` on; null when the log does not reach back so far. */
  since(position: number): Entry[] | null {
    if (position < this.start) return null;
    const found: Entry[] = [];
    for (const { position: at, tensor } of this.entries) {
      const stop = at + rowsIn(tensor);
      if (stop <= position) continue;
      const first = Math.max(at, position);
      found.push({ position: first, tensor: rows(tensor, first - at, stop - at) });
    }
    return found;
  }

  /** Forgets positions from `length` on. */
  cut(length: number): void {
    for (let last = this.entries.at(-1); last !== undefined; last = this.entries.at(-1)) {
      const stop = last.position + rowsIn(last.tensor);
      if (stop <= length) break;
      this.entries.pop();
      this.bytes -= last.tensor.data.length;
      if (last.position < length) {
        const kept = rows(last.tensor, 0, length - last.position);
        this.entries.push({ position: last.position, tensor: kept });
        this.bytes += kept.data.length;
      }
    }
    this.stop = Math.min(this.stop, length);
    this.start = Math.min(this.start, this.stop);
  }

  /** Forgets everything; the next output is that of `position`. */
  clear(position: number): void {
    this.entries = [];
    this.bytes = 0;
    this.start = this.stop = position;
  }

  /** Gives up the oldest entry, if there is one. */
  dropOldest(): void {
    const oldest = this.entries.shift();
    if (oldest === undefined) return;
    this.bytes -= oldest.tensor.data.length;
    this.start = oldest.position + rowsIn(oldest.tensor);
  }
}

/** How many rows (positions) a tensor of activations has. */
export function rowsIn(tensor: Tensor): number {
  return tensor.shape[0] ?? 0;
}

/** Rows [first, stop) of a tensor, itself when that is all of it. */
export function rows(tensor: Tensor, first: number, stop: number): Tensor {
  const count = rowsIn(tensor);
  if (first === 0 && stop === count) return tensor;
  const rowBytes = tensor.data.length / count;
  return {
    dtype: tensor.dtype,
    shape: [stop - first, ...tensor.shape.slice(1)],
    data: tensor.data.subarray(first * rowBytes, stop * rowBytes),
  };
}
