/* The transaction log, step by step as Python took it. */

import { describe, expect, it } from 'vitest';

import { TransactionError, WrongRecord } from '../../src/errors';
import { decodeRecord, encodeRecord, type LogRecord } from '../../src/storage/journal_records';
import { type LogEvent, type Recovery, Transactions } from '../../src/storage/journal_core';
import { vectors } from '../vectors';

interface Op {
  readonly event?: string;
  readonly error?: string;
  readonly gives?: unknown[];
  readonly recovered?: unknown[];
}
interface Vectors {
  readonly texts: { text: string; again: string | null }[];
  readonly contradictions: { lines: string[] }[];
  readonly traces: { name: string; ops: Op[] }[];
}

const VECTORS = vectors('transactions') as Vectors;

it.each(VECTORS.texts)('the line $text', ({ text, again }) => {
  if (again === null) expect(() => decodeRecord(text)).toThrow(WrongRecord);
  else expect(encodeRecord(decodeRecord(text))).toBe(again);
});

it.each(VECTORS.contradictions)('the lines $lines', ({ lines }) => {
  expect(() => Transactions.recover(lines.map(decodeRecord))).toThrow(WrongRecord);
});

describe('traces', () => {
  it.each(VECTORS.traces)('$name', ({ ops }) => {
    let log = new Transactions();
    let records: LogRecord[] = [];
    ops.forEach((op, at) => {
      let gives: readonly Recovery[];
      if (op.recovered !== undefined) {
        const [again, { held, places, undone, tokens }, effects] = Transactions.recover(records);
        const found = [
          held.map(({ first, stop }) => [first, stop]),
          places.map(({ session, stage }) => [session, stage]),
          undone.map((operation) => encodeRecord({ kind: 'begun', operation })),
          tokens,
        ];
        expect({ at, found }).toEqual({ at, found: op.recovered });
        log = again;
        gives = effects;
      } else {
        try {
          gives = log.step(eventOf(op.event ?? ''));
        } catch (error) {
          if (!(error instanceof TransactionError)) throw error;
          expect({ at, error: error.name }).toEqual({ at, error: op.error });
          return;
        }
      }
      for (const effect of gives) {
        if (effect.kind === 'compact') records = [effect.checkpoint];
        if (effect.kind === 'write') records.push(effect.record);
      }
      expect({ at, gives: gives.map(shown) }).toEqual({ at, gives: op.gives });
    });
  });
});

function eventOf(text: string): LogEvent {
  const [kind, count] = JSON.parse(text) as [string, number];
  if (kind === 'sampled') return { kind, count };
  const record = decodeRecord(text);
  if (record.kind === 'checkpoint') throw new Error('a checkpoint is no event');
  return record;
}

function shown(effect: Recovery): unknown[] {
  switch (effect.kind) {
    case 'write':
      return ['write', encodeRecord(effect.record), effect.durable];
    case 'compact':
      return ['compact', encodeRecord(effect.checkpoint)];
    case 'undo':
      return ['undo', encodeRecord({ kind: 'begun', operation: effect.operation })];
    default:
      return effect satisfies never;
  }
}
