/*
 * The asker's side of one generation: which frames to send, which tokens to show, whom to do without, when to give up
 * (twin of peer/session.py).
 *
 * Pure: every method takes `now` (seconds) where time matters and returns effects for the edge to perform. The life of
 * a session is one tagged value, `Phase`:
 *
 *     idle ──begin──▶ prefill ──first token──▶ decode ──end, length, stop──▶ done
 *                        │  ▲                     │
 *                        ▼  │ a route             ▼
 *                     rerouting ◀──refused, peer lost or leaving
 *                        │
 *                        └──no route in time──▶ failed          cancel leads from any phase to done
 *
 * When the next token is late, every stage is asked where it is (WHERE). Who is silent is hedged against: the answer
 * goes on in another turn, over a route without that peer, where there is one; else it waits. A session has many
 * answers: each begins with a prompt of which the stages keep the longest cached prefix.
 */

import type { FullAt } from './admission';
import { type Ask, type Heard, isDone, type Phase, type Without } from './asks';
import { type Broken, type OriginEffect, type Reason, reasonOf, type Send, type Spare } from './effects';
import {
  type Feed,
  FINISH,
  type Frame,
  type Here,
  MAX_SPANS,
  type Open,
  type Refuse,
  ROLE,
  type SessionId,
  type Step,
  type Token,
} from './frames';
import { Lateness } from './lateness';
import { type Drawing, drawingOf, type Ends, pinned } from './pinned';
import type { Route } from './routes';
import { needsHistory, samplingToWire } from './sampling';
import { commonPrefix, cutSpans, extended, stepsOf } from './spans';
import { tensorOf } from './tensors';

export { type Ask, type Heard, type Phase, roomFor, type Without } from './asks';

export const REROUTE_S = 1.5; // how long to wait for a route when nobody could take over: an asker must hear of it
export const HOPE_S = 30; // and when another peer is loading what was lost
export const STALL_S = 60; // no token for this long ends the session with an error
const SLOW_TOKENS_PER_S = 10; // of a prompt: the slowest mesh that is waited for beyond that
export const MAX_REROUTES = 16; // per answer; bounds the work a flapping mesh can cause
export const PATIENCE_S = 0.25; // for an answer to WHERE, unless the edge knows the link better
export const STUCK_S = 1; // no progress anywhere for this long, at least, before a stage counts as stuck
const STUCK_GAPS = 10; // and for as many usual gaps
const STARVED_S = 0.5; // the same for a stage that does not get what the one before it made
const STARVED_GAPS = 4;
const MAX_DOUBLED = 6; // times
const ADOPTED_TURNS = 64; // above the last turn that was heard of: an answer has no more routes than that

/** One session as its asker sees it. */
export class OriginSession {
  readonly session: SessionId;
  readonly me: string;
  phase: Phase = 'idle';
  turn = 0;
  current: Route | null = null;
  tokens: number[] = []; // prompt and answer so far
  start = 0; // first position that this answer sent; those before were cached
  reroutes = 0; // of this answer
  ends: Ends | null = null; // embedding and head, where they and sampling stay here (pinned.ts)
  readonly full = new Map<string, FullAt>(); // who has no seat for it, and the place in its route
  readonly patienceS = new Map<string, number>(); // by peer: how long an answer to WHERE may take
  readonly lateness = new Lateness();
  private ask: Ask | null = null;
  private generated = 0;
  private spans: readonly number[] = []; // of the prompt of this answer
  private answer = 0;
  private before = 0;
  private keep = 0;
  private readonly used = new Set<string>(); // peers that may have a slot for this session
  private readonly tails = new Map<number, string>(); // the last stage of each turn of this answer
  private gone: ReadonlySet<string> = new Set();
  private avoid: ReadonlySet<string> = new Set();
  private silent: ReadonlySet<string> = new Set();
  private giveUpAt = 0;
  private patienceAllS = STALL_S;
  private reroutingSince = 0;
  private trouble = '';
  private tokenAt = 0;
  private tokenTurn = 0; // the turn in which the last token came
  private askedAt: number | null = null; // when the stages were asked where they are
  private askAt = 0; // when they are to be asked next
  private readonly heard = new Map<number, Here>();
  private progress: readonly Here[] = [];
  private movedAt = 0;

