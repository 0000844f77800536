/*
 * This tab's stages of models that are graphs of units: what dataflow/flow_stage.ts decides is done here (twin of
 * peer/stage/flow_host.py). Edge. It computes from `lend` on: it holds the units that placements give it, each run of
 * them in a worker of its own, and computes one item at a time, those of the origins in turn. Every tab has one, since
 * values come to whoever asks, too.
 */

import { flowRoute } from '../dataflow/flow_route';
import { type Compute, type FlowEffect, FlowStages, type TellFailed } from '../dataflow/flow_stage';
import { checkShape, checkTotal, type ValueArray } from '../dataflow/value_codec';
import { BadCommand, CannotServe, textOf } from '../errors';
import { MAX_TEXT_BYTES } from '../limits';
import type { Fetcher } from '../model/fetcher';
import { compose } from '../planner/compose';
import { graphBlobsOf, type GraphManifest, type Value } from '../planner/graph_manifest';
import { sameUnits } from '../planner/same_units';
import type { MeshView } from '../replication/mesh_view';
import { GraphRuntime } from '../runtime/graph_runtime';
import type { PeerLinks } from '../transport/peer_links';
import { ValueExchange } from '../transport/value_exchange';
import type { RunGo, RunItemFailed, RunValue } from '../wire/generated/frames';
import { RUN_CLOSE, RUN_OPEN, type RunCloseRequest, type RunOpenRequest } from '../wire/generated/requests';
import { nowS } from '../transport/ticker';

const KEPT_BYTES = 128 << 20; // of values of all runs, those that this tab asks included
const LOAD_AGAIN_MS = 5000; // after units that a placement gives this peer did not load

/** Units [first, stop) of a model. */
export interface UnitRun {
  readonly model: string;
  readonly first: number;
  readonly stop: number;
}

/** Who asks a run on this peer. */
export interface RunListener {
  /** What the manifest says of an output that comes; null: it is not wanted (any more). */
  wanted(peer: string, epoch: number, item: number, value: number): Value | null;
  /** Takes an output. */
  came(peer: string, epoch: number, item: number, value: number, array: ValueArray): void;
  /** Takes that an item cannot be computed. */
  failed(peer: string, epoch: number, item: number, text: string): void;
}

/** What gets the manifests of models. */
export type Manifests = Pick<Fetcher, 'graphManifest'>;

/** What computes units that are loaded. */
export type Runtime = Pick<GraphRuntime, 'run' | 'close' | 'weightBytes'>;

/** What computing for others takes. */
export interface Lent {
  readonly fetcher: Pick<Fetcher, 'graphManifest' | 'blobs'>;
  readonly threads: number;
  readonly load:
    typeof GraphRuntime.load | ((...given: Parameters<typeof GraphRuntime.load>) => Promise<Runtime>);
}

interface Loaded {
  readonly units: UnitRun;
  readonly runtime: Promise<Runtime>;
  readonly ended: AbortController;
  weightBytes: number; // 0 until they are loaded
  content: string; // as sameUnits has it; '' until the manifest is here
  owner: Loaded | null; // whose runtime it uses, since the units are equal; null: its own
}

type Links = Pick<PeerLinks, 'me' | 'on' | 'onConnected' | 'send' | 'sendOrLose' | 'dial' | 'connection'>;

const keyOf = ({ model, first, stop }: UnitRun): string => `${model} ${first} ${stop}`;

/** The units that this tab holds of graphs, and the stages of runs that it computes with them. */
export class FlowHost {
  readonly core: FlowStages;
  readonly exchange: ValueExchange;
  private readonly links: Links;
  private readonly view: Pick<MeshView, 'state' | 'subscribe'>;
  private lent: Lent | null = null;
  private readonly asked = new Map<string, RunListener>(); // runs that this peer asks
  private readonly manifests = new Map<string, Promise<GraphManifest>>();
  private readonly ofRun = new Map<string, { readonly model: string; readonly manifest: GraphManifest }>();
  private readonly loaded = new Map<string, Loaded>();
  private readonly turns = new Map<string, Compute[]>(); // what waits to be computed, by origin
  private computing = false;
  private following = false;
  private due = false;
  private readonly over = new AbortController();

