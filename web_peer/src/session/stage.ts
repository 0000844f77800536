/*
 * One peer's stages: what to run, what to pass on, what to ask for again, for every session that crosses this peer
 * (twin of peer/session/stage.py).
 *
 * Pure: frames and runtime results in, effects out. A session is accepted by OPEN, which travels along the route ahead
 * of the steps; a stage takes steps only from the neighbour that its route names, each position once and in order. At
 * most `AHEAD_STEPS` steps of a session wait in the runtime, and none while the way to the next stage is full.
 * Whatever a stage lacks it asks for (FEED): the stage before it sends from its log, or computes it again.
 */

import { ActivationLog } from './activation_log';
import { Admitting } from './seat_admission';
import { type Note, type NotRan, type Ran, type Reason, type StageEffect } from './effects';
import { BadSampling } from '../errors';
import {
  type Cancel,
  type Feed,
  FINISH,
  type Open,
  type Release,
  ROLE,
  type SessionId,
  type Step,
  type Token,
  type Where,
} from '../wire/generated/frames';
import { type Run, runKey } from '../state/plan_record';
import { needsHistory } from './sampling';
import {
  FEED_AGAIN_S,
  FOR_GOOD,
  type Known,
  Late,
  NEVER_ASKED,
  Over,
  Seat,
  answering,
  boundLogs,
  byKey,
  furthest,
  hasRoom,
  idlest,
  sameRun,
} from './seat';
import {
  type Fault,
  type Loaded,
  misplaced,
  notAdopted,
  passedOn,
  type PlanStages,
  refusal,
  refusedOpen,
  samplingOrFault,
  steeringOf,
  stepFor,
  unserved,
} from './open_checks';
import { Prefixes, split } from './prefix_cache';
import { handedBack, isPinned, takesIds, wrongEnds } from './pinned_ends';
import { idsOf, shiftedIds, sumOf } from './position_spans';
import { finishOf, runStepOf, told } from './step_inputs';
import { tensorOf } from '../wire/tensors';
import type { Prefix } from './prefix';

export const AHEAD_STEPS = 2; // keeps the worker busy while the loop handles the last result
export const LEASE_S = 600; // a session that nobody continues is freed after this
export const ORPHAN_S = 30; // a session whose asker is gone waits so long for another one
const MAX_STEP_POSITIONS = 256; // eight chunks; more would hold up the sessions beside it
const MAX_PENDING_STEPS = 65536; // per session: an answer of that length can be replayed, a token to a step
const MAX_PENDING_BYTES = 256 * 1024 * 1024; // per session: a whole prompt that waits for a slow stage
const MAX_UNFIT = 3; // times in a row that a runtime lacks what this module thinks it has
const LOG_SESSION_BYTES = 64 * 1024 * 1024; // of activations kept for one session
const LOG_TOTAL_BYTES = 256 * 1024 * 1024; // for all of them

/** What a stage asks of the peer that it lives on. */
export interface StageRules {
  /** Who asks a session now, by the answers that run in the log; null where no answer that runs has it. */
  authorOf(session: SessionId): string | null;
  /** Why a peer may not ask, for people; '': it may. */
  mayAsk(origin: string): string;
  /** What a peer spent beyond what it earned, in thousandths of a credit. */
  owedMilli(origin: string): number;
  /** Begins to copy the cache of a seat that warms; false: there is nothing to copy. */
  bring(seat: Seat): boolean;
  /** Bytes of cache for one position of one session, for units `run`. */
  positionBytes(run: Run): number;
}

/** Of a peer that knows of no mesh: everybody may ask. */
export const NO_RULES: StageRules = {
  authorOf: () => null,
  mayAsk: () => '',
  owedMilli: () => 0,
  bring: () => false,
  positionBytes: () => 0,
};

