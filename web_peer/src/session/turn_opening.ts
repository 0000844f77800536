/* The frames that an asker opens a turn with, and the steps that it sends of what was said so far. Pure. */

import { type Ask, toWire } from './ask';
import { type OriginEffect, send, spare } from './effects';
import { type Open, ROLE, type SessionId, type Step } from '../wire/generated/frames';
import { type Ends, pinned } from './pinned_ends';
import type { Route } from './routes';
import { needsHistory, samplingToWire } from './sampling';
import {
  cutAt,
  extended,
  type GivenRows,
  rowsAt,
  shiftAt,
  shifted,
  shiftedIds,
  stepsOf,
} from './position_spans';
import { floats, type Tensor, tensorOf } from '../wire/tensors';

/** What was said in a session, and how its stages count it. */
export interface Said {
  readonly session: SessionId;
  readonly turn: number;
  readonly tokens: readonly number[]; // prompt and answer so far
  readonly rows: readonly GivenRows[]; // of the prompt, in place of token ids
  readonly generated: number; // of them, in this answer
  readonly spans: readonly number[]; // of the prompt of this answer
  readonly answer: number;
  readonly before: number;
  readonly keep: number;
  readonly ends: Ends | null; // where the asker keeps them
}

/** The spans of all tokens. */
export function allSpans({ spans, generated }: Said): number[] {
  return extended(spans, generated, false);
}

/** The OPEN of `origin` for a turn over `route` that sends positions from `start` on. */
export function openingOf(said: Said, origin: string, route: Route, ask: Ask, start: number): Open {
  const { session, turn, tokens, generated, answer, before, keep, ends } = said;
  const known = needsHistory(ask.sampling) ? tokens : [];
  const steered = toWire(samplingToWire(ask.sampling), ask.allowed ?? [], known);
  const told: Open = {
    kind: 'OPEN',
    session,
    turn,
    plan: route.plan,
    route: route.peers,
    stage: 0,
    origin,
    start,
    promptTokens: tokens.length,
    maxTokens: ask.maxTokens - generated,
    sampling: steered.sampling,
    endTokens: ask.endTokens,
    generated,
    role: ROLE.serve,
    answer,
    before,
    keep,
    spans: allSpans(said),
    shadowStages: route.shadows.map(({ stage }) => stage),
    shadows: route.shadows.map(({ peer }) => peer),
    history: Int32Array.from(steered.history),
  };
  return ends === null ? told : pinned(told);
}

/** The steps of positions `start` to `stop`. */
export function stepsBetween(said: Said, start: number, stop: number): Step[] {
  const steps = cutAt(stepsOf(start, stop, allSpans(said)), said.rows);
  return steps.map(({ position, stop: end }) => stepBetween(said, position, end));
}

/** One step of positions `position` to `stop`. */
export function stepBetween(said: Said, position: number, stop: number): Step {
  const { session, turn, tokens, rows, ends } = said;
  const count = stop - position;
  const ids = tokens.slice(position, stop);
  const shift = shiftAt(rows, position);
  const own = (): Tensor => {
    if (ends === null) return shiftedIds(ids, shift);
    const made = ends.embed(Int32Array.from(ids));
    return tensorOf(shifted(floats(made), ends.width, shift), made.shape);
  };
  const tensor = rowsAt(rows, position, stop) ?? own();
  const last = stop === tokens.length ? 1 : 0;
  return { kind: 'STEP', session, turn, stage: 0, position, count, last, tensor };
}

/** An OPEN and the first steps, for the first stage and its shadows. */
export function sent(opening: Open, steps: readonly Step[]): OriginEffect[] {
  const [first = ''] = opening.route;
  const effects: OriginEffect[] = [send(first, opening), ...steps.map((step) => send(first, step))];
  for (const [at, peer] of opening.shadows.entries()) {
    if (opening.shadowStages[at] !== 0) continue;
    effects.push(spare(peer, { ...opening, role: ROLE.shadow }), ...steps.map((step) => spare(peer, step)));
  }
  return effects;
}
