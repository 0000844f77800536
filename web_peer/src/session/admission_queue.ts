/*
 * Decides who gets the next seat where all of them are taken, in which order, and how long the others will wait (twin
 * of peer/session/admission_queue.py).
 *
 * Pure. A line for each run of units that a peer serves. Who has fewest answers under way goes first, then who came
 * first; a balance of the ledger moves that by at most `HEAD_START_MS` either way. So who gives more waits less, and
 * nobody waits for ever: whoever comes later than twice that is behind.
 */

import type { SessionId } from '../wire/generated/frames';
import { type Run, runKey } from '../state/plan_record';

const MAX_WAITING = 256; // in all lines of a peer
const MAX_OF_ONE = 16; // of one asker
export const HOLD_MS = 5000; // a seat is kept so long for who was called
const LEASE_MS = 15_000; // who has not asked again for so long has gone
const HEAD_START_MS = 30_000; // what a balance is worth at most
const HALF_AT_MILLI = 2_000_000; // of a balance: it is worth half of that then
const MOST_MILLI = 2 ** 36; // beyond that a balance is worth no more: products stay below 2^53
const MAX_LENGTHS = 32; // answers that were measured last
const MOST_GAP_US = 10_000_000; // a longer one was no work
export const FULL = 'all sessions of this mesh are in use';
export const UNKNOWN = -1; // nothing was measured yet

/** How much earlier an asker counts as come that has spent `owedMilli` more than it earned; later, below zero. */
export function headStartMs(owedMilli: number): number {
  const size = Math.min(Math.abs(owedMilli), MOST_MILLI);
  const worth = whole(HEAD_START_MS * size, size + HALF_AT_MILLI);
  return owedMilli > 0 && worth > 0 ? -worth : worth;
}

/** An answer under way: positions of its prompt to come, its tokens so far, and the most that it may have. */
export interface Busy {
  readonly positions: number;
  readonly made: number;
  readonly most: number;
}

/** How fast answers go here, each beside the others, and how long they were. */
export class Pace {
  tokenUs = 0; // between two tokens of one answer; 0: not measured
  positionUs = 0; // the same for a prompt
  private readonly lengths: number[] = [];

  /** A step of `count` positions was done `gapUs` after the one before of the same answer. */
  ran(gapUs: number, count: number, given: boolean): void {
    if (gapUs <= 0 || gapUs > MOST_GAP_US || count < 1) return;
    const each = whole(gapUs, count);
    const smooth = (before: number): number => (before === 0 ? each : whole(before * 7 + each, 8));
    if (given) this.positionUs = smooth(this.positionUs);
    else this.tokenUs = smooth(this.tokenUs);
  }

  /** An answer had so many tokens. */
  ended(tokens: number): void {
    if (tokens <= 0) return;
    this.lengths.push(tokens);
    if (this.lengths.length > MAX_LENGTHS) this.lengths.shift();
  }

  /**
   * What an answer with `made` tokens may still produce: what those before that were longer had beyond that, on
   * average; where none was, as much as it may.
   */
  tokensLeft(made: number, most: number): number {
    const longer = this.lengths.filter((length) => length > made).map((length) => length - made);
    const limit = Math.max(most - made, 0);
    if (longer.length === 0) return limit;
    const sum = longer.reduce((all, each) => all + each, 0);
    return Math.min(limit, whole(sum + longer.length - 1, longer.length));
  }

  /** How long an answer still takes. */
  lastsMs({ positions, made, most }: Busy): number {
    return whole(positions * this.positionUs + this.tokensLeft(made, most) * this.tokenUs, 1000);
  }
}

/** One who waits. `place`: 1 is next, 0 is called; `waitMs` until then, or UNKNOWN. */
export interface Waiter {
  readonly asker: string;
  readonly session: SessionId;
  readonly run: Run;
  readonly wants: Busy;
  readonly number: number; // in the order of coming
  readonly sinceMs: number;
  untilMs: number;
  place: number;
  waitMs: number;
  calledMs: number | null;
}

/** Who refused: its place in the route of a plan. */
export interface FullAt {
  readonly plan: number;
  readonly stage: number;
}

/** Seats of a run: how many there are, and the answers under way on them, each with its asker. */
export interface Room {
  readonly seats: number;
  readonly busy: readonly (readonly [asker: string, busy: Busy])[];
}

/** Those who wait for a seat on this peer, in one line for each run. */
export class Line {
  readonly pace = new Pace();
  private readonly waiters = new Map<string, Waiter>();
  private number = 0;

  get size(): number {
    return this.waiters.size;
  }

  /** For which runs somebody waits. */
  get runs(): readonly Run[] {
    return [...new Map([...this.waiters.values()].map(({ run }) => [runKey(run), run])).values()];
  }

  /** By asker and session: 1 is next, 0 is called. */
  get places(): ReadonlyMap<string, number> {
    return new Map([...this.waiters].map(([key, { place }]) => [key, place]));
  }

  find(asker: string, session: SessionId): Waiter | undefined {
    return this.waiters.get(keyOf(asker, session));
  }