/** All sessions on this peer's stages. A peer may have several places in one route, each with units of its own. */
export class StageCore {
  readonly me: string;
  logSessionBytes: number;
  logTotalBytes: number;
  readonly rules: StageRules;
  keepOnly = false; // shadows keep their inputs, and compute when they are asked to serve
  tokensSampled = 0;
  stepsRun = 0;
  replayedBytes = 0; // of activations sent again
  takenOver = 0; // sessions that a shadow here went on with
  copied = 0; // positions that seats which warm took from others' caches
  private readonly seats = new Map<string, Seat>(); // by seatKey
  private readonly late = new Late();
  private plans: ReadonlyMap<number, PlanStages> = new Map();
  private loaded = new Map<string, Loaded>(); // by runKey
  readonly admitting: Admitting; // who waits for a seat
  readonly prefixes: Prefixes;
  private leaving = false;
  private readonly full = new Set<string>(); // peers whose connection has no room
  private readonly over = new Over();
  private epoch = 0;
  private noted: Note[] = [];

  constructor(
    me: string,
    rules = NO_RULES,
    logSessionBytes = LOG_SESSION_BYTES,
    logTotalBytes = LOG_TOTAL_BYTES,
  ) {
    this.me = me;
    this.rules = rules;
    this.admitting = new Admitting(this.seats, () => this.loaded, rules);
    this.prefixes = new Prefixes(rules);
    this.logSessionBytes = logSessionBytes;
    this.logTotalBytes = logTotalBytes;
  }

  // --- what this peer serves

  /** The plans whose sessions are accepted, by version, and the runs that are loaded, with their slots. */
  serve(plans: ReadonlyMap<number, PlanStages>, loaded: readonly Loaded[]): void {
    this.plans = plans;
    this.loaded = new Map(loaded.map((each) => [runKey(each.run), each]));
  }

  /**
   * Keeps to the mesh's protection: whether shadows only keep their inputs, and bytes of activations that are kept for
   * one session and for all of them.
   */
  protect(keepOnly: boolean, logSessionBytes: number, logTotalBytes: number): void {
    this.keepOnly = keepOnly;
    this.logSessionBytes = logSessionBytes;
    this.logTotalBytes = logTotalBytes;
  }

  /** The units of a place in a plan's routes, where they are loaded here and sessions are taken. */
  runOf(plan: number, stage: number): Run | null {
    const run = this.plans.get(plan)?.[stage]?.run;
    return run !== undefined && this.loaded.has(runKey(run)) && !this.leaving ? run : null;
  }

  /** Refuses what comes and tells every asker, so that answers can go on elsewhere. */
  leave(): StageEffect[] {
    this.leaving = true;
    const effects: StageEffect[] = [];
    for (const seat of this.sorted()) {
      if (!seat.active || !seat.serves) continue;
      seat.active = false;
      seat.stopWaiting();
      effects.push(refusal(seat, 'leaving', 'this peer is leaving'));
    }
    return effects;
  }

  /** Takes sessions again after `leave`. */
  comeBack(): void {
    this.leaving = false;
  }

  /** Sessions that hold a slot here. */
  sessions(): number {
    return new Set([...this.seats.values()].map((seat) => seat.session)).size;
  }

  /** Sessions that are being answered. */
  active(): number {
    const serving = [...this.seats.values()].filter((seat) => seat.active && seat.serves);
    return new Set(serving.map((seat) => seat.session)).size;
  }

  /** Sessions that are being answered with units `run`. */
  activeOn(run: Run): number {
    return [...this.seats.values()].filter((seat) => seat.active && seat.serves && sameRun(seat.run, run))
      .length;
  }

  /** The session with which units `run` compute the answer that moves to `session` (of `origin`, if named). */
  sameAnswer(session: SessionId, run: Run, origin = ''): Known | null {
    return furthest(this.seats.values(), session, run, origin);
  }

  /** `count` positions of a seat that warms are cached, copied from others; those that follow come as steps. */
  brought(now: number, session: SessionId, stage: number, count: number): StageEffect[] {
    const seat = this.seats.get(seatKey(session, stage));
    if (seat?.heldBack !== true) return [];
    seat.begin(count);
    this.copied += count;
    const asks = stage > 0 ? this.gap(now, seat) : this.askUpstream(now, seat);
    return [...asks, ...this.feedRuntime(seat)];
  }

