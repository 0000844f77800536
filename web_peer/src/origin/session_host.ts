/*
 * The sessions that this peer asks: their timers, their routes, and what they find out about other peers (twin of
 * peer/origin/session_host.py). Edge around origin.ts, which decides.
 */

import type { ModelView } from '../replication/decoder_view';
import { Breakers } from '../transport/circuit_breakers';
import type { PeerLinks } from '../transport/peer_links';
import { PeerError } from '../errors';
import { PATIENCE_S } from '../session/stage_probing';
import type { Broken, Emit, Ended, OriginEffect } from '../session/effects';
import type { Feed, Here, Open, Refuse, SessionId, Step, Token } from '../wire/generated/frames';
import { HandedBack } from '../session/returned_states';
import { isAway, serving } from '../state/mesh_state';
import type { PlanRecord } from '../state/generated/commands';
import type { Ends } from '../session/pinned_ends';
import { choose, placed, type Route, standbyExpected } from '../session/routes';
import type { OriginSession, Without } from '../session/origin';
import { nowS } from '../transport/ticker';
import { SUSPECT } from '../wire/generated/requests';

const APART_S = 0.15; // between answers that begin to move: what each costs is felt by all
const SOONEST_S = 0.005; // between two looks at one session
// Without a route for so long, who is to hold what was lost is asked whether it does: a leader that lost its quorum can
// write no more into the log who holds what.
const STRANDED_S = 5;
const ONE_INCIDENT_S = 1; // what several sessions find out about one peer within this is one failure
const PATIENCE_TIMES = 3; // of the time that an answer takes at most, as the heartbeat knows it
const PATIENCE_FLOOR_S = 0.08; // a process that competes for its processor answers no sooner
const PATIENCE_CEILING_S = 1;
const REMEMBERED_PLANS = 4; // as stages do: while a new plan comes about, an older one may still have all holders

export type Outcome = Emit | Ended | Broken;

/** A session of this peer and who listens to it. */
interface Asking {
  readonly core: OriginSession;
  readonly listener: (outcome: Outcome) => void;
  followed: number; // the newest plan that was looked at: whether the answer moves to it
  timer: { readonly handle: ReturnType<typeof setTimeout>; readonly due: number } | null;
}

/** Who is told how answers go. */
export interface SessionListener {
  opened(frame: Open): void; // a turn of an answer begins
  emitted(session: SessionId, position: number): void; // a token came, for that position
  ended(session: SessionId): void; // an answer is over
  returned(frame: Step): void; // a state came from which this peer itself draws a token
}

const NOBODY: Without = { gone: new Set(), avoid: new Set() };

type Links = Pick<
  PeerLinks,
  'me' | 'ask' | 'connection' | 'dial' | 'isConnected' | 'prepare' | 'sendOrLose' | 'spare' | 'speaks'
>;
type View = Pick<ModelView, 'askLeader' | 'hopeful' | 'nameOf' | 'state' | 'subscribe' | 'until'>;

/** All sessions that this peer asks. They keep to the mesh's protection settings. */
export class SessionHost {
  readonly me: string;
  readonly links: Links;
  readonly view: View;
  readonly breakers = new Breakers(); // of peers that sessions found silent or lost
  private readonly all = new Map<SessionId, Asking>();
  private readonly plans = new Map<number, PlanRecord>();
  private readonly states: HandedBack;
  private readonly listeners = new Set<SessionListener>();
  private readonly suspects = new Map<string, number>(); // when, by peer
  private known: ReadonlySet<string> = new Set(); // members when the state was looked at last

  constructor(links: Links, view: View) {
    this.me = links.me;
    this.links = links;
    this.view = view;
    this.states = new HandedBack((frame) => {
      for (const listener of [...this.listeners]) listener.returned(frame);
    });
    view.subscribe(() => this.stateChanged());
  }

  /** Tells `listener` how answers go, until the result is called. */
  subscribe(listener: SessionListener): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Takes a session in. */
  attach(core: OriginSession, listener: (outcome: Outcome) => void): void {
    this.all.set(core.session, { core, listener, followed: 0, timer: null });
  }

