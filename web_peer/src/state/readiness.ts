/* Why a mesh that serves no plan cannot answer now, for people and programs. Pure; twin of peer/state/readiness.py. */

import { named, names } from './display_names';
import { seenAs } from './decoder_sight';
import { isAway, type MeshState, serving } from './mesh_state';

export const PAUSED = 'all machines that lend to it are paused: one has to go on lending';
export const NOBODY = 'nobody lends a machine to it: one has to join';
export const NOTHING = 'nothing is offered yet, which shoal offer does';
export const NO_WORDS = 'no model of this mesh answers in words';
export const NOT_OWN = 'say which model is asked; these answer in words';
export const LOADING = 'its peers are still loading';

/** In a line, with names for ids; of a mesh that has no plan under way. */
export function whyNotReady(state: MeshState): string {
  if (state.model === null && state.members.size > 0) return whyNoWords(state);
  const lending = [...state.members.values()].filter(({ compute }) => compute);
  if (lending.length === 0) return NOBODY;
  if (lending.every(({ status }) => status === 'paused')) return PAUSED;
  return named(state.refused, names(state.members.values())) || LOADING;
}

/** Whether a model that the mesh offers has a place, and who runs it is there. */
export function runsAny(state: MeshState): boolean {
  const { decoders, offers, members } = state;
  if ([...decoders.keys()].some((name) => serving(seenAs(state, name)) !== null)) return true;
  return [...offers.values()].some(
    ({ stages }) =>
      stages.length > 0 &&
      stages.every(({ primary }) => {
        const member = members.get(primary);
        return member !== undefined && !isAway(member);
      }),
  );
}

/** Why nothing is answered in a mesh that was founded for other models alone: what it runs. */
export function whyNoWords({ decoders, offers }: MeshState): string {
  if (decoders.size > 0) return `${NOT_OWN}: ${[...decoders.keys()].sort().join(', ')}`;
  const runs = offers.size > 0 ? `shoal run asks ${[...offers.keys()].sort().join(', ')}` : NOTHING;
  return `${NO_WORDS}: ${runs}`;
}
