/*
 * Decides what differs for an answer whose asker keeps embedding, head and sampling (twin of
 * peer/session/pinned_ends.py). Pure.
 *
 * Its OPEN has no sampling settings, no end tokens and no history. The first stage takes float32 states in place of
 * token ids, the last one hands its states back: as steps for the place behind the last, to the asker, which draws the
 * tokens.
 */

import type { Ask } from './ask';
import { type Pick, type Ran, REASONS, type Send } from './effects';
import { FINISH, type Open, type Refuse, type Step, type Token } from '../wire/generated/frames';
import { MAX_ROUTE } from '../limits';
import type { Fault } from './open_checks';
import { needsHistory } from './sampling';
import type { Seat } from './seat';
import { floats, type Tensor, tensorOf } from '../wire/tensors';

/** Whether its asker keeps embedding, head and sampling. */
export function isPinned({ sampling }: { readonly sampling: readonly number[] }): boolean {
  return sampling.length === 0;
}

/** What is wrong with an OPEN of an asker that keeps its ends. */
export function wrongEnds(frame: Open): Fault | null {
  const tells = frame.endTokens.length > 0 || frame.history.length > 0;
  if (!isPinned(frame) || (!tells && frame.route.length < MAX_ROUTE)) return null;
  const text = `without sampling settings, no tokens and a route of less than ${MAX_ROUTE} stages were expected`;
  return { reason: 'bad_step', text };
}

/** Whether the steps at this place are token ids; rows in their place may stand among what was given. */
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

// --- the asker

/** What an asker holds of the model itself (pinned_ends.ts). */
export interface Ends {
  readonly width: number; // of a state
  /** float32 (tokens, width) */
  embed(tokens: Int32Array): Tensor;
  /** Tells, later, the token that follows from `state` (width,); null where none could be drawn. */
  draw(drawing: Drawing, state: Float32Array, tell: (token: Token | null) => void): void;
}

/** The same, with nothing in it that says which tokens there are. */
export function pinned(frame: Open): Open {
  return { ...frame, sampling: [], endTokens: [], history: new Int32Array() };
}

/** How the asker draws the token for `pick.position` from the head's logits. */
export interface Drawing {
  readonly kind: 'drawing';
  readonly frame: Step;
  readonly pick: Pick;
  readonly endTokens: readonly number[];
  readonly isLast: boolean; // the answer may have no token more
}

/** What follows from the state in `frame`, when `tokens` are known and the last `generated` were sampled. */
export function drawingOf(
  ask: Ask,
  tokens: readonly number[],
  generated: number,
  frame: Step,
): Token | Drawing | null {
  const position = frame.position + 1;
  const known = tokens[position];
  if (known !== undefined) return tokenFor(frame, position, known, FINISH.more);
  if (position > tokens.length) return null;
  const history = Int32Array.from(needsHistory(ask.sampling) ? tokens : []);
  const pick = { sampling: ask.sampling, position, history, generated };
  return { kind: 'drawing', frame, pick, endTokens: ask.endTokens, isLast: generated + 1 >= ask.maxTokens };
}

/** A token that was drawn, as a last stage would tell it. */
export function drawnToken({ frame, pick, endTokens, isLast }: Drawing, token: number): Token {
  const finish = endTokens.includes(token) ? FINISH.endToken : isLast ? FINISH.length : FINISH.more;
  return tokenFor(frame, pick.position, token, finish);
}

function tokenFor({ session, turn }: Step, position: number, token: number, finish: number): Token {
  return { kind: 'TOKEN', session, turn, position, token, finish };
}

/** The one row of float32 that a last stage hands back; null where it is something else. */
export function stateIn({ tensor }: Step, width: number): Float32Array | null {
  const [rows, columns] = tensor.shape;
  if (tensor.dtype !== 'float32' || tensor.shape.length !== 2 || rows !== 1 || columns !== width) return null;
  const row = floats(tensor);
  return row.every(Number.isFinite) ? row : null;
}

/** What a last stage would have said of a state that is no state. */
export function notUsable({ session, turn, stage, position }: Step): Refuse {
  const message = 'the last stage handed back what is no state';
  const place = { stage: stage - 1, position, have: 0, reason: REASONS.not_finite_output } as const;
  return { kind: 'REFUSE', session, turn, ...place, message };
}