  /** Lets a session go; its slots are freed on every stage, and its listener hears of the end. */
  detach(session: SessionId): void {
    const asking = this.all.get(session);
    if (asking === undefined) return;
    this.perform(session, asking.core.release());
    disarm(asking);
    this.all.delete(session);
  }

  /** How many sessions are asked here. */
  get size(): number {
    return this.all.size;
  }

  /** Whether `session` was taken in and not let go. */
  attached(session: SessionId): boolean {
    return this.all.has(session);
  }

  /** The ends of a session that keeps them here. */
  ends(session: SessionId): Ends | null {
    return this.all.get(session)?.core.ends ?? null;
  }

  /** Whether rows stand in the place of some tokens of a session. */
  hasRows(session: SessionId): boolean {
    return (this.all.get(session)?.core.rows.length ?? 0) > 0;
  }

  /** All tokens of a session so far; none of one that is not asked here. */
  tokens(session: SessionId): readonly number[] {
    return this.all.get(session)?.core.tokens ?? [];
  }

  /**
   * The best route now, if there is one: over the newest plan, else over one that it replaced. `loading`: also over
   * peers that are to hold a stage which nobody holds by the log.
   */
  route(without: Without = NOBODY, loading = false): Route | null {
    const { state } = this.view;
    if (state.plan === null || state.model === null) return null;
    const older = [...this.plans.values()].sort((a, b) => b.version - a.version);
    for (const plan of [state.plan, ...older]) {
      const route = this.over(plan, without, loading);
      if (route !== null) return route;
    }
    return null;
  }

  /** Does what a session decided. */
  perform(session: SessionId, effects: readonly OriginEffect[]): void {
    const asking = this.all.get(session);
    for (const effect of effects) {
      switch (effect.kind) {
        case 'send':
          if (effect.frame.kind === 'OPEN') this.tellOpened(effect.frame);
          this.links.sendOrLose(effect.peer, effect.frame);
          break;
        case 'spare':
          this.links.spare(effect.peer, effect.frame);
          break;
        case 'emit':
        case 'ended':
        case 'broken':
          if (asking !== undefined) this.told(asking, effect);
          break;
        case 'findRoute':
          if (asking !== undefined && !effect.soon) this.find(asking);
          break;
        case 'suspect':
          this.suspect(effect.peer);
          break;
        default:
          effect satisfies never;
      }
    }
    if (asking !== undefined) this.arm(asking);
  }

  /** A frame that concerns a session of this peer. */
  frame(now: number, peer: string, frame: Token | Refuse | Here | Feed): void {
    const core = this.all.get(frame.session)?.core;
    if (core === undefined) {
      this.secondFrame(now, peer, frame);
      return;
    }
    switch (frame.kind) {
      case 'TOKEN':
        this.perform(frame.session, core.token(now, peer, frame));
        break;
      case 'REFUSE':
        this.perform(frame.session, core.refused(now, peer, frame));
        break;
      case 'HERE':
        this.perform(frame.session, core.here(now, peer, frame));
        break;
      case 'FEED':
        this.perform(frame.session, core.feed(now, peer, frame));
        break;
      default:
        frame satisfies never;
    }
  }

  /** A last stage hands back the state from which an asker that keeps its ends draws the next token. */
  handedBack(peer: string, frame: Step): void {
    const core = (this.all.get(frame.session) ?? this.movingTo(frame.session))?.core;
    if (core !== undefined) {
      this.states.take(core, peer, frame, (answer) => this.frame(nowS(), peer, answer));
    }
  }

  /** A session found `peer` silent or stuck: other sessions ask it, and the coordinator hears of it. */
  suspect(peer: string): void {
    const now = nowS();
    if (now - (this.suspects.get(peer) ?? -ONE_INCIDENT_S) < ONE_INCIDENT_S) return;
    this.suspects.set(peer, now);
    this.breakers.failed(peer, Math.floor(now * 1000));
    queueMicrotask(() => this.hint(peer));
    // Kept while nobody leads. A leader that is suspected itself cannot be told.
    this.view.askLeader(SUSPECT, { peer }).catch((error: unknown) => {
      if (!(error instanceof PeerError)) throw error; // nobody led for long
    });
  }

