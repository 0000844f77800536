/*
 * Waiting for a seat where all of them are taken: the line that a stage keeps, and an asker that stands in it (twin of
 * peer/stage/seat_waiting.py). Edge around admission_queue.ts, which decides.
 *
 * An asker whose OPEN was refused with no_slot asks whoever refused, with REQUEST `wait`, again and again: each answer
 * comes when its place changes, or after a while. Called, it opens again.
 */

import { FULL, type FullAt, UNKNOWN, waitingText } from '../session/admission_queue';
import { BadCommand, MeshError, MeshFull, PeerError } from '../errors';
import type { SessionId } from '../wire/generated/frames';
import type { StageCore } from '../session/stage';
import { nowS } from '../transport/ticker';
import type { RequestKind } from '../wire/request_kind';
import { WAIT, type WaitAnswer, type WaitRequest } from '../wire/generated/requests';

const ANSWER_WITHIN_MS = 3000; // a place that does not change is said again after this
export const AGAIN_MS = 500; // after a peer that was asked could not answer
const MAX_WHY = 400; // characters

/** Where a question stands that waits for a free session: `place` 1 is next. `waitMs` UNKNOWN: not measured. */
export interface Waits {
  readonly place: number;
  readonly waitMs: number;
}

/** For people: "you are third in line, about 20 s"; '' for who does not wait. */
export function textOfWaits(waits: Waits | null): string {
  return waits === null ? '' : waitingText(waits.place, waits.waitMs);
}

// --- the stage's side

/** Answers `wait` from the line of `core`. */
export class Queue {
  private readonly core: StageCore;
  private readonly moved = new Set<() => void>();

  constructor(core: StageCore) {
    this.core = core;
  }

  /** Seats may have become free. */
  look(): void {
    if (this.core.admitting.line.size === 0) return;
    const { line } = this.core.admitting;
    const before = line.places;
    this.core.admitting.look(nowS());
    const after = line.places;
    const isMoved =
      before.size !== after.size || [...after].some(([key, place]) => before.get(key) !== place);
    if (isMoved) for (const wake of [...this.moved]) wake();
  }

  /** Where `asker` stands. Raises BadCommand, and MeshError when there is no such line any more. */
  async answer(asker: string, said: WaitRequest): Promise<WaitAnswer> {
    const run = this.core.runOf(said.plan, said.stage);
    if (run === null) throw new BadCommand('wait: these units are not served here');
    const { session } = said;
    const wants = { positions: said.positions, made: 0, most: said.tokens };
    const { admitting } = this.core;
    const nowMs = Math.floor(nowS() * 1000);
    const why = this.core.rules.mayAsk(asker) || admitting.line.enter(nowMs, asker, session, run, wants);
    if (why !== '') return { place: -1, waitMs: UNKNOWN, why };
    admitting.look(nowS());
    const untilMs = nowMs + ANSWER_WITHIN_MS;
    for (;;) {
      const waiter = admitting.line.find(asker, session);
      if (waiter === undefined) throw new MeshError('this line is over: ask for another seat');
      const leftMs = untilMs - nowS() * 1000;
      if (waiter.place !== said.place || leftMs <= 0) {
        return { place: waiter.place, waitMs: waiter.waitMs };
      }
      await this.news(leftMs);
    }
  }

  private news(withinMs: number): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        this.moved.delete(done);
        clearTimeout(late);
        resolve();
      };
      const late = setTimeout(done, withinMs);
      this.moved.add(done);
    });
  }
}

// --- the asker's side

/** What waits: a session, the positions that it will send, and the most tokens that may come. */
export interface Wanted {
  readonly session: SessionId;
  readonly positions: number;
  readonly tokens: number;
}

/** How an asker reaches a stage. */
type Asks = (
  peer: string,
  kind: RequestKind<WaitRequest, WaitAnswer>,
  said: WaitRequest,
) => Promise<WaitAnswer>;

/**
 * Stands in line at each peer of `full`, which are those that refused; resolves with who calls, or '' when no line is
 * left and a new try is due. Raises MeshFull, and what `signal` aborts with.
 */
export async function called(
  ask: Asks,
  full: ReadonlyMap<string, FullAt>,
  wanted: Wanted,
  told: (waits: Waits) => void,
  signal: AbortSignal,
): Promise<string> {
  const places = new Map<string, Waits>();
  const over = new AbortController();
  const ends = AbortSignal.any([signal, over.signal]);
  const stands = (peer: string, waits: Waits): void => {
    places.set(peer, waits);
    const [best] = [...places.values()].sort((a, b) => a.place - b.place);
    if (best !== undefined && !ends.aborted) told(best);
  };
  const lost: string[] = []; // a line that is over takes no place in another one
  const lines = [...full].map(async ([peer, at]) => {
    const who = await inLine(ask, peer, at, wanted, stands, ends);
    if (who !== '') return who;
    lost.push(peer);
    throw new MeshError('this line is over');
  });
  const aborted = new Promise<never>((_, reject) => {
    const stop = (): void => reject(signal.reason as Error);
    if (signal.aborted) stop();
    else signal.addEventListener('abort', stop, { once: true });
  });
  try {
    return await Promise.race([Promise.any(lines), aborted]);
  } catch (error) {
    if (lost.length > 0 && error instanceof AggregateError) return '';
    if (error instanceof AggregateError) throw error.errors[0];
    throw error;
  } finally {
    over.abort();
  }
}

/** `peer` when it calls; '' when it is no more what it was. Raises MeshFull when nobody may wait there. */
async function inLine(
  ask: Asks,
  peer: string,
  at: FullAt,
  { session, positions, tokens }: Wanted,
  stands: (peer: string, waits: Waits) => void,
  signal: AbortSignal,
): Promise<string> {
  let place = -1;
  for (;;) {
    let answer: WaitAnswer;
    try {
      answer = await ask(peer, WAIT, { session, ...at, place, positions, tokens });
    } catch (error) {
      if (!(error instanceof PeerError)) throw error;
      if (error instanceof MeshError && error.message.startsWith('unknown request')) {
        throw new MeshFull(`${FULL}; try again when one has finished`); // it is of an older version, which has no line
      }
      await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
      return '';
    }
    if (signal.aborted) return '';
    const { place: found, waitMs, why = '' } = answer;
    if (found < 0) throw new MeshFull(why === '' ? `${FULL}; try again later` : why.slice(0, MAX_WHY));
    if (found === 0) return peer;
    place = found;
    stands(peer, { place, waitMs });
  }
}
