/*
 * Decides how a running answer moves to the route of another plan, at a token and without a pause (twin of
 * peer/session/migration.py). Pure.
 *
 * A second session computes on the new route what was said so far (it *warms*), while the first goes on. When it is as
 * far, it samples as well (they *race*); with its first token that is abreast, the answer is its, and the first session
 * is released. Until then, whatever goes wrong on the new route ends the second session and nothing else:
 *
 *     warming ──computed all but the last tokens──▶ racing ──its token is abreast──▶ taken
 *        └──────────── refused, lost, too late ────────┴──▶ given up
 */

import { type OriginEffect, send } from './effects';
import type { Here, Open, Refuse, SessionId, Step, Token } from '../wire/generated/frames';
import { membersOf, type Route } from './routes';

const WARM_WITHIN_S = 120; // a route that needs longer is given up; the old one still serves then
const RACE_WITHIN_S = 5; // from being asked for a token to a token
const LOOK_S = 0.1; // between two questions how far it is
const NEAR_TOKENS = 4; // as many may be lacking when it is asked to sample: they are computed one behind the other
const ABREAST_TOKENS = 1; // its token may be so many behind the newest one
const MAX_PUSHES = 2; // times that it is given what it lacks when it races too far behind; then the first one stops
const LONG_S = 2; // after which more may be lacking: a busy machine lets it come no nearer
const FAR_TOKENS = 24;
const MAX_TRIES = 3; // of one route
const TRY_AGAIN_S = 2; // after the first try that failed; longer after the second
const NO_TOKENS = 0; // `maxTokens` of an OPEN that only warms
const LEAST_TOKENS = 4; // of an answer: for fewer nothing moves
const ID_DIGITS = 8; // in hex, of a session's id: they count how often its answers moved

/** What follows from what was heard of the second session. */
export type Verdict =
  | 'nothing'
  | 'race' // it is to sample from the newest token on
  | 'take' // the answer is its
  | 'jump' // the answer is its, and waits for what it lacks
  | 'give up';

/** The id of the session that goes on where `session` was: its last digits count. */
export function nextId(session: SessionId): SessionId {
  const count = (Number.parseInt(session.slice(-ID_DIGITS), 16) + 1) % 16 ** ID_DIGITS;
  return session.slice(0, -ID_DIGITS) + count.toString(16).padStart(ID_DIGITS, '0');
}

/** One try to move an answer to `route`, in a session of its own. */
export class Move {
  readonly session: SessionId;
  readonly route: Route;
  turn: number;
  phase: 'warming' | 'racing' = 'warming';
  readonly tails = new Map<number, string>(); // who samples, by racing turn
  due: number;
  private readonly long: number;
  private until: number;
  private pushes = 0;
  private readonly computed = new Map<number, number>(); // positions, by stage

  constructor(session: SessionId, turn: number, route: Route, now: number) {
    this.session = session;
    this.turn = turn;
    this.route = route;
    this.due = now + LOOK_S;
    this.long = now + LONG_S;
    this.until = now + WARM_WITHIN_S;
  }

  /** Everybody who may have a seat for it. */
  get peers(): ReadonlySet<string> {
    return membersOf(this.route);
  }

  /** `steps` of the first session, for this one. */
  sends(steps: readonly Step[]): OriginEffect[] {
    const [first = ''] = this.route.peers;
    return this.own(steps).map((step) => send(first, step));
  }

  /** The same steps for this session. */
  own(steps: readonly Step[]): Step[] {
    const { session, turn } = this;
    return steps.map((step) => ({ ...step, session, turn }));
  }

  /** The same OPEN for this session. */
  owned(opening: Open): Open {
    return { ...opening, session: this.session, turn: this.turn };
  }

  /** It was asked to sample in `turn`. */
  race(now: number, turn: number): void {
    if (this.phase === 'warming') {
      this.phase = 'racing';
      this.until = now + RACE_WITHIN_S;
    }
    this.turn = turn;
    this.tails.set(turn, this.route.peers.at(-1) ?? '');
    this.due = this.until;
  }

  /** Time has passed: asks the stages where they are; null: it takes too long. */
  look(now: number): OriginEffect[] | null {
    if (now >= this.until) return null;
    if (now < this.due || this.phase !== 'warming') return [];
    this.due = now + LOOK_S;
    const { session, turn } = this;
    return this.route.peers.map((peer, stage) => send(peer, { kind: 'WHERE', session, turn, stage }));
  }

