/*
 * Decides when a tab talks to the signaling server, and passes on only what it could verify (twin of
 * peer/transport/signaling_client.py, without the founder's part).
 *
 * The server is needed to meet, not to stay: when it is gone, members and connections are left as they are, and the
 * client comes back by itself with fresh nonces. What the server sends is taken one message after the other, although
 * checking signatures takes turns of the event loop.
 */

import { type Grant, type Role, verifyGrant } from '../signaling/invites';
import { type Base64, type Identity, toText } from '../signaling/keys';
import { decodeServer, encode } from '../signaling/messages';
import {
  type IceServer,
  type Join,
  MAX_BATCH,
  MAX_NAME_CHARS,
  type ServerMessage,
  SIGNALING_PROTOCOL,
  type Welcome,
  type ClientMessage,
} from '../signaling/generated/messages';
import { isClean } from '../signaling/message_fields';
import {
  fingerprintOf,
  joinTranscript,
  makeSignal,
  makeVouch,
  NONCE_BYTES,
  type Presence,
  type Side,
  type Signal,
  type SignalKind,
  verifyPresence,
} from '../signaling/presence';
import { Roster } from '../signaling/roster';
import { fromWire, isFinal, isMessageError, SignalingError, signalingError } from '../signaling/errors';

const ANSWER_WITHIN_MS = 10_000; // for the server to take a connection or a join: nothing hangs longer than 10 s
const PATIENCE_MS = 3000; // how long the first join keeps trying while nobody answers
const BACKOFF_MS = 250;
const BACKOFF_MOST_MS = 4000; // a person watches: shorter than Python's
const STEADY_MS = 30_000; // a join that lasted this long starts the backoff anew
const MAX_BROKEN = 100; // messages on one socket that are none, before the client leaves it

export type ClientState = 'joining' | 'joined' | 'lost' | 'refused' | 'closed';

/** What lets a peer in: its own key and name, and the invite it came with. */
export interface Credentials {
  readonly identity: Identity;
  readonly name: string;
  readonly mesh: string;
  readonly invite: Identity;
  readonly membership: Grant | null;
  readonly voucher: Identity | null; // the counted key of the same person, for which this peer is a viewer
}

/** What the client reports, never from inside a call of its user. */
export interface SignalingEvents {
  member?(peer: string, presence: Presence): void;
  left?(peer: string, reason: string): void;
  described?(from: string, connection: Base64, kind: 'offer' | 'answer', sdp: string): void;
  candidate?(from: string, connection: Base64, candidate: string): void;
  membership?(grant: Grant): void;
  rejected?(error: SignalingError): void;
  state?(state: ClientState, why: SignalingError | null): void;
}

/** A joined socket and the record it was joined with. */
interface Link {
  readonly socket: Socket;
  readonly own: Side;
  readonly sinceMs: number;
}

/** This tab in the room of one mesh, until it is closed; `state` tells how it stands with the server. */
export class SignalingClient {
  readonly server: string;
  readonly peer: string;
  iceServers: readonly IceServer[] = [];
  state: ClientState = 'joining';
  private credentials: Credentials;
  private grant: Grant | null = null;
  private readonly events: SignalingEvents;
  private readonly roster: Roster;
  private link: Link | null = null;
  private readonly ended = new AbortController();

  private constructor(server: string, credentials: Credentials, events: SignalingEvents) {
    this.server = server;
    this.credentials = credentials;
    this.events = events;
    this.peer = credentials.identity.id;
    this.roster = new Roster(credentials.mesh, this.peer);
  }

  /** In the room, or the one clear reason why not. */
  static async join(
    server: string,
    credentials: Credentials,
    events: SignalingEvents,
  ): Promise<SignalingClient> {
    const length = [...credentials.name].length;
    if (length < 1 || length > MAX_NAME_CHARS || !isClean(credentials.name)) {
      throw signalingError('BadName', `a name has 1 to ${MAX_NAME_CHARS} printable characters`);
    }
    const client = new SignalingClient(server, credentials, events);
    const giveUp = performance.now() + PATIENCE_MS;
    for (let attempt = 1; ; attempt++) {
      try {
        const socket = await client.enter();
        void client.live(socket);
        return client;
      } catch (error) {
        const wait = backoffMs(attempt);
        const gone = error instanceof SignalingError && error.code === 'ServerUnreachable';
        if (!gone || performance.now() + wait > giveUp) throw error;
        await pause(wait, client.ended.signal);
      }
    }
  }