  /** `peer` may be lost: answers that need it ask at once. */
  hint(peer: string): void {
    for (const { core } of [...this.all.values()]) {
      this.learnPatience(core);
      this.perform(core.session, core.hint(nowS(), peer));
    }
  }

  /** The plan of that number, if answers of this peer may go over it. */
  plan(version: number): PlanRecord | null {
    const { plan } = this.view.state;
    return plan?.version === version ? plan : (this.plans.get(version) ?? null);
  }

  /** Ends every session, so that stages free its slots at once; whoever waits for an answer hears `text`. */
  close(text: string): void {
    for (const asking of [...this.all.values()]) {
      for (const effect of asking.core.release()) {
        if (effect.kind === 'send') this.links.sendOrLose(effect.peer, effect.frame);
        else if (effect.kind === 'ended') {
          asking.listener({ kind: 'broken', text, reason: 'leaving' });
        }
      }
      disarm(asking);
    }
    this.all.clear();
  }

  // --- what links and the mesh tell

  /** The connection to `peer` is gone. */
  gone(peer: string, reason: string, polite: boolean): void {
    const why = `${this.view.nameOf(peer)} ${polite ? 'left' : 'was lost'} (${reason})`;
    const cores = [...this.all.values()].map(({ core }) => core);
    const needed = cores.some((core) => isRunning(core) && core.route.includes(peer));
    if (needed) this.breakers.failed(peer, nowMs());
    for (const core of cores) this.perform(core.session, core.peerGone(nowS(), peer, why));
    // Only the connection may be lost.
    if (needed && !polite && this.view.state.members.has(peer)) this.links.prepare(peer);
  }

  /** There is a connection to `peer` again. */
  back(peer: string): void {
    for (const asking of [...this.all.values()]) {
      asking.core.peerBack(peer);
      if (asking.core.phase === 'rerouting') {
        this.find(asking);
        this.arm(asking);
      }
    }
  }

  /** The mesh changed: peers may have left, and there may be another route. */
  private stateChanged(): void {
    const { members, plan } = this.view.state;
    if (plan === null) this.plans.clear();
    else this.plans.set(plan.version, plan);
    const versions = [...this.plans.keys()].sort((a, b) => a - b);
    for (const version of versions.slice(0, -REMEMBERED_PLANS)) this.plans.delete(version);
    const fresh = [...members.keys()].filter((peer) => !this.known.has(peer)); // some were lost, and started anew
    this.known = new Set(members.keys());
    let laterS = 0;
    for (const asking of [...this.all.values()]) {
      const { core } = asking;
      const lacked = lacks(core);
      for (const peer of fresh) core.peerBack(peer);
      if (isRunning(core)) {
        if (this.follow(asking, nowS() + laterS)) laterS += APART_S;
        for (const peer of core.route) {
          const member = members.get(peer);
          if (member !== undefined && !isAway(member)) continue;
          const why = `${this.view.nameOf(peer)} left the mesh`;
          this.perform(core.session, core.peerGone(nowS(), peer, why));
        }
      }
      if (lacked || lacks(core)) {
        this.find(asking);
        this.arm(asking);
      }
    }
  }

  // --- inner moves

  /**
   * Has an answer move to the plan that serves now, unless it goes over the same units of the same peers; whether it
   * does.
   */
  private follow(asking: Asking, now: number): boolean {
    const { core } = asking;
    const plan = serving(this.view.state);
    if (plan === null || core.current === null) return false;
    if (plan.version <= Math.max(asking.followed, core.current.plan)) return false;
    const route = this.over(plan, core.without);
    if (route === null) return false; // looked at again with the next change
    asking.followed = plan.version;
    const isSame = placed(this.plans.get(core.current.plan), core.route) === placed(plan, route.peers);
    this.perform(core.session, core.move(now, isSame ? null : route));
    return !isSame;
  }

