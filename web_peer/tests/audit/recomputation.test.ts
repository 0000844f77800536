/* Positions that are computed again: in which steps, and what comes of a step that is refused. */

import { describe, expect, it } from 'vitest';

import { Recomputing } from '../../src/audit/recomputation';
import { CannotServe } from '../../src/errors';
import type { Answer } from '../../src/runtime/worker_handle';
import { CHUNK_TOKENS } from '../../src/session/position_spans';
import type { Serving } from '../../src/stage/unit_host';

const RUN = { first: 2, stop: 4 };
const WIDTH = 3;

interface Asked {
  readonly position: number;
  readonly count: number;
  readonly last: boolean;
}

/** Units that give back the rows they get; `refuses`: the position of a step that they refuse. */
function units(asked: Asked[], refuses = -1): Serving {
  const aside = (_run: unknown, _session: string, told: (answer: Answer) => void): unknown => ({
    submit: (step: { position: number; hidden: Float32Array; last: boolean }) => {
      const { position, hidden, last } = step;
      asked.push({ position, count: hidden.length / WIDTH, last });
      const answer =
        position === refuses
          ? { kind: 'refused', text: 'no room' }
          : { kind: 'done', hidden, logits: hidden };
      queueMicrotask(() => told(answer as unknown as Answer));
    },
    close: () => undefined,
  });
  return { aside } as unknown as Serving;
}

const rows = (count: number): Float32Array => Float32Array.from({ length: count * WIDTH }, (_, at) => at);

describe('steps', () => {
  it.each([1, CHUNK_TOKENS, CHUNK_TOKENS + 1, 3 * CHUNK_TOKENS - 1])(
    '%d positions go as many at a time as askers send',
    async (count) => {
      const asked: Asked[] = [];
      const recomputing = new Recomputing(() => units(asked));
      const found = await recomputing.rows(RUN, { kind: 'rows', rows: rows(count), width: WIDTH });
      expect(found).toEqual(rows(count));
      expect(recomputing.positions).toBe(count);
      expect(Math.max(...asked.map((step) => step.count))).toBe(Math.min(count, 32));
      expect(asked.map(({ position }) => position)).toEqual(
        Array.from({ length: Math.ceil(count / 32) }, (_, step) => 32 * step),
      );
    },
  );

  it('one that is refused ends it', async () => {
    const asked: Asked[] = [];
    const recomputing = new Recomputing(() => units(asked, 32));
    const found = recomputing.rows(RUN, { kind: 'rows', rows: rows(80), width: WIDTH });
    await expect(found).rejects.toThrow(CannotServe);
    expect(asked).toHaveLength(2);
  });
});
