/* Decides which frames exist: what two peers can say to each other (docs/protocol.md, chapter Frames). */

import type { Tensor } from './tensors';

/** Why a TOKEN is the last one, or that it is not. */
export const FINISH = { more: 0, endToken: 1, length: 2 } as const;

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

export interface Ping {
  readonly kind: 'PING';
  readonly nonce: number;
}

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

/** The answer to a REQUEST. status 0 is success; `body` is JSON. */
export interface Response {
  readonly kind: 'RESPONSE';
  readonly id: number;
  readonly status: number;
  readonly message: string;
  readonly body: Uint8Array;
}

/** One message between the Raft cores of two peers (consensus/messages.ts); `body` is msgpack. */
export interface Consensus {
  readonly kind: 'CONSENSUS';
  readonly body: Uint8Array;
}

/** What an OPEN asks its receiver to be for a session: compute and pass on, or keep up behind those that serve. */
export const ROLE = { serve: 0, shadow: 1 } as const;

/**
 * Opens a turn of a session on its receiver, which is stage `stage` of `route`, or shadows it (`role`).
 *
 * An answer may take several turns: `answer` is the first turn of this one, `before` that of the one before it (0:
 * none), of which the first `keep` cached positions still hold. `start` is the first position that is sent unasked.
 * `spans` are counts of positions, by turns given and sampled, that add up to `promptTokens`: given ones are computed
 * together, sampled ones alone. `shadows` stand by for the stages in `shadowStages`, one to one. `history` holds the
 * token ids before the first sampled one, for repetition penalties (payload, int32); the last `generated` of them were
 * sampled in this answer (an answer that goes on).
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

/** `count` positions from `position` on, for stage `stage`: int32 tokens (count,) or float32 states (count, hidden). */
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

/** The sender, at place `stage`, asks for its input from `position` on: of the stage before it, or of the asker. */
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

/** The answer: positions that came in order, positions computed, and steps that the peer ran for anybody so far. */
export interface Here {
  readonly kind: 'HERE';
  readonly session: SessionId;
  readonly turn: number;
  readonly stage: number;
  readonly received: number;
  readonly computed: number;
  readonly steps: number;
}

/** `body`: probabilities, for an asker that wants them: no tab does. */
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

/** Asks for `count` bytes from `offset` on of the piece of weights with this SHA-256, in hex. */
export interface PieceRequest {
  readonly kind: 'PIECE_REQUEST';
  readonly id: number;
  readonly sha256: string;
  readonly offset: number;
  readonly count: number;
}

/** The answer to a PIECE_REQUEST. status 0: `body` is what was asked for; 1: it is not here. */
export interface Piece {
  readonly kind: 'PIECE';
  readonly id: number;
  readonly status: number;
  readonly body: Uint8Array;
}

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
  | PieceRequest
  | Piece
  | Bundle
  | Feed
  | Where
  | Here;

export type Kind = Frame['kind'];