  constructor(session: SessionId, me: string) {
    this.session = session;
    this.me = me;
  }

  get route(): readonly string[] {
    return this.current?.peers ?? [];
  }

  get without(): Without {
    return { gone: new Set([...this.gone, ...this.silent]), avoid: this.avoid };
  }

  /** When `tick` wants to be called next. */
  get deadline(): number {
    switch (this.phase) {
      case 'prefill':
      case 'decode': {
        if (this.askedAt === null) return Math.min(this.giveUpAt, this.askAt);
        const waiting = this.route.filter((_, stage) => !this.heard.has(stage));
        const longest = Math.max(0, ...waiting.map((peer) => this.patience(peer)));
        return Math.min(this.giveUpAt, this.askedAt + longest);
      }
      case 'rerouting':
        return Math.min(this.giveUpAt, this.askAt);
      case 'idle':
      case 'done':
      case 'failed':
        return Infinity;
      default:
        return this.phase satisfies never;
    }
  }

  /** Opens an answer over `route`. Only tokens beyond the prefix that the stages already hold are sent. */
  begin(now: number, route: Route, ask: Ask): OriginEffect[] {
    if (this.phase !== 'idle' && this.phase !== 'done' && this.phase !== 'failed') {
      throw new Error(`session is ${this.phase}; cancel it before it is asked again`);
    }
    const cached = this.tokens.slice(0, -1); // the last token of an answer was sampled but never run
    this.keep = commonPrefix(cached, ask.prompt);
    const sampled = ask.sampled ?? 0;
    const given = ask.prompt.length - sampled;
    const kept = Math.min(this.keep, given);
    this.spans = extended(cutSpans(this.allSpans(), kept), given - kept, true);
    if (this.spans.length > MAX_SPANS) {
      this.keep = 0;
      this.spans = [given];
    }
    this.before = this.answer;
    this.ask = ask;
    this.generated = sampled;
    this.full.clear();
    this.gone = this.avoid = this.silent = new Set();
    this.reroutes = 0;
    this.answer = this.turn + 1;
    this.tails.clear();
    this.tokens = [...ask.prompt];
    this.start = Math.min(this.keep, ask.prompt.length - 1);
    return this.open(now, route, ask, this.start);
  }

  /**
   * Goes on with an answer that another peer asked for, from the tokens `ids` on. What was heard of the session lets its
   * stages keep what they hold; without that, in a turn above all before, they compute it anew.
   */
  adopt(now: number, route: Route, ask: Ask, ids: readonly number[], heard: Heard | number): OriginEffect[] {
    if (this.phase !== 'idle') {
      throw new Error(`session is ${this.phase}; an answer is adopted in a session of its own`);
    }
    this.ask = ask;
    this.generated = ids.length;
    this.tokens = [...ask.prompt, ...ids];
    if (typeof heard === 'number') {
      this.spans = [ask.prompt.length];
      this.answer = heard;
      this.turn = heard - 1;
    } else {
      this.spans = heard.spans;
      this.answer = heard.answer;
      this.turn = heard.turn + ADOPTED_TURNS - 1;
      this.start = this.tokens.length - 1;
    }
    return this.open(now, route, ask, this.start);
  }

  /** What others are to hear of the answer under way. */
  get underWay(): Heard {
    return { answer: this.answer, turn: this.turn, spans: this.spans };
  }

