/*
 * What members tell each other beside the log: how a running answer goes on (`live`), who writes (`typing`). Edge.
 *
 * Hints may be lost, late or wrong: nothing depends on them but how soon something is shown, and how much an answer
 * that is adopted has to be computed again.
 */

import { PeerError } from '../errors';
import type { Piece } from './live_answer';
import type { Making } from './answer_in_progress';
import type { TalkLinks } from './local_conversations';
import { LIVE, type LiveRequest, MAX_LIVE_IDS, TYPING } from '../wire/generated/requests';
import type { RequestKind } from '../wire/request_kind';

export const TYPING_MS = 6000; // a mark lasts so long
const TYPING_AGAIN_MS = 2500;
const LIVE_MS = 100; // between two hints about one answer
const MAX_UNDER_WAY = 2; // hints to one peer about one answer that it has not confirmed

/** One answer as it is told to others. */
interface Telling {
  readonly sent: Map<string, number>; // tokens, by peer
  readonly underWay: Map<string, number>; // hints, by peer
  timer: ReturnType<typeof setTimeout> | undefined;
}

/** What others tell between entries of the log: answers as they stream, and who is typing. */
export class Hints {
  private readonly links: Pick<TalkLinks, 'isConnected' | 'prepare' | 'call'>;
  private readonly tellings = new Map<string, Telling>(); // by message
  private readonly wrote = new Map<string, number>(); // by conversation: when this was said last

  constructor(links: Pick<TalkLinks, 'isConnected' | 'prepare' | 'call'>) {
    this.links = links;
  }

  /** The answer that `making` makes has grown, or is at its end. */
  live(conversation: string, message: string, peers: readonly string[], making: Making, over = false): void {
    let telling = this.tellings.get(message);
    if (telling === undefined) {
      telling = { sent: new Map(), underWay: new Map(), timer: undefined };
      this.tellings.set(message, telling);
    }
    const known = telling;
    if (over) {
      clearTimeout(known.timer);
      this.tellings.delete(message);
      this.tell(known, conversation, message, peers, making);
    } else {
      known.timer ??= setTimeout(() => {
        known.timer = undefined;
        this.tell(known, conversation, message, peers, making);
      }, LIVE_MS);
    }
  }

  typing(conversation: string, peers: readonly string[], typing: boolean): void {
    const now = performance.now();
    const since = now - (this.wrote.get(conversation) ?? -TYPING_MS);
    if (typing ? since < TYPING_AGAIN_MS : since > TYPING_MS) return; // others know, or have forgotten
    this.wrote.set(conversation, typing ? now : -TYPING_MS);
    for (const peer of peers) void this.call(peer, TYPING, { conversation, typing });
  }

  private tell(
    { sent, underWay }: Telling,
    conversation: string,
    message: string,
    peers: readonly string[],
    making: Making,
  ): void {
    const { answer, turn, spans } = making.standing;
    for (const peer of peers) {
      const after = sent.get(peer) ?? making.begunAt;
      const under = underWay.get(peer) ?? 0;
      if (under >= MAX_UNDER_WAY) continue;
      const { ids, text } = making.from(after, MAX_LIVE_IDS);
      if (ids.length === 0 && text === '') continue;
      const said = { conversation, message, after, ids, text, answer, turn, spans };
      sent.set(peer, after + ids.length);
      underWay.set(peer, under + 1);
      void this.call(peer, LIVE, said).finally(() => {
        underWay.set(peer, (underWay.get(peer) ?? 1) - 1);
      });
    }
  }

  private async call<T>(peer: string, kind: RequestKind<T, null>, said: T): Promise<void> {
    if (!this.links.isConnected(peer)) {
      this.links.prepare(peer);
      return;
    }
    try {
      await this.links.call(peer, kind, said);
    } catch (error) {
      if (!(error instanceof PeerError)) throw error; // lost: it is a hint
    }
  }
}

// --- what comes

/** The part of an answer that a hint brings. */
export function pieceOf({ after, ids, text, answer, turn, spans }: LiveRequest): Piece {
  return { after, ids, text, standing: { answer, turn, spans } };
}
