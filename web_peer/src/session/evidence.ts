/*
 * Decides what a seat can show of its inputs, and whether a result is what its units make of them (twin of
 * peer/session/evidence.py). Pure.
 */

import { type ActivationLog, rowsIn } from './activation_log';
import { otherBits, sameBits } from '../planner/arithmetic_class';
import type { WitnessAnswer } from '../wire/generated/requests';

export const MARK_BYTES = 8;
const SAME_CLASS = 0; // relative distance of two results of one class of arithmetic, added up in the same order
const SAME = 0.001; // of two that were made with the same rounding (docs/numerics.md)
const ALIKE = 0.25; // where one side rounds activations to 8 bits and the other does not, or may round to the other side
const PLAIN_FORM = 'plain'; // in the form of a class: a process whose products do not round
const PAGE_BYTES = 2 * 384 * 1024; // of activations in one answer
const AT_ONCE = 8192; // bytes that become text in one call: one by one, a page of them holds up the thread

export type Rounding = 'rounded' | 'plain' | 'unknown';
export type Bytes = Uint8Array<ArrayBuffer>;

/** Whether a peer with this provider is a browser's tab. */
export function isTab(provider: string): boolean {
  return provider === 'wasm' || provider === 'webgpu';
}

/** What is known of how a peer computes: its provider, and its class of arithmetic. */
export interface Computes {
  readonly provider: string;
  readonly arithmetic: string;
}

/** How a peer multiplies packed weights: with activations rounded to 8 bits, or as they are. */
export function rounding(weights: string, { provider, arithmetic }: Computes): Rounding {
  if (isTab(provider)) return 'plain';
  if (provider !== 'cpu') return 'unknown'; // kernels of other devices were not measured
  const form = arithmetic.split('/')[2] ?? '';
  const isPacked = weights === '8bit' || weights === '4bit';
  return isPacked && !form.split('-').includes(PLAIN_FORM) ? 'rounded' : 'plain';
}

/**
 * The largest distance of two honest results. `classes`: of the arithmetic of both, where both added up in the same
 * order; in another order no bits are repeated.
 *
 * Within a class bits are equal. Another class adds up in another order: without rounding that moves a result by some
 * millionths, with it an activation may fall to the other side, and a result of a stage moves by 1 to 2 %. Of unknown
 * classes it is taken that both machines are of one kind. Devices other than a CPU may add up otherwise from one call
 * to the next: a class says only that their kernels are the same.
 */
export function limit(
  mine: Rounding,
  theirs: Rounding,
  classes: readonly [string, string] = ['', ''],
): number {
  if (sameBits(...classes)) return mine === 'unknown' || theirs === 'unknown' ? SAME : SAME_CLASS;
  if (mine !== theirs || mine === 'unknown') return ALIKE;
  return mine === 'rounded' && otherBits(...classes) ? ALIKE : SAME;
}

/** How far a row is from what it should be, relative to its length. Infinite where they have nothing in common. */
export function distance(seen: Float32Array, computed: Float32Array): number {
  if (seen.length !== computed.length || !seen.every(Number.isFinite)) return Infinity;
  let length = 0;
  let gap = 0;
  for (let at = 0; at < computed.length; at++) {
    const own = computed[at] ?? 0;
    length += own * own;
    gap += ((seen[at] ?? 0) - own) ** 2;
  }
  if (length > 0) return Math.sqrt(gap) / Math.sqrt(length);
  return gap === 0 ? 0 : Infinity;
}

/** The bytes of positions [first, stop) of what `log` keeps; null when they are not all there. */
export function spanOf(log: ActivationLog, first: number, stop: number): Bytes | null {
  const found = first >= log.start && stop <= log.stop ? log.since(first) : null;
  if (found === null || found.length === 0) return null;
  const parts = found
    .filter(({ position }) => position < stop)
    .map(({ position, tensor }) => {
      const width = tensor.data.length / rowsIn(tensor);
      return tensor.data.subarray(0, Math.min(rowsIn(tensor), stop - position) * width);
    });
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** Whether one answer carries so much of activations. */
export const fitsPage = (bytes: number): boolean => bytes <= PAGE_BYTES;

/** Rows as a witness tells them; null where they are too many for one answer. */
export function rowsAnswer(found: Uint8Array | null): WitnessAnswer {
  return { rows: found === null || !fitsPage(found.length) ? null : base64(found) };
}

/** The bytes in base64. */
export function base64(bytes: Uint8Array): string {
  let text = '';
  for (let at = 0; at < bytes.length; at += AT_ONCE) {
    text += Reflect.apply(String.fromCharCode, null, bytes.subarray(at, at + AT_ONCE)) as string;
  }
  return btoa(text);
}

/** Null for what is no base64. */
export function fromBase64(text: string): Bytes | null {
  let binary: string;
  try {
    binary = atob(text);
  } catch {
    return null;
  }
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < bytes.length; at += 1) bytes[at] = binary.charCodeAt(at);
  return bytes;
}
