/*
 * Decides how frames are cut into pieces, in which order and how many go, and which pieces are refused.
 *
 * Pure: the edge hands over what the browser has buffered and what arrived, and sends what these cores return.
 * The rules are those of docs/protocol.md, chapters Pieces and Flow control.
 */

import { BackpressureExceeded, CreditExceeded, OversizeFrame, TruncatedFrame, WrongPiece } from '../errors';
import {
  BULK_WATER_BYTES,
  GRANT_STEP_BYTES,
  HIGH_WATER_BYTES,
  MAX_QUEUED_BYTES,
  PIECE_BYTES,
  PIECE_VERSION,
  WINDOW_BYTES,
} from '../limits';
import type { Channel } from '../wire/generated/frames';
import { MAX_FRAME_BYTES } from '../wire/frame_codec';

const FIRST = 1;
const LAST = 2;
const WHOLE = (PIECE_VERSION << 4) | FIRST | LAST;
const LENGTH_BYTES = 4;
const WHOLE_FRAME_BYTES = PIECE_BYTES - 1;

/** A frame on its way: the bytes before `at` have been cut off and sent. */
interface Cut {
  readonly frame: Uint8Array;
  readonly orders: readonly string[];
  at: number;
}

/** Whether it belongs to no session, as pieces of a model and probes do. */
function isBulk({ orders }: Cut): boolean {
  return orders.length === 1 && orders[0] === '';
}

/** First in, first out, without moving what waits. */
class Queue<T> {
  private items: T[] = [];
  private head = 0;

  push(item: T): void {
    this.items.push(item);
  }

  first(): T | undefined {
    return this.items[this.head];
  }

  shift(): void {
    this.head += 1;
    if (this.head * 2 > this.items.length) {
      this.items = this.items.slice(this.head);
      this.head = 0;
    }
  }
}

/**
 * The sending half of one channel.
 *
 * Frames that share a key of `orders` arrive in the order in which they were pushed. A short frame (one piece)
 * goes before and between the pieces of long frames of other keys: a token never waits for a prompt. Of a long frame of
 * no session the channel gets less at a time: nobody waits for it, and what is in the channel cannot be overtaken.
 */
export class Sender {
  queuedBytes = 0;
  sentBytes = 0;
  private readonly short = new Queue<Uint8Array>();
  private readonly long = new Queue<Cut>();
  private readonly longOrders = new Map<string, number>();
  private granted: number;
  private readonly bulkWaterBytes: number;
  private readonly maxQueuedBytes: number;

  constructor(channel: Channel, maxQueuedBytes = MAX_QUEUED_BYTES) {
    this.bulkWaterBytes = channel === 'control' ? HIGH_WATER_BYTES : BULK_WATER_BYTES;
    this.granted = channel === 'control' ? Infinity : WINDOW_BYTES;
    this.maxQueuedBytes = maxQueuedBytes;
  }

  /** Queues an encoded frame. Raises BackpressureExceeded when the queue would outgrow its bound. */
  push(frame: Uint8Array, orders: readonly string[]): void {
    if (this.queuedBytes + frame.length > this.maxQueuedBytes) {
      throw new BackpressureExceeded(
        `expected at most ${this.maxQueuedBytes} bytes to wait for this peer, got ${frame.length} ` +
          `more on top of ${this.queuedBytes}; wait for drained() before sending`,
      );
    }
    this.queuedBytes += frame.length;
    if (frame.length <= WHOLE_FRAME_BYTES && !orders.some((order) => this.longOrders.has(order))) {
      this.short.push(frame);
      return;
    }
    this.long.push({ frame, orders, at: 0 });
    for (const order of orders) this.longOrders.set(order, (this.longOrders.get(order) ?? 0) + 1);
  }

  /** Takes a CREDIT; an older, smaller total changes nothing. */
  grant(totalBytes: number): void {
    this.granted = Math.max(this.granted, totalBytes);
  }

  /** The next piece to hand to a channel that has `bufferedBytes` waiting; null: nothing may go now. */
  next(bufferedBytes: number): Uint8Array<ArrayBuffer> | null {
    if (bufferedBytes >= HIGH_WATER_BYTES || this.queuedBytes === 0) return null;
    const frame = this.short.first();
    if (frame !== undefined) {
      if (!this.pay(frame.length + 1)) return null;
      this.short.shift();
      this.queuedBytes -= frame.length;
      return piece(WHOLE, frame);
    }
    const cut = this.long.first();
    if (cut === undefined || (isBulk(cut) && bufferedBytes >= this.bulkWaterBytes)) return null;
    return this.cutOff(cut);
  }

  private cutOff(cut: Cut): Uint8Array<ArrayBuffer> | null {
    const total = cut.frame.length;
    const begins = cut.at === 0 && total > WHOLE_FRAME_BYTES;
    const headBytes = begins ? 1 + LENGTH_BYTES : 1;
    const stop = Math.min(total, cut.at + PIECE_BYTES - headBytes);
    if (!this.pay(headBytes + stop - cut.at)) return null;
    const body = cut.frame.subarray(cut.at, stop);
    const flags = (cut.at === 0 ? FIRST : 0) | (stop === total ? LAST : 0);
    const made = piece((PIECE_VERSION << 4) | flags, body, headBytes);
    if (begins) new DataView(made.buffer).setUint32(1, total, true);
    this.queuedBytes -= stop - cut.at;
    cut.at = stop;
    if (stop === total) {
      this.long.shift();
      for (const order of cut.orders) {
        const left = (this.longOrders.get(order) ?? 1) - 1;
        if (left > 0) this.longOrders.set(order, left);
        else this.longOrders.delete(order);
      }
    }
    return made;
  }