  /** What the invite allows this peer; null before the first welcome. */
  get role(): Role | null {
    return this.credentials.voucher === null ? (this.grant?.role ?? null) : 'guest';
  }

  /** The verified others in the room, as last heard; kept while the server is away. */
  members(): ReadonlyMap<string, Presence> {
    return this.roster.members();
  }

  /** NotConnected, UnknownPeer, or BadDescription when the SDP has no single SHA-256 fingerprint. */
  async signal(kind: SignalKind, to: string, connection: Base64, text: string): Promise<void> {
    if (kind !== 'candidate') fingerprintOf(text);
    if (kind === 'offer') this.roster.offered(to, connection);
    const { link } = this;
    if (link === null) {
      throw signalingError(
        'NotConnected',
        'the signaling server is away: connections go on, new ones wait until it is back',
      );
    }
    const { identity, mesh } = this.credentials;
    const said = { kind, connection, text };
    const signal = await makeSignal(identity, mesh, link.own, this.roster.find(to), said);
    link.socket.send({ kind: 'relay', signal });
  }

  /** Leaves the room for good. */
  close(): void {
    if (this.ended.signal.aborted) return;
    const { link } = this;
    this.link = null;
    this.state = 'closed';
    link?.socket.send({ kind: 'leave' });
    link?.socket.close();
    this.ended.abort();
  }

  // --- life

  private async live(first: Socket): Promise<void> {
    let socket: Socket | null = first;
    let attempt = 0;
    while (!this.ended.signal.aborted) {
      let why: SignalingError;
      if (socket === null) {
        attempt += 1;
        await pause(backoffMs(attempt), this.ended.signal);
        if (this.closed()) return;
        try {
          socket = await this.enter();
          continue;
        } catch (error) {
          why = error instanceof SignalingError ? error : unreachable(this.server);
        }
      } else {
        const since = this.link?.sinceMs ?? performance.now();
        why = await this.read(socket);
        socket.close();
        socket = null;
        this.link = null;
        if (this.closed()) return;
        if (performance.now() - since > STEADY_MS) attempt = 0;
      }
      if (isFinal(why)) {
        this.become('refused', why);
        return;
      }
      if (this.state !== 'lost') this.become('lost', why);
    }
  }

  private closed(): boolean {
    return this.ended.signal.aborted;
  }

  private become(state: ClientState, why: SignalingError | null): void {
    this.state = state;
    this.events.state?.(state, why);
  }

  // --- joining

  private async enter(): Promise<Socket> {
    const socket = new Socket(this.server, this.ended.signal);
    const late = setTimeout(() => socket.close(), ANSWER_WITHIN_MS);
    try {
      await this.prove(socket);
      return socket;
    } catch (error) {
      socket.close();
      throw error;
    } finally {
      clearTimeout(late);
    }
  }

  private async prove(socket: Socket): Promise<void> {
    const { identity, invite, mesh, name, membership, voucher } = this.credentials;
    const challenge = await socket.next();
    if (challenge.kind === 'refused') throw fromWire(challenge.code, challenge.text);
    if (challenge.kind !== 'challenge') {
      throw signalingError('OutOfOrder', 'a signaling server first sends a challenge: is this one of ours?');
    }
    if (challenge.protocol !== SIGNALING_PROTOCOL) {
      throw signalingError(
        'ProtocolMismatch',
        `the server speaks signaling protocol ${challenge.protocol}, this page ${SIGNALING_PROTOCOL}: ` +
          'reload the page, or update the older side',
      );
    }
    const nonces = { room: challenge.roomNonce, join: drawn(NONCE_BYTES) };
    const signed = joinTranscript(mesh, invite.encoded, identity.encoded, name, nonces);
    const join: Join = {
      kind: 'join',
      protocol: SIGNALING_PROTOCOL,
      mesh,
      invite: invite.encoded,
      key: identity.encoded,
      name,
      roomNonce: nonces.room,
      joinNonce: nonces.join,
      inviteProof: await invite.sign(signed),
      peerProof: await identity.sign(signed),
      grant: this.grant,
      membership,
      vouch: voucher === null ? null : await makeVouch(voucher, signed),
    };
    socket.send(join);
    const welcome = await socket.next();
    if (welcome.kind === 'refused') throw fromWire(welcome.code, welcome.text);
    if (welcome.kind !== 'welcome') {
      throw signalingError('OutOfOrder', 'a signaling server answers a join with a welcome or a refusal');
    }
    await this.welcomed(socket, join, welcome);
  }