  private over(plan: PlanRecord, { gone, avoid }: Without, loading = false): Route | null {
    const now = nowMs();
    const order = (candidates: readonly string[]): readonly string[] => this.breakers.order(candidates, now);
    const { strategy, shadow } = this.view.state.protection;
    const standbys = strategy !== 'simple' && strategy !== 'coordinated';
    const shadows = shadow !== 'off';
    return choose(this.view.state, plan, { gone, avoid, order, standbys, shadows, loading });
  }

  /** A frame of a session that an answer here moves to. */
  private secondFrame(now: number, peer: string, frame: Token | Refuse | Here | Feed): void {
    const asking = this.movingTo(frame.session);
    if (asking === undefined) return;
    const before = asking.core.session;
    this.performAs(before, asking, asking.core.secondFrame(now, peer, frame));
  }

  private movingTo(session: SessionId): Asking | undefined {
    return [...this.all.values()].find(({ core }) => core.second === session);
  }

  /** Does what a session decided that may have another id since: its answer has moved. */
  private performAs(before: SessionId, asking: Asking, effects: readonly OriginEffect[]): void {
    const { session } = asking.core;
    if (session !== before && this.all.get(before) === asking) {
      this.all.delete(before);
      this.all.set(session, asking);
    }
    this.perform(session, effects);
  }

  private told(asking: Asking, outcome: Outcome): void {
    const { session } = asking.core;
    for (const listener of [...this.listeners]) {
      if (outcome.kind === 'emit') listener.emitted(session, outcome.position);
      else listener.ended(session);
    }
    if (outcome.kind === 'ended') {
      for (const peer of asking.core.route) this.breakers.succeeded(peer, nowMs());
    }
    asking.listener(outcome);
  }

  private tellOpened(frame: Open): void {
    for (const listener of [...this.listeners]) listener.opened(frame);
  }

  private find(asking: Asking): void {
    const { core } = asking;
    if (!isRunning(core)) return;
    const isStranded = core.strandedS(nowS()) >= STRANDED_S;
    const route = this.route(core.without) ?? (isStranded ? this.route(core.without, true) : null);
    if (route === null) {
      const { plan } = this.view.state;
      core.hope(this.view.hopeful(plan !== null && standbyExpected(this.view.state, plan)));
      return;
    }
    for (const peer of route.peers) this.breakers.chosen(peer, nowMs());
    this.performAs(core.session, asking, core.reroute(nowS(), route));
  }

  private learnPatience(core: OriginSession): void {
    for (const peer of core.route) core.patienceS.set(peer, this.patienceS(peer));
  }

  /** How long `peer` may take to say where it is. */
  private patienceS(peer: string): number {
    const timeoutS = peer === this.me ? null : (this.links.connection(peer)?.timeoutS ?? null);
    if (timeoutS === null) return PATIENCE_S;
    return Math.min(Math.max(timeoutS * PATIENCE_TIMES, PATIENCE_FLOOR_S), PATIENCE_CEILING_S);
  }

  private arm(asking: Asking): void {
    const due = asking.core.deadline;
    if (due === Infinity) {
      disarm(asking);
      return;
    }
    if (asking.timer !== null && asking.timer.due <= due) return; // it looks again when it fires
    disarm(asking);
    const waitS = Math.max(due - nowS(), SOONEST_S);
    asking.timer = { handle: setTimeout(() => this.fire(asking), waitS * 1000), due };
  }

  private fire(asking: Asking): void {
    asking.timer = null;
    const { core } = asking;
    if (nowS() >= core.deadline) {
      this.learnPatience(core);
      this.perform(core.session, core.tick(nowS()));
    }
    if (this.all.get(core.session) === asking) this.arm(asking);
  }
}

function isRunning({ phase }: OriginSession): boolean {
  return phase === 'prefill' || phase === 'decode' || phase === 'rerouting';
}

function disarm(asking: Asking): void {
  if (asking.timer !== null) clearTimeout(asking.timer.handle);
  asking.timer = null;
}

function nowMs(): number {
  return Math.floor(nowS() * 1000);
}

/** Whether there are peers that this session does without. */
function lacks({ without: { gone, avoid } }: OriginSession): boolean {
  return gone.size + avoid.size > 0;
}
