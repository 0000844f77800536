/*
 * Decides when what somebody sends arrives: virtual time, ordered links, connections that are lost and made anew.
 *
 * Within one connection order holds and nothing is lost. A connection that is lost loses all that is on its way; the
 * two ends notice at different times, and what one of them sends before it notices is lost too. A frame may come twice.
 */

import { decode, encode } from '../../src/wire/frame_codec';
import type { Frame } from '../../src/wire/generated/frames';
import type { Chance } from './random';
import type { Pace } from './schedule';

const REPEATED: ReadonlySet<Frame['kind']> = new Set(['OPEN', 'STEP', 'TOKEN', 'FEED', 'WHERE', 'HERE']); // may come twice
const AGAIN_S = 0.1; // at most so much later
const DIAL_S = 0.1; // to make a connection, about
const DIAL_AGAIN_S = 1;
const GIVE_UP_S = 20; // nobody comes back so late

/** A peer as the network sees it. */
export interface End {
  readonly name: string;
  readonly alive: boolean;
  take(sender: string, frame: Frame): void;
  lost(peer: string): void;
  connected(peer: string): void;
}

interface Due {
  readonly when: number;
  readonly order: number;
  readonly call: () => void;
}

/** The clock, and the way of every frame. `ends` is filled by the peers themselves. */
export class Network {
  now = 0;
  lostFrames = 0;
  readonly ends = new Map<string, End>();
  private readonly chance: Chance;
  private readonly pace: Pace;
  private readonly queue: Due[] = []; // a binary heap by (when, order)
  private order = 0;
  private readonly arrivals = new Map<string, number>();
  private readonly epochs = new Map<string, number>(); // of a pair: how often its connection was lost
  private readonly seen = new Map<string, number>(); // of (end, other): the epoch this end believes in
  private readonly spikes = new Map<string, number>(); // until when a pair's frames are slow

  constructor(chance: Chance, pace: Pace) {
    this.chance = chance;
    this.pace = pace;
  }

  /** `call` at the virtual time `when`. */
  at(when: number, call: () => void): void {
    const due = { when, order: this.order++, call };
    let place = this.queue.push(due) - 1;
    while (place > 0) {
      const above = (place - 1) >> 1;
      const parent = this.queue[above];
      if (parent === undefined || !earlier(due, parent)) break;
      this.queue[place] = parent;
      place = above;
    }
    this.queue[place] = due;
  }

  /** Does the next thing; false when nothing is left before `until`. */
  step(until: number): boolean {
    const due = this.queue[0];
    if (due === undefined || due.when > until) return false;
    const last = this.queue.pop();
    if (last !== undefined && this.queue.length > 0) this.sink(last);
    this.now = Math.max(this.now, due.when);
    due.call();
    return true;
  }

  /** Puts a frame on its way. */
  send(sender: string, target: string, frame: Frame): void {
    if (sender === target) {
      this.at(this.now, () => {
        const end = this.ends.get(sender);
        if (end?.alive) end.take(sender, frame);
      });
      return;
    }
    const pair = pairOf(sender, target);
    const epoch = this.epochs.get(pair) ?? 0;
    if ((this.seen.get(`${sender}>${target}`) ?? 0) !== epoch) {
      this.lostFrames += 1;
      return; // into a connection that is gone already
    }
    if (this.ends.get(target)?.alive !== true) {
      this.lostFrames += 1;
      this.at(this.now + 0.5, () => {
        this.unreachable(sender, target, epoch);
      });
      return;
    }
    let delay = this.pace.linkS + this.pace.jitterS * this.chance.next();
    if ((this.spikes.get(pair) ?? 0) > this.now) delay += 0.05 + 0.2 * this.chance.next();
    const way = `${sender}>${target}`;
    const when = Math.max(this.now + delay, this.arrivals.get(way) ?? 0);
    this.arrivals.set(way, when);
    const arrive = (): void => {
      this.arrive(sender, target, epoch, frame);
    };
    this.at(when, arrive);
    if (this.chance.next() < this.pace.duplicates && REPEATED.has(frame.kind)) {
      const later = frame.kind === 'OPEN' ? 0 : AGAIN_S * this.chance.next(); // an OPEN ends with its session
      this.at(when + later, arrive);
    }
  }

  /** The connection between two peers is lost; each end notices within `noticeS`. */
  cut(one: string, other: string, noticeS: number): void {
    const pair = pairOf(one, other);
    const epoch = (this.epochs.get(pair) ?? 0) + 1;
    this.epochs.set(pair, epoch);
    for (const [end, far] of [
      [one, other],
      [other, one],
    ] as const) {
      this.at(this.now + noticeS * this.chance.next(), () => {
        this.notice(end, far, epoch);
      });
    }
  }

  /** From 0 to 1. */
  luck(): number {
    return this.chance.next();
  }

  /** A restarted peer believes in no old connection. */
  reborn(name: string): void {
    for (const far of this.ends.keys()) {
      this.seen.set(`${name}>${far}`, this.epochs.get(pairOf(name, far)) ?? 0);
    }
  }

  /** Frames between the two take longer until then. */
  slowLink(one: string, other: string, until: number): void {
    this.spikes.set(pairOf(one, other), until);
  }

  private arrive(sender: string, target: string, epoch: number, frame: Frame): void {
    const end = this.ends.get(target);
    if (end === undefined || !end.alive || (this.epochs.get(pairOf(sender, target)) ?? 0) !== epoch) {
      this.lostFrames += 1;
      return;
    }
    if ((this.seen.get(`${target}>${sender}`) ?? 0) < epoch) this.notice(target, sender, epoch); // lost there first
    end.take(sender, this.pace.encoded ? decode(encode(frame)) : frame);
  }

  private notice(name: string, far: string, epoch: number): void {
    const end = this.ends.get(name);
    if (end === undefined || !end.alive || (this.seen.get(`${name}>${far}`) ?? 0) >= epoch) return;
    this.seen.set(`${name}>${far}`, epoch);
    end.lost(far);
    this.at(this.now + DIAL_S * (0.2 + this.chance.next()), () => {
      this.dialled(name, far, epoch);
    });
  }

  /** Who lost a connection makes another one when it can. */
  private dialled(name: string, far: string, epoch: number): void {
    const end = this.ends.get(name);
    if (!end?.alive || (this.epochs.get(pairOf(name, far)) ?? 0) !== epoch) return;
    if (this.ends.get(far)?.alive === true) end.connected(far);
    else if (this.now < GIVE_UP_S) {
      this.at(this.now + DIAL_AGAIN_S, () => {
        this.dialled(name, far, epoch);
      });
    }
  }

  private unreachable(name: string, far: string, epoch: number): void {
    const gone = this.ends.get(far)?.alive !== true;
    const end = this.ends.get(name);
    if (end?.alive && gone && (this.epochs.get(pairOf(name, far)) ?? 0) === epoch) end.lost(far);
  }

  private sink(due: Due): void {
    let place = 0;
    for (;;) {
      let below = 2 * place + 1;
      let child = this.queue[below];
      const right = this.queue[below + 1];
      if (child !== undefined && right !== undefined && earlier(right, child)) {
        child = right;
        below += 1;
      }
      if (child === undefined || !earlier(child, due)) break;
      this.queue[place] = child;
      place = below;
    }
    this.queue[place] = due;
  }
}

function earlier(a: Due, b: Due): boolean {
  return a.when < b.when || (a.when === b.when && a.order < b.order);
}

function pairOf(one: string, other: string): string {
  return one < other ? `${one}|${other}` : `${other}|${one}`;
}
