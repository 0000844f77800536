/*
 * What members tell each other beside the log: how a running answer goes on (`live`), who writes (`typing`). Edge.
 *
 * Hints may be lost, late or wrong: nothing depends on them but how soon something is shown, and how much an answer
 * that is adopted has to be computed again.
 */

import type { Body } from '../transport/rpc';
import { BadCommand, PeerError } from '../errors';
import type { Piece } from './live_answer';
import type { Making } from './answer_in_progress';
import type { TalkLinks } from './local_conversations';

export const TYPING_MS = 6000; // a mark lasts so long
const TYPING_AGAIN_MS = 2500;
const LIVE_MS = 100; // between two hints about one answer
const MAX_UNDER_WAY = 2; // hints to one peer about one answer that it has not confirmed
const MAX_IDS = 4096;
const MAX_SPANS = 512;
const MAX_TEXT = 65536; // bytes of UTF-8, at most as many characters
const MAX_ID = 64;

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
    for (const peer of peers) void this.call(peer, 'typing', { conversation, typing });
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
      const { ids, text } = making.from(after, MAX_IDS);
      if (ids.length === 0 && text === '') continue;
      const body = { conversation, message, after, ids, text, answer, turn, spans };
      sent.set(peer, after + ids.length);
      underWay.set(peer, under + 1);
      void this.call(peer, 'live', body).finally(() => {
        underWay.set(peer, (underWay.get(peer) ?? 1) - 1);
      });
    }
  }

  private async call(peer: string, method: string, body: Body): Promise<void> {
    if (!this.links.isConnected(peer)) {
      this.links.prepare(peer);
      return;
    }
    try {
      await this.links.call(peer, method, body);
    } catch (error) {
      if (!(error instanceof PeerError)) throw error; // lost: it is a hint
    }
  }
}

// --- what comes

/** More of a running answer. */
export interface Live {
  readonly conversation: string;
  readonly message: string;
  readonly piece: Piece;
}

/** Whether a person writes in a conversation. */
export interface Typing {
  readonly conversation: string;
  readonly typing: boolean;
}

/** The fields of a hint about an answer. Throws BadCommand. */
export function liveOf(body: Body): Live {
  const { text } = body;
  if (typeof text !== 'string' || text.length > MAX_TEXT) throw new BadCommand('live: expected text');
  const [answer, turn, after] = ['answer', 'turn', 'after'].map((name) => whole(body[name])) as [
    number,
    number,
    number,
  ];
  const standing = { answer, turn, spans: wholes(body['spans'], MAX_SPANS) };
  return {
    conversation: idOf(body['conversation']),
    message: idOf(body['message']),
    piece: { after, ids: wholes(body['ids'], MAX_IDS), text, standing },
  };
}

/** The fields of a hint about somebody who types. Throws BadCommand. */
export function typingOf(body: Body): Typing {
  const { typing } = body;
  if (typeof typing !== 'boolean') throw new BadCommand('typing: expected true or false');
  return { conversation: idOf(body['conversation']), typing };
}

function idOf(value: unknown): string {
  if (typeof value !== 'string' || value === '' || value.length > MAX_ID)
    throw new BadCommand('expected an id');
  return value;
}

function whole(value: unknown): number {
  if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 0) {
    throw new BadCommand('live: expected whole numbers');
  }
  return value;
}

function wholes(value: unknown, most: number): number[] {
  if (!Array.isArray(value) || value.length > most)
    throw new BadCommand(`live: expected at most ${most} numbers`);
  return value.map(whole);
}
