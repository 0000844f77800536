/*
 * The asker's side of one generation: which frames to send, which tokens to show, when to give up.
 *
 * Pure: every method takes `now` (seconds) where time matters and returns effects for the edge to perform. The life of
 * a session is one tagged value, `Phase`:
 *
 *     idle ──begin──▶ prefill ──first token──▶ decode ──end, length, stop──▶ done
 *                        │  ▲                     │
 *                        ▼  │ a serving route     ▼
 *                     rerouting ◀──refused, peer lost or leaving
 *                        │
 *                        └──no route in time──▶ failed          cancel leads from any phase to done
 *
 * A session may have several turns: each begins with a prompt of which the stages keep the longest cached prefix.
 */

import { ContextOverflow } from './errors';
import {
  type Cancel,
  FINISH,
  type Frame,
  type Open,
  type Refuse,
  type SessionId,
  type Token,
} from './frames';
import { type PlanRecord, routeOf } from './mesh_state';
import { type Sampling, samplingToWire } from './sampling';
import { tensorOf } from './tensors';

export const CHUNK_TOKENS = 32; // prompt tokens a step carries: small enough that stages overlap (docs/benchmarks.md)
export const REROUTE_S = 1.5; // how long to wait for a serving route: an asker must hear of a loss within 2 s
export const STALL_S = 60; // no token for this long ends the session with an error
const SLOW_TOKENS_PER_S = 10; // of a prompt: the slowest mesh that is waited for beyond that
export const MAX_REROUTES = 8; // per turn; bounds the work a flapping mesh can cause

/** Why a stage refused, and its number in REFUSE frames. */
export const REASONS = {
  missing_position: 1,
  context_overflow: 2,
  no_slot: 3,
  not_finite_input: 4,
  not_finite_output: 5,
  failed: 6,
  unknown_plan: 7,
  unknown_session: 8,
  lost_neighbour: 9,
  leaving: 10,
  bad_step: 11,
} as const;
export type Reason = keyof typeof REASONS;

const REASON_OF: ReadonlyMap<number, Reason> = new Map(
  Object.entries(REASONS).map(([name, number]) => [number, name as Reason]),
);

/** The reason with that number; one that this build does not know counts as `failed`. */
export function reasonOf(number: number): Reason {
  return REASON_OF.get(number) ?? 'failed';
}

export type Phase = 'idle' | 'prefill' | 'decode' | 'rerouting' | 'done' | 'failed';

/** Hand `frame` to `peer`, which may be this peer itself. */
export interface Send {
  readonly kind: 'send';
  readonly peer: string;
  readonly frame: Frame;
}

/** Show `token`, sampled for `position`. */
export interface Emit {
  readonly kind: 'emit';
  readonly token: number;
  readonly position: number;
}

/** The turn is over: "end" (an end token), "length", or "cancelled". */
export interface Ended {
  readonly kind: 'ended';
  readonly why: string;
}

/** The turn failed; `text` says what happened and what to do. */
export interface Broken {
  readonly kind: 'broken';
  readonly text: string;
  readonly reason: Reason;
}

/**
 * This session needs a serving plan that avoids `without`; call `reroute` when there is one.
 *
 * `soon`: not at once, since a stage has not heard of the plan yet.
 */
export interface FindRoute {
  readonly kind: 'findRoute';
  readonly without: ReadonlySet<string>;
  readonly soon: boolean;
}

export type OriginEffect = Send | Emit | Ended | Broken | FindRoute;

/** One turn: the whole prompt as token ids, and how to answer it. */
export interface Ask {
  readonly prompt: readonly number[];
  readonly maxTokens: number;
  readonly sampling: Sampling;
  readonly endTokens: readonly number[];
}

