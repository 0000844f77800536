/*
 * The messages between Raft servers; message_codec has their bytes. Pure.
 *
 * Every message carries its sender, the incarnations of sender and receiver, mesh and epoch, and the
 * sender's term. Generated from schema/consensus.toml by `make generate`: change that, not this.
 */

import type { Config, Entry } from './records';

/** Pre-vote for `campaignTerm` (9.6); Message.term is the term that the sender is really in. */
export interface PreVote {
  readonly kind: 'pre_vote';
  readonly campaignTerm: number;
  readonly lastIndex: number;
  readonly lastTerm: number;
}

/** The answer to a PreVote. */
export interface PreVoteReply {
  readonly kind: 'pre_vote_reply';
  readonly campaignTerm: number; // of the question: the answer counts even where the sender's own term is lower
  readonly granted: boolean;
}

/**
 * RequestVote (3.4). `transfer`: the leader asked for this election itself (3.10), so voters answer
 * although they have one.
 */
export interface Vote {
  readonly kind: 'vote';
  readonly lastIndex: number;
  readonly lastTerm: number;
  readonly transfer: boolean;
}

/** The answer to a Vote. */
export interface VoteReply {
  readonly kind: 'vote_reply';
  readonly granted: boolean;
}

/**
 * AppendEntries (3.5); without entries a heartbeat, which checks `prev` all the same.
 *
 * `seq` rises with every message that this leader sends in its term; answers repeat it, but for the refusal
 * of an older term, which is numbered 0.
 */
export interface Append {
  readonly kind: 'append';
  readonly seq: number;
  readonly prevIndex: number;
  readonly prevTerm: number;
  readonly commit: number;
  readonly entries: readonly Entry[];
}

/**
 * ok: everything up to `index` agrees with the leader and is durable. Else: `index` is the refused
 * `prevIndex`, and no entry after `hintIndex` can agree; `hintTerm` is the term of the entry there.
 */
export interface AppendReply {
  readonly kind: 'append_reply';
  readonly seq: number;
  readonly ok: boolean;
  readonly index: number;
  readonly hintIndex: number;
  readonly hintTerm: number;
}

/** InstallSnapshot (5): one chunk. One without data at offset 0 asks how much is there already. */
export interface Install {
  readonly kind: 'install';
  readonly seq: number;
  readonly index: number;
  readonly snapshotTerm: number;
  readonly config: Config;
  readonly total: number; // bytes
  readonly crc: number; // CRC-32 of all bytes
  readonly offset: number;
  readonly data: Uint8Array;
}

/**
 * `offset` bytes of the snapshot (index, snapshot_term) are here. At its end comes an AppendReply, once
 * stored.
 */
export interface InstallReply {
  readonly kind: 'install_reply';
  readonly seq: number;
  readonly index: number;
  readonly snapshotTerm: number;
  readonly offset: number;
}

/** The receiver is to campaign at once (3.10). */
export interface TimeoutNow {
  readonly kind: 'timeout_now';
}

/** A member other than the leader asks for a read index (6.4). */
export interface ReadIndex {
  readonly kind: 'read_index';
  readonly read: number;
}

/** The answer to a ReadIndex. */
export interface ReadIndexReply {
  readonly kind: 'read_index_reply';
  readonly read: number;
  readonly ok: boolean;
  readonly index: number;
}

export type Body =
  | PreVote
  | PreVoteReply
  | Vote
  | VoteReply
  | Append
  | AppendReply
  | Install
  | InstallReply
  | TimeoutNow
  | ReadIndex
  | ReadIndexReply;

/** A message with its envelope. */
export interface Message {
  readonly meshId: string;
  readonly groupEpoch: number;
  readonly sender: string;
  readonly senderIncarnation: number;
  readonly toIncarnation: number;
  readonly term: number;
  readonly body: Body;
}

export type FieldType = 'uint' | 'flag' | 'id' | 'data' | 'config' | 'entries';

/** A field's name here, its name in errors, its key on the wire, and its type. */
export type FieldRow = readonly [own: string, name: string, key: string, type: FieldType];

export const HEAD_FIELDS: readonly FieldRow[] = [
    ['meshId', 'mesh_id', 'm', 'id'],
    ['groupEpoch', 'group_epoch', 'g', 'uint'],
    ['sender', 'sender', 's', 'id'],
    ['senderIncarnation', 'sender_incarnation', 'i', 'uint'],
    ['toIncarnation', 'to_incarnation', 'o', 'uint'],
    ['term', 'term', 't', 'uint'],
  ];

/** The kind "k" on the wire is the place here. */
export const BODY_FIELDS: readonly (readonly [kind: Body['kind'], fields: readonly FieldRow[]])[] = [
  ['pre_vote', [
    ['campaignTerm', 'campaign_term', 'c', 'uint'],
    ['lastIndex', 'last_index', 'l', 'uint'],
    ['lastTerm', 'last_term', 'r', 'uint'],
  ]],
  ['pre_vote_reply', [
    ['campaignTerm', 'campaign_term', 'c', 'uint'],
    ['granted', 'granted', 'y', 'flag'],
  ]],
  ['vote', [
    ['lastIndex', 'last_index', 'l', 'uint'],
    ['lastTerm', 'last_term', 'r', 'uint'],
    ['transfer', 'transfer', 'f', 'flag'],
  ]],
  ['vote_reply', [
    ['granted', 'granted', 'y', 'flag'],
  ]],
  ['append', [
    ['seq', 'seq', 'q', 'uint'],
    ['prevIndex', 'prev_index', 'p', 'uint'],
    ['prevTerm', 'prev_term', 'r', 'uint'],
    ['commit', 'commit', 'c', 'uint'],
    ['entries', 'entries', 'e', 'entries'],
  ]],
  ['append_reply', [
    ['seq', 'seq', 'q', 'uint'],
    ['ok', 'ok', 'y', 'flag'],
    ['index', 'index', 'x', 'uint'],
    ['hintIndex', 'hint_index', 'h', 'uint'],
    ['hintTerm', 'hint_term', 'r', 'uint'],
  ]],
  ['install', [
    ['seq', 'seq', 'q', 'uint'],
    ['index', 'index', 'x', 'uint'],
    ['snapshotTerm', 'snapshot_term', 'r', 'uint'],
    ['config', 'config', 'c', 'config'],
    ['total', 'total', 'n', 'uint'],
    ['crc', 'crc', 'z', 'uint'],
    ['offset', 'offset', 'f', 'uint'],
    ['data', 'data', 'd', 'data'],
  ]],
  ['install_reply', [
    ['seq', 'seq', 'q', 'uint'],
    ['index', 'index', 'x', 'uint'],
    ['snapshotTerm', 'snapshot_term', 'r', 'uint'],
    ['offset', 'offset', 'f', 'uint'],
  ]],
  ['timeout_now', []],
  ['read_index', [
    ['read', 'read', 'n', 'uint'],
  ]],
  ['read_index_reply', [
    ['read', 'read', 'n', 'uint'],
    ['ok', 'ok', 'y', 'flag'],
    ['index', 'index', 'x', 'uint'],
  ]],
];
