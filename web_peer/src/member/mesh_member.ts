/*
 * This tab as a member of a mesh: asking, serving what plans give it, pausing, leaving (twin of
 * peer/member/mesh_member.py). Edge; joining.ts makes a `MeshMember`. What changed is told without saying what: whoever
 * shows it reads it again.
 */

import { keepAccounts } from '../audit/accounting';
import { Checks } from '../audit/step_checks';
import { Conversation } from '../origin/answer_stream';
import type { Body } from '../transport/rpc';
import { Canaries } from '../audit/canaries';
import { NoPlan, PeerError, textOf } from '../errors';
import type { Fetcher } from '../model/fetcher';
import { toHex } from '../wire/hex';
import { Holding } from '../stage/unit_loader';
import { type InviteLink, linkUrl } from '../signaling/invites';
import { bothWays, linkWords } from '../transport/link_probe';
import { LogPart } from '../replication/log_membership';
import { blobsOf, type Manifest } from '../planner/manifest';
import type { LocalModel } from '../model/local_model';
import type { SessionHost } from '../origin/session_host';
import type { MeshView } from '../replication/mesh_view';
import type { StageHost } from '../stage/stage_host';
import type { PeerLinks } from '../transport/peer_links';
import type { Leadership } from '../coordination/leadership';
import { abilities, candidate } from '../runtime/self_benchmark';
import {
  isAway,
  type LinkFacts,
  type ModelChosen,
  type Profile,
  type PlanRecord,
  type Run,
  serving,
} from '../state/mesh_state';
import { Meter } from './rate_meter';
import type { PeerParts } from './peer_parts';
import type { KeptEnds } from '../origin/pinned_ends';
import { followPace } from '../stage/slowdown_reports';
import { type Away, Returning } from './reconnect';
import type { Room } from '../runtime/worker_messages';
import { Serving } from '../stage/unit_host';
import type { SignalingClient } from '../transport/signaling_client';
import type { Around } from './failure_domain_watch';
import type { Text } from '../model/tokenizer';
import { Journal } from '../storage/journal';
import { nowS } from '../transport/ticker';

export const AGENT = 'shoal/0.1.0 (browser)';
const HELD_WITHIN_MS = 60_000; // units that were held before a reload are loaded before anything is planned
const LEAVE_WITHIN_MS = 3000; // a polite leave waits this long for answers to move; Python's 5 s are also for another leader
const TOLD_WITHIN_MS = 2500; // a goodbye that nobody takes is found out by the others
const METER_MS = 500;
const SESSION_BYTES = 16;
const GPU_LOST = 'its GPU device is lost; it measures without';
const WITHDRAWN = 'the invite this peer came with was withdrawn';
const OLDER_BUILD = 'this build is older';
const CLOSED = 'the last peer that kept the mesh left';
const BREATH_S = 0.7; // without a coordinator, before anybody is told

export type JoinStep = 'connect' | 'measure' | 'fetch' | 'ready';

/** Progress of joining. `total` 0: no measure; `leftS` null: cannot be told. Bytes in `fetch`. */
export interface JoinPhase {
  readonly step: JoinStep;
  readonly detail: string;
  readonly done: number;
  readonly total: number;
  readonly perSecond: number;
  readonly leftS: number | null;
}

export function phaseOf(step: JoinStep, detail = ''): JoinPhase {
  return { step, detail, done: 0, total: 0, perSecond: 0, leftS: null };
}

/** For the mesh. */
export type Lending =
  | { readonly kind: 'starting' }
  | { readonly kind: 'lending' }
  | { readonly kind: 'paused'; readonly why: string; readonly serves: boolean } // `serves`: only while nobody else can
  | { readonly kind: 'asks'; readonly why: string };

/** What a mesh tells its owner: look again, a step of joining, one sentence for the person. */
export interface MeshEvents {
  changed(): void;
  phase(phase: JoinPhase): void;
  notice(text: string): void;
}

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

export class MeshMember {
  readonly links: PeerLinks;
  readonly view: MeshView;
  readonly leadership: Leadership;
  readonly model: LocalModel;
  readonly stage: StageHost;
  readonly sessions: SessionHost;
  readonly client: SignalingClient;
  readonly link: InviteLink;
  readonly name: string;
  readonly part: LogPart; // in the log
  readonly canaries: Canaries;
  lending: Lending;
  phase: JoinPhase = phaseOf('connect');
  ended: string | null = null; // why this membership is over
  profile: Profile | null = null; // what it measured of itself; null: it lends nothing
  private readonly parts: PeerParts;
  private pinned: KeptEnds | null = null;
  private around: Around | null = null; // null: nothing is told of its surroundings
  private gpu: 'fine' | 'lost' | 'left' = 'fine'; // lost: WebAssembly is being measured
  private going = false; // this membership ends
  private holding: Holding | null = null;
  private journal = new Journal();
  private readonly open = new Set<Conversation>();
  private readonly events: MeshEvents;
  private readonly meter = new Meter();
  private returning: Returning | null = null;
  private searching = false;
  private ledBy = ''; // who coordinated when this peer was last a whole member
  private couldNot = ''; // why units could not be loaded, last
  private readonly whenEnded: (() => void)[] = [];
  private readonly over = new AbortController();