/** How many tokens the answer may have. Raises ContextOverflow when the promise cannot be kept. */
export function roomFor(promptTokens: number, maxTokens: number | null, context: number): number {
  const room = context - promptTokens;
  if (room < 1) {
    throw new ContextOverflow(
      `the prompt has ${promptTokens} tokens, this mesh serves a context of ${context}; shorten the prompt by ` +
        `${promptTokens - context + 1} tokens or start the mesh with --context ${promptTokens * 2}`,
    );
  }
  if (maxTokens === null) return room;
  if (maxTokens < 1) throw new ContextOverflow(`max_tokens must be at least 1, got ${maxTokens}`);
  if (maxTokens > room) {
    throw new ContextOverflow(
      `${promptTokens} prompt tokens and ${maxTokens} answer tokens exceed the context of ${context}; ` +
        `ask for at most ${room}`,
    );
  }
  return maxTokens;
}

/** One session as its asker sees it. */
export class OriginSession {
  readonly session: SessionId;
  readonly me: string;
  phase: Phase = 'idle';
  turn = 0;
  plan: PlanRecord | null = null;
  tokens: number[] = []; // prompt and answer of the current turn
  start = 0; // first position that the current turn sent; those before were cached
  private ask: Ask | null = null;
  private generated = 0;
  private cached: number[] = []; // tokens whose keys and values every stage of the last route holds
  private cachedPlan: PlanRecord | null = null;
  private badPeers: ReadonlySet<string> = new Set();
  private reroutes = 0;
  private deadline = 0;
  private patienceS = STALL_S;
  private trouble = '';

  constructor(session: SessionId, me: string) {
    this.session = session;
    this.me = me;
  }

  get route(): readonly string[] {
    return this.plan === null ? [] : routeOf(this.plan);
  }

  /** Opens a turn over `plan`. Only tokens beyond the prefix that the stages already hold are sent. */
  begin(now: number, plan: PlanRecord, ask: Ask): OriginEffect[] {
    if (this.phase !== 'idle' && this.phase !== 'done' && this.phase !== 'failed') {
      throw new Error(`session is ${this.phase}; cancel it before it is asked again`);
    }
    this.ask = ask;
    this.generated = 0;
    this.badPeers = new Set();
    this.reroutes = 0;
    this.tokens = [...ask.prompt];
    return this.open(now, plan, ask);
  }

  /** A token from the tail. Duplicates, stale turns and tokens of other peers change nothing. */
  token(now: number, sender: string, frame: Token): OriginEffect[] {
    if (!this.answering() || frame.turn !== this.turn) return [];
    if (sender !== this.route.at(-1) || frame.position !== this.tokens.length) return [];
    this.phase = 'decode';
    this.patienceS = STALL_S;
    this.deadline = now + STALL_S;
    this.tokens.push(frame.token);
    this.generated += 1;
    const emit: Emit = { kind: 'emit', token: frame.token, position: frame.position };
    if (frame.finish === FINISH.more && this.ask !== null && this.generated >= this.ask.maxTokens) {
      return [emit, ...this.cancel('length')]; // a tail that does not count would go on for ever
    }
    switch (frame.finish) {
      case FINISH.endToken:
        return [emit, ...this.rest('end'), ...this.end('end')];
      case FINISH.length:
        return [emit, ...this.rest('length'), ...this.end('length')];
      default:
        return [emit];
    }
  }

  /** A stage could not go on. Recovers where another route or a full prefill can help. */
  refused(now: number, sender: string, frame: Refuse): OriginEffect[] {
    if (!this.answering() || frame.turn !== this.turn) return [];
    if (!this.route.includes(sender)) return [];
    const reason = reasonOf(frame.reason);
    switch (reason) {
      case 'missing_position':
      case 'unknown_session':
        this.cached = [];
        return this.restart(now, [], frame.message);
      case 'unknown_plan':
      case 'lost_neighbour':
        return this.restart(now, [], frame.message, true);
      case 'leaving':
        return this.restart(now, [sender], `peer ${sender} is leaving`);
      case 'no_slot':
      case 'context_overflow':
      case 'not_finite_input':
      case 'not_finite_output':
      case 'failed':
      case 'bad_step':
        return this.fail(frame.message || reason.replaceAll('_', ' '), reason);
      default:
        return reason satisfies never;
    }
  }

