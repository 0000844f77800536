/*
 * Makes this tab hold the units that the plan gives it: loads, reports, and unloads what nobody needs (twin of
 * peer/stage/unit_loader.py). Edge. One loop does one thing at a time: stages of the next plan first, then standbys.
 */

import { CannotServe, ConnectFailed, ConnectionLost, PeerError, textOf } from '../errors';
import type { FetchProgress } from '../model/fetcher';
import type { PlanRecord } from '../state/generated/commands';
import { type Run, runKey, wholeHolders } from '../state/plan_record';
import { serving } from '../state/mesh_state';
import type { ModelView } from '../replication/decoder_view';
import type { PeerLinks } from '../transport/peer_links';
import type { StageHost } from './stage_host';
import type { PlanStages } from '../session/open_checks';
import type { Serving } from './unit_host';
import type { Operation } from '../storage/journal_records';
import type { Journal } from '../storage/journal';

const REMEMBERED_PLANS = 4; // sessions may open over a plan that was replaced a moment ago
const DRAIN_MS = 20_000; // answers keep units that no plan wants; Python's 150 s: here nothing is loaded meanwhile
const KEPT_MS = 30_000; // how long units that were held before a reload wait for a plan that wants them
const LOOK_MS = 250;
const REPORT_AGAIN_MS = 1000; // after a report that did not arrive

export interface HoldingEvents {
  /** Tells the coordinator what is held here. Raises PeerError. */
  report(runs: readonly Run[]): Promise<void>;
  /** Bytes of a run that are here, of all it needs; with all of them the worker loads the run. */
  progress(run: Run, of: FetchProgress): void;
  /** The coordinator knows what is held now. */
  reported(runs: readonly Run[]): void;
  /** The tab cannot hold what the plan wants. */
  failed(text: string): void;
}

/** What holding units takes of a peer. */
interface Parts {
  readonly links: Pick<PeerLinks, 'me' | 'dial'>;
  readonly view: Pick<ModelView, 'state' | 'subscribe'>;
  readonly stage: Pick<StageHost, 'core' | 'perform'>;
}

/** Keeps what `serving` holds as the plans want it, each run with `slots` sessions. */
export class Holding {
  private readonly parts: Parts;
  private readonly serving: Serving;
  private readonly slots: number;
  private readonly events: HoldingEvents;
  private readonly journal: Journal; // loads and unloads are begun and ended in it
  private kept: readonly Run[] = []; // held before a reload, and not yet given up
  private keptSince: number | null = null; // the last plan's version when this tab was measured
  private givenBack: (() => void)[] = [];
  private readonly plans = new Map<number, PlanRecord>();
  private reported: string | null = null;
  private changed: (() => void) | null = null;
  private due = true;
  private readonly ended = new AbortController();
  private leaving = false;
  private unsubscribe: () => void = () => undefined;

  constructor(parts: Parts, runs: Serving, slots: number, events: HoldingEvents, journal: Journal) {
    this.parts = parts;
    this.serving = runs;
    this.slots = slots;
    this.events = events;
    this.journal = journal;
  }

  /**
   * Loads these too, until a plan is made that could have wanted them. Before `start`; resolves when they are loaded or
   * given up, and the coordinator knows.
   */
  keep(runs: readonly Run[]): Promise<void> {
    this.kept = runs;
    const keys = new Set(runs.map(runKey));
    for (const run of this.journal.core.kept) if (!keys.has(runKey(run))) this.journal.giveUp(run);
    return new Promise((resolve) => {
      if (runs.length === 0) resolve();
      else this.givenBack.push(resolve);
    });
  }

  /** Begins to follow the state. */
  start(): void {
    this.unsubscribe = this.parts.view.subscribe(() => this.stateChanged());
    this.stateChanged();
    void this.follow();
  }

  /** Whether nothing is loaded any more, as this peer lends no longer. */
  get isLeaving(): boolean {
    return this.leaving;
  }

  /** Loads nothing from here on; what is held stays until no plan wants it. */
  leave(): void {
    this.leaving = true;
  }

