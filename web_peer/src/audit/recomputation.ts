/*
 * Computes positions of a session again with units that this tab has loaded, when nothing else is to be computed (twin
 * of peer/audit/recomputation.py). Edge.
 *
 * Bits are not repeated between processes and tabs, so all positions are computed together, as a prompt is.
 */

import { CannotServe } from '../errors';
import { toHex } from '../wire/hex';
import { CHUNK_TOKENS } from '../session/position_spans';
import type { Run } from '../state/plan_record';
import type { Answer, Done } from '../runtime/worker_handle';
import type { Serving } from '../stage/unit_host';

const WHOLE_MS = 60_000; // for all steps of a check: then nobody waits for it any more
const SESSION_BYTES = 16;

/** All inputs of a run: tokens, or rows one behind the other. */
export type Inputs =
  | { readonly kind: 'tokens'; readonly tokens: Int32Array }
  | { readonly kind: 'rows'; readonly rows: Float32Array; readonly width: number };

/** How many positions the inputs have. */
export function countOf(inputs: Inputs): number {
  return inputs.kind === 'tokens' ? inputs.tokens.length : inputs.rows.length / inputs.width;
}

/** `positions` were computed here for checks. */
export class Recomputing {
  positions = 0;
  private readonly serving: () => Serving | null;

  constructor(serving: () => Serving | null) {
    this.serving = serving;
  }

  /** What the units make of all of `inputs`, one row behind the other. Raises CannotServe. */
  async rows(run: Run, inputs: Inputs): Promise<Float32Array> {
    const found: Float32Array[] = [];
    await this.compute(run, inputs, countOf(inputs), ({ hidden }) => {
      if (hidden === null) throw new CannotServe('these units give no rows');
      found.push(hidden);
    });
    const whole = new Float32Array(found.reduce((sum, part) => sum + part.length, 0));
    let at = 0;
    for (const part of found) {
      whole.set(part, at);
      at += part.length;
    }
    return whole;
  }

  /** The logits of positions from `first` on. Raises CannotServe. */
  async logits(run: Run, inputs: Inputs, first: number): Promise<Float32Array[]> {
    const found: Float32Array[] = [];
    await this.compute(run, inputs, first, ({ logits, position }) => {
      if (position < first) return;
      if (logits === null) throw new CannotServe('these units give no logits');
      found.push(logits);
    });
    return found;
  }

  /** Positions from `headsFrom` on have a step each, with the head. */
  private async compute(
    run: Run,
    inputs: Inputs,
    headsFrom: number,
    take: (done: Done) => void,
  ): Promise<void> {
    const session = toHex(crypto.getRandomValues(new Uint8Array(SESSION_BYTES)));
    let told: (answer: Answer) => void = () => undefined;
    const aside = this.serving()?.aside(run, session, (answer) => told(answer)) ?? null;
    if (aside === null) throw new CannotServe('these units are not loaded here');
    let late: ReturnType<typeof setTimeout> | undefined;
    const over = new Promise<never>((_, reject) => {
      late = setTimeout(() => reject(new CannotServe('these units have other things to compute')), WHOLE_MS);
    });
    over.catch(() => undefined); // where nobody waits any more
    try {
      const count = countOf(inputs);
      for (let position = 0; position < count;) {
        const last = position >= headsFrom;
        const stop = last ? position + 1 : Math.min(position + CHUNK_TOKENS, headsFrom, count);
        const answer = new Promise<Answer>((resolve) => {
          told = resolve;
        });
        const part = partOf(inputs, position, stop);
        const fixed = { turn: 0, pick: null, mostRows: 0, prompt: true, behind: true, shift: 0 } as const;
        aside.submit({ session, position, ...part, ...fixed, last, wantsLogits: last });
        const done = await Promise.race([answer, over]);
        if (done.kind === 'refused') throw new CannotServe(`these units refuse the step: ${done.text}`);
        this.positions += stop - position;
        take(done);
        position = stop;
      }
    } finally {
      clearTimeout(late);
      aside.close();
    }
  }
}

function partOf(
  inputs: Inputs,
  first: number,
  stop: number,
): { readonly tokens: Int32Array | null; readonly hidden: Float32Array | null } {
  if (inputs.kind === 'tokens') return { tokens: inputs.tokens.slice(first, stop), hidden: null };
  return { tokens: null, hidden: inputs.rows.slice(first * inputs.width, stop * inputs.width) };
}
