/*
 * One peer's stages: what to run, what to pass on, what to refuse, for every session that crosses this peer.
 *
 * Pure: frames and runtime results in, effects out. A session is accepted by OPEN, which travels along the route ahead
 * of the steps on the same ordered channel; a stage takes steps only from the neighbour that its route names. At most
 * `AHEAD_STEPS` steps of a session wait in the runtime, and none while the way to the next stage is full.
 */

import { BadSampling } from './errors';
import {
  type Cancel,
  FINISH,
  type Open,
  type Release,
  type SessionId,
  type Step,
  type Token,
} from './frames';
import { type Run, runKey } from './mesh_state';
import { sample, type Sampling, samplingFromWire } from './sampling';
import { distinct, needsHistory, type Reason, REASONS, type Send } from './session';
import { floats, integers, tensorOf } from './tensors';

export const AHEAD_STEPS = 2; // keeps the worker busy while the loop handles the last result
export const LEASE_S = 600; // a session that nobody continues is freed after this
const LEFT_S = 90; // an asker gives up on an answer long before: its slot may go to another
const MAX_STEP_POSITIONS = 256; // eight chunks; more would hold up the sessions beside it
const MAX_PENDING_STEPS = 65536; // per session: an answer of that length can be replayed, a token to a step
const MAX_PENDING_BYTES = 256 * 1024 * 1024; // per session: a whole prompt that waits for a slow stage

/** How the head's logits become the token for `position`: plain values, since the runtime is a worker. */
export interface Pick {
  readonly sampling: Sampling;
  readonly position: number;
  readonly history: Int32Array;
  readonly generated: number; // of `history`, the last so many were sampled in this answer
}

/** Submit to the runtime of units `run`. With `pick`, the worker turns the head's logits into a token. */
export interface RunStep {
  readonly kind: 'runStep';
  readonly run: Run;
  readonly session: SessionId;
  readonly turn: number;
  readonly position: number;
  readonly tokens: Int32Array | null; // (T,) for the run that begins with the embedding
  readonly hidden: Float32Array | null; // (T, hidden) otherwise
  readonly count: number; // T
  readonly last: boolean;
  readonly pick: Pick | null;
  readonly prompt: boolean; // the tokens were given, not sampled
  /** Of a decode batch: the first stage sends its sessions off in as many groups as there are stages. 0: no bound. */
  readonly mostRows: number;
}

/** The runtime of `run` forgets `session`. */
export interface FreeSlot {
  readonly kind: 'freeSlot';
  readonly run: Run;
  readonly session: SessionId;
}

export type StageEffect = Send | RunStep | FreeSlot;

/** A finished step, as the runtime reports it. `hidden` (count, width) to pass on, or the sampled `token` at the tail. */
export interface Ran {
  readonly session: SessionId;
  readonly turn: number;
  readonly position: number;
  readonly count: number;
  readonly hidden: Float32Array | null;
  readonly token: number | null;
}

/** A step that the runtime refused. `have`: positions that its cache holds. */
export interface NotRan {
  readonly session: SessionId;
  readonly turn: number;
  readonly position: number;
  readonly have: number;
  readonly reason: Reason;
  readonly text: string;
}

/** The primary of each stage of a plan, and its units. */
export type PlanStages = readonly { readonly peer: string; readonly run: Run }[];

/** Units that are loaded, and for how many sessions. */
export interface Loaded {
  readonly run: Run;
  readonly slots: number;
}

/** One session on one stage of this peer. */
interface Seat {
  readonly opening: Open;
  readonly run: Run;
  readonly sampling: Sampling;
  readonly history: number[];
  readonly upstream: string | undefined; // who may send steps: the previous stage, or the asker
  readonly downstream: string | undefined; // absent at the tail
  generated: number;
  active: boolean;
  touched: number;
  inFlight: number;
  pending: Step[];
  pendingBytes: number;
}

/** All sessions on this peer's stages. One peer serves at most one stage of a route. */
export class StageCore {
  readonly me: string;
  tokensSampled = 0;
  stepsRun = 0;
  private readonly seats = new Map<SessionId, Seat>();
  private plans: ReadonlyMap<number, PlanStages> = new Map();
  private loaded = new Map<string, Loaded>(); // by runKey
  private leaving = false;
  private readonly full = new Set<string>(); // peers whose connection has no room

  constructor(me: string) {
    this.me = me;
  }

  // --- what this peer serves

  /** The plans whose sessions are accepted, by version, and the runs that are loaded, with their slots. */
  serve(plans: ReadonlyMap<number, PlanStages>, loaded: readonly Loaded[]): void {
    this.plans = plans;
    this.loaded = new Map(loaded.map((each) => [runKey(each.run), each]));
  }