  constructor(parts: PeerParts, client: SignalingClient, link: InviteLink, name: string, events: MeshEvents) {
    const { links, view, leadership, model, stage, sessions } = parts;
    this.parts = parts;
    this.links = links;
    this.view = view;
    this.leadership = leadership;
    this.model = model;
    this.stage = stage;
    this.sessions = sessions;
    this.client = client;
    this.link = link;
    this.name = name;
    this.events = events;
    this.lending = { kind: 'starting' };
    this.part = new LogPart(links, view, leadership, link.mesh, (text) => events.notice(text));
    const provider = (): string => this.profile?.provider ?? 'wasm';
    const checks = new Checks({ links, view, model, stage, sessions, provider });
    links.on('status', () => ({ ...this.status(), checks: checks.status() }), 'anyone');
    keepAccounts(view, sessions, checks, this.signal);
    this.canaries = new Canaries(parts, checks, this.signal);
    this.canaries.start();
    view.subscribe(() => this.events.changed());
    links.onGone(() => this.events.changed());
    links.onConnected(() => this.events.changed());
    const reading = setInterval(() => this.meter.read(nowS(), stage.core.stepsRun), METER_MS);
    this.signal.addEventListener('abort', () => clearInterval(reading));
  }

  /** Aborts when this membership is over. */
  get signal(): AbortSignal {
    return this.over.signal;
  }

  // --- asking

  /** Whether an answer that this tab asked for is under way. */
  answering(): boolean {
    return [...this.open].some((conversation) => conversation.answering());
  }

  /** The model's tokenizer and template, once they are here. */
  get text(): Text | null {
    return this.model.text;
  }

  /** Embedding and head that stay here; null: the model is not known yet. */
  get ends(): KeptEnds | null {
    return this.pinned;
  }

  /** A session with the model. Close it when it is over. Raises NoPlan before the model is known. */
  conversation(
    session = toHex(crypto.getRandomValues(new Uint8Array(SESSION_BYTES))),
    ends: KeptEnds | null = null,
  ): Conversation {
    const { text } = this.model;
    if (text === null) throw new NoPlan('the model’s tokenizer is not here yet');
    const closed = (): unknown => this.open.delete(made);
    const made = new Conversation(this.sessions, text, session, closed, ends);
    this.open.add(made);
    return made;
  }

  url(): Promise<string> {
    return linkUrl(this.link);
  }

  // --- my part

  mine(): MyFacts {
    const { units, core } = this.stage;
    const memory = units?.memoryBytes() ?? { weights: 0, kv: 0 };
    return {
      pledgeBytes: this.profile?.memoryBytes ?? 0,
      weightBytes: memory.weights,
      kvBytes: memory.kv,
      runs: units?.runs ?? [],
      provider: this.profile?.provider ?? '',
      threads: this.profile?.threads ?? 0,
      tokensHelped: core.stepsRun,
      tokensPerS: this.meter.perSecond(nowS()),
    };
  }

  /** Whether this tab lends, computes for nobody, and is as fast as it measured. */
  isAtRest(): boolean {
    const { lending, stage } = this;
    const isFree =
      lending.kind === 'lending' && !this.going && this.gpu !== 'lost' && stage.core.active() === 0;
    return isFree && stage.units?.isAtRest() === true;
  }

  /** Stops lending but stays: the coordinator plans without this tab, and answers move elsewhere. */
  async pause(why: string): Promise<void> {
    const { holding, lending } = this;
    if (holding === null || this.going) return;
    if (lending.kind === 'paused' && !lending.serves && lending.why === why) return;
    this.setLending({ kind: 'paused', why, serves: false });
    holding.leave();
    // Said before anything is awaited: a page that is frozen now gets no further.
    const told = this.view.askLeader('paused', { why });
    this.stage.perform(this.stage.core.leave());
    await told;
    await Promise.race([this.stage.idle(), new Promise((resolve) => setTimeout(resolve, LEAVE_WITHIN_MS))]);
    holding.look();
  }

