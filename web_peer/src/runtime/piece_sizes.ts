/*
 * Decides how many tokens of a prompt run between two decode batches: so many that answers under way keep their pace.
 * Pure; the twin of peer/runtime/piece_sizes.py.
 *
 * While nobody decodes, a piece is as large as pieces get. While somebody does, it takes no longer than the decode
 * batches of that time come apart when no prompt is computed, nor than two of those batches: so a gap between two
 * tokens at most doubles, whichever part of it is spent at this stage. What a piece takes is estimated by the last ones.
 */

import type { SessionId } from '../wire/generated/frames';

export const PIECE_TOKENS = 64; // the largest piece, and what the scratch of attention has room for
const LEAST_TOKENS = 4; // below it a call costs nearly as much, so that prompts would stand still
const WIDE_HEAD = 128; // values; kernels add up scores of wider heads otherwise while few positions are left over
const KEPT = 8; // measurements of a kind, the last ones
const AWAY_S = 0.25; // without a step of a session: it waits for its next question
const AWAY_INTERVALS = 4; // of the decode batches, where they come more slowly
const BATCHES = 2; // decode batches that a piece may take at most

/**
 * Where a piece of a prompt ends that begins at `start` and has tokens up to `stop`, with heads of `headSize`.
 *
 * Scores of wide heads depend on whether a call ends within the first PIECE_TOKENS positions of two such pieces. So a
 * piece ends before the last one of these, for which a single token, which gets company, is in the next piece.
 */
export function pieceStop(start: number, stop: number, headSize: number): number {
  if (headSize <= WIDE_HEAD) return stop;
  return Math.min(stop, Math.floor((start + 1) / PIECE_TOKENS) * PIECE_TOKENS + PIECE_TOKENS - 1);
}

/** Is told what ran, in seconds of one clock. `least`: tokens of the smallest piece, a power of two. */
export class PieceSizes {
  private readonly least: number;
  private readonly decoding = new Map<SessionId, number>(); // when each session's last decode batch ended
  private begunS: number | null = null; // when the last decode batch began, where no prompt ran since
  private readonly intervals: number[] = []; // from one decode batch to the next, with no prompt between
  private readonly batches: number[] = [];
  private readonly tokenS: number[] = [];

  constructor(least = LEAST_TOKENS) {
    this.least = least;
  }

  /** One decode batch ran, for these sessions. */
  decoded(begunS: number, endedS: number, sessions: readonly SessionId[]): void {
    if (this.begunS !== null && sessions.some((session) => this.decoding.has(session))) {
      keep(this.intervals, begunS - this.begunS);
    }
    this.begunS = begunS;
    keep(this.batches, endedS - begunS);
    for (const session of sessions) this.decoding.set(session, endedS);
  }

  /** A piece of the prompt of `session` ran. */
  ran(session: SessionId, tokens: number, tookS: number): void {
    this.decoding.delete(session);
    this.begunS = null;
    keep(this.tokenS, tookS / tokens);
  }

  /** A session is over. */
  released(session: SessionId): void {
    this.decoding.delete(session);
  }

  /** The tokens of the next piece, at most. */
  next(nowS: number): number {
    this.forget(nowS);
    if (this.decoding.size === 0) return PIECE_TOKENS;
    let size = this.least;
    if (this.tokenS.length > 0) {
      const budgetS = this.budgetS();
      const tokenS = median(this.tokenS);
      while (2 * size <= PIECE_TOKENS && 2 * size * tokenS <= budgetS) size *= 2;
    }
    return size;
  }

  private budgetS(): number {
    const batchS = median(this.batches);
    return this.intervals.length > 0 ? Math.min(BATCHES * batchS, median(this.intervals)) : batchS;
  }

  private forget(nowS: number): void {
    const awayS =
      this.intervals.length > 0 ? Math.max(AWAY_S, AWAY_INTERVALS * median(this.intervals)) : AWAY_S;
    for (const [session, endedS] of [...this.decoding]) {
      if (nowS - endedS > awayS) this.decoding.delete(session);
    }
  }
}

function keep(values: number[], value: number): void {
  values.push(value);
  if (values.length > KEPT) values.shift();
}

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  const upper = sorted[middle] ?? 0;
  return sorted.length % 2 === 1 ? upper : ((sorted[middle - 1] ?? 0) + upper) / 2;
}