  /** Positions that shadows here have still to compute. */
  lag(): number {
    return sumOf([...this.seats.values()].map((seat) => (seat.serves ? 0 : seat.received - seat.computed)));
  }

  /** Activations kept to be sent again. */
  get logBytes(): number {
    return sumOf([...this.seats.values()].map((seat) => seat.log.bytes));
  }

  /** Who asks `session`; null for one that has no seat here. */
  asker(session: SessionId): string | null {
    return this.placesOf(session)[0]?.opening.origin ?? null;
  }

  /** Forgets every session of units `run`, which are about to be unloaded. */
  drop(run: Run): StageEffect[] {
    this.loaded.delete(runKey(run));
    this.prefixes.forget(run);
    const effects: StageEffect[] = [];
    for (const seat of this.sorted()) {
      if (!sameRun(seat.run, run)) continue;
      if (seat.active && seat.serves) {
        effects.push(refusal(seat, 'unknown_plan', 'the plan moved these units to another peer'));
      }
      effects.push(...this.free(seat));
    }
    return effects;
  }

  /** What happened to sessions here since this was last asked. */
  notes(): readonly Note[] {
    const found = this.noted;
    this.noted = [];
    return found;
  }

  // --- frames

  /** Takes a seat for the session and passes the OPEN on, or refuses to the asker. */
  open(now: number, sender: string, opening: Open): StageEffect[] {
    const [frame, prefix] = split(opening);
    if (this.over.has(frame)) return []; // what ended it took a shorter way
    const serves = frame.role === ROLE.serve;
    const refuse = (reason: Reason, text: string): StageEffect[] =>
      serves ? [refusedOpen(frame, reason, text)] : [];
    const fault = this.fault(sender, frame);
    if (fault !== null) return refuse(fault.reason, fault.text);
    const sampling = samplingOrFault(frame, frame.stage === frame.route.length - 1);
    if (sampling instanceof BadSampling) {
      return refuse('bad_step', `sampling settings: ${sampling.message}`);
    }
    const run = this.plans.get(frame.plan)?.[frame.stage]?.run;
    const loaded = run === undefined ? undefined : this.loaded.get(runKey(run));
    if (run === undefined || loaded === undefined) return [];
    const effects: StageEffect[] = [];
    let seat = this.seats.get(seatKey(frame.session, frame.stage));
    if (seat !== undefined && seat.opening.origin !== frame.origin) {
      const foreign = notAdopted(this.rules.authorOf(frame.session), frame);
      if (foreign !== null) return [refusedOpen(frame, foreign.reason, foreign.text)];
    }
    if (seat !== undefined && frame.turn <= seat.opening.turn) return []; // an older turn that was overtaken
    if (seat !== undefined && !sameRun(seat.run, run)) {
      effects.push(...this.free(seat));
      seat = undefined;
    }
    if (seat === undefined) {
      const other = this.ofRun(frame.session, run);
      if (other !== undefined) effects.push(...this.free(other)); // the place of these units in the route has changed
    }
    const taken = this.sorted().filter((other) => sameRun(other.run, run));
    const isFull = seat === undefined && !hasRoom(taken, loaded.slots, frame);
    const evicted = isFull ? idlest(taken, now, serves) : null;
    if (evicted === undefined || this.admitting.mustWait(now, frame, loaded)) {
      this.admitting.calledInVain(frame);
      const text = `all ${loaded.slots} sessions of this mesh are in use; try again when one has finished`;
      return [...effects, ...refuse('no_slot', text)];
    }
    if (evicted !== null) effects.push(...this.free(evicted));
    if (seat === undefined) {
      seat = new Seat(frame, run, sampling, new ActivationLog(this.logSessionBytes), now);
      seat.epoch = this.nextEpoch();
      this.seats.set(seatKey(frame.session, frame.stage), seat);
      this.note('opened', seat);
      effects.push(...this.prefixes.begin(seat, prefix));
      seat.heldBack = seat.warms && this.rules.bring(seat);
    } else {
      this.turn(seat, frame, prefix);
    }
    seat.opening = frame;
    seat.sampling = sampling;
    seat.touched = now;
    seat.active = true;
    seat.orphan = false;
    seat.unfit = 0;
    seat.asked = NEVER_ASKED;
    seat.shift = { places: 0, from: 0 };
    this.admitting.taken(now, seat);
    if (seat.isTail) effects.push(...this.continueTail(seat));
    effects.push(...passedOn(seat), ...this.askUpstream(now, seat));
    return [...effects, ...this.feedRuntime(seat)];
  }

