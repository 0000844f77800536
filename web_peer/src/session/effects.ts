/*
 * What the cores of sessions and stages want done, and what they are told of steps that ran (twin of
 * peer/session/effects.py).
 */

import type { Frame, SessionId } from '../wire/generated/frames';
import type { Run } from '../state/plan_record';
import type { Sampling } from './sampling';

/** Why a stage refused, and its number in REFUSE frames. */
export const REASONS = {
  missing_position: 1,
  context_overflow: 2,
  no_slot: 3,
  not_finite_input: 4,
  not_finite_output: 5,
  failed: 6,
  unknown_plan: 7,
  unknown_session: 8,
  lost_neighbour: 9,
  leaving: 10,
  bad_step: 11,
} as const;
export type Reason = keyof typeof REASONS;

const REASON_OF: ReadonlyMap<number, Reason> = new Map(
  Object.entries(REASONS).map(([name, number]) => [number, name as Reason]),
);

/** The reason with that number; one that this build does not know counts as `failed`. */
export function reasonOf(number: number): Reason {
  return REASON_OF.get(number) ?? 'failed';
}

/** Hand `frame` to `peer`, which may be this peer itself. */
export interface Send {
  readonly kind: 'send';
  readonly peer: string;
  readonly frame: Frame;
}

/** Hand `frame` to `peer`, which shadows a stage: when there is room, with others, or never. */
export interface Spare {
  readonly kind: 'spare';
  readonly peer: string;
  readonly frame: Frame;
}

/** A frame for a peer. */
export function send(peer: string, frame: Frame): Send {
  return { kind: 'send', peer, frame };
}

/** A frame for a standby, which waits while the link has no room. */
export function spare(peer: string, frame: Frame): Spare {
  return { kind: 'spare', peer, frame };
}

/** Show `token`, sampled for `position`. */
export interface Emit {
  readonly kind: 'emit';
  readonly token: number;
  readonly position: number;
}

/** The turn is over: "end" (an end token), "length", or "cancelled". */
export interface Ended {
  readonly kind: 'ended';
  readonly why: string;
}

/** The turn failed; `text` says what happened and what to do. */
export interface Broken {
  readonly kind: 'broken';
  readonly text: string;
  readonly reason: Reason;
}

/**
 * This session wants a route without the peers in `gone`, and rather without those in `avoid`; call `reroute`.
 *
 * `soon`: not at once, since a stage has not heard of the plan yet.
 */
export interface FindRoute {
  readonly kind: 'findRoute';
  readonly gone: ReadonlySet<string>;
  readonly avoid: ReadonlySet<string>;
  readonly soon: boolean;
}

/** `peer` does not answer, or does not come on: others should know. */
export interface Suspect {
  readonly kind: 'suspect';
  readonly peer: string;
  readonly why: string;
}

export type OriginEffect = Send | Spare | Emit | Ended | Broken | FindRoute | Suspect;

/** How the head's logits become the token for `position`: plain values, since the runtime is a worker. */
export interface Pick {
  readonly sampling: Sampling;
  readonly position: number;
  readonly history: Int32Array;
  readonly generated: number; // of `history`, the last so many were sampled in this answer
  readonly allowed?: readonly number[]; // tokens that may be drawn, as a mask; left out: every token
}

/** Submit to the runtime of units `run`. With `pick`, the worker turns the head's logits into a token. */
export interface RunStep {
  readonly kind: 'runStep';
  readonly run: Run;
  readonly session: SessionId;
  readonly epoch: number; // comes back with the result
  readonly position: number;
  readonly tokens: Int32Array | null; // (T,) for the run that begins with the embedding
  readonly hidden: Float32Array | null; // (T, hidden) otherwise
  readonly count: number; // T
  readonly last: boolean;
  readonly pick: Pick | null;
  readonly prompt: boolean; // the tokens were given, not sampled
  /** Of a decode batch: the first stage sends its sessions off in as many groups as there are stages. 0: no bound. */
  readonly mostRows: number;
  readonly behind: boolean; // nobody waits for it: it runs when nothing else does
  readonly shift: number; // by how much places of `tokens` differ from their positions
}

/** The runtime of `run` forgets `session`. */
export interface FreeSlot {
  readonly kind: 'freeSlot';
  readonly run: Run;
  readonly session: SessionId;
}

/**
 * The runtime of `run` copies the cache of `session`'s first `count` positions to keep it as `digest`, begins `session`
 * with a copy of it ("share"), or gives it up ("drop").
 */
export interface PrefixWork {
  readonly kind: 'prefixWork';
  readonly what: 'keep' | 'share' | 'drop';
  readonly run: Run;
  readonly session: SessionId;
  readonly digest: string;
  readonly count: number;
}

/** For the transaction log: what happened to a session at `stage` here. */
export interface Note {
  readonly what: 'opened' | 'taken over' | 'closed';
  readonly session: SessionId;
  readonly stage: number;
}

export type StageEffect = Send | Spare | RunStep | FreeSlot | PrefixWork;

/**
 * A finished step, as the runtime reports it. `hidden` (count, width) to pass on, or the sampled `token` at the tail.
 */
export interface Ran {
  readonly run: Run;
  readonly session: SessionId;
  readonly epoch: number;
  readonly position: number;
  readonly count: number;
  readonly hidden: Float32Array | null;
  readonly token: number | null;
}

/** A step that the runtime refused. `have`: positions that its cache holds. */
export interface NotRan {
  readonly run: Run;
  readonly session: SessionId;
  readonly epoch: number;
  readonly position: number;
  readonly have: number;
  readonly reason: Reason;
  readonly text: string;
}
