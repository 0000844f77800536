/*
 * The further models that answer in words, as this tab has them: parts for each that the mesh offers (twin of
 * peer/member/decoder_parts.py). Edge.
 *
 * They come and go with the offers. A tab that lends holds what plans give it of each; one that asks a model has its
 * manifest and tokenizer fetched first.
 */

import { ModelAudit } from '../audit/model_audit';
import { looksAtRows, type Recorded } from '../audit/outlier_reports';
import { NoPlan, PeerError, textOf } from '../errors';
import type { Fetcher } from '../model/fetcher';
import type { Pieces } from '../model/piece_exchange';
import { Prompts } from '../model/prompts';
import { Text } from '../model/tokenizer';
import type { Manifest } from '../planner/manifest';
import { DecoderView } from '../replication/decoder_view';
import type { MeshView } from '../replication/mesh_view';
import { Caches } from '../stage/kv_transfer_service';
import { makeRoomForFronts } from '../stage/prefix_budget';
import { roomOf, Serving, UNPACED } from '../stage/unit_host';
import { Holding } from '../stage/unit_loader';
import { markOf, MARK_BYTES } from '../state/decoders';
import type { Profile } from '../state/generated/commands';
import type { StageWorkers } from '../runtime/worker_handle';
import type { Run } from '../state/plan_record';
import { Journal } from '../storage/journal';
import type { PeerLinks } from '../transport/peer_links';
import type { SessionId } from '../wire/generated/frames';
import { AnsweringModel } from '../origin/answering_model';
import { ModelParts } from './model_parts';

const AGAIN_MS = 5000; // after a manifest that could not be had, or units that did not load
const WITHDRAWN = 'the model is not offered any more';

/** This tab as it is lent: what holding units of further models takes of it. */
export interface Lent {
  readonly fetcher: Fetcher;
  readonly workers: StageWorkers; // of all models
  profile(): Profile; // as it is measured now
  lentBytes(): number; // of memory that it lends to anybody now
  notice(text: string): void;
  /** A GPU device is gone, which all models share. */
  gpuLost(text: string): void;
}

/** Of the further model `name`, whose manifest has the id `modelId`. */
export class DecoderParts {
  readonly name: string;
  readonly modelId: string;
  readonly mark: string; // what the ids of its sessions begin with
  readonly view: DecoderView;
  readonly parts: ModelParts;
  readonly asked: AnsweringModel;
  audit: ModelAudit | null = null;
  private readonly links: PeerLinks;
  private readonly over = new AbortController();
  private readonly otherBytes: () => number;
  private lent: Lent | null = null;
  private holding: Holding | null = null;
  private known: Promise<Manifest> | null = null;
  private looking: Promise<void> | null = null;
  private recorded: Recorded = () => Promise.resolve(null);
  private read: Promise<AnsweringModel> | null = null;

  /** `otherBytes()`: what all other models take here. */
  constructor(
    links: PeerLinks,
    view: MeshView,
    pieces: Pieces,
    offered: { readonly name: string; readonly model: string },
    otherBytes: () => number,
  ) {
    const { name, model } = offered;
    this.links = links;
    this.name = name;
    this.modelId = model;
    this.mark = markOf(name, model);
    this.view = new DecoderView(view, name);
    this.parts = new ModelParts(links, this.view, pieces);
    this.asked = new AnsweringModel(this.parts, this.mark);
    this.otherBytes = otherBytes;
  }

  /** Whether questions can be put to it; null: its manifest is not here yet. */
  get takesQuestions(): boolean | null {
    const { manifest } = this.parts.model;
    return manifest === null ? null : manifest.speech === null;
  }

  /** Has its manifest here, for which it tries again and again until the model is withdrawn. */
  know(fetcher: Fetcher, recorded = this.recorded): Promise<void> {
    this.recorded = recorded;
    this.looking ??= this.lookFor(fetcher);
    return this.looking;
  }

  /**
   * Says from here on what this tab owes for this model, has its steps checked, and tries others while it coordinates.
   * `provider()`: what this tab computes with.
   */
  keepAccounts(provider: () => string): void {
    const { links, parts, asked, over } = this;
    this.audit = new ModelAudit(links, parts, () => asked.newSession(), provider, over.signal);
  }

  /** Has its tokenizer here, after which it can be asked. Raises CannotServe, NotNow. */
  async learn(fetcher: Fetcher): Promise<AnsweringModel> {
    this.read ??= this.readWords(fetcher).catch((error: unknown) => {
      this.read = null; // asked for again
      throw error;
    });
    return this.read;
  }

  /** Begins to hold what plans give this tab. */
  lend(lent: Lent): void {
    if (this.lent !== null) return;
    this.lent = lent;
    this.hold(lent).catch((error: unknown) => {
      if (!this.over.signal.aborted) reportError(error);
    });
  }

