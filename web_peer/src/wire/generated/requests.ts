/*
 * What peers ask of one another by REQUEST (docs/protocol.md, chapter Mesh state). Pure.
 *
 * Generated from schema/requests.toml by `make generate`: change that, not this.
 */

import { MAX_BODY_BYTES } from '../../limits';
import {
  flag,
  integer,
  list,
  matching,
  oneOf,
  prose,
  record,
  span,
  text,
  uint,
  upTo,
  type Span,
} from '../json_codec';
import { nothing, type RequestKind } from '../request_kind';

export const MAX_WAIT_POSITIONS = 2 ** 20; // and tokens, plans and stages of a `wait` are below it
export const MAX_CHECKED_POSITIONS = 1024; // up to the one that is checked: all of them are computed again
export const MAX_CHECKED_SPANS = 512;
export const MAX_CHECKED_SETTINGS = 8; // integers of sampling of an answer that is not held to a form
export const MAX_LIVE_IDS = 4096;
export const MAX_LIVE_SPANS = 512;
export const MAX_LIVE_BYTES = 65536; // of UTF-8
export const MAX_RUN_STAGES = 256; // of one run
export const MAX_LEFT_RANK = 16; // axes of a value that is left for a peer, as of RUN_VALUE
export const MAX_CLAIMS = 256; // of a `work`

export type WitnessSide = 'tokens' | 'sent' | 'back' | 'place' | 'marks' | 'match' | 'in' | 'out' | 'token';
export type ClaimOf = 'tokens' | 'weights';

// --- values

/** Work that the ledger should have, as its asker says it; whoever leads puts a price on it. */
export interface Claim {
  readonly session: string;
  readonly startedMs: number;
  readonly peer: string;
  readonly positions: Span;
  readonly units: Span;
  readonly of: ClaimOf;
}

// --- requests

/** Asks a third peer for a way to `peer`. */
export interface RelayRequest {
  readonly peer: string;
}

/**
 * Stands in line for a seat. `plan` and `stage` as in the OPEN that was refused; `place`: the one heard
 * last.
 */
export interface WaitRequest {
  readonly session: string;
  readonly plan: number;
  readonly stage: number;
  readonly positions: number;
  readonly tokens: number;
  readonly place: number;
}

/** Asks for digests of what a peer caches of a session of the sender at positions [first, stop). */
export interface KvDigestRequest {
  readonly session: string;
  readonly first: number;
  readonly stop: number;
}

/** Asks for a copy of what a peer caches of a session in its run [from, to), of units [first, stop). */
export interface KvCopyRequest {
  readonly session: string;
  readonly first: number;
  readonly stop: number;
  readonly from: number;
  readonly to: number;
}

/** Has a peer make ready for its stages of a run: units spans[i] of `model` are computed by peers[i]. */
export interface RunOpenRequest {
  readonly run: string;
  readonly epoch: number;
  readonly model: string;
  readonly spans: readonly Span[];
  readonly peers: readonly string[];
}

/** Ends a run of the sender: what is kept of it is let go. */
export interface RunCloseRequest {
  readonly run: string;
}

/** Says that a value of a run lies in that folder, with the fields of RUN_VALUE. */
export interface RunLeftRequest {
  readonly run: string;
  readonly epoch: number;
  readonly item: number;
  readonly value: number;
  readonly shape: readonly number[];
  readonly total: number;
  readonly file: string;
}

/** Shows how a running answer grows: `ids` and `text` follow its first `after` tokens. */
export interface LiveRequest {
  readonly conversation: string;
  readonly message: string;
  readonly after: number;
  readonly ids: readonly number[];
  readonly text: string;
  readonly answer: number;
  readonly turn: number;
  readonly spans: readonly number[];
}

/** Shows that somebody writes in a conversation, or has stopped. */
export interface TypingRequest {
  readonly conversation: string;
  readonly typing: boolean;
}

/**
 * Asks to compute one stage at one position again. `before`, `after`: its neighbours, "" for the asker
 * itself.
 */
