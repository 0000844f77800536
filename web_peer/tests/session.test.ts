/* The asker's traces, step by step as Python took them. */

import { describe, expect, it } from 'vitest';

import { ContextOverflow } from '../src/errors';
import type { Refuse, Token } from '../src/frames';
import { samplingOf } from '../src/sampling';
import { type Ask, commonPrefix, type OriginEffect, OriginSession, REASONS, roomFor } from '../src/session';
import { deepCamel, frameOf, planOf, type Row, shown } from './traces';
import { vectors } from './vectors';

interface Op extends Row {
  readonly do: string;
  readonly now: number;
  readonly gives: Row[];
  readonly after: unknown[];
}
interface Vectors {
  readonly rooms: { given: [number, number | null, number]; gives: number | string }[];
  readonly traces: { name: string; session: string; me: string; ops: Op[] }[];
}

const VECTORS = vectors('session') as Vectors;

it.each(VECTORS.rooms)('room for $given', ({ given, gives }) => {
  if (typeof gives === 'number') expect(roomFor(...given)).toBe(gives);
  else expect(() => roomFor(...given)).toThrow(new ContextOverflow(gives));
});

describe('traces', () => {
  it.each(VECTORS.traces)('$name', ({ session, me, ops }) => {
    const core = new OriginSession(session, me);
    ops.forEach((op, at) => {
      const gives = perform(core, op).map(effect);
      const after = [core.phase, core.turn, core.start, core.tokens.length];
      expect({ at, op: op.do, gives, after }).toEqual({ at, op: op.do, gives: op.gives, after: op.after });
    });
  });
});

function perform(core: OriginSession, op: Op): OriginEffect[] {
  const { now } = op;
  switch (op.do) {
    case 'begin':
      return core.begin(now, planOf(op['plan'] as Row), askOf(op['ask'] as Row));
    case 'token':
      return core.token(now, op['sender'] as string, frameOf(op['frame'] as Row) as Token);
    case 'refused':
      return core.refused(now, op['sender'] as string, frameOf(op['frame'] as Row) as Refuse);
    case 'peer_gone':
      return core.peerGone(now, op['peer'] as string, op['why'] as string);
    case 'reroute':
      return core.reroute(now, planOf(op['plan'] as Row));
    case 'tick':
      return core.tick(now);
    case 'cancel':
      return core.cancel();
    case 'release':
      return core.release();
    default:
      throw new Error(`unknown operation ${op.do}`);
  }
}

function askOf(row: Row): Ask {
  const ask = deepCamel(row) as Ask;
  return { ...ask, sampling: samplingOf(ask.sampling) };
}

function effect(item: OriginEffect): unknown {
  switch (item.kind) {
    case 'send':
      return { send: item.peer, frame: shown(item.frame) };
    case 'emit':
      return { emit: item.token, position: item.position };
    case 'ended':
      return { ended: item.why };
    case 'broken':
      return { broken: item.text, reason: REASONS[item.reason] };
    case 'findRoute':
      return { find_route: shown(item.without), soon: item.soon };
    default:
      return item satisfies never;
  }
}

it('an active session cannot be asked', () => {
  const core = new OriginSession('00'.repeat(16), 'asker');
  const stage = {
    first: 0,
    stop: 2,
    primary: 'p0',
    standbys: [],
    weightBytes: 0,
    kvBytes: 0,
    overheadBytes: 0,
  };
  const plan = { version: 1, stages: [stage], predictedTokenUs: 0, predictedRateMilli: 0, why: [] };
  const ask: Ask = { prompt: [1], maxTokens: 1, sampling: samplingOf({}), endTokens: [] };
  core.begin(0, plan, ask);
  expect(() => core.begin(0, plan, ask)).toThrow('cancel it before it is asked again');
});

it.each([
  [[], [1], 0],
  [[1, 2], [1, 2, 3], 2],
  [[1, 2, 3], [1, 5, 3], 1],
])('%j and %j share %i tokens', (a, b, count) => {
  expect(commonPrefix(a, b)).toBe(count);
});