  /** Bytes that its weights and caches take here. */
  get bytes(): { readonly weights: number; readonly kv: number } {
    return this.parts.stage.units?.memoryBytes() ?? { weights: 0, kv: 0 };
  }

  /** The leader was lost: tells it again what is held here. */
  reportAgain(): void {
    this.holding?.forgetReport();
  }

  /** Loads and unloads nothing any more, until `comeBack`. */
  leave(): void {
    this.holding?.leave();
  }

  /** Refuses what comes, and tells every asker, so that answers can go on elsewhere. */
  leaveStage(): void {
    this.parts.stage.perform(this.parts.stage.core.leave());
  }

  /** Loads again what plans want. */
  comeBack(): void {
    this.parts.stage.core.comeBack();
    this.holding?.comeBack();
    this.holding?.look();
  }

  /** Looks again at what plans want. */
  look(): void {
    this.holding?.look();
  }

  /** This tab computes by another provider from now on, or is measured anew: what is loaded from here on runs so. */
  measured(profile: Profile): void {
    const { stage, view } = this.parts;
    const { model } = view.state;
    if (stage.units === null || model === null) return;
    for (const run of stage.units.changeRoom(roomOf(profile, model))) stage.perform(stage.core.drop(run));
    this.holding?.lostRun();
  }

  /** Ends answers, and unloads what is held. */
  close(why: string): void {
    this.over.abort();
    this.view.close();
    this.parts.close(why);
    this.holding?.close();
  }

  private async manifest(fetcher: Fetcher): Promise<Manifest> {
    this.known ??= fetcher.manifest(this.modelId, this.over.signal).catch((error: unknown) => {
      this.known = null;
      throw error;
    });
    const manifest = await this.known;
    this.parts.model.know(manifest);
    return manifest;
  }

  private async readWords(fetcher: Fetcher): Promise<AnsweringModel> {
    const manifest = await this.manifest(fetcher);
    const files = await fetcher.blobs([manifest.tokenizer], this.over.signal);
    const tokenizerJson = files.get(manifest.tokenizer.sha256) ?? new Uint8Array();
    const { chatTemplate, bosToken, endTokens, addBos } = manifest;
    const words = { tokenizerJson, chatTemplate, bosToken, endTokens, addBos };
    this.parts.model.read(new Prompts(words, new Text(words, manifest.sight)));
    if (this.over.signal.aborted) this.parts.model.close();
    return this.asked;
  }

  private async lookFor(fetcher: Fetcher): Promise<void> {
    const isOver = (): boolean => this.over.signal.aborted;
    while (!isOver()) {
      try {
        await this.manifest(fetcher);
        return;
      } catch (error) {
        if (isOver()) return;
        if (!(error instanceof PeerError)) throw error;
        this.lent?.notice(`${this.name} is not held here yet: ${textOf(error)}`);
      }
      await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    }
  }

  /** Never holds before the manifest is here. */
  private async hold(lent: Lent): Promise<void> {
    const { signal } = this.over;
    await this.know(lent.fetcher);
    const { links, view, parts, name } = this;
    const { stage, model } = parts;
    const { manifest } = model;
    const chosen = view.state.model;
    if (signal.aborted || manifest === null || chosen === null) return; // withdrawn meanwhile
    const events = {
      results: (results: Parameters<typeof stage.results>[0]) => stage.results(results),
      lost: (run: Run, text: string) => this.lost(run, text),
    };
    const room = roomOf(lent.profile(), chosen);
    const units = new Serving(lent.fetcher, manifest, room, UNPACED, events, lent.workers);
    const journal = new Journal();
    stage.lend(units, journal);
    makeRoomForFronts(stage, view, () => lent.lentBytes() / 2, signal);
    const leftBytes = (): number => lent.profile().memoryBytes - this.otherBytes();
    new Caches({ links, view, model, stage }, manifest, leftBytes, signal).follow();
    this.holding = new Holding(
      { links, view, stage },
      units,
      chosen.sessions,
      {
        report: (runs) => view.holds(runs),
        progress: () => undefined, // the page tells how far joining is, which this is no part of
        reported: () => undefined,
        failed: (text) => {
          lent.notice(`${name} cannot be held here: ${text}`);
          const again = setTimeout(() => this.holding?.look(), AGAIN_MS);
          signal.addEventListener('abort', () => clearTimeout(again));
        },
      },
      journal,
    );
    this.holding.start();
    void looksAtRows({ links, view, stage }, manifest, this.recorded, signal); // a silent server holds up nobody
  }

