/*
 * Frames: what two peers say to each other (docs/protocol.md, chapter Frames). Pure.
 *
 * Generated from schema/frames.toml by `make generate`: change that, not this.
 */

import {
  HASH_BYTES,
  MAX_BODY_BYTES,
  MAX_BUNDLE_BYTES,
  MAX_BUNDLE_FRAMES,
  MAX_CONSENSUS_BYTES,
  MAX_END_TOKENS,
  MAX_HISTORY,
  MAX_INT,
  MAX_LIKELY_BYTES,
  MAX_NAME_BYTES,
  MAX_PROBE_BYTES,
  MAX_RANGE_BYTES,
  MAX_ROUTE,
  MAX_SAMPLING,
  MAX_SHADOWS,
  MAX_SPANS,
  MAX_TEAM,
  MAX_TEAM_ROWS,
  MAX_TENSOR_BYTES,
  MAX_TEXT_BYTES,
  MAX_TOKEN,
  MAX_VALUE_RANK,
  SESSION_BYTES,
} from '../../limits';
import { bytesFromHex, hexFromBytes, integer, integers, text, texts } from '../frame_fields';
import type { Decoded, Value } from '../frame_header';
import type { Tensor } from '../tensors';

/** Data channels of a connection. */
export type Channel = 'control' | 'data';

/** The negotiated channel ids. */
export const CHANNEL_IDS: Readonly<Record<Channel, number>> = { control: 1, data: 2 };

/** Why a TOKEN is the last one, or that it is not. */
export const FINISH = { more: 0, endToken: 1, length: 2 } as const;

/**
 * What an OPEN asks its receiver to be for a session: compute and pass on, or keep up behind those that
 * serve.
 */
export const ROLE = { serve: 0, shadow: 1 } as const;

/** What a TEAM_STEP has computed: tokens of one row, one token of each of several rows, or logits. */
export const TEAMWORK = { prompt: 0, decode: 1, head: 2 } as const;

/**
 * What becomes of the rows that members keep: arrays of another size, one row copied to another, rows let
 * go.
 */
export const TEAMKEEP = { grow: 0, move: 1, letGo: 2 } as const;

/** A session's 16 bytes in lower-case hex. */
export type SessionId = string;

/** First frame of each side. `peer` is the sender's peer id, `agent` its software and version. */
export interface Hello {
  readonly kind: 'HELLO';
  readonly protocol: number;
  readonly peer: string;
  readonly name: string;
  readonly agent: string;
}

/** Asks for a PONG of the same nonce. */
export interface Ping {
  readonly kind: 'PING';
  readonly nonce: number;
}

/** The answer to a PING. */
export interface Pong {
  readonly kind: 'PONG';
  readonly nonce: number;
}

/**
 * The last frame a side sends, apart from BYE_ACK. `reason` is for people and logs.
 *
 * `dataBytes` is the total of pieces sent on the data channel: BYE_ACK follows when all of them have come.
 */
export interface Bye {
  readonly kind: 'BYE';
  readonly reason: string;
  readonly dataBytes: number;
}

/** The answer to a BYE. */
export interface ByeAck {
  readonly kind: 'BYE_ACK';
}

/** Its receiver may send `totalBytes` of pieces on `channel`, counted since the connection opened. */
export interface Credit {
  readonly kind: 'CREDIT';
  readonly channel: number;
  readonly totalBytes: number;
}

/** A question to the other peer; `body` is JSON. */
export interface Request {
  readonly kind: 'REQUEST';
  readonly id: number;
  readonly method: string;
  readonly body: Uint8Array;
}

/** The answer to a REQUEST. `status` 0 is success; `body` is JSON. */
export interface Response {
  readonly kind: 'RESPONSE';
  readonly id: number;
  readonly status: number;
  readonly message: string;
  readonly body: Uint8Array;
}

/** One message between the Raft cores of two peers (consensus/messages); `body` is msgpack. */
export interface Consensus {
  readonly kind: 'CONSENSUS';
  readonly body: Uint8Array;
}

/**
 * Opens a turn of a session on its receiver, which is stage `stage` of `route`, or shadows it (`role`).
 *
 * An answer may take several turns: `answer` is the first turn of this one, `before` that of the one before
 * it (0: none), of which the first `keep` cached positions still hold. `start` is the first position that
 * is sent unasked. `spans` are counts of positions, by turns given and sampled, that add up to
 * `promptTokens`: given ones are computed together, sampled ones alone. `shadows` stand by for the stages
 * in `shadowStages`, one to one. `history` holds the token ids before the first sampled one, for repetition
 * penalties (payload, int32); the last `generated` of them were sampled in this answer (an answer that goes
 * on).
 */
export interface Open {
  readonly kind: 'OPEN';
  readonly session: SessionId;
  readonly turn: number;
  readonly plan: number;
  readonly route: readonly string[];
  readonly stage: number;
  readonly origin: string;
  readonly start: number;
  readonly promptTokens: number;
  readonly maxTokens: number;
  readonly sampling: readonly number[];
  readonly endTokens: readonly number[];
  readonly generated: number;
  readonly role: number;
  readonly answer: number;
  readonly before: number;
  readonly keep: number;
  readonly spans: readonly number[];
  readonly shadowStages: readonly number[];
  readonly shadows: readonly string[];
  readonly history: Int32Array;
}

