/*
 * Frames for peers that shadow a stage: sent several at a time, and only while there is room (twin of
 * peer/transport/shadow_sender.py).
 *
 * Edge. What is dropped here is asked for again by the shadow, or replayed when it takes over.
 */

import { bundled } from '../wire/bundles';
import type { Frame } from '../wire/generated/frames';

const TOGETHER = 4; // frames that go as one bundle: as many tokens may be missing at a shadow when it takes over
const WAIT_MS = 30; // and no frame waits longer than this

/** `send(peer, frame)` hands a frame over; `room(peer)` says whether the way to a peer is free. */
export class Spares {
  dropped = 0; // frames, since there was no room
  private readonly waiting = new Map<string, Frame[]>();
  private readonly timers = new Map<string, ReturnType<typeof setTimeout>>();
  private readonly send: (peer: string, frame: Frame) => void;
  private readonly room: (peer: string) => boolean;

  constructor(send: (peer: string, frame: Frame) => void, room: (peer: string) => boolean) {
    this.send = send;
    this.room = room;
  }

  /** Takes a frame for `peer`. */
  put(peer: string, frame: Frame): void {
    const waiting = this.waiting.get(peer) ?? [];
    waiting.push(frame);
    this.waiting.set(peer, waiting);
    if (waiting.length >= TOGETHER) this.flush(peer);
    else if (!this.timers.has(peer)) {
      this.timers.set(
        peer,
        setTimeout(() => this.flush(peer), WAIT_MS),
      );
    }
  }

  /** Drops what waits for a peer that is gone. */
  forget(peer: string): void {
    this.waiting.delete(peer);
    clearTimeout(this.timers.get(peer));
    this.timers.delete(peer);
  }

  /** Drops everything. */
  close(): void {
    for (const peer of [...this.waiting.keys()]) this.forget(peer);
  }

  /** Sends what waits for `peer`, or drops it. */
  private flush(peer: string): void {
    const frames = this.waiting.get(peer) ?? [];
    this.forget(peer);
    if (frames.length === 0) return;
    if (!this.room(peer)) {
      this.dropped += frames.length;
      return;
    }
    for (const frame of frames.length === 1 ? frames : bundled(frames)) this.send(peer, frame);
  }
}
