/* The log: the same commands build the same states, to the byte, and the same bytes are refused. */

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { BadCommand } from '../../src/errors';
import { seenAs } from '../../src/state/decoder_sight';
import {
  apply,
  decodeState,
  EMPTY_STATE,
  encodeState,
  serving,
  stateDigest,
} from '../../src/state/mesh_state';
import { decodeCommand, encodeCommand } from '../../src/state/member_commands';
import { holdersOf } from '../../src/state/plan_record';
import { vectors } from '../vectors';

interface Vectors {
  readonly wire: { why: string; what: 'command' | 'state'; body: string; error: string }[];
  readonly traces: {
    name: string;
    term: number;
    ops: { command: string; state: string; serving: number | null; seen: Record<string, string> }[];
  }[];
}

const VECTORS = vectors('mesh_state') as Vectors;
const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const text = (encoded: Uint8Array): string => new TextDecoder().decode(encoded);

describe('traces', () => {
  it.each(VECTORS.traces)('$name', ({ term, ops }) => {
    let state = { ...EMPTY_STATE, term };
    for (const op of ops) {
      const command = decodeCommand(bytes(op.command));
      expect(text(encodeCommand(command))).toBe(op.command);
      state = apply(state, command);
      expect(text(encodeState(state))).toBe(op.state);
      expect(serving(state)?.version ?? null).toBe(op.serving);
      for (const [name, digest] of Object.entries(op.seen)) {
        expect(stateDigest(seenAs(state, name))).toBe(digest);
      }
      expect(text(encodeState(decodeState(bytes(op.state))))).toBe(op.state);
    }
  });
});

describe('wire', () => {
  it.each(VECTORS.wire)('$what: $why', ({ what, body, error }) => {
    expect(outcome(what, bytes(body))).toBe(error);
  });

  it('any change of bytes gives a value or BadCommand', () => {
    const good = VECTORS.traces.flatMap(({ ops }) => ops.slice(-3));
    fc.assert(
      fc.property(
        fc.constantFrom(...good),
        fc.constantFrom('command', 'state'),
        fc.array(fc.tuple(fc.nat(5000), fc.nat(255)), { maxLength: 3 }),
        (op, what, changes) => {
          const body = bytes(op[what]);
          for (const [at, byte] of changes) body[at % body.length] = byte;
          outcome(what, body);
        },
      ),
      { numRuns: 1000 },
    );
  });
});

it('holders of a plan are its primaries and standbys', () => {
  const rest = { weightBytes: 0, kvBytes: 0, overheadBytes: 0 };
  const stages = [
    { first: 0, stop: 3, primary: 'a', standbys: ['b'], ...rest },
    { first: 3, stop: 6, primary: 'b', standbys: [], ...rest },
  ];
  const plan = { version: 1, stages, predictedTokenUs: 0, predictedRateMilli: 0, why: [], choices: [] };
  const low = { first: 0, stop: 3 };
  expect([...holdersOf(plan)]).toEqual([
    ['a', [low]],
    ['b', [low, { first: 3, stop: 6 }]],
  ]);
});

function outcome(what: 'command' | 'state', body: Uint8Array): string {
  try {
    if (what === 'command') decodeCommand(body);
    else decodeState(body);
    return 'none';
  } catch (error) {
    if (error instanceof BadCommand) return error.name;
    throw error;
  }
}
