/*
 * One connection per pair of peers, made when first needed: who dials, what waits meanwhile, what replaces what (twin
 * of peer/transport/dialer.py). When two peers dial each other at the same moment, the offer of the lower id stands.
 */

import { Connection, type ConnectionState, type Engine } from './connection';
import { BackpressureExceeded, ConnectFailed, ConnectionLost, PeerError, textOf } from '../errors';
import type { Frame, Hello } from '../wire/generated/frames';
import type { Base64 } from '../signaling/keys';
import type { SignalKind } from '../signaling/presence';
import { type Way, withCandidates } from './udp_relay';
import { told } from '../state/version_negotiation';

const HIGH_WATER_BYTES = 1024 * 1024; // more than this waiting towards a peer counts as congestion
const MAX_SPOKEN = 4096; // peers whose version of the protocol is remembered
const MAX_FAR = 1024; // peers that are remembered as unreachable
const MAX_WAITING_FRAMES = 4096; // towards one peer while its connection comes about

/** What the dialer tells its owner. */
export interface DialerEvents {
  frame(peer: string, frame: Frame): void;
  connected(peer: string): void;
  disconnected(peer: string, reason: string, polite: boolean): void;
  congestion(peer: string, full: boolean): void;
}

/** Sends through the signaling server. */
export type SendSignal = (kind: SignalKind, peer: string, connection: Base64, text: string) => Promise<void>;

interface Waiter {
  resolve(connection: Connection): void;
  reject(error: PeerError): void;
}

/** All that concerns one other peer. */
interface Line {
  open: Connection | null;
  attempt: Connection | null;
  attemptId: Base64;
  outgoing: boolean;
  waiting: Frame[];
  opened: Waiter[];
  full: boolean;
}

/** All connections of this peer: at most one to each other peer, and frames in order over it. */
export class Dialer {
  private readonly me: string;
  private readonly hello: Hello;
  private readonly engine: () => Engine;
  private readonly signal: SendSignal;
  private readonly events: DialerEvents;
  private readonly newId: () => Base64;
  private readonly way: (peer: string) => Promise<Way | null>;
  private readonly lines = new Map<string, Line>();
  private readonly far = new Set<string>(); // peers that could not be reached directly
  private readonly ways = new Map<Base64, Way>(); // by connection id, while an answer is awaited
  private readonly byId = new Map<Base64, Connection>();
  private closing = false;
  private readonly spoken = new Map<string, number>(); // by peer that was connected, the oldest first

  /** `way`: to a peer through a third one; null: there is none. */
  constructor(
    hello: Hello,
    engine: () => Engine,
    signal: SendSignal,
    events: DialerEvents,
    newId: () => Base64,
    way: (peer: string) => Promise<Way | null> = () => Promise.resolve(null),
  ) {
    this.me = hello.peer;
    this.hello = hello;
    this.engine = engine;
    this.signal = signal;
    this.events = events;
    this.newId = newId;
    this.way = way;
  }

  /** The version of the protocol that `peer` and this tab speak: of the last connection; else the lowest one. */
  speaks(peer: string): number {
    const { lowest, highest } = told(this.hello).versions;
    return peer === this.me ? highest : (this.spoken.get(peer) ?? lowest);
  }

  /** The open connection to `peer`, if there is one. */
  connection(peer: string): Connection | null {
    return this.lines.get(peer)?.open ?? null;
  }

  /** Whether the connection to `peer` goes through a relay or a third peer; null: unknown, or there is none. */
  async relayed(peer: string): Promise<boolean | null> {
    return (await this.connection(peer)?.path.relayed()) ?? null;
  }

  /** Peers with an open connection, sorted. */
  connectedPeers(): readonly string[] {
    return [...this.lines]
      .filter(([, line]) => line.open !== null)
      .map(([peer]) => peer)
      .sort();
  }

  /** Sends now, or dials and sends when the connection is there. Raises ConnectionLost when that cannot be. */
  send(peer: string, frame: Frame): void {
    const line = this.line(peer);
    if (line.open !== null) {
      this.put(peer, line, line.open, frame);
      return;
    }
    if (this.closing || line.waiting.length >= MAX_WAITING_FRAMES) {
      throw new ConnectionLost(`there is no connection to peer ${peer}`);
    }
    line.waiting.push(frame);
    this.ensureAttempt(peer, line);
  }

  /** Begins to connect to `peer`, which may be needed soon. */
  prepare(peer: string): void {
    const line = this.line(peer);
    if (line.open === null && !this.closing) this.ensureAttempt(peer, line);
  }