  /** Serves only as long as nobody else can: plans leave this tab out where one exists without it. */
  async drain(why: string): Promise<void> {
    const { lending } = this;
    if (this.holding === null || this.going || (lending.kind !== 'lending' && lending.kind !== 'paused'))
      return;
    if (lending.kind === 'paused' && lending.serves && lending.why === why) return;
    this.setLending({ kind: 'paused', why, serves: true });
    if (this.holding.isLeaving) await this.lendAgain();
    else await this.view.askLeader('drain', { why });
  }

  /** Lends again: the coordinator plans with this tab once more. */
  async resume(): Promise<void> {
    if (this.lending.kind !== 'paused' || this.holding === null || this.going) return;
    this.setLending({ kind: 'lending' });
    await this.lendAgain();
  }

  private async lendAgain(): Promise<void> {
    if (this.holding === null || this.gpu === 'lost') return; // said when it is measured anew
    this.stage.core.comeBack();
    this.holding.comeBack();
    await this.tellStanding();
    this.holding.look();
  }

  /** What the coordinator should know of a peer that lends at all. */
  private async tellStanding(): Promise<void> {
    const { lending, profile } = this;
    if (profile === null || this.holding === null || this.going) return;
    if (this.gpu !== 'lost' && !this.holding.isLeaving) await this.tellMeasured(profile);
    if (lending.kind !== 'paused') return;
    await this.view.askLeader(lending.serves ? 'drain' : 'paused', { why: lending.why });
  }

  /** Promises another amount of memory; the coordinator plans anew. */
  async setPledge(bytes: number): Promise<void> {
    if (this.profile === null || this.profile.memoryBytes === bytes) return;
    this.profile = { ...this.profile, memoryBytes: bytes };
    await this.tellStanding();
    this.events.changed();
  }

  // --- leaving

  /** Tells the coordinator, lets running answers move elsewhere, then says goodbye. */
  async leave(reason = 'left'): Promise<void> {
    this.going = true;
    this.holding?.leave();
    const late = new Promise((resolve) => setTimeout(resolve, LEAVE_WITHIN_MS));
    const polite = async (): Promise<void> => {
      await this.view.tell('leaving', null);
      this.stage.perform(this.stage.core.leave());
      await this.stage.idle();
    };
    await Promise.race([polite().catch(() => undefined), late]);
    const handed = this.view.replica?.leads === true ? await this.part.handOver() : 'taken';
    const why = handed === 'alone' ? CLOSED : reason;
    if (handed === 'taken') {
      const told = this.view.askLeader('left', {}, TOLD_WITHIN_MS).catch(() => undefined);
      await Promise.race([told, new Promise((resolve) => setTimeout(resolve, TOLD_WITHIN_MS))]);
    }
    this.end(why);
    await this.parts.close(why);
  }

  /** This membership is over for a reason that people should read. */
  end(why: string): void {
    if (this.ended !== null) return;
    this.ended = why;
    this.over.abort();
    this.holding?.close();
    this.part.log.close();
    void this.journal.close();
    this.client.close();
    void this.parts.close(why);
    for (const listener of this.whenEnded.splice(0)) listener();
    this.events.changed();
  }

  onEnded(listener: () => void): void {
    if (this.ended !== null) listener();
    else this.whenEnded.push(listener);
  }

  // --- joining's part

  setLending(lending: Lending): void {
    this.lending = lending;
    this.events.changed();
  }

  setPhase(phase: JoinPhase): void {
    this.phase = phase;
    this.events.phase(phase);
  }

  /** What this peer has of the model is here: it can ask. `ends`: embedding and head that stay here. */
  read(text: Text, ends: KeptEnds): void {
    this.model.read(text);
    this.pinned = ends;
  }

  /** This tab measured itself, or was measured anew. */
  measured(profile: Profile): void {
    this.profile = profile;
  }