  /** A token from a tail of this answer. Duplicates, other answers and tokens of other peers change nothing. */
  token(now: number, sender: string, frame: Token): OriginEffect[] {
    if (!this.running()) return [];
    if (sender !== this.tails.get(frame.turn) || frame.position !== this.tokens.length) return [];
    if (this.phase !== 'rerouting') {
      if (this.tokenTurn === this.turn) this.lateness.gap(now - this.tokenAt);
      this.phase = 'decode';
      this.patienceAllS = STALL_S;
      this.giveUpAt = now + STALL_S;
      this.wait(now);
    }
    this.tokenAt = now;
    this.tokenTurn = this.turn;
    this.tokens.push(frame.token);
    this.generated += 1;
    const emit: OriginEffect = { kind: 'emit', token: frame.token, position: frame.position };
    switch (frame.finish) {
      case FINISH.endToken:
        return [emit, ...this.end('end')];
      case FINISH.length:
        return [emit, ...this.end('length')];
      default: {
        // A tail that does not count would go on for ever.
        if (this.ask !== null && this.generated >= this.ask.maxTokens)
          return [emit, ...this.cancel('length')];
        const step = this.stepOf(frame.position, frame.position + 1);
        const own = this.ends !== null && this.phase === 'decode' ? [send(this.route[0] ?? '', step)] : [];
        return [emit, ...own, ...this.shadowsOfFirst().map((peer) => spare(peer, step))];
      }
    }
  }

  /** What follows from a state that the last stage of a turn handed back; null where that is nobody's business. */
  drawing(sender: string, frame: Step): Token | Drawing | null {
    if (this.ask === null || frame.session !== this.session) return null;
    if (sender !== this.tails.get(frame.turn) || frame.stage !== this.route.length) return null;
    return drawingOf(this.ask, this.tokens, this.generated, frame);
  }

  /** A stage could not go on. Goes on elsewhere where another route can help. */
  refused(now: number, sender: string, frame: Refuse): OriginEffect[] {
    if (!this.answering() || frame.turn !== this.turn) return [];
    if (!this.route.includes(sender)) return [];
    const reason = reasonOf(frame.reason);
    if (reason === 'no_slot' && this.current !== null) {
      this.full.set(sender, { plan: this.current.plan, stage: frame.stage });
    }
    const text = frame.message || reason.replaceAll('_', ' ');
    switch (reason) {
      case 'missing_position':
        return this.restart(now, frame.message);
      case 'unknown_plan':
      case 'unknown_session':
        return this.restart(now, frame.message, { soon: true });
      case 'lost_neighbour': {
        const lost = this.route[frame.have] ?? sender;
        const avoid = lost === this.me ? [] : [lost];
        return this.restart(now, frame.message, { avoid, soon: this.route.length === 1 });
      }
      case 'leaving':
        return this.restart(now, `peer ${sender} is leaving`, { gone: [sender] });
      case 'failed':
      case 'not_finite_output':
      case 'no_slot':
        if (this.avoid.has(sender)) return this.fail(text, reason);
        return this.elsewhere(now, text, reason, sender);
      case 'not_finite_input': {
        const culprit = frame.stage > 0 ? this.route[frame.stage - 1] : undefined;
        if (culprit === undefined || this.avoid.has(culprit)) return this.fail(text, reason);
        return this.elsewhere(now, frame.message, reason, culprit);
      }
      case 'context_overflow':
      case 'bad_step':
        return this.fail(text, reason);
      default:
        return reason satisfies never;
    }
  }

  /** The first stage, or one of its shadows, asks for tokens again. */
  feed(_now: number, sender: string, frame: Feed): OriginEffect[] {
    if (frame.turn !== this.turn || frame.stage > 0 || !this.answering()) return [];
    const steps = this.stepsFrom(frame.position, this.tokens.length);
    if (sender === this.route[0]) return steps.map((step) => send(sender, step));
    return this.shadowsOfFirst().includes(sender) ? steps.map((step) => spare(sender, step)) : [];
  }

  /** A stage says how far it has come. */
  here(now: number, sender: string, frame: Here): OriginEffect[] {
    this.silent = without(this.silent, sender);
    if (frame.turn !== this.turn || sender !== this.route[frame.stage]) return [];
    this.heard.set(frame.stage, frame);
    if (this.askedAt === null || this.heard.size < this.route.length) return [];
    return this.allAnswered(now);
  }

  /** Somebody thinks that `peer` is lost: the stages are asked at once. */
  hint(now: number, peer: string): OriginEffect[] {
    if (!this.answering() || !this.route.includes(peer) || this.askedAt !== null) return [];
    return this.where(now);
  }

