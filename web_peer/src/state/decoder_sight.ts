/*
 * The state of the mesh as it looks to the parts that serve one further model that answers in words (twin of
 * peer/state/decoder_sight.py).
 *
 * Pure. `model`, plans and what members hold are those of that model, so that whatever serves the mesh's own serves it,
 * too.
 */

import type { PlanWished } from './generated/commands';
import type { MeshState } from './mesh_state';

/**
 * The state as if the model of that name were the mesh's own; one without a model where it is not offered (any more).
 * Borders and components that were fixed by hand are of the mesh's own model alone.
 */
export function seenAs(state: MeshState, name: string): MeshState {
  const found = state.decoders.get(name);
  const members = new Map(
    [...state.members].map(([peer, member]) => [
      peer,
      { ...member, held: found?.held.get(peer) ?? [], slices: [] },
    ]),
  );
  const bare: MeshState = {
    ...{ ...state, members, model: null, plan: null, proposed: null, refused: '' },
    ...{ standbys: new Map(), cuts: null },
  };
  if (found === undefined) return bare;
  const { model, units, context, sessions, objective, plan, proposed, refused } = found;
  return {
    ...bare,
    model: { kind: 'ModelChosen', model, name, units, context, sessions, objective },
    plan,
    proposed,
    lastVersion: Math.max(plan?.version ?? 0, proposed?.version ?? 0),
    refused,
    wish: wishOf(state.wish, objective === 'throughput'),
  };
}

function wishOf(wish: PlanWished | null, isThroughput: boolean): PlanWished | null {
  if (wish?.strategy !== 'component') return wish;
  return {
    kind: 'PlanWished',
    strategy: 'optimal',
    goal: isThroughput ? 'throughput' : wish.goal,
    components: [],
  };
}
