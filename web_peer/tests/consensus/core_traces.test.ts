/* What cores of Python did in simulated runs, those of TypeScript do again: same effects, same state, step by step. */

import { readFileSync } from 'node:fs';

import { expect, it } from 'vitest';

import { textOf, valueOf } from '../../src/consensus/trace_json';
import { Core } from '../../src/consensus/core';
import type { Event } from '../../src/consensus/events';

interface Life {
  readonly name: string;
  readonly steps: (readonly [now: number, event: unknown, effects: unknown[], digest: string])[];
}

/** The lives in a file of traces; tests/vectors/consensus_traces.py says how they stand there. */
function livesOf(file: string): Life[] {
  const text = readFileSync(new URL(`../../../tests/vectors/${file}`, import.meta.url), 'utf-8');
  const lives: Life[] = [];
  for (const line of text.split('\n')) {
    if (line === '') continue;
    if (line.startsWith('# ')) lives.push({ name: line.slice(2), steps: [] });
    else if (line.startsWith('  ')) lives.at(-1)?.steps.at(-1)?.[2].push(JSON.parse(line));
    else {
      const [, now = '', digest = '', event = ''] = /^(\d+) ([0-9a-f]*) (.*)$/.exec(line) ?? [];
      lives.at(-1)?.steps.push([Number(now), JSON.parse(event), [], digest]);
    }
  }
  return lives;
}

it.each(['consensus.txt', 'consensus-ts.txt'])('%s', { timeout: 120_000 }, (file) => {
  const lives = livesOf(file);
  expect(lives.length).toBeGreaterThanOrEqual(500);
  for (const { name, steps } of lives) {
    const core = new Core();
    for (const [place, [now, event, effects, digest]] of steps.entries()) {
      const found = core.step(now, valueOf(event) as Event);
      const where = `${name}, step ${place}`;
      expect(`${where}: ${textOf(found)}`).toBe(`${where}: ${textOf(effects)}`);
      expect(`${where}: ${core.digest().slice(0, digest.length)}`).toBe(`${where}: ${digest}`);
    }
  }
});
