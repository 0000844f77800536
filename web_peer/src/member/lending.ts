/*
 * This tab as it is lent: measures, loads what plans give it, pauses and comes back, goes on without its GPU (twin of
 * peer/member/lending.py). Edge.
 */

import { NoPlan, PeerError, textOf } from '../errors';
import type { PeerParts } from './peer_parts';
import { isAway } from '../state/mesh_state';
import type { LinkFacts, Profile } from '../state/generated/commands';
import type { Run } from '../state/plan_record';
import { Meter } from './rate_meter';
import { Holding } from '../stage/unit_loader';
import { Journal } from '../storage/journal';
import { roomOf, Serving } from '../stage/unit_host';
import { followPace } from '../stage/slowdown_reports';
import type { Fetcher } from '../model/fetcher';
import { blobsOf, type Manifest } from '../planner/manifest';
import { bothWays, linkWords } from '../transport/link_probe';
import { StageWorkers } from '../runtime/worker_handle';
import { abilities, candidate } from '../runtime/self_benchmark';
import { nowS } from '../transport/ticker';
import type { Around } from './failure_domain_watch';
import { phaseOf, type Progress } from './progress';
import { DRAIN, MEASURE_LINK, PAUSED } from '../wire/generated/requests';

const HELD_WITHIN_MS = 60_000; // units that were held before a reload are loaded before anything is planned
const LEAVE_WITHIN_MS = 3000; // a polite leave waits this long for answers to move elsewhere
const METER_MS = 500;
const GPU_LOST = 'its GPU device is lost; it measures without';

/** What this tab gives the mesh. */
export type LendingState =
  | { readonly kind: 'starting' }
  | { readonly kind: 'lending' }
  | { readonly kind: 'paused'; readonly why: string; readonly serves: boolean } // `serves`: only while nobody else can
  | { readonly kind: 'asks'; readonly why: string };

export interface MyFacts {
  readonly pledgeBytes: number;
  readonly weightBytes: number;
  readonly kvBytes: number;
  readonly runs: readonly Run[];
  readonly provider: string;
  readonly threads: number;
  readonly tokensHelped: number; // steps that ran here: every token of every answer that crossed this tab
  readonly tokensPerS: number;
}

/** What lending tells: look again, one sentence for the person. */
export interface LendingEvents {
  changed(): void;
  notice(text: string): void;
}

/** This tab as it is lent to one mesh, until `signal` aborts. */
export class Lending {
  private readonly parts: PeerParts;
  private readonly progress: Progress;
  private readonly signal: AbortSignal;
  private readonly events: LendingEvents;
  private standing: LendingState = { kind: 'starting' };
  private own: Profile | null = null;
  private around: Around | null = null; // null: nothing is told of its surroundings
  private gpu: 'fine' | 'lost' | 'left' = 'fine'; // lost: WebAssembly is being measured
  private going = false; // this membership ends
  private lends = false; // begun: `holding` follows the plans where the mesh has a model that answers in words
  private holding: Holding | null = null;
  private journal = new Journal();
  private couldNot = ''; // why units could not be loaded, last
  private readonly meter = new Meter();
  private readonly workers = new StageWorkers(); // of all models, which load equal stages once

  /** `signal` aborts when this membership is over. */
  constructor(parts: PeerParts, progress: Progress, signal: AbortSignal, events: LendingEvents) {
    this.parts = parts;
    this.progress = progress;
    this.signal = signal;
    this.events = events;
    const { core } = parts.stage;
    const reading = setInterval(() => this.meter.read(nowS(), core.stepsRun), METER_MS);
    signal.addEventListener('abort', () => {
      clearInterval(reading);
      this.holding?.close();
      void this.journal.close();
    });
  }

  get state(): LendingState {
    return this.standing;
  }

  /** What this tab measured of itself; null: it lends nothing. */
  get profile(): Profile | null {
    return this.own;
  }

  /** This tab lends nothing, for a reason that people may read. */
  asksOnly(why: string): void {
    this.become({ kind: 'asks', why });
  }

