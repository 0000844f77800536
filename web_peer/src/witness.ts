/*
 * What this tab can show of sessions that it computes, for peers that check steps of others (twin of the witness in
 * peer/checks.py). A tab computes no checks itself, and has none made of its own answers.
 */

import { type ActivationLog, rowsIn } from './activation_log';
import type { Body } from './calls';
import { BadCommand } from './errors';
import { fromHex, toHex } from './hex';
import type { Node } from './node';
import { tellsIds } from './pinned';
import type { Seat } from './seats';
import { cutSpans, extended } from './spans';

const MOST_POSITIONS = 1024;
const PAGE_BYTES = 2 * 384 * 1024; // of activations in one answer
const MARK_BYTES = 8;

/** The answer to a `witness` request of `peer`. Raises BadCommand. */
export async function testimony(node: Node, peer: string, body: Body): Promise<Body> {
  const { session, side } = body;
  const [stage, first, stop] = [whole(body, 'stage'), whole(body, 'first'), whole(body, 'stop')];
  if (!node.state.members.has(peer)) throw new BadCommand('witness: expected a member');
  if (first >= stop || stop > first + MOST_POSITIONS) {
    throw new BadCommand(`witness: expected at most ${MOST_POSITIONS} positions`);
  }
  const seat = typeof session === 'string' ? node.core.seatAt(session, stage) : undefined;
  if (seat === undefined) throw new BadCommand('witness: expected a session that is computed here');
  if ((side === 'in' || side === 'marks') && tellsIds(seat.opening) && peer !== seat.opening.origin) {
    throw new BadCommand('witness: expected the asker, who alone has the tokens');
  }
  const near = side === 'out' ? stage + 1 : side === 'in' ? stage - 1 : stage;
  admit(node, peer, seat, near);
  switch (side) {
    case 'place':
      return placeOf(seat, stop);
    case 'token':
      return { token: seat.sampled.get(first)?.token ?? null };
    case 'marks': {
      const inputs = spanOf(seat.inputs, first, stop);
      return { marks: inputs === null ? null : await marksOf(inputs, stop - first) };
    }
    case 'match': {
      const inputs = first === 0 ? spanOf(seat.inputs, 0, stop) : null;
      return {
        same: inputs === null ? null : (await digestOf(await marksOf(inputs, stop))) === body['seen'],
      };
    }
    case 'in':
    case 'out': {
      const found = spanOf(side === 'out' ? seat.log : seat.inputs, first, stop);
      return { rows: found === null || found.length > PAGE_BYTES ? null : base64(found) };
    }
    default:
      throw new BadCommand('witness: expected place, marks, match, in, out or token');
  }
}

/** Its units and neighbours ("": the asker), and how positions up to `stop` were given and sampled. */
function placeOf({ opening, run, upstream, downstream }: Seat, stop: number): Body {
  const { spans, promptTokens, stage } = opening;
  const cut = cutSpans(spans, Math.min(stop, promptTokens));
  return {
    units: [run.first, run.stop],
    before: stage > 0 ? upstream : '',
    after: downstream ?? '',
    spans: extended(cut, Math.max(0, stop - promptTokens), false),
  };
}

/** All of it tells of the text: only who asked for it, or holds the units on one side, may have it. */
function admit({ state }: Node, peer: string, { opening }: Seat, other: number): void {
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

/** The bytes of positions [first, stop) of what `log` keeps; null when they are not all there. */
function spanOf(log: ActivationLog, first: number, stop: number): Uint8Array<ArrayBuffer> | null {
  const found = first >= log.start && stop <= log.stop ? log.since(first) : null;
  if (found === null || found.length === 0) return null;
  const parts = found
    .filter(({ position }) => position < stop)
    .map(({ position, tensor }) => {
      const width = tensor.data.length / rowsIn(tensor);
      return tensor.data.subarray(0, Math.min(rowsIn(tensor), stop - position) * width);
    });
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

async function marksOf(inputs: Uint8Array<ArrayBuffer>, count: number): Promise<string> {
  const width = inputs.length / count;
  const marks: string[] = [];
  for (let at = 0; at < count; at += 1) {
    const hash = await crypto.subtle.digest('SHA-256', inputs.subarray(at * width, (at + 1) * width));
    marks.push(toHex(new Uint8Array(hash).subarray(0, MARK_BYTES)));
  }
  return marks.join('');
}

/** What stands for all inputs of a first stage: that two are the same shows, nothing else does. */
async function digestOf(marks: string): Promise<string> {
  return toHex(new Uint8Array(await crypto.subtle.digest('SHA-256', new Uint8Array(fromHex(marks)))));
}

function base64(bytes: Uint8Array): string {
  let text = '';
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text);
}

function whole(body: Body, key: string): number {
  const value = body[key];
  if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 0) {
    throw new BadCommand(`witness: expected a whole number as \`${key}\``);
  }
  return value;
}