  /** Queues a step of an open session. Stale turns and positions that came before change nothing. */
  step(now: number, sender: string, frame: Step): StageEffect[] {
    const seat = this.seat(frame.session, frame.stage, frame.turn);
    if (seat === undefined || !seat.active || sender !== seat.upstream) return []; // only the neighbour that the route names may feed this stage
    const ids = frame.tensor.dtype === 'int32';
    if (ids !== takesIds(seat.opening) && (ids || !seat.isGiven(frame.position))) {
      const text =
        'a first stage takes int32 tokens, or float32 rows of a prompt; later ones float32 activations';
      return this.stop(seat, 'bad_step', text);
    }
    const said = ids ? idsOf(frame.tensor) : null;
    if (ids && said === null) {
      const text = 'int32 tokens (count,), or (count, 2) with one shift of all their places, were expected';
      return this.stop(seat, 'bad_step', text);
    }
    if (said !== null && frame.position >= seat.shift.from) {
      seat.shift = { places: said.shift, from: frame.position };
    }
    if (frame.count > MAX_STEP_POSITIONS) {
      const text = `a step of at most ${MAX_STEP_POSITIONS} positions was expected, got ${frame.count}`;
      return this.stop(seat, 'bad_step', text);
    }
    return this.queue(now, seat, frame);
  }

  /** The tail's token starts the next decode step at the first stage. */
  token(now: number, sender: string, frame: Token): StageEffect[] {
    const seat = this.seat(frame.session, 0, frame.turn);
    if (seat === undefined || !seat.active || !seat.serves || sender !== seat.opening.route.at(-1)) return [];
    if (isPinned(seat.opening)) return [];
    if (frame.finish !== FINISH.more) {
      seat.active = false;
      return [];
    }
    const { session, turn, position } = frame;
    const tensor = shiftedIds([frame.token], seat.shift.places);
    return this.queue(now, seat, {
      kind: 'STEP',
      session,
      turn,
      stage: 0,
      position,
      count: 1,
      last: 1,
      tensor,
    });
  }

  /** Sends again what the next stage, or one of its shadows, lacks. */
  feed(now: number, sender: string, frame: Feed): StageEffect[] {
    const seat = frame.stage > 0 ? this.seat(frame.session, frame.stage - 1, frame.turn) : undefined;
    if (!seat?.serves) return [];
    const toShadow = sender !== seat.downstream && seat.shadows(frame.stage).includes(sender);
    if (!toShadow && sender !== seat.downstream) return [];
    const found = frame.position >= seat.computed ? [] : seat.log.since(frame.position);
    if (found === null) return toShadow ? [] : this.computeAgain(now, seat, frame.position); // older than the log
    return found.map(({ position, tensor }) => {
      this.replayedBytes += tensor.data.length;
      return { kind: toShadow ? 'spare' : 'send', peer: sender, frame: stepFor(seat, position, tensor) };
    });
  }

  /** Says how far a session has come, to whoever asks: a silent peer is a lost one. */
  where(sender: string, frame: Where): StageEffect[] {
    const { session, stage, turn } = frame;
    const seat = this.seat(session, stage, turn);
    const [received, computed] = [seat?.received ?? 0, seat?.computed ?? 0];
    const here = { kind: 'HERE', session, turn, stage, received, computed, steps: this.stepsRun } as const;
    return [{ kind: 'send', peer: sender, frame: here }];
  }