  /** What this tab gives, for people. */
  facts(): MyFacts {
    const { units, core } = this.parts.stage;
    const memory = units?.memoryBytes() ?? { weights: 0, kv: 0 };
    const further = this.parts.decoders.bytes;
    return {
      pledgeBytes: this.profile?.memoryBytes ?? 0,
      weightBytes: memory.weights + this.parts.flow.weightBytes + further.weights,
      kvBytes: memory.kv + further.kv,
      runs: units?.runs ?? [],
      provider: this.profile?.provider ?? '',
      threads: this.profile?.threads ?? 0,
      tokensHelped: core.stepsRun,
      tokensPerS: this.meter.perSecond(nowS()),
    };
  }

  /** Whether this tab lends, computes for nobody, and is as fast as it measured. */
  isAtRest(): boolean {
    const { standing: lending } = this;
    const { stage, decoders } = this.parts;
    const isFree =
      lending.kind === 'lending' && !this.going && this.gpu !== 'lost' && stage.core.active() === 0;
    const areFree = [...decoders].every(({ parts }) => parts.stage.core.active() === 0);
    return isFree && areFree && stage.units?.isAtRest() === true;
  }

  /** Stops lending but stays: the coordinator plans without this tab, and answers move elsewhere. */
  async pause(why: string): Promise<void> {
    const { holding, standing: lending } = this;
    if (!this.lends || this.going) return;
    if (lending.kind === 'paused' && !lending.serves && lending.why === why) return;
    this.become({ kind: 'paused', why, serves: false });
    holding?.leave();
    for (const each of this.parts.decoders) each.leave();
    // Said before anything is awaited: a page that is frozen now gets no further.
    const told = this.parts.view.askLeader(PAUSED, { why });
    const stages = this.parts.stages();
    for (const stage of stages) stage.perform(stage.core.leave());
    await told;
    await Promise.race([
      Promise.all(stages.map((stage) => stage.idle())),
      new Promise((resolve) => setTimeout(resolve, LEAVE_WITHIN_MS)),
    ]);
    holding?.look();
    for (const each of this.parts.decoders) each.look();
  }

  /** Serves only as long as nobody else can: plans leave this tab out where one exists without it. */
  async drain(why: string): Promise<void> {
    const { standing: lending } = this;
    if (!this.lends || this.going || (lending.kind !== 'lending' && lending.kind !== 'paused')) return;
    if (lending.kind === 'paused' && lending.serves && lending.why === why) return;
    const left = this.isLeaving;
    this.become({ kind: 'paused', why, serves: true });
    if (left) await this.lendAgain();
    else await this.parts.view.askLeader(DRAIN, { why });
  }

  /** Lends again: the coordinator plans with this tab once more. */
  async resume(): Promise<void> {
    if (this.standing.kind !== 'paused' || !this.lends || this.going) return;
    this.become({ kind: 'lending' });
    await this.lendAgain();
  }

  private async lendAgain(): Promise<void> {
    if (!this.lends || this.gpu === 'lost') return; // said when it is measured anew
    this.parts.stage.core.comeBack();
    this.holding?.comeBack();
    await this.tellStanding();
    this.holding?.look();
    for (const each of this.parts.decoders) each.comeBack();
  }

  /** What the coordinator should know of a peer that lends at all. */
  private async tellStanding(): Promise<void> {
    const { standing: lending, own: profile } = this;
    if (profile === null || !this.lends || this.going) return;
    if (this.gpu !== 'lost' && !this.isLeaving) await this.tellMeasured(profile);
    if (lending.kind !== 'paused') return;
    await this.parts.view.askLeader(lending.serves ? DRAIN : PAUSED, { why: lending.why });
  }

  /** Promises another amount of memory; the coordinator plans anew. */
  async setPledge(bytes: number): Promise<void> {
    if (this.profile === null || this.profile.memoryBytes === bytes) return;
    this.own = { ...this.profile, memoryBytes: bytes };
    await this.tellStanding();
    this.events.changed();
  }

  /** This membership ends: nothing is loaded any more. */
  leave(): void {
    this.going = true;
    this.holding?.leave();
    for (const each of this.parts.decoders) each.leave();
  }

