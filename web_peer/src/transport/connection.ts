/*
 * Decides the life of one connection to another peer: hello, frames, heartbeat, faults and goodbye (twin of
 * peer/transport/connection.py; docs/protocol.md). The transport below is an engine.
 */

import type { EngineEvents } from './engines/browser';
import {
  ConnectFailed,
  ConnectionLost,
  FrameError,
  PeerError,
  TransportError,
  WrongField,
  WrongPiece,
} from '../errors';
import { CLOSE_S, LINGER_S, LOW_WATER_BYTES, MAX_TEXT_BYTES } from '../limits';
import { Receiver, Sender } from './flow_control';
import { type Bye, CHANNEL_IDS, type Channel, type Frame, type Hello } from '../wire/generated/frames';
import { channelOf, decode, encode, sessionsOf } from '../wire/frame_codec';
import { Path } from './connection_path';
import { Heartbeat, HEARTBEAT_TIMES, type HeartbeatTimes } from './heartbeat';
import type { End } from '../state/failure_domains';
import { common, told } from '../state/version_negotiation';
import { nowS } from './ticker';

export type ConnectionState = 'new' | 'connecting' | 'open' | 'closing' | 'closed' | 'failed';
type Event = 'start' | 'hello' | 'close' | 'bye' | 'done' | 'fault';

const TRANSITIONS: Readonly<Record<ConnectionState, Partial<Record<Event, ConnectionState>>>> = {
  new: { start: 'connecting', close: 'closing', fault: 'failed' },
  connecting: { hello: 'open', close: 'closing', fault: 'failed' },
  open: { close: 'closing', bye: 'closing', fault: 'failed' },
  closing: { bye: 'closing', done: 'closed', fault: 'closed' },
  closed: {},
  failed: {},
};

/** A WebRTC peer connection with the two channels; browser.ts has the one for browsers. */
export interface Engine {
  attach(events: EngineEvents): void;
  offer(): Promise<string>;
  accept(offer: string): Promise<string>;
  setAnswer(answer: string): Promise<void>;
  addCandidate(candidate: string): Promise<void>;
  send(channel: Channel, piece: Uint8Array<ArrayBuffer>): void;
  bufferedBytes(channel: Channel): number;
  /** The addresses in use, of this side and of the other; null: none yet. */
  selected?(): Promise<readonly End[] | null>;
  close(): void;
}

/** Time limits of a connection. */
export interface Times {
  readonly heartbeat: HeartbeatTimes;
  readonly connectS: number; // from the first call to HELLO: a person watches, so sooner than Python's 20
  readonly closeS: number; // for what is queued to arrive before the transport goes
}

export const TIMES: Times = { heartbeat: HEARTBEAT_TIMES, connectS: 9, closeS: CLOSE_S };

export interface ConnectionEvents {
  /** Every frame that is not the connection's own; a PeerError raised here ends the connection. */
  frame(frame: Frame): void;
  /** Follows every transition; neither is called after closed or failed. */
  state(connection: Connection, state: ConnectionState): void;
  /** A later ICE candidate of this side, to be sent to the other. */
  candidate(candidate: string): void;
}

/** One connection to another peer, used once. A fault ends it, and `error` says which one it was. */
export class Connection implements EngineEvents {
  state: ConnectionState = 'new';
  remote: Hello | null = null;
  version = 0; // of the protocol, that both sides speak; 0: until HELLO came
  error: PeerError | null = null;
  reason = '';
  suspect = false;
  readonly peer: string;
  readonly path: Path;
  private readonly engine: Engine;
  private readonly hello: Hello;
  private readonly events: ConnectionEvents;
  private readonly times: Times;
  private readonly senders = { control: new Sender('control'), data: new Sender('data') };
  private readonly receivers = { control: new Receiver('control'), data: new Receiver('data') };
  private heartbeat: Heartbeat;
  private timer: ReturnType<typeof setTimeout> | null = null;
  private waiters: (() => void)[] = [];
  private early: Frame[] = []; // data frames that overtook the other side's HELLO
  private channelsOpen = false;
  private bye: Bye | null = null;
  private byeDue = false; // this side leaves, and has frames to send before it says so
  private byeAnswered = false;
  private byeAcked = false;
  private engineGone = false;
  private ending: Promise<void> | null = null;

