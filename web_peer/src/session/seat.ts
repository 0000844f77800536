/*
 * One session at one place of its route: what came, what was computed, what was handed on (twin of
 * peer/session/seat.py). Pure.
 */

import { ActivationLog, rows } from './activation_log';
import { type Open, ROLE, type SessionId, type Step } from '../wire/generated/frames';
import type { Run } from '../state/plan_record';
import type { Sampling } from './sampling';
import { sumOf } from './position_spans';
import { marksOf, type Prefix } from './prefix';

export const NEVER_ASKED = { position: -1, at: 0 } as const;
const KEPT_BYTES = 1024 * 1024; // of the newest inputs of a seat: what is checked was asked for a moment ago
export const FEED_AGAIN_S = 1; // a gap that was not filled is asked for again after this
export const LEFT_S = 90; // an asker gives up on an answer long before: its slot may go to another
const PAUSE_S = 1; // between two tokens of an answer that is held to a grammar: each is asked for by itself
const MASK = 10; // of the settings of an OPEN: how long the mask of a steered answer is
export const FOR_GOOD = Infinity; // every turn
const MAX_LATE = 8; // seats that are over and can still be checked
const LATE_BYTES = 8 * 1024 * 1024; // of their activations
const ID_DIGITS = 8; // of a session's id count how often its answers moved (migration.ts)
const MAX_OVER = 4096; // sessions of which is remembered which turns are over

/** A token that this stage sampled, and whether it is the last one. */
export interface Sampled {
  readonly token: number;
  readonly finish: number;
}

/**
 * Inputs of `received` positions came, `submitted` went to the runtime, `computed` came back: counts from position 0
 * on, without holes. Steps of an `epoch` that is over are still running in the runtime, and their results are dropped.
 */
export class Seat {
  opening: Open;
  readonly run: Run;
  sampling: Sampling;
  readonly log: ActivationLog;
  touched: number;
  ranAt = 0; // when its last step was done, or its turn began
  active = true;
  heldBack = false; // until its cache is copied
  near = false; // it was: little is left to compute, which others do not wait for long
  orphan = false; // its asker is gone; another peer may adopt the session
  received = 0;
  submitted = 0;
  computed = 0;
  epoch = 0;
  inFlight = 0;
  readonly waiting = new Map<number, Step>(); // by position
  waitingBytes = 0;
  asked: { readonly position: number; readonly at: number } = NEVER_ASKED; // of the last FEED
  readonly sampled = new Map<number, Sampled>(); // by position, of this answer
  history: number[] = []; // for penalties
  allowed: readonly number[] = []; // tokens that may be drawn, as a mask; empty: every token
  generated = 0; // tokens sampled in this answer
  readonly inputs = new ActivationLog(KEPT_BYTES); // the newest, for those who check
  readonly matches = new Map<string, number>(); // by peer: how often it asked whether its marks are ours
  marks: Uint8Array[] = []; // of the inputs of the first span, from position 0 on without a hole
  onward: Uint8Array[] = []; // marks of what it handed on, from position 0 on, as far as its front needs them
  prefix: Prefix | null = null; // of its OPEN, as the next stage is to hear of it
  frontKept = false; // or it was seen that it cannot be
  unfit = 0; // steps that the runtime could not place, in a row
  shift = { places: 0, from: 0 }; // of what is sampled, and the position of the ids that said it

  constructor(opening: Open, run: Run, sampling: Sampling, log: ActivationLog, touched: number) {
    this.opening = opening;
    this.run = run;
    this.sampling = sampling;
    this.log = log;
    this.touched = touched;
  }

  get serves(): boolean {
    return this.opening.role === ROLE.serve;
  }

  get session(): SessionId {
    return this.opening.session;
  }

  /** Who may send steps: the previous stage, or the asker. */
  get upstream(): string {
    const { route, stage, origin } = this.opening;
    return stage > 0 ? (route[stage - 1] ?? origin) : origin;
  }

  get isTail(): boolean {
    return this.opening.stage === this.opening.route.length - 1;
  }

  get downstream(): string | undefined {
    return this.opening.route[this.opening.stage + 1];
  }

  /** Whether it computes ahead for an answer that will move here: nobody waits for it yet. */
  get warms(): boolean {
    return this.opening.maxTokens === 0;
  }

  /** Whether its answer is held to a grammar, and asked for a token at a time. */
  get isMasked(): boolean {
    return (this.opening.sampling[MASK] ?? 0) > 0;
  }

