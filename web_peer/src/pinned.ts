/*
 * Decides what differs for an answer whose asker keeps embedding, head and sampling (twin of peer/pinned.py). Pure.
 *
 * Its OPEN has no sampling settings, no end tokens and no history. The first stage takes float32 states in place of
 * token ids, the last one hands its states back: as steps for the place behind the last, to the asker, which draws the
 * tokens.
 */

import type { Ran, Send } from './effects';
import { MAX_ROUTE, type Open } from './frames';
import type { Fault } from './openings';
import type { Seat } from './seats';
import { tensorOf } from './tensors';

/** Whether its asker keeps embedding, head and sampling. */
export function isPinned({ sampling }: Open): boolean {
  return sampling.length === 0;
}

/** What is wrong with an OPEN of an asker that keeps its ends. */
export function wrongEnds(frame: Open): Fault | null {
  const tells = frame.endTokens.length > 0 || frame.history.length > 0;
  if (!isPinned(frame) || (!tells && frame.route.length < MAX_ROUTE)) return null;
  const text = `without sampling settings, no tokens and a route of less than ${MAX_ROUTE} stages were expected`;
  return { reason: 'bad_step', text };
}

/** Whether the steps at this place are token ids. */
export function takesIds(frame: Open): boolean {
  return frame.stage === 0 && !isPinned(frame);
}

/** Whether the inputs at this place tell which tokens an asker has that keeps its ends: rows of the embedding do. */
export function tellsIds(frame: Open): boolean {
  return frame.stage === 0 && isPinned(frame);
}

/** The state that the next token is drawn from, for the asker; nothing for positions before it. */
export function handedBack({ opening }: Seat, result: Ran): Send[] {
  const stop = result.position + result.count;
  if (result.hidden === null || !isPinned(opening) || stop < opening.promptTokens) return [];
  const width = result.hidden.length / result.count;
  const tensor = tensorOf(result.hidden.slice(-width), [1, width]);
  const { session, turn, origin, route } = opening;
  const place = { stage: route.length, position: stop - 1, count: 1, last: 1 } as const;
  return [{ kind: 'send', peer: origin, frame: { kind: 'STEP', session, turn, ...place, tensor } }];
}
