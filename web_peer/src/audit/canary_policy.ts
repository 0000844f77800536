/*
 * Decides whom a coordinator tries with an answer that is known beforehand, when, and with which question (twin of what
 * is pure in peer/audit/canaries.py).
 *
 * Pure. Chance comes in as `roll`, a number in [0, 1).
 */

import type { Roll } from './check_policy';
import { type MeshState, serving } from '../state/mesh_state';
import type { PlanRecord } from '../state/generated/commands';
import { byBytes } from '../wire/utf8_order';
import { ANY, choose, holders, type Route } from '../session/routes';
import { type Sampling, samplingOf } from '../session/sampling';

type Range = readonly [low: number, high: number];

/** When peers are tried: between these many seconds after they came, and after they were tried. */
export interface Times {
  readonly firstS: Range;
  readonly againS: Range;
  readonly busyS: Range; // where people's answers need all the room
}

export const TIMES: Times = { firstS: [90, 240], againS: [1800, 5400], busyS: [30, 90] };

/** When each peer is tried next. */
export class Due {
  private readonly times: Times;
  private readonly roll: Roll;
  private atS = new Map<string, number>();
  private leads = false;

  constructor(times: Times, roll: Roll) {
    this.times = times;
    this.roll = roll;
  }

  /**
   * Who is due, the longest waiting first, of `peers` that compute. Who was here when this peer began to coordinate was
   * tried by the one before.
   */
  look(nowS: number, leads: boolean, peers: readonly string[]): string[] {
    const begins = leads && !this.leads;
    const known = leads && this.leads ? this.atS : new Map<string, number>();
    this.leads = leads;
    this.atS = new Map();
    if (!leads) return [];
    const [low, high] = this.times.firstS;
    const most = begins && peers.length > 1 ? Math.max(high, this.times.againS[1]) : high;
    for (const peer of peers) {
      const at = known.get(peer);
      if (at !== undefined) this.atS.set(peer, at);
    }
    for (const peer of [...peers].sort(byBytes)) {
      if (!this.atS.has(peer)) this.atS.set(peer, nowS + between([low, most], this.roll));
    }
    const due = [...this.atS].filter(([, at]) => at <= nowS);
    return due.sort(([, a], [, b]) => a - b).map(([peer]) => peer);
  }

  /** It was tried; again later. */
  tried(nowS: number, peer: string): void {
    this.atS.set(peer, nowS + between(this.times.againS, this.roll));
  }

  /** There was no room; soon again. */
  busy(nowS: number, peer: string): void {
    this.atS.set(peer, nowS + between(this.times.busyS, this.roll));
  }
}

/** Others that hold a stage of the plan in force. */
export function computing(state: MeshState, me: string): string[] {
  const found = (serving(state)?.stages ?? []).flatMap((stage) => holders(state, stage));
  return [...new Set(found)].filter((peer) => peer !== me).sort(byBytes);
}

/** A route on which `peer` serves stage `place`. */
export function routeOver(state: MeshState, plan: PlanRecord, place: number, peer: string): Route | null {
  const stage = plan.stages[place];
  const others = stage === undefined ? [] : holders(state, stage).filter((other) => other !== peer);
  return choose(state, plan, { ...ANY, avoid: new Set(others) });
}

// --- what is asked: questions with settings as people have them

export const ABOUT: readonly string[] = [
  ...['the tides', 'bread', 'a bicycle', 'the moon', 'volcanoes', 'bees', "a good night's sleep", 'chess'],
  ...['rain', 'the printing press', 'glass', 'cats', 'paper', 'coffee', 'the heart', 'bridges', 'maps'],
  ...['magnets', 'an orchard', 'old clocks', 'salt', 'the alphabet', 'trains', 'snow', 'a lighthouse'],
];
export const ASKED: readonly string[] = [
  'What should I know about {about}?',
  'Tell me about {about} in {count} sentences.',
  'Write {count} short lines about {about}.',
  'Explain {about} to a child of {count}.',
  'Who was the first to write about {about}?',
  'Give me {count} facts about {about}, please.',
  'why is there so much talk about {about}',
];
const TOKENS: Range = [8, 24]; // of an answer, at least and at most
const COUNTED: Range = [2, 12];

/** The next question of a known answer, drawn from `roll`. */
export function question(roll: Roll): string {
  const form = oneOf(ASKED, roll);
  const about = oneOf(ABOUT, roll);
  return form.replace('{about}', about).replace('{count}', String(wholeBetween(COUNTED, roll)));
}

/** The sampling settings of that question, drawn from `roll`. */
export function sampling(roll: Roll): Sampling {
  const warm = roll() < 0.5;
  return samplingOf({
    temperature: warm ? oneOf([0.7, 0.8, 1], roll) : 0,
    topP: warm ? oneOf([0.9, 0.95, 1], roll) : 1,
    seed: Math.floor(roll() * 2 ** 31),
  });
}

/** How many tokens are waited for. */
export function tokensWanted(roll: Roll): number {
  return wholeBetween(TOKENS, roll);
}

/** One of `items`, which are not empty. */
export function oneOf<T>(items: readonly T[], roll: Roll): T {
  const found = items[Math.min(items.length - 1, Math.floor(roll() * items.length))];
  if (found === undefined) throw new Error('expected items to choose from');
  return found;
}

/** A whole number, both ends among them. */
export function wholeBetween([low, high]: Range, roll: Roll): number {
  return low + Math.min(high - low, Math.floor(roll() * (high - low + 1)));
}

function between([low, high]: Range, roll: Roll): number {
  return low + (high - low) * roll();
}
