/*
 * Decides how often an asker has its answers checked, which stages first, and who checks them (twin of
 * peer/audit/check_policy.py).
 *
 * Pure. Chance comes in as `roll`, a number in [0, 1).
 */

import { sameBits } from '../planner/arithmetic_class';
import { type Computes, isTab, limit, rounding } from '../session/evidence';

const SOONER = 8; // times as many checks while somebody has found a peer of the route wrong
const SOON = 4; // tokens until the next check, after one that nobody could make; each further one waits twice as long
const MOST_DOUBLED = 8;
const MILLION = 1_000_000;

export type Roll = () => number;

/** How many tokens are left until the next check. */
export class NextCheck {
  left: number | null = null;
  hurried = false; // checks come sooner
  unable = 0; // checks in a row of which some stage could not be checked

  /**
   * A token came, of a route with a `suspected` peer or not. Whether a check is due; one that comes while this asker is
   * `busy` with another one is left out.
   */
  token(ppm: number, roll: Roll, suspected: boolean, busy: boolean): boolean {
    let left = (this.left === null || this.left === 0 ? pause(ppm, 1, roll) : this.left) - 1;
    if (suspected && !this.hurried) left = Math.min(left, pause(ppm, SOONER, roll));
    this.left = left;
    this.hurried = suspected;
    if (left > 0 || busy) return false;
    this.left = pause(ppm, suspected ? SOONER : 1, roll);
    return true;
  }

  /** A check is over; `unable`: of some stage nobody could say anything. */
  checked(unable: boolean): void {
    this.unable = unable ? this.unable + 1 : 0;
    if (this.left === null || !unable) return;
    this.left = Math.min(this.left, SOON * 2 ** Math.min(this.unable - 1, MOST_DOUBLED));
  }
}

/**
 * Tokens until the next check, for `times` as many as usual: from half of the usual number to three halves, so that
 * nobody knows which.
 */
export function pause(ppm: number, times: number, roll: Roll): number {
  const share = Math.max(1, ppm) * times;
  const usual = Math.max(1, Math.floor((MILLION + Math.floor(share / 2)) / share));
  return Math.max(1, Math.floor(usual / 2) + Math.floor(roll() * usual));
}

/** Which of `stages`, in any order, are checked first: those of suspects. */
export function inOrder(
  stages: readonly number[],
  route: readonly string[],
  suspects: ReadonlySet<string>,
): number[] {
  const rank = (stage: number): number => (suspects.has(route[stage] ?? '') ? 0 : 1);
  return [...stages].sort((a, b) => rank(a) - rank(b));
}

/**
 * The largest distance of two honest results, where `judge` computes again what one that computes as `theirs` did.
 *
 * A tab computes all positions together, so that it repeats no bits, whatever its class. A process repeats the order,
 * and loads the units as it must: of a tab without rounding, since bits are no matter then.
 */
export function mostBetween(weights: string, judge: Computes, theirs: Computes): number {
  const kind = rounding(weights, theirs);
  if (isTab(judge.provider)) return limit('plain', kind);
  if (isTab(theirs.provider)) return limit(kind, kind);
  return limit(kind, kind, [judge.arithmetic, theirs.arithmetic]);
}

/** A peer that holds the units, and how it computes. */
export interface Holder extends Computes {
  readonly peer: string;
}

/**
 * Who is asked to check, the best first: those that find slight errors, of these the class of the peer in question
 * (`theirs`), then others than this peer itself, then those who have no part in the step. `holders` in any order.
 */
export function judgesOf(
  holders: readonly Holder[],
  weights: string,
  theirs: Computes,
  me: string,
  near: ReadonlySet<string>,
): string[] {
  const rank = (holder: Holder): readonly number[] => [
    mostBetween(weights, holder, theirs),
    sameBits(holder.arithmetic, theirs.arithmetic) ? 0 : 1,
    holder.peer === me ? 1 : 0,
    near.has(holder.peer) ? 1 : 0,
  ];
  const ranked = holders.map((holder) => ({ peer: holder.peer, key: rank(holder) }));
  ranked.sort((a, b) => a.key.map((each, at) => each - (b.key[at] ?? 0)).find((gap) => gap !== 0) ?? 0);
  return ranked.map(({ peer }) => peer);
}

/** `items` in an order of chance. */
export function shuffled<T>(items: readonly T[], roll: Roll): T[] {
  const found = items.map((item) => ({ item, at: roll() }));
  return found.sort((a, b) => a.at - b.at).map(({ item }) => item);
}
