/*
 * Which OPENs a stage takes, and the frames that it answers and passes on (twin of peer/session/open_checks.py). Pure.
 */

import { rowsIn } from './activation_log';
import { type Pick, type Reason, REASONS, type Send, type Spare } from './effects';
import { BadSampling } from '../errors';
import { type Open, ROLE, type Step } from '../wire/generated/frames';
import { type Run, runKey } from '../state/plan_record';
import { named } from './prefix_cache';
import { allowedOnly } from './ask';
import { GREEDY, sample, type Sampling, samplingFromWire } from './sampling';
import type { Seat } from './seat';
import { sumOf } from './position_spans';
import type { Tensor } from '../wire/tensors';

/** Who may hold each stage of a plan, and its units. */
export type PlanStages = readonly { readonly peers: readonly string[]; readonly run: Run }[];

/** Units that are loaded, and for how many sessions. */
export interface Loaded {
  readonly run: Run;
  readonly slots: number;
}

/** Why an OPEN is not taken. */
export interface Fault {
  readonly reason: Reason;
  readonly text: string;
}

/** What is wrong with an OPEN that came to `me` from `sender`, whatever is served here. */
export function misplaced(me: string, sender: string, frame: Open): Fault | null {
  const { route, stage } = frame;
  const fault = (text: string): Fault => ({ reason: 'bad_step', text });
  if (stage >= route.length || frame.shadows.length !== frame.shadowStages.length) {
    return fault('the route has no such place');
  }
  const named =
    frame.role === ROLE.serve
      ? [route[stage]]
      : frame.shadows.filter((_, at) => frame.shadowStages[at] === stage);
  if (!named.includes(me)) return fault('this peer is not at that place of the route');
  const expected = stage > 0 ? route[stage - 1] : frame.origin;
  if (sender !== expected) return fault(`OPEN for stage ${stage} must come from ${expected ?? ''}`);
  if (sumOf(frame.spans) !== frame.promptTokens || frame.answer > frame.turn) {
    return fault('spans add up to the tokens so far, and an answer begins before its turns');
  }
  return null;
}

/** Why units for this OPEN's place are not served here, under `plan`. */
export function unserved(
  plan: PlanStages | undefined,
  loaded: ReadonlyMap<string, Loaded>,
  { route, stage, plan: version }: Open,
): Fault | null {
  const fits =
    plan?.length === route.length && plan.every(({ peers }, at) => peers.includes(route[at] ?? ''));
  const run = plan?.[stage]?.run;
  if (!fits || run === undefined) {
    return { reason: 'unknown_plan', text: `plan ${version} with that route is not served here` };
  }
  if (!loaded.has(runKey(run))) {
    return { reason: 'unknown_plan', text: `units ${run.first}-${run.stop - 1} are not loaded here` };
  }
  return null;
}

const SETTINGS = 8; // integers of sampling; those behind them steer
const STEERED = SETTINGS + 3;

interface Steered {
  readonly sampling: readonly number[];
  readonly history: Int32Array;
}

/** The tokens so far of an OPEN that was checked, and the mask of those that may be drawn. */
export function steeringOf({ sampling, history }: Steered): {
  readonly history: number[];
  readonly allowed: readonly number[];
} {
  const all = [...history];
  const allowed = sampling.length === STEERED ? all.splice(all.length - (sampling[STEERED - 1] ?? 0)) : [];
  return { history: all, allowed };
}

/** Why an OPEN is not taken for a session that another peer asked. `author`: who asks it now, by the log. */
export function notAdopted(author: string | null, frame: Open): Fault | null {
  if (author === frame.origin) return null;
  return author === null
    ? { reason: 'bad_step', text: 'that session belongs to another asker' }
    : { reason: 'unknown_session', text: 'that session is not known here as adopted yet' };
}

/** The token for `spec.position`, from the head's logits (vocabulary,). The runtime's worker calls it. */
export function pick(spec: Pick, logits: Float32Array): number {
  const { history, generated, allowed = [] } = spec;
  const answer = generated > 0 ? history.subarray(-generated) : history.subarray(0, 0);
  return sample(allowedOnly(logits, allowed), spec.sampling, spec.position, history, answer);
}

/** How the tail of `seat` draws the token for `position`. */
export function pickOf(seat: Seat, position: number): Pick {
  const { sampling, history, generated, allowed } = seat;
  const steered = allowed.length === 0 ? {} : { allowed };
  return { sampling, position, history: Int32Array.from(history), generated, ...steered };
}

/** The output of a seat for positions from `position` on, as the next stage gets it. */
export function stepFor(seat: Seat, position: number, tensor: Tensor): Step {
  const { session, turn, stage, promptTokens } = seat.opening;
  const count = rowsIn(tensor);
  const last = position + count >= promptTokens ? 1 : 0;
  return { kind: 'STEP', session, turn, stage: stage + 1, position, count, last, tensor };
}

/** Tells the asker that the turn is over here. `have`: cached positions, or the place of a lost neighbour. */
export function refusal(seat: Seat, reason: Reason, text: string, have = 0, position = 0): Send {
  return refusedOpen(seat.opening, reason, text, position, have);
}

/** Tells the asker that its OPEN was not taken. */
export function refusedOpen(frame: Open, reason: Reason, message: string, position = 0, have = 0): Send {
  const { session, turn, stage, origin } = frame;
  return {
    kind: 'send',
    peer: origin,
    frame: { kind: 'REFUSE', session, turn, stage, position, have, reason: REASONS[reason], message },
  };
}

/** The OPEN for the next stage and for its shadows. */
export function passedOn(seat: Seat): (Send | Spare)[] {
  const { opening, downstream, prefix } = seat;
  if (!seat.serves || downstream === undefined) return [];
  const stage = opening.stage + 1;
  const serve = named({ ...opening, stage, role: ROLE.serve }, prefix);
  const shadow = named({ ...opening, stage, role: ROLE.shadow }, prefix);
  return [
    { kind: 'send', peer: downstream, frame: serve },
    ...seat.shadows(stage).map((peer) => ({ kind: 'spare', peer, frame: shadow }) as const),
  ];
}

/** `samples`: whether this peer draws the tokens. Of steering (docs/protocol.md) it can rule tokens out alone. */
export function samplingOrFault(
  { sampling: wire, history }: Steered,
  samples: boolean,
): Sampling | BadSampling {
  try {
    if (samples && wire.length > SETTINGS) {
      const [told, biases, words = -1] = wire.slice(SETTINGS);
      if (wire.length !== STEERED || told !== 0 || biases !== 0) {
        return new BadSampling('a tab cannot bias tokens or tell probabilities; plan the head elsewhere');
      }
      if (words < 0 || words > history.length) {
        return new BadSampling(`expected ${words} words of steering, got ${history.length}`);
      }
    }
    return wire.length === 0 ? GREEDY : samplingFromWire(wire.slice(0, SETTINGS)); // none: its asker draws
  } catch (error) {
    if (error instanceof BadSampling) return error;
    throw error;
  }
}
