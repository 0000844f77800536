/*
 * Which part of this peer takes a frame that comes: a table from kinds of frames to parts (twin of
 * peer/member/frame_router.py). What the stages decide over frames that came together is done together.
 */

import type { Leadership } from '../coordination/leadership';
import { WrongChannel } from '../errors';
import type { Pieces } from '../model/piece_exchange';
import type { MeshView } from '../replication/mesh_view';
import type { StageEffect } from '../session/effects';
import type { FlowHost } from '../stage/flow_host';
import { answerOfSessions } from '../stage/session_requests';
import type { PeerLinks } from '../transport/peer_links';
import { nowS } from '../transport/ticker';
import { framesOf } from '../wire/bundles';
import type { Frame, SessionId } from '../wire/generated/frames';
import { isOfSession, type ModelParts } from './model_parts';

/** What a lead hears that counts on this tab. */
const NO_MEMBER = 'a tab computes in no team';

type Kind = Frame['kind'];
type Of<K extends Kind> = Extract<Frame, { readonly kind: K }>;

/** Who takes frames of each kind. */
type Table = { readonly [K in Kind]: (peer: string, frame: Of<K>) => void };

/** The parts that serve one model, as frames reach them. */
type Serves = Pick<ModelParts, 'decide'> & {
  readonly stage: Pick<ModelParts['stage'], 'congestion' | 'gone' | 'lendCache' | 'perform' | 'queue'>;
  readonly sessions: Pick<ModelParts['sessions'], 'back' | 'gone'>;
};

/** The further models that answer in words. */
interface Further {
  /** The parts of the further model whose session it is; null: it is of the mesh's own. */
  ofSession(session: SessionId): Serves | null;
  [Symbol.iterator](): Iterator<{ readonly parts: Serves }>;
}

interface Parts {
  readonly links: Pick<
    PeerLinks,
    'on' | 'onConnected' | 'onCongestion' | 'onGone' | 'requested' | 'probed' | 'sendOrLose'
  >;
  readonly view: Pick<MeshView, 'received' | 'unreachable'>;
  readonly pieces: Pick<Pieces, 'requested' | 'came' | 'gone'>;
  readonly own: Serves;
  readonly decoders: Further;
  readonly flow: Pick<FlowHost, 'value' | 'go' | 'failed' | 'gone'>;
  readonly leadership: Pick<Leadership, 'gone'>;
}

/** Hands on what comes in over links, and what becomes of connections. */
export class FrameRouter {
  private readonly parts: Parts;
  private readonly table: Table;

  constructor(parts: Parts) {
    this.parts = parts;
    const { links, view, pieces, flow } = parts;
    answerOfSessions(links, (session) => this.partsOf(session).stage);
    links.onConnected((peer) => {
      for (const { sessions } of this.every()) sessions.back(peer);
    });
    links.onCongestion((peer, full) => {
      for (const { stage } of this.every()) stage.congestion(peer, full);
    });
    links.onGone((peer, reason, polite) => this.gone(peer, reason, polite));
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
      PIECE_REQUEST: (peer, frame) => pieces.requested(peer, frame),
      PIECE: (peer, frame) => pieces.came(peer, frame),
      RUN_VALUE: (peer, frame) => flow.value(peer, frame),
      RUN_GO: (peer, frame) => flow.go(peer, frame),
      RUN_ITEM_FAILED: (peer, frame) => flow.failed(peer, frame),
      TEAM_STEP: (peer, frame) => {
        links.sendOrLose(peer, { kind: 'TEAM_END', session: frame.session, message: NO_MEMBER });
      },
      TEAM_ROWS: own,
      TEAM_PART: own,
      TEAM_END: own,
    };
  }

  /** Hands a frame to its part. Raises a FrameError for one that makes no sense. */
  take(peer: string, frame: Frame): void {
    const taker = this.table[frame.kind] as (peer: string, frame: Frame) => void; // each kind has its own row
    taker(peer, frame);
  }

  /** The parts of all models, those of the mesh's own first. */
  private every(): readonly Serves[] {
    return [this.parts.own, ...[...this.parts.decoders].map(({ parts }) => parts)];
  }

  private partsOf(session: SessionId): Serves {
    return this.parts.decoders.ofSession(session) ?? this.parts.own;
  }

  /** Whom the end of a connection concerns, in this order: answers move before anybody is planned without. */
  private gone(peer: string, reason: string, polite: boolean): void {
    const { pieces, flow, view, leadership } = this.parts;
    pieces.gone(peer);
    const every = this.every();
    for (const { stage } of every) stage.gone(peer);
    flow.gone(peer);
    for (const { sessions } of every) sessions.gone(peer, reason, polite);
    view.unreachable(peer);
    leadership.gone(peer, reason);
  }

  /** Hands frames that came together to the stages and to sessions; what the stages decide is done at once. */
  private sessionFrames(peer: string, frames: readonly Frame[]): void {
    const now = nowS();
    const decided = new Map<Serves, StageEffect[]>([[this.parts.own, []]]);
    for (const frame of frames) {
      if (frame.kind === 'PROBE' || frame.kind === 'PROBE_ACK') this.parts.links.probed(peer, frame);
      else if (isOfSession(frame)) {
        const parts = this.partsOf(frame.session);
        const effects = decided.get(parts) ?? [];
        decided.set(parts, effects);
        effects.push(...parts.decide(now, peer, frame));
      } else throw new WrongChannel(`BUNDLE: ${frame.kind} does not travel in bundles`);
    }
    for (const [{ stage }, effects] of decided) {
      stage.perform(effects);
      stage.queue.look();
    }
  }
}