/**
 * `count` positions from `position` on, for stage `stage`: int32 tokens (count,), or with shifts (count,
 * 2), or float32 states (count, hidden).
 */
export interface Step {
  readonly kind: 'STEP';
  readonly session: SessionId;
  readonly turn: number;
  readonly stage: number;
  readonly position: number;
  readonly count: number;
  readonly last: number;
  readonly tensor: Tensor;
}

/** `body`: for an origin that wants them, probabilities (docs/protocol.md, chapter Steering); no tab does. */
export interface Token {
  readonly kind: 'TOKEN';
  readonly session: SessionId;
  readonly turn: number;
  readonly position: number;
  readonly token: number;
  readonly finish: number;
  readonly body?: Uint8Array;
}

/** A step that `stage` could not take; `have` is the number of positions it has cached. */
export interface Refuse {
  readonly kind: 'REFUSE';
  readonly session: SessionId;
  readonly turn: number;
  readonly stage: number;
  readonly position: number;
  readonly have: number;
  readonly reason: number;
  readonly message: string;
}

/** Stops a turn; the first `keep` positions stay cached. */
export interface Cancel {
  readonly kind: 'CANCEL';
  readonly session: SessionId;
  readonly turn: number;
  readonly keep: number;
  readonly reason: string;
}

/** Frees the session's slot. */
export interface Release {
  readonly kind: 'RELEASE';
  readonly session: SessionId;
}

/** Bytes to be counted, to measure a link. */
export interface Probe {
  readonly kind: 'PROBE';
  readonly nonce: number;
  readonly body: Uint8Array;
}

/** The answer to a PROBE: how many bytes came. */
export interface ProbeAck {
  readonly kind: 'PROBE_ACK';
  readonly nonce: number;
  readonly receivedBytes: number;
}

/**
 * Data frames that were made together, to be handled together: their encoded bytes, one after the other.
 *
 * `sizes` are their lengths in order. A bundle holds no bundle.
 */
export interface Bundle {
  readonly kind: 'BUNDLE';
  readonly sizes: readonly number[];
  readonly body: Uint8Array;
}

/**
 * The sender, at place `stage`, asks for its input from `position` on: of the stage before it, or of the
 * origin.
 */
export interface Feed {
  readonly kind: 'FEED';
  readonly session: SessionId;
  readonly turn: number;
  readonly stage: number;
  readonly position: number;
}

/** Asks how far stage `stage` has come. */
export interface Where {
  readonly kind: 'WHERE';
  readonly session: SessionId;
  readonly turn: number;
  readonly stage: number;
}

/**
 * The answer: positions that came in order, positions computed, and steps that the peer ran for anybody so
 * far.
 */
export interface Here {
  readonly kind: 'HERE';
  readonly session: SessionId;
  readonly turn: number;
  readonly stage: number;
  readonly received: number;
  readonly computed: number;
  readonly steps: number;
}

/** Asks for `count` bytes from `offset` on of the piece of weights with this SHA-256. */
export interface PieceRequest {
  readonly kind: 'PIECE_REQUEST';
  readonly id: number;
  readonly sha256: string;
  readonly offset: number;
  readonly count: number;
}

/** The answer to a PIECE_REQUEST. `status` 0: `body` is what was asked for; 1: it is not here. */
export interface Piece {
  readonly kind: 'PIECE';
  readonly id: number;
  readonly status: number;
  readonly body: Uint8Array;
}

/**
 * A part of a value of item `item` of a run, from `offset` on of `total` bytes (chapter Runs). Parts come
 * in order.
 *
 * `value` is its place in the manifest's values, which say its data type; `shape` fits what they say.
 */
export interface RunValue {
  readonly kind: 'RUN_VALUE';
  readonly run: SessionId;
  readonly epoch: number;
  readonly item: number;
  readonly value: number;
  readonly shape: readonly number[];
  readonly offset: number;
  readonly total: number;
  readonly body: Uint8Array;
}

/** All stages of a run have opened `epoch`. Items below `below` are done: what is kept of them is let go. */
export interface RunGo {
  readonly kind: 'RUN_GO';
  readonly run: SessionId;
  readonly epoch: number;
  readonly below: number;
}

/** An item that a stage of the run cannot compute, to the origin; the items beside it go on. */
export interface RunItemFailed {
  readonly kind: 'RUN_ITEM_FAILED';
  readonly run: SessionId;
  readonly epoch: number;
  readonly item: number;
  readonly message: string;
}

/**
 * The lead of a team (chapter Teams) has its members compute: `count` rows of float32 states, which are the
 * payload.
 *
 * `call` rises by one with each TEAM_STEP and TEAM_ROWS of a team. PROMPT: tokens of row `row` from
 * position `lengths[0]` on; DECODE: one token of each of the rows from `row` on, at positions `lengths`;
 * HEAD: logits, without rows.
 */
export interface TeamStep {
  readonly kind: 'TEAM_STEP';
  readonly session: SessionId;
  readonly call: number;
  readonly work: number;
  readonly row: number;
  readonly count: number;
  readonly lengths: readonly number[];
  readonly tensor: Tensor;
}

/**
 * What `member` made of unit `unit` in `call`: its part of the sum, or of the logits; `count` rows of
 * float32.
 */
export interface TeamPart {
  readonly kind: 'TEAM_PART';
  readonly session: SessionId;
  readonly call: number;
  readonly unit: number;
  readonly member: number;
  readonly count: number;
  readonly tensor: Tensor;
}

