/*
 * Decides what an asker acknowledges: which peer computed which positions through which units of its answers (twin of
 * peer/audit/receipts.py).
 *
 * Pure. Only an asker says what was computed for it, and it pays for what it says: a stage that claims work for itself
 * earns nothing, an asker that claims too much pays too much. What was said is repeated until the ledger has it, so a
 * leader that is lost loses nothing, and ranges make counting twice impossible.
 */

import { crc32 } from '../wire/crc32';
import { BadCommand } from '../errors';
import type { Open } from '../wire/generated/frames';
import type { Span } from '../wire/json_codec';
import type { Fairness } from '../state/fairness';
import type { Ledger } from '../state/work_ledger';
import { MAX_ENTRIES, type Work } from '../state/generated/commands';
import { isPinned } from '../session/pinned_ends';
import { type Claim, claimCodec } from '../wire/generated/requests';

const MAX_PENDING = 2048; // claims that wait for a ledger; the oldest make room
const MAX_TRIES = 40; // a claim that never counts, as of a session with too many areas, is given up
const MAX_SESSIONS = 1024; // answers under way
const CREDIT_MILLI = 1000; // for one position through the whole model
const PIECE_MILLI = 50; // for a piece of weights, 4 MiB, that was given to another peer
const SESSION_DIGITS = 24;

interface Way {
  readonly route: readonly string[];
  readonly runs: readonly Span[];
}

interface Answer {
  readonly startedMs: number;
  session: string; // in which its tokens come; it moves to another one with the first token there
  way: Way;
  readonly beside: Map<string, Way>; // by session, to which it may move
  said: number; // positions before are acknowledged, or were cached
  upto: number; // positions before have been computed
}

/** What is known of a turn when it begins: an OPEN for the first stage. */
export type Turn = Pick<Open, 'session' | 'origin' | 'answer' | 'start' | 'route' | 'sampling'>;

/** What this peer has to acknowledge. Answers by the id under which the ledger has them. */
export class Receipts {
  private readonly answers = new Map<string, Answer>();
  private pending = new Map<string, { readonly claim: Claim; tries: number }>();
  private readonly ofSession = new Map<string, string>();

  /**
   * An answer goes over the route of `turn`, whose stages have `runs`; below the `start` of its first turn all was
   * there. A second session, to which the answer may move, counts from its first token on: until then the first one
   * computes.
   */
  opened(nowMs: number, turn: Turn, planned: readonly Span[]): void {
    const runs = computedRuns(turn, planned);
    const key = ledgerSession(turn.session, turn.origin, turn.answer);
    this.ofSession.set(turn.session, key);
    let found = this.answers.get(key);
    if (found === undefined) {
      const way = { route: turn.route, runs };
      const { session, start } = turn;
      found = { startedMs: nowMs, session, way, beside: new Map(), said: start, upto: start };
      this.answers.set(key, found);
    }
    if (turn.session === found.session) {
      this.take(key, found);
      found.way = { route: turn.route, runs };
    } else found.beside.set(turn.session, { route: turn.route, runs });
    for (const [oldest, answer] of this.answers) {
      if (this.answers.size <= MAX_SESSIONS) break;
      this.take(oldest, answer);
      this.answers.delete(oldest);
    }
  }

  /** The token for `position` came: every stage has computed the positions before it. */
  token(session: string, position: number): void {
    const key = this.ofSession.get(session) ?? '';
    const found = this.answers.get(key);
    if (found === undefined) return;
    const way = found.beside.get(session);
    if (way !== undefined) {
      this.take(key, found);
      found.session = session;
      found.way = way;
      found.beside.clear();
    }
    found.upto = Math.max(found.upto, position);
  }

  /** Nothing more comes of the answer under way. */
  ended(session: string): void {
    const key = this.ofSession.get(session) ?? '';
    const found = this.answers.get(key);
    for (const [each, of] of this.ofSession) if (of === key) this.ofSession.delete(each);
    this.answers.delete(key);
    if (found !== undefined) this.take(key, found);
  }

  /** What is to be said now, at most a batch; what the ledger has, or will never have, is forgotten. */
  due(ledger: Ledger, fairness: Fairness): readonly Claim[] {
    for (const [key, found] of this.answers) this.take(key, found);
    this.pending = new Map(
      [...this.pending].filter(
        ([, { claim, tries }]) => tries < MAX_TRIES && isAwaited(ledger, fairness, claim),
      ),
    );
    const batch = [...this.pending.values()].slice(0, MAX_ENTRIES);
    for (const each of batch) each.tries += 1;
    return batch.map(({ claim }) => claim);
  }

