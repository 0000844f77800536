/*
 * Decides what people read while nobody coordinates, and looks for the mesh when this peer is alone or was left out
 * (twin of peer/member/reconnect.py). Edge.
 *
 * A search starts the moment the coordinator is lost, so that nobody wonders why nothing happens. Mostly the others
 * have chosen another one before the first try.
 */

import { PeerError } from '../errors';
import { SignalingError } from '../signaling/errors';

const FIRST_PAUSE_S = 1; // an election on a quiet mesh is over before anybody need be asked twice
const MOST_PAUSE_S = 8;
const SOON = 20; // tries; after them nobody waits in front of it, and the pauses go on growing
const SELDOM_S = 60;

/** Nobody coordinates, as far as this peer knows. */
export interface Away {
  readonly name: string; // of who did, as people call it
  readonly needed: boolean; // whether a stage of the plan that serves has nobody who is here
  readonly voters: number;
  readonly here: number; // voters that this peer reaches, itself among them
  readonly attempt: number; // to find the mesh again; 0: the others are choosing
  readonly refused: string; // why this peer's own copy of the log stands still; '': it does not
}

/** Whether too few voters are here to choose anybody. */
export function isStuck({ voters, here }: Away): boolean {
  return 2 * here <= voters;
}

/** One line for people while nobody coordinates: who is gone, what goes on, who is needed. */
export function awayText(away: Away): string {
  const { name, needed, voters, here, attempt, refused } = away;
  if (refused !== '') {
    return `the log of the mesh stands still here: ${refused}; tried again every second`;
  }
  const meanwhile = needed
    ? 'no answer meanwhile, nobody here has a part of the model'
    : 'answers go on, but peers that come or go are not planned for';
  const lost = `the coordinator${name === '' ? '' : ` (${name})`} is gone: ${meanwhile}; `;
  if (!isStuck(away)) return `${lost}the others choose another one`;
  if (voters <= 1) {
    const tries = attempt > 0 ? ` (looking for it, try ${attempt})` : '';
    return `${lost}nobody can take its place, it has to come back${tries}`;
  }
  const needs = Math.floor(voters / 2) + 1;
  const tries = attempt > 0 ? ` (looking for them, try ${attempt})` : '';
  return `${lost}${here} of ${voters} voters are here, ${needs} are needed to choose another one${tries}`;
}

function sameAway(one: Away | null, other: Away | null): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}

/** Searches for as long as `lost()` says what is missing. `enter` makes one try; `changed` follows `away`. */
export class Returning {
  away: Away | null = null;
  private hurry: (() => void) | null = null;
  private readonly lost: (attempt: number) => Away | null;
  private readonly enter: () => Promise<void>;
  private readonly changed: () => void;
  private readonly firstPauseS: number;

  constructor(
    lost: (attempt: number) => Away | null,
    enter: () => Promise<void>,
    changed: () => void,
    firstPauseS = FIRST_PAUSE_S,
  ) {
    this.lost = lost;
    this.enter = enter;
    this.changed = changed;
    this.firstPauseS = firstPauseS;
  }

  /** Spares the pause before the next try, or ends the search when nothing is missing any more. */
  tryNow(): void {
    this.hurry?.();
  }

  /** Returns when nothing is missing, or `over` aborts. */
  async search(over: AbortSignal): Promise<void> {
    let pauseS = this.firstPauseS;
    for (let attempt = 0; this.look(attempt, over); attempt += 1) {
      await this.pause(pauseS * 1000, over);
      if (!this.look(attempt + 1, over)) return;
      try {
        await this.enter();
      } catch (error) {
        if (!(error instanceof PeerError) && !(error instanceof SignalingError)) throw error;
      }
      pauseS = Math.min(2 * pauseS, attempt + 1 < SOON ? MOST_PAUSE_S : SELDOM_S);
    }
  }

  private look(attempt: number, over: AbortSignal): boolean {
    const away = over.aborted ? null : this.lost(attempt);
    if (!sameAway(away, this.away)) {
      this.away = away;
      this.changed();
    }
    return away !== null;
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
}
