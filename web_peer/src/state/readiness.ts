/* Why a mesh that serves no plan cannot answer now, for people and programs. Pure; twin of peer/state/readiness.py. */

import { named, names } from './display_names';
import type { MeshState } from './mesh_state';

export const PAUSED = 'all machines that lend to it are paused: one has to go on lending';
export const NOBODY = 'nobody lends a machine to it: one has to join';
export const LOADING = 'its peers are still loading';

/** In a line, with names for ids; of a mesh that has no plan under way. */
export function whyNotReady(state: MeshState): string {
  const lending = [...state.members.values()].filter(({ compute }) => compute);
  if (lending.length === 0) return NOBODY;
  if (lending.every(({ status }) => status === 'paused')) return PAUSED;
  return named(state.refused, names(state.members.values())) || LOADING;
}