  /** Loads again what plans want, after `leave`. */
  comeBack(): void {
    this.leaving = false;
  }

  /** The coordinator was lost, or a worker: tell it again what is held here. */
  forgetReport(): void {
    this.reported = null;
    this.look();
  }

  /** A run is gone from `serving`: load it again if the plan still wants it. */
  lostRun(): void {
    this.tellCore();
    this.look();
  }

  /** Stops and unloads everything. */
  close(): void {
    this.unsubscribe();
    this.ended.abort();
    this.tellGivenBack();
    this.changed?.();
    this.serving.close();
  }

  private stateChanged(): void {
    const { plan, proposed } = this.parts.view.state;
    for (const each of [plan, proposed]) if (each !== null) this.plans.set(each.version, each);
    const versions = [...this.plans.keys()].sort((a, b) => a - b);
    for (const version of versions.slice(0, -REMEMBERED_PLANS)) this.plans.delete(version);
    this.tellCore();
    this.look();
  }

  /** Looks again at what the plans want, soon. */
  look(): void {
    this.due = true;
    this.changed?.();
  }

  private async follow(): Promise<void> {
    for (;;) {
      while (!this.due && !this.over()) {
        await new Promise<void>((resolve) => {
          this.changed = resolve;
        });
      }
      if (this.over()) return;
      this.due = false;
      try {
        await this.step();
      } catch (error) {
        if (this.over()) return;
        this.events.failed(textOf(error));
      }
    }
  }

  private over(): boolean {
    return this.ended.signal.aborted;
  }

  /** One load or unload; asks to be called again while there is more to do. */
  private async step(): Promise<void> {
    this.lookAtKept();
    const wanted = this.wanted();
    const keys = new Set(wanted.map(runKey));
    const loaded = new Set(this.serving.runs.map(runKey));
    for (const run of this.serving.runs) {
      if (!keys.has(runKey(run))) await this.unload(run);
    }
    const next = this.leaving ? undefined : wanted.find((run) => !loaded.has(runKey(run)));
    if (next !== undefined) {
      await this.load(next);
      this.tellCore();
      this.due = true;
    }
    await this.meetNeighbours();
    const held = this.serving.runs;
    const key = held.map(runKey).join(' ');
    if (this.reported !== key) {
      try {
        await this.events.report(held);
      } catch (error) {
        if (!(error instanceof PeerError)) throw error;
        setTimeout(() => this.look(), REPORT_AGAIN_MS); // the coordinator may not know this peer yet, or any more
        return;
      }
      this.reported = key;
      this.events.reported(held);
    }
    const here = new Set(held.map(runKey));
    if (this.kept.every((run) => here.has(runKey(run)))) this.tellGivenBack();
  }

  private async load(run: Run): Promise<void> {
    const operation: Operation = { kind: 'load', ...run };
    await this.journal.begin(operation);
    try {
      const progress = (of: FetchProgress): void => this.events.progress(run, of);
      await this.serving.load(run, progress, this.ended.signal);
    } catch (error) {
      this.journal.rollBack(operation);
      const isKept = this.kept.some((each) => runKey(each) === runKey(run));
      if (!isKept || !(error instanceof CannotServe)) throw error;
      this.kept = this.kept.filter((each) => runKey(each) !== runKey(run)); // a plan that wants it has it loaded again
      return;
    }
    if (this.serving.runs.some((each) => runKey(each) === runKey(run))) this.journal.commit(operation);
    else this.journal.rollBack(operation); // the GPU refused it
  }

  private async unload(run: Run): Promise<void> {
    const operation = this.wayOut(run);
    await this.journal.begin(operation);
    if (!(await this.drained(run))) {
      this.journal.rollBack(operation);
      return;
    }
    this.parts.stage.perform(this.parts.stage.core.drop(run));
    this.serving.unload(run);
    this.journal.commit(operation);
    this.tellCore();
  }