  /** Refuses what comes and tells every asker, so that answers can go on elsewhere. */
  leave(): StageEffect[] {
    this.leaving = true;
    const active = this.sorted().filter(([, seat]) => seat.active);
    return active.flatMap(([, seat]) => this.stop(seat, 'leaving', 'this peer is leaving'));
  }

  /** Takes sessions again after `leave`. */
  comeBack(): void {
    this.leaving = false;
  }

  /** Sessions that hold a slot here. */
  sessions(): number {
    return this.seats.size;
  }

  /** Sessions that are being answered. */
  active(): number {
    return [...this.seats.values()].filter((seat) => seat.active).length;
  }

  /** Sessions that are being answered with units `run`. */
  activeOn(run: Run): number {
    return [...this.seats.values()].filter((seat) => seat.active && sameRun(seat.run, run)).length;
  }

  /** Forgets every session of units `run`, which are about to be unloaded. */
  drop(run: Run): StageEffect[] {
    this.loaded.delete(runKey(run));
    const effects: StageEffect[] = [];
    for (const [session, seat] of this.sorted()) {
      if (!sameRun(seat.run, run)) continue;
      if (seat.active) {
        effects.push(this.refusal(seat, 0, 0, 'unknown_plan', 'the plan moved these units to another peer'));
      }
      effects.push(...this.free(session));
    }
    return effects;
  }

  // --- frames

  /** Takes a seat for the session and passes the OPEN on, or refuses to the asker. */
  open(now: number, sender: string, frame: Open): StageEffect[] {
    const { route, stage } = frame;
    if (stage >= route.length || route[stage] !== this.me) {
      return [no(frame, 'bad_step', 'this peer is not at that place of the route')];
    }
    const upstream = stage > 0 ? route[stage - 1] : frame.origin;
    if (sender !== upstream) {
      return [no(frame, 'bad_step', `OPEN for stage ${stage} must come from ${upstream ?? ''}`)];
    }
    if (this.leaving) return [no(frame, 'leaving', 'this peer is leaving')];
    const plan = this.plans.get(frame.plan);
    const run = plan?.[stage]?.run;
    const agrees = plan?.length === route.length && plan.every(({ peer }, at) => peer === route[at]);
    if (!agrees || run === undefined) {
      return [no(frame, 'unknown_plan', `plan ${frame.plan} with that route is not served here`)];
    }
    const loaded = this.loaded.get(runKey(run));
    if (loaded === undefined) {
      return [no(frame, 'unknown_plan', `units ${run.first}-${run.stop - 1} are not loaded here`)];
    }
    const sampling = samplingOrFault(frame.sampling);
    if (sampling instanceof BadSampling) {
      return [no(frame, 'bad_step', `sampling settings: ${sampling.message}`)];
    }
    const effects: StageEffect[] = [];
    let seat = this.seats.get(frame.session);
    if (seat !== undefined && seat.opening.origin !== frame.origin) {
      return [no(frame, 'bad_step', 'that session belongs to another asker')];
    }
    if (seat !== undefined && frame.turn <= seat.opening.turn) return []; // an older turn that was overtaken
    if (seat !== undefined && !sameRun(seat.run, run)) {
      effects.push(...this.free(frame.session));
      seat = undefined;
    }
    if (seat === undefined) {
      const evicted = this.makeRoom(now, loaded, frame.session);
      if (evicted === null) {
        const text = `all ${loaded.slots} sessions of this mesh are in use; try again when one has finished`;
        return [...effects, no(frame, 'no_slot', text)];
      }
      effects.push(...evicted);
    }
    const downstream = route[stage + 1];
    this.seats.set(frame.session, {
      opening: frame,
      run,
      sampling,
      history: [...frame.history],
      upstream,
      downstream,
      generated: frame.generated,
      active: true,
      touched: now,
      inFlight: 0,
      pending: [],
      pendingBytes: 0,
    });
    if (downstream !== undefined) {
      effects.push({ kind: 'send', peer: downstream, frame: { ...frame, stage: stage + 1 } });
    }
    return effects;
  }

  /** Queues a step of an open session. Stale turns change nothing. */
  step(now: number, sender: string, frame: Step): StageEffect[] {
    const seat = this.seats.get(frame.session);
    if (seat === undefined || frame.turn !== seat.opening.turn || !seat.active) return [];
    if (sender !== seat.upstream) return []; // only the neighbour that the route names may feed this stage
    if ((frame.tensor.dtype === 'int32') !== (seat.opening.stage === 0)) {
      return this.stop(seat, 'bad_step', 'a first stage takes int32 tokens, later ones float32 activations');
    }
    if (frame.count > MAX_STEP_POSITIONS) {
      const text = `a step of at most ${MAX_STEP_POSITIONS} positions was expected, got ${frame.count}`;
      return this.stop(seat, 'bad_step', text);
    }
    return this.queue(now, seat, frame);
  }

