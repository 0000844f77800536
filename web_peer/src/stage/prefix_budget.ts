/*
 * How much this tab keeps of fronts of prompts: out of the cache that it promised and no session needs now, and nothing
 * while it lends only because nobody else can. Edge; prefix_cache.ts decides which ones go.
 */

import type { Mesh } from '../member/mesh_member';
import { LENT_SHARE, MOST_BYTES } from '../session/prefix_cache';

const LOOK_MS = 500;

/** Keeps to it as long as `mesh` is a membership. */
export function makeRoomForFronts(mesh: Mesh): void {
  const { node, signal } = mesh;
  const { prefixes } = node.core;
  prefixes.positionBytes = (run) => node.serving?.positionBytes(run) ?? 0;
  const look = (): void => {
    const most = mostBytes(mesh);
    if (most !== prefixes.mostBytes) node.perform(prefixes.bound(most));
  };
  if (signal.aborted) return; // the membership ended meanwhile
  look();
  const looking = setInterval(look, LOOK_MS);
  signal.addEventListener('abort', () => clearInterval(looking));
}

function mostBytes(mesh: Mesh): number {
  const { serving, state } = mesh.node;
  const { model } = state;
  if (mesh.lending.kind !== 'lending' || serving === null || model === null) return 0;
  const share = Math.floor(mesh.mine().pledgeBytes / LENT_SHARE);
  return Math.min(MOST_BYTES, share, serving.spareBytes(model.sessions * model.context));
}
