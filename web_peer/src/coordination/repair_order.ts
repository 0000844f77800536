/*
 * Decides in which order lost stages are repaired: before those that need their output, priority units first (twin of
 * what a coordinator asks of peer/coordination/repair_order.py). Pure.
 *
 * A stage needs the one before it: what a stage further back sent lies in the activation log of the stage between.
 */

import type { Run } from '../state/plan_record';

/**
 * The lost places of `runs` in the order of their repair; `priority`: names among `units` whose stages come first, with
 * the lost stages that they wait for. Whoever repairs several at the same time asks for those that wait for nobody
 * first.
 */
export function repairOrder(
  lost: readonly number[],
  runs: readonly Run[],
  units: readonly string[],
  priority: readonly string[],
  together: boolean,
): readonly number[] {
  const isLost = new Set(lost);
  const urgent = new Set<number>();
  for (const place of lost) {
    const run = runs[place];
    if (run === undefined || !units.slice(run.first, run.stop).some((name) => priority.includes(name)))
      continue;
    for (let at = place; isLost.has(at); at -= 1) urgent.add(at);
  }
  const rank = (place: number): number => (urgent.has(place) ? 0 : 1);
  let left = [...lost].sort((a, b) => rank(a) - rank(b) || a - b);
  const order: number[] = [];
  while (left.length > 0) {
    const done = new Set(order);
    const ready = left.filter((place) => !isLost.has(place - 1) || done.has(place - 1));
    order.push(...(together ? ready : ready.slice(0, 1)));
    left = left.filter((place) => !order.includes(place));
  }
  return order;
}
