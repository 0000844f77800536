/*
 * The state of one Raft server, and the few ways in which every part of the core changes it (twin of
 * peer/consensus/server.py). Pure.
 *
 * Names follow the thesis (figure 3.1) and etcd. Nothing here decides; times are milliseconds of the edge's clock.
 */

import { byBytes } from '../wire/utf8_order';
import { Log } from './log';
import type { Body } from './messages';
import type { Config, Snapshot } from './records';
import type { Boot, Effect, Reason, Role, RoleName, Send, Settings } from './events';

/** What a leader knows of one other server; `state` is one of those of etcd's Progress. */
export class Progress {
  incarnation: number;
  nextIndex: number;
  state: 'probe' | 'replicate' | 'snapshot' = 'probe';
  matchIndex = 0; // up to here its log agrees, and is durable there
  inflight: number[] = []; // last index of each message with entries on its way
  probeSent = false; // a probe is on its way
  ackedSeq = 0; // newest message of this leader that was answered
  acceptedSeq = 0; // newest one whose answer was ok
  contactMs: number; // when that newest answered message was sent
  snapshot: Snapshot | null = null; // being sent
  ackedBytes = 0; // of the snapshot: are there
  sentBytes = 0; // of the snapshot: were sent
  offsetUnknown = false; // the first answer of how much is there has not come yet
  stalledHeartbeats = 0; // since the snapshot last got on
  snapshotCrc = 0;

  constructor(incarnation: number, nextIndex: number, contactMs: number) {
    this.incarnation = incarnation;
    this.nextIndex = nextIndex;
    this.contactMs = contactMs;
  }
}

/** A snapshot that arrives in chunks. */
export interface IncomingSnapshot {
  readonly index: number;
  readonly term: number;
  readonly config: Config;
  readonly total: number;
  readonly crc: number;
  data: Uint8Array;
}

/** A read that is not served yet. `ctx` is of this edge (origin ""), or the number that `origin` gave it. */
export interface PendingRead {
  readonly ctx: number;
  readonly origin: string;
  readonly incarnation: number; // of `origin`
  index: number; // the read index: to be applied before it is served; -1: not known yet
  readonly expiresMs: number;
}

/** One server's state. The parts of the core change it; `flush…` and `report…` turn changes into effects. */
export class RaftServer {
  readonly settings: Settings;
  readonly meshId: string;
  readonly groupEpoch: number;
  readonly id: string;
  readonly incarnation: number;
  now: number;
  random: number;
  // durable: term, vote, log
  term: number;
  votedFor: string;
  readonly log: Log;
  // of everyone
  role: RoleName = 'follower';
  leader = '';
  commitIndex: number;
  applyingIndex: number; // last index given to the state machine
  appliedIndex: number; // last index that the state machine reported
  electionDeadline: number | null = null;
  // of a follower
  leaderContactMs: number | null = null; // when the leader was heard last
  leaderIncarnation = 0;
  leaderSeq = 0; // newest message of the leader
  verifiedIndex = 0; // up to here the log agrees with the leader's
  acknowledgedIndex = 0; // up to here the leader was told so
  incomingSnapshot: IncomingSnapshot | null = null;
  restoreToken = 0; // the log's snapshot is to be restored once this token is durable; 0: none
  // of a candidate
  votes = new Map<string, boolean>();
  byTransfer = false;
  // of a leader
  progress = new Map<string, Progress>();
  termStart = 0; // the first entry of the own term
  seq = 0; // of the newest message in this term
  sendTimes: (readonly [seq: number, ms: number])[] = []; // messages after seq were sent at ms or later
  heartbeatDeadline = 0;
  checkQuorumDeadline: number | null = null; // after a pause: by then a majority has answered something since `resumedMs`
  resumedMs = 0;
  transferTarget = '';
  transferCtx = 0;
  transferDeadline = 0;
  // reads
  readsQueued: PendingRead[] = []; // for the next round
  readsInRound: PendingRead[] = []; // in the round that began after `roundSeq`
  roundSeq = 0;
  readsConfirmed: PendingRead[] = []; // their index is known, and is to be applied
  readsForwarded = new Map<number, PendingRead>(); // asked of the leader, by number
  lastReadNumber: number;
  // effects
  lastToken = 0; // handed out
  durableToken = 0;
  hardStateToken = 0; // the newest with term and vote: nothing is sent before it is durable
  hardStateChanged = false;
  outbox: Send[] = [];
  heldSends: (readonly [token: number, send: Send])[] = []; // wait for a token
  effects: Effect[] = [];
  reportedRole: Role | null = null;
  reportedDeadline: number | null = null;

  /** Raises BadBoot where the stored log has a gap. */
  constructor(boot: Boot, nowMs: number) {
    this.settings = boot.settings;
    this.meshId = boot.meshId;
    this.groupEpoch = boot.groupEpoch;
    this.id = boot.me;
    this.incarnation = boot.incarnation;
    this.now = nowMs;
    this.random = boot.seed % 2 ** 32 || 1;
    this.term = boot.hardState.term;
    this.votedFor = boot.hardState.vote;
    this.log = new Log(boot.snapshot, boot.entries);
    this.commitIndex = this.log.snapshotIndex;
    this.applyingIndex = this.log.snapshotIndex;
    this.appliedIndex = this.log.snapshotIndex;
    this.lastReadNumber = this.nextRandom() * 2 ** 20;
  }

