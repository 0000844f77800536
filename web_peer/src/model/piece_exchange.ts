/*
 * Pieces of weights and of caches between peers: gives others what is here, and asks others for what this browser
 * lacks. Edge.
 *
 * Pieces travel in ranges small enough that an activation behind one waits no longer than a person would notice; to
 * each peer one range after the other goes out, and the next only when the last has left.
 */

import type { Connection } from '../transport/connection';
import { BadCommand, ConnectionLost, PeerError } from '../errors';
import type { PieceSource } from './fetcher';
import type { Frame, Piece, PieceRequest } from '../wire/generated/frames';
import { MAX_RANGE_BYTES } from '../limits';
import { type BlobRef, pieceBytes } from '../planner/blob_ref';

const MAX_WAITING = 16; // requests of one peer
export const OPEN_LENT = 6; // of a cache: people wait for the answer, and whom it leaves may take long for every request
const OPEN_RANGES = 2; // asked of one peer at a time: one on the way, one being read
const RANGE_WITHIN_S = 20; // 256 KiB in this time is 13 KB/s
const HERE = 0;
const ABSENT = 1;

type Bytes = Uint8Array<ArrayBuffer>;

/** Bytes that others may ask for; `over()` when they had all of it. */
interface Lent {
  readonly bytes: Bytes;
  owed: number;
  readonly over: Set<() => void>; // of each who was promised it
}

interface Waiting {
  readonly peer: string;
  resolve(body: Uint8Array): void;
  reject(error: Error): void;
}

/** Pieces that this tab asks of other peers, and gives to them. */
export class Pieces {
  givenBytes = 0;
  private nextId = 0;
  private readonly busy = new Map<string, Promise<unknown>>(); // by peer: the piece that it gives this one
  private readonly asked = new Map<number, Waiting>();
  private readonly wanted = new Map<string, PieceRequest[]>(); // by peer
  private readonly lent = new Map<string, Lent>(); // by SHA-256
  private readonly send: (peer: string, frame: Frame) => void;
  private readonly connection: (peer: string) => Connection | null;
  private readonly kept: (sha256: string) => Promise<Uint8Array | null>;

  /** `kept(sha256)`: the piece, where this browser keeps it. */
  constructor(
    send: (peer: string, frame: Frame) => void,
    connection: (peer: string) => Connection | null,
    kept: (sha256: string) => Promise<Uint8Array | null>,
  ) {
    this.send = send;
    this.connection = connection;
    this.kept = kept;
  }

  /** A peer as a source of the pieces of blobs that it `has`. `alone()`: there is no better source to turn to. */
  source(peer: string, has: (ref: BlobRef) => boolean, alone: () => boolean): PieceSource {
    return {
      name: peer,
      piece: async (ref, index, signal) => {
        if (!has(ref)) throw new Error('it does not hold that unit');
        // One piece at a time: WebRTC is slower than the store, which takes the rest meanwhile.
        for (let other = this.busy.get(peer); other !== undefined; other = this.busy.get(peer)) {
          if (!alone()) throw new Error('it is giving another piece');
          await other.catch(() => null);
          signal.throwIfAborted();
        }
        const fetching = this.fetch(peer, ref.pieces[index] ?? '', pieceBytes(ref, index), signal);
        this.busy.set(peer, fetching);
        try {
          return await fetching;
        } finally {
          this.busy.delete(peer);
        }
      },
    };
  }

  /** Answers when its turn comes. Raises BadCommand when the other side asks for too much at once. */
  requested(peer: string, frame: PieceRequest): void {
    const waiting = this.wanted.get(peer);
    if (waiting !== undefined) {
      if (waiting.length >= MAX_WAITING) {
        throw new BadCommand(`expected at most ${MAX_WAITING} open requests for pieces`);
      }
      waiting.push(frame);
      return;
    }
    const queue = [frame];
    this.wanted.set(peer, queue);
    void this.give(peer, queue).finally(() => this.wanted.delete(peer));
  }

