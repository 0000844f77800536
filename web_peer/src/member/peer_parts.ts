/*
 * The parts of one peer, built and wired: links, the mesh as it is known, the turn to lead, the model, the stage and
 * the sessions (twin of peer/member/peer_parts.py). Edge.
 */

import { Leadership } from '../coordination/leadership';
import { LocalModel } from '../model/local_model';
import { SessionHost } from '../origin/session_host';
import { MeshView } from '../replication/mesh_view';
import { FlowHost } from '../stage/flow_host';
import { StageHost } from '../stage/stage_host';
import type { PeerLinks } from '../transport/peer_links';
import { FrameRouter } from './frame_router';

const TICK_MS = 250; // leases of stages are looked at this often

/** How this peer takes part: `patient` as for MeshView, `kept` as for LocalModel. */
export interface PartsOptions {
  readonly patient: boolean;
  readonly kept: (sha256: string) => Promise<Uint8Array | null>;
}

/** The parts of one peer, which know each other but take no frames before they are told to. */
export class PeerParts {
  readonly links: PeerLinks;
  readonly view: MeshView;
  readonly leadership: Leadership;
  readonly model: LocalModel;
  readonly stage: StageHost;
  readonly sessions: SessionHost;
  readonly flow: FlowHost;
  private readonly ticker: ReturnType<typeof setInterval>;

  /** From here on frames are taken, and deadlines are watched. */
  constructor(links: PeerLinks, { patient, kept }: PartsOptions) {
    this.links = links;
    this.view = new MeshView(links, patient);
    this.leadership = new Leadership(links, this.view);
    this.model = new LocalModel(links, kept);
    this.stage = new StageHost(links, this.view);
    this.sessions = new SessionHost(links, this.view);
    this.flow = new FlowHost(links, this.view);
    const router = new FrameRouter(this);
    links.start((peer, frame) => router.take(peer, frame));
    this.ticker = setInterval(() => this.tick(), TICK_MS);
  }

  /** Says goodbye to everyone and stops; answers under way end with an error. */
  async close(reason: string): Promise<void> {
    clearInterval(this.ticker);
    this.flow.close();
    this.sessions.close(reason);
    this.leadership.close();
    this.view.close();
    await this.links.close(reason);
  }

  private tick(): void {
    this.stage.tick();
    this.flow.tick();
    this.view.tick();
    this.leadership.tick();
  }
}