  /** The tail's token starts the next decode step at the first stage. */
  token(now: number, sender: string, frame: Token): StageEffect[] {
    const seat = this.seats.get(frame.session);
    if (seat === undefined || frame.turn !== seat.opening.turn || !seat.active) return [];
    const { opening } = seat;
    if (opening.stage !== 0 || sender !== opening.route.at(-1)) return [];
    if (frame.finish !== FINISH.more) {
      seat.active = false;
      return [];
    }
    return this.queue(now, seat, {
      kind: 'STEP',
      session: opening.session,
      turn: opening.turn,
      plan: opening.plan,
      position: frame.position,
      count: 1,
      last: 1,
      tensor: tensorOf(Int32Array.of(frame.token), [1]),
    });
  }

  /** The asker wants no more tokens; the cache stays for its next turn unless it says otherwise. */
  cancel(sender: string, frame: Cancel): StageEffect[] {
    const seat = this.seats.get(frame.session);
    if (seat === undefined || sender !== seat.opening.origin || frame.turn < seat.opening.turn) return [];
    seat.active = false;
    seat.pending = [];
    return frame.keep > 0 ? [] : this.free(frame.session);
  }

  /** The asker is done with the session. */
  release(sender: string, frame: Release): StageEffect[] {
    return this.seats.get(frame.session)?.opening.origin === sender ? this.free(frame.session) : [];
  }

  // --- the runtime's answers

  /** Passes an activation on, or a token to the first stage and the asker. */
  ran(now: number, result: Ran): StageEffect[] {
    const seat = this.seats.get(result.session);
    if (seat === undefined || result.turn !== seat.opening.turn) return [];
    seat.inFlight -= 1;
    seat.touched = now;
    this.stepsRun += 1;
    if (!seat.active) return [];
    const { opening, downstream } = seat;
    const effects: StageEffect[] = [];
    const nextPosition = result.position + result.count;
    if (downstream !== undefined && result.hidden !== null) {
      const width = result.hidden.length / result.count;
      const frame: Step = {
        kind: 'STEP',
        session: opening.session,
        turn: opening.turn,
        plan: opening.plan,
        position: result.position,
        count: result.count,
        last: nextPosition >= opening.promptTokens ? 1 : 0,
        tensor: tensorOf(result.hidden, [result.count, width]),
      };
      effects.push({ kind: 'send', peer: downstream, frame });
    } else if (result.token !== null) {
      effects.push(...this.sampled(seat, result.token, nextPosition));
    }
    return [...effects, ...this.feed(seat)];
  }

  /** Tells the asker why a step was refused. */
  notRan(result: NotRan): StageEffect[] {
    const seat = this.seats.get(result.session);
    if (seat === undefined || result.turn !== seat.opening.turn) return [];
    seat.inFlight -= 1;
    if (!seat.active) return [];
    return this.stop(seat, result.reason, result.text, result.position, result.have);
  }

  // --- the world around

  /** Frees the sessions of an asker that is gone; tells askers whose answer needs the peer that is. */
  peerGone(peer: string): StageEffect[] {
    const effects: StageEffect[] = [];
    for (const [session, seat] of this.sorted()) {
      if (seat.opening.origin === peer) effects.push(...this.free(session));
      else if (seat.active && leansOn(seat, peer)) {
        effects.push(...this.stop(seat, 'lost_neighbour', `the connection to peer ${peer} is gone`));
      }
    }
    this.full.delete(peer);
    return effects;
  }

  /** Whether the connection to `peer` has no room; prompt chunks towards it wait until it has. */
  congestion(peer: string, full: boolean): StageEffect[] {
    if (full) {
      this.full.add(peer);
      return [];
    }
    this.full.delete(peer);
    const waiting = this.sorted().filter(([, seat]) => seat.downstream === peer);
    return waiting.flatMap(([, seat]) => this.feed(seat));
  }

  /** Frees sessions whose lease ran out. */
  tick(now: number): StageEffect[] {
    const stale = this.sorted().filter(([, seat]) => now - seat.touched > LEASE_S);
    return stale.flatMap(([session]) => this.free(session));
  }

  // --- inner moves

  private sorted(): [SessionId, Seat][] {
    return [...this.seats.entries()].sort(([a], [b]) => (a < b ? -1 : 1));
  }

  private queue(now: number, seat: Seat, step: Step): StageEffect[] {
    seat.pendingBytes += step.tensor.data.byteLength;
    if (seat.pending.length >= MAX_PENDING_STEPS || seat.pendingBytes > MAX_PENDING_BYTES) {
      return this.stop(seat, 'bad_step', 'too many steps wait');
    }
    seat.touched = now;
    seat.pending.push(step);
    return this.feed(seat);
  }

