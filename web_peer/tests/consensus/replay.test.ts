/* What cores of Python did in simulated runs, those of TypeScript do again: same effects, same state, step by step. */

import { existsSync, readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';

import { expect, it } from 'vitest';

import { textOf, valueOf } from '../../src/consensus/trace_json';
import { Core } from '../../src/consensus/core';
import type { Event } from '../../src/consensus/events';

interface Life {
  readonly name: string;
  readonly steps: readonly (readonly [now: number, event: unknown, effects: unknown, digest: string])[];
}

function livesOf(file: string): Life[] {
  const path = new URL(`../../../tests/vectors/${file}`, import.meta.url);
  const text = existsSync(path) ? gunzipSync(readFileSync(path)).toString('utf-8') : '';
  return text.split('\n').flatMap((line) => (line === '' ? [] : [JSON.parse(line) as Life]));
}

it.each(['consensus.jsonl.gz', 'consensus-ts.jsonl.gz'])('%s', { timeout: 120_000 }, (file) => {
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