  /** A peer left or was lost for good: an answer that needs it goes on elsewhere, or fails in time. */
  peerGone(now: number, peer: string, why: string): OriginEffect[] {
    if (this.answering() && this.route.includes(peer)) return this.restart(now, why, { gone: [peer] });
    if (this.running()) this.gone = new Set([...this.gone, peer]);
    return [];
  }

  /** `peer` can be used again. */
  peerBack(peer: string): void {
    this.gone = without(this.gone, peer);
    this.silent = without(this.silent, peer);
  }

  /** A route to go on with: the answer continues from the tokens so far. One that helps nothing is left alone. */
  reroute(now: number, route: Route): OriginEffect[] {
    if (!this.running() || this.ask === null) return [];
    if (route.peers.some((peer) => this.gone.has(peer) || this.silent.has(peer))) return [];
    if (this.phase !== 'rerouting') {
      const same = route.peers.length === this.route.length;
      if (same && route.peers.every((peer, stage) => peer === this.route[stage])) return [];
      this.reroutes += 1;
    }
    return this.open(now, route, this.ask, this.tokens.length - 1);
  }

  /** Whether another peer may soon hold what was lost: then a route is waited for longer. */
  hope(hopeful: boolean): void {
    if (this.phase === 'rerouting') {
      this.giveUpAt = this.reroutingSince + (hopeful ? HOPE_S : REROUTE_S);
    }
  }

  /**
   * Asks when a token is late, does without who is silent; gives up on a route that never came, or a mesh that stands
   * still.
   */
  tick(now: number): OriginEffect[] {
    switch (this.phase) {
      case 'rerouting':
        if (now >= this.giveUpAt) {
          return this.fail(`${this.trouble}; no other peers hold its part right now, ask again soon`);
        }
        if (now < this.askAt) return [];
        this.askAt = now + this.lateness.lateS;
        return [
          ...this.route.flatMap((peer, stage) =>
            this.silent.has(peer) ? [send(peer, this.whereOf(stage))] : [],
          ),
          this.findRoute(),
        ];
      case 'prefill':
      case 'decode':
        if (now >= this.giveUpAt) {
          return this.fail(`no token came for ${this.patienceAllS} s; the mesh may be overloaded, ask again`);
        }
        if (this.askedAt !== null) return this.judge(now, this.askedAt);
        return now >= this.askAt ? this.where(now) : [];
      case 'idle':
      case 'done':
      case 'failed':
        return [];
      default:
        return this.phase satisfies never;
    }
  }

  /** Stops the answer on every stage; their cache is kept for the next question. */
  cancel(why = 'cancelled'): OriginEffect[] {
    return this.running() ? this.end(why) : [];
  }

  /** Frees the session's slots on every stage it used. */
  release(): OriginEffect[] {
    const ended = this.cancel();
    const releases = this.forget([...this.used], { kind: 'RELEASE', session: this.session });
    return [...ended, ...releases];
  }

  // --- turns

  private answering(): boolean {
    return this.phase === 'prefill' || this.phase === 'decode';
  }

  private running(): boolean {
    return this.answering() || this.phase === 'rerouting';
  }

