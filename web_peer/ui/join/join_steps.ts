/* How far joining is: four steps, in order, each with what it reports. Pure. */

import type { JoinStep, StepName } from '../app/view';

const ORDER: readonly StepName[] = ['connect', 'measure', 'fetch', 'ready'];
const SMOOTHING = 0.3; // weight of the newest rate: steady enough to read, quick enough to be true

/** All steps, before any has begun. */
export function firstSteps(): readonly JoinStep[] {
  return ORDER.map((name) => ({ name, state: 'waiting', detail: '', done: 0, total: 0, perSecond: 0 }));
}

/** Step `name` is under way; those before it are done. Going back is ignored: steps only move on. */
export function began(steps: readonly JoinStep[], name: StepName, detail: string): readonly JoinStep[] {
  const at = ORDER.indexOf(name);
  if (steps.some((step, place) => place > at && step.state !== 'waiting')) return steps;
  return steps.map((step, place) => {
    if (place < at) return step.state === 'done' ? step : { ...step, state: 'done' };
    return place === at ? { ...step, state: 'doing', detail } : step;
  });
}

/** Bytes that are here, `elapsedS` after the last report of the same step. */
export function progressed(
  steps: readonly JoinStep[],
  name: StepName,
  done: number,
  total: number,
  elapsedS: number,
): readonly JoinStep[] {
  return steps.map((step) => {
    if (step.name !== name) return step;
    const fresh = step.total === total && elapsedS > 0 ? Math.max(0, done - step.done) / elapsedS : 0;
    const perSecond = step.perSecond === 0 ? fresh : step.perSecond * (1 - SMOOTHING) + fresh * SMOOTHING;
    return { ...step, done, total, perSecond };
  });
}

/** The same steps, each done. */
export function allDone(steps: readonly JoinStep[]): readonly JoinStep[] {
  return steps.map((step) => ({ ...step, state: 'done' }));
}

/** Seconds until the step ends at its present rate; null: cannot be told. */
export function secondsLeft(step: JoinStep): number | null {
  if (step.state !== 'doing' || step.perSecond <= 0 || step.total <= step.done) return null;
  return (step.total - step.done) / step.perSecond;
}