  constructor(links: Links, view: Pick<MeshView, 'state' | 'subscribe'>) {
    this.links = links;
    this.view = view;
    this.core = new FlowStages(links.me, KEPT_BYTES);
    this.exchange = new ValueExchange(links, this, KEPT_BYTES);
    links.on(RUN_OPEN, (peer, said) => this.open(peer, said));
    links.on(RUN_CLOSE, (peer, said) => this.closeRun(peer, said));
    links.onConnected((peer) => this.core.back(peer));
  }

  /** Computes for others from here on. Raises an Error when it does already. */
  lend(
    fetcher: Lent['fetcher'],
    threads: number,
    load: Lent['load'] = (...given) => GraphRuntime.load(...given),
  ): void {
    if (this.lent !== null) throw new Error('this peer computes runs already');
    this.lent = { fetcher, threads, load };
    const unsubscribe = this.view.subscribe(() => this.look());
    this.over.signal.addEventListener('abort', unsubscribe);
    this.look();
  }

  /** What the weights of the units occupy that are loaded here, those of equal units once. */
  get weightBytes(): number {
    const owners = new Set([...this.loaded.values()].map((loaded) => loaded.owner ?? loaded));
    return [...owners].reduce((sum, { weightBytes }) => sum + weightBytes, 0);
  }

  /** The units that are loaded or load. */
  get units(): readonly UnitRun[] {
    return [...this.loaded.values()].map(({ units }) => units);
  }

  // --- runs that this peer asks

  /** The manifest of a model, remembered. Raises CannotServe. */
  manifest(model: string, fetcher: Manifests): Promise<GraphManifest> {
    const known = this.manifests.get(model);
    if (known !== undefined) return known;
    const fetching = fetcher.graphManifest(model, this.over.signal);
    this.manifests.set(model, fetching);
    fetching.catch(() => this.manifests.delete(model)); // the next one tries again
    return fetching;
  }

  /** Hands what comes of that run to `listener`, until what is returned is called. */
  listen(run: string, listener: RunListener): () => void {
    this.asked.set(run, listener);
    return () => {
      this.asked.delete(run);
      if (!this.ofRun.has(run)) this.exchange.forget(run);
    };
  }

  // --- frames

  /** Takes a part of a value. Raises BadCommand or WrongTensor. */
  value(peer: string, frame: RunValue): void {
    this.exchange.frame(peer, frame);
  }

  /** Takes that a run goes, and which of its items are done. */
  go(peer: string, { run, epoch, below }: RunGo): void {
    this.perform(this.core.go(peer, run, epoch, below));
  }

  /** Takes that an item of a run that this peer asks cannot be computed. */
  failed(peer: string, { run, epoch, item, message }: RunItemFailed): void {
    this.asked.get(run)?.failed(peer, epoch, item, message);
  }

  /** Takes that the connection to a peer ended. */
  gone(peer: string): void {
    this.exchange.gone(peer);
    this.core.gone(nowS(), peer);
  }

  /** Looks at deadlines. */
  tick(): void {
    this.perform(this.core.tick(nowS()));
  }

  // --- ValueTaker

  /** What a value is that comes; null: nobody here wants it. */
  wanted(peer: string, run: string, epoch: number, item: number, value: number): Value | null {
    const found = this.asked.get(run)?.wanted(peer, epoch, item, value) ?? null;
    if (found !== null || !this.core.takes(peer, run, epoch, item, value)) return found;
    return this.ofRun.get(run)?.manifest.values[value] ?? null;
  }

  /** Takes that a value cannot be had here: its item fails for whoever asks. */
  unable(peer: string, run: string, epoch: number, item: number, text: string): void {
    this.asked.get(run)?.failed(peer, epoch, item, text);
    this.perform(this.core.unable(run, epoch, item, text));
  }

  /** Takes a whole value, for stages here, for whoever asks here, or for both. */
  came(peer: string, run: string, epoch: number, item: number, value: number, array: ValueArray): void {
    this.asked.get(run)?.came(peer, epoch, item, value, array);
    this.perform(this.core.value(peer, run, epoch, item, value, array));
  }

  // --- effects

  /** Does what the stages decided; nothing any more once this tab leaves: its origins go on with others. */
  perform(effects: readonly FlowEffect[]): void {
    if (this.over.signal.aborted) return;
    for (const effect of effects) {
      switch (effect.kind) {
        case 'sendValue': {
          const value = this.ofRun.get(effect.run)?.manifest.values[effect.value];
          if (value !== undefined) this.exchange.send(effect, value);
          break;
        }
        case 'compute':
          this.turns.set(effect.origin, [...(this.turns.get(effect.origin) ?? []), effect]);
          break;
        case 'tellFailed':
          this.tell(effect);
          break;
        case 'forgotten':
          this.forget(effect.run);
          break;
        default:
          effect satisfies never;
      }
    }
    if (this.turns.size > 0 && !this.computing) void this.compute();
  }

