/*
 * One member of the mesh: takes frames and results to the part they concern, and performs what the cores decide (twin
 * of peer/member/frame_router.py). Edge; models run in the workers of unit_host.ts.
 */

import { Askings } from '../origin/session_host';
import { Breakers } from '../transport/circuit_breakers';
import { bundled, framesOf } from '../wire/bundles';
import type { Body } from '../transport/rpc';
import { PeerLinks } from '../transport/peer_links';
import type { Message } from '../consensus/messages';
import { encode as encodeMessage } from '../consensus/message_codec';
import type { SendSignal } from '../transport/dialer';
import type { Engine } from '../transport/connection';
import type { NotRan, Ran, StageEffect } from '../session/effects';
import { BadCommand, PeerError, WrongChannel } from '../errors';
import type { Frame, Hello } from '../wire/frame_codec';
import type { Base64 } from '../signaling/keys';
import { Redial, wanted } from '../transport/redial';
import { LeaderLine } from '../replication/leader_client';
import { Leading } from '../coordination/leadership';
import { askerOf } from '../state/conversations';
import { type Command, EMPTY_STATE, encodeCommand, type MeshState } from '../state/mesh_state';
import type { Pieces } from '../model/piece_exchange';
import { StageCore } from '../session/stage';
import type { Replica } from '../replication/replica';
import type { Serving } from '../stage/unit_host';
import type { Journal } from '../storage/journal';
import { Queue } from '../stage/seat_waiting';
import { PATIENCE_S } from '../session/stage_probing';
import { nowS } from '../transport/ticker';

const TICK_MS = 250; // leases of stages are looked at this often
const ONE_INCIDENT_S = 1; // what several sessions find out about one peer within this is one failure
const PATIENCE_TIMES = 3; // of the time that an answer takes at most, as the heartbeat knows it
const PATIENCE_FLOOR_S = 0.08; // a process that competes for its processor answers no sooner
const PATIENCE_CEILING_S = 1;
const PATIENT_S = 2; // most questions are over by then

export class Node {
  readonly me: string;
  state: MeshState = EMPTY_STATE;
  readonly core: StageCore;
  serving: Serving | null = null; // null: this peer only asks
  pieces: Pieces | null = null; // null: the model is not known yet
  replica: Replica | null = null; // null: this peer is in no mesh yet
  patient = false; // a peer that only asks connects to voters when it has been here for a while
  journal: Journal | null = null; // null: nothing is computed here
  private notedTokens = 0;
  readonly queue: Queue; // those who wait for a seat here
  readonly links: PeerLinks;
  readonly line: LeaderLine;
  readonly leading: Leading;
  readonly onState = new Set<() => void>();
  readonly onRole = new Set<() => void>();
  readonly onLogLost = new Set<(why: string) => void>();
  readonly breakers = new Breakers();
  readonly askings: Askings;
  private readonly suspects = new Map<string, number>(); // when, by peer
  private readonly touched = new Set<() => void>();
  private ticker: ReturnType<typeof setInterval> | null = null;
  private readonly redial = new Redial();
  private readonly sinceS = nowS();

  constructor(hello: Hello, engine: () => Engine, signal: SendSignal, newId: () => Base64) {
    this.me = hello.peer;
    this.core = new StageCore(hello.peer);
    this.core.authorOf = (session) => askerOf(this.state.conversations, session);
    this.queue = new Queue(this.core);
    this.links = new PeerLinks(hello, engine, signal, newId);
    this.links.start((peer, frame) => this.frame(peer, frame));
    this.links.onConnected((peer) => this.askings.back(peer));
    this.links.onGone((peer, reason, polite) => this.disconnected(peer, reason, polite));
    this.links.onCongestion((peer, full) => this.perform(this.core.congestion(peer, full)));
    this.links.on('leader', () => this.whoLeads(), 'anyone');
    this.links.on('wait', (peer, body) => this.queue.answer(peer, body), 'anyone');
    this.line = new LeaderLine(
      () => this.coordinator ?? '',
      (peer, method, body) => this.links.ask(peer, method, body),
    );
    this.leading = new Leading(hello.peer, () => this.replica, this.links);
    this.askings = new Askings(this, this.breakers);
  }

