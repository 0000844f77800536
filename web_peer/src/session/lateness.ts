/*
 * Decides when the next token of an answer is late, from the gaps between those that came (twin of
 * peer/session/lateness.py). Pure, in seconds.
 */

const REMEMBERED = 32; // gaps
const FIRST_S = 0.4; // before anything is known
const MARGIN = 1.5; // times the slowest usual gap
const EXTRA_S = 0.03; // of jitter on top
const FLOOR_S = 0.08; // below this an event loop that is merely busy looks late
const CEILING_S = 2;
const USUAL = 0.9; // the quantile that counts as usual
const KNOWN = 4; // gaps that make a quantile

/** The usual gap of one answer, learned as it streams; kept from one question to the next. */
export class Lateness {
  private readonly gaps: number[] = [];

  /** A token came so long after the one before it. */
  gap(seconds: number): void {
    this.gaps.push(seconds);
    if (this.gaps.length > REMEMBERED) this.gaps.shift();
  }

  /** The quantile USUAL of the last gaps; FIRST_S before there are enough. */
  get usualS(): number {
    if (this.gaps.length < KNOWN) return FIRST_S;
    const ordered = [...this.gaps].sort((a, b) => a - b);
    return ordered[Math.min(Math.floor(ordered.length * USUAL), ordered.length - 1)] ?? FIRST_S;
  }

  /** How long after the last token the next one is late. */
  get lateS(): number {
    if (this.gaps.length < KNOWN) return FIRST_S;
    return Math.min(Math.max(this.usualS * MARGIN + EXTRA_S, FLOOR_S), CEILING_S);
  }
}
