/*
 * Decides which peer is left alone for a while after failing: circuit breakers (twin of
 * peer/transport/circuit_breakers.py).
 *
 * Pure; whole milliseconds only. A breaker is closed (used), open (left alone until a quiet time has
 * passed since its last fault) or half-open (one probe may find out). Only a success closes it again. Each time it
 * opens soon after it had closed, the quiet time doubles, up to MAX_QUIET_MS: a flapping peer is not chosen until it
 * is quiet. `order` never removes anybody.
 */

export type BreakerState = 'closed' | 'half-open' | 'open';

export const WINDOW_MS = 10_000; // faults older than this are forgotten
const FAILED_WEIGHT = 3;
const TRIP_WEIGHT = 6; // two failures
export const QUIET_MS = 2_000; // the first quiet time
export const MAX_QUIET_MS = 128_000;
export const CALM_MS = 300_000; // closed for so long: the next quiet time is the first one again
export const PROBE_MS = 10_000; // a probe that nobody heard of is given up, and another may go
const MAX_KEYS = 1024;

const RANK: Readonly<Record<BreakerState, number>> = { closed: 0, 'half-open': 1, open: 2 };

interface Fault {
  readonly atMs: number;
  readonly weight: number;
}

/** One key. `openedMs` null: closed. */
interface Breaker {
  faults: Fault[]; // within the window
  openedMs: number | null; // when it opened, or failed last while open
  closedMs: number | null; // when it closed again; null: it never opened
  quietMs: number; // the present quiet time, or the last one
  probeMs: number | null; // since when a probe is under way
}

/** All breakers of one peer's view. `now` is any rising time in whole milliseconds. */
export class Breakers {
  private readonly all = new Map<string, Breaker>();

  // --- asking

  /** How `key` stands. */
  state(key: string, now: number): BreakerState {
    const breaker = this.all.get(key);
    if (breaker === undefined || breaker.openedMs === null) return 'closed';
    return now - breaker.openedMs >= breaker.quietMs ? 'half-open' : 'open';
  }

  /** Whether `key` may be used now: always when closed; half-open, when no probe is under way. */
  allows(key: string, now: number): boolean {
    const state = this.state(key, now);
    if (state !== 'half-open') return state === 'closed';
    const probeMs = this.all.get(key)?.probeMs ?? null;
    return probeMs === null || now - probeMs >= PROBE_MS;
  }

  /** All of `candidates`, the closed first, then those that may be probed, then the others; else as given. */
  order(candidates: Iterable<string>, now: number): string[] {
    const rank = (key: string): number => {
      const state = this.state(key, now);
      return RANK[state === 'half-open' && !this.allows(key, now) ? 'open' : state];
    };
    return [...candidates].sort((a, b) => rank(a) - rank(b));
  }

  /** Every breaker that is not closed, by key. */
  shown(now: number): (readonly [string, BreakerState])[] {
    return [...this.all.keys()]
      .sort()
      .map((key) => [key, this.state(key, now)] as const)
      .filter(([, state]) => state !== 'closed');
  }

  /** When an open breaker turns half-open; null for a closed one. */
  quietUntil(key: string): number | null {
    const breaker = this.all.get(key);
    return breaker === undefined || breaker.openedMs === null ? null : breaker.openedMs + breaker.quietMs;
  }

  // --- what happened

  /** `key` is about to be used: of a half-open one, this is the probe. */
  chosen(key: string, now: number): void {
    const breaker = this.all.get(key);
    if (breaker !== undefined && this.state(key, now) === 'half-open' && this.allows(key, now)) {
      breaker.probeMs = now;
    }
  }

  /** A step, a request or a connection failed. */
  failed(key: string, now: number): void {
    this.fault(key, now, FAILED_WEIGHT);
  }

  /** It is certain that `key` is not there: opens at once. */
  broke(key: string, now: number): void {
    this.fault(key, now, TRIP_WEIGHT);
  }

  /** A step or a probe came out well: closes what is half-open. */
  succeeded(key: string, now: number): void {
    const breaker = this.all.get(key);
    if (breaker === undefined || this.state(key, now) !== 'half-open') return; // while open it must be quiet first
    breaker.openedMs = null;
    breaker.probeMs = null;
    breaker.closedMs = now;
  }

  // --- inner moves

  private breaker(key: string): Breaker {
    const known = this.all.get(key);
    if (known !== undefined) return known;
    if (this.all.size >= MAX_KEYS) this.all.delete(this.leastMissed());
    const made: Breaker = {
      faults: [],
      openedMs: null,
      closedMs: null,
      quietMs: 0,
      probeMs: null,
    };
    this.all.set(key, made);
    return made;
  }

  private leastMissed(): string {
    let oldest = '';
    for (const [key, { openedMs }] of this.all) {
      if (openedMs === null) return key;
      if (oldest === '') oldest = key;
    }
    return oldest;
  }

  private fault(key: string, now: number, weight: number): void {
    const breaker = this.breaker(key);
    const state = this.state(key, now);
    switch (state) {
      case 'closed': {
        const kept = breaker.faults.filter(({ atMs }) => now - atMs < WINDOW_MS);
        breaker.faults = [...kept, { atMs: now, weight }];
        const sum = breaker.faults.reduce((total, each) => total + each.weight, 0);
        if (sum >= TRIP_WEIGHT) open(breaker, now);
        return;
      }
      case 'half-open':
        open(breaker, now);
        return;
      case 'open':
        breaker.openedMs = now;
        return;
      default:
        state satisfies never;
    }
  }
}

function open(breaker: Breaker, now: number): void {
  const { openedMs, closedMs } = breaker;
  const calm = openedMs === null && closedMs !== null && now - closedMs >= CALM_MS;
  const grown = calm || breaker.quietMs === 0 ? QUIET_MS : 2 * breaker.quietMs;
  breaker.quietMs = Math.min(grown, MAX_QUIET_MS);
  breaker.openedMs = now;
  breaker.probeMs = null;
  breaker.faults = [];
}
