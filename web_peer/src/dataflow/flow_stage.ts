/*
 * What a peer does for runs that others ask: which of its stages can compute now, and where values go then (twin of
 * peer/dataflow/flow_stage.py).
 *
 * Pure: values come in with who sent them, effects come out. What was made is kept until the origin is done with the
 * item, so that whoever takes a lost peer's place gets it without anything being computed again.
 */

import { BadCommand } from '../errors';
import type { FlowRoute } from './flow_route';
import type { ValueArray } from './value_codec';

export const MAX_RUNS = 64; // of one origin, open at a peer at the same time
export const MAX_ITEMS = 4096; // of one run that a peer keeps something of
export const GRACE_S = 30; // how long a run stays whose origin has no connection

/** Sends a value of an item to a peer, which may be this one's own origin. */
export interface SendValue {
  readonly kind: 'sendValue';
  readonly peer: string;
  readonly run: string;
  readonly epoch: number;
  readonly item: number;
  readonly value: number;
  readonly array: ValueArray;
}

/** Computes a stage of an item. `inputs` by value. */
export interface Compute {
  readonly kind: 'compute';
  readonly run: string;
  readonly origin: string;
  readonly item: number;
  readonly first: number;
  readonly stop: number;
  readonly inputs: ReadonlyMap<number, ValueArray>;
}

/** Tells the origin that an item cannot be computed. */
export interface TellFailed {
  readonly kind: 'tellFailed';
  readonly peer: string;
  readonly run: string;
  readonly epoch: number;
  readonly item: number;
  readonly text: string;
}

/** Nothing is kept of the run any more. */
export interface Forgotten {
  readonly kind: 'forgotten';
  readonly run: string;
}

export type FlowEffect = SendValue | Compute | TellFailed | Forgotten;

interface Item {
  readonly values: Map<number, ValueArray>;
  readonly begun: Set<string>; // stages that compute or have computed
  failed: string;
}

interface Run {
  route: FlowRoute;
  epoch: number;
  goneEpoch: number; // the epoch that all stages have opened, as the origin said
  below: number;
  readonly items: Map<number, Item>;
  leftAt: number | null; // since when its origin has no connection
}

const spanOf = (first: number, stop: number): string => `${first} ${stop}`;

/** All runs that `me` has stages of. It keeps values up to `mostBytes`. */
export class FlowStages {
  keptBytes = 0;
  private readonly me: string;
  private readonly mostBytes: number;
  private readonly runs = new Map<string, Run>();

  constructor(me: string, mostBytes: number) {
    this.me = me;
    this.mostBytes = mostBytes;
  }

  /** The route of a run that is open here. */
  route(run: string): FlowRoute | null {
    return this.runs.get(run)?.route ?? null;
  }

  /** The stages here of all open runs. */
  uses(): { readonly run: string; readonly first: number; readonly stop: number }[] {
    return [...this.runs].flatMap(([run, { route }]) =>
      route.stages.filter(({ peer }) => peer === this.me).map(({ first, stop }) => ({ run, first, stop })),
    );
  }

  /** Whether a value that comes is wanted: of an open run, from who makes it, and not here yet. */
  takes(sender: string, run: string, epoch: number, item: number, value: number): boolean {
    const kept = this.runs.get(run);
    if (kept === undefined || epoch !== kept.epoch || item < kept.below) return false;
    if (kept.items.get(item)?.values.has(value) === true) return false;
    const { makers, takers } = kept.route;
    return makers.get(value) === sender && takers.get(value)?.includes(this.me) === true;
  }

  /** Opens a run, or leads it over another route from `epoch` on. Raises BadCommand. */
  open(run: string, epoch: number, route: FlowRoute): void {
    const kept = this.runs.get(run);
    if (kept === undefined) {
      const ofOrigin = [...this.runs.values()].filter((known) => known.route.origin === route.origin);
      if (ofOrigin.length >= MAX_RUNS) {
        throw new BadCommand(`expected at most ${MAX_RUNS} open runs of one peer`);
      }
      this.runs.set(run, { route, epoch, goneEpoch: 0, below: 0, items: new Map(), leftAt: null });
      return;
    }
    if (kept.route.origin !== route.origin) throw new BadCommand("this run is another peer's");
    if (epoch < kept.epoch) throw new BadCommand(`expected an epoch of ${kept.epoch} or more, got ${epoch}`);
    kept.route = route;
    kept.epoch = epoch;
    kept.leftAt = null;
    for (const item of kept.items.values()) item.failed = '';
  }

  /** All stages have opened `epoch`; items below `below` are done. */
  go(sender: string, run: string, epoch: number, below: number): FlowEffect[] {
    const kept = this.runs.get(run);
    if (kept?.route.origin !== sender || epoch !== kept.epoch) return [];
    for (const [number, item] of [...kept.items]) {
      if (number >= below) continue;
      kept.items.delete(number);
      this.keptBytes -= bytesOf(item);
    }
    kept.below = Math.max(kept.below, below);
    if (kept.goneEpoch === epoch) return [];
    kept.goneEpoch = epoch;
    const items = [...kept.items].sort(([a], [b]) => a - b);
    return items.flatMap(([number, { values }]) => [
      ...this.sends(run, kept, number, values.keys()),
      ...this.ready(run, kept, number),
    ]);
  }