  private take(key: string, found: Answer): void {
    const { said, upto, startedMs, way } = found;
    if (upto <= said) return;
    for (const [place, peer] of way.route.entries()) {
      const units = way.runs[place];
      if (units === undefined || units.first === units.stop) continue;
      const positions = { first: said, stop: upto };
      this.keep({ session: key, startedMs, peer, positions, units, of: 'tokens' });
    }
    found.said = upto;
  }

  private keep(claim: Claim): void {
    const key = JSON.stringify(claimCodec.encode(claim));
    if (!this.pending.has(key)) this.pending.set(key, { claim, tries: 0 });
    for (const oldest of this.pending.keys()) {
      if (this.pending.size <= MAX_PENDING) break;
      this.pending.delete(oldest);
    }
  }
}

/**
 * The units that each stage of `turn` computes, of those in its plan: where the asker keeps its ends it computes the
 * first and the last one of the model itself, and owes nobody for them. Empty runs for a stage that has no others.
 */
export function computedRuns(turn: Turn, runs: readonly Span[]): readonly Span[] {
  if (!isPinned(turn)) return runs;
  return runs.map(({ first, stop }, at) => {
    const begin = at === 0 ? first + 1 : first;
    return { first: begin, stop: at === runs.length - 1 ? Math.max(begin, stop - 1) : stop };
  });
}

/**
 * The id under which the ledger has what `asker` asked for from the turn `answer` on: 12 bytes of the session, and the
 * CRC-32 of the rest. So an answer that somebody else goes on with has an id of its own.
 */
export function ledgerSession(session: string, asker: string, answer: number): string {
  const rest = crc32(new TextEncoder().encode(`${asker} ${answer}`))
    .toString(16)
    .padStart(8, '0');
  return session.slice(0, SESSION_DIGITS) + rest;
}

/** Whether the ledger may still take `claim`. */
export function isAwaited(ledger: Ledger, fairness: Fairness, claim: Claim): boolean {
  if (fairness.policy === 'off' || fairness.quarantined.has(claim.peer)) return false;
  const counted = ledger.sessions.get(claim.session);
  if (counted === undefined) return claim.startedMs > ledger.horizonMs;
  if (counted.startedMs !== claim.startedMs) return false;
  return !counted.areas.some(
    ({ units, positions }) =>
      units.first === claim.units.first &&
      units.stop === claim.units.stop &&
      positions.first <= claim.positions.first &&
      claim.positions.stop <= positions.stop,
  );
}

// --- the leader's side

/**
 * What each unit costs beside the others: the median of what peers measured for its kind, in nanoseconds. `tables`: by
 * peer, what one decode token takes through one unit of a kind. The lower of two middle ones.
 */
export function unitCosts(
  kinds: readonly string[],
  tables: readonly ReadonlyMap<string, number>[],
): readonly number[] {
  const median = new Map<string, number>();
  for (const kind of new Set(kinds)) {
    const found = tables.flatMap((table) => table.get(kind) ?? []).sort((a, b) => a - b);
    median.set(kind, Math.max(1, found[Math.floor((found.length - 1) / 2)] ?? 1));
  }
  return kinds.map((kind) => median.get(kind) ?? 1);
}

/** `claim` with its price: a position through the whole model is a credit. Raises BadCommand for no such units. */
export function priced(claim: Claim, asker: string, costs: readonly number[]): Work {
  const { session, startedMs, peer, positions, units, of } = claim;
  const count = positions.stop - positions.first;
  let milli = count * PIECE_MILLI;
  if (of === 'tokens') {
    if (units.stop > costs.length) {
      throw new BadCommand(`work: expected units of the model's ${costs.length}`);
    }
    const sum = (of: readonly number[]): bigint => of.reduce((all, each) => all + BigInt(each), 0n);
    const share = sum(costs.slice(units.first, units.stop));
    milli = Number((BigInt(count * CREDIT_MILLI) * share) / sum(costs));
  }
  return { session, startedMs, peer, asker, positions, units, milli };
}

/** What askers said and the log does not have yet, in the order it came; each once. */
export class Till {
  private readonly waiting = new Map<string, Work>();

  get size(): number {
    return this.waiting.size;
  }

  put(works: readonly Work[]): void {
    for (const work of works) {
      if (this.waiting.size < MAX_PENDING) this.waiting.set(JSON.stringify(work), work);
    }
  }

  /** The next entries for the log. */
  batch(): readonly Work[] {
    const found = [...this.waiting].slice(0, MAX_ENTRIES);
    for (const [key] of found) this.waiting.delete(key);
    return found.map(([, work]) => work);
  }
}