  private async welcomed(socket: Socket, join: Join, welcome: Welcome): Promise<void> {
    const { you } = welcome;
    await verifyPresence(you, this.credentials.mesh, nowUnix(), true);
    const mine = you.key === join.key && you.vouch?.proof === join.vouch?.proof;
    if (!mine || you.joinNonce !== join.joinNonce || you.grant.key !== join.invite) {
      throw signalingError('ForgedPresence', 'the server’s welcome is for somebody else: refused');
    }
    this.grant = you.grant;
    this.iceServers = welcome.iceServers;
    const notices: (() => void)[] = [];
    for (const revocation of welcome.revocations) {
      await this.believe(async () => {
        for (const peer of await this.roster.revoked(revocation)) {
          notices.push(() => this.events.left?.(peer, 'InviteRevoked'));
        }
      });
    }
    const before = new Set(this.roster.members().keys());
    const arrivals: Presence[] = [];
    for (const member of welcome.members) {
      await this.believe(async () => {
        if (await this.roster.arrived(member, nowUnix())) arrivals.push(member);
      });
    }
    const shown = new Set(welcome.members.map(({ joinNonce }) => joinNonce));
    for (const [peer, presence] of this.roster.members()) {
      if (shown.has(presence.joinNonce) || !before.has(peer)) continue;
      this.roster.left(peer);
      notices.push(() => this.events.left?.(peer, 'absent'));
    }
    const told = new Set(welcome.revocations.map(({ key }) => key));
    const untold = [...this.roster.admissions.revocations.values()].filter(({ key }) => !told.has(key));
    for (let at = 0; at < untold.length; at += MAX_BATCH) {
      const revocations = untold.slice(at, at + MAX_BATCH);
      socket.send({ kind: 'register', request: 0, grants: [], revocations });
    }
    const own = { peer: this.peer, joinNonce: you.joinNonce };
    this.link = { socket, own, sinceMs: performance.now() };
    this.become('joined', null);
    for (const notice of notices) notice();
    for (const member of arrivals) this.tellMember(member);
  }

  private tellMember(member: Presence): void {
    for (const [peer, presence] of this.roster.members()) {
      if (presence.joinNonce === member.joinNonce) this.events.member?.(peer, presence);
    }
  }

  // --- joined

  /** Until the socket ends; why it did. */
  private async read(socket: Socket): Promise<SignalingError> {
    for (let broken = 0; broken <= MAX_BROKEN;) {
      let message: ServerMessage;
      try {
        message = await socket.next();
      } catch (error) {
        if (!isMessageError(error)) return error instanceof SignalingError ? error : unreachable(this.server);
        broken += 1;
        this.events.rejected?.(error);
        continue;
      }
      if (message.kind === 'refused') {
        const refused = fromWire(message.code, message.text);
        if (message.ends) return refused;
        this.events.rejected?.(refused);
      } else {
        const taken = message;
        await this.believe(() => this.take(taken));
      }
    }
    return signalingError(
      'ServerUnreachable',
      `${this.server} sends what no signaling server sends: check the link’s host`,
    );
  }

