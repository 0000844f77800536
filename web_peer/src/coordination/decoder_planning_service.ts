/*
 * Plans of further models that answer in words, on the tab that coordinates: manifests fetched, the planner asked (twin
 * of peer/coordination/decoder_planning_service.py). Edge.
 *
 * Each has a coordinator of its own, which decides as for the mesh's own model. It lives as long as the coordinator of
 * the mesh, which calls `look` whenever the state has changed and now and then.
 */

import { PeerError, textOf } from '../errors';
import type { Manifest } from '../planner/manifest';
import type { Command } from '../state/member_commands';
import type { MeshState } from '../state/mesh_state';
import { Coordinator, type Wanted } from './coordinator';
import {
  OWN,
  plannedWith,
  saidOf,
  sharedRuns,
  type Sharing,
  type Weights,
  weightsOf,
} from './decoder_planning';
import type { Planned, PlannerUnit, PlanRequest } from './plan_request';

const AGAIN_MS = 10_000; // between tries to get a manifest that could not be had
const PLAN_AGAIN_MS = 5000; // after a planner that did not answer
const MAX_REASON = 500;

/** What planning further models takes of a tab that coordinates. */
export interface DecoderSurroundings {
  /** Raises a PeerError. */
  manifestOf(model: string): Promise<Manifest>;
  readonly own: readonly PlannerUnit[]; // with which members measured themselves
  readonly answering: Manifest | null; // the mesh's own model
  speaks(peer: string): number; // the version of the protocol that it was heard to speak
  /** A plan of a planner; null: none answers now. Raises a PeerError where it refuses. */
  plan(request: PlanRequest): Promise<Planned | null>;
}

/** The mesh as its coordinator leads it: `state` with what was submitted, `submit` has the log take a command. */
export interface Led {
  readonly me: string;
  readonly state: MeshState;
  submit(command: Command): void;
}

interface Core {
  readonly name: string;
  readonly model: string;
  readonly core: Coordinator;
}

/** Plans of all further models, made one after the other. */
export class DecoderPlanning {
  private readonly around: DecoderSurroundings;
  private readonly led: Led;
  private readonly weights = new Map<string, Weights>(); // by model
  private ownWeights: Weights | null = null;
  private readonly againMs = new Map<string, number>(); // by model: when its manifest is asked for again
  private readonly fetching = new Set<string>(); // models
  private cores = new Map<string, Core>(); // by name and model
  private seen: MeshState | null = null;
  private isLooking = false;
  private isPlanning = false;
  private closed = false;
  private again: ReturnType<typeof setTimeout> | undefined; // to ask a planner

  constructor(around: DecoderSurroundings, led: Led) {
    this.around = around;
    this.led = led;
  }

  /**
   * Says what follows from the state, and plans what is to be planned. `thoroughly`: though the state is the same, since
   * time has passed.
   */
  look(thoroughly = false): void {
    if (this.isLooking || this.closed || this.led.state.decoders.size + this.cores.size === 0) return;
    this.isLooking = true;
    try {
      let again = thoroughly;
      while ((again || this.led.state !== this.seen) && !this.isOver()) {
        again = false;
        this.seen = this.led.state;
        this.follow();
      }
      this.planNext();
    } finally {
      this.isLooking = false;
    }
  }

  /** What the units of a further model cost beside one another; null before its manifest is known. */
  unitCosts(name: string, model: string): readonly number[] | null {
    return this.cores.get(keyOf({ name, model }))?.core.unitCosts() ?? null;
  }

  /** Plans nothing any more. */
  close(): void {
    this.closed = true;
    clearTimeout(this.again);
  }

  private isOver(): boolean {
    return this.closed;
  }

