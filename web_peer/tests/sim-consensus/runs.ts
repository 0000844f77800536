/* Runs blocks of seeds and expects nothing wrong; two test files share 20,000, so that two workers run them. */

import { expect, it } from 'vitest';

import { runSeed } from './run';

const BLOCK = 1000;

/** Tests of seeds `first` to `stop`, a block each. */
export function runs(first: number, stop: number): void {
  for (let at = first; at < stop; at += BLOCK) {
    it(`seeds ${at} to ${at + BLOCK - 1}`, { timeout: 300_000 }, () => {
      for (let seed = at; seed < at + BLOCK; seed++) {
        const { problem } = runSeed(seed);
        expect({ seed, problem }).toEqual({ seed, problem: null });
      }
    });
  }
}
