/*
 * What other peers say of themselves now and then, and who works by it. Pure: handed `now`.
 *
 * Counters tell more than states: whoever ran more steps than at its last report has worked since.
 */

const FRESH_S = 5; // a peer that says nothing for so long is taken for idle
const MOST_BREAKERS = 64; // of one report
const MOST_RUNS = 64;
const MOST_COUNT = Number.MAX_SAFE_INTEGER;

/** A peer, or a link "src>dst", that failed or was slow: left alone, or tried again with little. */
export interface Breaker {
  readonly of: string;
  readonly state: 'open' | 'half-open';
}

/** Units [first, stop), and the microseconds that a token takes there. */
export type StepUs = readonly [first: number, stop: number, us: number];

/** One peer's answer to the request "status", as far as the page shows it. */
export interface Report {
  readonly steps: number; // it ran since it came
  readonly active: number; // conversations being answered through it
  readonly sessions: number; // conversations it keeps the cache of
  readonly tokensPerS: number;
  readonly weightBytes: number;
  readonly kvBytes: number;
  readonly rttS: ReadonlyMap<string, number>; // to the peers it is connected to
  readonly stepUs: readonly StepUs[]; // what a token takes at its runs of units
  readonly breakers: readonly Breaker[]; // whom it leaves alone for a while
}

interface Heard {
  readonly report: Report;
  readonly atS: number;
  readonly stepsPerS: number; // between this report and the one before
}

/** `body` as a report. What is missing or no count is 0: another build may say less, and a stranger anything. */
export function reportOf(body: Readonly<Record<string, unknown>>): Report {
  const rtts = body['rtt_us'];
  const pairs = typeof rtts === 'object' && rtts !== null ? Object.entries(rtts) : [];
  return {
    steps: count(body['steps']),
    active: count(body['active']),
    sessions: count(body['sessions']),
    tokensPerS: count(body['tokens_per_s_milli']) / 1000,
    weightBytes: count(body['weight_bytes']),
    kvBytes: count(body['kv_bytes']),
    rttS: new Map(pairs.map(([peer, us]) => [peer, count(us) / 1e6])),
    stepUs: stepsOf(body['step_us']),
    breakers: breakersOf(body['breakers']),
  };
}

function breakersOf(value: unknown): readonly Breaker[] {
  const pairs: readonly unknown[] = Array.isArray(value) ? value.slice(0, MOST_BREAKERS) : [];
  return pairs.flatMap((pair) => {
    const [of, state] = (Array.isArray(pair) ? pair : []) as readonly unknown[];
    return typeof of === 'string' && (state === 'open' || state === 'half-open') ? [{ of, state }] : [];
  });
}

function stepsOf(value: unknown): readonly StepUs[] {
  const runs: readonly unknown[] = Array.isArray(value) ? value.slice(0, MOST_RUNS) : [];
  return runs.flatMap((run) => {
    const [first, stop, us] = (Array.isArray(run) ? run : []).map(count);
    return first === undefined || stop === undefined || us === undefined || us === 0
      ? []
      : [[first, stop, us] as const];
  });
}

function count(value: unknown): number {
  return typeof value === 'number' && value >= 0 && value <= MOST_COUNT ? Math.round(value) : 0;
}

/** The last report of each peer. */
export class Reports {
  private readonly heard = new Map<string, Heard>();

  came(peer: string, report: Report, nowS: number): void {
    const before = this.heard.get(peer);
    const passedS = before === undefined ? 0 : nowS - before.atS;
    const ran = before === undefined ? 0 : report.steps - before.report.steps;
    this.heard.set(peer, { report, atS: nowS, stepsPerS: passedS > 0 && ran > 0 ? ran / passedS : 0 });
  }

  /** Forgets whoever is not among `peers`. */
  keep(peers: ReadonlySet<string>): void {
    for (const peer of this.heard.keys()) {
      if (!peers.has(peer)) this.heard.delete(peer);
    }
  }

  of(peer: string): Report | null {
    return this.heard.get(peer)?.report ?? null;
  }

  /** Steps per second that `peer` ran lately; 0 when it rests or says nothing. */
  stepsPerS(peer: string, nowS: number): number {
    const heard = this.heard.get(peer);
    return heard === undefined || nowS - heard.atS > FRESH_S ? 0 : heard.stepsPerS;
  }

  /** Who worked lately. */
  working(nowS: number): ReadonlySet<string> {
    return new Set([...this.heard.keys()].filter((peer) => this.stepsPerS(peer, nowS) > 0));
  }

  all(): ReadonlyMap<string, Report> {
    return new Map([...this.heard].map(([peer, { report }]) => [peer, report]));
  }
}
