/* What a simulated peer computes: steps one after the other in virtual time, those that nobody waits for last. */

import type { NotRan, Ran, RunStep } from '../../src/session/effects';
import type { SessionId } from '../../src/wire/generated/frames';
import { type Run, runKey } from '../../src/state/plan_record';
import { pick } from '../../src/session/open_checks';
import { Cache, fromHidden, logitsOf, toHidden } from './toy';

const SLOW = 10; // times as long while a peer is busy with something else

/** What a defect may replace. */
export const runtime = {
  /** Whether a cache of `have` positions cannot go on with `position`. */
  lacks: (have: number, position: number): boolean => position > have,
  pick,
};

/** The sessions that a peer's units hold, by `runKey`. */
type Caches = Map<string, { readonly run: Run; readonly sessions: Map<SessionId, Cache> }>;

/** `later(afterS, call)` does something in time, `deliver` takes what came of a step. */
export class Worker {
  slow = false;
  readonly caches: Caches = new Map();
  private readonly later: (afterS: number, call: () => void) => void;
  private readonly deliver: (result: Ran | NotRan) => void;
  private readonly tokenS: number;
  private waiting: RunStep[] = [];
  private running: RunStep | null = null;
  private released = false;

  constructor(
    later: (afterS: number, call: () => void) => void,
    deliver: (result: Ran | NotRan) => void,
    tokenS: number,
  ) {
    this.later = later;
    this.deliver = deliver;
    this.tokenS = tokenS;
  }

  /** Takes a step; never answers at once. */
  submit(step: RunStep): void {
    this.waiting.push(step);
    this.next();
  }

  /** Forgets the session; what waits of it is dropped without an answer. */
  free(run: Run, session: SessionId): void {
    const mine = (step: RunStep): boolean => keyOf(step) === `${runKey(run)}/${session}`;
    this.caches.get(runKey(run))?.sessions.delete(session);
    this.waiting = this.waiting.filter((step) => !mine(step));
    if (this.running !== null && mine(this.running)) this.released = true;
  }

  private next(): void {
    const step = this.waiting[this.place()];
    if (this.running !== null || step === undefined) return;
    this.waiting = this.waiting.filter((other) => other !== step);
    this.running = step;
    this.released = false;
    this.later(this.tokenS * (1 + step.count / 8) * (this.slow ? SLOW : 1), () => {
      this.running = null;
      const result = this.run(step);
      if (this.released) this.caches.get(runKey(step.run))?.sessions.delete(step.session);
      this.deliver(result);
      this.next();
    });
  }

  /** The first step of a session that somebody waits for, or else the first. */
  private place(): number {
    if (this.waiting[0]?.behind !== true) return 0;
    const urgent = new Set(this.waiting.filter((step) => !step.behind).map(keyOf));
    return Math.max(
      0,
      this.waiting.findIndex((step) => urgent.has(keyOf(step))),
    );
  }

  private run(step: RunStep): Ran | NotRan {
    const { run, session, epoch, position } = step;
    const mine = this.caches.get(runKey(run));
    if (mine === undefined) {
      const text = 'these units are not loaded';
      return { run, session, epoch, position, have: 0, reason: 'unknown_plan', text };
    }
    let cache = mine.sessions.get(session);
    const have = cache?.rows.length ?? 0;
    if (runtime.lacks(have, position)) {
      return {
        run,
        session,
        epoch,
        position,
        have,
        reason: 'missing_position',
        text: `has ${have} positions`,
      };
    }
    if (cache === undefined) {
      cache = new Cache(run);
      mine.sessions.set(session, cache);
    }
    const values =
      step.tokens === null
        ? fromHidden(step.hidden ?? new Float32Array())
        : Array.from(step.tokens, (token) => token + 1);
    const numbers = cache.take(position, values, step.prompt || values.length > 1);
    const token = step.pick === null ? null : runtime.pick(step.pick, logitsOf(numbers.at(-1) ?? 0));
    return { run, session, epoch, position, count: values.length, hidden: toHidden(numbers), token };
  }
}

function keyOf({ run, session }: RunStep): string {
  return `${runKey(run)}/${session}`;
}
