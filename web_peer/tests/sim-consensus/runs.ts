/* Runs blocks of seeds and expects nothing wrong; two test files share them, so that two workers run them. */

import { expect, it } from 'vitest';

import { seeds } from '../seeds';
import { runSeed } from './run';

const SEEDS = 20_000; // of the whole series
const BLOCK = 1000;

/** Tests of one half of the seeds, a block each. */
export function runs(half: 'first' | 'second'): void {
  const count = seeds(SEEDS) / 2;
  const start = half === 'first' ? 0 : count;
  for (let at = start; at < start + count; at += BLOCK) {
    const stop = Math.min(at + BLOCK, start + count);
    it(`seeds ${at} to ${stop - 1}`, { timeout: 300_000 }, () => {
      for (let seed = at; seed < stop; seed++) {
        const { problem } = runSeed(seed);
        expect({ seed, problem }).toEqual({ seed, problem: null });
      }
    });
  }
}
