/*
 * What a plan in the log says of its peers: the route, teams, and who holds which units (twin of
 * peer/state/plan_record.py). Pure.
 */

import type { Span } from '../wire/json_codec';
import { type HeldSlice, MAX_SHARE, type PlanRecord, type PlanStage } from './generated/commands';

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

/** Who computes the stage: its primary, which is the lead, and its helpers in the order of their slices. */
export function teamOf({ primary, helpers = [] }: Pick<PlanStage, 'primary' | 'helpers'>): string[] {
  return [primary, ...helpers];
}

/** Everybody without whom the plan cannot serve by its primaries: leads and helpers. */
export function computingIn(plan: Pick<PlanRecord, 'stages'>): Set<string> {
  return new Set(plan.stages.flatMap(teamOf));
}

/** Who is to hold all of the stage's units: its primary, unless that is the lead of a team, and standbys. */
export function wholeHolders({ primary, standbys, helpers = [] }: PlanStage): string[] {
  return helpers.length > 0 ? [...standbys] : [primary, ...standbys];
}

/** The slice that `peer` is to hold as a member of the stage's team; null: it is in none. */
export function sliceOf(stage: PlanStage, peer: string): HeldSlice | null {
  const place = teamOf(stage).indexOf(peer);
  const { first, stop, helpers = [], shares = [] } = stage;
  return helpers.length === 0 || place < 0 ? null : { first, stop, place, shares };
}

/** A slice as the key of a Map or Set. */
export function sliceKey({ first, stop, place, shares }: HeldSlice): string {
  return `${first}-${stop} ${place} of ${shares.join(':')}`;
}

/** Which runs of units each peer must hold whole for this plan. */
export function holdersOf(plan: Pick<PlanRecord, 'stages'>): Map<string, Run[]> {
  const runs = new Map<string, Run[]>();
  for (const stage of plan.stages) {
    const { first, stop } = stage;
    for (const peer of wholeHolders(stage)) {
      const held = runs.get(peer) ?? [];
      if (!held.some((run) => run.first === first && run.stop === stop)) held.push({ first, stop });
      runs.set(peer, held);
    }
  }
  return runs;
}

/** Which slices of units each member of a team must hold for this plan. */
export function slicesOf(plan: Pick<PlanRecord, 'stages'>): Map<string, HeldSlice[]> {
  const found = new Map<string, HeldSlice[]>();
  for (const stage of plan.stages) {
    for (const peer of teamOf(stage)) {
      const part = sliceOf(stage, peer);
      const held = found.get(peer) ?? [];
      if (part === null || held.some((each) => sliceKey(each) === sliceKey(part))) continue;
      found.set(peer, [...held, part]);
    }
  }
  return found;
}

/** Why the teams of a plan cannot be, for people; '' where all can, as in a plan without any. */
export function teamFault({ stages }: PlanRecord, members: ReadonlyMap<string, unknown>): string {
  for (const [number, stage] of stages.entries()) {
    const { helpers = [], shares = [], standbys } = stage;
    const team = teamOf(stage);
    if (helpers.length + shares.length === 0) continue;
    if (shares.length !== team.length || helpers.length === 0) {
      return `stage ${number}: expected a share of each of ${team.length} members, got ${shares.length}`;
    }
    if (shares.some((share) => share < 1 || share > MAX_SHARE)) {
      return `stage ${number}: expected shares from 1 to ${MAX_SHARE}`;
    }
    if (new Set(team).size < team.length) return `stage ${number}: a peer is in its team twice`;
    if (team.some((peer) => standbys.includes(peer))) {
      return `stage ${number}: a member of its team stands by for it`;
    }
    const stranger = team.find((peer) => !members.has(peer));
    if (stranger !== undefined) return `stage ${number}: ${stranger} of its team is no member`;
  }
  return '';
}
