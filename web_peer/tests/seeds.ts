/* How many seeds a series of simulated runs has: as tests/seeds.py, by the same variable. */

import { env } from 'node:process';

const SHARES = new Map([
  ['soak', 1],
  ['test', 20],
  ['quick', 50],
]); // one seed of so many is run

/** How many of the `whole` seeds of a series are run, from its first one on; at least one. */
export function seeds(whole: number): number {
  const series = env['SHOAL_TEST_SERIES'] || 'test';
  const share = SHARES.get(series);
  if (share === undefined)
    throw new Error(`SHOAL_TEST_SERIES: expected one of ${[...SHARES.keys()].join(', ')}, found ${series}`);
  return Math.max(1, Math.floor(whole / share));
}