  /** Takes a value that another peer made, or the origin gave. */
  value(
    sender: string,
    run: string,
    epoch: number,
    item: number,
    value: number,
    array: ValueArray,
  ): FlowEffect[] {
    const kept = this.runs.get(run);
    if (kept === undefined || !this.takes(sender, run, epoch, item, value)) return [];
    if (!kept.items.has(item) && kept.items.size >= MAX_ITEMS) {
      return this.fail(run, kept, item, `more than ${MAX_ITEMS} items of a run at once`);
    }
    if (this.keptBytes + array.data.length > this.mostBytes) {
      const text = `this peer keeps at most ${this.mostBytes} bytes of values: fewer items at once, or smaller ones`;
      return this.fail(run, kept, item, text);
    }
    this.keep(kept, item, value, array);
    return this.ready(run, kept, item);
  }

  /** Takes what a stage here made of an item. */
  computed(run: string, item: number, outputs: ReadonlyMap<number, ValueArray>): FlowEffect[] {
    const kept = this.runs.get(run);
    if (kept === undefined || item < kept.below || !kept.items.has(item)) return [];
    for (const [value, array] of outputs) this.keep(kept, item, value, array);
    return [...this.sends(run, kept, item, outputs.keys()), ...this.ready(run, kept, item)];
  }

  /** The stage of units [first, stop) cannot compute an item. */
  failed(run: string, item: number, first: number, stop: number, text: string): FlowEffect[] {
    const kept = this.runs.get(run);
    const known = kept?.items.get(item);
    if (kept === undefined || known === undefined) return [];
    known.begun.delete(spanOf(first, stop));
    return this.fail(run, kept, item, text);
  }

  /** There is no room for a value of an item while it comes. */
  unable(run: string, epoch: number, item: number, text: string): FlowEffect[] {
    const kept = this.runs.get(run);
    if (kept === undefined || kept.epoch !== epoch || item < kept.below) return [];
    return this.fail(run, kept, item, text);
  }

  /** The origin is done with the run. */
  close(sender: string, run: string): FlowEffect[] {
    const kept = this.runs.get(run);
    return kept?.route.origin === sender ? this.forget(run, kept) : [];
  }

  /** The connection to a peer ended. The runs that it asks stay for a while: it may come back. */
  gone(now: number, peer: string): void {
    for (const kept of this.runs.values()) {
      if (kept.route.origin === peer) kept.leftAt ??= now;
    }
  }

  /** There is a connection to a peer again. */
  back(peer: string): void {
    for (const kept of this.runs.values()) {
      if (kept.route.origin === peer) kept.leftAt = null;
    }
  }

  /** Ends the runs of origins that stayed away. */
  tick(now: number): FlowEffect[] {
    const over = [...this.runs].filter(([, { leftAt }]) => leftAt !== null && now - leftAt > GRACE_S);
    return over.flatMap(([run, kept]) => this.forget(run, kept));
  }

  private forget(run: string, kept: Run): FlowEffect[] {
    this.runs.delete(run);
    for (const item of kept.items.values()) this.keptBytes -= bytesOf(item);
    return [{ kind: 'forgotten', run }];
  }

  private keep(kept: Run, item: number, value: number, array: ValueArray): void {
    const known = kept.items.get(item) ?? { values: new Map(), begun: new Set(), failed: '' };
    kept.items.set(item, known);
    if (known.values.has(value)) return;
    known.values.set(value, array);
    this.keptBytes += array.data.length;
  }

  private fail(run: string, kept: Run, item: number, text: string): FlowEffect[] {
    const known = kept.items.get(item);
    if (known !== undefined) {
      if (known.failed !== '') return [];
      known.failed = text;
    }
    return [{ kind: 'tellFailed', peer: kept.route.origin, run, epoch: kept.epoch, item, text }];
  }

  /** To all that need them, of what is made here. */
  private sends(run: string, kept: Run, item: number, values: Iterable<number>): FlowEffect[] {
    const { origin, inputs, outputs, makers, takers } = kept.route;
    const { epoch } = kept;
    const arrays = kept.items.get(item)?.values;
    const effects: FlowEffect[] = [];
    for (const value of values) {
      const array = arrays?.get(value);
      if (array === undefined || inputs.includes(value) || makers.get(value) !== this.me) continue;
      for (const peer of takers.get(value) ?? []) {
        const isOwn = peer === this.me && !(peer === origin && outputs.includes(value));
        if (!isOwn) effects.push({ kind: 'sendValue', peer, run, epoch, item, value, array });
      }
    }
    return effects;
  }

  /** The stages here that have all they need of an item, and did not begin yet. */
  private ready(run: string, kept: Run, item: number): FlowEffect[] {
    const known = kept.items.get(item);
    if (known === undefined || known.failed !== '') return [];
    const { route } = kept;
    const effects: FlowEffect[] = [];
    route.stages.forEach(({ first, stop, peer }, place) => {
      const needs = route.needs[place] ?? [];
      const gives = route.gives[place] ?? [];
      const span = spanOf(first, stop);
      if (peer !== this.me || known.begun.has(span)) return;
      const inputs = new Map<number, ValueArray>();
      for (const value of needs) {
        const array = known.values.get(value);
        if (array === undefined) return;
        inputs.set(value, array);
      }
      known.begun.add(span);
      if (gives.every((value) => known.values.has(value))) return; // computed before the route changed
      effects.push({ kind: 'compute', run, origin: route.origin, item, first, stop, inputs });
    });
    return effects;
  }
}

function bytesOf({ values }: Item): number {
  let sum = 0;
  for (const { data } of values.values()) sum += data.length;
  return sum;
}
