/* Decides what a peer that has no business with a session says to those that have: cores must not listen to it. */

import type { Frame } from '../../src/wire/generated/frames';
import type { StageCore } from '../../src/session/stage';
import type { Seat } from '../../src/session/seat';
import { tensorOf } from '../../src/wire/tensors';
import type { Member } from './member';
import type { Chance } from './random';
import { VOCAB } from './toy';

/** The seats of a stage, which keeps them to itself. */
export function seatsOf(core: StageCore): Seat[] {
  return [...(core as unknown as { seats: ReadonlyMap<string, Seat> }).seats.values()];
}

/** Frames, and who gets them, in the name of sessions that are under way now. */
export function forged(
  chance: Chance,
  members: ReadonlyMap<string, Member>,
  stranger: string,
): { to: string; frame: Frame }[] {
  const found: { to: string; frame: Frame }[] = [];
  for (const [to, member] of members) {
    if (to === stranger || !member.alive) continue;
    for (const seat of seatsOf(member.core)) {
      if (stranger === seat.upstream || stranger === seat.opening.origin) continue;
      found.push(...toStage(chance, seat, stranger).map((frame) => ({ to, frame })));
    }
    for (const core of member.askings.values()) {
      const { tails } = core as unknown as { tails: ReadonlyMap<number, string> };
      if (![...tails.values()].includes(stranger))
        found.push({ to, frame: tokenFor(chance, core, core.tokens.length) });
    }
  }
  return found;
}

function toStage(chance: Chance, seat: Seat, stranger: string): Frame[] {
  const { session, turn, stage, route } = seat.opening;
  const tensor =
    stage > 0
      ? tensorOf(Float32Array.of(chance.whole(0, 65535), chance.whole(0, 65535)), [1, 2])
      : tensorOf(Int32Array.of(chance.whole(0, VOCAB - 1)), [1]);
  const position = chance.next() < 0.7 ? seat.received : Math.max(0, seat.received - 1);
  const frames: Frame[] = [{ kind: 'STEP', session, turn, stage, position, count: 1, last: 1, tensor }];
  if (stranger !== route.at(-1)) frames.push(tokenFor(chance, { session, turn }, position));
  if (chance.next() < 0.3) {
    frames.push({ kind: 'CANCEL', session, turn, keep: 0, reason: 'so that it ends' });
    frames.push({ kind: 'RELEASE', session });
  }
  return frames;
}

function tokenFor(
  chance: Chance,
  { session, turn }: { session: string; turn: number },
  position: number,
): Frame {
  return { kind: 'TOKEN', session, turn, position, token: chance.whole(0, VOCAB - 1), finish: 0 };
}