/**
 * The lead changes the rows that members keep.
 *
 * `numbers`: for GROW how many rows and positions, then how many positions each row has; for MOVE the row,
 * where it goes and how many positions; for LET_GO how many rows stay.
 */
export interface TeamRows {
  readonly kind: 'TEAM_ROWS';
  readonly session: SessionId;
  readonly call: number;
  readonly what: number;
  readonly numbers: readonly number[];
}

/** The team is over for its sender, and why; each member lets go of what it keeps for it. */
export interface TeamEnd {
  readonly kind: 'TEAM_END';
  readonly session: SessionId;
  readonly message: string;
}

export type Frame =
  | Hello
  | Ping
  | Pong
  | Bye
  | ByeAck
  | Credit
  | Request
  | Response
  | Consensus
  | Open
  | Step
  | Token
  | Refuse
  | Cancel
  | Release
  | Probe
  | ProbeAck
  | Bundle
  | Feed
  | Where
  | Here
  | PieceRequest
  | Piece
  | RunValue
  | RunGo
  | RunItemFailed
  | TeamStep
  | TeamPart
  | TeamRows
  | TeamEnd;

export type Kind = Frame['kind'];

/**
 * How one kind is laid out: its number, its channel, how its header is written and read, and what follows the header.
 *
 * `toWire` returns the kind's number and the fields in order; `fromWire` reads `count` fields in order. Both raise
 * WrongField for a value that does not fit.
 */
export interface Layout<F> {
  readonly kind: Kind;
  readonly number: number;
  readonly channel: Channel;
  readonly count: number;
  readonly toWire: (frame: F) => Value[];
  readonly fromWire: (values: readonly Decoded[]) => Omit<F, 'body' | 'history' | 'tensor'>;
  readonly payload: 'none' | 'body' | 'tokens' | 'tensor';
  readonly maxPayloadBytes: number;
}