  constructor(engine: Engine, hello: Hello, peer: string, events: ConnectionEvents, times: Times = TIMES) {
    this.engine = engine;
    this.path = new Path(engine);
    this.hello = hello;
    this.peer = peer;
    this.events = events;
    this.times = times;
    this.heartbeat = new Heartbeat(times.heartbeat, nowS());
    engine.attach(this);
  }

  // --- setting up

  /** Starts as the offering side; the SDP to send. */
  offer(): Promise<string> {
    this.start();
    return this.step(this.engine.offer()).then((sdp) => this.path.own(sdp));
  }

  /** Starts as the answering side; the SDP to send back. */
  accept(offer: string): Promise<string> {
    this.start();
    return this.step(this.engine.accept(this.path.other(offer))).then((sdp) => this.path.own(sdp));
  }

  setAnswer(answer: string): Promise<void> {
    return this.step(this.engine.setAnswer(this.path.other(answer)));
  }

  addCandidate(candidate: string): Promise<void> {
    return this.step(this.engine.addCandidate(this.path.other(candidate)));
  }

  // --- in use

  /** Smoothed round trip of the heartbeat; null until the first answer. */
  get rttS(): number | null {
    return this.heartbeat.rttS;
  }

  /** Bytes of frames that wait here, not counting what the engine has. */
  get timeoutS(): number | null {
    return this.heartbeat.timeoutS;
  }

  get queuedBytes(): number {
    return this.senders.control.queuedBytes + this.senders.data.queuedBytes;
  }

  /** Sends, or queues, a frame. Raises ConnectionLost when not open, BackpressureExceeded when too much waits. */
  send(frame: Frame): void {
    if (this.state !== 'open') {
      throw new ConnectionLost(`expected an open connection to ${this.peer}, it is ${this.state}`);
    }
    this.put(frame);
  }

  /** Returns once little waits here. Raises ConnectionLost when the connection is not open. */
  async drained(): Promise<void> {
    while (this.is('open') && this.queuedBytes > LOW_WATER_BYTES) await this.change();
    if (!this.is('open')) {
      throw new ConnectionLost(`expected an open connection to ${this.peer}, it is ${this.state}`);
    }
  }

  // --- ending

  /** Says goodbye once everything queued has gone, waits until it has arrived, then closes. */
  async close(reason: string): Promise<void> {
    if (this.state === 'open') {
      this.byeDue = true;
      this.move('close');
      this.ending = this.part(reason);
    } else if (this.state === 'new' || this.state === 'connecting') {
      this.move('close');
      this.leave();
    }
    await this.ending;
  }

  // --- EngineEvents

  engineOpen(): void {
    if (this.state !== 'connecting') return;
    this.channelsOpen = true;
    this.put(this.hello);
    this.maybeOpen();
  }

  engineMessage(channel: Channel, data: ArrayBuffer | string): void {
    const now = nowS();
    this.heartbeat.heard(now);
    this.suspect = false;
    try {
      if (typeof data === 'string') {
        throw new WrongPiece(`expected binary messages only, got text of ${data.length} characters`);
      }
      const encoded = this.receivers[channel].accept(new Uint8Array(data));
      if (encoded !== null) {
        this.take(decode(encoded, channel), now);
      }
      if (channel === 'data') {
        this.heartbeat.works();
        this.grant();
      }
      if (this.bye !== null) this.answerBye();
    } catch (error) {
      if (error instanceof PeerError) this.fail(error);
      else {
        reportError(error);
        this.fail(new PeerError('a fault of the receiving program'));
      }
    }
  }

  engineWritable(channel: Channel): void {
    this.pump(channel);
  }

  engineClosed(reason: string): void {
    this.engineGone = true;
    if (this.state === 'new' || this.state === 'connecting') {
      this.fail(new ConnectFailed(`no connection to ${this.peer} came about: ${reason}`));
    } else if (this.state === 'open') {
      this.fail(new ConnectionLost(`the connection to ${this.peer} was lost: ${reason}`));
    } else this.wake();
  }