  private open(now: number, route: Route, ask: Ask, start: number): OriginEffect[] {
    const first = route.peers[0];
    const tail = route.peers.at(-1);
    if (first === undefined || tail === undefined) throw new Error('a route of at least one stage expected');
    const effects: OriginEffect[] = [];
    const inside = membersOf(route);
    if (this.current !== null && this.turn >= this.answer) {
      const stop = this.stopping('goes on elsewhere');
      const out = [...membersOf(this.current)].filter((peer) => !inside.has(peer) && !this.gone.has(peer));
      effects.push(...out.sort().map((peer) => send(peer, stop)));
    }
    this.current = route;
    this.turn += 1;
    for (const peer of inside) this.used.add(peer);
    this.tails.set(this.turn, tail);
    this.phase = this.generated === 0 ? 'prefill' : 'decode';
    const count = this.tokens.length;
    this.patienceAllS = STALL_S + Math.floor((count - start) / SLOW_TOKENS_PER_S);
    this.giveUpAt = now + this.patienceAllS;
    this.progress = [];
    this.movedAt = now;
    this.wait(now);
    const told: Open = {
      kind: 'OPEN',
      session: this.session,
      turn: this.turn,
      plan: route.plan,
      route: route.peers,
      stage: 0,
      origin: this.me,
      start,
      promptTokens: count,
      maxTokens: ask.maxTokens - this.generated,
      sampling: samplingToWire(ask.sampling),
      endTokens: ask.endTokens,
      generated: this.generated,
      role: ROLE.serve,
      answer: this.answer,
      before: this.before,
      keep: this.keep,
      spans: this.allSpans(),
      shadowStages: route.shadows.map(({ stage }) => stage),
      shadows: route.shadows.map(({ peer }) => peer),
      history: Int32Array.from(needsHistory(ask.sampling) ? this.tokens : []),
    };
    const opening = this.ends === null ? told : pinned(told);
    const steps = this.stepsFrom(start, count);
    effects.push(send(first, opening), ...steps.map((step) => send(first, step)));
    for (const peer of this.shadowsOfFirst()) {
      effects.push(spare(peer, { ...opening, role: ROLE.shadow }), ...steps.map((step) => spare(peer, step)));
    }
    return effects;
  }

  private allSpans(): number[] {
    return extended(this.spans, this.generated, false);
  }

  private stepsFrom(start: number, count: number): Step[] {
    return stepsOf(start, count, this.allSpans()).map(({ position, stop }) => this.stepOf(position, stop));
  }

  private stepOf(position: number, stop: number): Step {
    const { session, turn } = this;
    const count = stop - position;
    const ids = Int32Array.from(this.tokens.slice(position, stop));
    const tensor = this.ends === null ? tensorOf(ids, [count]) : this.ends.embed(ids);
    const last = stop === this.tokens.length ? 1 : 0;
    return { kind: 'STEP', session, turn, stage: 0, position, count, last, tensor };
  }

  private shadowsOfFirst(): string[] {
    const shadows = this.current?.shadows ?? [];
    return shadows.filter(({ stage }) => stage === 0).map(({ peer }) => peer);
  }

  private stopping(reason: string, keep = this.tokens.length): Frame {
    return { kind: 'CANCEL', session: this.session, turn: this.turn, keep, reason };
  }

  /** Nothing is known of the session any more; `peers` hear `frame`. */
  private forget(peers: readonly string[], frame: Frame): Send[] {
    for (const peer of peers) this.used.delete(peer); // those whose connection was lost hear of it with RELEASE
    this.tokens = [];
    this.spans = [];
    this.generated = 0;
    return [...peers].sort().map((peer) => send(peer, frame));
  }

  private end(why: string): OriginEffect[] {
    const cancel = this.stopping(why);
    const shadows = this.current?.shadows.map(({ peer }) => peer) ?? [];
    const told = [...new Set([...this.route, ...shadows])].filter((peer) => !this.gone.has(peer));
    this.phase = 'done';
    return [...told.map((peer) => send(peer, cancel)), { kind: 'ended', why }];
  }

  // --- trouble

  private patience(peer: string): number {
    return this.patienceS.get(peer) ?? PATIENCE_S;
  }

  /** Nothing is late yet. */
  private wait(now: number): void {
    this.askedAt = null;
    this.heard.clear();
    this.askAt = now + this.lateness.lateS;
  }

  private where(now: number): OriginEffect[] {
    this.askedAt = now;
    this.heard.clear();
    return this.route.map((peer, stage) => send(peer, this.whereOf(stage)));
  }

  private whereOf(stage: number): Frame {
    return { kind: 'WHERE', session: this.session, turn: this.turn, stage };
  }

  private findRoute(soon = false): OriginEffect {
    return { kind: 'findRoute', ...this.without, soon };
  }