  /** Begins to watch deadlines. */
  start(): void {
    this.ticker = setInterval(() => this.tick(), TICK_MS);
  }

  /** Says goodbye to everyone and stops; answers under way end with an error. */
  async close(reason: string): Promise<void> {
    if (this.ticker !== null) clearInterval(this.ticker);
    this.askings.close(reason);
    this.leading.stepDown();
    this.replica?.close();
    await this.links.close(reason);
  }

  /** Does what a stage decided. */
  perform(effects: readonly StageEffect[]): void {
    const sends = new Map<string, Frame[]>();
    for (const effect of effects) {
      if (effect.kind !== 'send') continue;
      const frames = sends.get(effect.peer) ?? [];
      frames.push(effect.frame);
      sends.set(effect.peer, frames);
    }
    for (const [peer, frames] of sends) {
      const together = peer === this.me || frames.length === 1 ? frames : bundled(frames);
      for (const frame of together) this.links.sendOrLose(peer, frame);
    }
    for (const effect of effects) {
      switch (effect.kind) {
        case 'send':
          break;
        case 'spare':
          this.links.spare(effect.peer, effect.frame);
          break;
        case 'runStep':
          this.runs().submit(effect);
          break;
        case 'freeSlot':
          this.runs().free(effect);
          break;
        case 'prefixWork':
          this.runs().front(effect);
          break;
        default:
          effect satisfies never;
      }
    }
    this.note();
  }

  /** Tells the transaction log what happened to sessions here. */
  private note(): void {
    const notes = this.core.notes();
    if (this.journal === null) return;
    for (const { what, session, stage } of notes) {
      switch (what) {
        case 'opened':
          this.journal.opened(session, stage);
          break;
        case 'taken over':
          this.journal.tookOver(session, stage);
          break;
        case 'closed':
          this.journal.closed(session, stage);
          break;
        default:
          what satisfies never;
      }
    }
    const fresh = this.core.tokensSampled - this.notedTokens;
    if (fresh > 0) this.journal.tokens(fresh);
    this.notedTokens = this.core.tokensSampled;
  }

  /** The worker finished or refused steps. */
  results(results: readonly (Ran | NotRan)[]): void {
    const effects: StageEffect[] = [];
    for (const result of results) {
      effects.push(...this.resultOf(result));
    }
    this.perform(effects);
    this.touch();
  }

  private resultOf(result: Ran | NotRan): StageEffect[] {
    if ('reason' in result) return this.core.notRan(nowS(), result);
    try {
      return this.core.ran(nowS(), result);
    } catch (error) {
      if (!(error instanceof PeerError)) throw error;
      const { run, session, epoch, position } = result;
      const text = error.message;
      // It ends this session, and no other whose result came along.
      return this.core.notRan(nowS(), { run, session, epoch, position, have: 0, reason: 'failed', text });
    }
  }

  // --- asking

  /** How long `peer` may take to say where it is. */
  patienceS(peer: string): number {
    const timeoutS = peer === this.me ? null : (this.links.connection(peer)?.timeoutS ?? null);
    if (timeoutS === null) return PATIENCE_S;
    return Math.min(Math.max(timeoutS * PATIENCE_TIMES, PATIENCE_FLOOR_S), PATIENCE_CEILING_S);
  }

  /** Whether a plan may come that holds what was lost. */
  hopeful(): boolean {
    return this.replica !== null && this.state.refused === '';
  }

  /** Signaling says that `peer` went away: that is no proof, and a reason to ask it. */
  hinted(peer: string): void {
    this.askings.hint(peer);
  }

  /** A session of this peer found `peer` silent or stuck: other sessions ask, and the coordinator hears of it. */
  suspected(peer: string): void {
    const now = nowS();
    if (now - (this.suspects.get(peer) ?? -ONE_INCIDENT_S) < ONE_INCIDENT_S) return;
    this.suspects.set(peer, now);
    this.breakers.failed(peer, Math.floor(now * 1000));
    queueMicrotask(() => this.askings.hint(peer));
    // Kept while nobody leads. A leader that is suspected itself cannot be told.
    this.line.ask('suspect', { peer }).catch((error: unknown) => {
      if (!(error instanceof PeerError)) throw error; // nobody led for long
    });
  }