  /** A peer of the route left or was lost: the answer goes on elsewhere, or fails within REROUTE_S. */
  peerGone(now: number, peer: string, why: string): OriginEffect[] {
    if (this.answering() && this.route.includes(peer)) return this.restart(now, [peer], why);
    if (this.phase === 'rerouting') this.badPeers = new Set([...this.badPeers, peer]);
    else if (this.route.includes(peer)) this.cached = [];
    return [];
  }

  /** A serving plan: replays prompt and answer so far over it, unless it uses a peer known to be gone. */
  reroute(now: number, plan: PlanRecord): OriginEffect[] {
    if (this.phase !== 'rerouting' || this.ask === null) return [];
    if (routeOf(plan).some((peer) => this.badPeers.has(peer))) return [];
    return this.open(now, plan, this.ask);
  }

  /** Gives up on a route that never came, or on a mesh that went silent. */
  tick(now: number): OriginEffect[] {
    if (now < this.deadline) return [];
    switch (this.phase) {
      case 'rerouting':
        return this.fail(`${this.trouble}; no other peers hold its part right now, ask again soon`);
      case 'prefill':
      case 'decode':
        return this.fail(`no token came for ${this.patienceS} s; the mesh may be overloaded, ask again`);
      case 'idle':
      case 'done':
      case 'failed':
        return [];
      default:
        return this.phase satisfies never;
    }
  }

  /** Stops the turn on every stage; their cache is kept for the next question. */
  cancel(why = 'cancelled'): OriginEffect[] {
    if (!this.answering() && this.phase !== 'rerouting') return [];
    const told = this.phase === 'rerouting' ? [] : distinct(this.route);
    return [...told.map((peer) => this.send(peer, this.stop(why))), ...this.end(why)];
  }

  /** Frees the session's slots on every stage it used. */
  release(): OriginEffect[] {
    const ended = this.cancel();
    this.cached = [];
    return [...ended, ...this.releases(distinct(this.route))];
  }

  private answering(): boolean {
    return this.phase === 'prefill' || this.phase === 'decode';
  }

  private open(now: number, plan: PlanRecord, ask: Ask): OriginEffect[] {
    const route = routeOf(plan);
    const [first] = route;
    if (first === undefined) throw new Error('a plan of at least one stage expected');
    const count = this.tokens.length;
    const start = this.sameRoute(plan) ? Math.min(commonPrefix(this.cached, this.tokens), count - 1) : 0;
    const gone = distinct(this.route).filter((peer) => !route.includes(peer));
    const effects: OriginEffect[] = this.releases(gone.sort());
    this.plan = plan;
    this.start = start;
    this.turn += 1;
    this.phase = 'prefill';
    this.patienceS = STALL_S + Math.floor((count - start) / SLOW_TOKENS_PER_S);
    this.deadline = now + this.patienceS;
    const opening: Open = {
      kind: 'OPEN',
      session: this.session,
      turn: this.turn,
      plan: plan.version,
      route,
      stage: 0,
      origin: this.me,
      start,
      promptTokens: count,
      maxTokens: ask.maxTokens - this.generated,
      sampling: samplingToWire(ask.sampling),
      endTokens: ask.endTokens,
      generated: this.generated,
      history: Int32Array.from(needsHistory(ask.sampling) ? this.tokens : []),
    };
    effects.push(this.send(first, opening));
    this.cached = [];
    this.cachedPlan = plan;
    const ids = Int32Array.from(this.tokens);
    for (const { position, stop } of stepsOf(start, count, count - this.generated)) {
      effects.push(
        this.send(first, {
          kind: 'STEP',
          session: this.session,
          turn: this.turn,
          plan: plan.version,
          position,
          count: stop - position,
          last: stop === count ? 1 : 0,
          tensor: tensorOf(ids.subarray(position, stop), [stop - position]),
        }),
      );
    }
    return effects;
  }