  /** Shows each coordinator the state of now, and has the log take what it decides at once. */
  private follow(): void {
    const offered = [...this.led.state.decoders].map(([name, { model }]) => ({ name, model }));
    const keys = new Set(offered.map(keyOf));
    this.cores = new Map([...this.cores].filter(([key]) => keys.has(key)));
    for (const { name, model } of offered.sort((a, b) => (a.name < b.name ? -1 : 1))) {
      const weights = this.weights.get(model);
      if (weights === undefined) {
        this.fetch(name, model);
        continue;
      }
      const { around } = this;
      const { units } = weights;
      const speaks = (peer: string): number => around.speaks(peer);
      const sharing = this.sharing();
      const seen = plannedWith(this.led.state, name, units, around.own, speaks, sharing);
      const shared = sharedRuns(this.led.state, name, sharing);
      const known = this.cores.get(keyOf({ name, model }));
      if (known === undefined) {
        const core = new Coordinator(this.led.me, units, seen, shared);
        this.cores.set(keyOf({ name, model }), { name, model, core });
        this.say(name, core.goOn());
      } else this.say(name, known.core.follow(seen, shared));
    }
  }

  /** The weights of the models that answer in words, as far as their manifests are here. */
  private sharing(): Sharing {
    const { around } = this;
    if (around.answering !== null) this.ownWeights ??= weightsOf(around.answering);
    const own: [string, Weights][] = this.ownWeights === null ? [] : [[OWN, this.ownWeights]];
    const further = [...this.led.state.decoders].flatMap(([name, { model }]): [string, Weights][] => {
      const weights = this.weights.get(model);
      return weights === undefined ? [] : [[name, weights]];
    });
    return { models: new Map([...own, ...further]), speaks: (peer) => around.speaks(peer) };
  }

  private say(name: string, decided: readonly Command[]): void {
    for (const command of decided) if (!this.closed) this.led.submit(saidOf(name, command));
  }

  /** One at a time, in the order of names: each is planned with what those before it take. */
  private planNext(): void {
    const { model, plan, proposed, refused } = this.led.state;
    const waits = model !== null && plan === null && proposed === null;
    if (this.closed || this.isPlanning || (waits && refused === '')) return; // looked at again when that is over
    for (const each of [...this.cores.values()].sort((a, b) => (a.name < b.name ? -1 : 1))) {
      const wanted = each.core.state.proposed === null ? each.core.wanted() : null;
      if (wanted === null) continue;
      this.isPlanning = true;
      this.plan(each, wanted).catch(reportError);
      return;
    }
  }

  private async plan(each: Core, wanted: Wanted): Promise<void> {
    let found: Planned | null;
    try {
      found = await this.around.plan(wanted.request);
    } catch (error) {
      if (!(error instanceof PeerError)) throw error;
      found = { kind: 'infeasible', reason: textOf(error) };
    } finally {
      this.isPlanning = false;
    }
    if (this.closed) return;
    if (found === null) {
      // Nobody plans now; what serves, serves on.
      clearTimeout(this.again);
      this.again = setTimeout(() => {
        each.core.unplanned(wanted);
        this.look(true);
      }, PLAN_AGAIN_MS);
      return;
    }
    if (this.cores.get(keyOf(each)) === each) this.say(each.name, each.core.planned(wanted, found));
    this.look(true);
  }

  private fetch(name: string, model: string): void {
    if (this.fetching.has(model) || performance.now() < (this.againMs.get(model) ?? 0)) return;
    this.fetching.add(model);
    this.fetched(name, model).catch(reportError);
  }

  private async fetched(name: string, model: string): Promise<void> {
    try {
      this.weights.set(model, weightsOf(await this.around.manifestOf(model)));
    } catch (error) {
      this.againMs.set(model, performance.now() + AGAIN_MS);
      if (!(error instanceof PeerError)) throw error;
      const decoder = this.led.state.decoders.get(name);
      if (decoder?.plan === null && decoder.refused === '' && !this.closed) {
        const reason = `its manifest cannot be had: ${textOf(error)}`.slice(0, MAX_REASON);
        this.led.submit({ kind: 'DecoderRefused', name, reason });
      }
    } finally {
      this.fetching.delete(model);
    }
    this.look(true);
  }
}

function keyOf({ name, model }: { readonly name: string; readonly model: string }): string {
  return `${name} ${model}`;
}
