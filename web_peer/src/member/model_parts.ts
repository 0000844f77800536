/*
 * The parts of a peer that serve one model that answers in words: its tokenizer, stages, and sessions asked here (twin
 * of peer/member/model_parts.py). Edge.
 *
 * A peer has these parts once for the mesh's own model and once for each further one; a frame goes to those of the
 * model whose session it is of.
 */

import { LocalModel } from '../model/local_model';
import type { Pieces } from '../model/piece_exchange';
import { SessionHost } from '../origin/session_host';
import type { ModelView } from '../replication/decoder_view';
import type { StageEffect } from '../session/effects';
import { StageHost } from '../stage/stage_host';
import type { PeerLinks } from '../transport/peer_links';
import type { Frame } from '../wire/generated/frames';

type Kind = Frame['kind'];
export type SessionKind =
  'STEP' | 'TOKEN' | 'OPEN' | 'CANCEL' | 'RELEASE' | 'REFUSE' | 'FEED' | 'WHERE' | 'HERE';
export type SessionFrame = Extract<Frame, { readonly kind: SessionKind }>;
type Of<K extends Kind> = Extract<Frame, { readonly kind: K }>;

/** What the stage decides over a frame of a session, once this peer's own sessions have seen it. */
type Table = {
  readonly [K in SessionKind]: (now: number, peer: string, frame: Of<K>) => readonly StageEffect[];
};
type Decide = (now: number, peer: string, frame: SessionFrame) => readonly StageEffect[];

/** Of the model that `view` is of. */
export class ModelParts {
  readonly view: ModelView;
  readonly model: LocalModel;
  readonly stage: StageHost;
  readonly sessions: SessionHost;
  private readonly table: Table;

  /** `pieces`: one for all models of this peer. */
  constructor(links: PeerLinks, view: ModelView, pieces: Pieces) {
    this.view = view;
    this.model = new LocalModel(pieces);
    this.stage = new StageHost(links, view);
    this.sessions = new SessionHost(links, view);
    this.table = tableOf(this.stage, this.sessions);
  }

  /** Takes a frame of a session; what the stage decides about it is still to be done. */
  decide(now: number, peer: string, frame: SessionFrame): readonly StageEffect[] {
    return (this.table[frame.kind] as Decide)(now, peer, frame); // each kind has its own row
  }

  /** Ends what is under way; answers end with an error that says `why`. Units are unloaded by who loaded them. */
  close(why: string): void {
    this.sessions.close(why);
    this.model.close();
  }
}

/** Whether a frame is of a session, and so of one model. */
export function isOfSession(frame: Frame): frame is SessionFrame {
  return Object.hasOwn(OF_SESSIONS, frame.kind);
}

const OF_SESSIONS: Readonly<Record<SessionKind, true>> = {
  ...{ STEP: true, TOKEN: true, OPEN: true, CANCEL: true, RELEASE: true },
  ...{ REFUSE: true, FEED: true, WHERE: true, HERE: true },
};

function tableOf({ core }: StageHost, sessions: SessionHost): Table {
  return {
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
