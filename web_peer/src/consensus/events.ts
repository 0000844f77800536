/*
 * Events and effects of the consensus core: what happened, and what the edge is to do (twin of
 * peer/consensus/events.py). Pure.
 *
 * Integers are below 2^53; ids are text, ordered by their UTF-8 bytes; times are whole milliseconds of a clock that
 * only the edge knows. A `ctx` is a number by which the edge finds again what it asked for; the core only hands it
 * back.
 */

import type { Message } from './messages';
import type { Config, Entry, HardState, Snapshot } from './records';

export type RoleName = 'follower' | 'precandidate' | 'candidate' | 'leader'; // of a learner: always "follower"

export interface Settings {
  readonly heartbeatMs: number;
  readonly electionMinMs: number;
  readonly electionMaxMs: number; // also how long a leader goes on without hearing from a majority
  readonly maxAppendBytes: number; // of entries in one message; one entry is always sent, however long
  readonly snapshotChunkBytes: number;
  readonly maxInflight: number; // messages with entries, or pieces of a snapshot, on their way to one follower
  readonly keepTail: number; // entries before a snapshot that stay, for followers that are a little behind
}

export const SETTINGS: Settings = {
  heartbeatMs: 250,
  electionMinMs: 1500,
  electionMaxMs: 3000,
  maxAppendBytes: 65536,
  snapshotChunkBytes: 32768,
  maxInflight: 4,
  keepTail: 256,
};

// --- events ---------------------------------------------------------------------------------------------------

/**
 * The first event, once. An empty store (no snapshot, no entries) is a peer that waits to be made a learner.
 *
 * `seed` must differ in every boot: ids of forwarded reads begin there. `entries` may begin before the snapshot's index
 * (a tail was kept) and must not leave a gap after it. Raises BadBoot when things do not fit together.
 */
export interface Boot {
  readonly kind: 'boot';
  readonly hardState: HardState;
  readonly snapshot: Snapshot | null;
  readonly entries: readonly Entry[];
  readonly meshId: string;
  readonly groupEpoch: number;
  readonly me: string;
  readonly incarnation: number;
  readonly seed: number; // 1 .. 2^32 - 1
  readonly settings: Settings;
}

/** Time has passed; due at the last Deadline, harmless earlier. */
export interface Tick {
  readonly kind: 'tick';
}

/** `sender` is whom the connection belongs to; a message that names another one is dropped. */
export interface Received {
  readonly kind: 'received';
  readonly sender: string;
  readonly message: Message;
}

/**
 * Answered by Proposed (it is in the leader's log, not yet committed) or Reject.
 *
 * It is committed when Apply brings an entry of that very index and term; an entry of that index and another term means
 * that it is lost.
 */
export interface Propose {
  readonly kind: 'propose';
  readonly data: Uint8Array;
  readonly ctx: number;
}

/** Also replaces an older incarnation of `id`, voter or not, by a learner with nothing. */
export interface AddLearner {
  readonly kind: 'add_learner';
  readonly id: string;
  readonly incarnation: number;
}

export interface Promote {
  readonly kind: 'promote';
  readonly id: string;
}

export interface Demote {
  readonly kind: 'demote';
  readonly id: string;
}

export interface Remove {
  readonly kind: 'remove';
  readonly id: string;
}

export type Change = AddLearner | Promote | Demote | Remove;

/** Answered by Proposed or Reject, as Propose is. */
export interface ChangeConfig {
  readonly kind: 'change_config';
  readonly change: Change;
  readonly ctx: number;
}

/** Hand leadership to `to` (3.10). Ends with a role that leads no more, or with reject within `electionMinMs`. */
export interface Transfer {
  readonly kind: 'transfer';
  readonly to: string;
  readonly ctx: number;
}

/** A linearizable read (6.4), on any member while there is a leader. ReadReady or Reject always answers it. */
export interface Read {
  readonly kind: 'read';
  readonly ctx: number;
}

/** Everything up to and with the Persist of this token is durable. */
export interface Persisted {
  readonly kind: 'persisted';
  readonly token: number;
}

/** Everything up to and with the StoreSnapshot of this token is durable. */
export interface SnapshotStored {
  readonly kind: 'snapshot_stored';
  readonly token: number;
}