  /** The asker wants no more tokens; the cache stays for its next turn unless it says otherwise. */
  cancel(sender: string, frame: Cancel): StageEffect[] {
    this.over.note(sender, frame.session, frame.turn);
    this.admitting.cancelled(sender, frame, this.placesOf(frame.session));
    const effects: StageEffect[] = [];
    for (const seat of this.placesOf(frame.session)) {
      if (sender !== seat.opening.origin || frame.turn < seat.opening.turn) continue;
      if (frame.keep === 0) effects.push(...this.free(seat));
      else if (seat.serves) {
        seat.active = false; // a shadow catches up at its leisure
        seat.stopWaiting();
      }
    }
    return effects;
  }

  /** The asker is done with the session, for good. */
  release(sender: string, frame: Release): StageEffect[] {
    this.over.note(sender, frame.session, FOR_GOOD);
    this.admitting.line.leave(sender, frame.session);
    const own = this.placesOf(frame.session).filter((seat) => seat.opening.origin === sender);
    return own.flatMap((seat) => this.free(seat));
  }

  // --- the runtime's answers

  /** Passes an activation on, or a token to the first stage and the asker. */
  ran(now: number, result: Ran): StageEffect[] {
    const seat = this.ofRun(result.session, result.run);
    if (seat === undefined || result.epoch !== seat.epoch) return [];
    seat.inFlight -= 1;
    seat.touched = now;
    this.admitting.ran(now, seat, result);
    seat.unfit = 0;
    seat.computed = result.position + result.count;
    this.stepsRun += 1;
    const effects: StageEffect[] = [];
    if (result.hidden !== null && (!seat.isTail || isPinned(seat.opening))) {
      const tensor = tensorOf(result.hidden, [result.count, result.hidden.length / result.count]);
      seat.log.append(result.position, tensor);
      this.boundLogs();
      if (seat.active && seat.serves && seat.downstream !== undefined) {
        const frame = stepFor(seat, result.position, tensor);
        effects.push({ kind: 'send', peer: seat.downstream, frame });
        for (const peer of seat.shadows(seat.opening.stage + 1)) effects.push({ kind: 'spare', peer, frame });
      }
    }
    if (seat.isTail && seat.serves && seat.active) {
      effects.push(...handedBack(seat, result));
      if (result.token !== null) effects.push(...this.sampled(seat, result.token, seat.computed));
    }
    return [...effects, ...this.prefixes.computed(seat), ...this.feedRuntime(seat)];
  }

  /** Asks for what the runtime lacks, or tells the asker why a step was refused. */
  notRan(now: number, result: NotRan): StageEffect[] {
    const seat = this.ofRun(result.session, result.run);
    if (seat === undefined || result.epoch !== seat.epoch) return [];
    seat.inFlight -= 1;
    seat.unfit += 1;
    if (result.reason === 'missing_position' && seat.unfit <= MAX_UNFIT) {
      return this.computeAgain(now, seat, Math.min(result.have, result.position));
    }
    if (!seat.serves) return this.free(seat);
    if (!seat.active) return [];
    return this.stop(seat, result.reason, result.text, result.position, result.have);
  }

  // --- the world around

  /** Keeps the sessions of an asker that is gone for another; tells askers whose answer needs the peer that is. */
  peerGone(now: number, peer: string): StageEffect[] {
    const effects: StageEffect[] = [];
    for (const seat of this.sorted()) {
      if (seat.opening.origin === peer) {
        seat.active = false;
        seat.orphan = true;
        seat.touched = now;
        seat.stopWaiting();
      } else if (seat.active && seat.serves && seat.leansOn(peer)) {
        seat.active = false;
        seat.stopWaiting();
        const place = seat.opening.route.indexOf(peer);
        effects.push(refusal(seat, 'lost_neighbour', `the connection to peer ${peer} is gone`, place));
      }
    }
    this.full.delete(peer);
    this.admitting.line.gone(peer);
    return effects;
  }

