/*
 * This tab as a member of a mesh: its parts, asking, leaving (twin of peer/member/mesh_member.py). Edge; joining.ts
 * makes a `MeshMember`. What changed is told without saying what: whoever shows it reads it again.
 */

import { AnsweringModel } from '../origin/answering_model';
import { ModelAudit } from '../audit/model_audit';
import type { Recorded } from '../audit/outlier_reports';
import { addedUp, CheckRequests } from '../audit/step_checks';
import type { Conversation } from '../origin/answer_stream';
import type { Canaries } from '../audit/canaries';
import type { AllDecoders } from './decoder_parts';
import { BadCommand, NoPlan } from '../errors';
import { openRun, type RunClient } from '../origin/run_client';
import type { Fetcher } from '../model/fetcher';
import type { BlobRef } from '../planner/blob_ref';
import type { Manifest } from '../planner/manifest';
import type { Run } from '../state/plan_record';
import { type InviteLink, linkUrl } from '../signaling/invites';
import { LogPart } from '../replication/log_membership';
import type { LocalModel } from '../model/local_model';
import type { SessionHost } from '../origin/session_host';
import type { MeshView } from '../replication/mesh_view';
import type { StageHost } from '../stage/stage_host';
import type { PeerLinks } from '../transport/peer_links';
import type { Leadership } from '../coordination/leadership';
import type { PeerParts } from './peer_parts';
import type { KeptEnds } from '../origin/pinned_ends';
import type { Away } from './reconnect';
import type { MeshState } from '../state/mesh_state';
import type { PictureFile } from '../model/pictures';
import type { GivenRows } from '../session/position_spans';
import { offerOfSight, PictureRows } from './sight';
import { LeaderWatch } from './leader_watch';
import { Lending } from './lending';
import { type JoinPhase, Progress } from './progress';
import { nameFault } from '../state/display_names';
import { reportOf } from './status_report';
import type { SignalingClient } from '../transport/signaling_client';
import type { Prompts } from '../model/prompts';
import type { Text } from '../model/tokenizer';
import type { GraphManifest } from '../planner/graph_manifest';
import type { SamplingDefaults } from '../planner/sampling_defaults';
import { LEAVING, LEFT, STATUS } from '../wire/generated/requests';

const LEAVE_WITHIN_MS = 3000; // a polite leave waits this long for answers to move; Python's 5 s are also for another leader
const TOLD_WITHIN_MS = 2500; // a goodbye that nobody takes is found out by the others
const WITHDRAWN = 'the invite this peer came with was withdrawn';
const OLDER_BUILD = 'this build is older';
const CLOSED = 'the last peer that kept the mesh left';

/** What a mesh tells its owner: look again, a step of joining, one sentence for the person. */
export interface MeshEvents {
  changed(): void;
  phase(phase: JoinPhase): void;
  notice(text: string): void;
}

/** A model's manifest (null: not known yet), and the runs of its units that members hold, by peer. */
export interface HeldUnits {
  readonly manifest: Manifest | null;
  readonly held: ReadonlyMap<string, readonly Run[]>;
}

/** One membership of this tab, with all of its parts; over once it has left. */
export class MeshMember {
  readonly links: PeerLinks;
  readonly view: MeshView;
  readonly leadership: Leadership;
  readonly model: LocalModel;
  readonly stage: StageHost;
  readonly sessions: SessionHost;
  readonly decoders: AllDecoders; // further models that answer in words
  readonly client: SignalingClient;
  readonly link: InviteLink;
  readonly part: LogPart; // in the log
  readonly canaries: Canaries;
  readonly progress: Progress;
  readonly lending: Lending;
  private readonly watch: LeaderWatch;
  private called: string;
  private why: string | null = null; // this membership is over
  private readonly parts: PeerParts;
  private pinned: KeptEnds | null = null;
  private fetcher: Fetcher | null = null; // of models that are offered beside the mesh's own
  private going = false; // this membership ends
  private readonly own: AnsweringModel;
  private readonly pictureRows = new PictureRows(this);
  private readonly events: MeshEvents;
  private readonly whenEnded: (() => void)[] = [];
  private readonly over = new AbortController();