export interface CheckRequest {
  readonly session: string;
  readonly stage: number;
  readonly position: number;
  readonly units: Span;
  readonly peer: string;
  readonly before: string;
  readonly after: string;
  readonly spans: readonly number[];
  readonly token: number;
  readonly sampling: readonly number[];
  readonly sampled: number;
  readonly also: number;
  readonly pinned: boolean;
}

/** Asks what a stage, or the asker of a session, can show of positions [first, stop). */
export interface WitnessRequest {
  readonly session: string;
  readonly stage: number;
  readonly side: WitnessSide;
  readonly first: number;
  readonly stop: number;
  readonly seen: string;
}

/** Tells the asker that what came to the sender for a position looks wrong. */
export interface OddRequest {
  readonly session: string;
  readonly position: number;
}

/** Has a member measure itself once more. */
export interface MeasureRequest {
  readonly model: string;
}

/** A peer comes into the mesh. What an older one does not say is refused only after its `protocol`. */
export interface JoinRequest {
  readonly name: string;
  readonly compute: boolean;
  readonly protocol: number;
  readonly incarnation: number;
  readonly fresh: boolean;
  readonly epoch: number;
  readonly headless: boolean;
  readonly durable: boolean;
}

/** Tells what the sender measured. `again`: it was asked for that. */
export interface MeasuredRequest {
  readonly command: string;
  readonly again: boolean;
}

/** Tells what the sender holds. */
export interface HeldRequest {
  readonly command: string;
}

/** The sender serves on only while nobody else can. */
export interface DrainRequest {
  readonly why: string;
}

/** The sender stays, but lends nothing. */
export interface PausedRequest {
  readonly why: string;
}

/** A member does not answer the sender. */
export interface SuspectRequest {
  readonly peer: string;
}

/** Asks that a command enters the log, in the name of the sender. */
export interface ProposeRequest {
  readonly command: string;
}

/** What was computed or given for the sender. */
export interface WorkRequest {
  readonly entries: readonly Claim[];
}

// --- on the wire

export const sessionPattern = matching(/^[0-9a-f]{32}$/, 'a session of 16 bytes in hex');
export const leftFilePattern = matching(/^[0-9a-f]{32}$/, 'a file of 16 bytes in hex');
export const conversationPattern = matching(/^[0-9A-Za-z_.:-]{1,64}$/, 'the id of a conversation or message');
export const witnessSideCodec = oneOf<WitnessSide>('tokens', 'sent', 'back', 'place', 'marks', 'match', 'in', 'out', 'token');
export const claimOfCodec = oneOf<ClaimOf>('tokens', 'weights');
export const claimCodec = record<Claim>(
  'Claim',
  {
    session: sessionPattern,
    startedMs: uint,
    peer: text,
    positions: span,
    units: span,
    of: claimOfCodec,
  });
export const relayRequestCodec = record<RelayRequest>(
  'RelayRequest',
  {
    peer: text,
  });
export const waitRequestCodec = record<WaitRequest>(
  'WaitRequest',
  {
    session: sessionPattern,
    plan: upTo(MAX_WAIT_POSITIONS - 1),
    stage: upTo(MAX_WAIT_POSITIONS - 1),
    positions: upTo(MAX_WAIT_POSITIONS - 1),
    tokens: upTo(MAX_WAIT_POSITIONS - 1),
    place: integer,
  }, { since: { place: -1 } });
export const kvDigestRequestCodec = record<KvDigestRequest>(
  'KvDigestRequest',
  {
    session: sessionPattern,
    first: uint,
    stop: uint,
  });
export const kvCopyRequestCodec = record<KvCopyRequest>(
  'KvCopyRequest',
  {
    session: sessionPattern,
    first: uint,
    stop: uint,
    from: uint,
    to: uint,
  });
