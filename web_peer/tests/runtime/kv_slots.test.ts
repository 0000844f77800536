/* Rows stay without holes, lengths follow their sessions: the traces that both languages replay. */

import { describe, expect, it } from 'vitest';

import { KvSlots, type Shape, spans } from '../../src/runtime/kv_slots';
import { vectors } from '../vectors';

type Op = { readonly session: string; readonly gives: unknown; readonly after: unknown } & (
  | { do: 'admit' | 'release' }
  | { do: 'set_length'; length: number }
  | { do: 'grown'; shape: Shape; rows: number; positions: number }
);
interface Vectors {
  readonly spans: { rows: number[]; gap: number; gives: [number, number][] }[];
  readonly traces: { name: string; limit: number; context: number; ops: Op[] }[];
}

const VECTORS = vectors('kv_slots') as Vectors;

describe('traces', () => {
  it.each(VECTORS.traces)('$name', ({ limit, context, ops }) => {
    const slots = new KvSlots(limit, context);
    for (const op of ops) {
      expect(perform(slots, op)).toEqual(op.gives);
      const after = [...slots.lengths()].map(([session, length]) => [session, slots.row(session), length]);
      expect(after).toEqual(op.after);
    }
  });
});

function perform(slots: KvSlots, op: Op): unknown {
  switch (op.do) {
    case 'admit':
      return slots.admit(op.session);
    case 'release':
      return slots.release(op.session);
    case 'set_length':
      try {
        slots.setLength(op.session, op.length);
        return null;
      } catch {
        return 'error';
      }
    case 'grown':
      return slots.grown(op.shape, op.rows, op.positions);
    default:
      return op satisfies never;
  }
}

it.each(VECTORS.spans)('rows $rows with gaps of $gap', ({ rows, gap, gives }) => {
  expect(spans(rows, gap).map(({ start, stop }) => [start, stop])).toEqual(gives);
});
