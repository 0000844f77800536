/*
 * Decides what a stage gives its runtime for one step, and what becomes of the token that the last one sampled. Pure.
 */

import type { RunStep, Send } from './effects';
import { FINISH, type Step, type Token } from '../wire/generated/frames';
import { pickOf } from './open_checks';
import { isPinned } from './pinned_ends';
import type { Seat } from './seat';
import { idsOf } from './position_spans';
import { floats } from '../wire/tensors';

/** Has the runtime compute `frame` on `me`. `active`: answers that the same units compute. */
export function runStepOf(me: string, seat: Seat, frame: Step, active: number): RunStep {
  const said = frame.tensor.dtype === 'int32' ? idsOf(frame.tensor) : null;
  const stop = frame.position + frame.count;
  const draws = seat.isTail && seat.serves && !isPinned(seat.opening);
  const sampled = draws && stop >= seat.opening.promptTokens;
  return {
    kind: 'runStep',
    run: seat.run,
    session: frame.session,
    epoch: seat.epoch,
    position: frame.position,
    tokens: said?.ids ?? null,
    hidden: said === null ? ownArray(me, seat, floats(frame.tensor)) : null,
    count: frame.count,
    last: sampled,
    pick: sampled ? pickOf(seat, stop) : null,
    prompt: seat.isGiven(frame.position),
    mostRows: mostRows(seat, active),
    behind: !seat.serves || (seat.warms && !seat.near),
    shift: said?.shift ?? 0,
  };
}

/** An array that the runtime may take over: what this peer made itself is in its log, too. */
function ownArray(me: string, seat: Seat, hidden: Float32Array): Float32Array {
  return seat.upstream === me ? hidden.slice() : hidden;
}

function mostRows(seat: Seat, active: number): number {
  const stages = seat.opening.route.length;
  if (seat.opening.stage > 0 || stages === 1) return 0; // later stages take what comes together
  return Math.ceil(active / stages);
}

/** Whether `token` ends the answer of `seat`, which counted it already. */
export function finishOf({ opening, generated }: Seat, token: number): number {
  if (opening.endTokens.includes(token)) return FINISH.endToken;
  return generated - opening.generated >= opening.maxTokens ? FINISH.length : FINISH.more;
}

/** TOKEN for the first stage and for the asker. */
export function told(seat: Seat, position: number, token: number, finish: number): Send[] {
  const { session, turn, route, origin } = seat.opening;
  const frame: Token = { kind: 'TOKEN', session, turn, position, token, finish };
  return [...new Set([route[0] ?? origin, origin])].map((peer) => ({ kind: 'send', peer, frame }));
}