  /** Who shadows place `stage` of this session. */
  shadows(stage: number): string[] {
    if (this.warms) return []; // it names who computes the answer now
    const { shadowStages, shadows } = this.opening;
    return shadows.filter((_, at) => shadowStages[at] === stage);
  }

  /** Whether no token comes without `peer`: a neighbour, or the other end of the way a token takes back. */
  leansOn(peer: string): boolean {
    const { route, stage } = this.opening;
    if (peer === this.upstream || peer === this.downstream) return true;
    return (stage === 0 || this.isTail) && (peer === route[0] || peer === route.at(-1));
  }

  /** Whether `position` was given, not sampled: its step is computed as a prompt is. */
  isGiven(position: number): boolean {
    let stop = 0;
    let given = true;
    for (const count of this.opening.spans) {
      stop += count;
      if (position < stop) return given;
      given = !given;
    }
    return false;
  }

  /** Keeps the input of a step until its turn; false when nothing in it is new. */
  take(step: Step): boolean {
    if (step.position + step.count <= this.received) return false;
    const fresh = step.position < this.received ? part(step, this.received) : step;
    const known = this.waiting.get(fresh.position);
    if (known !== undefined && known.count >= fresh.count) return false;
    this.waiting.set(fresh.position, fresh);
    this.waitingBytes += fresh.tensor.data.length - (known?.tensor.data.length ?? 0);
    this.advance();
    return true;
  }

  /** Takes the step that comes next out of those that wait. */
  nextStep(): Step | null {
    const step = this.waiting.get(this.submitted);
    if (step === undefined) return null;
    this.forget(this.submitted);
    this.inputs.append(step.position, step.tensor);
    this.mark(step);
    this.submitted += step.count;
    if (step.count > 1) this.forgetBefore(this.submitted); // it may have come over others that lie inside it
    return step;
  }

  /** Fronts lie in the first span: nothing behind it is asked for by its mark. */
  private mark({ position, tensor }: Step): void {
    this.marks.length = Math.min(this.marks.length, position);
    const isFirst = position < (this.opening.spans[0] ?? 0);
    if (isFirst && this.marks.length === position) this.marks.push(...marksOf(tensor));
  }

  /** The next step is that of `position`; what is under way counts no more. */
  rewind(position: number, epoch: number): void {
    this.epoch = epoch;
    this.inFlight = 0;
    this.submitted = this.received = position;
    this.computed = Math.min(this.computed, position);
    this.log.cut(position);
    this.onward.length = Math.min(this.onward.length, position);
    this.asked = NEVER_ASKED;
    this.forgetBefore(position);
    this.advance();
  }

  /** Goes on behind `count` positions whose cache was copied. */
  begin(count: number): void {
    this.heldBack = false;
    if (count === 0) return;
    this.computed = count;
    this.near = true;
    this.rewind(count, this.epoch);
    this.log.clear(count);
  }

  /** Whether what came waits for something before it. */
  get hasGap(): boolean {
    return this.waiting.size > 0 && this.received === this.submitted && this.inFlight === 0;
  }

  /** Drops the inputs that wait. */
  stopWaiting(): void {
    this.waiting.clear();
    this.waitingBytes = 0;
    this.received = this.submitted;
  }

  private advance(): void {
    for (;;) {
      const step = this.waiting.get(this.received);
      if (step === undefined) return;
      this.received += step.count;
    }
  }

  private forgetBefore(position: number): void {
    for (const at of [...this.waiting.keys()]) if (at < position) this.forget(at);
  }

  private forget(position: number): void {
    this.waitingBytes -= this.waiting.get(position)?.tensor.data.length ?? 0;
    this.waiting.delete(position);
  }
}

/** Whether its asker is about to ask for the next token of an answer that is held to a grammar. */
export function pauses(seat: Seat, now: number): boolean {
  return seat.serves && seat.isMasked && !seat.orphan && now - seat.touched < PAUSE_S;
}

/** The seats that were freed last: an answer may be checked when its session is over. */
export class Late {
  private readonly seats = new Map<string, Seat>(); // by seatKey

  /** Keeps a seat that computed something, and lets the oldest go. */
  keep(key: string, seat: Seat): void {
    if (seat.computed === 0) return;
    seat.stopWaiting(); // what came and was not computed says nothing of what was
    while (seat.log.bytes > LATE_BYTES) seat.log.dropOldest();
    this.seats.delete(key); // so that it counts as the newest
    this.seats.set(key, seat);
    for (const oldest of this.seats.keys()) {
      if (this.seats.size <= MAX_LATE && this.bytes <= LATE_BYTES) break;
      this.seats.delete(oldest);
    }
  }

