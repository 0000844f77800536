/*
 * Decides how long an answer may be, and names what is asked and in which phase an answer is (twin of
 * peer/session/ask.py). Pure.
 */

import { ContextOverflow } from '../errors';
import type { Here } from '../wire/generated/frames';
import type { GivenRows } from './position_spans';
import type { Sampling } from './sampling';

const STUCK_S = 1; // no progress anywhere for this long, at least, before a stage counts as stuck
const STUCK_GAPS = 10; // and for as many usual gaps
const STARVED_S = 0.5; // the same for a stage that does not get what the one before it made
const STARVED_GAPS = 4;
const MAX_DOUBLED = 6; // times
const WORD_BITS = 31; // of a mask in one word: words are token ids' equals, int32 and not negative

export type Phase = 'idle' | 'prefill' | 'decode' | 'rerouting' | 'done' | 'failed';

/** One turn: the whole prompt as token ids, and how to answer it. */
export interface Ask {
  readonly prompt: readonly number[];
  readonly maxTokens: number;
  readonly sampling: Sampling;
  readonly endTokens: readonly number[];
  /** Of `prompt` the last so many were sampled before, and count as such; `maxTokens` counts them. */
  readonly sampled?: number;
  /** What stands in the place of some token ids. */
  readonly rows?: readonly GivenRows[];
  /** Tokens that may be drawn, as a mask (maskWords); left out: every token. */
  readonly allowed?: readonly number[];
}

/**
 * Where an answer stands on its stages: what another peer needs to go on with what they hold. `spans`: of its prompt.
 */
export interface Heard {
  readonly answer: number;
  readonly turn: number;
  readonly spans: readonly number[];
}

/** How many tokens the answer may have. Raises ContextOverflow when the promise cannot be kept. */
export function roomFor(promptTokens: number, maxTokens: number | null, context: number): number {
  const room = context - promptTokens;
  if (room < 1) {
    throw new ContextOverflow(
      `the prompt has ${promptTokens} tokens, this mesh serves a context of ${context}; shorten the prompt by ` +
        `${promptTokens - context + 1} tokens or start the mesh with --context ${promptTokens * 2}`,
    );
  }
  if (maxTokens === null) return room;
  if (maxTokens < 1) throw new ContextOverflow(`max_tokens must be at least 1, got ${maxTokens}`);
  if (maxTokens > room) {
    throw new ContextOverflow(
      `${promptTokens} prompt tokens and ${maxTokens} answer tokens exceed the context of ${context}; ` +
        `ask for at most ${room}`,
    );
  }
  return maxTokens;
}

/** Peers that an answer can do nothing with, and those it would rather do without. */
export interface Without {
  readonly gone: ReadonlySet<string>;
  readonly avoid: ReadonlySet<string>;
}

/** The first stage that has something to do (-1: none), and whether anything moved since `before`. */
export function compared(
  seen: readonly Here[],
  before: readonly Here[],
): { readonly stage: number; readonly moved: boolean } {
  const hasMoved =
    before.length !== seen.length ||
    seen.some((here, at) => here.received !== before[at]?.received || here.computed !== before[at].computed);
  const stage = seen.findIndex((here, at) => !isDone(here, seen[at - 1]));
  const isBusy = stage >= 0 && seen[stage]?.steps !== before[stage]?.steps; // with others
  return { stage, moved: hasMoved || isBusy };
}

/** How long a stage may not come on, when tokens usually come every `usualS`; each of `tries` doubles it. */
export function stuckAfterS(usualS: number, tries: number, isStarved: boolean): number {
  const [leastS, gaps] = isStarved ? [STARVED_S, STARVED_GAPS] : [STUCK_S, STUCK_GAPS];
  return Math.max(leastS, gaps * usualS) * 2 ** Math.min(tries, MAX_DOUBLED);
}

/** Whether a stage has nothing to do: it computed what came, and what came is what the one before it computed. */
function isDone(mine: Here, before: Here | undefined): boolean {
  return mine.computed >= mine.received && (before === undefined || mine.received >= before.computed);
}

/**
 * OPEN's `sampling` and `history` (peer/session/steering.py). `allowed`: a mask in words of 31 bits, lowest token first;
 * empty: every token.
 */
export function toWire(
  settings: readonly number[],
  allowed: readonly number[],
  history: readonly number[],
): { readonly sampling: readonly number[]; readonly history: readonly number[] } {
  if (allowed.length === 0) return { sampling: settings, history };
  return { sampling: [...settings, 0, 0, allowed.length], history: [...history, ...allowed] };
}

/** The mask of the tokens below `vocab` for which `isAllowed` holds. */
export function maskWords(vocab: number, isAllowed: (token: number) => boolean): number[] {
  const words = Array.from({ length: Math.ceil(vocab / WORD_BITS) }, () => 0);
  for (let token = 0; token < vocab; token += 1) {
    if (!isAllowed(token)) continue;
    const at = Math.floor(token / WORD_BITS);
    words[at] = (words[at] ?? 0) + 2 ** (token % WORD_BITS);
  }
  return words;
}

/** `logits` (vocabulary,) with -Inf for each token that a mask leaves out; what lies beyond it is left out, too. */
export function allowedOnly(logits: Float32Array, mask: readonly number[]): Float32Array {
  if (mask.length === 0) return logits;
  return logits.map((each, token) => {
    const word = mask[Math.floor(token / WORD_BITS)] ?? 0;
    return ((word >>> (token % WORD_BITS)) & 1) === 1 ? each : -Infinity;
  });
}
