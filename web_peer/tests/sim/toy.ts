/*
 * Decides what a stand-in model computes: every token depends on all positions before it and on how each was run.
 *
 * Each unit keeps one number per position, chained over its own cache: a position that is wrong, missing, doubled, out
 * of order, or run as a prompt when it was sampled changes every later one. Activations hide such a number in two
 * float32, so real frames carry them. Where the model is cut makes no difference.
 */

import type { Run } from '../../src/state/plan_record';
import { sample, type Sampling } from '../../src/session/sampling';
import { Chance } from './random';

export const UNITS = 6;
export const VOCAB = 24;

const SALTS = [0, 1].map((given) =>
  Array.from({ length: UNITS }, (_, unit) => Math.imul(0x9e3779b9, 2 * unit + given + 1) >>> 0),
);
const CHANCE = new Chance(7);
const LOGITS = Array.from({ length: 1021 }, () =>
  Float32Array.from({ length: VOCAB }, () => (CHANCE.next() + CHANCE.next() + CHANCE.next() - 1.5) * 4),
);

/** The head's answer to the last unit's number. */
export function logitsOf(number: number): Float32Array {
  const found = LOGITS[number % LOGITS.length];
  if (found === undefined) throw new Error(`a whole number expected, got ${number}`);
  return found;
}

/** (T,) numbers as (T, 2) float32. */
export function toHidden(numbers: readonly number[]): Float32Array {
  const hidden = new Float32Array(2 * numbers.length);
  numbers.forEach((number, at) => {
    hidden[2 * at] = number >>> 16;
    hidden[2 * at + 1] = number & 0xffff;
  });
  return hidden;
}

/** The inverse of toHidden. */
export function fromHidden(hidden: Float32Array): number[] {
  return Array.from(
    { length: hidden.length / 2 },
    (_, at) => (((hidden[2 * at] ?? 0) << 16) | (hidden[2 * at + 1] ?? 0)) >>> 0,
  );
}

/** One session's numbers in the units of `run`. */
export class Cache {
  rows: Uint32Array[] = [];
  private readonly run: Run;

  constructor(run: Run) {
    this.run = run;
  }

  /** Runs positions from `position` on, which forgets those that were there; returns the last unit's numbers. */
  take(position: number, values: readonly number[], given: boolean): number[] {
    this.rows.length = Math.min(this.rows.length, position);
    const { first, stop } = this.run;
    const salts = SALTS[given ? 1 : 0] ?? [];
    return values.map((value) => {
      const before = this.rows.at(-1);
      const row = new Uint32Array(stop - first);
      let number = value;
      for (let place = 0; place < row.length; place++) {
        const kept = before?.[place] ?? 0;
        number = (Math.imul(kept, 0x9e3779b1) + Math.imul(number, 0x85ebca77)) ^ (salts[first + place] ?? 0);
        number = Math.imul(number ^ (number >>> 15), 0x2c1b3c6d);
        number = (number ^ (number >>> 13)) >>> 0;
        row[place] = number;
      }
      this.rows.push(row);
      return number;
    });
  }
}

/** One conversation as it goes when nothing happens: what a single peer with the whole model answers. */
export class Reference {
  private tokens: number[] = []; // with keys and values that hold for the next turn
  private given: boolean[] = []; // how each of them was run
  private readonly cache = new Cache({ first: 0, stop: UNITS });

  /** The tokens of one turn, until an end token or `most` tokens. */
  answer(
    prompt: readonly number[],
    most: number,
    sampling: Sampling,
    endTokens: readonly number[],
  ): number[] {
    const kept = common(this.tokens, prompt);
    this.given = [...this.given.slice(0, kept), ...prompt.slice(kept).map(() => true)];
    let number = 0;
    for (let position = Math.min(kept, prompt.length - 1); position < prompt.length; position++) {
      number = this.last(position, prompt[position] ?? 0, this.given[position] ?? true);
    }
    const history = [...prompt];
    const made: number[] = [];
    for (;;) {
      const token = sample(logitsOf(number), sampling, history.length, history, made);
      history.push(token);
      made.push(token);
      if (endTokens.includes(token) || made.length >= most) break;
      number = this.last(history.length - 1, token, false);
      this.given.push(false);
    }
    this.tokens = history.slice(0, -1);
    return made;
  }

  /** The asker stopped the answer when prompt and answer were `length` tokens. */
  stopped(length: number): void {
    this.tokens.length = length - 1;
    this.cache.rows.length = this.given.length = length - 1;
  }

  private last(position: number, token: number, given: boolean): number {
    return this.cache.take(position, [token + 1], given)[0] ?? 0;
  }
}

function common(a: readonly number[], b: readonly number[]): number {
  const most = Math.min(a.length, b.length);
  for (let index = 0; index < most; index++) if (a[index] !== b[index]) return index;
  return most;
}
