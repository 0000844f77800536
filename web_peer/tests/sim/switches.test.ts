/* Every defect that is put into the cores shows in one of the first simulated runs. */

import { expect, it } from 'vitest';

import { makeSchedule } from './schedule';
import { SWITCHES } from './switches';
import { runSchedule } from './world';

const MOST = 2000; // schedules until a defect has been found

/** What is wrong with one run. A core that throws is wrong too. */
function problemOf(seed: number): string | undefined {
  try {
    return runSchedule(makeSchedule(seed)).problems[0];
  } catch (error) {
    return error instanceof Error ? error.message : 'thrown';
  }
}

it.each(Object.entries(SWITCHES))('%s', { timeout: 120_000 }, (_, { apply }) => {
  const undo = apply();
  try {
    let seed = 0;
    while (seed < MOST && problemOf(seed) === undefined) seed++;
    expect(seed).toBeLessThan(MOST);
  } finally {
    undo();
  }
});
