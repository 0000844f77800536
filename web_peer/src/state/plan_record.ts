/*
 * What a plan in the log says of its peers: the route, and who holds which units (twin of peer/state/plan_record.py).
 * Pure.
 */

import type { Span } from '../wire/json_codec';
import type { PlanRecord } from './generated/commands';

/** Units [first, stop). */
export type Run = Span;

/** A run as the key of a Map or Set. */
export function runKey({ first, stop }: Run): string {
  return `${first}-${stop}`;
}

/** The primary of each stage, in pipeline order. */
export function routeOf(plan: PlanRecord): string[] {
  return plan.stages.map(({ primary }) => primary);
}

/** Which runs of units each peer must hold for this plan. */
export function holdersOf(plan: Pick<PlanRecord, 'stages'>): Map<string, Run[]> {
  const runs = new Map<string, Run[]>();
  for (const { first, stop, primary, standbys } of plan.stages) {
    for (const peer of [primary, ...standbys]) {
      const held = runs.get(peer) ?? [];
      if (!held.some((run) => run.first === first && run.stop === stop)) held.push({ first, stop });
      runs.set(peer, held);
    }
  }
  return runs;
}