/** The state machine has taken all entries up to `index`, or was restored to it. */
export interface Applied {
  readonly kind: 'applied';
  readonly index: number;
}

/** `data` is the state machine as it stood after `index`; the log before it may shrink. */
export interface Compact {
  readonly kind: 'compact';
  readonly index: number;
  readonly data: Uint8Array;
}

/** The connection to `id` closed: a hint, which may be wrong. */
export interface Unreachable {
  readonly kind: 'unreachable';
  readonly id: string;
}

export type Event =
  | Boot
  | Tick
  | Received
  | Propose
  | ChangeConfig
  | Transfer
  | Read
  | Persisted
  | SnapshotStored
  | Applied
  | Compact
  | Unreachable;

// --- effects: the edge performs them in order -----------------------------------------------------------------

/**
 * Make this durable in one step, then report Persisted(token).
 *
 * First drop every entry from `truncateFrom` on (0: none), then append `entries`; `term` and `vote` replace the stored
 * ones. Persist and StoreSnapshot share one row of tokens, which rise by one, and become durable in that order.
 */
export interface Persist {
  readonly kind: 'persist';
  readonly token: number;
  readonly term: number;
  readonly vote: string; // "": none in this term
  readonly entries: readonly Entry[];
  readonly truncateFrom: number;
}

/**
 * Make the snapshot durable, then cut the log to exactly first..last (first > last: empty), then report
 * SnapshotStored(token).
 *
 * The snapshot must be durable before the log is cut; a crash between the two is found at Boot.
 */
export interface StoreSnapshot {
  readonly kind: 'store_snapshot';
  readonly token: number;
  readonly snapshot: Snapshot;
  readonly first: number;
  readonly last: number;
}

export interface Send {
  readonly kind: 'send';
  readonly to: string;
  readonly message: Message;
}

/** Committed, durable here, in order, each index once per boot; kinds other than "command" are only counted. */
export interface Apply {
  readonly kind: 'apply';
  readonly entries: readonly Entry[];
}

/** The state machine becomes this snapshot; what it was before is void. Also comes at Boot. */
export interface Restore {
  readonly kind: 'restore';
  readonly snapshot: Snapshot;
}

/** A read that sees everything up to `index` is linearizable now; Applied(index) was reported before. */
export interface ReadReady {
  readonly kind: 'read_ready';
  readonly ctx: number;
  readonly index: number;
}

export interface Proposed {
  readonly kind: 'proposed';
  readonly ctx: number;
  readonly index: number;
  readonly term: number;
}

/** Role, term or leader ("": unknown) became this. */
export interface Role {
  readonly kind: 'role';
  readonly role: RoleName;
  readonly term: number;
  readonly leader: string;
}

/** A Tick is due at `atMs`, not later; replaces the deadline before it. */
export interface Deadline {
  readonly kind: 'deadline';
  readonly atMs: number;
}

export type Reason =
  | 'not_leader' // ask `leader`
  | 'no_leader' // nobody known: try again after a while
  | 'leader_changed' // a read or transfer that the old leader can no longer finish
  | 'timeout' // a read or transfer that took longer than an election
  | 'transferring' // the leader is handing over
  | 'not_ready' // the leader has not yet committed an entry of its own term
  | 'change_pending' // one change of members at a time
  | 'unknown_member'
  | 'already' // the change is true already, or an older incarnation
  | 'not_a_voter'
  | 'not_caught_up' // a learner that is too far behind to vote
  | 'last_voter'
  | 'would_lose_quorum' // too few of the voters that remain answered lately
  | 'too_large'
  | 'busy'; // too many entries wait for a majority

export interface Reject {
  readonly kind: 'reject';
  readonly ctx: number;
  readonly reason: Reason;
  readonly leader: string; // "": unknown
}

export type Effect =
  Persist | StoreSnapshot | Send | Apply | Restore | ReadReady | Proposed | Role | Deadline | Reject;

/** For people. `matched` is what a leader knows to be durable at each server; of others it is empty. */
export interface Status {
  readonly role: RoleName;
  readonly term: number;
  readonly leader: string;
  readonly commit: number;
  readonly applied: number;
  readonly last: number;
  readonly config: Config;
  readonly matched: ReadonlyMap<string, number>;
}