  /** This peer is a whole member again: the coordinator hears what it holds, and how it stands. */
  async reportAgain(): Promise<void> {
    await this.tellStanding();
    this.holding?.forgetReport();
    for (const each of this.parts.decoders) each.reportAgain();
    await this.fetchAgain();
  }

  /** What could not be fetched while the mesh, or its server, was away may be there again. */
  async fetchAgain(): Promise<void> {
    if (this.standing.kind === 'paused' && this.standing.why === this.couldNot) await this.resume();
  }

  /** This tab measured itself, or was measured anew. */
  measured(profile: Profile): void {
    this.own = profile;
  }

  /**
   * Begins to hold what placements of offered models give this peer, and what plans of models that answer in words do.
   */
  async begin(fetcher: Fetcher, profile: Profile, around: Around): Promise<void> {
    const { manifest } = this.parts.model;
    this.measured(profile);
    this.around = around;
    const before = manifest === null ? null : await this.hold(fetcher, manifest, profile);
    if (this.signal.aborted) return;
    this.parts.flow.lend(fetcher, profile.threads);
    this.lends = true;
    this.become({ kind: 'lending' });
    await Promise.race([before?.again, new Promise((resolve) => setTimeout(resolve, HELD_WITHIN_MS))]);
    await this.tellMeasured(profile);
    this.parts.decoders.lend({
      workers: this.workers,
      fetcher,
      profile: () => this.own ?? profile,
      lentBytes: () => (this.standing.kind === 'lending' ? (this.own?.memoryBytes ?? 0) : 0),
      notice: (text) => this.events.notice(text),
      gpuLost: (text) => this.gpuLost(text),
    });
    around.follow(this.signal);
    if (manifest === null) this.progress.at(phaseOf('ready'));
  }

  /** `again` ends when everything that was held before serves again; null: this membership is over. Raises NoPlan. */
  private async hold(
    fetcher: Fetcher,
    manifest: Manifest,
    profile: Profile,
  ): Promise<{ readonly again: Promise<void> } | null> {
    const { model } = this.parts.view.state;
    if (model === null) throw new NoPlan('the model is not known yet');
    const units = new Serving(
      fetcher,
      manifest,
      roomOf(profile, model),
      followPace(this.parts.view, manifest, this.signal),
      {
        results: (results) => this.parts.stage.results(results),
        lost: (run, text) => this.lost(run, text),
      },
      this.workers,
    );
    const name = `${this.parts.view.me}:${model.model}`;
    this.journal = await Journal.open(name, (text) => this.events.notice(text));
    if (this.signal.aborted) {
      await this.journal.close();
      return null;
    }
    this.parts.stage.lend(units, this.journal);
    this.holding = new Holding(
      this.parts,
      units,
      model.sessions,
      {
        report: (runs) => this.parts.view.holds(runs),
        progress: (run, of) => {
          const detail = `units ${run.first}-${run.stop - 1}`;
          const { hereBytes: done, totalBytes: total, bytesPerS: perSecond, leftS } = of;
          this.progress.at({ step: 'fetch', detail, done, total, perSecond, leftS });
        },
        reported: () => {
          const { state, me } = this.parts.view;
          const plan = state.proposed ?? state.plan;
          if (plan?.stages.some(({ primary }) => primary === me) === true) this.progress.at(phaseOf('ready'));
          this.events.changed();
        },
        failed: (text) => this.cannotLend(text),
      },
      this.journal,
    );
    const followProtection = (): void => this.journal.turn(this.parts.view.state.protection.transactions);
    followProtection();
    this.signal.addEventListener('abort', this.parts.view.subscribe(followProtection));
    const before = this.journal.kept ? await this.heldBefore(fetcher, manifest, profile.memoryBytes) : [];
    const again = this.holding.keep(before);
    this.holding.start();
    return { again };
  }

  /** Whether this tab loads nothing any more, until it lends again. */
  private get isLeaving(): boolean {
    return this.holding?.isLeaving ?? (this.standing.kind === 'paused' && !this.standing.serves);
  }

