/* Breakers open, stay quiet, take one probe and close: the traces that both languages replay. */

import { describe, expect, it } from 'vitest';

import { Breakers, linkKey } from '../src/transport/circuit_breakers';
import { vectors } from './vectors';

type Op = {
  readonly now: number;
  readonly key: string;
  readonly allows: readonly boolean[];
  readonly order: readonly string[];
  readonly shown: readonly (readonly [string, string])[];
  readonly quiet_until: number | null;
} & (
  | { do: 'failed' | 'slow' | 'succeeded' | 'chosen' | 'broke' | 'forget' }
  | { do: 'stepped'; took_us: number; gives: boolean }
);
interface Vectors {
  readonly traces: { name: string; keys: string[]; ops: Op[] }[];
}

const VECTORS = vectors('breakers') as Vectors;

describe('traces', () => {
  it.each(VECTORS.traces)('$name', ({ keys, ops }) => {
    const breakers = new Breakers();
    for (const op of ops) {
      if (op.do === 'stepped') expect(breakers.stepped(op.key, op.now, op.took_us)).toBe(op.gives);
      else if (op.do === 'forget') breakers.forget(op.key);
      else breakers[op.do](op.key, op.now);
      expect(keys.map((key) => breakers.allows(key, op.now))).toEqual(op.allows);
      expect(breakers.order(keys, op.now)).toEqual(op.order);
      expect(breakers.shown(op.now)).toEqual(op.shown);
      expect(breakers.quietUntil(op.key)).toBe(op.quiet_until);
    }
  });
});

it('a link has a key of its own in each direction', () => {
  expect(linkKey('a', 'b')).toBe('a>b');
  expect(linkKey('b', 'a')).toBe('b>a');
});