  private get bytes(): number {
    return sumOf([...this.seats.values()].map((seat) => seat.log.bytes));
  }

  get(key: string): Seat | undefined {
    return this.seats.get(key);
  }
}

/** Turns that have ended: an OPEN of one may still be on its way along the route, or wait at a frozen peer. */
export class Over {
  private readonly turns = new Map<string, number>(); // by asker and session: turns up to this one

  /** `asker` says that turns up to `turn` are over. */
  note(asker: string, session: SessionId, turn: number): void {
    const key = `${session}/${asker}`;
    const known = this.turns.get(key) ?? 0;
    this.turns.delete(key); // so that it counts as the newest
    this.turns.set(key, Math.max(turn, known));
    const oldest = this.turns.keys().next();
    if (this.turns.size > MAX_OVER && oldest.done !== true) this.turns.delete(oldest.value);
  }

  /** Whether this OPEN comes too late. */
  has({ origin, session, turn }: Open): boolean {
    return turn <= (this.turns.get(`${session}/${origin}`) ?? 0);
  }
}

/** The seat of these that goes first when another session needs one; undefined when all of them are in use. */
export function idlest(taken: readonly Seat[], now: number, serves: boolean): Seat | undefined {
  const idle = taken.filter(
    (seat) =>
      !(seat.active || pauses(seat, now)) ||
      (serves && !seat.serves) ||
      (now - seat.touched > LEFT_S && seat.inFlight === 0),
  );
  const rank = (seat: Seat): number => (seat.orphan ? 0 : 2) + (seat.serves ? 1 : 0);
  return idle.sort((a, b) => rank(a) - rank(b) || a.touched - b.touched)[0];
}

/**
 * Whether units of which `taken` are the seats have one more for `frame`, of `slots` for their sessions. An answer that
 * moves has a seat on both of its routes: one more may warm, in the row of the cache that a check would use else.
 */
export function hasRoom(taken: readonly Seat[], slots: number, { maxTokens }: Open): boolean {
  const serving = taken.filter((seat) => !seat.warms).length;
  return taken.length <= slots && (maxTokens === 0 || serving < slots);
}

/** How many answers units `run` compute now, of those that have `seats`: none of them only warms. */
export function answering(seats: Iterable<Seat>, run: Run): number {
  let count = 0;
  for (const seat of seats) if (seat.active && seat.serves && !seat.warms && sameRun(seat.run, run)) count++;
  return count;
}

/** A session, and how many of its positions are computed. */
export interface Known {
  readonly session: SessionId;
  readonly computed: number;
}

/** With what units `run` compute the answer that moves to `session`, of these seats; `origin` '': whoever asks it. */
export function furthest(seats: Iterable<Seat>, session: SessionId, run: Run, origin: string): Known | null {
  const answer = session.slice(0, -ID_DIGITS);
  const found = [...seats].filter(
    (seat) =>
      seat.session !== session &&
      seat.session.slice(0, -ID_DIGITS) === answer &&
      !seat.warms &&
      sameRun(seat.run, run) &&
      (origin === '' || origin === seat.opening.origin),
  );
  found.sort((a, b) => b.computed - a.computed || (a.session < b.session ? 1 : -1));
  const [seat] = found;
  return seat === undefined ? null : { session: seat.session, computed: seat.computed };
}

/** Over `totalBytes`, the oldest activations of the session that was idle for longest go first. */
export function boundLogs(seats: readonly Seat[], totalBytes: number): void {
  let over = sumOf(seats.map((seat) => seat.log.bytes)) - totalBytes;
  while (over > 0) {
    const logged = seats.filter((seat) => seat.log.bytes > 0);
    const [oldest] = logged.sort((a, b) => a.touched - b.touched || byKey(a, b));
    if (oldest === undefined) return;
    const before = oldest.log.bytes;
    oldest.log.dropOldest();
    over -= before - oldest.log.bytes;
  }
}

/** Seats by session and place. */
export function byKey(a: Seat, b: Seat): number {
  return (a.session < b.session ? -1 : a.session > b.session ? 1 : 0) || a.opening.stage - b.opening.stage;
}

/** Whether both are the same units. */
export function sameRun(a: Run, b: Run): boolean {
  return a.first === b.first && a.stop === b.stop;
}

/** The part of `step` from `position` on. */
function part(step: Step, position: number): Step {
  const skip = position - step.position;
  return { ...step, position, count: step.count - skip, tensor: rows(step.tensor, skip, step.count) };
}
