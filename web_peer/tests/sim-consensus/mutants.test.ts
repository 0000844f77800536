/* Defects that are put into the core show in one of the first simulated runs. The rarer ones are left to Python. */

import { expect, it } from 'vitest';

import { coreOf, MUTANTS } from '../consensus/mutants';
import { runSeed } from './run';

const MOST = 1000; // schedules until a defect has been found
const RARE = new Set([8, 11, 20, 21, 25, 35, 39, 41, 43, 45, 50]); // or covered by other parts of the core

const common = [...MUTANTS.values()].filter(({ name }) => !RARE.has(Number(name.split('-')[0])));

it.each(common)('$name', { timeout: 120_000 }, async (mutant) => {
  const makeCore = await coreOf(mutant);
  let seed = 0;
  while (seed < MOST && runSeed(seed, { makeCore }).problem === null) seed++;
  expect(seed).toBeLessThan(MOST);
  expect(runSeed(seed).problem).toBeNull(); // what it says comes from the defect
});