  /** Whether the connection to `peer` has no room; prompt chunks towards it wait until it has. */
  congestion(peer: string, full: boolean): StageEffect[] {
    if (full) {
      this.full.add(peer);
      return [];
    }
    this.full.delete(peer);
    return this.sorted().flatMap((seat) => (seat.downstream === peer ? this.feedRuntime(seat) : []));
  }

  /** Frees sessions whose lease ran out; asks again for what did not come. */
  tick(now: number): StageEffect[] {
    const effects: StageEffect[] = [];
    for (const seat of this.sorted()) {
      if (now - seat.touched > (seat.orphan ? ORPHAN_S : LEASE_S)) effects.push(...this.free(seat));
      else if (seat.active && seat.hasGap) effects.push(...this.gap(now, seat));
    }
    return effects;
  }

  // --- opening

  /** Why this OPEN cannot be taken. */
  private fault(sender: string, frame: Open): Fault | null {
    const fault = misplaced(this.me, sender, frame) ?? wrongEnds(frame);
    if (fault !== null) return fault;
    if (this.leaving) return { reason: 'leaving', text: 'this peer is leaving' };
    const why =
      frame.role === ROLE.serve && frame.turn === frame.answer ? this.rules.mayAsk(frame.origin) : '';
    if (why !== '') return { reason: 'bad_step', text: why };
    return unserved(this.plans.get(frame.plan), this.loaded, frame);
  }

  /** Another turn on a seat: what is cached stays as far as it belongs to the same tokens. */
  private turn(seat: Seat, frame: Open, prefix: Prefix | null): void {
    const before = seat.opening;
    if (frame.answer !== before.answer) {
      const kept = frame.before === before.answer ? Math.min(seat.computed, frame.keep, frame.start) : 0;
      seat.stopWaiting();
      seat.sampled.clear();
      this.prefixes.again(seat, prefix);
      seat.rewind(kept, this.nextEpoch());
    } else if (!seat.serves && frame.role === ROLE.serve) {
      this.takenOver += 1;
      this.note('taken over', seat);
    }
  }

  /** The last stage: sends again what it sampled beyond the tokens that the asker knows. */
  private continueTail(seat: Seat): StageEffect[] {
    const { opening } = seat;
    const known = opening.promptTokens;
    ({ history: seat.history, allowed: seat.allowed } = steeringOf(opening));
    seat.generated = opening.generated;
    if (!seat.serves) return [];
    const effects: StageEffect[] = [];
    let position = known;
    for (;;) {
      const found = seat.sampled.get(position);
      if (found === undefined) break;
      seat.generated += 1;
      if (needsHistory(seat.sampling)) seat.history.push(found.token);
      effects.push(...this.tell(seat, position, found.token, found.finish));
      position += 1;
    }
    if (position === known && seat.submitted >= known) {
      seat.rewind(known - 1, this.nextEpoch()); // computed without the head, or on its way so
    }
    return effects;
  }

  /** FEED, when what will come unasked leaves a gap, or when an answer goes on and nobody knows what was lost. */
  private askUpstream(now: number, seat: Seat): StageEffect[] {
    const { opening } = seat;
    const resumes = opening.turn !== opening.answer;
    const lacks = seat.received < opening.start || (resumes && opening.stage > 0);
    return lacks ? this.gap(now, seat) : [];
  }

  private gap(now: number, seat: Seat): StageEffect[] {
    const { asked, received: position } = seat;
    if (seat.heldBack) return [];
    if (asked.position === position && now - asked.at < FEED_AGAIN_S) return [];
    seat.asked = { position, at: now };
    const { session, turn, stage } = seat.opening;
    return [{ kind: 'send', peer: seat.upstream, frame: { kind: 'FEED', session, turn, stage, position } }];
  }

  // --- inner moves

