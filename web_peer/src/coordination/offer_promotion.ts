/*
 * Decides who runs the units of an offered model at once when those who did are gone: whoever stands by for them (twin
 * of peer/coordination/offer_promotion.py). Pure.
 */

import type { ModelOffer, ModelPlaced, RunStage } from '../state/generated/commands';
import { isAway, type MeshState } from '../state/mesh_state';
import { byBytes } from '../wire/utf8_order';

/** A model whose primaries are gone for which others stand by: these run it at once. Null where there is none. */
export function promoted(state: MeshState): ModelPlaced | null {
  for (const [name, offer] of [...state.offers].sort(([a], [b]) => byBytes(a, b))) {
    const stages = offer.stages.map((stage) => takenOver(state, stage));
    const heirs = stages.flatMap((stage, at) => (stage === offer.stages[at] ? [] : [stage.primary]));
    if (heirs.length === 0) continue;
    const why = [...new Set(heirs)].map((heir) => `${heir} has taken over what was lost.`);
    const { latencyUs, rateMilli } = offer;
    return {
      kind: 'ModelPlaced',
      name,
      version: nextVersion(state, offer),
      stages,
      latencyUs,
      rateMilli,
      why,
    };
  }
  return null;
}

/** Above all that any placement under this name had: the log only grows. */
export function nextVersion(state: MeshState, offer: ModelOffer): number {
  return Math.max(state.index, offer.version) + 1;
}

/** Whether a peer is here, lends, and has measured itself. */
export function stands(state: MeshState, peer: string): boolean {
  const member = state.members.get(peer);
  return member?.compute === true && !isAway(member) && member.status !== 'joining';
}

function takenOver(state: MeshState, stage: RunStage): RunStage {
  const [heir, ...standbys] = stage.standbys.filter((peer) => stands(state, peer));
  if (heir === undefined || stands(state, stage.primary)) return stage;
  return { ...stage, primary: heir, standbys };
}