  /** Ends everything. No item fails by it. */
  close(): void {
    this.over.abort();
    this.exchange.close();
    this.turns.clear();
    for (const loaded of [...this.loaded.values()]) this.unload(loaded);
  }

  private tell({ peer, run, epoch, item, text }: TellFailed): void {
    const bytes = new TextEncoder().encode(text).subarray(0, MAX_TEXT_BYTES);
    const message = new TextDecoder().decode(bytes, { stream: true }); // without a character that was cut
    this.links.sendOrLose(peer, { kind: 'RUN_ITEM_FAILED', run, epoch, item, message });
  }

  private forget(run: string): void {
    this.ofRun.delete(run);
    if (!this.asked.has(run)) this.exchange.forget(run);
    for (const [origin, turns] of this.turns) {
      this.turns.set(
        origin,
        turns.filter((turn) => turn.run !== run),
      );
    }
    this.look(); // units that only this run used
  }

  /** Computes what waits, an item of each origin in turn. */
  private async compute(): Promise<void> {
    this.computing = true;
    try {
      while (this.turns.size > 0) {
        for (const origin of [...this.turns.keys()]) {
          const [step, ...later] = this.turns.get(origin) ?? [];
          if (later.length > 0) this.turns.set(origin, later);
          else this.turns.delete(origin);
          if (step !== undefined) await this.computed(step);
        }
      }
    } finally {
      this.computing = false;
    }
  }

  private async computed(step: Compute): Promise<void> {
    const { run, item, first, stop } = step;
    const known = this.ofRun.get(run);
    if (known === undefined) return;
    const { values } = known.manifest;
    const outputs = new Map<number, ValueArray>();
    try {
      const runtime = await this.load({ model: known.model, first, stop });
      const inputs = new Map([...step.inputs].map(([place, array]) => [values[place]?.name ?? '', array]));
      const made = await runtime.run(inputs);
      values.forEach((value, place) => {
        const array = made.get(value.name);
        if (array === undefined) return;
        checkShape(array.shape, value); // others would take it for an attack
        checkTotal(array.data.length, array.shape, value);
        outputs.set(place, array);
      });
    } catch (error) {
      this.perform(this.core.failed(run, item, first, stop, textOf(error)));
      return;
    }
    this.perform(this.core.computed(run, item, outputs));
  }

  // --- units

  /** Makes ready for the stages of a run. Raises BadCommand, CannotServe. */
  private async open(peer: string, said: RunOpenRequest): Promise<null> {
    const { run, epoch, model, spans, peers } = said;
    if (this.lent === null) throw new CannotServe('this peer lends nothing');
    if (spans.length !== peers.length) {
      throw new BadCommand(`run_open: ${spans.length} peers expected, got ${peers.length}`);
    }
    const stages = spans.map(({ first, stop }, place) => ({ first, stop, peer: peers[place] ?? '' }));
    const here = stages
      .filter((stage) => stage.peer === this.links.me)
      .map(({ first, stop }) => ({ model, first, stop }));
    const allowed = new Set([...this.placed().map(keyOf), ...this.loaded.keys()]);
    if (here.length === 0 || !here.every((units) => allowed.has(keyOf(units)))) {
      throw new BadCommand('run_open: no placement gives this peer these units');
    }
    const manifest = await this.manifest(model, this.lent.fetcher);
    const route = flowRoute(manifest, stages, peer);
    for (const units of here) await this.load(units);
    if ((this.ofRun.get(run)?.model ?? model) !== model) {
      throw new BadCommand('this run is of another model');
    }
    this.core.open(run, epoch, route);
    this.ofRun.set(run, { model, manifest });
    return null;
  }

  private closeRun(peer: string, { run }: RunCloseRequest): null {
    this.perform(this.core.close(peer, run));
    return null;
  }

  /** The units that placements give this peer, as primary or standby. */
  private placed(): UnitRun[] {
    const { me } = this.links;
    return [...this.view.state.offers.values()].flatMap(({ model, stages }) =>
      stages
        .filter(({ primary, standbys }) => primary === me || standbys.includes(me))
        .map(({ first, stop }) => ({ model, first, stop })),
    );
  }

