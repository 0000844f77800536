/*
 * This peer's links to others: frames sent to them, requests to them and of them, probes of the way there, frames for
 * shadows (twin of peer/transport/peer_links.py). Edge. Members alone are dialled; who they are it is told by
 * mesh_view.ts.
 */

import type { Connection, Engine } from './connection';
import { Dialer, type SendSignal } from './dialer';
import { linkWords, Prober } from './link_probe';
import { type Handler, Requests } from './request_table';
import { Calls } from './rpc';
import { Spares } from './shadow_sender';
import { wayAsked } from './udp_relay';
import { ConnectionLost, FrameError, PeerError, textOf } from '../errors';
import type { Base64 } from '../signaling/keys';
import type { Member } from '../state/generated/commands';
import type { Frame, Hello, Probe, ProbeAck, Request, Response } from '../wire/generated/frames';
import type { Body } from '../wire/json_codec';
import { MEASURE_LINK, type MeasureLinkAnswer } from '../wire/generated/requests';
import { readAnswer, type RequestKind } from '../wire/request_kind';

const SPARE_BYTES = 64 * 1024; // waiting towards a peer: beyond that nothing is sent to shadows there

type Connected = (peer: string) => void;
type Gone = (peer: string, reason: string, polite: boolean) => void;
type Congestion = (peer: string, full: boolean) => void;
type Take = (peer: string, frame: Frame) => void;

/** What links know of the members of the mesh. */
export type Known = ReadonlyMap<string, Pick<Member, 'headless'>>;

/** All links of this peer. Several parts may listen to each thing that happens on them. */
export class PeerLinks {
  readonly me: string;
  readonly prober: Prober;
  private readonly dialer: Dialer;
  private readonly calls: Calls;
  private readonly requests: Requests;
  private readonly spares: Spares;
  private readonly whenConnected = new Set<Connected>();
  private readonly whenGone = new Set<Gone>();
  private readonly whenCongested = new Set<Congestion>();
  private take: Take | null = null; // null: nobody takes frames yet
  private members: Known = new Map();
  private readonly withoutConnection = new Set<string>();
  private leader: string | null = null;

  /** `engine()` makes one connection; `signal` sends through the signaling server; `newId()` names a connection. */
  constructor(hello: Hello, engine: () => Engine, signal: SendSignal, newId: () => Base64) {
    this.me = hello.peer;
    const events = {
      frame: (peer: string, frame: Frame): void => this.take?.(peer, frame),
      connected: (peer: string): void => {
        this.withoutConnection.delete(peer);
        for (const listener of [...this.whenConnected]) listener(peer);
      },
      disconnected: (peer: string, reason: string, polite: boolean): void => this.lost(peer, reason, polite),
      congestion: (peer: string, full: boolean): void => {
        for (const listener of [...this.whenCongested]) listener(peer, full);
      },
    };
    const stays = (peer: string): boolean => this.members.get(peer)?.headless === true;
    this.dialer = new Dialer(hello, engine, signal, events, newId, wayAsked(this, stays));
    const send = (peer: string, frame: Frame): void => this.send(peer, frame);
    this.requests = new Requests((peer, who) =>
      who === 'leader' ? peer === this.leader : this.members.has(peer),
    );
    this.calls = new Calls(send, (peer, method) => this.requests.admit(peer, method));
    this.prober = new Prober(send);
    this.spares = new Spares(
      (peer, frame) => this.sendOrLose(peer, frame),
      (peer) => (this.connection(peer)?.queuedBytes ?? 0) < SPARE_BYTES,
    );
    this.on(MEASURE_LINK, (peer) => this.measured(peer));
  }

  /** Says goodbye to everyone. */
  async close(reason: string): Promise<void> {
    this.spares.close();
    await this.dialer.close(reason);
  }

  // --- frames

  /** From here on `take` gets the frames that come. Raises an Error when it is called a second time. */
  start(take: Take): void {
    if (this.take !== null) throw new Error('somebody takes frames already');
    this.take = take;
  }

  /**
   * Hands a frame to a peer, which may be this one. Raises ConnectionLost, and a FrameError for a wrong frame.
   *
   * Only members are dialled: frames of others name askers and stages, and may name anybody.
   */
  send(peer: string, frame: Frame): void {
    if (peer === this.me) queueMicrotask(() => this.ownFrame(frame));
    else if (this.members.has(peer) || this.isConnected(peer)) this.dialer.send(peer, frame);
    else throw new ConnectionLost(`peer ${peer} is no member of this mesh`);
  }

  /** Hands a frame over; a peer that cannot be reached counts as lost. */
  sendOrLose(peer: string, frame: Frame): void {
    try {
      this.send(peer, frame);
    } catch (error) {
      if (error instanceof FrameError)
        reportError(error); // this side's fault, which says nothing about the other
      else if (!(error instanceof PeerError)) throw error;
      else queueMicrotask(() => this.lost(peer, textOf(error), false));
    }
  }

  /** Hands a frame to a peer that shadows a stage, when there is room. */
  spare(peer: string, frame: Frame): void {
    this.spares.put(peer, frame);
  }

