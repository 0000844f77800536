/*
 * What this tab can show of sessions that it computes, for peers that check steps of others (twin of the witness in
 * peer/audit/step_checks.py).
 */

import { BadCommand } from '../errors';
import { type Bytes, MARK_BYTES, rowsAnswer, spanOf } from '../session/evidence';
import { fromHex, toHex } from '../wire/hex';
import type { MeshState } from '../state/mesh_state';
import { tellsIds } from '../session/pinned_ends';
import { spansUpTo } from './step_place';
import type { Seat } from '../session/seat';
import { MAX_CHECKED_POSITIONS, type WitnessAnswer, type WitnessRequest } from '../wire/generated/requests';

const MOST_MATCHES = 64; // questions of one peer about one session whether marks match: each may be a guess

/** What is asked for testimony: the mesh as it is known, and the seats that are computed here. */
export interface Court {
  readonly view: { readonly state: Pick<MeshState, 'members' | 'plan' | 'proposed'> };
  readonly stage: { readonly core: { seatAt(session: string, stage: number): Seat | undefined } };
}

/** The answer to a `witness` request of `peer`. Raises BadCommand. */
export async function testimony(
  { view, stage: host }: Court,
  peer: string,
  { session, side, stage, first, stop, seen }: WitnessRequest,
): Promise<WitnessAnswer> {
  if (!view.state.members.has(peer)) throw new BadCommand('witness: expected a member');
  if (first >= stop || stop > first + MAX_CHECKED_POSITIONS) {
    throw new BadCommand(`witness: expected at most ${MAX_CHECKED_POSITIONS} positions`);
  }
  const seat = host.core.seatAt(session, stage);
  if (seat === undefined) throw new BadCommand('witness: expected a session that is computed here');
  if ((side === 'in' || side === 'marks') && tellsIds(seat.opening) && peer !== seat.opening.origin) {
    throw new BadCommand('witness: expected the asker, who alone has the tokens');
  }
  const near = side === 'out' ? stage + 1 : side === 'in' ? stage - 1 : stage;
  admit(view, peer, seat, near);
  switch (side) {
    case 'place':
      return seatPlace(seat, stop);
    case 'token':
      return { token: seat.sampled.get(first)?.token ?? null };
    case 'marks':
      return { marks: await marksOfSeat(seat, first, stop) };
    case 'match': {
      countMatch(seat, peer);
      const marks = first === 0 ? await marksOfSeat(seat, 0, stop) : null;
      return { same: marks === null ? null : (await digestOf(marks)) === seen };
    }
    case 'in':
    case 'out': {
      return rowsAnswer(spanOf(side === 'out' ? seat.log : seat.inputs, first, stop));
    }
    default:
      throw new BadCommand('witness: expected place, marks, match, in, out or token');
  }
}

/** Raises BadCommand for who asks so often that it guesses tokens. */
function countMatch({ matches }: Seat, peer: string): void {
  const asked = matches.get(peer) ?? 0;
  matches.set(peer, asked + 1);
  if (asked >= MOST_MATCHES) {
    throw new BadCommand(`witness: at most ${MOST_MATCHES} of these questions about one session`);
  }
}

/** Marks of positions [first, stop), in hex: those of the first span are kept, also of a front that was copied. */
export async function marksOfSeat(seat: Seat, first: number, stop: number): Promise<string | null> {
  if (stop > seat.submitted) return null;
  const kept = seat.marks.slice(first, stop).map(toHex).join('');
  const from = Math.max(first, seat.marks.length);
  if (from >= stop) return kept;
  const inputs = spanOf(seat.inputs, from, stop);
  return inputs === null ? null : kept + (await marksOf(inputs, stop - from));
}

/** The mark of each of `count` rows: the first bytes of its hash, in hex, one behind the other. */
export async function marksOf(inputs: Bytes, count: number): Promise<string> {
  const width = inputs.length / count;
  const marks: string[] = [];
  for (let at = 0; at < count; at += 1) {
    const hash = await crypto.subtle.digest('SHA-256', inputs.subarray(at * width, (at + 1) * width));
    marks.push(toHex(new Uint8Array(hash).subarray(0, MARK_BYTES)));
  }
  return marks.join('');
}

/** Its units and neighbours ("": the asker), and how positions up to `stop` were given and sampled. */
export function seatPlace({ opening, run, upstream, downstream }: Seat, stop: number): WitnessAnswer {
  return {
    units: run,
    before: opening.stage > 0 ? upstream : '',
    after: downstream ?? '',
    spans: spansUpTo(opening.spans, opening.promptTokens, stop),
  };
}

/** All of it tells of the text: only who asked for it, or holds the units on one side, may have it. */
function admit({ state }: Court['view'], peer: string, { opening }: Seat, other: number): void {
  const plan = [state.plan, state.proposed].find((each) => each?.version === opening.plan);
  const held = state.members.get(peer)?.held ?? [];
  const isNear = [opening.stage, other].some((place) => {
    const stage = plan?.stages[place];
    return held.some(({ first, stop }) => first === stage?.first && stop === stage.stop);
  });
  if (peer !== opening.origin && !isNear) {
    throw new BadCommand('witness: expected the asker, or a holder of the units in question');
  }
}

/** What stands for all inputs of a first stage: that two are the same shows, nothing else does. */
export async function digestOf(marks: string): Promise<string> {
  return toHex(new Uint8Array(await crypto.subtle.digest('SHA-256', new Uint8Array(fromHex(marks)))));
}