  constructor(parts: PeerParts, client: SignalingClient, link: InviteLink, name: string, events: MeshEvents) {
    const { links, view, leadership, model, stage, sessions } = parts;
    this.parts = parts;
    this.own = new AnsweringModel(parts.own);
    this.links = links;
    this.view = view;
    this.leadership = leadership;
    this.model = model;
    this.stage = stage;
    this.sessions = sessions;
    this.decoders = parts.decoders;
    this.client = client;
    this.link = link;
    this.called = name;
    this.events = events;
    this.progress = new Progress((phase) => events.phase(phase));
    this.lending = new Lending(parts, this.progress, this.signal, events);
    this.watch = new LeaderWatch(links, view, {
      signal: this.signal,
      isOver: () => this.why !== null || this.going,
      changed: () => events.changed(),
      failed: (text) => this.end(text),
    });
    this.part = new LogPart(links, view, leadership, link.mesh, (text) => events.notice(text));
    const provider = (): string => this.lending.profile?.provider ?? 'wasm';
    const own = new ModelAudit(links, parts.own, () => this.own.newSession(), provider, this.signal);
    this.canaries = own.canaries;
    this.decoders.keepAccounts(provider);
    new CheckRequests(links, (session) => (this.decoders.auditOf(session) ?? own).checks);
    links.on(STATUS, () => {
      const further = [...this.decoders].flatMap(({ audit }) => (audit === null ? [] : [audit]));
      const checks = addedUp([own, ...further].map((each) => each.checks.report()));
      return reportOf(parts, this.called, this.lending.facts(), checks);
    });
    view.subscribe(() => this.events.changed());
    links.onGone(() => this.events.changed());
    links.onConnected(() => this.events.changed());
  }

  /** Aborts when this membership is over. */
  get signal(): AbortSignal {
    return this.over.signal;
  }

  /** Why this membership is over; null: it is not. */
  get ended(): string | null {
    return this.why;
  }

  // --- asking

  /** Whether an answer that this tab asked for is under way. */
  isAnswering(): boolean {
    return [this.own, ...[...this.decoders].map(({ asked }) => asked)].some((each) => each.answering());
  }

  /**
   * The model that answers in words under that name, once its tokenizer is here; "": the mesh's own. Raises NoPlan where
   * there is none, CannotServe where its tokenizer cannot be had.
   */
  async answering(name = ''): Promise<AnsweringModel> {
    if (name === '' || this.view.state.model?.name === name) return this.own;
    return this.decoders.named(name).learn(this.fetching());
  }

  /** How the model of that name is asked; null where there is none. Its tokenizer need not be here. */
  asked(name: string): AnsweringModel | null {
    if (name === '' || this.view.state.model?.name === name) return this.own;
    return this.decoders.find(name)?.asked ?? null;
  }

  /** The model's tokenizer and template, once they are here. */
  get text(): Text | null {
    return this.model.text;
  }

  /** What makes prompts tokens, once the tokenizer is here. */
  get prompts(): Prompts | null {
    return this.model.prompts;
  }

  /** How the model's answers are drawn where whoever asks leaves that out. */
  get samplingDefaults(): SamplingDefaults {
    return this.model.samplingDefaults;
  }

  /** Embedding and head that stay here; null: the model is not known yet. */
  get ends(): KeptEnds | null {
    return this.pinned;
  }

  /** A session with the mesh's own model. Close it when it is over. Raises NoPlan before the model is known. */
  conversation(session = this.own.newSession(), ends: KeptEnds | null = null): Conversation {
    return this.own.conversation(session, ends);
  }

  /** Takes what gets the manifests of the models that are offered beside the mesh's own, and lengths of their rows. */
  fetchBy(fetcher: Fetcher, recorded: Recorded): void {
    this.fetcher = fetcher;
    this.decoders.knowBy(fetcher, recorded);
  }

  /** The manifest of a model that the mesh offers. Raises NoPlan before this tab is in its mesh, CannotServe. */
  manifestOf(model: string): Promise<GraphManifest> {
    return this.parts.flow.manifest(model, this.fetching());
  }

  /** The bytes of a blob of such a model. Raises NoPlan, CannotServe. */
  async blobOf(ref: BlobRef, signal: AbortSignal): Promise<Uint8Array> {
    const found = await this.fetching().blobs([ref], signal);
    return found.get(ref.sha256) ?? new Uint8Array();
  }

  /** A run of the model that the mesh offers as `name`. Close it when it is over. Raises NoPlan, RunFailed. */
  openRun(name: string): Promise<RunClient> {
    return openRun(this.links, this.view, this.parts.flow, this.fetching(), name);
  }

  /**
   * Rows of pictures for a model that answers, from `firsts` on in its prompt. Raises BadPicture, NoPlan, RunFailed,
   * CannotServe.
   */
  rowsOf(
    { manifest, view }: Pick<AnsweringModel, 'manifest'> & { readonly view: { readonly state: MeshState } },
    pictures: readonly PictureFile[],
    firsts: readonly number[],
  ): Promise<readonly GivenRows[]> {
    return this.pictureRows.given(view.state.model?.name ?? 'this model', manifest, pictures, firsts);
  }

  /**
   * Of the models that answer or write, by name ("": the mesh's own), those that this tab asks with pictures which the mesh
   * can look at, and those that write what is said; as far as their manifests are here.
   */
  kinds(): { readonly sees: ReadonlySet<string>; readonly hears: ReadonlySet<string> } {
    const { state } = this.view;
    const sees = new Set<string>();
    const hears = new Set<string>();
    const look = (name: string, manifest: Manifest | null): void => {
      const sight = manifest?.sight ?? null;
      if ((manifest?.speech ?? null) !== null) hears.add(name);
      if (sight !== null && sight.square === 0 && offerOfSight(state, sight) !== null) sees.add(name);
    };
    look('', this.model.manifest);
    for (const each of this.decoders) {
      look(each.name, each.parts.model.manifest);
    }
    return { sees, hears };
  }

