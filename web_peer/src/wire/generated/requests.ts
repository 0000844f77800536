/*
 * What peers ask of one another by REQUEST (docs/protocol.md, chapter Mesh state). Pure.
 *
 * Generated from schema/requests.toml by `make generate`: change that, not this.
 */

import { MAX_BODY_BYTES, MAX_ENTRY_BYTES, MAX_TEAM } from '../../limits';
import {
  type Codec,
  exactly,
  flag,
  integer,
  list,
  matching,
  maybe,
  oneOf,
  prose,
  record,
  span,
  table,
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
export const MAX_RELAY_HOSTS = 4; // addresses of a peer that hands on for two others
export const MAX_HELD_BYTES = 160 * 1024; // of a UnitsHeld or DecoderHeld
export const MAX_REPORTED = 1024; // runs, round trips, breakers and the like in what a peer says of itself
export const MAX_VOTERS_TOLD = 256;

export type WitnessSide = 'tokens' | 'sent' | 'back' | 'place' | 'marks' | 'match' | 'in' | 'out' | 'token';
export type ClaimOf = 'tokens' | 'weights';
export type CheckVerdict = 'same' | 'differs' | 'disputed' | 'unable';

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

/** What a peer caches of one session by one run of units: at `have` positions; `arrays`: the hash of each. */
export interface CachedRun {
  readonly run: Span;
  readonly have: number;
  readonly arrays: ReadonlyMap<string, string>;
}

/** How many checks of steps came to which verdict. */
export interface CheckCounts {
  readonly same: number;
  readonly differs: number;
  readonly disputed: number;
  readonly unable: number;
}

/**
 * What a peer says of checks: those `made` here, those it `got` for its own answers, those without
 * computing anew.
 */
export interface CheckReport {
  readonly made: CheckCounts;
  readonly got: CheckCounts;
  readonly kept: number;
  readonly positions: number;
  readonly worstPpm: number;
}

/** Calls that keep the promise of equal bits: rows of a call as least, multiple and most; where prompts end. */
export interface CallForm {
  readonly body: readonly number[];
  readonly head: readonly number[];
  readonly ends: number; // calls of prompts end at a multiple of it; 0: tokens of prompts are computed one at a time
}

// --- requests and their answers

/** What a peer says of itself. Counts that are missing are those of another kind of peer. */
export interface StatusAnswer {
  readonly name: string;
  readonly agent: string;
  readonly runs: readonly Span[];
  readonly rssBytes: number;
  readonly weightBytes: number;
  readonly kvBytes: number;
  readonly pledgeBytes: number;
  readonly sessions: number;
  readonly active: number;
  readonly steps: number;
  readonly tokens: number;
  readonly tokensPerSMilli: number;
  readonly rttUs: ReadonlyMap<string, number>;
  readonly stepUs: readonly (readonly number[])[];
  readonly tasks?: number | null;
  readonly replayedBytes: number | null;
  readonly term?: number | null;
  readonly commit?: number | null;
  readonly applied?: number | null;
  readonly logBytes: number | null;
  readonly takenOver: number | null;
  readonly copied: number | null;
  readonly breakers: readonly (readonly string[])[];
  readonly fresh?: readonly string[];
  readonly checks: CheckReport | null;
}

/** Who leads, "" if nobody is known to. `epoch` 0: the peer is in no mesh yet. */
export interface LeaderAnswer {
  readonly leader: string;
  readonly term: number;
  readonly epoch: number;
  readonly voters: readonly string[];
}

/** One way of a link as it was measured. `relayed` null: that side cannot tell. */
export interface MeasureLinkAnswer {
  readonly rttUs: number;
  readonly bytesPerS: number;
  readonly overheadUs: number;
  readonly relayed?: boolean | null;
}

/** Asks a third peer for a way to `peer`. */
export interface RelayRequest {
  readonly peer: string;
}

/** Addresses of a peer that hands on, and its ports for the asker (`mine`) and the other one (`theirs`). */
export interface RelayAnswer {
  readonly hosts: readonly string[];
  readonly mine: number;
  readonly theirs: number;
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

/** Where the asker stands: 0 is called, -1 may not wait, and `why`. `waitMs` -1: nobody can say. */
export interface WaitAnswer {
  readonly place: number;
  readonly waitMs: number;
  readonly why?: string;
}

/** Asks for digests of what a peer caches of a session of the sender at positions [first, stop). */
export interface KvDigestRequest {
  readonly session: string;
  readonly first: number;
  readonly stop: number;
}

/** Digests of what is cached, run by run. */
export interface KvDigestAnswer {
  readonly runs: readonly CachedRun[];
}

/** Asks for a copy of what a peer caches of a session in its run [from, to), of units [first, stop). */
export interface KvCopyRequest {
  readonly session: string;
  readonly first: number;
  readonly stop: number;
  readonly from: number;
  readonly to: number;
}

/** How many positions are cached, and the SHA-256 of the copy, "" where nothing is. */
export interface KvCopyAnswer {
  readonly have: number;
  readonly sha256: string;
}

/**
 * Asks a helper of a team that the sender leads for the form of calls that its slice of units [first, stop)
 * needs.
 */
export interface TeamFormRequest {
  readonly first: number;
  readonly stop: number;
  readonly place: number;
  readonly shares: readonly number[];
}

/** The form that was proven at the helper. */
export interface TeamFormAnswer {
  readonly form: CallForm;
}

/**
 * Has a helper compute with its slice of units [first, stop) for the sender, in `form`: a team, until
 * either ends it.
 */
export interface TeamOpenRequest {
  readonly session: string;
  readonly first: number;
  readonly stop: number;
  readonly place: number;
  readonly shares: readonly number[];
  readonly members: readonly string[];
  readonly form: CallForm;
}

/** Asks a member of a team that the sender is in whether it is there, as one that the sender waits for. */
export interface TeamHereRequest {
  readonly session: string;
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

/** Where the sender may leave values. */
export interface RunFolderAnswer {
  readonly folder: string;
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

/** What computing it again showed. */
export interface CheckAnswer {
  readonly verdict: CheckVerdict;
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

/** What a peer can show: of `side` its own field or fields. Null: it has that no more. */
export interface WitnessAnswer {
  readonly tokens?: readonly number[] | null;
  readonly rows?: string | null;
  readonly marks?: string | null;
  readonly token?: number | null;
  readonly same?: boolean | null;
  readonly units?: Span | null;
  readonly before?: string | null;
  readonly after?: string | null;
  readonly spans?: readonly number[] | null;
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

/** Whether it measured itself. `busy`: another try may be worth it soon. */
export interface MeasureAnswer {
  readonly measured: boolean;
  readonly busy: boolean;
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

/** Up to which entry the log is to be known before the sender takes part. */
export interface JoinAnswer {
  readonly index: number;
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
export const copiedPattern = matching(/^([0-9a-f]{64})?$/, 'a SHA-256 in hex, or nothing');
export const marksPattern = matching(/^([0-9a-f]{16})*$/, 'marks of 8 bytes in hex');
export const conversationPattern = matching(/^[0-9A-Za-z_.:-]{1,64}$/, 'the id of a conversation or message');
export const witnessSideCodec = oneOf<WitnessSide>('tokens', 'sent', 'back', 'place', 'marks', 'match', 'in', 'out', 'token');
export const claimOfCodec = oneOf<ClaimOf>('tokens', 'weights');
export const checkVerdictCodec = oneOf<CheckVerdict>('same', 'differs', 'disputed', 'unable');
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
export const cachedRunCodec = record<CachedRun>(
  'CachedRun',
  {
    run: span,
    have: uint,
    arrays: table(text),
  });
export const checkCountsCodec = record<CheckCounts>(
  'CheckCounts',
  {
    same: uint,
    differs: uint,
    disputed: uint,
    unable: uint,
  });
export const checkReportCodec = record<CheckReport>(
  'CheckReport',
  {
    made: checkCountsCodec,
    got: checkCountsCodec,
    kept: uint,
    positions: uint,
    worstPpm: uint,
  });
export const callFormCodec = record<CallForm>(
  'CallForm',
  {
    body: exactly(uint, 3),
    head: exactly(uint, 3),
    ends: uint,
  });
export const statusAnswerCodec = record<Required<StatusAnswer>>(
  'StatusAnswer',
  {
    name: text,
    agent: text,
    runs: list(span, MAX_REPORTED),
    rssBytes: uint,
    weightBytes: uint,
    kvBytes: uint,
    pledgeBytes: uint,
    sessions: uint,
    active: uint,
    steps: uint,
    tokens: uint,
    tokensPerSMilli: uint,
    rttUs: table(uint, MAX_REPORTED),
    stepUs: list(exactly(uint, 3), MAX_REPORTED),
    tasks: maybe(uint),
    replayedBytes: maybe(uint),
    term: maybe(uint),
    commit: maybe(uint),
    applied: maybe(uint),
    logBytes: maybe(uint),
    takenOver: maybe(uint),
    copied: maybe(uint),
    breakers: list(exactly(text, 2), MAX_REPORTED),
    fresh: list(text, MAX_REPORTED),
    checks: maybe(checkReportCodec),
  }, { since: { stepUs: [], tasks: null, replayedBytes: null, term: null, commit: null, applied: null, logBytes: null, takenOver: null, copied: null, breakers: [], fresh: [], checks: null }, omit: ['tasks', 'replayedBytes', 'term', 'commit', 'applied', 'logBytes', 'takenOver', 'copied', 'fresh', 'checks'] }) as Codec<StatusAnswer>;
export const leaderAnswerCodec = record<LeaderAnswer>(
  'LeaderAnswer',
  {
    leader: text,
    term: uint,
    epoch: uint,
    voters: list(text, MAX_VOTERS_TOLD),
  });
export const measureLinkAnswerCodec = record<Required<MeasureLinkAnswer>>(
  'MeasureLinkAnswer',
  {
    rttUs: uint,
    bytesPerS: uint,
    overheadUs: uint,
    relayed: maybe(flag),
  }, { since: { overheadUs: 0, relayed: null }, omit: ['relayed'] }) as Codec<MeasureLinkAnswer>;
export const relayRequestCodec = record<RelayRequest>(
  'RelayRequest',
  {
    peer: text,
  });
export const relayAnswerCodec = record<RelayAnswer>(
  'RelayAnswer',
  {
    hosts: list(text, MAX_RELAY_HOSTS),
    mine: upTo(65535),
    theirs: upTo(65535),
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
export const waitAnswerCodec = record<Required<WaitAnswer>>(
  'WaitAnswer',
  {
    place: integer,
    waitMs: integer,
    why: text,
  }, { since: { waitMs: -1, why: '' }, omit: ['why'] }) as Codec<WaitAnswer>;
export const kvDigestRequestCodec = record<KvDigestRequest>(
  'KvDigestRequest',
  {
    session: sessionPattern,
    first: uint,
    stop: uint,
  });
export const kvDigestAnswerCodec = record<KvDigestAnswer>(
  'KvDigestAnswer',
  {
    runs: list(cachedRunCodec),
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
export const kvCopyAnswerCodec = record<KvCopyAnswer>(
  'KvCopyAnswer',
  {
    have: uint,
    sha256: copiedPattern,
  });
export const teamFormRequestCodec = record<TeamFormRequest>(
  'TeamFormRequest',
  {
    first: uint,
    stop: uint,
    place: uint,
    shares: list(uint, MAX_TEAM),
  });
export const teamFormAnswerCodec = record<TeamFormAnswer>(
  'TeamFormAnswer',
  {
    form: callFormCodec,
  });
export const teamOpenRequestCodec = record<TeamOpenRequest>(
  'TeamOpenRequest',
  {
    session: sessionPattern,
    first: uint,
    stop: uint,
    place: uint,
    shares: list(uint, MAX_TEAM),
    members: list(text, MAX_TEAM),
    form: callFormCodec,
  });
export const teamHereRequestCodec = record<TeamHereRequest>(
  'TeamHereRequest',
  {
    session: sessionPattern,
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
export const runFolderAnswerCodec = record<RunFolderAnswer>(
  'RunFolderAnswer',
  {
    folder: text,
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
export const checkAnswerCodec = record<CheckAnswer>(
  'CheckAnswer',
  {
    verdict: checkVerdictCodec,
  });
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
export const witnessAnswerCodec = record<Required<WitnessAnswer>>(
  'WitnessAnswer',
  {
    tokens: maybe(list(integer, MAX_CHECKED_POSITIONS)),
    rows: maybe(prose(MAX_BODY_BYTES)),
    marks: maybe(marksPattern),
    token: maybe(uint),
    same: maybe(flag),
    units: maybe(span),
    before: maybe(text),
    after: maybe(text),
    spans: maybe(list(integer, MAX_CHECKED_SPANS)),
  }, { since: { tokens: null, rows: null, marks: null, token: null, same: null, units: null, before: null, after: null, spans: null }, omit: ['tokens', 'rows', 'marks', 'token', 'same', 'units', 'before', 'after', 'spans'] }) as Codec<WitnessAnswer>;
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
export const measureAnswerCodec = record<MeasureAnswer>(
  'MeasureAnswer',
  {
    measured: flag,
    busy: flag,
  }, { since: { busy: false } });
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
export const joinAnswerCodec = record<JoinAnswer>(
  'JoinAnswer',
  {
    index: uint,
  });
export const measuredRequestCodec = record<MeasuredRequest>(
  'MeasuredRequest',
  {
    command: prose(MAX_ENTRY_BYTES),
    again: flag,
  }, { since: { again: false } });
export const heldRequestCodec = record<HeldRequest>(
  'HeldRequest',
  {
    command: prose(MAX_HELD_BYTES),
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
    command: prose(MAX_ENTRY_BYTES),
  });
export const workRequestCodec = record<WorkRequest>(
  'WorkRequest',
  {
    entries: list(claimCodec, MAX_CLAIMS),
  });

export const STATUS: RequestKind<null, StatusAnswer> = {
  method: 'status',
  sender: 'anyone',
  codec: nothing,
  maxBodyBytes: 2048,
  answer: statusAnswerCodec,
  maxAnswerBytes: 524288,
};
export const LEADER: RequestKind<null, LeaderAnswer> = {
  method: 'leader',
  sender: 'anyone',
  codec: nothing,
  maxBodyBytes: 2048,
  answer: leaderAnswerCodec,
  maxAnswerBytes: 65536,
};
export const MEASURE_LINK: RequestKind<null, MeasureLinkAnswer> = {
  method: 'measure_link',
  sender: 'anyone',
  codec: nothing,
  maxBodyBytes: 2048,
  answer: measureLinkAnswerCodec,
  maxAnswerBytes: 2048,
};
export const RELAY: RequestKind<RelayRequest, RelayAnswer> = {
  method: 'relay',
  sender: 'anyone',
  codec: relayRequestCodec,
  maxBodyBytes: 8192,
  answer: relayAnswerCodec,
  maxAnswerBytes: 26624,
};
export const WAIT: RequestKind<WaitRequest, WaitAnswer> = {
  method: 'wait',
  sender: 'anyone',
  codec: waitRequestCodec,
  maxBodyBytes: 2048,
  answer: waitAnswerCodec,
  maxAnswerBytes: 8192,
};
export const KV_DIGEST: RequestKind<KvDigestRequest, KvDigestAnswer> = {
  method: 'kv_digest',
  sender: 'anyone',
  codec: kvDigestRequestCodec,
  maxBodyBytes: 2048,
  answer: kvDigestAnswerCodec,
  maxAnswerBytes: 262144,
};
export const KV_COPY: RequestKind<KvCopyRequest, KvCopyAnswer> = {
  method: 'kv_copy',
  sender: 'anyone',
  codec: kvCopyRequestCodec,
  maxBodyBytes: 2048,
  answer: kvCopyAnswerCodec,
  maxAnswerBytes: 2048,
};
export const TEAM_FORM: RequestKind<TeamFormRequest, TeamFormAnswer> = {
  method: 'team_form',
  sender: 'members',
  codec: teamFormRequestCodec,
  maxBodyBytes: 2048,
  answer: teamFormAnswerCodec,
  maxAnswerBytes: 2048,
};
export const TEAM_OPEN: RequestKind<TeamOpenRequest, null> = {
  method: 'team_open',
  sender: 'members',
  codec: teamOpenRequestCodec,
  maxBodyBytes: 8192,
  answer: nothing,
  maxAnswerBytes: 2048,
};
export const TEAM_HERE: RequestKind<TeamHereRequest, null> = {
  method: 'team_here',
  sender: 'members',
  codec: teamHereRequestCodec,
  maxBodyBytes: 2048,
  answer: nothing,
  maxAnswerBytes: 2048,
};
export const RUN_OPEN: RequestKind<RunOpenRequest, null> = {
  method: 'run_open',
  sender: 'members',
  codec: runOpenRequestCodec,
  maxBodyBytes: 65536,
  answer: nothing,
  maxAnswerBytes: 2048,
};
export const RUN_CLOSE: RequestKind<RunCloseRequest, null> = {
  method: 'run_close',
  sender: 'members',
  codec: runCloseRequestCodec,
  maxBodyBytes: 2048,
  answer: nothing,
  maxAnswerBytes: 2048,
};
export const RUN_FOLDER: RequestKind<null, RunFolderAnswer> = {
  method: 'run_folder',
  sender: 'members',
  codec: nothing,
  maxBodyBytes: 2048,
  answer: runFolderAnswerCodec,
  maxAnswerBytes: 8192,
};
export const RUN_LEFT: RequestKind<RunLeftRequest, null> = {
  method: 'run_left',
  sender: 'members',
  codec: runLeftRequestCodec,
  maxBodyBytes: 2048,
  answer: nothing,
  maxAnswerBytes: 2048,
};
export const LIVE: RequestKind<LiveRequest, null> = {
  method: 'live',
  sender: 'anyone',
  codec: liveRequestCodec,
  maxBodyBytes: 482304,
  answer: nothing,
  maxAnswerBytes: 2048,
};
export const TYPING: RequestKind<TypingRequest, null> = {
  method: 'typing',
  sender: 'anyone',
  codec: typingRequestCodec,
  maxBodyBytes: 2048,
  answer: nothing,
  maxAnswerBytes: 2048,
};
export const CHECK: RequestKind<CheckRequest, CheckAnswer> = {
  method: 'check',
  sender: 'members',
  codec: checkRequestCodec,
  maxBodyBytes: 29696,
  answer: checkAnswerCodec,
  maxAnswerBytes: 2048,
};
export const WITNESS: RequestKind<WitnessRequest, WitnessAnswer> = {
  method: 'witness',
  sender: 'members',
  codec: witnessRequestCodec,
  maxBodyBytes: 8192,
  answer: witnessAnswerCodec,
  maxAnswerBytes: 1032192,
};
export const ODD: RequestKind<OddRequest, null> = {
  method: 'odd',
  sender: 'members',
  codec: oddRequestCodec,
  maxBodyBytes: 2048,
  answer: nothing,
  maxAnswerBytes: 2048,
};
export const MEASURE: RequestKind<MeasureRequest, MeasureAnswer> = {
  method: 'measure',
  sender: 'leader',
  codec: measureRequestCodec,
  maxBodyBytes: 8192,
  answer: measureAnswerCodec,
  maxAnswerBytes: 2048,
};
export const JOIN: RequestKind<JoinRequest, JoinAnswer> = {
  method: 'join',
  sender: 'anyone',
  codec: joinRequestCodec,
  maxBodyBytes: 8192,
  answer: joinAnswerCodec,
  maxAnswerBytes: 2048,
};
export const MEASURED: RequestKind<MeasuredRequest, null> = {
  method: 'measured',
  sender: 'members',
  codec: measuredRequestCodec,
  maxBodyBytes: 525312,
  answer: nothing,
  maxAnswerBytes: 2048,
};
export const HELD: RequestKind<HeldRequest, null> = {
  method: 'held',
  sender: 'members',
  codec: heldRequestCodec,
  maxBodyBytes: 196608,
  answer: nothing,
  maxAnswerBytes: 2048,
};
export const DRAIN: RequestKind<DrainRequest, null> = {
  method: 'drain',
  sender: 'members',
  codec: drainRequestCodec,
  maxBodyBytes: 8192,
  answer: nothing,
  maxAnswerBytes: 2048,
};
export const PAUSED: RequestKind<PausedRequest, null> = {
  method: 'paused',
  sender: 'members',
  codec: pausedRequestCodec,
  maxBodyBytes: 8192,
  answer: nothing,
  maxAnswerBytes: 2048,
};
export const LEAVING: RequestKind<null, null> = {
  method: 'leaving',
  sender: 'members',
  codec: nothing,
  maxBodyBytes: 2048,
  answer: nothing,
  maxAnswerBytes: 2048,
};
export const LEFT: RequestKind<null, null> = {
  method: 'left',
  sender: 'anyone',
  codec: nothing,
  maxBodyBytes: 2048,
  answer: nothing,
  maxAnswerBytes: 2048,
};
export const SUSPECT: RequestKind<SuspectRequest, null> = {
  method: 'suspect',
  sender: 'members',
  codec: suspectRequestCodec,
  maxBodyBytes: 8192,
  answer: nothing,
  maxAnswerBytes: 2048,
};
export const PROPOSE: RequestKind<ProposeRequest, null> = {
  method: 'propose',
  sender: 'members',
  codec: proposeRequestCodec,
  maxBodyBytes: 787456,
  answer: nothing,
  maxAnswerBytes: 2048,
};
export const WORK: RequestKind<WorkRequest, null> = {
  method: 'work',
  sender: 'members',
  codec: workRequestCodec,
  maxBodyBytes: 131072,
  answer: nothing,
  maxAnswerBytes: 2048,
};

/** What is asked of whoever leads. */
export const LEADER_REQUESTS: readonly RequestKind<unknown, unknown>[] = [
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