export const runOpenRequestCodec = record<RunOpenRequest>(
  'RunOpenRequest',
  {
    run: sessionPattern,
    epoch: uint,
    model: text,
    spans: list(span, MAX_RUN_STAGES),
    peers: list(text, MAX_RUN_STAGES),
  });
export const runCloseRequestCodec = record<RunCloseRequest>(
  'RunCloseRequest',
  {
    run: sessionPattern,
  });
export const runLeftRequestCodec = record<RunLeftRequest>(
  'RunLeftRequest',
  {
    run: sessionPattern,
    epoch: uint,
    item: uint,
    value: uint,
    shape: list(uint, MAX_LEFT_RANK),
    total: uint,
    file: leftFilePattern,
  });
export const liveRequestCodec = record<LiveRequest>(
  'LiveRequest',
  {
    conversation: conversationPattern,
    message: conversationPattern,
    after: uint,
    ids: list(uint, MAX_LIVE_IDS),
    text: prose(MAX_LIVE_BYTES),
    answer: uint,
    turn: uint,
    spans: list(uint, MAX_LIVE_SPANS),
  });
export const typingRequestCodec = record<TypingRequest>(
  'TypingRequest',
  {
    conversation: conversationPattern,
    typing: flag,
  });
export const checkRequestCodec = record<CheckRequest>(
  'CheckRequest',
  {
    session: sessionPattern,
    stage: uint,
    position: upTo(MAX_CHECKED_POSITIONS - 1),
    units: span,
    peer: text,
    before: text,
    after: text,
    spans: list(integer, MAX_CHECKED_SPANS),
    token: integer,
    sampling: list(integer, MAX_CHECKED_SETTINGS),
    sampled: uint,
    also: integer,
    pinned: flag,
  }, { since: { also: -1, pinned: false } });
export const witnessRequestCodec = record<WitnessRequest>(
  'WitnessRequest',
  {
    session: sessionPattern,
    stage: uint,
    side: witnessSideCodec,
    first: uint,
    stop: uint,
    seen: text,
  }, { since: { seen: '' } });
export const oddRequestCodec = record<OddRequest>(
  'OddRequest',
  {
    session: sessionPattern,
    position: uint,
  });
export const measureRequestCodec = record<MeasureRequest>(
  'MeasureRequest',
  {
    model: text,
  });
export const joinRequestCodec = record<JoinRequest>(
  'JoinRequest',
  {
    name: text,
    compute: flag,
    protocol: uint,
    incarnation: uint,
    fresh: flag,
    epoch: uint,
    headless: flag,
    durable: flag,
  }, { since: { protocol: 0, incarnation: 0, fresh: false, epoch: 0, headless: false, durable: false } });
export const measuredRequestCodec = record<MeasuredRequest>(
  'MeasuredRequest',
  {
    command: prose(MAX_BODY_BYTES),
    again: flag,
  }, { since: { again: false } });
export const heldRequestCodec = record<HeldRequest>(
  'HeldRequest',
  {
    command: prose(MAX_BODY_BYTES),
  });
export const drainRequestCodec = record<DrainRequest>(
  'DrainRequest',
  {
    why: text,
  }, { since: { why: '' } });
export const pausedRequestCodec = record<PausedRequest>(
  'PausedRequest',
  {
    why: text,
  }, { since: { why: '' } });
export const suspectRequestCodec = record<SuspectRequest>(
  'SuspectRequest',
  {
    peer: text,
  });
export const proposeRequestCodec = record<ProposeRequest>(
  'ProposeRequest',
  {
    command: prose(MAX_BODY_BYTES),
  });
export const workRequestCodec = record<WorkRequest>(
  'WorkRequest',
  {
    entries: list(claimCodec, MAX_CLAIMS),
  });

