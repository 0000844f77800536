/*
 * Decides how long an answer may be, and names what is asked and in which phase an answer is (twin of peer/asks.py).
 * Pure.
 */

import { ContextOverflow } from './errors';
import type { Here } from './frames';
import type { Sampling } from './sampling';

export type Phase = 'idle' | 'prefill' | 'decode' | 'rerouting' | 'done' | 'failed';

/** One turn: the whole prompt as token ids, and how to answer it. */
export interface Ask {
  readonly prompt: readonly number[];
  readonly maxTokens: number;
  readonly sampling: Sampling;
  readonly endTokens: readonly number[];
  /** Of `prompt` the last so many were sampled before, and count as such; `maxTokens` counts them. */
  readonly sampled?: number;
}

/** Where an answer stands on its stages: what another peer needs to go on with what they hold. `spans`: of its prompt. */
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

/** Whether a stage has nothing to do: it computed what came, and what came is what the one before it computed. */
export function isDone(mine: Here, before: Here | undefined): boolean {
  return mine.computed >= mine.received && (before === undefined || mine.received >= before.computed);
}