  // --- requests

  /** Registers the handler of a request, as `Requests` does. */
  on<T, A>(kind: RequestKind<T, A>, handler: Handler<T, A>): () => void {
    return this.requests.on(kind, handler);
  }

  /**
   * The answer of `peer`, which may be this one. Raises MeshError with its refusal, BadCommand for what is too long
   * and for what is no answer to this, or ConnectionLost.
   */
  async call<T, A>(peer: string, kind: RequestKind<T, A>, said: T, timeoutS?: number): Promise<A> {
    if (peer !== this.me) return this.calls.call(peer, kind, said, timeoutS);
    const body = kind.codec.encode(said) as Body;
    return readAnswer(kind, await this.requests.answer(peer, kind.method, body));
  }

  /** As `call`, of a peer that may have to be dialled first. Raises ConnectFailed as well. */
  async ask<T, A>(peer: string, kind: RequestKind<T, A>, said: T, timeoutS?: number): Promise<A> {
    if (peer !== this.me) await this.dialer.dial(peer);
    return this.call(peer, kind, said, timeoutS);
  }

  /** Takes a request, or the answer to one of this peer. */
  requested(peer: string, frame: Request | Response): void {
    if (frame.kind === 'REQUEST') this.calls.requested(peer, frame);
    else this.calls.responded(peer, frame);
  }

  /** Takes a probe, or the answer to one of this peer. */
  probed(peer: string, frame: Probe | ProbeAck): void {
    if (frame.kind === 'PROBE') this.prober.probed(peer, frame);
    else this.prober.acknowledged(peer, frame);
  }

  // --- connections

  /** Calls `listener` when there is a connection to a peer, until the result is called. */
  onConnected(listener: Connected): () => void {
    this.whenConnected.add(listener);
    return () => this.whenConnected.delete(listener);
  }

  /** Calls `listener` when a connection ended, or could not be made, until the result is called. */
  onGone(listener: Gone): () => void {
    this.whenGone.add(listener);
    return () => this.whenGone.delete(listener);
  }

  /** Calls `listener` when much waits towards a peer (`full`) or no longer does, until the result is called. */
  onCongestion(listener: Congestion): () => void {
    this.whenCongested.add(listener);
    return () => this.whenCongested.delete(listener);
  }

  /** Who the members of the mesh are from now on, and who leads (null: nobody). */
  know(members: Known, leader: string | null): void {
    this.members = members;
    this.leader = leader;
    for (const peer of this.withoutConnection) if (!members.has(peer)) this.withoutConnection.delete(peer);
  }

  /** The members to whom a connection ended, and none opened since. */
  get unreached(): ReadonlySet<string> {
    return this.withoutConnection;
  }

  /** The open connection to `peer`, if there is one. */
  connection(peer: string): Connection | null {
    return this.dialer.connection(peer);
  }

  isConnected(peer: string): boolean {
    return this.dialer.connection(peer) !== null;
  }

  /** Peers with an open connection, sorted. */
  connectedPeers(): readonly string[] {
    return this.dialer.connectedPeers();
  }

  /** The open connection to `peer`. Raises ConnectFailed or ConnectionLost when there will be none. */
  dial(peer: string): Promise<Connection> {
    return this.dialer.dial(peer);
  }

  /** Begins to connect to `peer`, which may be needed soon. */
  prepare(peer: string): void {
    this.dialer.prepare(peer);
  }

  /** The version of the protocol that `peer` and this tab speak: of the last connection; else the lowest one. */
  speaks(peer: string): number {
    return this.dialer.speaks(peer);
  }

  /** Whether the connection to `peer` goes through a relay or a third peer; null: unknown, or there is none. */
  relayed(peer: string): Promise<boolean | null> {
    return this.dialer.relayed(peer);
  }

  /** Says goodbye to one peer. */
  hangUp(peer: string, reason: string): Promise<void> {
    return this.dialer.hangUp(peer, reason);
  }

  /** Takes a verified offer or answer of another member. */
  described(peer: string, connectionId: Base64, kind: 'offer' | 'answer', sdp: string): void {
    this.dialer.described(peer, connectionId, kind, sdp);
  }

  /** Takes a verified ICE candidate of another member. */
  candidate(peer: string, connectionId: Base64, text: string): void {
    this.dialer.candidate(peer, connectionId, text);
  }

  // --- inner moves

  private async measured(peer: string): Promise<MeasureLinkAnswer> {
    return linkWords(await this.prober.measure(peer), await this.relayed(peer));
  }

  private ownFrame(frame: Frame): void {
    try {
      this.take?.(this.me, frame);
    } catch (error) {
      if (!(error instanceof PeerError)) throw error;
      reportError(error);
    }
  }

  /** The connection to `peer` ended; whatever needed it is told. */
  private lost(peer: string, reason: string, polite: boolean): void {
    if (this.members.has(peer)) this.withoutConnection.add(peer);
    this.calls.gone(peer, reason);
    this.prober.gone(peer);
    this.spares.forget(peer);
    for (const listener of [...this.whenGone]) listener(peer, reason, polite);
  }
}
