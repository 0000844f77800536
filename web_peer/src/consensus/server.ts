/*
 * What a server remembers, and the few ways in which every part of the core changes it (twin of
 * peer/consensus/server.py). Pure.
 */

import { Log } from './log';
import type { Body } from './messages';
import type { Config, Snapshot } from './records';
import type { Boot, Effect, Reason, Role, RoleName, Send, Settings } from './events';

/** What a leader knows of one other server. `state` as etcd has them. */
export class Progress {
  incarnation: number;
  next: number;
  state: 'probe' | 'replicate' | 'snapshot' = 'probe';
  match = 0; // agrees and is durable there
  inflight: number[] = []; // last index of each message with entries on its way
  paused = false; // a probe is on its way
  ackedSeq = 0; // newest message of this leader that was answered
  okSeq = 0; // newest one whose answer was ok
  contactMs: number; // when that newest answered message was sent
  snapshot: Snapshot | null = null; // being sent
  offset = 0; // bytes of it that are there
  sent = 0; // bytes of it that were sent
  asked = false; // the first answer of how much is there has not come yet
  stalled = 0; // heartbeats since the transfer last moved on
  crc = 0; // of the snapshot's bytes

  constructor(incarnation: number, next: number, contactMs: number) {
    this.incarnation = incarnation;
    this.next = next;
    this.contactMs = contactMs;
  }
}

/** A snapshot that is coming in pieces. */
export interface Incoming {
  readonly index: number;
  readonly term: number;
  readonly config: Config;
  readonly total: number;
  readonly crc: number;
  data: Uint8Array;
}

/** A read. `ctx` is of this edge (origin ""), or the number that `origin` gave it. */
export interface Waiting {
  readonly ctx: number;
  readonly origin: string;
  readonly incarnation: number; // of `origin`
  index: number; // to be applied before it is served; -1: not known yet
  readonly expiresMs: number;
}

/** The state of one server. Handlers change it; `flush` of core turns what changed into effects. */
export class Node {
  readonly settings: Settings;
  readonly meshId: string;
  readonly groupEpoch: number;
  readonly me: string;
  readonly incarnation: number;
  readonly bug: number;
  now: number;
  random: number;
  // durable: term, vote, log
  term: number;
  vote: string;
  readonly log: Log;
  // of everyone
  role: RoleName = 'follower';
  leader = '';
  commit: number;
  handed: number; // last index given to the state machine
  applied: number; // last index it reported
  electionAt: number | null = null;
  heardMs: number | null = null; // when the leader was heard last
  leaderIncarnation = 0;
  leaderSeq = 0; // newest message of the leader
  verified = 0; // up to here the log agrees with the leader's
  acked = 0; // up to here that was said to the leader
  incoming: Incoming | null = null;
  restoreToken = 0; // the snapshot in the log is to be restored once this token is durable; 0: none
  // of a candidate
  votes = new Map<string, boolean>();
  byTransfer = false;
  // of a leader
  progress = new Map<string, Progress>();
  termStart = 0; // the first entry of the own term
  seq = 0;
  marks: (readonly [seq: number, ms: number])[] = []; // messages after seq were sent at ms or later
  heartbeatAt = 0;
  quorumCheckAt: number | null = null; // after a pause: a majority must have been heard since resumedMs
  resumedMs = 0;
  transferTo = '';
  transferCtx = 0;
  transferUntil = 0;
  // reads
  readQueue: Waiting[] = []; // for the next round
  readRound: Waiting[] = []; // in the round that began after `roundSeq`
  roundSeq = 0;
  readReady: Waiting[] = []; // their index is known, wait to be applied
  forwarded = new Map<number, Waiting>(); // asked of the leader, by number
  readNumber: number;
  // effects
  token = 0; // last one handed out
  durableToken = 0;
  hardToken = 0; // the newest that made term and vote durable: nothing is said before it is
  hardDirty = false;
  outbox: Send[] = [];
  held: (readonly [token: number, send: Send])[] = []; // messages that wait for a token
  effects: Effect[] = [];
  saidRole: Role | null = null;
  saidDeadline: number | null = null;

  constructor(boot: Boot, nowMs: number) {
    this.settings = boot.settings;
    this.meshId = boot.meshId;
    this.groupEpoch = boot.groupEpoch;
    this.me = boot.me;
    this.incarnation = boot.incarnation;
    this.bug = boot.bug === '' ? 0 : Number(boot.bug.split('-')[0]);
    this.now = nowMs;
    this.random = boot.seed % 2 ** 32 || 1;
    this.term = boot.hardState.term;
    this.vote = boot.hardState.vote;
    this.log = new Log(boot.snapshot, boot.entries, this.bug);
    if (this.bug === 3) {
      this.term = this.log.lastTerm;
      this.vote = '';
    }
    this.commit = this.applied = this.log.base;
    this.handed = this.bug === 18 ? this.log.first - 1 : this.log.base;
    this.readNumber = this.nextRandom() * 2 ** 20;
  }