  /** Stands in line, or stays there; why not, or ''. */
  enter(nowMs: number, asker: string, session: SessionId, run: Run, wants: Busy): string {
    const key = keyOf(asker, session);
    const known = this.waiters.get(key);
    if (known !== undefined && runKey(known.run) === runKey(run)) {
      known.untilMs = nowMs + LEASE_MS;
      return '';
    }
    if (known === undefined) {
      const own = [...this.waiters.values()].filter((waiter) => waiter.asker === asker).length;
      if (own >= MAX_OF_ONE) return `${FULL}, and ${own} of your questions wait already; ask again later`;
      if (this.waiters.size >= MAX_WAITING) {
        return `${FULL}, and ${MAX_WAITING} questions wait already; ask again later`;
      }
    }
    this.number += 1;
    this.waiters.set(key, {
      asker,
      session,
      run,
      wants,
      number: this.number,
      sinceMs: nowMs,
      untilMs: nowMs + LEASE_MS,
      place: 0,
      waitMs: UNKNOWN,
      calledMs: null,
    });
    return '';
  }

  /** Has a seat, or wants none any more. */
  leave(asker: string, session: SessionId): void {
    this.waiters.delete(keyOf(asker, session));
  }

  /** Was called in vain, since the seat went to an answer that had to go on: stands where it stood before. */
  putBack(asker: string, session: SessionId): void {
    const waiter = this.waiters.get(keyOf(asker, session));
    if (waiter !== undefined) waiter.calledMs = null;
  }

  /** Everything of an asker that is not connected any more. */
  gone(asker: string): void {
    for (const [key, waiter] of this.waiters) if (waiter.asker === asker) this.waiters.delete(key);
  }

  /** Seats of `run` that are kept for those who were called, but for one session. */
  kept(run: Run, asker: string, session: SessionId): number {
    const but = keyOf(asker, session);
    const called = [...this.waiters].filter(([key, { calledMs }]) => calledMs !== null && key !== but);
    return called.filter(([, waiter]) => runKey(waiter.run) === runKey(run)).length;
  }

  /** Lets those go whose time is over, calls the next where there is a seat, and says to all where they stand. */
  look(nowMs: number, rooms: ReadonlyMap<string, Room>, owedMilli: (asker: string) => number): void {
    for (const [key, { calledMs, untilMs, run }] of this.waiters) {
      const held = calledMs !== null && nowMs >= calledMs + HOLD_MS;
      if (held || nowMs >= untilMs || !rooms.has(runKey(run))) this.waiters.delete(key);
    }
    for (const run of this.runs) {
      const room = rooms.get(runKey(run));
      if (room !== undefined) this.lookAt(nowMs, run, room, owedMilli);
    }
  }

  private lookAt(nowMs: number, run: Run, room: Room, owedMilli: (asker: string) => number): void {
    const mine = [...this.waiters.values()].filter((waiter) => runKey(waiter.run) === runKey(run));
    mine.sort((a, b) => a.number - b.number);
    const called = mine.filter(({ calledMs }) => calledMs !== null);
    const underWay = new Map<string, number>();
    const count = (asker: string): number => {
      const before = underWay.get(asker) ?? 0;
      underWay.set(asker, before + 1);
      return before;
    };
    for (const [asker] of room.busy) count(asker);
    for (const { asker } of called) count(asker);
    const ranked = mine
      .filter(({ calledMs }) => calledMs === null)
      .map((waiter) => {
        const came = waiter.sinceMs - headStartMs(owedMilli(waiter.asker));
        return { waiter, turn: count(waiter.asker), came };
      });
    ranked.sort((a, b) => a.turn - b.turn || a.came - b.came || a.waiter.number - b.waiter.number);
    const free = Math.max(room.seats - room.busy.length - called.length, 0);
    for (const { waiter } of ranked.splice(0, free)) {
      waiter.calledMs = nowMs;
      called.push(waiter);
    }
    for (const waiter of called) {
      waiter.place = 0;
      waiter.waitMs = 0;
    }
    this.forecast(
      room,
      called,
      ranked.map(({ waiter }) => waiter),
    );
  }

  /** When each gets a seat, if answers go on as they did. */
  private forecast({ busy }: Room, called: readonly Waiter[], order: readonly Waiter[]): void {
    const { pace } = this;
    const ends = [...busy.map(([, each]) => each), ...called.map(({ wants }) => wants)].map((each) =>
      pace.lastsMs(each),
    );
    for (const [at, waiter] of order.entries()) {
      waiter.place = at + 1;
      waiter.waitMs = UNKNOWN;
      if (pace.tokenUs === 0 || ends.length === 0) continue;
      waiter.waitMs = Math.min(...ends);
      ends[ends.indexOf(waiter.waitMs)] = waiter.waitMs + pace.lastsMs(waiter.wants);
    }
  }
}

/** The quotient of two whole numbers below 2^53, rounded down. */
function whole(dividend: number, divisor: number): number {
  return (dividend - (dividend % divisor)) / divisor;
}

function keyOf(asker: string, session: SessionId): string {
  return `${session}/${asker}`;
}

// --- words

const ORDINALS = [
  '',
  'next',
  'second',
  'third',
  'fourth',
  'fifth',
  'sixth',
  'seventh',
  'eighth',
  'ninth',
  'tenth',
];

/** What a person reads who waits: "you are third in line, about 20 s". */
export function waitingText(place: number, waitMs: number): string {
  if (place < 1) return 'your turn comes now';
  const who = ORDINALS[place] ?? `number ${place}`;
  return waitMs < 0
    ? `you are ${who} in line for a free session`
    : `you are ${who} in line, ${about(waitMs)}`;
}

/** A time that is an estimate, in as many digits as it deserves. */
function about(waitMs: number): string {
  const seconds = Math.ceil(waitMs / 1000);
  if (seconds <= 10) return `about ${Math.max(seconds, 1)} s`;
  if (seconds < 120) return `about ${Math.ceil(seconds / 5) * 5} s`;
  return `about ${Math.ceil(seconds / 60)} minutes`;
}