  private lost(run: Run, text: string): void {
    const { stage } = this.parts;
    stage.perform(stage.core.drop(run));
    if (this.lent?.profile().provider === 'webgpu') {
      this.lent.gpuLost(text);
      return;
    }
    const units = `units ${run.first}-${run.stop - 1} of ${this.name}`;
    this.lent?.notice(`${units} stopped: ${text}; loading them again`);
    this.holding?.lostRun();
  }
}

/** Of all further models of the mesh, by name. */
export class AllDecoders {
  private readonly links: PeerLinks;
  private readonly view: MeshView;
  private readonly pieces: Pieces;
  private readonly ownBytes: () => number;
  private readonly byName = new Map<string, DecoderParts>();
  private readonly byMark = new Map<string, DecoderParts>();
  private lent: Lent | null = null;
  private known: { readonly fetcher: Fetcher; readonly recorded: Recorded } | null = null;
  private provider: (() => string) | null = null;
  private isClosed = false;

  /** `ownBytes()`: what all other models of the mesh take here. */
  constructor(links: PeerLinks, view: MeshView, pieces: Pieces, ownBytes: () => number) {
    this.links = links;
    this.view = view;
    this.pieces = pieces;
    this.ownBytes = ownBytes;
    view.subscribe(() => this.look());
  }

  [Symbol.iterator](): Iterator<DecoderParts> {
    return [...this.byName.values()][Symbol.iterator]();
  }

  /** The parts of the further model whose session it is; null: it is of the mesh's own. */
  ofSession(session: SessionId): ModelParts | null {
    if (this.byMark.size === 0) return null;
    return this.byMark.get(session.slice(0, 2 * MARK_BYTES))?.parts ?? null;
  }

  /** Raises NoPlan where no further model of that name answers in words. */
  named(name: string): DecoderParts {
    const found = this.byName.get(name);
    if (found === undefined) {
      throw new NoPlan(`no model that answers in words is offered under the name ${name}`);
    }
    return found;
  }

  /** The same, null where there is none. */
  find(name: string): DecoderParts | null {
    return this.byName.get(name) ?? null;
  }

  /** Has the manifest of each here from now on, by which it is known what answers questions. */
  knowBy(fetcher: Fetcher, recorded: Recorded): void {
    this.known = { fetcher, recorded };
    for (const each of this) this.know(each);
  }

  /** Has all of them checked and accounted from here on, as the mesh's own. */
  keepAccounts(provider: () => string): void {
    this.provider = provider;
    for (const each of this) each.keepAccounts(provider);
  }

  /** What is checked of the further model whose session it is; null: it is of the mesh's own. */
  auditOf(session: SessionId): ModelAudit | null {
    return this.byMark.get(session.slice(0, 2 * MARK_BYTES))?.audit ?? null;
  }

  /** Holds from here on what plans give this tab of each. */
  lend(lent: Lent): void {
    this.lent = lent;
    for (const each of this) each.lend(lent);
  }

  /** Bytes that weights and caches of all of them take here. */
  get bytes(): { readonly weights: number; readonly kv: number } {
    const all = [...this].map(({ bytes }) => bytes);
    return {
      weights: all.reduce((sum, { weights }) => sum + weights, 0),
      kv: all.reduce((sum, { kv }) => sum + kv, 0),
    };
  }

  /** Ends everything. */
  close(why: string): void {
    this.isClosed = true;
    for (const each of this) this.end(each, why);
  }

  /** Parts come and go with what the mesh offers. */
  private look(): void {
    if (this.isClosed) return;
    const { state, me } = this.view;
    const isWhole = state.members.has(me); // else its log has just begun anew, and is still to come
    for (const each of this) {
      if (isWhole && state.decoders.get(each.name)?.model !== each.modelId) this.end(each, WITHDRAWN);
    }
    for (const [name, { model }] of state.decoders) {
      if (this.byName.has(name)) continue;
      const others = (): number => this.ownBytes() + this.bytesBut(name);
      const made = new DecoderParts(this.links, this.view, this.pieces, { name, model }, others);
      this.byName.set(name, made);
      this.byMark.set(made.mark, made);
      if (this.lent !== null) made.lend(this.lent);
      if (this.provider !== null) made.keepAccounts(this.provider);
      this.know(made);
    }
  }

  private know(each: DecoderParts): void {
    if (this.known === null) return;
    const { fetcher, recorded } = this.known;
    each.know(fetcher, recorded).catch((error: unknown) => reportError(error));
  }

  private bytesBut(name: string): number {
    const others = [...this].filter((each) => each.name !== name);
    return others.reduce((sum, { bytes: { weights, kv } }) => sum + weights + kv, 0);
  }

  private end(each: DecoderParts, why: string): void {
    this.byName.delete(each.name);
    this.byMark.delete(each.mark);
    each.close(why);
  }
}