  // --- what every part needs ----------------------------------------------------------------------------------

  /** The configuration in force: the newest in the log, committed or not (4.1). */
  get config(): Config {
    return this.log.config;
  }

  /** Whether this incarnation of this server is a voter now. */
  get isVoter(): boolean {
    return this.config.votes(this.id, this.incarnation);
  }

  /** Returns a leader's progress of all the others, in the order of their ids. */
  sortedProgress(): [string, Progress][] {
    return [...this.progress].sort(([a], [b]) => byBytes(a, b));
  }

  /** The next number of xorshift32, 1 .. 2^32 - 1. */
  nextRandom(): number {
    let value = this.random;
    value ^= value << 13;
    value ^= value >>> 17;
    value ^= value << 5;
    this.random = value >>> 0;
    return this.random;
  }

  /** Waits a new random election timeout (3.4). */
  resetElectionTimer(): void {
    const { electionMinMs, electionMaxMs } = this.settings;
    const spread = electionMaxMs - electionMinMs + 1;
    this.electionDeadline = this.now + electionMinMs + (this.nextRandom() % spread);
  }

  /** Takes a term and a vote in it ("": none); both become durable before anything is sent (3.8). */
  setHardState(term: number, votedFor: string): void {
    if (term === this.term && votedFor === this.votedFor) return;
    this.term = term;
    this.votedFor = votedFor;
    this.hardStateChanged = true;
  }

  /** Sends at the end of the step, or once the term and vote of this moment are durable. */
  send(to: string, incarnation: number, body: Body): void {
    const message = {
      meshId: this.meshId,
      groupEpoch: this.groupEpoch,
      sender: this.id,
      senderIncarnation: this.incarnation,
      toIncarnation: incarnation,
      term: this.term,
      body,
    };
    this.outbox.push({ kind: 'send', to, message });
  }

  /** Tells the leader `to` how much of its log is durable here, in answer to its message `seq`. */
  acknowledge(to: string, incarnation: number, seq: number): void {
    const index = this.acknowledgedIndex;
    this.send(to, incarnation, { kind: 'append_reply', seq, ok: true, index, hintIndex: 0, hintTerm: 0 });
  }

  reject(ctx: number, reason: Reason): void {
    this.effects.push({ kind: 'reject', ctx, reason, leader: this.leader });
  }

  // --- effects ------------------------------------------------------------------------------------------------

  /** Adds one Persist for all that changed since the last one, if anything did. */
  flushPersist(): void {
    const { log, term } = this;
    if (!this.hardStateChanged && log.unsavedFrom > log.lastIndex && log.truncateFrom === 0) return;
    const entries = log.span(log.unsavedFrom, log.lastIndex);
    const { truncateFrom } = log;
    this.lastToken += 1;
    const token = this.lastToken;
    this.effects.push({ kind: 'persist', token, term, vote: this.votedFor, entries, truncateFrom });
    log.writeBegan(token, log.lastIndex);
    if (this.hardStateChanged) this.hardStateToken = token;
    log.unsavedFrom = log.lastIndex + 1;
    log.truncateFrom = 0;
    this.hardStateChanged = false;
  }

  /** Adds a StoreSnapshot of the log's snapshot, after a Persist of what came before; returns its token. */
  storeSnapshot(snapshot: Snapshot): number {
    this.flushPersist();
    this.lastToken += 1;
    const { lastToken: token, log } = this;
    const { firstIndex: first, lastIndex: last } = log;
    this.effects.push({ kind: 'store_snapshot', token, snapshot, first, last });
    log.writeBegan(token, log.lastIndex);
    return token;
  }

  /** Sends what may be sent. Nothing of a term leaves before that term, and the vote in it, are durable (3.8). */
  flushSends(): void {
    const waiting = this.hardStateToken > this.durableToken;
    for (const send of this.outbox) {
      if (waiting) this.heldSends.push([this.hardStateToken, send]);
      else this.effects.push(send);
    }
    this.outbox = [];
  }

  /** Sends, in their order, the messages whose token has become durable. */
  releaseSends(): void {
    const { heldSends } = this;
    for (let [next] = heldSends; next !== undefined && next[0] <= this.durableToken; [next] = heldSends) {
      this.effects.push(next[1]);
      heldSends.shift();
    }
  }

  /** Adds a Role if role, term or leader changed. */
  reportRole(): void {
    const { role, term, leader, reportedRole } = this;
    if (reportedRole?.role === role && reportedRole.term === term && reportedRole.leader === leader) return;
    this.reportedRole = { kind: 'role', role, term, leader };
    this.effects.push(this.reportedRole);
  }

  /** Adds a Deadline if it changed. */
  reportDeadline(atMs: number | null): void {
    if (atMs !== null && atMs !== this.reportedDeadline) this.effects.push({ kind: 'deadline', atMs });
    this.reportedDeadline = atMs;
  }
}