  /** Begins to hold what plans give this peer. */
  async compute(fetcher: Fetcher, profile: Profile, around: Around): Promise<void> {
    const { model } = this.view.state;
    const { manifest } = this.model;
    if (model === null || manifest === null) throw new NoPlan('the model is not known yet');
    this.measured(profile);
    this.around = around;
    const units = new Serving(
      fetcher,
      manifest,
      roomOf(profile, model),
      followPace(this.view, manifest, this.signal),
      (results) => this.stage.results(results),
      (run, text) => this.lost(run, text),
    );
    const name = `${this.view.me}:${model.model}`;
    this.journal = await Journal.open(name, (text) => this.events.notice(text));
    if (this.ended !== null) return this.journal.close();
    this.stage.lend(units, this.journal);
    this.holding = new Holding(
      this,
      units,
      model.sessions,
      (runs) => this.reportHeld(runs),
      {
        progress: (run, of) => {
          const detail = `units ${run.first}-${run.stop - 1}`;
          const { hereBytes: done, totalBytes: total, bytesPerS: perSecond, leftS } = of;
          this.setPhase({ step: 'fetch', detail, done, total, perSecond, leftS });
        },
        reported: () => {
          const { state, me } = this.view;
          const plan = state.proposed ?? state.plan;
          if (plan?.stages.some(({ primary }) => primary === me) === true) this.setPhase(phaseOf('ready'));
          this.events.changed();
        },
        failed: (text) => this.cannotLend(text),
      },
      this.journal,
    );
    const followProtection = (): void => this.journal.turn(this.view.state.protection.transactions);
    followProtection();
    this.view.subscribe(followProtection);
    const before = this.journal.kept ? await this.heldBefore(fetcher, manifest, profile.memoryBytes) : [];
    const heldAgain = this.holding.keep(before);
    this.holding.start();
    this.setLending({ kind: 'lending' });
    await Promise.race([heldAgain, new Promise((resolve) => setTimeout(resolve, HELD_WITHIN_MS))]);
    await this.tellMeasured(profile);
    around.follow(this.signal);
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
    const { links, view } = this;
    // Those who are away measure when they are back.
    const others = [...view.state.members.values()].filter(
      (member) => member.compute && member.peer !== view.me && !isAway(member),
    );
    const facts: LinkFacts[] = [];
    for (const { peer, name } of others) {
      if (this.phase.step === 'measure') this.setPhase(phaseOf('measure', `the link to ${name}`));
      try {
        await links.dial(peer);
        const there = await links.prober.measure(peer);
        const back = await links.call(peer, 'measure_link', {});
        facts.push(...bothWays(view.me, peer, linkWords(there, await links.relayed(peer)), back));
      } catch (error) {
        if (!(error instanceof PeerError)) throw error; // a member without a link is planned around
      }
    }
    const said = this.around?.with(profile) ?? profile;
    await view.tell('measured', { kind: 'MemberMeasured', peer: view.me, profile: said, links: facts });
  }

  /** Says so while nobody coordinates, and comes back when this peer is left out; ends with the mesh. */
  watchCoordinator(enter: () => Promise<void>): void {
    this.links.onGone((_, reason, polite) => {
      if (this.ended !== null) return;
      if (reason === WITHDRAWN) this.end('the founder withdrew the invite you came with: ask for a new link');
      else if (reason.includes(OLDER_BUILD)) this.end('this page is older than the mesh: reload it');
      else if (polite && reason === CLOSED) {
        this.end('the founder closed the mesh: it is back when the founder serves it again');
      } else this.lookForMesh();
    });
    this.links.onConnected(() => this.lookForMesh());
    this.returning = new Returning(
      (attempt) => this.missing(attempt),
      () => this.enterAgain(enter),
      () => this.events.changed(),
    );
    this.part.entered(() => this.enterAgain(enter));
    this.view.onRole(() => {
      this.lookForMesh();
      this.events.changed();
    });
    this.view.subscribe(() => this.lookForMesh());
  }

  /** Set while nobody coordinates, as far as this peer knows, or while it is left out. */
  get away(): Away | null {
    return this.returning?.away ?? null;
  }

  /** Looks for the mesh at once instead of after the next pause. */
  tryNow(): void {
    this.returning?.tryNow();
  }

  private lookForMesh(): void {
    const { returning } = this;
    if (returning === null || this.ended !== null || this.going) return;
    if (this.searching) {
      if (this.missing(0) === null) returning.tryNow();
      return;
    }
    if (this.missing(0) === null) return;
    this.searching = true;
    this.search(returning)
      .catch((error: unknown) => this.end(`a defect, please report it: ${textOf(error)}`))
      .finally(() => {
        this.searching = false;
        this.events.changed();
      });
  }

  private async search(returning: Returning): Promise<void> {
    // Leadership that is handed over is back in a moment: nobody need hear of it.
    await this.view.until(() => this.missing(0) === null, BREATH_S, this.signal);
    if (this.missing(0) !== null) await returning.search(this.signal);
  }