  /**
   * Gives `bytes` to whoever asks for them by `sha256`, once; `over` when that is over. Returns what ends it before.
   */
  lend(sha256: string, bytes: Bytes, over: () => void): () => void {
    const lent = this.lent.get(sha256) ?? { bytes, owed: 0, over: new Set() };
    this.lent.set(sha256, lent);
    lent.owed += bytes.length; // the same may be for another one, too
    lent.over.add(over);
    return () => {
      if (!lent.over.delete(over)) return;
      over();
      if (lent.over.size === 0) this.lent.delete(sha256);
    };
  }

  private forget(sha256: string): void {
    const lent = this.lent.get(sha256);
    this.lent.delete(sha256);
    for (const over of lent?.over ?? []) over();
    lent?.over.clear();
  }

  /** Takes an answer; one to nothing is ignored. */
  came(peer: string, { id, status, body }: Piece): void {
    const waiting = this.asked.get(id);
    if (waiting?.peer !== peer) return;
    if (status === HERE) waiting.resolve(body);
    else waiting.reject(new Error('it does not have that piece'));
  }

  /** Fails what waits for `peer`. */
  gone(peer: string): void {
    for (const waiting of this.asked.values()) {
      if (waiting.peer === peer) waiting.reject(new ConnectionLost(`peer ${peer} is gone`));
    }
  }

  private async give(peer: string, queue: PieceRequest[]): Promise<void> {
    let last: { readonly sha256: string; readonly bytes: Uint8Array | null } = { sha256: '', bytes: null };
    try {
      for (let frame = queue[0]; frame !== undefined; frame = queue[0]) {
        const { sha256, offset, count } = frame;
        const lent = this.lent.get(sha256);
        if (last.sha256 !== sha256) last = { sha256, bytes: lent?.bytes ?? (await this.kept(sha256)) };
        const body = last.bytes?.subarray(offset, offset + count) ?? new Uint8Array();
        const connection = this.connection(peer);
        if (connection === null) return;
        connection.send({ kind: 'PIECE', id: frame.id, status: body.length > 0 ? HERE : ABSENT, body });
        this.givenBytes += body.length;
        if (lent !== undefined && (lent.owed -= body.length) <= 0) this.forget(sha256);
        await connection.drained();
        queue.shift();
      }
    } catch (error) {
      if (!(error instanceof PeerError)) throw error; // the connection ended
    }
  }

  /** `size` bytes that `peer` has under that hash, of which whoever asks makes sure. Raises an Error. */
  async fetch(
    peer: string,
    sha256: string,
    size: number,
    signal: AbortSignal,
    openRanges = OPEN_RANGES,
  ): Promise<Bytes> {
    const made = new Uint8Array(size);
    let next = 0;
    const worker = async (): Promise<void> => {
      while (next < size) {
        const offset = next;
        next += MAX_RANGE_BYTES;
        const count = Math.min(MAX_RANGE_BYTES, size - offset);
        const body = await this.range(peer, { sha256, offset, count }, signal);
        if (body.length !== count) throw new Error(`it gave ${body.length} bytes of ${count}`);
        made.set(body, offset);
      }
    };
    await Promise.all(Array.from({ length: openRanges }, worker));
    return made;
  }

  private async range(
    peer: string,
    wanted: { readonly sha256: string; readonly offset: number; readonly count: number },
    signal: AbortSignal,
  ): Promise<Uint8Array> {
    signal.throwIfAborted();
    const id = (this.nextId += 1);
    const limit = AbortSignal.any([signal, AbortSignal.timeout(RANGE_WITHIN_S * 1000)]);
    let stop: (() => void) | undefined;
    try {
      return await new Promise<Uint8Array>((resolve, reject) => {
        stop = () => reject(new Error('it took too long'));
        limit.addEventListener('abort', stop);
        this.asked.set(id, { peer, resolve, reject });
        this.send(peer, { kind: 'PIECE_REQUEST', id, ...wanted });
      });
    } finally {
      if (stop !== undefined) limit.removeEventListener('abort', stop);
      this.asked.delete(id);
    }
  }
}