  /** Waits until no session is being answered on this peer's stages. */
  async idle(): Promise<void> {
    while (this.core.active() > 0) {
      await new Promise<void>((resolve) => this.touched.add(resolve));
    }
  }

  // --- what the mesh knows

  /** Waits until the state satisfies `holds`; false when the time is over first, or `signal` aborts. */
  until(
    holds: (state: MeshState) => boolean,
    timeoutS: number | null,
    signal?: AbortSignal,
  ): Promise<boolean> {
    return new Promise((resolve) => {
      const settle = (value: boolean): void => {
        this.onState.delete(look);
        clearTimeout(timer);
        signal?.removeEventListener('abort', stop);
        resolve(value);
      };
      const look = (): void => {
        if (holds(this.state)) settle(true);
      };
      const stop = (): void => settle(false);
      const timer = timeoutS === null ? undefined : setTimeout(stop, timeoutS * 1000);
      signal?.addEventListener('abort', stop);
      this.onState.add(look);
      look();
    });
  }

  private stateChanged(): void {
    this.links.know(this.state.members, this.coordinator);
    this.protect();
    for (const listener of [...this.onState]) listener();
    this.askings.stateChanged();
  }

  /** Keeps to the mesh's protection settings. */
  private protect(): void {
    const { strategy, shadow, logSessionBytes, logTotalBytes } = this.state.protection;
    this.askings.standbys = strategy !== 'simple' && strategy !== 'coordinated';
    this.askings.shadows = shadow !== 'off';
    this.core.keepOnly = shadow === 'log';
    this.core.logSessionBytes = logSessionBytes;
    this.core.logTotalBytes = logTotalBytes;
  }

  /** Reports to whoever leads; it is committed then. Raises MeshError. */
  tellCoordinator(method: string, command: Command | null): Promise<void> {
    const body = command === null ? {} : { command: new TextDecoder().decode(encodeCommand(command)) };
    return this.tellCoordinatorWith(method, body);
  }

  async tellCoordinatorWith(method: string, body: Body): Promise<void> {
    await this.line.ask(method, body);
  }

  // --- the log

  /** Who leads, as far as this peer knows. */
  get coordinator(): string | null {
    const leader = this.replica?.leader ?? '';
    return leader === '' ? null : leader;
  }

  /** Takes part in a mesh from here on. */
  keepLog(replica: Replica): void {
    this.replica = replica;
    replica.start();
  }

  /** What this peer knows of the mesh is void: it is to begin anew. */
  leaveLog(): void {
    this.leading.stepDown();
    this.replica?.close();
    this.replica = null;
    this.state = EMPTY_STATE;
    this.links.know(this.state.members, null);
  }

  /** Hands a message of the core over. One that cannot go now is lost; the core sends again. */
  sendMessage(peer: string, message: Message): void {
    if (this.links.isConnected(peer)) {
      this.links.sendOrLose(peer, { kind: 'CONSENSUS', body: encodeMessage(message) });
    }
  }

  logChanged(): void {
    if (this.replica === null) return;
    this.state = this.replica.state;
    this.leading.take();
    this.stateChanged();
  }

  roleChanged(): void {
    this.links.know(this.state.members, this.coordinator);
    this.leading.roleChanged();
    this.line.changed();
    for (const listener of [...this.onRole]) listener();
  }

  logLost(why: string): void {
    this.leading.stepDown();
    for (const listener of [...this.onLogLost]) listener(why);
  }

  // --- what links tell

