/* How answers move to another plan's route, step by step as Python took it. */

import { describe, expect, it } from 'vitest';

import { nextId } from '../../src/session/migration';
import { OriginSession } from '../../src/session/origin';
import { effect, type Op, perform, stateOf } from './session_traces';
import { vectors } from '../vectors';

interface Moving extends Op {
  readonly ids: [string, string | null];
}
interface Vectors {
  readonly next: { given: string; gives: string }[];
  readonly traces: { name: string; session: string; me: string; ops: Moving[] }[];
}

const VECTORS = vectors('moving') as Vectors;

it.each(VECTORS.next)('after $given comes $gives', ({ given, gives }) => {
  expect(nextId(given)).toBe(gives);
});

describe('traces', () => {
  it.each(VECTORS.traces)('$name', ({ session, me, ops }) => {
    const core = new OriginSession(session, me);
    ops.forEach((op, at) => {
      const gives = perform(core, op).map(effect);
      const seen = { gives, after: stateOf(core), ids: [core.session, core.second] };
      expect({ at, op: op.do, ...seen }).toEqual({
        at,
        op: op.do,
        gives: op.gives,
        after: op.after,
        ids: op.ids,
      });
    });
  });
});
