/*
 * Decides to whom this peer keeps a connection for the log's sake, and when it dials again after a failure (twin of
 * peer/transport/redial.py). Pure.
 *
 * Whoever is not reached is tried again, ever more rarely: an attempt costs a few packets and some computing.
 */

import type { Config } from '../consensus/records';

const FIRST_PAUSE_S = 0.5;
const MOST_PAUSE_S = 15;

/** Every member is connected with every voter, so that whoever leads next reaches everybody at once. */
export function wanted(config: Config, me: string, leads: boolean): readonly string[] {
  if (!config.byId.has(me)) return [];
  const all = leads || config.voters.includes(me) ? [...config.byId.keys()] : config.voters;
  return all.filter((peer) => peer !== me);
}

/** Whom to dial now. */
export class Redial {
  private readonly next = new Map<string, { readonly atS: number; readonly pauseS: number }>();

  /** Those without a connection whose pause is over; they count as dialled. */
  due(nowS: number, peers: readonly string[], connected: (peer: string) => boolean): readonly string[] {
    for (const peer of [...this.next.keys()]) {
      if (!peers.includes(peer) || connected(peer)) this.next.delete(peer);
    }
    return [...peers].sort().filter((peer) => {
      const { atS, pauseS } = this.next.get(peer) ?? { atS: nowS, pauseS: FIRST_PAUSE_S };
      if (connected(peer) || nowS < atS) return false;
      this.next.set(peer, { atS: nowS + pauseS, pauseS: Math.min(2 * pauseS, MOST_PAUSE_S) });
      return true;
    });
  }
}