  /** Whoever has not answered within its patience is silent. */
  private judge(now: number, askedAt: number): OriginEffect[] {
    const late = new Set(
      this.route.filter((peer, stage) => !this.heard.has(stage) && now >= askedAt + this.patience(peer)),
    );
    if (late.size === 0) return [];
    const fresh = [...late].filter((peer) => !this.silent.has(peer)).sort();
    this.silent = new Set([...this.silent, ...late]);
    this.wait(now);
    this.askAt = now + Math.max(this.lateness.lateS, ...[...late].map((peer) => this.patience(peer)));
    const suspects = fresh.map((peer) => ({ kind: 'suspect', peer, why: 'does not answer' }) as const);
    return [...suspects, this.findRoute()];
  }

  /** Everybody is there: has anything moved since they were asked before? */
  private allAnswered(now: number): OriginEffect[] {
    const seen = this.route.map((_, stage) => this.heard.get(stage)).filter((here) => here !== undefined);
    const before = this.progress;
    let moved =
      before.length !== seen.length ||
      seen.some(
        (here, at) => here.received !== before[at]?.received || here.computed !== before[at].computed,
      );
    const stage = seen.findIndex((here, at) => !isDone(here, seen[at - 1]));
    if (stage >= 0 && !moved) moved = seen[stage]?.steps !== before[stage]?.steps; // busy with others
    this.progress = seen;
    this.wait(now);
    if (moved) {
      this.movedAt = now;
      return [];
    }
    const slow = seen[stage];
    const starved = slow !== undefined && slow.computed >= slow.received;
    const [leastS, gaps] = starved ? [STARVED_S, STARVED_GAPS] : [STUCK_S, STUCK_GAPS];
    const peer = stage >= 0 ? this.route[stage] : undefined;
    const isAlone = peer !== undefined && this.avoid.has(peer); // nobody else can, it may just be slow
    const patience = Math.max(leastS, gaps * this.lateness.usualS);
    if (now - this.movedAt < patience * 2 ** (isAlone ? Math.min(this.reroutes, MAX_DOUBLED) : 0)) return [];
    this.movedAt = now;
    if (peer === undefined || this.avoid.has(peer)) return this.restart(now, 'a stage does not come on');
    this.avoid = new Set([...this.avoid, peer]);
    return [{ kind: 'suspect', peer, why: 'does not come on' }, this.findRoute()];
  }

  private restart(
    now: number,
    why: string,
    { gone = [], avoid = [], soon = false }: { gone?: string[]; avoid?: string[]; soon?: boolean } = {},
  ): OriginEffect[] {
    this.reroutes += 1;
    if (this.reroutes > MAX_REROUTES) {
      return this.fail(`${why}; the route failed ${MAX_REROUTES} times, ask again`);
    }
    this.phase = 'rerouting';
    this.gone = new Set([...this.gone, ...gone]);
    this.avoid = new Set([...this.avoid, ...avoid]);
    this.trouble = why;
    this.reroutingSince = now;
    this.giveUpAt = now + REROUTE_S;
    this.askAt = now + this.lateness.lateS;
    return [this.findRoute(soon)];
  }

  /** A stage failed by itself: another peer may not. */
  private elsewhere(now: number, why: string, reason: Reason, culprit: string): OriginEffect[] {
    const suspect: OriginEffect[] =
      reason === 'no_slot' ? [] : [{ kind: 'suspect', peer: culprit, why: 'failed a step' }];
    return [...suspect, ...this.restart(now, why, { avoid: [culprit] })];
  }

  private fail(text: string, reason: Reason = 'lost_neighbour'): OriginEffect[] {
    const told = [...this.used].filter((peer) => !this.gone.has(peer));
    const stops = this.forget(told, this.stopping(text, 0)); // it may be asked again: RELEASE would be for good
    const broken: Broken = { kind: 'broken', text, reason };
    this.phase = 'failed';
    return [...stops, broken];
  }
}

function send(peer: string, frame: Frame): Send {
  return { kind: 'send', peer, frame };
}

function spare(peer: string, frame: Frame): Spare {
  return { kind: 'spare', peer, frame };
}

function membersOf(route: Route): Set<string> {
  return new Set([...route.peers, ...route.shadows.map(({ peer }) => peer)]);
}

function without(peers: ReadonlySet<string>, peer: string): ReadonlySet<string> {
  return peers.has(peer) ? new Set([...peers].filter((other) => other !== peer)) : peers;
}