  engineCandidate(candidate: string): void {
    if (this.state === 'connecting') this.events.candidate(candidate);
  }

  // --- inside

  private is(state: ConnectionState): boolean {
    return this.state === state;
  }

  private start(): void {
    this.move('start');
    const { connectS } = this.times;
    this.timer = setTimeout(
      () => this.fail(new ConnectFailed(`expected ${this.peer} to connect within ${connectS} s`)),
      connectS * 1000,
    );
  }

  private async step<T>(step: Promise<T>): Promise<T> {
    try {
      return await step;
    } catch (error) {
      if (this.state === 'closing' || this.state === 'closed' || this.state === 'failed') {
        throw new ConnectionLost(`expected to connect to ${this.peer}, but it was closed meanwhile`);
      }
      const fault =
        error instanceof PeerError ? error : new ConnectFailed(`the transport failed: ${String(error)}`);
      this.fail(fault);
      throw fault;
    }
  }

  private take(frame: Frame, now: number): void {
    if (frame.kind === 'BYE') this.takeBye(frame);
    else if (frame.kind === 'BYE_ACK') {
      this.byeAcked = true;
      this.wake();
    } else if (this.state === 'closed' || this.state === 'failed') return;
    else if (frame.kind === 'HELLO') this.takeHello(frame);
    else if (this.remote === null && channelOf(frame) === 'control') {
      throw new WrongField(`expected HELLO as the first frame, got ${frame.kind}`);
    } else if (this.state === 'connecting') this.early.push(frame);
    else this.takeOpen(frame, now);
  }

  private takeOpen(frame: Frame, now: number): void {
    switch (frame.kind) {
      case 'PING':
        this.put({ kind: 'PONG', nonce: frame.nonce });
        return;
      case 'PONG':
        this.heartbeat.answered(frame.nonce, now);
        return;
      case 'CREDIT':
        this.senders.data.grant(frame.totalBytes);
        this.pump('data');
        return;
      default:
        this.events.frame(frame);
    }
  }

  private takeHello(hello: Hello): void {
    if (this.remote !== null) throw new WrongField('expected one HELLO, got another');
    if (hello.peer !== this.peer) {
      throw new WrongField(`HELLO.peer: expected ${this.peer}, got ${hello.peer.slice(0, 40)}`);
    }
    const said = told(hello);
    this.version = common(told(this.hello).versions, said.versions);
    this.remote = said.hello;
    this.maybeOpen();
  }

  private maybeOpen(): void {
    if (this.remote === null || !this.channelsOpen || this.state !== 'connecting') return;
    this.cancelTimer();
    this.heartbeat = new Heartbeat(this.times.heartbeat, nowS());
    this.beat();
    this.move('hello');
    for (const frame of this.early.splice(0)) this.takeOpen(frame, nowS());
    this.grant();
  }

  private beat(): void {
    const { intervalS, lostS } = this.times.heartbeat;
    this.timer = setTimeout(() => this.beat(), intervalS * 1000);
    const { verdict, nonce } = this.heartbeat.beat(nowS());
    switch (verdict) {
      case 'lost':
        this.fail(new ConnectionLost(`expected a sign of life from ${this.peer} within ${lostS} s`));
        return;
      case 'suspect':
        this.suspect = true;
        break;
      case 'alive':
        break;
      default:
        verdict satisfies never;
    }
    if (nonce !== null) this.put({ kind: 'PING', nonce });
  }

  private takeBye(bye: Bye): void {
    if (this.state === 'open') {
      this.reason = bye.reason;
      this.bye = bye;
      this.move('bye');
      this.ending = this.part(null);
    } else if (this.state === 'closing') {
      this.bye = bye;
      this.move('bye');
    } else if (this.state !== 'closed' && this.state !== 'failed') {
      this.fail(new ConnectFailed(`the other side refused the connection: ${bye.reason}`));
    }
  }

  /** BYE_ACK, once all that the other side sent has come, and after this side's own BYE if it wants to leave. */
  private answerBye(): void {
    if (this.bye === null || this.byeAnswered || this.byeDue) return;
    if (this.receivers.data.receivedBytes < this.bye.dataBytes) return;
    this.byeAnswered = true;
    this.put({ kind: 'BYE_ACK' });
    this.wake();
  }