  /** The open connection to `peer`. Raises ConnectFailed or ConnectionLost when there will be none. */
  async dial(peer: string): Promise<Connection> {
    const line = this.line(peer);
    if (line.open !== null) return line.open;
    if (this.closing) throw new ConnectionLost('this peer is leaving');
    const opened = new Promise<Connection>((resolve, reject) => line.opened.push({ resolve, reject }));
    this.ensureAttempt(peer, line);
    return opened;
  }

  /** Takes a verified offer or answer of another member. */
  described(peer: string, connectionId: Base64, kind: 'offer' | 'answer', sdp: string): void {
    if (this.closing) return;
    if (kind === 'offer') {
      this.offered(peer, connectionId, sdp);
      return;
    }
    const connection = this.byId.get(connectionId);
    if (connection?.peer !== peer) return;
    const way = this.ways.get(connectionId);
    this.ways.delete(connectionId);
    const whole = way === undefined ? sdp : withCandidates(sdp, way.mine);
    void this.guard(peer, connection, connection.setAnswer(whole));
  }

  /** Takes a verified ICE candidate of another member. */
  candidate(peer: string, connectionId: Base64, text: string): void {
    const connection = this.byId.get(connectionId);
    // A candidate that cannot be used is one way less, not the end: others may do.
    if (connection?.peer === peer && !this.closing) connection.addCandidate(text).catch(() => null);
  }

  /** Says goodbye to one peer. */
  async hangUp(peer: string, reason: string): Promise<void> {
    const line = this.lines.get(peer);
    await Promise.all([line?.open?.close(reason), line?.attempt?.close(reason)]);
  }

  /** Says goodbye to everyone. */
  async close(reason: string): Promise<void> {
    this.closing = true;
    await Promise.all([...this.lines.keys()].map((peer) => this.hangUp(peer, reason)));
  }

  // --- making connections

  private line(peer: string): Line {
    let line = this.lines.get(peer);
    if (line === undefined) {
      line = {
        open: null,
        attempt: null,
        attemptId: '',
        outgoing: false,
        waiting: [],
        opened: [],
        full: false,
      };
      this.lines.set(peer, line);
    }
    return line;
  }

  private ensureAttempt(peer: string, line: Line): void {
    if (line.attempt !== null) return;
    const id = this.newId();
    const connection = this.attempt(peer, line, id, true);
    if (connection === null) return;
    void this.guard(peer, connection, this.call(peer, id, connection, null));
  }

  private async call(peer: string, id: Base64, connection: Connection, found: Way | null): Promise<void> {
    const offer = await connection.offer();
    const way = found ?? (this.far.has(peer) ? await this.way(peer) : null);
    if (way !== null) this.ways.set(id, way);
    await this.signal('offer', peer, id, way === null ? offer : withCandidates(offer, way.theirs));
  }

  private attempt(peer: string, line: Line, id: Base64, outgoing: boolean): Connection | null {
    let engine: Engine;
    try {
      engine = this.engine();
    } catch (error) {
      // Browsers allow some hundred connections per page, and none where WebRTC is switched off.
      const text = `this browser makes no WebRTC connection: ${textOf(error)}`;
      queueMicrotask(() => this.failed(peer, line, text));
      return null;
    }
    const connection: Connection = new Connection(engine, this.hello, peer, {
      frame: (frame) => this.events.frame(peer, frame),
      state: (which, state) => this.moved(peer, which, state),
      candidate: (candidate) => {
        this.signal('candidate', peer, id, candidate).catch(() => null); // one way less
      },
    });
    line.attempt = connection;
    line.attemptId = id;
    line.outgoing = outgoing;
    this.byId.set(id, connection);
    return connection;
  }

  private offered(peer: string, id: Base64, offer: string): void {
    const line = this.line(peer);
    if (line.attempt !== null && line.outgoing) {
      if (this.me < peer) return; // both dialled: the other side takes this side's offer
      const mine = line.attempt;
      line.attempt = null;
      void mine.close('the other peer’s offer stands');
    } else if (line.attempt !== null) {
      const stale = line.attempt;
      line.attempt = null;
      void stale.close('replaced by a newer offer');
    }
    const connection = this.attempt(peer, line, id, false);
    if (connection === null) return;
    const answer = connection.accept(offer).then((sdp) => this.signal('answer', peer, id, sdp));
    void this.guard(peer, connection, answer);
  }

