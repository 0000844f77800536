/* Breakers open, stay quiet, take one probe and close: the traces that both languages replay. */

import { describe, expect, it } from 'vitest';

import { Breakers } from '../../src/transport/circuit_breakers';
import { vectors } from '../vectors';

interface Op {
  readonly now: number;
  readonly key: string;
  readonly allows: readonly boolean[];
  readonly order: readonly string[];
  readonly shown: readonly (readonly [string, string])[];
  readonly quiet_until: number | null;
  readonly do: 'failed' | 'succeeded' | 'chosen' | 'broke';
}
interface Vectors {
  readonly traces: { name: string; keys: string[]; ops: Op[] }[];
}

const VECTORS = vectors('breakers') as Vectors;

describe('traces', () => {
  it.each(VECTORS.traces)('$name', ({ keys, ops }) => {
    const breakers = new Breakers();
    for (const op of ops) {
      breakers[op.do](op.key, op.now);
      expect(keys.map((key) => breakers.allows(key, op.now))).toEqual(op.allows);
      expect(breakers.order(keys, op.now)).toEqual(op.order);
      expect(breakers.shown(op.now)).toEqual(op.shown);
      expect(breakers.quietUntil(op.key)).toBe(op.quiet_until);
    }
  });
});