  /** Ends the connection for cause. What the other side did wrong, it is told. */
  private fail(error: PeerError): void {
    if (this.state === 'closed' || this.state === 'failed') return;
    const told = error instanceof FrameError || !(error instanceof TransportError);
    if (told) this.putBye(`${error.name}: ${error.message}`);
    if (this.state === 'closing') {
      this.engineGone = true;
      this.wake();
      return;
    }
    this.error = error;
    this.move('fault');
    this.ending = this.drop(told);
  }

  /** From closing to closed. `reason` is this side's, or null when the other side began. */
  private async part(reason: string | null): Promise<void> {
    const deadline = performance.now() + this.times.closeS * 1000;
    if (reason !== null) {
      await this.until(() => this.queuedBytes === 0, deadline);
      this.putBye(reason);
      this.byeDue = false;
      this.answerBye();
      await this.until(() => this.byeAcked, deadline);
    }
    await this.until(() => this.bye === null || this.byeAnswered, deadline);
    if (reason === null) await this.until(() => false, performance.now() + 1000 * LINGER_S);
    this.leave();
  }

  private async drop(told: boolean): Promise<void> {
    if (told) await this.until(() => this.byeAcked, performance.now() + 1000 * LINGER_S);
    this.engine.close();
  }

  private leave(): void {
    this.engine.close();
    if (this.state === 'closing') this.move('done');
  }

  private async until(done: () => boolean, deadline: number): Promise<void> {
    while (!done() && !this.engineGone) {
      const left = deadline - performance.now();
      if (left <= 0) return;
      const late = setTimeout(() => this.wake(), left);
      await this.change();
      clearTimeout(late);
    }
  }

  private change(): Promise<void> {
    return new Promise((resolve) => this.waiters.push(resolve));
  }

  private wake(): void {
    for (const waiter of this.waiters.splice(0)) waiter();
  }

  private move(event: Event): void {
    const next = TRANSITIONS[this.state][event];
    if (next === undefined) throw new Error(`a connection that is ${this.state} takes no ${event}`);
    this.state = next;
    if (next !== 'connecting' && next !== 'open') this.cancelTimer();
    this.wake();
    this.events.state(this, next);
  }

  private cancelTimer(): void {
    if (this.timer !== null) clearTimeout(this.timer);
    this.timer = null;
  }

  private putBye(reason: string): void {
    this.put({ kind: 'BYE', reason: cut(reason), dataBytes: this.senders.data.sentBytes });
  }

  private put(frame: Frame): void {
    const encoded = encode(frame);
    const channel = channelOf(frame);
    if (channel === 'data') this.heartbeat.works();
    this.senders[channel].push(encoded, ordersOf(frame));
    this.pump(channel);
  }

  private pump(channel: Channel): void {
    if (this.engineGone || !this.channelsOpen) return;
    const sender = this.senders[channel];
    try {
      for (;;) {
        const piece = sender.next(this.engine.bufferedBytes(channel));
        if (piece === null) break;
        this.engine.send(channel, piece);
      }
    } catch (error) {
      if (!(error instanceof PeerError)) throw error;
      this.engineGone = true;
      this.fail(error);
    }
    if (this.waiters.length > 0) this.wake();
  }

  private grant(): void {
    if (this.state !== 'open' && this.state !== 'closing') return;
    const totalBytes = this.receivers.data.grant();
    if (totalBytes !== null) this.put({ kind: 'CREDIT', channel: CHANNEL_IDS.data, totalBytes });
  }
}

/** Which frames stay in order: those of a session, and those of the control channel but for beats and credit. */
function ordersOf(frame: Frame): readonly string[] {
  switch (frame.kind) {
    case 'PING':
    case 'PONG':
    case 'CREDIT':
      return ['beat'];
    default:
      return sessionsOf(frame);
  }
}

/** The text within what a frame may carry. */
export function cut(text: string): string {
  const bytes = new TextEncoder().encode(text);
  if (bytes.length <= MAX_TEXT_BYTES) return text;
  return new TextDecoder().decode(bytes.subarray(0, MAX_TEXT_BYTES)).replace(/\ufffd+$/, '');
}
