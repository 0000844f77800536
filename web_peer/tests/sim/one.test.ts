/* Schedules by their seeds, one with all that happens in it: SEED=7 npx vitest run tests/sim/one.test.ts */

import { env, stdout } from 'node:process';

import { expect, it } from 'vitest';

import { calm, makeSchedule } from './schedule';
import { runSchedule } from './world';

const SEED = Number(env['SEED'] ?? '-1');
const COUNT = Number(env['COUNT'] ?? '1');

it.runIf(SEED >= 0)('runs the seeds it is given', () => {
  let wrong = 0;
  const begun = performance.now();
  const write = (line: string): void => {
    stdout.write(`${line}\n`);
  };
  const trace = (now: number, who: string, what: string): void => {
    write(`${now.toFixed(4).padStart(9)} ${who.padStart(6)} ${what}`);
  };
  for (let seed = SEED; seed < SEED + COUNT; seed++) {
    const schedule = env['CALM'] === undefined ? makeSchedule(seed) : calm(makeSchedule(seed));
    if (COUNT === 1) write(JSON.stringify(schedule));
    const { problems } = runSchedule(schedule, COUNT === 1 ? trace : undefined);
    for (const problem of problems) write(`seed ${seed}: ${problem}`);
    if (problems.length > 0) wrong += 1;
  }
  write(`${wrong} of ${COUNT} wrong, ${((performance.now() - begun) / COUNT).toFixed(2)} ms each`);
  expect(wrong).toBe(0);
});