  private async take(message: Exclude<ServerMessage, { kind: 'refused' }>): Promise<void> {
    switch (message.kind) {
      case 'joined':
        if (await this.roster.arrived(message.member, nowUnix())) this.tellMember(message.member);
        return;
      case 'left':
        if (this.roster.left(message.peer)) this.events.left?.(message.peer, message.reason);
        return;
      case 'relay':
        if (this.link === null) return;
        await this.roster.accept(message.signal, this.link.own);
        this.deliver(message.signal);
        return;
      case 'revoked':
        for (const peer of await this.roster.revoked(message.revocation)) {
          this.events.left?.(peer, 'InviteRevoked');
        }
        return;
      case 'admitted':
        await this.becameMember(message.membership);
        return;
      case 'ice':
        this.iceServers = message.iceServers;
        return;
      case 'registered':
        if (message.code !== '') this.events.rejected?.(fromWire(message.code, message.text));
        return;
      case 'challenge':
      case 'welcome':
        throw signalingError('OutOfOrder', 'the server greets a second time on one socket');
      default:
        message satisfies never;
    }
  }

  private deliver({ kind, sender, connection, text }: Signal): void {
    if (kind === 'candidate') this.events.candidate?.(sender, connection, text);
    else this.events.described?.(sender, connection, kind, text);
  }

  private async becameMember(membership: Grant): Promise<void> {
    const { identity, invite, mesh, voucher } = this.credentials;
    if (membership.key === (voucher ?? identity).encoded && membership.via === invite.encoded) {
      await verifyGrant(membership, mesh);
      this.credentials = { ...this.credentials, membership };
      this.events.membership?.(membership);
    }
    await this.roster.admitted(membership); // of others, and of this person's other tabs
  }

  /** Does something that verifies; what does not hold is reported and has no effect. */
  private async believe(step: () => Promise<void>): Promise<void> {
    try {
      await step();
    } catch (error) {
      if (!(error instanceof SignalingError)) throw error;
      this.events.rejected?.(error);
    }
  }
}

/** A WebSocket whose messages are taken one by one. */
class Socket {
  private readonly socket: WebSocket;
  private readonly came: (string | ArrayBuffer)[] = [];
  private wake: (() => void) | null = null;
  private over = false;
  private readonly server: string;

  constructor(server: string, ended: AbortSignal) {
    this.server = server;
    this.socket = new WebSocket(`${server.replace(/^http/, 'ws')}/ws`);
    this.socket.binaryType = 'arraybuffer';
    this.socket.onmessage = ({ data }: MessageEvent<string | ArrayBuffer>) => {
      this.came.push(data);
      this.wake?.();
    };
    const end = (): void => {
      this.over = true;
      this.wake?.();
    };
    this.socket.onclose = end;
    this.socket.onerror = end;
    ended.addEventListener('abort', end, { once: true });
  }

  /** The next message. Raises a MessageError, or ServerUnreachable when the socket has ended. */
  async next(): Promise<ServerMessage> {
    while (this.came.length === 0) {
      if (this.over) throw unreachable(this.server);
      await new Promise<void>((resolve) => {
        this.wake = resolve;
      });
      this.wake = null;
    }
    const data = this.came.shift();
    if (typeof data !== 'string') {
      throw signalingError('MalformedMessage', 'the server sent a binary frame, messages are text');
    }
    return decodeServer(data);
  }

  send(message: ClientMessage): void {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(encode(message));
  }

  close(): void {
    this.over = true;
    this.socket.close();
    this.wake?.();
  }
}

function unreachable(server: string): SignalingError {
  return signalingError(
    'ServerUnreachable',
    `no signaling server answers at ${server}: check the link, and that \`shoal serve\` runs there`,
  );
}

/** Milliseconds to wait before attempt 1, 2, ...: doubling, half of it by chance, so that peers spread out. */
function backoffMs(attempt: number): number {
  const longest = Math.min(BACKOFF_MOST_MS, BACKOFF_MS * 2 ** Math.min(attempt - 1, 30));
  return longest * (0.5 + 0.5 * Math.random());
}

/** Returns early when `signal` aborts. */
function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener(
      'abort',
      () => {
        clearTimeout(timer);
        resolve();
      },
      { once: true },
    );
  });
}

/** `count` bytes drawn at random, as base64url. */
export function drawn(count: number): Base64 {
  return toText(crypto.getRandomValues(new Uint8Array(count)));
}

function nowUnix(): number {
  return Date.now() / 1000;
}
