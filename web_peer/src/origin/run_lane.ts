/*
 * One way of a run through a mesh: a peer for each stage, and items under way on it (twin of peer/origin/run_lane.py).
 * Edge.
 *
 * Around dataflow/flow_origin.ts, which decides. A lost peer's stages go to another peer that holds them, or to where
 * the next placement puts them; what the others made is not computed again.
 */

import { FlowOrigin, type OriginFlowEffect } from '../dataflow/flow_origin';
import { type FlowRoute, flowRoute, type FlowStage, peersOf } from '../dataflow/flow_route';
import type { ValueArray } from '../dataflow/value_codec';
import { ConnectFailed, ConnectionLost, MeshError, NoPlan, PeerError, RunFailed, textOf } from '../errors';
import { SESSION_BYTES } from '../limits';
import type { GraphManifest, Value } from '../planner/graph_manifest';
import type { MeshView } from '../replication/mesh_view';
import type { FlowHost } from '../stage/flow_host';
import { named, names } from '../state/display_names';
import type { Offers } from '../state/offers';
import { isAway } from '../state/mesh_state';
import type { PeerLinks } from '../transport/peer_links';
import { nowS } from '../transport/ticker';
import { RUN_CLOSE, RUN_OPEN } from '../wire/generated/requests';
import { toHex } from '../wire/hex';

const OPEN_WITHIN_S = 600; // its peers may still fetch weights
const ROUTE_WITHIN_S = 120; // for the mesh to place again what a lost peer held
const AGAIN_S = 0.5; // between two looks for stages
const STALL_S = 30; // without an item that ends: stages are opened again, which sends again what may be lost
const MOST_STALL_S = 900; // each time twice as long, since a value may take long over a slow link
const GIVE_UP_S = 3600; // without an item that ends: the run is over
const REFUSED_S = 120; // since a peer did not open its stages first: a placement may be on its way to it
const FORGIVEN_S = 5; // after this long without stages, peers that were lost are tried again
const CLOSE_WITHIN_S = 2;

/** A model that the mesh offers: its name there, its id, its manifest. */
export interface OfferedGraph {
  readonly name: string;
  readonly model: string;
  readonly manifest: GraphManifest;
}

type View = Pick<MeshView, 'state' | 'subscribe'>;
type Links = Pick<PeerLinks, 'me' | 'ask' | 'call' | 'onGone' | 'sendOrLose'>;
type Flow = Pick<FlowHost, 'listen'> & { readonly exchange: Pick<FlowHost['exchange'], 'send'> };
type Ended = (outputs: ReadonlyMap<number, ValueArray> | PeerError) => void;

/**
 * A peer for each stage as placed now, none of `without`, primaries first; null where a stage has nobody.
 *
 * Raises NoPlan when the model was withdrawn.
 */
export function stagesNow(
  { state }: Pick<MeshView, 'state'>,
  { name, model }: OfferedGraph,
  without: ReadonlySet<string>,
): readonly FlowStage[] | null {
  const offer = offered(state.offers, name, model);
  if (offer === undefined) throw new NoPlan(`${name} was withdrawn`);
  const chosen: FlowStage[] = [];
  for (const { first, stop, primary, standbys } of offer.stages) {
    const peer = [primary, ...standbys].find((each) => {
      const member = state.members.get(each);
      return member !== undefined && !isAway(member) && !without.has(each);
    });
    if (peer === undefined) return null;
    chosen.push({ first, stop, peer });
  }
  return chosen.length > 0 ? chosen : null;
}

/** Made and opened by `RunClient`, which closes it. */
export class RunLane {
  broken: PeerError | null = null; // why nothing runs here any more
  reroutes = 0;
  private readonly links: Links;
  private readonly view: View;
  private readonly flow: Flow;
  private readonly offered: OfferedGraph;
  private core: FlowOrigin | null = null;
  private readonly lost = new Set<string>(); // peers of this placement that were lost
  private version = 0; // of the placement
  private readonly waiting = new Map<number, Ended>();
  private changed = false;
  private wake: (() => void) | null = null; // whoever waits for a change
  private endedItems = 0; // to see whether any ends
  private readonly asked = new Set<string>(); // all peers that were to open stages
  private ends: (() => void)[] = [];
  private closed = false;

  constructor(links: Links, view: View, flow: Flow, offered: OfferedGraph) {
    this.links = links;
    this.view = view;
    this.flow = flow;
    this.offered = offered;
  }

  /** Over whom it runs. Raises RunFailed before it is open. */
  get route(): FlowRoute {
    return this.opened().route;
  }

  /** How many items have not ended. */
  get underWay(): number {
    return this.waiting.size;
  }

  /** Opens it on the peers that the placement names. Raises NoPlan, RunFailed. */
  async open(): Promise<void> {
    const run = toHex(crypto.getRandomValues(new Uint8Array(SESSION_BYTES)));
    this.ends = [
      this.flow.listen(run, this),
      this.links.onGone((peer) => this.gone(peer)),
      this.view.subscribe(() => this.change()),
    ];
    try {
      const core = new FlowOrigin(run, await this.routeNow());
      this.core = core;
      await this.openStages(core);
      void this.keep(core);
    } catch (error) {
      await this.close();
      throw error;
    }
  }

