/*
 * Asks a peer that is said to be silent, at the coordinator: there, silent, gone; and watches for its return (twin of
 * peer/coordination/suspicion.py). Edge.
 *
 * Whoever is silent is left alone for the quiet time of its breaker, which grows when it flaps.
 */

import { Breakers } from '../transport/circuit_breakers';

const SECOND_ASKING = 4; // times the patience: who is still at the signaling server may only be busy
const LOOK_AGAIN_MS = 250;

/** How the coordinator finds out. `answers(peer, times)`: within so many times the patience of the link. */
export interface Reach {
  answers(peer: string, times: number): Promise<boolean>;
  present(peer: string): boolean; // at the signaling server
}

/** What is done about a peer. `silent` and `gone` say whether it is worth watching for its return. */
export interface Findings {
  silent(peer: string): boolean;
  gone(peer: string): boolean;
  back(peer: string): void;
}

/** What the coordinator knows of silent peers: whom it asks now, and a breaker for each that flaps. */
export class Suspicions {
  readonly breakers = new Breakers();
  private readonly reach: Reach;
  private readonly findings: Findings;
  private readonly waitMs: () => number; // how long a silent peer is waited for before anything is done about it
  private readonly looking = new Map<string, AbortController>();

  constructor(reach: Reach, findings: Findings, waitMs: () => number) {
    this.reach = reach;
    this.findings = findings;
    this.waitMs = waitMs;
  }

  /** Asks `peer` now, unless that is under way or it is watched already. */
  look(peer: string): void {
    if (!this.looking.has(peer)) this.start(peer, (over) => this.ask(peer, over));
  }

  /** Another coordinator found it silent, and watches for its return no more. */
  watch(peer: string): void {
    if (this.looking.has(peer)) return;
    this.breakers.broke(peer, nowMs());
    this.start(peer, (over) => this.await(peer, over));
  }

  /** The connection to `peer` ended: it is gone for good, or comes back by joining. */
  ended(peer: string): void {
    this.looking.get(peer)?.abort();
    this.looking.delete(peer);
  }

  close(): void {
    for (const peer of [...this.looking.keys()]) this.ended(peer);
  }

  private async ask(peer: string, over: AbortSignal): Promise<void> {
    if (await this.there(peer)) return;
    const until = nowMs() + this.waitMs();
    while (nowMs() < until && !over.aborted) {
      if (await this.there(peer)) return;
      await pause(Math.min(LOOK_AGAIN_MS, Math.max(0, until - nowMs())), over);
    }
    if (over.aborted) return;
    this.breakers.broke(peer, nowMs());
    const gone = !this.reach.present(peer);
    const worth = gone ? this.findings.gone(peer) : this.findings.silent(peer);
    if (worth) await this.await(peer, over);
  }

  private async there(peer: string): Promise<boolean> {
    if (await this.reach.answers(peer, 1)) return true;
    return this.reach.present(peer) && (await this.reach.answers(peer, SECOND_ASKING));
  }

  private async await(peer: string, over: AbortSignal): Promise<void> {
    for (;;) {
      await pause(Math.max(0, (this.breakers.quietUntil(peer) ?? 0) - nowMs()), over);
      if (over.aborted) return;
      this.breakers.chosen(peer, nowMs());
      const answers = await this.reach.answers(peer, SECOND_ASKING);
      if (this.looking.get(peer)?.signal !== over) return; // its connection ended meanwhile
      if (answers) break;
      this.breakers.failed(peer, nowMs());
    }
    this.breakers.succeeded(peer, nowMs());
    this.findings.back(peer);
  }

  private start(peer: string, step: (over: AbortSignal) => Promise<void>): void {
    const over = new AbortController();
    this.looking.set(peer, over);
    step(over.signal)
      .catch(reportError)
      .finally(() => {
        if (this.looking.get(peer) === over) this.looking.delete(peer);
      });
  }
}

function nowMs(): number {
  return Math.round(performance.now());
}

function pause(ms: number, over: AbortSignal): Promise<void> {
  if (over.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const end = (): void => {
      clearTimeout(timer);
      over.removeEventListener('abort', end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    over.addEventListener('abort', end);
  });
}
