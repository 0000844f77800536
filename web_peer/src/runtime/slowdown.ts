/*
 * Decides whether this tab computes as fast as it did: how much longer its steps take than they took at first (twin of
 * peer/runtime/slowdown.py).
 *
 * Pure. Steps are counted while any of them is under way, so that waiting for others is not taken for being slow; what
 * they should take comes from this tab's own measurement. The first samples say how real steps compare with it, and
 * those that follow say so better, for as long as nothing changed. A change is told when it is large and held for some
 * checks: a short slowness, or one that wavers, is not. Who was told slower and then got nothing to do could never show
 * that it is as fast again: after a while it is taken to be, for longer each time that it was not.
 */

import type { SessionId } from '../wire/generated/frames';
import { median } from '../transport/median';
import { type Run, runKey } from '../state/plan_record';
import { type StepKey, stepKey } from './step_times';

export const CHECK_S = 1; // between two looks
const LEARNED = 5; // looks with work in them that say how fast this tab is,
const SURE = 20; // and as many that say it better: the first ones are mostly of prompts
const LEAST_S = 0.05; // of work between two looks; less says nothing
const RECENT_S = 15; // what was seen before work paused for longer says nothing of now
const FORGOTTEN_S = 30; // a step under way for longer will not come back
// How many times slower or faster than told last, how many looks say so (a slowness of 2 s has no more than 3), and of
// how many: on a busy machine one look among those of a slow tab may be as fast as ever. What changed less has to last
// longer.
const CHANGES = [
  { times: 1.8, held: 4, of: 6 },
  { times: 1.5, held: 8, of: 10 },
] as const;
const LEAST_CHANGE = Math.min(...CHANGES.map(({ times }) => times));
const MOST_LOOKS = Math.max(...CHANGES.map(({ of }) => of));
const MOST = 64; // times slower that are believed
const FORGIVEN_S = 300; // without work, after which a slower peer counts as fast as at first, for the first time
const LONGEST_S = 7200; // the same after many times
const MILLI = 1000;

interface Open {
  readonly step: StepKey;
  readonly since: number;
  readonly shouldS: number; // it should take
}

/** `toldMilli`: thousandths of the first time that steps take now, as it was told last. */
export class Pace {
  toldMilli = MILLI;
  private readonly open = new Map<string, Open>(); // steps under way
  private since = 0; // since when some step was under way
  private busyS = 0;
  private workS = 0;
  private looked = 0;
  private readonly first: number[] = [];
  private base = 0;
  private row: { readonly at: number; readonly ratio: number }[] = []; // the last looks
  private beforeMilli = MILLI;
  private worked = -Infinity;
  private forgivenS = FORGIVEN_S;

  /** Whether it is known how fast this tab is; before, nothing is told. */
  get learned(): boolean {
    return this.first.length >= LEARNED;
  }

  /** Whether steps take about what they took at first, as far as anybody knows. */
  isSteady(now: number): boolean {
    const [{ times }] = CHANGES;
    const isWithin = (pace: number, most: number): boolean => 1 / most <= pace && pace <= most;
    return (
      isWithin(this.toldMilli / MILLI, LEAST_CHANGE) &&
      this.recent(now).every((pace) => isWithin(pace, times))
    );
  }

  /** A step was handed to the model. */
  begun(now: number, step: StepKey, shouldS: number): void {
    if (this.open.size === 0) this.since = now;
    const { run, session, epoch, position } = step;
    this.open.set(stepKey(step), { step: { run, session, epoch, position }, since: now, shouldS });
    this.worked = now;
  }

  /** It came back; one that did not run counts for nothing. */
  ended(now: number, step: StepKey, ran: boolean): void {
    const key = stepKey(step);
    const found = this.open.get(key);
    if (found === undefined) return;
    this.open.delete(key);
    this.busyS += now - this.since;
    this.since = now;
    if (ran) this.workS += found.shouldS;
  }

  /** The steps of a session were given up. */
  dropped(now: number, run: Run, session: SessionId): void {
    for (const { step } of [...this.open.values()]) {
      if (step.session === session && runKey(step.run) === runKey(run)) this.ended(now, step, false);
    }
  }

  /** Called often; what is to be told now in thousandths of the first time, or null. */
  look(now: number): number | null {
    if (now - this.looked < CHECK_S) return null;
    this.looked = now;
    for (const [key, { since }] of [...this.open]) if (now - since > FORGOTTEN_S) this.open.delete(key);
    if (this.toldMilli >= MILLI * LEAST_CHANGE && now - this.worked >= this.forgivenS) {
      this.forgivenS = Math.min(2 * this.forgivenS, LONGEST_S);
      return this.tell(MILLI);
    }
    const { busyS, workS } = this;
    if (busyS < LEAST_S || workS <= 0) return null; // little to do, or a long step under way
    this.busyS = this.workS = 0;
    const ratio = busyS / workS;
    const told = this.toldMilli / MILLI;
    if (!this.learned || (told === 1 && this.first.length < SURE && this.isLike(ratio))) {
      this.first.push(ratio);
      this.base = median(this.first);
      if (!this.learned) return null;
    }
    this.row = [...this.row, { at: now, ratio }].slice(-MOST_LOOKS);
    const seen = this.recent(now);
    const isSlower = (seen.at(-1) ?? told) > told;
    for (const { times, held, of } of CHANGES) {
      const differs = seen
        .slice(-of)
        .filter((each) => (isSlower ? each > told * times : each < told / times));
      if (differs.length < held) continue;
      if (!isSlower) this.forgivenS = FORGIVEN_S;
      return this.tell(Math.max(1, Math.round(median(differs) * MILLI)));
    }
    return null;
  }

  /** The paces of the last looks. */
  private recent(now: number): readonly number[] {
    return this.row
      .filter(({ at }) => now - at < RECENT_S)
      .map(({ ratio }) => Math.min(ratio / this.base, MOST));
  }

  /** Nobody heard what was told last: it is told again when it still holds. */
  unheard(): void {
    this.toldMilli = this.beforeMilli;
  }

  /** The log has the first pace, whatever was told last. */
  lost(): void {
    this.toldMilli = MILLI;
  }

  /** Whether it is no sign of a change. */
  private isLike(ratio: number): boolean {
    const [{ times }] = CHANGES;
    return this.base / times <= ratio && ratio <= this.base * times;
  }

  private tell(milli: number): number {
    this.beforeMilli = this.toldMilli;
    this.toldMilli = milli;
    this.row = [];
    return milli;
  }
}

/** Nanoseconds of each kind of unit. */
export type Table = ReadonlyMap<string, number>;

/** Seconds that a step of `tokens` tokens should take; `kinds`: how many units of each kind there are. */
export function shouldTake(kinds: Table, decodeNs: Table, prefillNs: Table, tokens: number): number {
  const table = tokens === 1 ? decodeNs : prefillNs;
  let ns = 0;
  for (const [kind, count] of kinds) ns += count * (table.get(kind) ?? 0);
  return (ns * tokens) / 1e9;
}

/** Times at that pace. */
export function atPace(table: Table, milli: number): Map<string, number> {
  return new Map([...table].map(([kind, ns]) => [kind, Math.floor((ns * milli) / MILLI)]));
}