  /** The outputs of one item, both by place of the value; `signal` gives it up. Raises RunFailed, or `broken`. */
  run(
    inputs: ReadonlyMap<number, ValueArray>,
    signal: AbortSignal,
  ): Promise<ReadonlyMap<number, ValueArray>> {
    if (this.broken !== null) return Promise.reject(this.broken);
    const core = this.opened();
    return new Promise((resolve, reject) => {
      if (signal.aborted) {
        reject(new RunFailed('stopped'));
        return;
      }
      const [item, effects] = core.submit(inputs);
      const stop = (): void => {
        this.perform(core.drop(item));
        this.end(item, new RunFailed('stopped'));
      };
      signal.addEventListener('abort', stop);
      this.waiting.set(item, (outcome) => {
        signal.removeEventListener('abort', stop);
        if (outcome instanceof PeerError) reject(outcome);
        else resolve(outcome);
      });
      this.perform(effects);
    });
  }

  /** Ends it on every peer. */
  async close(): Promise<void> {
    if (this.closed) return;
    this.closed = true;
    this.change(); // who leads the run ends by itself
    for (const end of this.ends.splice(0)) end();
    this.breakOff(this.broken ?? closedRun());
    const { core } = this;
    if (core === null) return;
    await Promise.all([...this.asked].sort().map((peer) => this.tellClosed(core, peer))); // of routes before, too
  }

  // --- RunListener

  /** What the manifest says of an output that comes; null: it is not wanted (any more). */
  wanted(peer: string, epoch: number, item: number, value: number): Value | null {
    if (this.core?.takes(peer, epoch, item, value) !== true) return null;
    return this.offered.manifest.values[value] ?? null;
  }

  /** Takes an output. */
  came(peer: string, epoch: number, item: number, value: number, array: ValueArray): void {
    if (this.core !== null) this.perform(this.core.value(peer, epoch, item, value, array));
  }

  /** Takes that an item cannot be computed. */
  failed(peer: string, epoch: number, item: number, text: string): void {
    if (this.core !== null) this.perform(this.core.failed(peer, epoch, item, text));
  }

  // --- inner moves

  private async tellClosed({ run }: FlowOrigin, peer: string): Promise<void> {
    try {
      await this.links.call(peer, RUN_CLOSE, { run }, CLOSE_WITHIN_S);
    } catch (error) {
      if (!(error instanceof PeerError)) throw error; // it lets go of the run by itself
    }
  }

  private opened(): FlowOrigin {
    if (this.core === null) throw new RunFailed('the run is not open');
    return this.core;
  }

  private perform(effects: readonly OriginFlowEffect[]): void {
    for (const effect of effects) {
      switch (effect.kind) {
        case 'sendValue': {
          const value = this.offered.manifest.values[effect.value];
          if (value !== undefined) this.flow.exchange.send(effect, value);
          break;
        }
        case 'sendGo': {
          const { peer, run, epoch, below } = effect;
          this.links.sendOrLose(peer, { kind: 'RUN_GO', run, epoch, below });
          break;
        }
        case 'itemDone':
          this.end(effect.item, effect.outputs);
          break;
        case 'itemFailed':
          this.end(effect.item, new RunFailed(effect.text));
          break;
        default:
          effect satisfies never;
      }
    }
  }

  private end(item: number, outcome: ReadonlyMap<number, ValueArray> | PeerError): void {
    this.endedItems += 1;
    const ended = this.waiting.get(item);
    this.waiting.delete(item);
    ended?.(outcome);
  }

  private gone(peer: string): void {
    if (this.core === null || !peersOf(this.core.route).includes(peer)) return;
    this.lost.add(peer);
    this.change();
  }

  private change(): void {
    this.changed = true;
    this.wake?.();
  }

