/*
 * Decides what a mesh wishes of its plans: the strategy by which units are cut, and what a plan is to be good at (twin
 * of peer/state/plan_goal.py). Pure.
 */

import type { PlanWished } from './generated/commands';

/** Why the components do not hold all `units` units of the model in order, where they are needed; "" when they do. */
export function checkWish({ strategy, components }: PlanWished, units: number): string {
  if (strategy !== 'component') {
    return components.length === 0 ? '' : 'component: expected the strategy component with it';
  }
  let at = 0;
  for (const { name, first, stop } of components) {
    if (first !== at || stop <= first || stop > units) {
      return `component ${name}: expected units from ${at} to at most ${units - 1}, got ${first}-${stop - 1}`;
    }
    at = stop;
  }
  return at === units ? '' : `component: expected groups that hold all ${units} units, got the first ${at}`;
}