  private used(): UnitRun[] {
    return this.core.uses().flatMap(({ run, first, stop }) => {
      const known = this.ofRun.get(run);
      return known === undefined ? [] : [{ model: known.model, first, stop }];
    });
  }

  /** The runtime of these units, fetched and loaded when first asked for. Raises CannotServe. */
  private load(units: UnitRun): Promise<Runtime> {
    const known = this.loaded.get(keyOf(units));
    if (known !== undefined) return known.runtime;
    const ended = new AbortController();
    const made: Loaded = {
      units,
      ended,
      weightBytes: 0,
      content: '',
      owner: null,
      runtime: Promise.resolve() // a turn later, when this is there
        .then(() => this.make(made))
        .catch((error: unknown) => {
          if (!ended.signal.aborted) throw error;
          throw new CannotServe('no placement gives this peer these units any more');
        }),
    };
    this.loaded.set(keyOf(units), made);
    made.runtime.then(
      ({ weightBytes }) => {
        made.weightBytes = weightBytes;
      },
      () => this.drop(made), // the next one tries again
    );
    return made.runtime;
  }

  private async make(loaded: Loaded): Promise<Runtime> {
    const { model, first, stop } = loaded.units;
    const { signal } = loaded.ended;
    if (this.lent === null) throw new CannotServe('this peer lends nothing');
    const { fetcher, threads, load } = this.lent;
    const manifest = await this.manifest(model, fetcher);
    if (stop > manifest.units.length) {
      throw new BadCommand(`units up to ${manifest.units.length} expected, got ${stop}`);
    }
    loaded.content = sameUnits(manifest, first, stop);
    const equal = this.others(loaded).find((each) => each.content === loaded.content);
    if (equal !== undefined) {
      loaded.owner = equal.owner ?? equal;
      return loaded.owner.runtime;
    }
    const blobs = await fetcher.blobs(graphBlobsOf(manifest, first, stop), signal);
    const composed = compose(manifest, blobs, first, stop);
    const weights = new Set(
      manifest.units.slice(first, stop).flatMap((unit) => unit.weights.map(({ sha256 }) => sha256)),
    );
    const given = new Map([...blobs].filter(([hash]) => weights.has(hash)));
    const lost = (): void => this.lost(loaded);
    return load({ composed, blobs: given, fused: manifest.fused }, threads, lost, signal);
  }

  /** The others that are loaded or load. */
  private others(loaded: Loaded): Loaded[] {
    return [...this.loaded.values()].filter((each) => each !== loaded);
  }

  private lost(owner: Loaded): void {
    for (const loaded of [owner, ...this.others(owner)]) {
      if (loaded === owner || loaded.owner === owner) this.drop(loaded);
    }
    this.look();
  }

  private drop(loaded: Loaded): void {
    const key = keyOf(loaded.units);
    if (this.loaded.get(key) === loaded) this.loaded.delete(key);
  }

  private unload(loaded: Loaded): void {
    this.drop(loaded);
    const owner = loaded.owner ?? loaded;
    if (this.others(loaded).some((each) => (each.owner ?? each) === owner)) return; // they go on with it
    owner.ended.abort();
    owner.runtime.then(
      (runtime) => runtime.close(),
      () => undefined, // it did not load
    );
  }

  /** Looks soon at what placements give this peer. */
  private look(): void {
    this.due = true;
    if (!this.following && this.lent !== null) void this.follow();
  }

  /** Loads what placements give this peer before anybody asks, and lets go of what neither they nor runs need. */
  private async follow(): Promise<void> {
    this.following = true;
    try {
      while (this.due && !this.over.signal.aborted) {
        this.due = false;
        const wanted = this.placed();
        const kept = new Set([...wanted, ...this.used()].map(keyOf));
        for (const loaded of [...this.loaded.values()]) {
          if (!kept.has(keyOf(loaded.units))) this.unload(loaded);
        }
        for (const units of wanted) await this.tried(units);
      }
    } finally {
      this.following = false;
    }
  }

  private async tried(units: UnitRun): Promise<void> {
    try {
      await this.load(units);
    } catch {
      const again = setTimeout(() => this.look(), LOAD_AGAIN_MS); // whoever opens a run there is told why
      this.over.signal.addEventListener('abort', () => clearTimeout(again), { once: true });
    }
  }
}
