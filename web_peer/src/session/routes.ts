/*
 * Decides which peers one session uses: for each stage of a plan the primary or a standby, and who shadows it (twin of
 * peer/session/routes.py). Pure.
 */

import type { PlanRecord, PlanStage } from '../state/generated/commands';
import { holds, isAway, type MeshState } from '../state/mesh_state';

/** Candidates, the primary first, into the order of preference. */
export type Order = (candidates: readonly string[]) => readonly string[];

/** A peer that stands by for a stage. */
export interface Shadow {
  readonly stage: number;
  readonly peer: string;
}

/** The peer at each stage, in pipeline order, and those that stand by for this session. */
export interface Route {
  readonly plan: number;
  readonly peers: readonly string[];
  readonly shadows: readonly Shadow[];
}

/** Everybody who may have a seat for a session that goes over `route`. */
export function membersOf(route: Route): Set<string> {
  return new Set([...route.peers, ...route.shadows.map(({ peer }) => peer)]);
}

/** Whether both are the same peers in the same order. */
export function samePeers(a: readonly string[], b: readonly string[]): boolean {
  return a.length === b.length && a.every((peer, stage) => peer === b[stage]);
}

/** Which units of `plan` are computed where on a route over `peers`; '' when the plan is not known. */
export function placed(plan: PlanRecord | undefined, peers: readonly string[]): string {
  const stages = plan?.stages.slice(0, peers.length) ?? [];
  return stages.map(({ first, stop }, place) => `${first}-${stop}@${peers[place] ?? ''}`).join(' ');
}

export interface Choice {
  readonly gone: ReadonlySet<string>;
  readonly avoid: ReadonlySet<string>;
  readonly order: Order;
  readonly standbys: boolean;
  readonly shadows: boolean;
  readonly loading: boolean;
}

export const ANY: Choice = {
  gone: new Set(),
  avoid: new Set(),
  order: (candidates) => candidates,
  standbys: true,
  shadows: true,
  loading: false,
};

/**
 * The route over `plan` without peers that are `gone`; null when a stage has no other holder.
 *
 * Peers in `avoid` are used only where nobody else can; `order` (circuit breakers) decides among the others. `standbys`
 * false: primaries only. `shadows`: one standby for each stage is named, one that nobody avoids first. `loading`: of a
 * stage that nobody holds by the log, a standby that is to hold it is asked: it may hold it by now.
 */
export function choose(state: MeshState, plan: PlanRecord, choice: Choice): Route | null {
  const { gone, avoid } = choice;
  const peers: string[] = [];
  const shadows: Shadow[] = [];
  for (const [place, stage] of plan.stages.entries()) {
    const all = holders(state, stage, gone);
    const held = all.filter((peer) => !gone.has(peer));
    const asked = choice.loading && held.length === 0 ? standbysHere(state, stage) : held;
    const able = asked.filter((peer) => !gone.has(peer) && (choice.standbys || peer === stage.primary));
    const ordered = able.length > 0 ? choice.order(able) : [];
    const taken = ordered.find((peer) => !avoid.has(peer)) ?? ordered[0];
    if (taken === undefined) return null;
    peers.push(taken);
    const others = all.filter((peer) => peer !== taken);
    const rank = (peer: string): number => (gone.has(peer) ? 2 : 0) + (avoid.has(peer) ? 1 : 0);
    const spare = [...others].sort((a, b) => rank(a) - rank(b))[0];
    if (choice.shadows && spare !== undefined) shadows.push({ stage: place, peer: spare });
  }
  return { plan: plan.version, peers, shadows };
}

/** The stages of `plan` that nobody can serve now without peers that are `gone`. */
export function unserved(
  state: MeshState,
  plan: PlanRecord,
  gone: ReadonlySet<string> = new Set(),
): readonly PlanStage[] {
  return plan.stages.filter((stage) => holders(state, stage, gone).every((peer) => gone.has(peer)));
}

/** Whether each stage of `plan` that nobody can serve has a standby here, which then still loads it. */
export function standbyExpected(state: MeshState, plan: PlanRecord): boolean {
  return unserved(state, plan).every((stage) => standbysHere(state, stage).length > 0);
}

/** Whether they hold it yet or not. */
function standbysHere({ members }: MeshState, { standbys }: PlanStage): string[] {
  return standbys.filter((peer) => {
    const member = members.get(peer);
    return member !== undefined && !isAway(member);
  });
}

/**
 * The members that can serve `stage` now: its primary, if it is here, and the standbys that are ready. The lead of a team
 * serves where all its helpers hold their slices and none of them is `gone`.
 */
export function holders(state: MeshState, stage: PlanStage, gone: ReadonlySet<string> = new Set()): string[] {
  const helpers = stage.helpers ?? [];
  const helped = helpers.every((peer) => !gone.has(peer) && holds(state, peer, stage));
  return [...new Set([stage.primary, ...stage.standbys])].filter(
    (peer) => holds(state, peer, stage) && (helped || peer !== stage.primary),
  );
}