  /** What the mesh's own model and further ones are made of, and which runs of units of them members hold. */
  heldUnits(): readonly HeldUnits[] {
    const { state } = this.view;
    const own: HeldUnits = {
      manifest: this.model.manifest,
      held: new Map([...state.members].map(([peer, { held }]) => [peer, held])),
    };
    const further = [...this.decoders].map(({ name, parts }) => ({
      manifest: parts.model.manifest,
      held: state.decoders.get(name)?.held ?? new Map<string, readonly Run[]>(),
    }));
    return [own, ...further];
  }

  private fetching(): Fetcher {
    if (this.fetcher === null) throw new NoPlan('this tab is not in its mesh yet');
    return this.fetcher;
  }

  /** The link that leads here. */
  url(): Promise<string> {
    return linkUrl(this.link);
  }

  /** What this tab comes in as, also after it was away. */
  get name(): string {
    return this.called;
  }

  /** Has everybody call this tab `name`. Raises BadCommand for a name that none has. */
  async rename(name: string): Promise<void> {
    const fault = nameFault(name);
    if (fault !== '') throw new BadCommand(fault);
    await this.view.propose({ kind: 'MemberRenamed', peer: this.view.me, name });
    this.called = name;
  }

  // --- leaving

  /** Tells the coordinator, lets running answers move elsewhere, then says goodbye. */
  async leave(reason = 'left'): Promise<void> {
    this.going = true;
    this.lending.leave();
    const late = new Promise((resolve) => setTimeout(resolve, LEAVE_WITHIN_MS));
    const polite = async (): Promise<void> => {
      await this.view.askLeader(LEAVING, null);
      const stages = this.parts.stages();
      for (const stage of stages) stage.perform(stage.core.leave());
      for (const stage of stages) await stage.idle();
    };
    await Promise.race([polite().catch(() => undefined), late]);
    const handed = this.view.replica?.leads === true ? await this.part.handOver() : 'taken';
    const why = handed === 'alone' ? CLOSED : reason;
    if (handed === 'taken') {
      const told = this.view.askLeader(LEFT, null, TOLD_WITHIN_MS).catch(() => undefined);
      await Promise.race([told, new Promise((resolve) => setTimeout(resolve, TOLD_WITHIN_MS))]);
    }
    this.end(why);
    await this.parts.close(why);
  }

  /** This membership is over for a reason that people should read. */
  end(why: string): void {
    if (this.why !== null) return;
    this.why = why;
    this.over.abort();
    this.part.close();
    this.client.close();
    void this.parts.close(why);
    for (const listener of this.whenEnded.splice(0)) listener();
    this.events.changed();
  }

  onEnded(listener: () => void): void {
    if (this.why !== null) listener();
    else this.whenEnded.push(listener);
  }

  // --- joining's part

  /** What this peer has of the model is here: it can ask. `ends`: embedding and head that stay here. */
  read(prompts: Prompts, ends: KeptEnds): void {
    this.model.read(prompts);
    this.pinned = ends;
  }

  /**
   * This tab is in a mesh without a model that answers in words: it ends where the mesh gets one, which asks for other
   * measurements, and whoever comes back takes part in that.
   */
  runsOnly(): void {
    const look = (): void => {
      const { model } = this.view.state;
      if (model !== null) this.end(`${model.name} answers in this mesh from now on: join once more`);
    };
    this.view.subscribe(look);
    look();
  }

  /** Says so while nobody coordinates, and comes back when this peer is left out; ends with the mesh. */
  watchCoordinator(enter: () => Promise<void>): void {
    this.links.onGone((_, reason, polite) => {
      if (this.why !== null) return;
      if (reason === WITHDRAWN) this.end('the founder withdrew the invite you came with: ask for a new link');
      else if (reason.includes(OLDER_BUILD)) this.end('this page is older than the mesh: reload it');
      else if (polite && reason === CLOSED) {
        this.end('the founder closed the mesh: it is back when the founder serves it again');
      } else this.watch.look();
    });
    const rejoin = (): Promise<void> => this.enterAgain(enter);
    this.part.entered(rejoin);
    this.watch.begin(rejoin);
  }

  /** Set while nobody coordinates, as far as this peer knows, or while it is left out. */
  get away(): Away | null {
    return this.watch.away;
  }

  /** Looks for the mesh at once instead of after the next pause. */
  tryNow(): void {
    this.watch.tryNow();
  }

  private async enterAgain(enter: () => Promise<void>): Promise<void> {
    await enter();
    await this.lending.reportAgain();
  }
}
