/*
 * Decides how far a running answer has come, by what its author sends while it makes it (`live`) and by the log.
 *
 * Pure. Pieces may come before the log knows the answer, and may leave holes that the log fills.
 */

import { MAX_MESSAGE_BYTES, type Message } from '../state/generated/commands';
import type { Heard as Standing } from '../session/origin';

const MAX_STREAMS = 64; // answers that run at once, or are not known yet
const MAX_WAITING = 64; // pieces of one answer that do not fit yet

/** `ids`, `text`: what follows the first `after` tokens. */
export interface Piece {
  readonly after: number;
  readonly ids: readonly number[];
  readonly text: string;
  readonly standing: Standing;
}

/** `ids` are whole unless the log was ahead of what came; then they are those before the hole. */
export interface Stream {
  readonly author: string;
  readonly sure: boolean; // the log names the same author
  readonly tokens: number;
  readonly text: string;
  readonly ids: readonly number[];
  readonly standing: Standing | null;
  readonly waiting: readonly Piece[];
}

function fresh(author: string): Stream {
  return { author, sure: false, tokens: 0, text: '', ids: [], standing: null, waiting: [] };
}

/** With one piece more. */
function grown(stream: Stream, piece: Piece): Stream {
  const { standing } = piece;
  if (piece.after > stream.tokens) {
    return { ...stream, standing, waiting: [...stream.waiting, piece].slice(-MAX_WAITING) };
  }
  if (piece.after < stream.tokens) return { ...stream, standing };
  const length = Math.max(stream.text.length + piece.text.length, stream.tokens + piece.ids.length);
  if (length > MAX_MESSAGE_BYTES) return stream; // no message is so long
  const isWhole = stream.ids.length === stream.tokens;
  const made = {
    ...stream,
    standing,
    tokens: stream.tokens + piece.ids.length,
    text: stream.text + piece.text,
    ids: isWhole ? [...stream.ids, ...piece.ids] : stream.ids,
    waiting: [],
  };
  return stream.waiting.reduce(grown, made);
}

/** Answers of others as they stream, by message. */
export class Heard {
  private readonly streams = new Map<string, Stream>(); // by message

  /** A piece from `sender`, who may or may not be the author. */
  came(sender: string, message: string, piece: Piece): void {
    const known = this.streams.get(message);
    if (known === undefined && this.streams.size >= MAX_STREAMS) return;
    if (known !== undefined && known.author !== sender) return;
    this.streams.set(message, grown(known ?? fresh(sender), piece));
  }

  /** What the log says of an answer. */
  follow({ id, author, state, tokens, text }: Message): void {
    const known = this.streams.get(id);
    if (known === undefined) return;
    if (state === 'done') this.streams.delete(id);
    if (state !== 'running') return; // it may go on from what came
    let stream: Stream = { ...known, author, sure: true };
    // Adopted: the next author goes on from what this one said. Another who never was: nothing of it counts.
    if (known.author !== author)
      stream = { ...(known.sure ? stream : fresh(author)), sure: true, waiting: [] };
    if (stream.tokens < tokens) {
      const { waiting } = stream;
      stream = waiting.reduce(grown, { ...stream, tokens, text, waiting: [] });
    }
    this.streams.set(id, stream);
  }

  of(message: string): Stream | null {
    return this.streams.get(message) ?? null;
  }

  /** The text so far, of the log or of what came since. */
  text({ id, author, tokens, text }: Message): { readonly text: string; readonly tokens: number } {
    const stream = this.streams.get(id);
    return stream?.author === author && stream.sure && stream.tokens > tokens ? stream : { text, tokens };
  }

  /** Forgets what is not among `running`, but for the youngest: their answers may not be in the log yet. */
  keepOnly(running: ReadonlySet<string>): void {
    const unknown = [...this.streams.keys()].filter((id) => !running.has(id));
    for (const id of unknown.slice(0, -8)) this.streams.delete(id);
  }
}
