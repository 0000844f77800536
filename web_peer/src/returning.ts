/*
 * Looks for a coordinator that was lost: when, how often, and what a person reads meanwhile (twin of
 * peer/returning.py). Edge.
 */

import { PeerError } from './errors';
import { SignalingError } from './signaling_errors';

export const PAUSES_S: readonly number[] = [0.25, 0.5, 1, 2, 4, 8, 8, 8]; // before each try

/** The coordinator is gone and is looked for. */
export interface Away {
  readonly name: string; // what people call it
  readonly needed: boolean; // whether the plan that serves has it among its stages
  readonly attempt: number; // the one that is made or comes next, from 1
  readonly attempts: number;
}

export function awayText({ name, needed, attempt, attempts }: Away): string {
  const meanwhile = needed
    ? 'no answer without it, it holds a part of the model'
    : 'answers go on, but peers that come or go are not planned for';
  const who = name === '' ? '' : ` (${name})`;
  return `the coordinator${who} is gone: ${meanwhile}; looking for it again (try ${attempt} of ${attempts})`;
}

/** One search. `enter` makes one try; `changed` is called whenever `away` changes. */
export class Returning {
  away: Away | null = null;
  private hurry: (() => void) | null = null;
  private readonly enter: () => Promise<void>;
  private readonly changed: () => void;
  private readonly pausesS: readonly number[];

  constructor(enter: () => Promise<void>, changed: () => void, pausesS = PAUSES_S) {
    this.enter = enter;
    this.changed = changed;
    this.pausesS = pausesS;
  }

  /** Spares the pause before the next try. */
  tryNow(): void {
    this.hurry?.();
  }

  /** True when this peer is back with the coordinator, false when every try failed or `over` aborted. */
  async search(name: string, needed: boolean, over: AbortSignal): Promise<boolean> {
    const attempts = this.pausesS.length;
    for (const [index, pauseS] of this.pausesS.entries()) {
      this.become({ name, needed, attempt: index + 1, attempts });
      await this.pause(pauseS * 1000, over);
      if (over.aborted) return false;
      try {
        await this.enter();
      } catch (error) {
        if (error instanceof PeerError || error instanceof SignalingError) continue;
        throw error;
      }
      this.become(null);
      return true;
    }
    return false;
  }

  private pause(ms: number, over: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const end = (): void => {
        clearTimeout(timer);
        over.removeEventListener('abort', end);
        this.hurry = null;
        resolve();
      };
      const timer = setTimeout(end, ms);
      over.addEventListener('abort', end);
      this.hurry = end;
    });
  }

  private become(away: Away | null): void {
    this.away = away;
    this.changed();
  }
}