  /** Follows one step of setting up; its failure ends that attempt only. */
  private async guard(peer: string, connection: Connection, step: Promise<void>): Promise<void> {
    try {
      await step;
    } catch (error) {
      const line = this.line(peer);
      if (line.attempt === connection) this.failed(peer, line, textOf(error));
      await connection.close('setting up failed');
    }
  }

  // --- their life

  private moved(peer: string, connection: Connection, state: ConnectionState): void {
    const line = this.line(peer);
    switch (state) {
      case 'open':
        this.opened(peer, line, connection);
        return;
      case 'closing':
      case 'closed':
      case 'failed':
        this.ended(peer, line, connection, state);
        return;
      case 'new':
      case 'connecting':
        return;
      default:
        state satisfies never;
    }
  }

  private opened(peer: string, line: Line, connection: Connection): void {
    if (line.attempt === connection) line.attempt = null;
    const replaced = line.open;
    line.open = connection;
    if (replaced !== null) void replaced.close('replaced by a newer connection');
    for (const waiter of line.opened.splice(0)) waiter.resolve(connection);
    // Replaced: the other side lost it first, and what was on its way there is lost.
    if (replaced !== null) this.events.disconnected(peer, 'replaced by a newer connection', false);
    this.spoken.set(peer, connection.version);
    for (const old of [...this.spoken.keys()].slice(0, -MAX_SPOKEN)) this.spoken.delete(old);
    this.events.connected(peer);
    for (const frame of line.waiting.splice(0)) {
      if (line.open === connection) this.put(peer, line, connection, frame);
    }
  }

  private ended(peer: string, line: Line, connection: Connection, state: ConnectionState): void {
    for (const [id, known] of this.byId) {
      if (known !== connection) continue;
      this.byId.delete(id);
      this.ways.delete(id);
    }
    const reason = connection.reason || (connection.error?.message ?? 'closed');
    if (line.open === connection) {
      line.open = null;
      line.full = false;
      this.events.disconnected(peer, reason, state !== 'failed');
    } else if (line.attempt === connection) {
      if (line.outgoing && line.open === null && !this.far.has(peer) && !this.closing) {
        line.attempt = null;
        this.far.add(peer);
        void this.byThird(peer, line, reason);
        return;
      }
      this.failed(peer, line, reason);
    }
    this.forget(peer, line);
  }

  /** Once more, through a third peer where there is one; who waits learns of the failure otherwise. */
  private async byThird(peer: string, line: Line, reason: string): Promise<void> {
    const way = await this.way(peer);
    if (line.attempt !== null || line.open !== null) return;
    const id = this.newId();
    const connection = way === null || this.closing ? null : this.attempt(peer, line, id, true);
    if (connection !== null) {
      void this.guard(peer, connection, this.call(peer, id, connection, way));
      return;
    }
    this.far.delete(peer);
    this.failed(peer, line, reason);
    this.forget(peer, line);
  }

  /** Peers come and go: nothing is kept of one that nobody waits for. */
  private forget(peer: string, line: Line): void {
    const busy =
      line.open !== null || line.attempt !== null || line.waiting.length > 0 || line.opened.length > 0;
    if (!busy && this.lines.get(peer) === line) this.lines.delete(peer);
    if (!busy && this.far.size > MAX_FAR) this.far.delete(peer);
  }

  private failed(peer: string, line: Line, reason: string): void {
    line.attempt = null;
    if (line.open !== null) return;
    const waited = line.waiting.splice(0).length > 0;
    for (const waiter of line.opened.splice(0)) {
      waiter.reject(new ConnectFailed(`no connection to peer ${peer}: ${reason}`));
    }
    if (waited) this.events.disconnected(peer, reason, false);
  }

  private put(peer: string, line: Line, connection: Connection, frame: Frame): void {
    try {
      connection.send(frame);
    } catch (error) {
      if (error instanceof BackpressureExceeded) void connection.close('too much waits for this peer');
      else if (!(error instanceof ConnectionLost)) throw error; // its end is being told through `disconnected`
      return;
    }
    if (!line.full && connection.queuedBytes > HIGH_WATER_BYTES) {
      line.full = true;
      this.events.congestion(peer, true);
      void this.relieve(peer, line, connection);
    }
  }

  private async relieve(peer: string, line: Line, connection: Connection): Promise<void> {
    try {
      await connection.drained();
    } catch {
      return; // lost: told through `disconnected`
    }
    if (line.open !== connection) return;
    line.full = false;
    this.events.congestion(peer, false);
  }
}
