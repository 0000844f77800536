/* The asker's traces, step by step as Python took them. */

import { describe, expect, it } from 'vitest';

import { ContextOverflow } from '../../src/errors';
import { MAX_SPANS } from '../../src/limits';
import type { Open } from '../../src/wire/generated/frames';
import type { Route } from '../../src/session/routes';
import { samplingOf } from '../../src/session/sampling';
import { type Ask, OriginSession, roomFor } from '../../src/session/origin';
import { effect, perform, type SessionTrace, stateOf } from './session_traces';
import { vectors } from '../vectors';

interface Vectors {
  readonly rooms: { given: [number, number | null, number]; gives: number | string }[];
  readonly traces: SessionTrace[];
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
      const after = stateOf(core);
      expect({ at, op: op.do, gives, after }).toEqual({ at, op: op.do, gives: op.gives, after: op.after });
    });
  });
});

const ROUTE: Route = { plan: 1, peers: ['p0'], shadows: [] };

function askFor(prompt: readonly number[]): Ask {
  return { prompt, maxTokens: 2, sampling: samplingOf({}), endTokens: [] };
}

it('an active session cannot be asked', () => {
  const core = new OriginSession('00'.repeat(16), 'asker');
  core.begin(0, ROUTE, askFor([1]));
  expect(() => core.begin(0, ROUTE, askFor([1]))).toThrow('cancel it before it is asked again');
});

it('a talk with more spans than an OPEN holds is begun anew', () => {
  const core = new OriginSession('00'.repeat(16), 'asker');
  let prompt = [1];
  const opened: Open[] = [];
  for (let answer = 0; answer < MAX_SPANS / 2 + 2; answer++) {
    for (const item of core.begin(0, ROUTE, askFor(prompt))) {
      if (item.kind === 'send' && item.frame.kind === 'OPEN') opened.push(item.frame);
    }
    const { session, turn } = core;
    for (const finish of [0, 2]) {
      core.token(0, 'p0', { kind: 'TOKEN', session, turn, position: core.tokens.length, token: 7, finish });
    }
    prompt = [...core.tokens, 5];
  }
  expect(Math.max(...opened.map(({ spans }) => spans.length))).toBe(MAX_SPANS - 1);
  expect(opened.filter(({ keep }) => keep === 0)).toHaveLength(2); // the first one, and the one that begins anew
});
