/*
 * Decides how long a token takes at each run of units here: the median of its last steps that ran by themselves (twin
 * of peer/runtime/step_times.py).
 *
 * Pure. A step of one token counts where no other was under way at any moment of it: so it is what one answer waits for
 * here, and comparable with what the plan predicts.
 */

import type { SessionId } from '../wire/generated/frames';
import { type Run, runKey } from '../state/plan_record';

const KEPT = 32; // steps of a run, the last ones

/** What tells a step from others. */
export interface StepKey {
  readonly run: Run;
  readonly session: SessionId;
  readonly epoch: number;
  readonly position: number;
}

interface Open extends StepKey {
  readonly since: number;
  counts: boolean; // so far
}

/** Is told when steps begin and end, in seconds of one clock. */
export class StepTimes {
  private readonly open = new Map<string, Open>(); // steps under way
  private readonly times = new Map<string, { readonly run: Run; readonly last: number[] }>();

  /** A step was handed to the model; `counts`: of one token, and somebody waits for it. */
  begun(now: number, { run, session, epoch, position }: StepKey, counts: boolean): void {
    const alone = this.open.size === 0;
    for (const other of this.open.values()) other.counts = false;
    const step = { run, session, epoch, position };
    this.open.set(stepKey(step), { ...step, since: now, counts: counts && alone });
  }

  /** It came back. */
  ended(now: number, step: StepKey, ran: boolean): void {
    const key = stepKey(step);
    const found = this.open.get(key);
    this.open.delete(key);
    if (!ran || found?.counts !== true) return;
    const { run } = step;
    const kept = this.times.get(runKey(run)) ?? { run, last: [] };
    kept.last.push(now - found.since);
    if (kept.last.length > KEPT) kept.last.shift();
    this.times.set(runKey(run), kept);
  }

  /** The steps of a session were given up. */
  dropped(run: Run, session: SessionId): void {
    for (const [key, step] of this.open) {
      if (step.session === session && runKey(step.run) === runKey(run)) this.open.delete(key);
    }
  }

  /** These units are here no more. */
  unloaded(run: Run): void {
    this.times.delete(runKey(run));
    for (const [key, step] of this.open) if (runKey(step.run) === runKey(run)) this.open.delete(key);
  }

  /** [first, stop, microseconds of a token] of each run that computed one, sorted. */
  mediansUs(): (readonly [first: number, stop: number, us: number])[] {
    return [...this.times.values()]
      .map(({ run: { first, stop }, last }) => {
        const ordered = [...last].sort((a, b) => a - b);
        const middle = ordered[Math.floor(ordered.length / 2)] ?? 0;
        return [first, stop, Math.floor(middle * 1e6 + 0.5)] as const;
      })
      .sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  }
}

/** What a step is kept by, as one string. */
export function stepKey({ run, session, epoch, position }: StepKey): string {
  return `${runKey(run)}/${session}/${epoch}/${position}`;
}
