/*
 * Values of runs on their way between peers: cut into parts, one value after the other to each peer, and put together
 * (twin of peer/transport/value_exchange.py). Edge.
 *
 * Parts are frames of no session, so tokens go between them; the next part is queued once there is room for it.
 */

import type { SendValue } from '../dataflow/flow_stage';
import { checkShape, checkTotal, fromBytes, toBytes, type ValueArray } from '../dataflow/value_codec';
import { BadCommand, PeerError } from '../errors';
import { MAX_RANGE_BYTES } from '../limits';
import type { Value } from '../planner/graph_manifest';
import type { RunValue } from '../wire/generated/frames';
import type { PeerLinks } from './peer_links';

const MAX_OPEN = 64; // values of one peer that have begun to come; an honest one sends one after the other

/** Whom values are for. */
export interface ValueTaker {
  /** What the manifest says of it; null: it is not wanted here (any more). */
  wanted(peer: string, run: string, epoch: number, item: number, value: number): Value | null;
  /** Takes that a value that is wanted is not taken, and why. */
  unable(peer: string, run: string, epoch: number, item: number, text: string): void;
  /** Takes a whole value. */
  came(peer: string, run: string, epoch: number, item: number, value: number, array: ValueArray): void;
}

interface Coming {
  readonly peer: string;
  readonly run: string;
  readonly value: Value;
  readonly shape: readonly number[];
  readonly total: number;
  data: Uint8Array; // as large as what came needs, at most `total`
  here: number;
}

interface Parcel {
  readonly effect: SendValue;
  readonly value: Value;
}

/** Sends values to peers, and hands those that come to `taker`, up to `mostBytes` of unfinished ones. */
export class ValueExchange {
  sentBytes = 0;
  private readonly links: Pick<PeerLinks, 'me' | 'send' | 'dial' | 'connection'>;
  private readonly taker: ValueTaker;
  private readonly mostBytes: number;
  private readonly waiting = new Map<string, Parcel[]>(); // by peer, while its pump runs
  private readonly coming = new Map<string, Coming>();
  private comingBytes = 0;

  constructor(
    links: Pick<PeerLinks, 'me' | 'send' | 'dial' | 'connection'>,
    taker: ValueTaker,
    mostBytes: number,
  ) {
    this.links = links;
    this.taker = taker;
    this.mostBytes = mostBytes;
  }

  /** Sends it when those before it have gone. To this peer itself it comes soon. */
  send(effect: SendValue, value: Value): void {
    const { peer, run, epoch, item, value: place, array } = effect;
    if (peer === this.links.me) {
      queueMicrotask(() => this.taker.came(peer, run, epoch, item, place, array));
      return;
    }
    const waiting = this.waiting.get(peer);
    if (waiting !== undefined) {
      waiting.push({ effect, value });
      return;
    }
    const begun = [{ effect, value }];
    this.waiting.set(peer, begun);
    void this.pump(peer, begun);
  }

  /** Takes a part. Raises BadCommand or WrongTensor for one that no peer sends. */
  frame(peer: string, frame: RunValue): void {
    const { run, epoch, item, value, offset, total, body } = frame;
    const key = `${peer} ${run} ${epoch} ${item} ${value}`;
    const coming = offset === 0 ? this.begun(key, peer, frame) : this.coming.get(key);
    if (coming === undefined) return; // not wanted when it began
    if (offset !== coming.here || total !== coming.total || offset + body.length > coming.total) {
      throw new BadCommand(`RUN_VALUE: expected byte ${coming.here} of ${coming.total}, got ${offset}`);
    }
    put(coming, body);
    if (coming.here < coming.total) {
      if (body.length === 0) {
        throw new BadCommand('RUN_VALUE: expected bytes in a part that is not the last');
      }
      return;
    }
    this.drop(key);
    const { data, shape } = coming;
    this.taker.came(peer, run, epoch, item, value, fromBytes(data, shape, coming.value));
  }

  /** Neither sends nor takes values of that run any more. */
  forget(run: string): void {
    for (const [key, coming] of [...this.coming]) if (coming.run === run) this.drop(key);
    for (const waiting of this.waiting.values()) {
      const kept = waiting.filter(({ effect }) => effect.run !== run);
      waiting.splice(0, waiting.length, ...kept);
    }
  }

  /** The connection to a peer ended: what was on its way is lost, and sent again when its run says so. */
  gone(peer: string): void {
    for (const [key, coming] of [...this.coming]) if (coming.peer === peer) this.drop(key);
    this.stop(peer);
  }

  /** Sends nothing any more. */
  close(): void {
    for (const peer of [...this.waiting.keys()]) this.stop(peer);
  }

  private stop(peer: string): void {
    this.waiting.get(peer)?.splice(0);
    this.waiting.delete(peer);
  }

  /** What begins to come, where it is wanted; it begins anew where it had come in part. */
  private begun(key: string, peer: string, frame: RunValue): Coming | undefined {
    this.drop(key);
    const { run, epoch, item, value: place, shape, total } = frame;
    const value = this.taker.wanted(peer, run, epoch, item, place);
    if (value === null) return undefined;
    checkShape(shape, value);
    checkTotal(total, shape, value);
    const open = [...this.coming.values()].filter((other) => other.peer === peer).length;
    if (open >= MAX_OPEN || this.comingBytes + total > this.mostBytes) {
      const text = `this peer has no room for a value of ${total} bytes now: fewer items at once, or smaller ones`;
      this.taker.unable(peer, run, epoch, item, text);
      return undefined;
    }
    const made = { peer, run, value, shape, total, data: new Uint8Array(), here: 0 };
    this.coming.set(key, made);
    this.comingBytes += total;
    return made;
  }

  private drop(key: string): void {
    this.comingBytes -= this.coming.get(key)?.total ?? 0;
    this.coming.delete(key);
  }

  /** Sends what waits for a peer; ends when nothing does, or when `stop` took the queue away. */
  private async pump(peer: string, waiting: Parcel[]): Promise<void> {
    try {
      await this.links.dial(peer);
      for (let parcel = waiting.shift(); parcel !== undefined; parcel = waiting.shift()) {
        await this.parts(peer, parcel, waiting);
      }
    } catch (error) {
      if (!(error instanceof PeerError)) throw error; // the connection ended
    } finally {
      if (this.waiting.get(peer) === waiting) this.waiting.delete(peer);
    }
  }

  private async parts(peer: string, { effect }: Parcel, queue: Parcel[]): Promise<void> {
    const { run, epoch, item, value, array } = effect;
    const data = toBytes(array);
    const total = data.length;
    const { shape } = array;
    for (let offset = 0; offset < Math.max(total, 1); offset += MAX_RANGE_BYTES) {
      const connection = this.links.connection(peer);
      if (connection === null || this.waiting.get(peer) !== queue) return;
      const body = data.slice(offset, offset + MAX_RANGE_BYTES);
      this.links.send(peer, { kind: 'RUN_VALUE', run, epoch, item, value, shape, offset, total, body });
      this.sentBytes += body.length;
      await connection.drained();
    }
  }
}

/** Adds bytes to what came; room doubles, so that nobody is given more of it than a few times what they sent. */
function put(coming: Coming, body: Uint8Array): void {
  const stop = coming.here + body.length;
  if (stop > coming.data.length) {
    const grown = new Uint8Array(Math.min(coming.total, Math.max(stop, 2 * coming.data.length)));
    grown.set(coming.data.subarray(0, coming.here));
    coming.data = grown;
  }
  coming.data.set(body, coming.here);
  coming.here = stop;
}
