/*
 * Decides when an asker asks its stages where they are, and who of them is silent or stuck. Pure. How late a token may
 * be comes from lateness.ts; origin.ts decides what follows.
 */

import { compared, stuckAfterS } from './ask';
import type { Here } from '../wire/generated/frames';
import { Lateness } from './lateness';

export const PATIENCE_S = 0.25; // for an answer to WHERE, unless the edge knows the link better

/** What the stages of one route said of themselves, and when. */
export class Whereabouts {
  readonly lateness = new Lateness();
  readonly patienceS = new Map<string, number>(); // by peer: how long an answer to WHERE may take
  askedAt: number | null = null; // when the stages were asked where they are
  askAt = 0; // when they are to be asked next
  private movedAt = 0;
  private readonly heard = new Map<number, Here>();
  private progress: readonly Here[] = [];

  /** A route is gone over from now on. */
  begin(now: number): void {
    this.progress = [];
    this.movedAt = now;
    this.wait(now);
  }

  /** Nothing is late yet. */
  wait(now: number): void {
    this.askedAt = null;
    this.heard.clear();
    this.askAt = now + this.lateness.lateS;
  }

  /** All stages are asked. */
  ask(now: number): void {
    this.askedAt = now;
    this.heard.clear();
  }

  /** When to look next. */
  due(route: readonly string[]): number {
    if (this.askedAt === null) return this.askAt;
    const waiting = route.filter((_, stage) => !this.heard.has(stage));
    return this.askedAt + Math.max(0, ...waiting.map((peer) => this.patience(peer)));
  }

  /** Who has not answered within its patience; then the others get longer before they are asked again. */
  silent(now: number, askedAt: number, route: readonly string[]): ReadonlySet<string> {
    const late = new Set(
      route.filter((peer, stage) => !this.heard.has(stage) && now >= askedAt + this.patience(peer)),
    );
    if (late.size > 0) {
      this.wait(now);
      this.askAt = now + Math.max(this.lateness.lateS, ...[...late].map((peer) => this.patience(peer)));
    }
    return late;
  }

  /** A stage of `stages` answered; whether all of them have. */
  here(frame: Here, stages: number): boolean {
    this.heard.set(frame.stage, frame);
    return this.askedAt !== null && this.heard.size >= stages;
  }

  /**
   * Everybody is there. null: something moved since they were asked before, or it is too early to tell; else the stage
   * that does not come on (-1: none has anything to do). `tries`: starts of a route with somebody whom nobody can stand
   * in for, by stage.
   */
  stuck(now: number, route: readonly string[], tries: (peer: string) => number): number | null {
    const seen = route.map((_, stage) => this.heard.get(stage)).filter((here) => here !== undefined);
    const { stage, moved } = compared(seen, this.progress);
    this.progress = seen;
    this.wait(now);
    if (moved) {
      this.movedAt = now;
      return null;
    }
    const slow = seen[stage];
    const isStarved = slow !== undefined && slow.computed >= slow.received;
    const patienceS = stuckAfterS(this.lateness.usualS, tries(route[stage] ?? ''), isStarved);
    if (now - this.movedAt < patienceS) return null;
    this.movedAt = now;
    return stage;
  }

  private patience(peer: string): number {
    return this.patienceS.get(peer) ?? PATIENCE_S;
  }
}