  private seat(session: SessionId, stage: number, turn: number): Seat | undefined {
    const seat = this.seats.get(seatKey(session, stage));
    return seat?.opening.turn === turn ? seat : undefined;
  }

  /** A seat, also one of those that were freed last: an answer may be checked when its session is over. */
  seatAt(session: SessionId, stage: number): Seat | undefined {
    return this.seats.get(seatKey(session, stage)) ?? this.late.get(seatKey(session, stage));
  }

  private ofRun(session: SessionId, run: Run): Seat | undefined {
    return this.placesOf(session).find((seat) => sameRun(seat.run, run));
  }

  /** The seats of a session, by place. */
  private placesOf(session: SessionId): Seat[] {
    return this.sorted().filter((seat) => seat.session === session);
  }

  private sorted(): Seat[] {
    return [...this.seats.values()].sort(byKey);
  }

  private note(what: Note['what'], { session, opening: { stage } }: Seat): void {
    this.noted.push({ what, session, stage });
  }

  private nextEpoch(): number {
    this.epoch += 1;
    return this.epoch;
  }

  private queue(now: number, seat: Seat, step: Step): StageEffect[] {
    if (!seat.take(step)) return [];
    if (seat.waiting.size > MAX_PENDING_STEPS || seat.waitingBytes > MAX_PENDING_BYTES) {
      return this.stop(seat, 'bad_step', 'too many steps wait'); // a shadow asks from the beginning when it is needed
    }
    seat.touched = now;
    if (step.position > seat.received && seat.inFlight === 0) return this.gap(now, seat);
    return this.feedRuntime(seat);
  }

  private feedRuntime(seat: Seat): StageEffect[] {
    const effects: StageEffect[] = [];
    while (seat.active && !seat.heldBack && seat.inFlight < AHEAD_STEPS && (seat.serves || !this.keepOnly)) {
      if (seat.serves && seat.downstream !== undefined && this.full.has(seat.downstream)) break;
      // The token that comes next belongs to the history of the one after.
      if (seat.isTail && seat.serves && seat.inFlight > 0 && needsHistory(seat.sampling)) break;
      const frame = seat.nextStep();
      if (frame === null) break;
      seat.inFlight += 1;
      effects.push(runStepOf(this.me, seat, frame, answering(this.seats.values(), seat.run)));
    }
    return effects;
  }

  /** This stage no longer has what it made of `position`: asks for the inputs from there on. */
  private computeAgain(now: number, seat: Seat, position: number): StageEffect[] {
    seat.rewind(position, this.nextEpoch());
    return [...this.gap(now, seat), ...this.feedRuntime(seat)];
  }

  private sampled(seat: Seat, token: number, position: number): StageEffect[] {
    const { opening } = seat;
    if (position < opening.promptTokens) return []; // a turn that began meanwhile knows it
    seat.generated += 1;
    if (needsHistory(seat.sampling)) seat.history.push(token);
    this.tokensSampled += 1;
    const finish = finishOf(seat, token);
    seat.sampled.set(position, { token, finish });
    return this.tell(seat, position, token, finish);
  }

  private tell(seat: Seat, position: number, token: number, finish: number): StageEffect[] {
    if (finish !== FINISH.more) seat.active = false;
    return told(seat, position, token, finish);
  }

  private free(seat: Seat): StageEffect[] {
    const key = seatKey(seat.session, seat.opening.stage);
    this.seats.delete(key);
    this.late.keep(key, seat);
    seat.active = false;
    this.note('closed', seat);
    return [{ kind: 'freeSlot', run: seat.run, session: seat.session }];
  }

  private boundLogs(): void {
    boundLogs([...this.seats.values()], this.logTotalBytes);
  }

  private stop(seat: Seat, reason: Reason, text: string, position = 0, have = 0): StageEffect[] {
    if (!seat.serves) return this.free(seat);
    seat.active = false;
    seat.stopWaiting();
    return [refusal(seat, reason, text, have, position)];
  }
}

function seatKey(session: SessionId, stage: number): string {
  return `${session}/${stage}`;
}