  /** `known`: tokens that the answer has. */
  heard(now: number, sender: string, frame: Token | Refuse | Here, known: number): Verdict {
    const { peers } = this.route;
    switch (frame.kind) {
      case 'HERE': {
        const isExpected = frame.turn === this.turn && sender === peers[frame.stage];
        if (!isExpected || this.phase !== 'warming') return 'nothing';
        this.computed.set(frame.stage, frame.computed);
        const near = known - 1 - (now < this.long ? NEAR_TOKENS : FAR_TOKENS);
        return peers.every((_, stage) => (this.computed.get(stage) ?? 0) >= near) ? 'race' : 'nothing';
      }
      case 'TOKEN':
        if (sender !== this.tails.get(frame.turn)) return 'nothing';
        if (frame.position >= known - ABREAST_TOKENS) return 'take';
        if (frame.turn !== this.turn) return 'nothing'; // it was pushed on since
        if (this.pushes >= MAX_PUSHES) return 'jump';
        this.pushes += 1;
        return 'race';
      case 'REFUSE':
        return frame.turn === this.turn && peers.includes(sender) ? 'give up' : 'nothing';
      default:
        return frame satisfies never;
    }
  }

  /** Frees its seats on everybody but those who are `gone`. */
  released(gone: ReadonlySet<string>): OriginEffect[] {
    return [...this.peers]
      .filter((peer) => !gone.has(peer))
      .sort()
      .map((peer) => send(peer, { kind: 'RELEASE', session: this.session }));
  }
}

/** Where the answers of one session move, and the move under way. */
export class Moves {
  now: Move | null = null;
  target: Route | null = null; // where the answer moves with its next token after `targetAt`
  private targetAt = 0;
  private tries = 0;
  private lastId: SessionId;

  constructor(session: SessionId) {
    this.lastId = session;
  }

  /** Where the second session goes, while there is one. */
  get way(): { session: SessionId; tails: ReadonlyMap<number, string>; peers: readonly string[] } | null {
    const move = this.now;
    return move === null ? null : { session: move.session, tails: move.tails, peers: move.route.peers };
  }

  /** Another plan serves: the answer moves to `route` from its next token on; null: it stays. */
  to(now: number, route: Route | null, gone: ReadonlySet<string>): OriginEffect[] {
    const stays = this.stay(gone);
    this.target = route;
    this.targetAt = now;
    this.tries = 0;
    return stays;
  }

  /** Another answer begins, which goes over the newest plan. */
  anew(): void {
    this.target = null;
    this.tries = 0;
  }

  /** The move that begins now, of an answer in `turn` that may get `left` more tokens; null where there is none. */
  begin(now: number, turn: number, left: number): Move | null {
    const route = this.target;
    if (route === null || now < this.targetAt || left < LEAST_TOKENS) return null;
    this.target = null;
    this.lastId = nextId(this.lastId);
    return (this.now = new Move(this.lastId, turn + 1, route, now));
  }

  /** The answer is `move`'s. */
  taken(): void {
    this.now = this.target = null;
  }

  /** Gives the second session up; another try follows when there is something to hope for. */
  stay(gone: ReadonlySet<string>, failedAt: number | null = null): OriginEffect[] {
    const move = this.now;
    this.now = null;
    if (move === null) return [];
    this.tries += 1;
    if (failedAt !== null && this.tries < MAX_TRIES) {
      this.target = move.route;
      this.targetAt = failedAt + TRY_AGAIN_S;
    }
    return move.released(gone);
  }

  /** Time has passed. */
  look(now: number, gone: ReadonlySet<string>): OriginEffect[] {
    return this.now === null ? [] : (this.now.look(now) ?? this.stay(gone, now));
  }
}

/** The OPEN that has `move` warm, of the one that its answer over `current` would be opened with now. */
export function warming(
  move: Move,
  opening: Open,
  current: Route | null,
  left: number,
  spans: readonly number[],
): Open {
  const shadows = current?.peers ?? [];
  return {
    ...move.owned(opening),
    promptTokens: opening.promptTokens + left,
    maxTokens: NO_TOKENS,
    spans,
    before: current?.plan ?? 0, // whose caches may be copied
    shadowStages: shadows.map((_, stage) => stage),
    shadows,
    history: new Int32Array(),
  };
}
