/*
 * What other peers say of themselves now and then, and who works by it. Pure: handed `now`.
 *
 * Counters tell more than states: whoever ran more steps than at its last report has worked since.
 */

import type { StatusAnswer } from '../../src/wire/generated/requests';

const FRESH_S = 5; // a peer that says nothing for so long is taken for idle
const MOST_BREAKERS = 64; // of one report
const MOST_RUNS = 64;

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

/** What the page shows of an answer to `status`: the first runs, and breakers that are not closed. */
export function reportOf(answer: StatusAnswer): Report {
  const { steps, active, sessions, weightBytes, kvBytes } = answer;
  return {
    steps,
    active,
    sessions,
    tokensPerS: answer.tokensPerSMilli / 1000,
    weightBytes,
    kvBytes,
    rttS: new Map([...answer.rttUs].map(([peer, us]) => [peer, us / 1e6])),
    stepUs: answer.stepUs.slice(0, MOST_RUNS).flatMap(([first = 0, stop = 0, us = 0]) => {
      return us === 0 ? [] : [[first, stop, us] as const];
    }),
    breakers: answer.breakers.slice(0, MOST_BREAKERS).flatMap(([of = '', state]) => {
      return state === 'open' || state === 'half-open' ? [{ of, state }] : [];
    }),
  };
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