  /** Whether these units go to another peer, or are just wanted no longer. */
  private wayOut({ first, stop }: Run): Operation {
    const { state } = this.parts.view;
    const { me } = this.parts.links;
    const stages = serving(state)?.stages ?? [];
    const taker = stages.find((stage) => stage.first <= first && first < stage.stop && stage.primary !== me);
    return taker === undefined
      ? { kind: 'unload', first, stop }
      : { kind: 'migrate', first, stop, peer: taker.primary };
  }

  /** Gives up what was kept once a plan is made that knew of it, or nobody made one for long. */
  private lookAtKept(): void {
    const { state } = this.parts.view;
    const { me } = this.parts.links;
    const status = state.members.get(me)?.status ?? 'joining';
    if (this.kept.length === 0 || status === 'joining') return;
    if (this.keptSince === null) {
      this.keptSince = state.lastVersion;
      const late = setTimeout(() => {
        this.kept = [];
        this.look();
      }, KEPT_MS);
      this.ended.signal.addEventListener('abort', () => clearTimeout(late));
    } else if (state.lastVersion > this.keptSince) {
      this.kept = [];
    }
  }

  private tellGivenBack(): void {
    for (const tell of this.givenBack.splice(0)) tell();
  }

  private wanted(): readonly Run[] {
    const { state } = this.parts.view;
    const { me } = this.parts.links;
    const first = new Map<string, Run>();
    const later = new Map<string, Run>();
    for (const plan of [state.proposed, state.plan]) {
      for (const stage of plan?.stages ?? []) {
        const run = { first: stage.first, stop: stage.stop };
        if (stage.primary === me && wholeHolders(stage).includes(me)) first.set(runKey(run), run);
        else if (stage.standbys.includes(me)) later.set(runKey(run), run);
      }
    }
    const ready = state.proposed === null && serving(state) !== null;
    const loaded = new Set(this.serving.runs.map(runKey));
    const standby = [...later].filter(([key]) => !first.has(key) && (ready || loaded.has(key)));
    const planned = [...first.values(), ...standby.map(([, run]) => run)];
    const keys = new Set(planned.map(runKey));
    return [...planned, ...this.kept.filter((run) => !keys.has(runKey(run)))];
  }

  /** Waits until no answer uses `run`; false when the plan wants it again meanwhile. */
  private async drained(run: Run): Promise<boolean> {
    const isWanted = (): boolean => this.wanted().some((each) => runKey(each) === runKey(run));
    const deadline = performance.now() + DRAIN_MS;
    while (this.parts.stage.core.activeOn(run) > 0 && performance.now() < deadline && !this.over()) {
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
      if (isWanted()) {
        this.due = true;
        return false;
      }
    }
    return !isWanted();
  }

  /**
   * Connects to everyone who may hold the next stage of each plan (of the last: the first), so that neither the first
   * token nor one after a loss need wait.
   */
  private async meetNeighbours(): Promise<void> {
    const { links } = this.parts;
    const { state } = this.parts.view;
    const { me } = links;
    const wanted = new Set<string>();
    for (const plan of [state.proposed, state.plan]) {
      const stages = plan?.stages ?? [];
      for (const [place, { primary, standbys }] of stages.entries()) {
        if (primary !== me && !standbys.includes(me)) continue;
        const following = stages[(place + 1) % stages.length];
        if (following !== undefined)
          for (const peer of [following.primary, ...following.standbys]) wanted.add(peer);
      }
    }
    wanted.delete(me);
    for (const peer of wanted) {
      if (!state.members.has(peer)) continue;
      try {
        await links.dial(peer);
      } catch (error) {
        if (!(error instanceof ConnectFailed || error instanceof ConnectionLost)) throw error;
      }
    }
  }

  private tellCore(): void {
    const plans = new Map<number, PlanStages>();
    for (const [version, plan] of this.plans) {
      const stages = plan.stages.map(({ primary, standbys, first, stop }) => ({
        peers: [primary, ...standbys],
        run: { first, stop },
      }));
      plans.set(version, stages);
    }
    this.parts.stage.core.serve(
      plans,
      this.serving.runs.map((run) => ({ run, slots: this.slots })),
    );
  }
}
