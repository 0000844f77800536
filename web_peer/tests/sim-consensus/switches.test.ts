/* Defects that are put into the core show in one of the first simulated runs. The rarer ones are left to Python. */

import { expect, it } from 'vitest';

import { BUGS } from '../../src/consensus/bugs';
import { runSeed } from './run';

const MOST = 1000; // schedules until a defect has been found
const RARE = new Set([8, 11, 20, 21, 25, 35, 39, 41, 43, 45, 50]); // or covered by other parts of the core

const common = Object.keys(BUGS).filter((bug) => !RARE.has(Number(bug.split('-')[0])));

it.each(common)('%s', { timeout: 120_000 }, (bug) => {
  let seed = 0;
  while (seed < MOST && runSeed(seed, { bug }).problem === null) seed++;
  expect(seed).toBeLessThan(MOST);
});