export const STATUS: RequestKind<null> = {
  method: 'status',
  sender: 'anyone',
  codec: nothing,
};
export const LEADER: RequestKind<null> = {
  method: 'leader',
  sender: 'anyone',
  codec: nothing,
};
export const MEASURE_LINK: RequestKind<null> = {
  method: 'measure_link',
  sender: 'anyone',
  codec: nothing,
};
export const RELAY: RequestKind<RelayRequest> = {
  method: 'relay',
  sender: 'anyone',
  codec: relayRequestCodec,
};
export const WAIT: RequestKind<WaitRequest> = {
  method: 'wait',
  sender: 'anyone',
  codec: waitRequestCodec,
};
export const KV_DIGEST: RequestKind<KvDigestRequest> = {
  method: 'kv_digest',
  sender: 'anyone',
  codec: kvDigestRequestCodec,
};
export const KV_COPY: RequestKind<KvCopyRequest> = {
  method: 'kv_copy',
  sender: 'anyone',
  codec: kvCopyRequestCodec,
};
export const RUN_OPEN: RequestKind<RunOpenRequest> = {
  method: 'run_open',
  sender: 'members',
  codec: runOpenRequestCodec,
};
export const RUN_CLOSE: RequestKind<RunCloseRequest> = {
  method: 'run_close',
  sender: 'members',
  codec: runCloseRequestCodec,
};
export const RUN_FOLDER: RequestKind<null> = {
  method: 'run_folder',
  sender: 'members',
  codec: nothing,
};
export const RUN_LEFT: RequestKind<RunLeftRequest> = {
  method: 'run_left',
  sender: 'members',
  codec: runLeftRequestCodec,
};
export const LIVE: RequestKind<LiveRequest> = {
  method: 'live',
  sender: 'anyone',
  codec: liveRequestCodec,
};
export const TYPING: RequestKind<TypingRequest> = {
  method: 'typing',
  sender: 'anyone',
  codec: typingRequestCodec,
};
export const CHECK: RequestKind<CheckRequest> = {
  method: 'check',
  sender: 'members',
  codec: checkRequestCodec,
};
export const WITNESS: RequestKind<WitnessRequest> = {
  method: 'witness',
  sender: 'members',
  codec: witnessRequestCodec,
};
export const ODD: RequestKind<OddRequest> = {
  method: 'odd',
  sender: 'members',
  codec: oddRequestCodec,
};
export const MEASURE: RequestKind<MeasureRequest> = {
  method: 'measure',
  sender: 'leader',
  codec: measureRequestCodec,
};
export const JOIN: RequestKind<JoinRequest> = {
  method: 'join',
  sender: 'anyone',
  codec: joinRequestCodec,
};
export const MEASURED: RequestKind<MeasuredRequest> = {
  method: 'measured',
  sender: 'members',
  codec: measuredRequestCodec,
};
export const HELD: RequestKind<HeldRequest> = {
  method: 'held',
  sender: 'members',
  codec: heldRequestCodec,
};
export const DRAIN: RequestKind<DrainRequest> = {
  method: 'drain',
  sender: 'members',
  codec: drainRequestCodec,
};
export const PAUSED: RequestKind<PausedRequest> = {
  method: 'paused',
  sender: 'members',
  codec: pausedRequestCodec,
};
export const LEAVING: RequestKind<null> = {
  method: 'leaving',
  sender: 'members',
  codec: nothing,
};
export const LEFT: RequestKind<null> = {
  method: 'left',
  sender: 'anyone',
  codec: nothing,
};
export const SUSPECT: RequestKind<SuspectRequest> = {
  method: 'suspect',
  sender: 'members',
  codec: suspectRequestCodec,
};
export const PROPOSE: RequestKind<ProposeRequest> = {
  method: 'propose',
  sender: 'members',
  codec: proposeRequestCodec,
};
export const WORK: RequestKind<WorkRequest> = {
  method: 'work',
  sender: 'members',
  codec: workRequestCodec,
};

/** What is asked of whoever leads. */
export const LEADER_REQUESTS: readonly RequestKind<unknown>[] = [
  JOIN,
  MEASURED,
  HELD,
  DRAIN,
  PAUSED,
  LEAVING,
  LEFT,
  SUSPECT,
  PROPOSE,
  WORK,
];
