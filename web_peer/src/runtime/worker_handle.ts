/* A shard that runs in a worker of its own, as the page sees it. Edge; nothing here blocks the page. */

import { CannotServe } from '../errors';
import type { SessionId } from '../wire/generated/frames';
import type { FrontWork } from './prefix_kv';
import { makeGraphs } from '../planner/lowering';
import { dimensionsOf, type Manifest } from '../planner/manifest';
import type {
  CacheOrder,
  CacheRead,
  FromWorker,
  GivenPart,
  MemoryBytes,
  Room,
  ToWorker,
} from './worker_messages';
import type { Answer, Step } from './stage_runtime';

export type { Answer, Done, Pick, RefusalReason, Refused, Step } from './stage_runtime';
export { REFUSALS } from './stage_runtime';
export type { MemoryBytes, Room } from './worker_messages';

/** Units [first, stop) with their blobs, whole and checked, by hash. The blobs' memory goes over to the runtime. */
export interface Load {
  readonly manifest: Manifest;
  readonly first: number;
  readonly stop: number;
  readonly blobs: ReadonlyMap<string, Uint8Array>;
}

/** `answers`: finished and refused steps; `lost`: the worker or its device is gone, and nothing answers any more. */
export interface Receiver {
  answers(answers: readonly Answer[]): void;
  lost(text: string): void;
}

/** The runtime of this tab's units, which lives in a worker. */
export class StageRuntime {
  readonly room: Room;
  private readonly worker: Worker;
  private memory: MemoryBytes;
  private known: ReadonlyMap<SessionId, number> = new Map();
  private readonly orders = new Map<number, (read: CacheRead | null, isThere: boolean) => void>(); // by id
  private nextOrder = 0;
  private over = false; // closed, or lost, which is said once

  private constructor(worker: Worker, room: Room, memory: MemoryBytes, receiver: Receiver) {
    this.worker = worker;
    this.room = room;
    this.memory = memory;
    worker.onmessage = ({ data }: MessageEvent<FromWorker>) => this.take(data, receiver);
    worker.onerror = (event) => this.lost(event.message || 'the worker broke off', receiver);
  }

  /** Raises CannotServe when the shard does not load; `signal` ends the worker. */
  static load(load: Load, room: Room, receiver: Receiver, signal?: AbortSignal): Promise<StageRuntime> {
    const { manifest, first, stop, blobs } = load;
    if (room.context > manifest.context) {
      throw new CannotServe(`context of at most ${manifest.context} expected, got ${room.context}`);
    }
    const graphs = makeGraphs(manifest, blobs, first, stop, room.provider);
    const dimensions = dimensionsOf(manifest);
    const units = manifest.units.slice(first, stop);
    const worker = new Worker(new URL('./worker.ts', import.meta.url), { type: 'module' });
    return new Promise((resolve, reject) => {
      const fail = (text: string): void => {
        worker.terminate();
        reject(new CannotServe(`units ${first}-${stop - 1} do not load: ${text}`));
      };
      signal?.addEventListener('abort', () => fail('stopped'), { once: true });
      worker.onerror = (event) => fail(event.message || 'the worker did not start');
      worker.onmessage = ({ data }: MessageEvent<FromWorker>) => {
        if (data.kind === 'loaded') resolve(new StageRuntime(worker, room, data.memory, receiver));
        else if (data.kind === 'failed' || data.kind === 'lost') fail(data.text);
      };
      const order: ToWorker = { kind: 'load', dimensions, units, graphs, blobs, room };
      worker.postMessage(order, [...new Set([...blobs.values()].map(({ buffer }) => buffer as ArrayBuffer))]);
    });
  }

  /** The step's arrays belong to the runtime from here on. */
  submit(step: Step): void {
    const hidden = step.hidden === null ? null : alone(step.hidden);
    this.tell({ kind: 'steps', steps: [{ ...step, hidden }] }, hidden === null ? [] : [hidden.buffer]);
  }

  /** Frees the session's slot; its queued steps are dropped without an answer. */
  release(session: SessionId): void {
    this.tell({ kind: 'release', session });
  }

  /** Keeps, copies or gives up the cache of a front. */
  front(work: FrontWork): void {
    this.tell({ kind: 'front', work });
  }

  /** What is cached of the session's first `count` positions in these arrays; null where it is not all there. */
  read(session: SessionId, count: number, names: readonly string[]): Promise<CacheRead | null> {
    return this.order((id) => ({ id, session, count, what: 'read', names })).then(([read]) => read);
  }

  /**
   * Makes `parts` the cache of the session's first `count` positions; whether it could be. Their arrays are given up.
   */
  write(session: SessionId, count: number, parts: readonly GivenPart[]): Promise<boolean> {
    const buffers = parts.map(({ values }) => values.buffer);
    return this.order((id) => ({ id, session, count, what: 'write', parts }), buffers).then(([, is]) => is);
  }

  /** Makes what is cached of `source` the cache of the session's first `count` positions; whether it could be. */
  share(session: SessionId, count: number, source: SessionId): Promise<boolean> {
    return this.order((id) => ({ id, session, count, what: 'share', source })).then(([, is]) => is);
  }

  /** Keeps the first `length` positions only; steps submitted before run first. */
  truncate(session: SessionId, length: number): void {
    this.tell({ kind: 'truncate', session, length });
  }

  /** Cached positions per session, as of the last answers. */
  lengths(): ReadonlyMap<SessionId, number> {
    return this.known;
  }

  memoryBytes(): MemoryBytes {
    return this.memory;
  }

  /** Ends the worker, which gives its memory back; waiting steps are dropped. */
  close(): void {
    this.over = true;
    this.worker.terminate();
    this.forgetOrders();
  }

  private lost(text: string, receiver: Receiver): void {
    if (this.over) return;
    this.over = true;
    this.forgetOrders();
    receiver.lost(text);
  }

  private take(message: FromWorker, receiver: Receiver): void {
    if (this.over) return;
    switch (message.kind) {
      case 'answers':
        this.known = message.lengths;
        this.memory = message.memory;
        if (message.answers.length > 0) receiver.answers(message.answers);
        return;
      case 'lost':
      case 'failed':
        this.lost(message.text, receiver);
        return;
      case 'cache':
        this.orders.get(message.id)?.(message.read, message.isThere);
        this.orders.delete(message.id);
        return;
      case 'loaded':
        return;
      default:
        message satisfies never;
    }
  }

  private order(
    make: (id: number) => CacheOrder,
    transfer: Transferable[] = [],
  ): Promise<readonly [CacheRead | null, boolean]> {
    if (this.over) return Promise.resolve([null, false]);
    const id = (this.nextOrder += 1);
    return new Promise((resolve) => {
      this.orders.set(id, (read, isThere) => resolve([read, isThere]));
      this.tell({ kind: 'cache', order: make(id) }, transfer);
    });
  }

  private forgetOrders(): void {
    for (const answer of this.orders.values()) answer(null, false);
    this.orders.clear();
  }

  private tell(message: ToWorker, transfer: Transferable[] = []): void {
    this.worker.postMessage(message, transfer);
  }
}

/** The array in a buffer of its own, so that handing it over takes nothing else along. */
function alone(values: Float32Array): Float32Array<ArrayBuffer> {
  const whole = values.byteLength === values.buffer.byteLength && values.buffer instanceof ArrayBuffer;
  return whole ? (values as Float32Array<ArrayBuffer>) : values.slice();
}