export const LAYOUTS: { readonly [K in Kind]: Layout<Extract<Frame, { kind: K }>> } = {
  HELLO: {
    kind: 'HELLO',
    number: 1,
    channel: 'control',
    count: 4,
    toWire: (frame) => [
      1,
      integer(frame.protocol, 0, MAX_INT, 'HELLO.protocol'),
      text(frame.peer, MAX_NAME_BYTES, 'HELLO.peer'),
      text(frame.name, MAX_NAME_BYTES, 'HELLO.name'),
      text(frame.agent, MAX_NAME_BYTES, 'HELLO.agent'),
    ],
    fromWire: (values) => ({
      kind: 'HELLO',
      protocol: integer(values[0], 0, MAX_INT, 'HELLO.protocol'),
      peer: text(values[1], MAX_NAME_BYTES, 'HELLO.peer'),
      name: text(values[2], MAX_NAME_BYTES, 'HELLO.name'),
      agent: text(values[3], MAX_NAME_BYTES, 'HELLO.agent'),
    }),
    payload: 'none',
    maxPayloadBytes: 0,
  },
  PING: {
    kind: 'PING',
    number: 2,
    channel: 'control',
    count: 1,
    toWire: (frame) => [
      2,
      integer(frame.nonce, 0, MAX_INT, 'PING.nonce'),
    ],
    fromWire: (values) => ({
      kind: 'PING',
      nonce: integer(values[0], 0, MAX_INT, 'PING.nonce'),
    }),
    payload: 'none',
    maxPayloadBytes: 0,
  },
  PONG: {
    kind: 'PONG',
    number: 3,
    channel: 'control',
    count: 1,
    toWire: (frame) => [
      3,
      integer(frame.nonce, 0, MAX_INT, 'PONG.nonce'),
    ],
    fromWire: (values) => ({
      kind: 'PONG',
      nonce: integer(values[0], 0, MAX_INT, 'PONG.nonce'),
    }),
    payload: 'none',
    maxPayloadBytes: 0,
  },
  BYE: {
    kind: 'BYE',
    number: 4,
    channel: 'control',
    count: 2,
    toWire: (frame) => [
      4,
      text(frame.reason, MAX_TEXT_BYTES, 'BYE.reason'),
      integer(frame.dataBytes, 0, MAX_INT, 'BYE.dataBytes'),
    ],
    fromWire: (values) => ({
      kind: 'BYE',
      reason: text(values[0], MAX_TEXT_BYTES, 'BYE.reason'),
      dataBytes: integer(values[1], 0, MAX_INT, 'BYE.dataBytes'),
    }),
    payload: 'none',
    maxPayloadBytes: 0,
  },
  BYE_ACK: {
    kind: 'BYE_ACK',
    number: 5,
    channel: 'control',
    count: 0,
    toWire: () => [5],
    fromWire: () => ({ kind: 'BYE_ACK' }),
    payload: 'none',
    maxPayloadBytes: 0,
  },
  CREDIT: {
    kind: 'CREDIT',
    number: 6,
    channel: 'control',
    count: 2,
    toWire: (frame) => [
      6,
      integer(frame.channel, 2, 2, 'CREDIT.channel'),
      integer(frame.totalBytes, 0, MAX_INT, 'CREDIT.totalBytes'),
    ],
    fromWire: (values) => ({
      kind: 'CREDIT',
      channel: integer(values[0], 2, 2, 'CREDIT.channel'),
      totalBytes: integer(values[1], 0, MAX_INT, 'CREDIT.totalBytes'),
    }),
    payload: 'none',
    maxPayloadBytes: 0,
  },
  REQUEST: {
    kind: 'REQUEST',
    number: 16,
    channel: 'control',
    count: 2,
    toWire: (frame) => [
      16,
      integer(frame.id, 0, MAX_INT, 'REQUEST.id'),
      text(frame.method, MAX_NAME_BYTES, 'REQUEST.method'),
    ],
    fromWire: (values) => ({
      kind: 'REQUEST',
      id: integer(values[0], 0, MAX_INT, 'REQUEST.id'),
      method: text(values[1], MAX_NAME_BYTES, 'REQUEST.method'),
    }),
    payload: 'body',
    maxPayloadBytes: MAX_BODY_BYTES,
  },
  RESPONSE: {
    kind: 'RESPONSE',
    number: 17,
    channel: 'control',
    count: 3,
    toWire: (frame) => [
      17,
      integer(frame.id, 0, MAX_INT, 'RESPONSE.id'),
      integer(frame.status, 0, 65535, 'RESPONSE.status'),
      text(frame.message, MAX_TEXT_BYTES, 'RESPONSE.message'),
    ],
    fromWire: (values) => ({
      kind: 'RESPONSE',
      id: integer(values[0], 0, MAX_INT, 'RESPONSE.id'),
      status: integer(values[1], 0, 65535, 'RESPONSE.status'),
      message: text(values[2], MAX_TEXT_BYTES, 'RESPONSE.message'),
    }),
    payload: 'body',
    maxPayloadBytes: MAX_BODY_BYTES,
  },
  CONSENSUS: {
    kind: 'CONSENSUS',
    number: 20,
    channel: 'control',
    count: 0,
    toWire: () => [20],
    fromWire: () => ({ kind: 'CONSENSUS' }),
    payload: 'body',
    maxPayloadBytes: MAX_CONSENSUS_BYTES,
  },
  OPEN: {
    kind: 'OPEN',
    number: 32,
    channel: 'data',
    count: 19,
    toWire: (frame) => [
      32,
      bytesFromHex(frame.session, SESSION_BYTES, 'OPEN.session'),
      integer(frame.turn, 0, MAX_INT, 'OPEN.turn'),
      integer(frame.plan, 0, MAX_INT, 'OPEN.plan'),
      texts(frame.route, MAX_ROUTE, MAX_NAME_BYTES, 'OPEN.route'),
      integer(frame.stage, 0, MAX_ROUTE - 1, 'OPEN.stage'),
      text(frame.origin, MAX_NAME_BYTES, 'OPEN.origin'),
      integer(frame.start, 0, MAX_INT, 'OPEN.start'),
      integer(frame.promptTokens, 0, MAX_INT, 'OPEN.promptTokens'),
      integer(frame.maxTokens, 0, MAX_INT, 'OPEN.maxTokens'),
      integers(frame.sampling, MAX_SAMPLING, -MAX_INT, MAX_INT, 'OPEN.sampling'),
      integers(frame.endTokens, MAX_END_TOKENS, 0, MAX_TOKEN, 'OPEN.endTokens'),
      integer(frame.generated, 0, MAX_HISTORY, 'OPEN.generated'),
      integer(frame.role, 0, 1, 'OPEN.role'),
      integer(frame.answer, 0, MAX_INT, 'OPEN.answer'),
      integer(frame.before, 0, MAX_INT, 'OPEN.before'),
      integer(frame.keep, 0, MAX_INT, 'OPEN.keep'),
      integers(frame.spans, MAX_SPANS, 0, MAX_INT, 'OPEN.spans'),
      integers(frame.shadowStages, MAX_SHADOWS, 0, MAX_ROUTE - 1, 'OPEN.shadowStages'),
      texts(frame.shadows, MAX_SHADOWS, MAX_NAME_BYTES, 'OPEN.shadows'),
    ],
    fromWire: (values) => ({
      kind: 'OPEN',
      session: hexFromBytes(values[0], SESSION_BYTES, 'OPEN.session'),
      turn: integer(values[1], 0, MAX_INT, 'OPEN.turn'),
      plan: integer(values[2], 0, MAX_INT, 'OPEN.plan'),
      route: texts(values[3], MAX_ROUTE, MAX_NAME_BYTES, 'OPEN.route'),
      stage: integer(values[4], 0, MAX_ROUTE - 1, 'OPEN.stage'),
      origin: text(values[5], MAX_NAME_BYTES, 'OPEN.origin'),
      start: integer(values[6], 0, MAX_INT, 'OPEN.start'),
      promptTokens: integer(values[7], 0, MAX_INT, 'OPEN.promptTokens'),
      maxTokens: integer(values[8], 0, MAX_INT, 'OPEN.maxTokens'),
      sampling: integers(values[9], MAX_SAMPLING, -MAX_INT, MAX_INT, 'OPEN.sampling'),
      endTokens: integers(values[10], MAX_END_TOKENS, 0, MAX_TOKEN, 'OPEN.endTokens'),
      generated: integer(values[11], 0, MAX_HISTORY, 'OPEN.generated'),
      role: integer(values[12], 0, 1, 'OPEN.role'),
      answer: integer(values[13], 0, MAX_INT, 'OPEN.answer'),
      before: integer(values[14], 0, MAX_INT, 'OPEN.before'),
      keep: integer(values[15], 0, MAX_INT, 'OPEN.keep'),
      spans: integers(values[16], MAX_SPANS, 0, MAX_INT, 'OPEN.spans'),
      shadowStages: integers(values[17], MAX_SHADOWS, 0, MAX_ROUTE - 1, 'OPEN.shadowStages'),
      shadows: texts(values[18], MAX_SHADOWS, MAX_NAME_BYTES, 'OPEN.shadows'),
    }),
    payload: 'tokens',
    maxPayloadBytes: MAX_HISTORY * 4,
  },
  STEP: {
    kind: 'STEP',
    number: 33,
    channel: 'data',
    count: 6,
    toWire: (frame) => [
      33,
      bytesFromHex(frame.session, SESSION_BYTES, 'STEP.session'),
      integer(frame.turn, 0, MAX_INT, 'STEP.turn'),
      integer(frame.stage, 0, MAX_ROUTE - 1, 'STEP.stage'),
      integer(frame.position, 0, MAX_INT, 'STEP.position'),
      integer(frame.count, 1, MAX_TOKEN, 'STEP.count'),
      integer(frame.last, 0, 1, 'STEP.last'),
    ],
    fromWire: (values) => ({
      kind: 'STEP',
      session: hexFromBytes(values[0], SESSION_BYTES, 'STEP.session'),
      turn: integer(values[1], 0, MAX_INT, 'STEP.turn'),
      stage: integer(values[2], 0, MAX_ROUTE - 1, 'STEP.stage'),
      position: integer(values[3], 0, MAX_INT, 'STEP.position'),
      count: integer(values[4], 1, MAX_TOKEN, 'STEP.count'),
      last: integer(values[5], 0, 1, 'STEP.last'),
    }),
    payload: 'tensor',
    maxPayloadBytes: MAX_TENSOR_BYTES,
  },
  TOKEN: {
    kind: 'TOKEN',
    number: 34,
    channel: 'data',
    count: 5,
    toWire: (frame) => [
      34,
      bytesFromHex(frame.session, SESSION_BYTES, 'TOKEN.session'),
      integer(frame.turn, 0, MAX_INT, 'TOKEN.turn'),
      integer(frame.position, 0, MAX_INT, 'TOKEN.position'),
      integer(frame.token, 0, MAX_TOKEN, 'TOKEN.token'),
      integer(frame.finish, 0, 2, 'TOKEN.finish'),
    ],
    fromWire: (values) => ({
      kind: 'TOKEN',
      session: hexFromBytes(values[0], SESSION_BYTES, 'TOKEN.session'),
      turn: integer(values[1], 0, MAX_INT, 'TOKEN.turn'),
      position: integer(values[2], 0, MAX_INT, 'TOKEN.position'),
      token: integer(values[3], 0, MAX_TOKEN, 'TOKEN.token'),
      finish: integer(values[4], 0, 2, 'TOKEN.finish'),
    }),
    payload: 'body',
    maxPayloadBytes: MAX_LIKELY_BYTES,
  },
  REFUSE: {
    kind: 'REFUSE',
    number: 35,
    channel: 'data',
    count: 7,
    toWire: (frame) => [
      35,
      bytesFromHex(frame.session, SESSION_BYTES, 'REFUSE.session'),
      integer(frame.turn, 0, MAX_INT, 'REFUSE.turn'),
      integer(frame.stage, 0, MAX_ROUTE - 1, 'REFUSE.stage'),
      integer(frame.position, 0, MAX_INT, 'REFUSE.position'),
      integer(frame.have, 0, MAX_INT, 'REFUSE.have'),
      integer(frame.reason, 0, 255, 'REFUSE.reason'),
      text(frame.message, MAX_TEXT_BYTES, 'REFUSE.message'),
    ],
    fromWire: (values) => ({
      kind: 'REFUSE',
      session: hexFromBytes(values[0], SESSION_BYTES, 'REFUSE.session'),
      turn: integer(values[1], 0, MAX_INT, 'REFUSE.turn'),
      stage: integer(values[2], 0, MAX_ROUTE - 1, 'REFUSE.stage'),
      position: integer(values[3], 0, MAX_INT, 'REFUSE.position'),
      have: integer(values[4], 0, MAX_INT, 'REFUSE.have'),
      reason: integer(values[5], 0, 255, 'REFUSE.reason'),
      message: text(values[6], MAX_TEXT_BYTES, 'REFUSE.message'),
    }),
    payload: 'none',
    maxPayloadBytes: 0,
  },
  CANCEL: {
    kind: 'CANCEL',
    number: 36,
    channel: 'data',
    count: 4,
    toWire: (frame) => [
      36,
      bytesFromHex(frame.session, SESSION_BYTES, 'CANCEL.session'),
      integer(frame.turn, 0, MAX_INT, 'CANCEL.turn'),
      integer(frame.keep, 0, MAX_INT, 'CANCEL.keep'),
      text(frame.reason, MAX_TEXT_BYTES, 'CANCEL.reason'),
    ],
    fromWire: (values) => ({
      kind: 'CANCEL',
      session: hexFromBytes(values[0], SESSION_BYTES, 'CANCEL.session'),
      turn: integer(values[1], 0, MAX_INT, 'CANCEL.turn'),
      keep: integer(values[2], 0, MAX_INT, 'CANCEL.keep'),
      reason: text(values[3], MAX_TEXT_BYTES, 'CANCEL.reason'),
    }),
    payload: 'none',
    maxPayloadBytes: 0,
  },
  RELEASE: {
    kind: 'RELEASE',
    number: 37,
    channel: 'data',
    count: 1,
    toWire: (frame) => [
      37,
      bytesFromHex(frame.session, SESSION_BYTES, 'RELEASE.session'),
    ],
    fromWire: (values) => ({
      kind: 'RELEASE',
      session: hexFromBytes(values[0], SESSION_BYTES, 'RELEASE.session'),
    }),
    payload: 'none',
    maxPayloadBytes: 0,
  },
  PROBE: {
    kind: 'PROBE',
    number: 38,
    channel: 'data',
    count: 1,
    toWire: (frame) => [
      38,
      integer(frame.nonce, 0, MAX_INT, 'PROBE.nonce'),
    ],
    fromWire: (values) => ({
      kind: 'PROBE',
      nonce: integer(values[0], 0, MAX_INT, 'PROBE.nonce'),
    }),
    payload: 'body',
    maxPayloadBytes: MAX_PROBE_BYTES,
  },
  PROBE_ACK: {
    kind: 'PROBE_ACK',
    number: 39,
    channel: 'data',
    count: 2,
    toWire: (frame) => [
      39,
      integer(frame.nonce, 0, MAX_INT, 'PROBE_ACK.nonce'),
      integer(frame.receivedBytes, 0, MAX_INT, 'PROBE_ACK.receivedBytes'),
    ],
    fromWire: (values) => ({
      kind: 'PROBE_ACK',
      nonce: integer(values[0], 0, MAX_INT, 'PROBE_ACK.nonce'),
      receivedBytes: integer(values[1], 0, MAX_INT, 'PROBE_ACK.receivedBytes'),
    }),
    payload: 'none',
    maxPayloadBytes: 0,
  },
  BUNDLE: {
    kind: 'BUNDLE',
    number: 40,
    channel: 'data',
    count: 1,
    toWire: (frame) => [
      40,
      integers(frame.sizes, MAX_BUNDLE_FRAMES, 1, MAX_INT, 'BUNDLE.sizes'),
    ],
    fromWire: (values) => ({
      kind: 'BUNDLE',
      sizes: integers(values[0], MAX_BUNDLE_FRAMES, 1, MAX_INT, 'BUNDLE.sizes'),
    }),
    payload: 'body',
    maxPayloadBytes: MAX_BUNDLE_BYTES,
  },
  FEED: {
    kind: 'FEED',
    number: 41,
    channel: 'data',
    count: 4,
    toWire: (frame) => [
      41,
      bytesFromHex(frame.session, SESSION_BYTES, 'FEED.session'),
      integer(frame.turn, 0, MAX_INT, 'FEED.turn'),
      integer(frame.stage, 0, MAX_ROUTE - 1, 'FEED.stage'),
      integer(frame.position, 0, MAX_INT, 'FEED.position'),
    ],
    fromWire: (values) => ({
      kind: 'FEED',
      session: hexFromBytes(values[0], SESSION_BYTES, 'FEED.session'),
      turn: integer(values[1], 0, MAX_INT, 'FEED.turn'),
      stage: integer(values[2], 0, MAX_ROUTE - 1, 'FEED.stage'),
      position: integer(values[3], 0, MAX_INT, 'FEED.position'),
    }),
    payload: 'none',
    maxPayloadBytes: 0,
  },
  WHERE: {
    kind: 'WHERE',
    number: 42,
    channel: 'data',
    count: 3,
    toWire: (frame) => [
      42,
      bytesFromHex(frame.session, SESSION_BYTES, 'WHERE.session'),
      integer(frame.turn, 0, MAX_INT, 'WHERE.turn'),
      integer(frame.stage, 0, MAX_ROUTE - 1, 'WHERE.stage'),
    ],
    fromWire: (values) => ({
      kind: 'WHERE',
      session: hexFromBytes(values[0], SESSION_BYTES, 'WHERE.session'),
      turn: integer(values[1], 0, MAX_INT, 'WHERE.turn'),
      stage: integer(values[2], 0, MAX_ROUTE - 1, 'WHERE.stage'),
    }),
    payload: 'none',
    maxPayloadBytes: 0,
  },
  HERE: {
    kind: 'HERE',
    number: 43,
    channel: 'data',
    count: 6,
    toWire: (frame) => [
      43,
      bytesFromHex(frame.session, SESSION_BYTES, 'HERE.session'),
      integer(frame.turn, 0, MAX_INT, 'HERE.turn'),
      integer(frame.stage, 0, MAX_ROUTE - 1, 'HERE.stage'),
      integer(frame.received, 0, MAX_INT, 'HERE.received'),
      integer(frame.computed, 0, MAX_INT, 'HERE.computed'),
      integer(frame.steps, 0, MAX_INT, 'HERE.steps'),
    ],
    fromWire: (values) => ({
      kind: 'HERE',
      session: hexFromBytes(values[0], SESSION_BYTES, 'HERE.session'),
      turn: integer(values[1], 0, MAX_INT, 'HERE.turn'),
      stage: integer(values[2], 0, MAX_ROUTE - 1, 'HERE.stage'),
      received: integer(values[3], 0, MAX_INT, 'HERE.received'),
      computed: integer(values[4], 0, MAX_INT, 'HERE.computed'),
      steps: integer(values[5], 0, MAX_INT, 'HERE.steps'),
    }),
    payload: 'none',
    maxPayloadBytes: 0,
  },
  PIECE_REQUEST: {
    kind: 'PIECE_REQUEST',
    number: 48,
    channel: 'data',
    count: 4,
    toWire: (frame) => [
      48,
      integer(frame.id, 0, MAX_INT, 'PIECE_REQUEST.id'),
      bytesFromHex(frame.sha256, HASH_BYTES, 'PIECE_REQUEST.sha256'),
      integer(frame.offset, 0, MAX_INT, 'PIECE_REQUEST.offset'),
      integer(frame.count, 1, MAX_RANGE_BYTES, 'PIECE_REQUEST.count'),
    ],
    fromWire: (values) => ({
      kind: 'PIECE_REQUEST',
      id: integer(values[0], 0, MAX_INT, 'PIECE_REQUEST.id'),
      sha256: hexFromBytes(values[1], HASH_BYTES, 'PIECE_REQUEST.sha256'),
      offset: integer(values[2], 0, MAX_INT, 'PIECE_REQUEST.offset'),
      count: integer(values[3], 1, MAX_RANGE_BYTES, 'PIECE_REQUEST.count'),
    }),
    payload: 'none',
    maxPayloadBytes: 0,
  },
  PIECE: {
    kind: 'PIECE',
    number: 49,
    channel: 'data',
    count: 2,
    toWire: (frame) => [
      49,
      integer(frame.id, 0, MAX_INT, 'PIECE.id'),
      integer(frame.status, 0, 1, 'PIECE.status'),
    ],
    fromWire: (values) => ({
      kind: 'PIECE',
      id: integer(values[0], 0, MAX_INT, 'PIECE.id'),
      status: integer(values[1], 0, 1, 'PIECE.status'),
    }),
    payload: 'body',
    maxPayloadBytes: MAX_RANGE_BYTES,
  },
  RUN_VALUE: {
    kind: 'RUN_VALUE',
    number: 56,
    channel: 'data',
    count: 7,
    toWire: (frame) => [
      56,
      bytesFromHex(frame.run, SESSION_BYTES, 'RUN_VALUE.run'),
      integer(frame.epoch, 0, MAX_INT, 'RUN_VALUE.epoch'),
      integer(frame.item, 0, MAX_INT, 'RUN_VALUE.item'),
      integer(frame.value, 0, MAX_INT, 'RUN_VALUE.value'),
      integers(frame.shape, MAX_VALUE_RANK, 0, MAX_INT, 'RUN_VALUE.shape'),
      integer(frame.offset, 0, MAX_INT, 'RUN_VALUE.offset'),
      integer(frame.total, 0, MAX_INT, 'RUN_VALUE.total'),
    ],
    fromWire: (values) => ({
      kind: 'RUN_VALUE',
      run: hexFromBytes(values[0], SESSION_BYTES, 'RUN_VALUE.run'),
      epoch: integer(values[1], 0, MAX_INT, 'RUN_VALUE.epoch'),
      item: integer(values[2], 0, MAX_INT, 'RUN_VALUE.item'),
      value: integer(values[3], 0, MAX_INT, 'RUN_VALUE.value'),
      shape: integers(values[4], MAX_VALUE_RANK, 0, MAX_INT, 'RUN_VALUE.shape'),
      offset: integer(values[5], 0, MAX_INT, 'RUN_VALUE.offset'),
      total: integer(values[6], 0, MAX_INT, 'RUN_VALUE.total'),
    }),
    payload: 'body',
    maxPayloadBytes: MAX_RANGE_BYTES,
  },
  RUN_GO: {
    kind: 'RUN_GO',
    number: 57,
    channel: 'data',
    count: 3,
    toWire: (frame) => [
      57,
      bytesFromHex(frame.run, SESSION_BYTES, 'RUN_GO.run'),
      integer(frame.epoch, 0, MAX_INT, 'RUN_GO.epoch'),
      integer(frame.below, 0, MAX_INT, 'RUN_GO.below'),
    ],
    fromWire: (values) => ({
      kind: 'RUN_GO',
      run: hexFromBytes(values[0], SESSION_BYTES, 'RUN_GO.run'),
      epoch: integer(values[1], 0, MAX_INT, 'RUN_GO.epoch'),
      below: integer(values[2], 0, MAX_INT, 'RUN_GO.below'),
    }),
    payload: 'none',
    maxPayloadBytes: 0,
  },
  RUN_ITEM_FAILED: {
    kind: 'RUN_ITEM_FAILED',
    number: 58,
    channel: 'data',
    count: 4,
    toWire: (frame) => [
      58,
      bytesFromHex(frame.run, SESSION_BYTES, 'RUN_ITEM_FAILED.run'),
      integer(frame.epoch, 0, MAX_INT, 'RUN_ITEM_FAILED.epoch'),
      integer(frame.item, 0, MAX_INT, 'RUN_ITEM_FAILED.item'),
      text(frame.message, MAX_TEXT_BYTES, 'RUN_ITEM_FAILED.message'),
    ],
    fromWire: (values) => ({
      kind: 'RUN_ITEM_FAILED',
      run: hexFromBytes(values[0], SESSION_BYTES, 'RUN_ITEM_FAILED.run'),
      epoch: integer(values[1], 0, MAX_INT, 'RUN_ITEM_FAILED.epoch'),
      item: integer(values[2], 0, MAX_INT, 'RUN_ITEM_FAILED.item'),
      message: text(values[3], MAX_TEXT_BYTES, 'RUN_ITEM_FAILED.message'),
    }),
    payload: 'none',
    maxPayloadBytes: 0,
  },
  TEAM_STEP: {
    kind: 'TEAM_STEP',
    number: 64,
    channel: 'data',
    count: 6,
    toWire: (frame) => [
      64,
      bytesFromHex(frame.session, SESSION_BYTES, 'TEAM_STEP.session'),
      integer(frame.call, 0, MAX_INT, 'TEAM_STEP.call'),
      integer(frame.work, 0, 2, 'TEAM_STEP.work'),
      integer(frame.row, 0, MAX_INT, 'TEAM_STEP.row'),
      integer(frame.count, 1, MAX_TOKEN, 'TEAM_STEP.count'),
      integers(frame.lengths, MAX_TEAM_ROWS, 0, MAX_INT, 'TEAM_STEP.lengths'),
    ],
    fromWire: (values) => ({
      kind: 'TEAM_STEP',
      session: hexFromBytes(values[0], SESSION_BYTES, 'TEAM_STEP.session'),
      call: integer(values[1], 0, MAX_INT, 'TEAM_STEP.call'),
      work: integer(values[2], 0, 2, 'TEAM_STEP.work'),
      row: integer(values[3], 0, MAX_INT, 'TEAM_STEP.row'),
      count: integer(values[4], 1, MAX_TOKEN, 'TEAM_STEP.count'),
      lengths: integers(values[5], MAX_TEAM_ROWS, 0, MAX_INT, 'TEAM_STEP.lengths'),
    }),
    payload: 'tensor',
    maxPayloadBytes: MAX_TENSOR_BYTES,
  },
  TEAM_PART: {
    kind: 'TEAM_PART',
    number: 65,
    channel: 'data',
    count: 5,
    toWire: (frame) => [
      65,
      bytesFromHex(frame.session, SESSION_BYTES, 'TEAM_PART.session'),
      integer(frame.call, 0, MAX_INT, 'TEAM_PART.call'),
      integer(frame.unit, 0, MAX_INT, 'TEAM_PART.unit'),
      integer(frame.member, 0, MAX_TEAM - 1, 'TEAM_PART.member'),
      integer(frame.count, 1, MAX_TOKEN, 'TEAM_PART.count'),
    ],
    fromWire: (values) => ({
      kind: 'TEAM_PART',
      session: hexFromBytes(values[0], SESSION_BYTES, 'TEAM_PART.session'),
      call: integer(values[1], 0, MAX_INT, 'TEAM_PART.call'),
      unit: integer(values[2], 0, MAX_INT, 'TEAM_PART.unit'),
      member: integer(values[3], 0, MAX_TEAM - 1, 'TEAM_PART.member'),
      count: integer(values[4], 1, MAX_TOKEN, 'TEAM_PART.count'),
    }),
    payload: 'tensor',
    maxPayloadBytes: MAX_TENSOR_BYTES,
  },
  TEAM_ROWS: {
    kind: 'TEAM_ROWS',
    number: 66,
    channel: 'data',
    count: 4,
    toWire: (frame) => [
      66,
      bytesFromHex(frame.session, SESSION_BYTES, 'TEAM_ROWS.session'),
      integer(frame.call, 0, MAX_INT, 'TEAM_ROWS.call'),
      integer(frame.what, 0, 2, 'TEAM_ROWS.what'),
      integers(frame.numbers, MAX_TEAM_ROWS, 0, MAX_INT, 'TEAM_ROWS.numbers'),
    ],
    fromWire: (values) => ({
      kind: 'TEAM_ROWS',
      session: hexFromBytes(values[0], SESSION_BYTES, 'TEAM_ROWS.session'),
      call: integer(values[1], 0, MAX_INT, 'TEAM_ROWS.call'),
      what: integer(values[2], 0, 2, 'TEAM_ROWS.what'),
      numbers: integers(values[3], MAX_TEAM_ROWS, 0, MAX_INT, 'TEAM_ROWS.numbers'),
    }),
    payload: 'none',
    maxPayloadBytes: 0,
  },
  TEAM_END: {
    kind: 'TEAM_END',
    number: 67,
    channel: 'data',
    count: 2,
    toWire: (frame) => [
      67,
      bytesFromHex(frame.session, SESSION_BYTES, 'TEAM_END.session'),
      text(frame.message, MAX_TEXT_BYTES, 'TEAM_END.message'),
    ],
    fromWire: (values) => ({
      kind: 'TEAM_END',
      session: hexFromBytes(values[0], SESSION_BYTES, 'TEAM_END.session'),
      message: text(values[1], MAX_TEXT_BYTES, 'TEAM_END.message'),
    }),
    payload: 'none',
    maxPayloadBytes: 0,
  },
};

/** Kinds that belong to the session that they name. */
export const OF_SESSION: ReadonlySet<Kind> = new Set<Kind>([
  'OPEN',
  'STEP',
  'TOKEN',
  'REFUSE',
  'CANCEL',
  'RELEASE',
  'FEED',
  'WHERE',
  'HERE',
  'TEAM_STEP',
  'TEAM_PART',
  'TEAM_ROWS',
  'TEAM_END',
]);
