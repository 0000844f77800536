/* Fronts of prompts: which are kept, and which sessions begin with one, step by step as Python took them. */

import { createHash } from 'node:crypto';

import { describe, expect, it } from 'vitest';

import type { Open } from '../../src/wire/generated/frames';
import { named, Prefixes, split } from '../../src/session/prefix_cache';
import { sha256 } from '../../src/wire/sha256';
import { NO_RULES } from '../../src/session/stage';
import { marksOfSeat } from '../../src/audit/witness';
import { effect, perform, servingCore, type StageTrace, stateOf } from './stage_traces';
import { frameOf, type Row } from '../traces';
import { vectors } from '../vectors';

interface Vectors {
  readonly words: { frame: Row; rest: number[]; front: [number, string] | null }[];
  readonly traces: (StageTrace & { most_bytes: number; position_bytes: number })[];
}

const { words, traces } = vectors('prefixes') as Vectors;

it.each(words)('OPEN names $front', ({ frame: row, rest, front }) => {
  const frame = frameOf(row) as Open;
  const [bare, prefix] = split(frame);
  expect({ rest: bare.sampling, front: prefix === null ? null : [prefix.count, prefix.digest] }).toEqual({
    rest,
    front,
  });
  if (prefix !== null) expect(named(bare, prefix)).toEqual(frame);
});

describe('traces', () => {
  it.each(traces)('$name', ({ ops, most_bytes: mostBytes, position_bytes: positionBytes }) => {
    const core = servingCore(positionBytes);
    const { prefixes } = core;
    prefixes.bound(mostBytes);
    ops.forEach((op, at) => {
      const gives = perform(core, op).map(effect);
      const fronts = [prefixes.size, prefixes.keptBytes, prefixes.reused, prefixes.logBytes];
      const after = stateOf(core);
      expect({ at, op: op.do, gives, after, fronts }).toEqual({
        ...{ at, op: op.do, gives: op.gives, after: op.after, fronts: op['fronts'] },
      });
    });
  });

  it('give up what was used least when there is less room', () => {
    const trace = traces.find(({ name }) => name.startsWith('random'));
    const core = servingCore();
    const { prefixes } = core;
    for (const op of trace?.ops ?? []) if (op.do !== 'drop') perform(core, op);
    const { size, keptBytes } = prefixes;
    expect(size).toBeGreaterThan(2);
    const [first, ...rest] = prefixes.bound(keptBytes - 1);
    expect([first?.what, rest]).toEqual(['drop', []]);
    expect(prefixes.size).toBe(size - 1);
    expect(prefixes.bound(0)).toHaveLength(size - 1);
    expect(prefixes.keptBytes).toBe(0);
  });
});

it('a seat has the marks of a front that was copied, and of what came behind it', async () => {
  const trace = traces.find(({ name }) => name.endsWith('at stage 1'));
  const core = servingCore();
  const told = async (session: string): Promise<string | null> => {
    const seat = core.seatAt(session, 1);
    return seat === undefined ? null : marksOfSeat(seat, 0, 12);
  };
  const first: (string | null)[] = [];
  for (const op of trace?.ops ?? []) {
    perform(core, op);
    first.push(await told('01'.repeat(16)));
    if (core.prefixes.reused > 0 && op.do === 'step') break;
  }
  const [marks] = first.filter((each) => each !== null);
  expect(marks).toMatch(/^[0-9a-f]{192}$/); // eight bytes of each of twelve
  expect(await told('02'.repeat(16))).toBe(marks);
});

it('nothing is kept without room', () => expect(new Prefixes(NO_RULES, 0).keptBytes).toBe(0));

it.each([0, 1, 55, 56, 63, 64, 65, 119, 120, 2304])('the hash of %i bytes is that of others', (length) => {
  const bytes = Uint8Array.from({ length }, (_, at) => (at * 7) & 255);
  expect(Buffer.from(sha256(bytes)).toString('hex')).toBe(createHash('sha256').update(bytes).digest('hex'));
});