  /** What this peer lacks to be a whole member: somebody who leads, a way there, its place among the members. */
  private missing(attempt: number): Away | null {
    const { links } = this;
    const { replica, state, leader, me } = this.view;
    const there = leader !== null && (leader === me || links.isConnected(leader));
    if (there && (state.members.has(me) || replica?.fresh === true)) {
      this.ledBy = leader;
      return null;
    }
    const plan = serving(state);
    const alone = plan?.stages.filter(({ primary }) => primary === this.ledBy) ?? [];
    const voters = replica?.config.voters ?? [];
    const here = voters.filter((peer) => peer === me || (links.isConnected(peer) && peer !== this.ledBy));
    return {
      name: state.members.get(this.ledBy)?.name ?? '',
      needed: alone.some((stage) => !this.standsBy(stage)),
      voters: voters.length,
      here: here.length,
      attempt,
    };
  }

  private standsBy({ first, stop, standbys }: PlanRecord['stages'][number]): boolean {
    return standbys.some((peer) =>
      this.view.state.members.get(peer)?.held.some((run) => run.first === first && run.stop === stop),
    );
  }

  private async enterAgain(enter: () => Promise<void>): Promise<void> {
    await enter();
    await this.tellStanding();
    this.holding?.forgetReport();
    // What could not be fetched while the mesh was away may be there again.
    if (this.lending.kind === 'paused' && this.lending.why === this.couldNot) await this.resume();
  }

  private async reportHeld(runs: readonly Run[]): Promise<void> {
    await this.view.tell('held', { kind: 'UnitsHeld', peer: this.view.me, held: runs });
  }

  private lost(run: Run, text: string): void {
    this.stage.perform(this.stage.core.drop(run));
    if (this.profile?.provider === 'webgpu') {
      this.gpuLost(text);
      return;
    }
    this.events.notice(`units ${run.first}-${run.stop - 1} stopped: ${text}; loading them again`);
    this.holding?.lostRun();
  }

  private cannotLend(text: string): void {
    this.couldNot = text;
    this.events.notice(text);
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
    const { holding, profile, stage, view } = this;
    const { manifest } = this.model;
    const { units } = stage;
    const { model } = view.state;
    if (holding === null || manifest === null || profile === null || units === null || model === null) return;
    holding.leave();
    const asWasm = roomOf({ ...profile, provider: 'wasm' }, model);
    for (const run of units.changeRoom(asWasm)) stage.perform(stage.core.drop(run));
    holding.lostRun();
    await view.askLeader('paused', { why: GPU_LOST }).catch((error: unknown) => {
      if (!(error instanceof PeerError)) throw error; // the coordinator is away, and hears of it when it is back
    });
    const { threads } = await abilities();
    const times = await candidate(manifest, 'wasm', threads, this.signal);
    this.profile = { ...times, memoryBytes: this.profile?.memoryBytes ?? profile.memoryBytes };
    units.changeRoom(roomOf(this.profile, model));
    this.gpu = 'left';
    if (this.lending.kind !== 'paused' || this.lending.serves) await this.lendAgain();
  }

  private status(): Body {
    const { links, stage, leadership, sessions } = this;
    const { core } = stage;
    const mine = this.mine();
    const rtts = links.connectedPeers().map((peer) => {
      return [peer, Math.round((links.connection(peer)?.rttS ?? 0) * 1e6)] as const;
    });
    return {
      name: this.name,
      agent: AGENT,
      runs: mine.runs.map(({ first, stop }) => [first, stop]),
      rss_bytes: mine.weightBytes + mine.kvBytes,
      weight_bytes: mine.weightBytes,
      kv_bytes: mine.kvBytes,
      pledge_bytes: mine.pledgeBytes,
      sessions: core.sessions(),
      active: core.active(),
      steps: core.stepsRun,
      replayed_bytes: core.replayedBytes,
      log_bytes: core.logBytes + core.prefixes.logBytes,
      taken_over: core.takenOver,
      copied: core.copied,
      breakers: [
        ...new Map([
          ...(leadership.current?.breakers() ?? []),
          ...sessions.breakers.shown(Math.floor(nowS() * 1000)),
        ]),
      ].map((pair) => [...pair]),
      tokens: core.tokensSampled,
      step_us: stage.units?.stepTimes.mediansUs().map((each) => [...each]) ?? [],
      tokens_per_s_milli: Math.round(mine.tokensPerS * 1000),
      rtt_us: Object.fromEntries(rtts),
    };
  }
}

/** How runtimes are sized: by what was measured here and what the mesh promises. */
function roomOf(profile: Profile, model: ModelChosen): Room {
  const provider = profile.provider === 'webgpu' ? 'webgpu' : 'wasm';
  const slots = model.sessions + 1; // one that a check uses, so that it never takes that of an answer
  return { provider, threads: profile.threads, slots, context: model.context };
}
