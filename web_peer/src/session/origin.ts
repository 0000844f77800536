/*
 * The asker's side of one generation: which frames to send, which tokens to show, whom to do without, when to give up
 * (twin of peer/session/origin.py).
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

import type { FullAt } from './admission_queue';
import { type Ask, type Heard, type Phase, type Without } from './ask';
import { type Broken, type OriginEffect, type Reason, reasonOf, type Send, send, spare } from './effects';
import {
  type Feed,
  FINISH,
  type Frame,
  type Here,
  type Open,
  type Refuse,
  type SessionId,
  type Step,
  type Token,
} from '../wire/generated/frames';
import { MAX_SPANS } from '../limits';
import { Moves, warming, type Move } from './migration';
import { type Drawing, drawingOf, type Ends } from './pinned_ends';
import { membersOf, type Route, samePeers } from './routes';
import { alikeUpTo, commonPrefix, cutSpans, extended, type GivenRows } from './position_spans';
import { allSpans, openingOf, type Said, sent, stepBetween, stepsBetween } from './turn_opening';
import { Whereabouts } from './stage_probing';

export { type Ask, type Heard, type Phase, roomFor, type Without } from './ask';

export const REROUTE_S = 1.5; // how long to wait for a route when nobody could take over: an asker must hear of it
export const HOPE_S = 30; // and when another peer is loading what was lost
export const STALL_S = 60; // no token for this long ends the session with an error
const SLOW_TOKENS_PER_S = 10; // of a prompt: the slowest mesh that is waited for beyond that
export const UNREADY_S = 1; // a stage that does not serve its place yet is asked again at the latest after this
export const MAX_REROUTES = 16; // per answer; bounds the work a flapping mesh can cause
const ADOPTED_TURNS = 64; // above the last turn that was heard of: an answer has no more routes than that

/** One session as its asker sees it. */
export class OriginSession implements Said {
  session: SessionId; // another one once an answer has moved
  readonly me: string;
  phase: Phase = 'idle';
  turn = 0;
  current: Route | null = null;
  tokens: number[] = []; // prompt and answer so far
  rows: readonly GivenRows[] = []; // of the prompt, in place of token ids
  start = 0; // first position that this answer sent; those before were cached
  reroutes = 0; // of this answer
  ends: Ends | null = null; // embedding and head, where they and sampling stay here (pinned_ends.ts)
  readonly full = new Map<string, FullAt>(); // who has no seat for it, and the place in its route
  private ask: Ask | null = null;
  generated = 0; // of `tokens`, in this answer
  spans: readonly number[] = []; // of the prompt of this answer
  answer = 0;
  before = 0;
  keep = 0;
  private used = new Set<string>(); // peers that may have a slot for this session
  private tails = new Map<number, string>(); // the last stage of each turn of this answer
  private ways = new Map<number, Route>(); // and its route
  cameOver: Route | null = null; // the route of the last token that came
  private gone: ReadonlySet<string> = new Set();
  private avoid: ReadonlySet<string> = new Set();
  private silent: ReadonlySet<string> = new Set();
  private giveUpAt = 0;
  private patienceAllS = STALL_S;
  private reroutingSince = 0;
  private unready = 0; // refusals "not yet" in a row
  private unreadySince = 0; // and when the first of them came
  private trouble = '';
  private tokenAt = 0;
  private tokenTurn = 0; // the turn in which the last token came
  private readonly stages = new Whereabouts();
  private readonly moves: Moves;

  constructor(session: SessionId, me: string) {
    this.session = session;
    this.me = me;
    this.moves = new Moves(session);
  }

  get route(): readonly string[] {
    return this.current?.peers ?? [];
  }

  /** By peer: how long an answer to WHERE may take. */
  get patienceS(): Map<string, number> {
    return this.stages.patienceS;
  }

  get without(): Without {
    return { gone: new Set([...this.gone, ...this.silent]), avoid: this.avoid };
  }

  /** When `tick` wants to be called next. */
  get deadline(): number {
    return Math.min(this.due, this.moves.now?.due ?? Infinity);
  }

