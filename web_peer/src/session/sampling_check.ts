/*
 * Decides whether a token can have been drawn from logits that were computed again (twin of
 * peer/session/sampling_check.py). Pure.
 */

import { exponential, LOWEST_EXPONENT, penalized, sample, type Sampling } from './sampling';

const IMPOSSIBLE = 1e-9; // share of all draws: less likely tokens are not drawn by chance

/** What a last stage drew with: `history`, `answer`: tokens so far, of all and of this answer. */
export interface Drawn {
  readonly token: number;
  readonly sampling: Sampling;
  readonly position: number;
  readonly history: readonly number[];
  readonly answer: readonly number[];
}

/**
 * Whether the token can be that of its position. Two tokens may be about equally likely: by `most` of the spread of the
 * logits. Bits are not repeated here, so a draw by chance may fall on another token: only one that is hardly ever drawn
 * tells.
 */
export function fits(
  logits: Float32Array,
  { token, sampling, position, history, answer }: Drawn,
  most: number,
): boolean {
  const own = sample(logits, sampling, position, history, answer);
  if (token === own) return true;
  if (logits[token] === undefined) return false;
  const row = penalized(logits, sampling, history, answer);
  if (sampling.temperature > 0) return shareUpTo(row, token, sampling.temperature) >= IMPOSSIBLE;
  return Math.abs((row[own] ?? 0) - (row[token] ?? 0)) <= most * 2 * spread(logits);
}

/** Of all draws, how many fall on a token that is at most as likely as `token`. */
function shareUpTo(logits: Float32Array, token: number, temperature: number): number {
  const top = logits.reduce((best, each) => Math.max(best, each), -Infinity);
  const own = logits[token] ?? 0;
  let all = 0;
  let upTo = 0;
  for (const logit of logits) {
    const exponent = (logit - top) / temperature;
    const weight = exponent < LOWEST_EXPONENT ? 0 : exponential(exponent);
    all += weight;
    if (logit <= own) upTo += weight;
  }
  return upTo / all;
}

function spread(logits: Float32Array): number {
  const mean = logits.reduce((sum, each) => sum + each, 0) / logits.length;
  return Math.sqrt(logits.reduce((sum, each) => sum + (each - mean) ** 2, 0) / logits.length);
}