  /** The runs of units that this tab held when it ended, of which this browser still keeps every piece. */
  private async heldBefore(fetcher: Fetcher, manifest: Manifest, memoryBytes: number): Promise<Run[]> {
    const found: Run[] = [];
    let left = memoryBytes;
    for (const { first, stop } of this.journal.recovered.held) {
      if (stop > manifest.units.length) continue;
      const blobs = blobsOf(manifest, first, stop);
      left -= blobs.reduce((sum, { bytes }) => sum + bytes, 0);
      if (left >= 0 && (await fetcher.keeps(blobs))) found.push({ first, stop });
    }
    return found;
  }

  /** Reports this peer's profile and its links to the other members that compute. */
  async tellMeasured(profile: Profile): Promise<void> {
    const { links, view } = this.parts;
    // Those who are away measure when they are back.
    const others = [...view.state.members.values()].filter(
      (member) => member.compute && member.peer !== view.me && !isAway(member),
    );
    const facts: LinkFacts[] = [];
    for (const { peer, name } of others) {
      if (this.progress.phase.step === 'measure') this.progress.at(phaseOf('measure', `the link to ${name}`));
      try {
        await links.dial(peer);
        const there = await links.prober.measure(peer);
        const back = await links.call(peer, MEASURE_LINK, null);
        facts.push(...bothWays(view.me, peer, linkWords(there, await links.relayed(peer)), back));
      } catch (error) {
        if (!(error instanceof PeerError)) throw error; // a member without a link is planned around
      }
    }
    const said = this.around?.with(profile) ?? profile;
    await view.measured({ kind: 'MemberMeasured', peer: view.me, profile: said, links: facts });
  }

  // --- inner moves

  private become(state: LendingState): void {
    this.standing = state;
    this.events.changed();
  }

  private lost(run: Run, text: string): void {
    this.parts.stage.perform(this.parts.stage.core.drop(run));
    if (this.profile?.provider === 'webgpu') {
      this.gpuLost(text);
      return;
    }
    this.events.notice(`units ${run.first}-${run.stop - 1} stopped: ${text}; loading them again`);
    this.holding?.lostRun();
  }

  private cannotLend(text: string): void {
    this.couldNot = text;
    void this.pause(text).catch(() => undefined);
  }

  private gpuLost(text: string): void {
    if (this.gpu !== 'fine') return; // under way for another run of the same device
    this.gpu = 'lost';
    this.events.notice(`${text}; going on without it, slower`);
    this.leaveGpu().catch((error: unknown) => {
      this.gpu = 'left';
      this.cannotLend(textOf(error));
    });
  }

  /**
   * The GPU device is gone: this tab goes on with WebAssembly. Until that is measured it holds nothing, and the
   * coordinator, which knows at once, plans without it; then with what WebAssembly takes.
   */
  private async leaveGpu(): Promise<void> {
    const { holding, own: profile } = this;
    const { stage, view } = this.parts;
    const { decoder } = this.parts.model;
    const { units } = stage;
    const { model } = view.state;
    if (holding === null || decoder === null || profile === null || units === null || model === null) return;
    holding.leave();
    const wasm: Profile = { ...profile, provider: 'wasm' };
    for (const run of units.changeRoom(roomOf(wasm, model))) stage.perform(stage.core.drop(run));
    holding.lostRun();
    for (const each of this.parts.decoders) {
      each.leave();
      each.measured(wasm);
    }
    await view.askLeader(PAUSED, { why: GPU_LOST }).catch((error: unknown) => {
      if (!(error instanceof PeerError)) throw error; // the coordinator is away, and hears of it when it is back
    });
    const { threads } = await abilities();
    const times = await candidate(decoder, 'wasm', threads, this.signal);
    const now: Profile = { ...times, memoryBytes: this.own?.memoryBytes ?? profile.memoryBytes };
    this.own = now;
    units.changeRoom(roomOf(now, model));
    for (const each of this.parts.decoders) each.measured(now);
    this.gpu = 'left';
    if (this.standing.kind !== 'paused' || this.standing.serves) await this.lendAgain();
  }
}
