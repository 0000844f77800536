/*
 * How much this tab keeps of fronts of prompts: out of the cache that it promised and no session needs now, and nothing
 * while it lends only because nobody else can. Edge; prefix_cache.ts decides which ones go.
 */

import type { ModelView } from '../replication/decoder_view';
import { LENT_SHARE, MOST_BYTES } from '../session/prefix_cache';
import type { StageHost } from './stage_host';

const LOOK_MS = 500;

type View = Pick<ModelView, 'state'>;

/** Keeps to it until `signal` aborts. `lentBytes()`: of memory that this tab lends to anybody now. */
export function makeRoomForFronts(
  stage: StageHost,
  view: View,
  lentBytes: () => number,
  signal: AbortSignal,
): void {
  const { prefixes } = stage.core;
  const look = (): void => {
    const most = mostBytes(stage, view, lentBytes());
    if (most !== prefixes.mostBytes) stage.perform(prefixes.bound(most));
  };
  if (signal.aborted) return; // the membership ended meanwhile
  look();
  const looking = setInterval(look, LOOK_MS);
  signal.addEventListener('abort', () => clearInterval(looking));
}

function mostBytes({ units }: StageHost, { state }: View, lentBytes: number): number {
  const { model } = state;
  if (units === null || model === null) return 0;
  const share = Math.floor(lentBytes / LENT_SHARE);
  return Math.min(MOST_BYTES, share, units.spareBytes(model.sessions, model.context));
}
