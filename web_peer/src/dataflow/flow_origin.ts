/*
 * What the origin of a run sends and waits for: inputs out, outputs in, another route when a peer is lost (twin of
 * peer/dataflow/flow_origin.py).
 *
 * Pure. Items are numbered from 0; each ends once, with its outputs or with why not. Inputs are kept until then.
 */

import { type FlowRoute, peersOf } from './flow_route';
import type { SendValue } from './flow_stage';
import type { ValueArray } from './value_codec';

/** Tells a peer that all stages have opened the epoch, and which items are done. */
export interface SendGo {
  readonly kind: 'sendGo';
  readonly peer: string;
  readonly run: string;
  readonly epoch: number;
  readonly below: number;
}

/** All outputs of an item are here, by value. */
export interface ItemDone {
  readonly kind: 'itemDone';
  readonly item: number;
  readonly outputs: ReadonlyMap<number, ValueArray>;
}

/** An item that cannot be computed. */
export interface ItemFailed {
  readonly kind: 'itemFailed';
  readonly item: number;
  readonly text: string;
}

export type OriginFlowEffect = SendValue | SendGo | ItemDone | ItemFailed;

interface Item {
  readonly inputs: ReadonlyMap<number, ValueArray>;
  readonly outputs: Map<number, ValueArray>;
}

/** One run. Nothing is sent before `opened`. */
export class FlowOrigin {
  readonly run: string;
  route: FlowRoute;
  epoch = 1;
  isOpen = false; // every stage has opened this epoch
  private readonly items = new Map<number, Item>(); // those under way
  private next = 0;
  private told = 0; // the items below it are done, as the stages know

  constructor(run: string, route: FlowRoute) {
    this.run = run;
    this.route = route;
  }

  /** How many items have not ended. */
  get underWay(): number {
    return this.items.size;
  }

  /** All items below it have ended. */
  get below(): number {
    return Math.min(this.next, ...this.items.keys());
  }

  /** Begins an item; its number. */
  submit(inputs: ReadonlyMap<number, ValueArray>): readonly [item: number, effects: OriginFlowEffect[]] {
    const item = this.next;
    this.next += 1;
    this.items.set(item, { inputs, outputs: new Map() });
    return [item, this.isOpen ? this.inputs(item) : []];
  }

  /** Leads the run over `route`. Once its stages have opened this epoch, `opened`. */
  reroute(route: FlowRoute): void {
    this.route = route;
    this.epoch += 1;
    this.isOpen = false;
  }

  /** Every stage has opened the epoch: what is under way goes on. */
  opened(): OriginFlowEffect[] {
    this.isOpen = true;
    const items = [...this.items.keys()].sort((a, b) => a - b);
    return [...this.go(), ...items.flatMap((item) => this.inputs(item))];
  }

  /** Whether a value that comes is wanted: an output, from who makes it, and not here yet. */
  takes(sender: string, epoch: number, item: number, value: number): boolean {
    const known = this.items.get(item);
    return (
      epoch === this.epoch &&
      known !== undefined &&
      this.route.outputs.includes(value) &&
      !known.outputs.has(value) &&
      this.route.makers.get(value) === sender
    );
  }

  /** Takes an output. */
  value(sender: string, epoch: number, item: number, value: number, array: ValueArray): OriginFlowEffect[] {
    const known = this.items.get(item);
    if (known === undefined || !this.takes(sender, epoch, item, value)) return [];
    known.outputs.set(value, array);
    if (!this.route.outputs.every((output) => known.outputs.has(output))) return [];
    return [{ kind: 'itemDone', item, outputs: known.outputs }, ...this.ended(item)];
  }

  /** Takes that a stage cannot compute an item. */
  failed(sender: string, epoch: number, item: number, text: string): OriginFlowEffect[] {
    if (epoch !== this.epoch || !this.items.has(item) || !peersOf(this.route).includes(sender)) return [];
    return [{ kind: 'itemFailed', item, text }, ...this.ended(item)];
  }

  /** Nobody waits for an item any more. */
  drop(item: number): OriginFlowEffect[] {
    return this.items.has(item) ? this.ended(item) : [];
  }

  private ended(item: number): OriginFlowEffect[] {
    this.items.delete(item);
    return this.isOpen && this.below > this.told ? this.go() : [];
  }

  private go(): OriginFlowEffect[] {
    this.told = this.below;
    const { run, epoch, told: below } = this;
    return peersOf(this.route).map((peer) => ({ kind: 'sendGo', peer, run, epoch, below }));
  }

  /** To the stages that need them. */
  private inputs(item: number): OriginFlowEffect[] {
    const { run, epoch } = this;
    return [...(this.items.get(item)?.inputs ?? [])].flatMap(([value, array]) =>
      (this.route.takers.get(value) ?? []).map((peer) => {
        return { kind: 'sendValue' as const, peer, run, epoch, item, value, array };
      }),
    );
  }
}
