/*
 * How many positions of a session are kept where attention looks at a window of them, and where what is kept begins
 * (twin of planner/model/kv_window.py). Pure.
 *
 * Older positions are dropped whole blocks at a time, so that the kernels add up what is left in the same order as if
 * everything were there: results are equal to the bit. `docs/numerics.md` says why blocks are so large.
 */

const REWIND = 64; // positions behind the window that stay, for a session that takes tokens back
const LEAST = 128; // positions that stay in any case: kernels treat fewer of them otherwise
const CALL = 96; // positions that one call may add: a piece of a prompt and its company
const BLOCK = 512; // positions that are dropped at a time: a multiple of what kernels add up in one go
const BLOCK_NUMBERS = 1 << 14; // of a block of one head, at least: small heads are added up in longer runs

/** A token looks at `tokens` last ones, itself included; `block` positions go at a time. */
export interface KvWindow {
  readonly tokens: number;
  readonly block: number;
}

/** The last positions that always stay. */
function keptOf({ tokens }: KvWindow): number {
  return Math.max(tokens - 1 + REWIND, LEAST);
}

/** The most positions that a session occupies. */
export function windowCapacity(window: KvWindow): number {
  return keptOf(window) + window.block - 1 + CALL;
}

/** The first position that stays of `length`: 0 or a multiple of the block. */
export function firstKept(window: KvWindow, length: number): number {
  return Math.floor(Math.max(length - keptOf(window), 0) / window.block) * window.block;
}

/** Whether a session of `length` positions can go on where those before `first` were dropped. */
export function windowHolds(window: KvWindow, first: number, length: number): boolean {
  return first === 0 || length - first >= keptOf(window) - REWIND;
}

/**
 * Of a model with these states; null where none has a window. One for all states with a window: the largest.
 */
export function windowOf(
  states: readonly { readonly headSize: number; readonly window: number | null }[],
): KvWindow | null {
  const windows = states.flatMap(({ headSize, window }) => (window === null ? [] : [{ headSize, window }]));
  if (windows.length === 0) return null;
  const numbers = Math.floor(BLOCK_NUMBERS / Math.min(...windows.map(({ headSize }) => headSize)));
  const block = Math.ceil(Math.max(BLOCK, numbers) / BLOCK) * BLOCK;
  return { tokens: Math.max(...windows.map(({ window }) => window)), block };
}