  /** Until something changes, or so long. */
  private async woken(withinS: number): Promise<void> {
    if (!this.changed) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, withinS * 1000);
        this.wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
      this.wake = null;
    }
    this.changed = false;
  }

  /** Waits for stages. Raises NoPlan or RunFailed when there are none in time. */
  private async routeNow(): Promise<FlowRoute> {
    const untilS = nowS() + ROUTE_WITHIN_S;
    let sinceS = nowS();
    for (;;) {
      if (this.closed) throw closedRun();
      const stages = this.stages();
      if (stages !== null) return flowRoute(this.offered.manifest, stages, this.links.me);
      if (nowS() >= untilS) {
        const { name, model } = this.offered;
        const why = offered(this.view.state.offers, name, model)?.why.join('; ') ?? 'it was withdrawn';
        throw new RunFailed(`no peers hold ${name}: ${why === '' ? 'those that did are gone' : why}`);
      }
      await this.woken(AGAIN_S);
      if (nowS() - sinceS > FORGIVEN_S) {
        sinceS = nowS();
        this.lost.clear(); // the connection may have ended, and not the peer
      }
    }
  }

  private stages(): readonly FlowStage[] | null {
    const version = this.view.state.offers.get(this.offered.name)?.version ?? this.version;
    if (version !== this.version) {
      this.version = version;
      this.lost.clear();
    }
    return stagesNow(this.view, this.offered, this.lost);
  }

  /** Opens this epoch on all peers of a route that works, and lets the run go. Raises NoPlan, RunFailed. */
  private async openStages(core: FlowOrigin): Promise<void> {
    let refusedAtS: number | null = null;
    for (;;) {
      const wrong = await this.refusals(core);
      if (this.closed) throw closedRun();
      const [first] = wrong;
      if (first === undefined) {
        this.perform(core.opened());
        return;
      }
      for (const [peer, error] of wrong) {
        if (error instanceof ConnectFailed || error instanceof ConnectionLost) this.lost.add(peer);
        else if (!(error instanceof MeshError)) throw error;
      }
      refusedAtS ??= nowS();
      if (nowS() - refusedAtS > REFUSED_S) {
        const [peer, error] = first;
        const why = `${peer} does not open its stages of ${this.offered.name}: ${textOf(error)}`;
        throw new RunFailed(named(why, names(this.view.state.members.values())));
      }
      await this.woken(AGAIN_S); // a placement may be on its way to one of them
      core.reroute(await this.routeNow());
    }
  }

  /** Asks all peers of the route to open this epoch: those that do not, and why. */
  private async refusals(core: FlowOrigin): Promise<(readonly [string, unknown])[]> {
    const { route, epoch, run } = core;
    const spans = route.stages.map(({ first, stop }) => ({ first, stop }));
    const peers = route.stages.map(({ peer }) => peer);
    const said = { run, epoch, model: this.offered.model, spans, peers };
    const asking = peersOf(route).map(async (peer) => {
      this.asked.add(peer);
      try {
        await this.links.ask(peer, RUN_OPEN, said, OPEN_WITHIN_S);
        if (this.closed) await this.tellClosed(core, peer); // it opened after it was told before
        return [];
      } catch (error) {
        return [[peer, error] as const];
      }
    });
    return (await Promise.all(asking)).flat();
  }

  /** Leads the run until it is closed. What waits ends when that is not possible any more, whatever the reason. */
  private async keep(core: FlowOrigin): Promise<void> {
    try {
      await this.lead(core);
    } catch (error) {
      if (this.closed) return; // what waited has ended
      if (error instanceof PeerError) {
        this.breakOff(error);
        return;
      }
      reportError(error); // a defect
      this.breakOff(new RunFailed(`this peer failed: ${error instanceof Error ? error.name : typeof error}`));
    }
  }

  /**
   * Leads the run around lost peers, and opens its stages again when nothing ends for long. Raises PeerError where they
   * are not to be had, or still nothing ends.
   */
  private async lead(core: FlowOrigin): Promise<void> {
    let seen = this.endedItems;
    let sinceS = nowS();
    let endedAtS = sinceS;
    let patienceS = STALL_S;
    while (!this.closed) {
      if (this.stands(core.route)) {
        // else somebody was lost while the stages were opened
        await this.woken(Math.max(sinceS + patienceS - nowS(), AGAIN_S));
      }
      if (this.endedItems !== seen || core.underWay === 0) {
        seen = this.endedItems;
        sinceS = nowS();
        endedAtS = sinceS;
        patienceS = STALL_S;
      }
      if (nowS() - endedAtS >= GIVE_UP_S) {
        throw new RunFailed(`no item of ${this.offered.name} has ended for ${GIVE_UP_S} s`);
      }
      const stalled = nowS() - sinceS >= patienceS;
      if (stalled) {
        sinceS = nowS();
        patienceS = Math.min(2 * patienceS, MOST_STALL_S);
      }
      if (!stalled && this.stands(core.route)) continue;
      this.reroutes += 1;
      core.reroute(await this.routeNow());
      await this.openStages(core);
    }
  }

  /** Whether no peer of the route was lost, and the model is still offered. */
  private stands(route: FlowRoute): boolean {
    const { name, model } = this.offered;
    const { members, offers } = this.view.state;
    const areThere = peersOf(route).every((peer) => {
      const member = members.get(peer);
      return member !== undefined && !isAway(member) && !this.lost.has(peer);
    });
    return areThere && offered(offers, name, model) !== undefined;
  }

  private breakOff(error: PeerError): void {
    this.broken = error;
    for (const item of [...this.waiting.keys()]) this.end(item, error);
  }
}

/** The offer under that name, where it is of that model. */
function offered(offers: Offers, name: string, model: string): ReturnType<Offers['get']> {
  const offer = offers.get(name);
  return offer?.model === model ? offer : undefined;
}

function closedRun(): RunFailed {
  return new RunFailed('the run was closed');
}