  private get due(): number {
    switch (this.phase) {
      case 'prefill':
      case 'decode':
        return Math.min(this.giveUpAt, this.stages.due(this.route));
      case 'rerouting':
        return Math.min(this.giveUpAt, this.stages.askAt);
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
    const rows = ask.rows ?? [];
    this.keep = alikeUpTo(commonPrefix(cached, ask.prompt), this.rows, rows);
    const sampled = ask.sampled ?? 0;
    const given = ask.prompt.length - sampled;
    const kept = Math.min(this.keep, given);
    this.spans = extended(cutSpans(allSpans(this), kept), given - kept, true);
    if (this.spans.length > MAX_SPANS) {
      this.keep = 0;
      this.spans = [given];
    }
    this.before = this.answer;
    this.ask = ask;
    this.generated = sampled;
    this.full.clear();
    this.gone = this.avoid = this.silent = new Set();
    this.reroutes = this.unready = 0;
    this.answer = this.turn + 1;
    this.tails.clear();
    this.ways.clear();
    this.moves.anew();
    this.tokens = [...ask.prompt];
    this.rows = rows;
    this.start = Math.min(this.keep, ask.prompt.length - 1);
    return this.open(now, route, ask, this.start);
  }

  /**
   * Goes on with an answer that another peer asked for, from the tokens `ids` on. What was heard of the session lets
   * its stages keep what they hold; without that, in a turn above all before, they compute it anew.
   */
  adopt(now: number, route: Route, ask: Ask, ids: readonly number[], heard: Heard | number): OriginEffect[] {
    if (this.phase !== 'idle') {
      throw new Error(`session is ${this.phase}; an answer is adopted in a session of its own`);
    }
    this.ask = ask;
    this.generated = ids.length;
    this.tokens = [...ask.prompt, ...ids];
    this.rows = ask.rows ?? [];
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
    this.unready = 0;
    if (this.phase !== 'rerouting') {
      if (this.tokenTurn === this.turn) this.stages.lateness.gap(now - this.tokenAt);
      this.phase = 'decode';
      this.patienceAllS = STALL_S;
      this.giveUpAt = now + STALL_S;
      this.stages.wait(now);
    }
    this.tokenAt = now;
    this.tokenTurn = this.turn;
    this.cameOver = this.ways.get(frame.turn) ?? null;
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
        const step = stepBetween(this, frame.position, frame.position + 1);
        const own = this.ends !== null && this.phase === 'decode' ? [send(this.route[0] ?? '', step)] : [];
        const shadows = this.shadowsOfFirst().map((peer) => spare(peer, step));
        return [emit, ...own, ...shadows, ...this.moveOn(now)];
      }
    }
  }

  /** What follows from a state that the last stage of a turn handed back; null where that is nobody's business. */
  drawing(sender: string, frame: Step): Token | Drawing | null {
    const { session, tails, route: peers } = this;
    const way = [{ session, tails, peers }, this.moves.way].find((each) => each?.session === frame.session);
    if (this.ask === null || sender !== way?.tails.get(frame.turn)) return null;
    return frame.stage === way.peers.length ? drawingOf(this.ask, this.tokens, this.generated, frame) : null;
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
        return this.notYet(now, frame.message);
      case 'lost_neighbour': {
        const lost = this.route[frame.have] ?? sender;
        const avoid = lost === this.me ? [] : [lost];
        const afterS = this.route.length === 1 ? this.soonS() : 0;
        return this.restart(now, frame.message, { avoid, afterS });
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
    return this.stages.here(frame, this.route.length) ? this.allAnswered(now) : [];
  }

  /** Somebody thinks that `peer` is lost: the stages are asked at once. */
  hint(now: number, peer: string): OriginEffect[] {
    if (!this.answering() || !this.route.includes(peer) || this.stages.askedAt !== null) return [];
    return this.where(now);
  }

  /** A peer left or was lost for good: an answer that needs it goes on elsewhere, or fails in time. */
  peerGone(now: number, peer: string, why: string): OriginEffect[] {
    const stays = this.moves.now?.peers.has(peer) === true ? this.moves.stay(this.gone, now) : [];
    if (this.answering() && this.route.includes(peer)) {
      return [...stays, ...this.restart(now, why, { gone: [peer] })];
    }
    if (this.running()) this.gone = new Set([...this.gone, peer]);
    return stays;
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
      if (samePeers(route.peers, this.route)) return [];
      this.reroutes += 1;
    }
    const move = this.moves.now;
    const goal = move?.route ?? this.moves.target;
    const isThere =
      move !== null && move.route.plan === route.plan && samePeers(move.route.peers, route.peers);
    const before: OriginEffect[] = [];
    if (isThere)
      before.push(...this.taken(now, move)); // what is computed there already is a start
    else if (goal !== null && route.plan >= goal.plan) before.push(...this.move(now, null));
    return [...before, ...this.open(now, route, this.ask, this.tokens.length - 1)];
  }

  // --- moving to the route of another plan (migration.ts)

  /** Another plan serves: from its next token on the answer moves to `route`. null: it stays where it is. */
  move(now: number, route: Route | null): OriginEffect[] {
    return this.moves.to(now, route, this.gone);
  }

  /** The id of the session that computes on the next route, while there is one. */
  get second(): SessionId | null {
    return this.moves.now?.session ?? null;
  }

  /** A frame of the second session. When the answer is its, this session has its id. */
  secondFrame(now: number, sender: string, frame: Token | Refuse | Here | Feed): OriginEffect[] {
    const move = this.moves.now;
    if (move === null || this.ask === null || frame.session !== move.session) return [];
    if (frame.kind === 'FEED') {
      if (frame.stage > 0 || frame.turn !== move.turn || sender !== move.route.peers[0]) return [];
      const stop = this.tokens.length - (move.phase === 'warming' ? 1 : 0);
      return move.sends(this.stepsFrom(frame.position, stop));
    }
    const verdict = move.heard(now, sender, frame, this.tokens.length);
    switch (verdict) {
      case 'nothing':
        return [];
      case 'race':
        return this.race(now, move);
      case 'take':
        return frame.kind === 'TOKEN' ? this.take(now, move, sender, frame) : [];
      case 'jump':
        return [...this.taken(now, move), ...this.open(now, move.route, this.ask, this.tokens.length - 1)];
      case 'give up':
        return this.moves.stay(this.gone, now);
      default:
        return verdict satisfies never;
    }
  }

  private moveOn(now: number): OriginEffect[] {
    if (this.ask === null) return [];
    const known = this.tokens.length;
    const under = this.moves.now;
    if (under?.phase === 'warming') return under.sends(this.stepsFrom(known - 2, known - 1));
    if (under !== null || this.phase !== 'decode') return [];
    const left = this.ask.maxTokens - this.generated;
    const move = this.moves.begin(now, this.turn, left);
    if (move === null) return [];
    const spans = extended(allSpans(this), left, false);
    const opening = warming(move, this.opening(move.route, this.ask, 0), this.current, left, spans);
    return [send(opening.route[0] ?? '', opening), ...move.sends(this.stepsFrom(0, known - 1))];
  }

  private race(now: number, move: Move): OriginEffect[] {
    if (this.ask === null) return [];
    move.race(now, Math.max(this.turn, move.turn) + 1);
    const start = this.tokens.length - 1;
    const opening = move.owned(this.opening(move.route, this.ask, start));
    return sent(opening, move.own(this.stepsFrom(start, start + 1)));
  }

  private take(now: number, move: Move, sender: string, frame: Token): OriginEffect[] {
    const taken = this.taken(now, move);
    const { session, turn, ends } = this;
    const fed = { kind: 'FEED', session, turn, stage: 0, position: frame.position } as const;
    if (ends !== null) taken.push(...this.feed(now, this.route[0] ?? '', fed));
    return [...taken, ...this.token(now, sender, frame)];
  }

  private taken(now: number, move: Move): OriginEffect[] {
    const released = [...this.used].filter((peer) => !this.gone.has(peer)).sort();
    const effects = released.map((peer) => send(peer, { kind: 'RELEASE', session: this.session }));
    this.moves.taken();
    this.session = move.session;
    this.turn = Math.max(this.turn, move.turn);
    this.current = move.route;
    this.tails = new Map(move.tails);
    this.ways = new Map([...move.tails.keys()].map((turn) => [turn, move.route]));
    this.used = new Set(move.peers);
    this.phase = 'decode';
    this.giveUpAt = now + STALL_S;
    this.stages.begin(now);
    return effects;
  }

  /** For how many seconds no route was there; 0 while there is one. */
  strandedS(now: number): number {
    return this.phase === 'rerouting' ? Math.max(0, now - this.reroutingSince) : 0;
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
    return [...this.moves.look(now, this.gone), ...this.lookAround(now)];
  }

  private lookAround(now: number): OriginEffect[] {
    switch (this.phase) {
      case 'rerouting':
        if (now >= this.giveUpAt) {
          return this.fail(`${this.trouble}; no other peers hold its part right now, ask again soon`);
        }
        if (now < this.stages.askAt) return [];
        this.stages.askAt = now + this.stages.lateness.lateS;
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
        if (this.stages.askedAt !== null) return this.judge(now, this.stages.askedAt);
        return now >= this.stages.askAt ? this.where(now) : [];
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
    const tail = route.peers.at(-1);
    if (tail === undefined) throw new Error('a route of at least one stage expected');
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
    this.ways.set(this.turn, route);
    this.phase = this.generated === 0 ? 'prefill' : 'decode';
    const count = this.tokens.length;
    this.patienceAllS = STALL_S + Math.floor((count - start) / SLOW_TOKENS_PER_S);
    this.giveUpAt = now + this.patienceAllS;
    this.stages.begin(now);
    effects.push(...sent(this.opening(route, ask, start), this.stepsFrom(start, count)));
    return effects;
  }

  private opening(route: Route, ask: Ask, start: number): Open {
    return openingOf(this, this.me, route, ask, start);
  }

  private stepsFrom(start: number, stop: number): Step[] {
    return stepsBetween(this, start, stop);
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
    this.rows = [];
    this.spans = [];
    this.generated = 0;
    return [...peers].sort().map((peer) => send(peer, frame));
  }

  private end(why: string): OriginEffect[] {
    const cancel = this.stopping(why);
    const shadows = this.current?.shadows.map(({ peer }) => peer) ?? [];
    const told = [...new Set([...this.route, ...shadows])].filter((peer) => !this.gone.has(peer));
    this.phase = 'done';
    const stays = this.move(0, null);
    return [...stays, ...told.map((peer) => send(peer, cancel)), { kind: 'ended', why }];
  }

  // --- trouble

  private where(now: number): OriginEffect[] {
    this.stages.ask(now);
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
    const late = this.stages.silent(now, askedAt, this.route);
    if (late.size === 0) return [];
    const fresh = [...late].filter((peer) => !this.silent.has(peer)).sort();
    this.silent = new Set([...this.silent, ...late]);
    const suspects = fresh.map((peer) => ({ kind: 'suspect', peer, why: 'does not answer' }) as const);
    return [...suspects, this.findRoute()];
  }

  /** Everybody is there: has anything moved since they were asked before? */
  private allAnswered(now: number): OriginEffect[] {
    const tries = (peer: string): number => (this.avoid.has(peer) ? this.reroutes : 0);
    const stage = this.stages.stuck(now, this.route, tries);
    if (stage === null) return [];
    const peer = this.route[stage];
    if (peer === undefined || this.avoid.has(peer)) return this.restart(now, 'a stage does not come on');
    this.avoid = new Set([...this.avoid, peer]);
    return [{ kind: 'suspect', peer, why: 'does not come on' }, this.findRoute()];
  }

  /** Looks for another route, after so long; `again`: the one before it counts already. */
  private restart(
    now: number,
    why: string,
    {
      gone = [],
      avoid = [],
      afterS = 0,
      again = false,
    }: { gone?: string[]; avoid?: string[]; afterS?: number; again?: boolean } = {},
  ): OriginEffect[] {
    if (!again) this.reroutes += 1;
    if (this.reroutes > MAX_REROUTES) {
      return this.fail(`${why}; the route failed ${MAX_REROUTES} times, ask again`);
    }
    this.phase = 'rerouting';
    this.gone = new Set([...this.gone, ...gone]);
    this.avoid = new Set([...this.avoid, ...avoid]);
    this.trouble = why;
    this.reroutingSince = now + afterS;
    this.giveUpAt = this.reroutingSince + REROUTE_S;
    this.stages.askAt = now + (afterS || this.stages.lateness.lateS);
    return [this.findRoute(afterS > 0)];
  }

  /**
   * A stage does not serve its place, as while it loads: it is asked again, later each time, for HOPE_S. However often
   * that is, it counts as one route that failed.
   */
  private notYet(now: number, why: string): OriginEffect[] {
    if (this.unready === 0) {
      this.unreadySince = now;
    } else if (now >= this.unreadySince + HOPE_S) {
      return this.fail(`${why}, for ${HOPE_S} s; ask again soon`);
    }
    this.unready += 1;
    return this.restart(now, why, { afterS: this.soonS(), again: this.unready > 1 });
  }

  /** After how long a stage is asked again that could not take its place: twice as long after each refusal. */
  private soonS(): number {
    return Math.min(this.stages.lateness.lateS * 2 ** Math.max(this.unready - 1, 0), UNREADY_S);
  }

  /** A stage failed by itself: another peer may not. */
  private elsewhere(now: number, why: string, reason: Reason, culprit: string): OriginEffect[] {
    const suspect: OriginEffect[] =
      reason === 'no_slot' ? [] : [{ kind: 'suspect', peer: culprit, why: 'failed a step' }];
    return [...suspect, ...this.restart(now, why, { avoid: [culprit] })];
  }

  private fail(text: string, reason: Reason = 'lost_neighbour'): OriginEffect[] {
    const stays = this.move(0, null);
    const told = [...this.used].filter((peer) => !this.gone.has(peer));
    const stops = this.forget(told, this.stopping(text, 0)); // it may be asked again: RELEASE would be for good
    const broken: Broken = { kind: 'broken', text, reason };
    this.phase = 'failed';
    return [...stays, ...stops, broken];
  }
}

function without(peers: ReadonlySet<string>, peer: string): ReadonlySet<string> {
  return peers.has(peer) ? new Set([...peers].filter((other) => other !== peer)) : peers;
}
