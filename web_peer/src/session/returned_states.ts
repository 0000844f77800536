/*
 * Decides what becomes of the states that a last stage hands back to an asker that keeps its ends: each is drawn from
 * once, by the ends of its session.
 */

import type { Refuse, SessionId, Step, Token } from '../wire/generated/frames';
import { notUsable, stateIn } from './pinned_ends';
import type { OriginSession } from './origin';

const MOST_SESSIONS = 256; // that are remembered; an answer has one

/** The states of the last stage that an origin with pinned ends gets back. */
export class HandedBack {
  private readonly returned: (frame: Step) => void;
  private readonly drawn = new Map<SessionId, string>(); // turn and position of the last one, by session

  /** `returned` is told of each state from which a token is drawn. */
  constructor(returned: (frame: Step) => void) {
    this.returned = returned;
  }

  /** A state of `core`'s session from `peer`; `heard` gets the token that follows, or why there is none. */
  take(core: OriginSession, peer: string, frame: Step, heard: (frame: Token | Refuse) => void): void {
    const { ends } = core;
    const drawing = ends === null ? null : core.drawing(peer, frame);
    if (ends === null || drawing === null) return;
    if (drawing.kind === 'TOKEN') {
      heard(drawing);
      return;
    }
    const at = `${frame.turn} ${frame.position}`;
    if (this.drawn.get(frame.session) === at) return; // a stage that says it again gains nothing by that
    this.drawn.delete(frame.session);
    this.drawn.set(frame.session, at);
    const [oldest] = this.drawn.keys();
    if (this.drawn.size > MOST_SESSIONS && oldest !== undefined) this.drawn.delete(oldest);
    const state = stateIn(frame, ends.width);
    if (state === null) heard(notUsable(frame));
    else {
      this.returned(frame);
      ends.draw(drawing, state, (token) => heard(token ?? notUsable(frame)));
    }
  }
}
