/*
 * The parts of one peer, built and wired: links, the mesh as it is known, the turn to lead, the model, the stage and
 * the sessions (twin of peer/member/peer_parts.py). Edge.
 */

import { Leadership } from '../coordination/leadership';
import type { LocalModel } from '../model/local_model';
import { Pieces } from '../model/piece_exchange';
import type { SessionHost } from '../origin/session_host';
import { MeshView } from '../replication/mesh_view';
import { FlowHost } from '../stage/flow_host';
import type { StageHost } from '../stage/stage_host';
import type { PeerLinks } from '../transport/peer_links';
import { AllDecoders } from './decoder_parts';
import { FrameRouter } from './frame_router';
import { ModelParts } from './model_parts';

const TICK_MS = 250; // leases of stages are looked at this often

/** How this peer takes part: `patient` as for MeshView, `kept` as for Pieces. */
export interface PartsOptions {
  readonly patient: boolean;
  readonly kept: (sha256: string) => Promise<Uint8Array | null>;
}

/** The parts of one peer, which know each other but take no frames before they are told to. */
export class PeerParts {
  readonly links: PeerLinks;
  readonly view: MeshView;
  readonly leadership: Leadership;
  readonly pieces: Pieces; // of all models
  readonly own: ModelParts; // that serve the mesh's own model
  readonly model: LocalModel;
  readonly stage: StageHost;
  readonly sessions: SessionHost;
  readonly decoders: AllDecoders;
  readonly flow: FlowHost;
  private readonly ticker: ReturnType<typeof setInterval>;

  /** From here on frames are taken, and deadlines are watched. */
  constructor(links: PeerLinks, { patient, kept }: PartsOptions) {
    this.links = links;
    this.view = new MeshView(links, patient);
    this.leadership = new Leadership(links, this.view);
    this.pieces = new Pieces(
      (peer, frame) => links.send(peer, frame),
      (peer) => links.connection(peer),
      kept,
    );
    this.own = new ModelParts(links, this.view, this.pieces);
    ({ model: this.model, stage: this.stage, sessions: this.sessions } = this.own);
    this.decoders = new AllDecoders(links, this.view, this.pieces, () => this.ownBytes());
    this.flow = new FlowHost(links, this.view);
    const router = new FrameRouter(this);
    links.start((peer, frame) => router.take(peer, frame));
    this.ticker = setInterval(() => this.tick(), TICK_MS);
  }

  /** This peer's stages, those of the mesh's own model first. */
  stages(): readonly StageHost[] {
    return [this.stage, ...[...this.decoders].map(({ parts }) => parts.stage)];
  }

  /** Says goodbye to everyone and stops; answers under way end with an error. */
  async close(reason: string): Promise<void> {
    clearInterval(this.ticker);
    this.flow.close();
    const why = `this tab is no longer in the mesh: ${reason}`;
    this.decoders.close(why);
    this.own.close(why);
    this.leadership.close();
    this.view.close();
    await this.links.close(reason);
  }

  /** What the mesh's own model and models of graphs take here. */
  private ownBytes(): number {
    const { weights, kv } = this.stage.units?.memoryBytes() ?? { weights: 0, kv: 0 };
    return weights + kv + this.flow.weightBytes;
  }

  private tick(): void {
    for (const stage of this.stages()) stage.tick();
    this.flow.tick();
    this.view.tick();
    this.leadership.tick();
  }
}
