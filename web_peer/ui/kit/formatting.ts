/* Numbers and runs of units in the words people read. Pure. */

import type { Run } from '../app/view';

const UNITS = ['B', 'kB', 'MB', 'GB', 'TB'] as const;

/** "412 MB", "1.2 GB": decimal, as browsers and phones count. */
export function bytesText(bytes: number): string {
  let value = Math.max(0, bytes);
  let unit = 0;
  while (value >= 999.5 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  const digits = value >= 100 || unit < 2 || Number.isInteger(value) ? 0 : 1;
  return `${value.toFixed(digits)} ${UNITS[unit] ?? 'TB'}`;
}

/** "4 s", "2 min", "1 h 5 min". */
export function secondsText(seconds: number): string {
  if (seconds < 60) return `${Math.max(1, Math.ceil(seconds))} s`;
  const minutes = Math.ceil(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const rest = minutes % 60;
  return rest === 0 ? `${Math.floor(minutes / 60)} h` : `${Math.floor(minutes / 60)} h ${rest} min`;
}

/** "0.8 ms", "24 ms": one digit below 10. */
export function delayText(ms: number): string {
  if (ms < 0.1) return '< 0.1 ms';
  return ms < 10 ? `${ms.toFixed(1)} ms` : `${Math.round(ms)} ms`;
}

/** "12.4 tokens/s". */
export function rateText(perSecond: number): string {
  const digits = perSecond >= 100 ? 0 : 1;
  return `${perSecond.toFixed(digits)} tokens/s`;
}

/** A whole number with separators of thousands: "12,345". */
export function countText(count: number): string {
  return count.toLocaleString('en-US');
}

/**
 * Units [first, stop) of a decoder with `units` units, in people's words: "embedding, layers 1–14". The units are
 * embed, then attn and ffn of each layer, then head; a layer cut in two is "half of layer 15".
 */
export function runText(run: Run, units: number): string {
  const [first, stop] = run;
  if (units > 0 && first === 0 && stop === units) return 'the whole model';
  const parts: string[] = [];
  let from = Math.max(first, 1);
  const to = Math.min(stop, units - 1);
  if (first === 0 && stop > 0) parts.push('embedding');
  if (from < to) {
    if (from % 2 === 0) {
      parts.push(`half of layer ${from / 2}`); // its ffn: its attn is elsewhere
      from += 1;
    }
    const whole = to % 2 === 1 ? to : to - 1;
    const [low, high] = [(from + 1) / 2, (whole - 1) / 2];
    if (low <= high) parts.push(low === high ? `layer ${low}` : `layers ${low}–${high}`);
    if (whole < to && whole >= from) parts.push(`half of layer ${to / 2}`);
  }
  if (stop === units && units > 1) parts.push('head');
  return parts.join(', ');
}

/** Runs of a model of `units` units, with semicolons between them. */
export function runsText(runs: readonly Run[], units: number): string {
  return runs.map((run) => runText(run, units)).join('; ');
}

/** Ways of saying what a link is good for: one on this machine leads nobody else here. */
export function isLoopback(link: string): boolean {
  try {
    const host = new URL(link).hostname;
    return host === 'localhost' || host === '[::1]' || host.startsWith('127.');
  } catch {
    return false;
  }
}

/** Units of an offered model: "units 0–4". */
export function offeredUnitsText({ first, stop }: { readonly first: number; readonly stop: number }): string {
  return stop - first === 1 ? `unit ${first}` : `units ${first}–${stop - 1}`;
}
