/* Simulated runs in which nothing goes wrong answer as one peer with the whole model does. */

import { expect, it } from 'vitest';

import { seeds } from '../seeds';
import { calm, makeSchedule } from './schedule';
import { runSchedule } from './world';

const CALM = seeds(3000);

it('calm runs answer as a single peer does', () => {
  for (let seed = 0; seed < CALM; seed++) {
    const { problems } = runSchedule(calm(makeSchedule(seed)));
    expect({ seed, problems }).toEqual({ seed, problems: [] });
  }
});