  private frame(peer: string, frame: Frame): void {
    switch (frame.kind) {
      case 'BUNDLE':
        this.sessionFrames(peer, framesOf(frame));
        break;
      case 'STEP':
      case 'TOKEN':
      case 'OPEN':
      case 'CANCEL':
      case 'RELEASE':
      case 'REFUSE':
      case 'FEED':
      case 'WHERE':
      case 'HERE':
        this.sessionFrames(peer, [frame]);
        break;
      case 'REQUEST':
      case 'RESPONSE':
        this.links.requested(peer, frame);
        break;
      case 'CONSENSUS':
        this.replica?.received(peer, frame.body);
        break;
      case 'PROBE':
      case 'PROBE_ACK':
        this.links.probed(peer, frame);
        break;
      case 'PIECE_REQUEST':
        if (this.pieces !== null) this.pieces.requested(peer, frame);
        else this.links.send(peer, { kind: 'PIECE', id: frame.id, status: 1, body: new Uint8Array() });
        break;
      case 'PIECE':
        this.pieces?.came(peer, frame);
        break;
      case 'HELLO':
      case 'PING':
      case 'PONG':
      case 'BYE':
      case 'BYE_ACK':
      case 'CREDIT':
        return; // the connection's own
      default:
        frame satisfies never;
    }
    this.touch();
  }

  /** The connection to `peer` ended; whatever needed it is told. */
  private disconnected(peer: string, reason: string, polite: boolean): void {
    this.pieces?.gone(peer);
    this.perform(this.core.peerGone(nowS(), peer));
    const why = `peer ${this.nameOf(peer)} ${polite ? 'left' : 'was lost'} (${reason})`;
    const needed = this.askings.gone(peer, why);
    // Only the connection may be lost.
    if (needed && !polite && this.state.members.has(peer)) this.links.prepare(peer);
    this.replica?.unreachable(peer);
    this.leading.coordinating?.gone(peer, reason);
    this.touch();
  }

  // --- inner moves

  /** Hands frames that came together to the stage and to askers; what the stage decides is done at once. */
  private sessionFrames(peer: string, frames: readonly Frame[]): void {
    const now = nowS();
    const effects: StageEffect[] = [];
    for (const frame of frames) {
      switch (frame.kind) {
        case 'STEP':
          effects.push(...this.core.step(now, peer, frame));
          this.askings.handedBack(peer, frame);
          break;
        case 'TOKEN':
          effects.push(...this.core.token(now, peer, frame));
          this.askings.frame(now, peer, frame);
          break;
        case 'FEED':
          effects.push(...this.core.feed(now, peer, frame));
          if (frame.stage === 0) this.askings.frame(now, peer, frame);
          break;
        case 'WHERE':
          effects.push(...this.core.where(peer, frame));
          break;
        case 'OPEN':
          effects.push(...this.core.open(now, peer, frame));
          break;
        case 'CANCEL':
          effects.push(...this.core.cancel(peer, frame));
          break;
        case 'RELEASE':
          effects.push(...this.core.release(peer, frame));
          break;
        case 'REFUSE':
        case 'HERE':
          this.askings.frame(now, peer, frame);
          break;
        case 'PROBE':
        case 'PROBE_ACK':
          this.links.probed(peer, frame);
          break;
        default:
          throw new WrongChannel(`BUNDLE: ${frame.kind} does not travel in bundles`);
      }
    }
    this.perform(effects);
    this.queue.look();
  }

  private whoLeads(): Body {
    const { replica } = this;
    if (replica === null) return { leader: '', term: 0, epoch: 0, voters: [] };
    const known = replica.config.byId.has(this.me); // who is not in yet knows nothing of the mesh
    const { leader, term, begin, config } = replica;
    return { leader, term, epoch: known ? begin.epoch : 0, voters: [...config.voters] };
  }

  private tick(): void {
    this.perform(this.core.tick(nowS()));
    this.queue.look();
    const { replica } = this;
    if (replica === null || (this.patient && nowS() - this.sinceS < PATIENT_S)) return;
    const peers = wanted(replica.config, this.me, replica.leads);
    for (const peer of this.redial.due(nowS(), peers, (other) => this.links.isConnected(other))) {
      this.links.prepare(peer);
    }
    this.leading.coordinating?.look(Math.floor(performance.now()));
  }

  private touch(): void {
    for (const wake of [...this.touched]) {
      this.touched.delete(wake);
      wake();
    }
  }

  private runs(): Serving {
    if (this.serving === null) throw new BadCommand('this peer runs no units');
    return this.serving;
  }

  /** What people call a peer. */
  nameOf(peer: string): string {
    const member = this.state.members.get(peer);
    return member === undefined ? peer.slice(0, 8) : `${member.name} (${peer.slice(0, 8)})`;
  }
}