  // --- small things that every part needs ---------------------------------------------------------------------

  get config(): Config {
    if (this.bug === 33) return this.log.configAt(this.commit); // it changes only when it is committed
    return this.log.config;
  }

  /** Whether this life of this server is a voter now. */
  get votesHere(): boolean {
    return this.config.votes(this.me, this.incarnation);
  }

  /** xorshift32. */
  nextRandom(): number {
    let value = this.random;
    value ^= value << 13;
    value ^= value >>> 17;
    value ^= value << 5;
    this.random = value >>> 0;
    return this.random;
  }

  /** A new random time-out (3.4). */
  resetElection(): void {
    const { electionMinMs, electionMaxMs } = this.settings;
    this.electionAt = this.now + electionMinMs + (this.nextRandom() % (electionMaxMs - electionMinMs + 1));
  }

  setTerm(term: number, vote: string): void {
    if (term === this.term && vote === this.vote) return;
    this.term = term;
    this.vote = vote;
    this.hardDirty = true;
  }

  /** Goes out at the end of the step, or once the term and vote of this moment are durable. */
  send(to: string, incarnation: number, body: Body): void {
    const message = {
      meshId: this.meshId,
      groupEpoch: this.groupEpoch,
      sender: this.me,
      senderIncarnation: this.incarnation,
      toIncarnation: incarnation,
      term: this.term,
      body,
    };
    this.outbox.push({ kind: 'send', to, message });
  }

  reject(ctx: number, reason: Reason): void {
    this.effects.push({ kind: 'reject', ctx, reason, leader: this.leader });
  }

  // --- effects ------------------------------------------------------------------------------------------------

  /** One Persist for all that changed in this step. */
  flushPersist(): void {
    const { log, bug, term } = this;
    let { vote } = this;
    if (!this.hardDirty && log.unsaved > log.last && log.cut === 0) return;
    const entries = log.span(log.unsaved, log.last);
    if (bug === 4 && this.hardDirty && vote !== '') {
      // the term first, the vote after it
      this.token += 1;
      this.hardToken = this.token;
      this.effects.push({ kind: 'persist', token: this.token, term, vote: '', entries: [], truncateFrom: 0 });
      log.written(this.token, log.durable);
      this.hardDirty = false;
    }
    this.token += 1;
    if ((bug === 2 && vote !== this.me) || (bug === 8 && this.config.servers.length === 0)) {
      vote = ''; // given, but not stored
    }
    this.effects.push({ kind: 'persist', token: this.token, term, vote, entries, truncateFrom: log.cut });
    log.written(this.token, log.last);
    if (this.hardDirty) this.hardToken = this.token;
    if (bug === 17) log.durable = log.last; // entries count as durable while they are being written
    log.unsaved = log.last + 1;
    log.cut = 0;
    this.hardDirty = false;
  }

  /** Hand the log's snapshot to the store; earlier entries of this step first. */
  storeSnapshot(snapshot: Snapshot): number {
    this.flushPersist();
    this.token += 1;
    const { token, bug, log } = this;
    const last = bug === 15 ? snapshot.index : log.last;
    this.effects.push({ kind: 'store_snapshot', token, snapshot, first: log.first, last });
    log.written(token, log.last);
    return token;
  }

  /** What may be said now. Nothing of a term is said before that term, and the vote in it, are durable (3.8). */
  flushSends(): void {
    const waiting = this.hardToken > this.durableToken;
    for (const send of this.outbox) {
      if (waiting) this.held.push([this.hardToken, send]);
      else this.effects.push(send);
    }
    this.outbox = [];
  }

  /** Messages whose token is durable go out, in their order. */
  release(): void {
    for (let [next] = this.held; next !== undefined && next[0] <= this.durableToken; [next] = this.held) {
      this.effects.push(next[1]);
      this.held.shift();
    }
  }

  sayRole(): void {
    const { role, term, leader, saidRole } = this;
    if (saidRole?.role === role && saidRole.term === term && saidRole.leader === leader) return;
    this.saidRole = { kind: 'role', role, term, leader };
    this.effects.push(this.saidRole);
  }

  sayDeadline(atMs: number | null): void {
    if (atMs !== null && atMs !== this.saidDeadline) this.effects.push({ kind: 'deadline', atMs });
    this.saidDeadline = atMs;
  }
}
