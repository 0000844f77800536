/*
 * Which part of this peer takes a frame that comes: a table from kinds of frames to parts (twin of
 * peer/member/frame_router.py). What the stage decides over frames that came together is done together.
 */

import type { Leadership } from '../coordination/leadership';
import { WrongChannel } from '../errors';
import type { LocalModel } from '../model/local_model';
import type { SessionHost } from '../origin/session_host';
import type { MeshView } from '../replication/mesh_view';
import type { StageEffect } from '../session/effects';
import type { FlowHost } from '../stage/flow_host';
import type { StageHost } from '../stage/stage_host';
import type { PeerLinks } from '../transport/peer_links';
import { nowS } from '../transport/ticker';
import { framesOf } from '../wire/bundles';
import type { Frame } from '../wire/generated/frames';

type Kind = Frame['kind'];
type SessionKind = 'STEP' | 'TOKEN' | 'OPEN' | 'CANCEL' | 'RELEASE' | 'REFUSE' | 'FEED' | 'WHERE' | 'HERE';
type Of<K extends Kind> = Extract<Frame, { readonly kind: K }>;

/** Who takes frames of each kind. */
type Table = { readonly [K in Kind]: (peer: string, frame: Of<K>) => void };

/** What the stage decides over a frame of a session, once this peer's own sessions have seen it. */
type SessionTable = {
  readonly [K in SessionKind]: (now: number, peer: string, frame: Of<K>) => readonly StageEffect[];
};

type Decide = (now: number, peer: string, frame: Frame) => readonly StageEffect[];

interface Parts {
  readonly links: Pick<PeerLinks, 'requested' | 'probed' | 'onGone'>;
  readonly view: Pick<MeshView, 'received' | 'unreachable'>;
  readonly model: Pick<LocalModel, 'pieces'>;
  readonly stage: Pick<StageHost, 'core' | 'queue' | 'perform' | 'gone'>;
  readonly sessions: Pick<SessionHost, 'frame' | 'handedBack' | 'gone'>;
  readonly flow: Pick<FlowHost, 'value' | 'go' | 'failed' | 'gone'>;
  readonly leadership: Pick<Leadership, 'gone'>;
}

/** Hands on what comes in over links, and what becomes of connections. */
export class FrameRouter {
  private readonly parts: Parts;
  private readonly table: Table;
  private readonly sessionTable: SessionTable;

  constructor(parts: Parts) {
    this.parts = parts;
    const { links, view, model, flow } = parts;
    links.onGone((peer, reason, polite) => this.gone(peer, reason, polite));
    const { core } = parts.stage;
    const { sessions } = parts;
    const own = (): void => undefined; // the connection's own
    const ofSession = (peer: string, frame: Frame): void => this.sessionFrames(peer, [frame]);
    this.table = {
      HELLO: own,
      PING: own,
      PONG: own,
      BYE: own,
      BYE_ACK: own,
      CREDIT: own,
      STEP: ofSession,
      TOKEN: ofSession,
      OPEN: ofSession,
      CANCEL: ofSession,
      RELEASE: ofSession,
      REFUSE: ofSession,
      FEED: ofSession,
      WHERE: ofSession,
      HERE: ofSession,
      BUNDLE: (peer, frame) => this.sessionFrames(peer, framesOf(frame)),
      REQUEST: (peer, frame) => links.requested(peer, frame),
      RESPONSE: (peer, frame) => links.requested(peer, frame),
      PROBE: (peer, frame) => links.probed(peer, frame),
      PROBE_ACK: (peer, frame) => links.probed(peer, frame),
      CONSENSUS: (peer, frame) => view.received(peer, frame),
      PIECE_REQUEST: (peer, frame) => model.pieces.requested(peer, frame),
      PIECE: (peer, frame) => model.pieces.came(peer, frame),
      RUN_VALUE: (peer, frame) => flow.value(peer, frame),
      RUN_GO: (peer, frame) => flow.go(peer, frame),
      RUN_ITEM_FAILED: (peer, frame) => flow.failed(peer, frame),
    };
    this.sessionTable = {
      STEP: (now, peer, frame) => {
        const effects = core.step(now, peer, frame);
        sessions.handedBack(peer, frame);
        return effects;
      },
      TOKEN: (now, peer, frame) => {
        const effects = core.token(now, peer, frame);
        sessions.frame(now, peer, frame);
        return effects;
      },
      FEED: (now, peer, frame) => {
        const effects = core.feed(now, peer, frame);
        if (frame.stage === 0) sessions.frame(now, peer, frame);
        return effects;
      },
      OPEN: (now, peer, frame) => core.open(now, peer, frame),
      WHERE: (_, peer, frame) => core.where(peer, frame),
      CANCEL: (_, peer, frame) => core.cancel(peer, frame),
      RELEASE: (_, peer, frame) => core.release(peer, frame),
      REFUSE: (now, peer, frame) => {
        sessions.frame(now, peer, frame);
        return [];
      },
      HERE: (now, peer, frame) => {
        sessions.frame(now, peer, frame);
        return [];
      },
    };
  }

  /** Hands a frame to its part. Raises a FrameError for one that makes no sense. */
  take(peer: string, frame: Frame): void {
    const taker = this.table[frame.kind] as (peer: string, frame: Frame) => void; // each kind has its own row
    taker(peer, frame);
  }

  /** Whom the end of a connection concerns, in this order: answers move before anybody is planned without. */
  private gone(peer: string, reason: string, polite: boolean): void {
    const { model, stage, flow, sessions, view, leadership } = this.parts;
    model.pieces.gone(peer);
    stage.gone(peer);
    flow.gone(peer);
    sessions.gone(peer, reason, polite);
    view.unreachable(peer);
    leadership.gone(peer, reason);
  }

  /** Hands frames that came together to the stage and to sessions; what the stage decides is done at once. */
  private sessionFrames(peer: string, frames: readonly Frame[]): void {
    const now = nowS();
    const effects: StageEffect[] = [];
    for (const frame of frames) {
      if (frame.kind === 'PROBE' || frame.kind === 'PROBE_ACK') this.parts.links.probed(peer, frame);
      else if (Object.hasOwn(this.sessionTable, frame.kind)) {
        const decide = this.sessionTable[frame.kind as SessionKind] as Decide;
        effects.push(...decide(now, peer, frame));
      } else throw new WrongChannel(`BUNDLE: ${frame.kind} does not travel in bundles`);
    }
    const { stage } = this.parts;
    stage.perform(effects);
    stage.queue.look();
  }
}