  private pay(pieceBytes: number): boolean {
    if (this.sentBytes + pieceBytes > this.granted) return false;
    this.sentBytes += pieceBytes;
    return true;
  }
}

function piece(head: number, body: Uint8Array, headBytes = 1): Uint8Array<ArrayBuffer> {
  const made = new Uint8Array(headBytes + body.length);
  made[0] = head;
  made.set(body, headBytes);
  return made;
}

/** The receiving half of one channel: pieces in, whole frames out, credit counted. */
export class Receiver {
  receivedBytes = 0;
  private readonly maxFrameBytes: number;
  private parts: Uint8Array[] = [];
  private total = 0; // bytes of the long frame that is open
  private missing = 0; // bytes of it that have not come; 0: none is open
  private granted: number;
  private held = false;

  constructor(channel: Channel) {
    this.maxFrameBytes = MAX_FRAME_BYTES[channel];
    this.granted = channel === 'control' ? Infinity : WINDOW_BYTES;
  }

  /** The frame that this piece completes, or null. Raises the FrameError that names what is wrong. */
  accept(piece: Uint8Array): Uint8Array | null {
    if (piece.length < 2 || piece.length > PIECE_BYTES) {
      const Fault = piece.length > PIECE_BYTES ? OversizeFrame : TruncatedFrame;
      throw new Fault(`expected a piece of 2 to ${PIECE_BYTES} bytes, got ${piece.length}`);
    }
    this.receivedBytes += piece.length;
    if (this.receivedBytes > this.granted) {
      throw new CreditExceeded(
        `expected at most ${this.granted} bytes on this channel so far, got ${this.receivedBytes}; wait for CREDIT`,
      );
    }
    const head = piece[0] ?? 0;
    if (head === WHOLE) {
      if (piece.length - 1 > this.maxFrameBytes) throw this.oversize(piece.length - 1);
      return piece.subarray(1);
    }
    if (head >> 4 !== PIECE_VERSION || (head & 0x0f) > LAST) {
      throw new WrongPiece(
        `expected piece version ${PIECE_VERSION} and flags first, last or both, got 0x${head.toString(16).padStart(2, '0')}`,
      );
    }
    if ((head & FIRST) !== 0) {
      this.begin(piece);
      return null;
    }
    return this.goOn(piece, (head & LAST) !== 0);
  }

  /** Stops granting: the consumer is behind. At most a window of bytes comes in meanwhile. */
  hold(): void {
    this.held = true;
  }

  /** Goes on granting; ask grant() what is due. */
  release(): void {
    this.held = false;
  }

  /** The total to announce in a CREDIT, or null while that would not be worth a frame. */
  grant(): number | null {
    if (this.held) return null;
    const due = this.receivedBytes + WINDOW_BYTES;
    if (!(due - this.granted >= GRANT_STEP_BYTES)) return null;
    this.granted = due;
    return due;
  }

  private begin(piece: Uint8Array): void {
    if (this.missing > 0) {
      throw new WrongPiece(
        `expected ${this.missing} more bytes of a frame before another long one, got a first piece`,
      );
    }
    const bodyBytes = Math.max(0, piece.length - 1 - LENGTH_BYTES);
    const total =
      piece.length < 1 + LENGTH_BYTES ? 0 : new DataView(piece.buffer, piece.byteOffset).getUint32(1, true);
    if (total > this.maxFrameBytes) throw this.oversize(total);
    if (bodyBytes === 0 || bodyBytes >= total) {
      throw new WrongPiece(
        `expected a first piece to hold a part of its frame of ${total} bytes, got ${bodyBytes}`,
      );
    }
    this.total = total;
    this.missing = total - bodyBytes;
    this.parts.push(piece.subarray(1 + LENGTH_BYTES));
  }

  private goOn(piece: Uint8Array, last: boolean): Uint8Array | null {
    if (this.missing === 0) throw new WrongPiece('expected the first piece of a frame, got a later one');
    this.missing -= piece.length - 1;
    if (this.missing < 0 || (this.missing === 0) !== last) {
      throw new WrongPiece(
        this.missing > 0
          ? `expected ${this.missing} more bytes before the last piece`
          : `expected the last piece to end its frame, got ${-this.missing} bytes beyond, or no end`,
      );
    }
    this.parts.push(piece.subarray(1));
    if (!last) return null;
    // Room is made only now that every byte is here: a claimed length alone allocates nothing.
    const frame = new Uint8Array(this.total);
    let at = 0;
    for (const part of this.parts) {
      frame.set(part, at);
      at += part.length;
    }
    this.parts = [];
    return frame;
  }

  private oversize(frameBytes: number): OversizeFrame {
    return new OversizeFrame(
      `expected frames of at most ${this.maxFrameBytes} bytes on this channel, got ${frameBytes}`,
    );
  }
}
