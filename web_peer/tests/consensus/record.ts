/*
 * Writes tests/vectors/consensus-ts.txt: what cores of TypeScript did in simulated runs, for those of Python to do
 * again. How a life of a server stands there is in tests/vectors/consensus_traces.py. Digests have their
 * first 8 digits. Lives are chosen so that every shape (a kind of event, the role it finds, the kinds of
 * effects it has) that the runs show is there.
 */

import { writeFileSync } from 'node:fs';

import { textOf } from '../../src/consensus/trace_json';
import { Core } from '../../src/consensus/core';
import type { Effect, Event } from '../../src/consensus/events';
import { runSeed } from '../sim-consensus/run';

const SEEDS = Number(process.env['SEEDS'] ?? 2500);
const LIVES = 520;
const MOST_STEPS = 70;
const DIGITS = 8;

interface Life {
  readonly name: string;
  readonly lines: string[];
  readonly shapes: string[];
}

function nameOf(value: Event | Effect): string {
  if (value.kind === 'received' || value.kind === 'send') return value.message.body.kind;
  if (value.kind === 'change_config') return value.change.kind;
  return value.kind === 'reject' ? `reject ${value.reason}` : value.kind;
}

function recorded(seed: number): Life[] {
  const lives = new Map<string, Life>();
  runSeed(seed, {
    record(member, now, event, effects) {
      const name = `seed ${seed} ${member.id} ${member.boots}`;
      const life = lives.get(name) ?? { name, lines: [], shapes: [] };
      lives.set(name, life);
      if (life.lines.length >= MOST_STEPS || !(member.core instanceof Core)) return;
      const digest = member.core.digest().slice(0, DIGITS);
      life.lines.push(
        [`${now} ${digest} ${textOf(event)}\n`, ...effects.map((one) => `  ${textOf(one)}\n`)].join(''),
      );
      const kinds = [...new Set(effects.map(nameOf))].sort();
      life.shapes.push([member.role, nameOf(event), ...kinds].join(' '));
    },
  });
  return [...lives.values()];
}

/** First those that show what none before did, each up to its last news; then the shortest of the others. */
function chosen(found: readonly Life[]): Life[] {
  const seen = new Set<string>();
  const fresh: Life[] = [];
  const rest: Life[] = [];
  for (const life of found) {
    const last = life.shapes.findLastIndex((shape) => !seen.has(shape));
    if (last < 0) {
      if (life.lines.length > 8) rest.push(life);
      continue;
    }
    life.lines.length = life.shapes.length = last + 1;
    for (const shape of life.shapes) seen.add(shape);
    fresh.push(life);
  }
  rest.sort((a, b) => a.lines.length - b.lines.length);
  return [...fresh, ...rest.slice(0, Math.max(0, LIVES - fresh.length))];
}

const lives = chosen(Array.from({ length: SEEDS }, (_, seed) => recorded(seed)).flat());
const text = lives.map(({ name, lines }) => `# ${name}\n${lines.join('')}`).join('');
writeFileSync(
  process.env['TARGET'] ?? new URL('../../../tests/vectors/consensus-ts.txt', import.meta.url),
  text,
);
const steps = lives.reduce((sum, { lines }) => sum + lines.length, 0);
process.stdout.write(`${lives.length} lives, ${steps} steps, ${text.length} characters\n`);