  private sameRoute(plan: PlanRecord): boolean {
    const cached = this.cachedPlan;
    if (cached?.version !== plan.version) return false;
    const [held, wanted] = [routeOf(cached), routeOf(plan)];
    return held.length === wanted.length && held.every((peer, stage) => peer === wanted[stage]);
  }

  private send(peer: string, frame: Frame): Send {
    return { kind: 'send', peer, frame };
  }

  private stop(reason: string): Cancel {
    return { kind: 'CANCEL', session: this.session, turn: this.turn, keep: this.tokens.length, reason };
  }

  private releases(peers: readonly string[]): Send[] {
    return peers.map((peer) => this.send(peer, { kind: 'RELEASE', session: this.session }));
  }

  /** Tells the stages between the first and the last, which see no tokens, that the turn is over. */
  private rest(why: string): OriginEffect[] {
    return distinct(this.route.slice(1, -1)).map((peer) => this.send(peer, this.stop(why)));
  }

  private end(why: string): OriginEffect[] {
    // The last token of an answer was sampled but never run; a cancelled prefill may have run in part.
    this.cached = this.phase === 'decode' ? this.tokens.slice(0, -1) : [];
    this.phase = 'done';
    return [{ kind: 'ended', why }];
  }

  private restart(now: number, without: readonly string[], why: string, soon = false): OriginEffect[] {
    this.reroutes += 1;
    if (this.reroutes > MAX_REROUTES) {
      return this.fail(`${why}; the route failed ${MAX_REROUTES} times, ask again`);
    }
    const told = distinct(this.route).filter((peer) => !without.includes(peer));
    const stops = told.map((peer) => this.send(peer, this.stop('rerouting')));
    this.phase = 'rerouting';
    this.badPeers = new Set([...this.badPeers, ...without]);
    this.trouble = why;
    this.deadline = now + REROUTE_S;
    return [...stops, { kind: 'findRoute', without: this.badPeers, soon }];
  }

  private fail(text: string, reason: Reason = 'lost_neighbour'): OriginEffect[] {
    const told = distinct(this.route).filter((peer) => !this.badPeers.has(peer));
    this.cached = [];
    this.phase = 'failed';
    return [...this.releases(told), { kind: 'broken', text, reason }];
  }
}

/**
 * [position, stop) of the steps that send tokens `start` to `count`, of which the first `given` are the prompt.
 *
 * An answer that goes on elsewhere is replayed token by token, as it was made: attention adds up in another order
 * for one token than for several, and only the same order gives the same bits.
 */
export function stepsOf(
  start: number,
  count: number,
  given: number,
): { readonly position: number; readonly stop: number }[] {
  const steps: { position: number; stop: number }[] = [];
  for (let position = start; position < given; position += CHUNK_TOKENS) {
    steps.push({ position, stop: Math.min(position + CHUNK_TOKENS, given) });
  }
  for (let position = Math.max(start, given); position < count; position++) {
    steps.push({ position, stop: position + 1 });
  }
  return steps;
}

/** Whether the tail must know the tokens so far: only then do they travel with OPEN. */
export function needsHistory(sampling: Sampling): boolean {
  return (
    sampling.repetitionPenalty !== 1 || sampling.frequencyPenalty !== 0 || sampling.presencePenalty !== 0
  );
}

/** How many leading tokens `a` and `b` share. */
export function commonPrefix(a: readonly number[], b: readonly number[]): number {
  const most = Math.min(a.length, b.length);
  for (let index = 0; index < most; index++) if (a[index] !== b[index]) return index;
  return most;
}

export function distinct(peers: readonly string[]): string[] {
  return [...new Set(peers)];
}