  private feed(seat: Seat): StageEffect[] {
    const effects: StageEffect[] = [];
    while (seat.active && seat.inFlight < AHEAD_STEPS) {
      if (seat.downstream !== undefined && this.full.has(seat.downstream)) break;
      const frame = seat.pending.shift();
      if (frame === undefined) break;
      seat.pendingBytes -= frame.tensor.data.byteLength;
      seat.inFlight += 1;
      const last = frame.last === 1;
      const isFirst = seat.opening.stage === 0;
      effects.push({
        kind: 'runStep',
        run: seat.run,
        session: frame.session,
        turn: frame.turn,
        position: frame.position,
        tokens: isFirst ? integers(frame.tensor) : null,
        hidden: isFirst ? null : floats(frame.tensor),
        count: frame.count,
        last,
        pick: seat.downstream === undefined && last ? pickOf(seat, frame.position + frame.count) : null,
        prompt: frame.position < seat.opening.promptTokens - seat.opening.generated,
        mostRows: this.mostRows(seat),
      });
    }
    return effects;
  }

  private mostRows(seat: Seat): number {
    const stages = seat.opening.route.length;
    if (seat.opening.stage > 0 || stages === 1) return 0; // later stages take what comes together
    return Math.ceil(this.activeOn(seat.run) / stages);
  }

  private sampled(seat: Seat, token: number, position: number): StageEffect[] {
    const { opening } = seat;
    seat.generated += 1;
    if (needsHistory(seat.sampling)) seat.history.push(token);
    this.tokensSampled += 1;
    const answered = seat.generated - opening.generated;
    const finish = opening.endTokens.includes(token)
      ? FINISH.endToken
      : answered >= opening.maxTokens
        ? FINISH.length
        : FINISH.more;
    if (finish !== FINISH.more) seat.active = false;
    const frame: Token = {
      kind: 'TOKEN',
      session: opening.session,
      turn: opening.turn,
      position,
      token,
      finish,
    };
    const told = distinct([opening.route[0] ?? opening.origin, opening.origin]);
    return told.map((peer) => ({ kind: 'send', peer, frame }));
  }

  /** What frees a slot of these units, or null when every session on them is being answered. */
  private makeRoom(now: number, { run, slots }: Loaded, session: SessionId): StageEffect[] | null {
    const taken = this.sorted().filter(([key, seat]) => sameRun(seat.run, run) && key !== session);
    if (taken.length < slots) return [];
    const left = (seat: Seat): boolean => now - seat.touched > LEFT_S && seat.inFlight === 0;
    const idle = taken.filter(([, seat]) => !seat.active || left(seat));
    const [idlest] = idle.sort(([, a], [, b]) => a.touched - b.touched);
    return idlest === undefined ? null : this.free(idlest[0]);
  }

  private free(session: SessionId): StageEffect[] {
    const seat = this.seats.get(session);
    if (seat === undefined) return [];
    this.seats.delete(session);
    return [{ kind: 'freeSlot', run: seat.run, session }];
  }

  private stop(seat: Seat, reason: Reason, text: string, position = 0, have = 0): StageEffect[] {
    seat.active = false;
    seat.pending = [];
    return [this.refusal(seat, position, have, reason, text)];
  }

  private refusal({ opening }: Seat, position: number, have: number, reason: Reason, text: string): Send {
    return no(opening, reason, text, position, have);
  }
}

/** Whether no token comes without `peer`: a neighbour, or the other end of the way a token takes back. */
function leansOn({ opening: { route, stage }, upstream, downstream }: Seat, peer: string): boolean {
  if (peer === upstream || peer === downstream) return true;
  return (stage === 0 || downstream === undefined) && (peer === route[0] || peer === route.at(-1));
}

/** The token for `spec.position`, from the head's logits (vocabulary,). The runtime's worker calls it. */
export function pick(spec: Pick, logits: Float32Array): number {
  const { history, generated } = spec;
  const answer = generated > 0 ? history.subarray(-generated) : history.subarray(0, 0);
  return sample(logits, spec.sampling, spec.position, history, answer);
}

function pickOf(seat: Seat, position: number): Pick {
  const { sampling, history, generated } = seat;
  return { sampling, position, history: Int32Array.from(history), generated };
}

function no(frame: Open, reason: Reason, message: string, position = 0, have = 0): Send {
  const { session, turn, stage, origin } = frame;
  return {
    kind: 'send',
    peer: origin,
    frame: { kind: 'REFUSE', session, turn, stage, position, have, reason: REASONS[reason], message },
  };
}

function samplingOrFault(wire: readonly number[]): Sampling | BadSampling {
  try {
    return samplingFromWire(wire);
  } catch (error) {
    if (error instanceof BadSampling) return error;
    throw error;
  }
}

function sameRun(a: Run, b: Run): boolean {
  return a.first === b.first && a.stop === b.stop;
}
