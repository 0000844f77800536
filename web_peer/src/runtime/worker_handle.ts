/*
 * A shard that runs in a worker, as the page sees it. Edge; nothing here blocks the page.
 *
 * Stages of several models that are equal as a whole, by the content of their units, run in one worker with the same
 * weights, each with caches of its own; they compute by turns.
 */

import { CannotServe } from '../errors';
import type { SessionId } from '../wire/generated/frames';
import type { FrontWork } from './prefix_kv';
import { makeGraphs } from '../planner/lowering';
import { unitContents } from '../planner/same_units';
import { dimensionsOf, type Manifest } from '../planner/manifest';
import type {
  CacheOrder,
  CacheRead,
  FromWorker,
  GivenPart,
  MemoryBytes,
  Room,
  ToStage,
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
  private readonly worker: StageWorker;
  private readonly stage: number;
  private memory: MemoryBytes = { weights: 0, kv: 0, fronts: 0, overhead: 0 };
  private known: ReadonlyMap<SessionId, number> = new Map();
  private readonly orders = new Map<number, (read: CacheRead | null, isThere: boolean) => void>(); // by id
  private nextOrder = 0;
  private over = false; // closed, or lost, which is said once

  private constructor(worker: StageWorker, room: Room, loading: Loading) {
    const { order, transfer, receiver, signal, name, done } = loading;
    this.worker = worker;
    this.room = room;
    const fail = (text: string): void => {
      this.close();
      done(new CannotServe(`${name} do not load: ${text}`));
    };
    let isLoading = true;
    this.stage = worker.open((message) => {
      if (!isLoading) this.take(message, receiver);
      else if (message.kind === 'failed' || message.kind === 'lost') fail(message.text);
      else if (message.kind === 'loaded') {
        isLoading = false;
        this.memory = message.memory;
        done(this);
      }
    });
    signal?.addEventListener('abort', () => fail('stopped'), { once: true });
    worker.tell(this.stage, order, transfer);
  }

  /**
   * Raises CannotServe when the shard does not load; `signal` ends it. Of `workers` equal stages find this one.
   */
  static load(
    load: Load,
    room: Room,
    receiver: Receiver,
    signal?: AbortSignal,
    workers?: StageWorkers,
  ): Promise<StageRuntime> {
    const { manifest, first, stop, blobs } = load;
    checkContext(manifest, room);
    const graphs = makeGraphs(manifest, blobs, first, stop, room.provider);
    const dimensions = dimensionsOf(manifest);
    const units = manifest.units.slice(first, stop);
    const order: ToStage = { kind: 'load', dimensions, units, graphs, blobs, room };
    const transfer = [...new Set([...blobs.values()].map(({ buffer }) => buffer as ArrayBuffer))];
    const worker = new StageWorker();
    const loaded = StageRuntime.on(worker, room, { order, transfer, receiver, signal, name: nameOf(load) });
    workers?.add(load, room, worker, loaded);
    return loaded;
  }

  /** The same with the weights of an equal stage that `worker` has, and caches of its own. */
  static beside(
    worker: StageWorker,
    load: Omit<Load, 'blobs'>,
    room: Room,
    receiver: Receiver,
    signal?: AbortSignal,
  ): Promise<StageRuntime> {
    const { manifest, first, stop } = load;
    checkContext(manifest, room);
    const units = manifest.units.slice(first, stop);
    const order: ToStage = { kind: 'beside', dimensions: dimensionsOf(manifest), units, room };
    return StageRuntime.on(worker, room, { order, transfer: [], receiver, signal, name: nameOf(load) });
  }

  private static on(worker: StageWorker, room: Room, asked: Omit<Loading, 'done'>): Promise<StageRuntime> {
    return new Promise((resolve, reject) => {
      const done = (found: StageRuntime | CannotServe): void =>
        found instanceof CannotServe ? reject(found) : resolve(found);
      new StageRuntime(worker, room, { ...asked, done });
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

  /** Gives its memory back, which ends the worker where no other stage is in it; waiting steps are dropped. */
  close(): void {
    this.over = true;
    this.worker.leave(this.stage);
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

  private tell(message: ToStage, transfer: Transferable[] = []): void {
    this.worker.tell(this.stage, message, transfer);
  }
}

/** A stage that is to be loaded. `done` takes it, or why it does not load. */
interface Loading {
  readonly order: ToStage;
  readonly transfer: Transferable[];
  readonly receiver: Receiver;
  readonly signal: AbortSignal | undefined;
  readonly name: string;
  readonly done: (found: StageRuntime | CannotServe) => void;
}

function nameOf({ first, stop }: Pick<Load, 'first' | 'stop'>): string {
  return `units ${first}-${stop - 1}`;
}

function checkContext(manifest: Manifest, { context }: Room): void {
  if (context <= manifest.context) return;
  throw new CannotServe(`context of at most ${manifest.context} expected, got ${context}`);
}

/** The array in a buffer of its own, so that handing it over takes nothing else along. */
function alone(values: Float32Array): Float32Array<ArrayBuffer> {
  const whole = values.byteLength === values.buffer.byteLength && values.buffer instanceof ArrayBuffer;
  return whole ? (values as Float32Array<ArrayBuffer>) : values.slice();
}

// --- workers

/** Takes what a worker says of one stage. */
type Taker = (message: FromWorker) => void;

/** A worker and the stages in it. It ends with the last of them. */
export class StageWorker {
  private readonly worker: Worker;
  private readonly takers = new Map<number, Taker>();
  private opened = 0;
  private over = false;

  constructor() {
    this.worker = new Worker(new URL('./worker.ts', import.meta.url), { type: 'module' });
    this.worker.onmessage = ({ data }: MessageEvent<FromWorker>) => {
      if (data.kind !== 'lost') this.takers.get(data.stage)?.(data);
      else this.lost(data.text);
    };
    this.worker.onerror = (event) => this.lost(event.message || 'the worker broke off');
  }

  /** Whether it has ended: no stage can be opened in it. */
  get isOver(): boolean {
    return this.over;
  }

  /** The number of a new stage, of which `taker` is told from here on. */
  open(taker: Taker): number {
    this.opened += 1;
    this.takers.set(this.opened, taker);
    return this.opened;
  }

  tell(stage: number, message: ToStage, transfer: Transferable[] = []): void {
    if (!this.over) this.worker.postMessage({ stage, ...message }, transfer);
  }

  /** The stage is over, and its memory is given back; the last one ends the worker. */
  leave(stage: number): void {
    if (!this.takers.delete(stage) || this.over) return;
    this.tell(stage, { kind: 'unload' });
    if (this.takers.size > 0) return;
    this.over = true;
    this.worker.terminate();
  }

  private lost(text: string): void {
    if (this.over) return;
    this.over = true;
    this.worker.terminate();
    for (const taker of [...this.takers.values()]) taker({ kind: 'lost', text });
    this.takers.clear();
  }
}

interface Known {
  readonly worker: StageWorker;
  readonly ready: Promise<unknown>; // the first stage in it is loaded
}

/** The workers of all models of a tab, by what they have loaded. */
export class StageWorkers {
  private readonly known = new Map<string, Known>();

  /** The worker that has equal units loaded, or loads them now; null where there is none. */
  async having(load: Omit<Load, 'blobs'>, room: Room): Promise<StageWorker | null> {
    const found = this.known.get(contentOf(load, room));
    if (found === undefined) return null;
    await found.ready.catch(() => undefined); // whoever loads them is told why they do not load
    return found.worker.isOver ? null : found.worker;
  }

  /** From here on `worker` is found by these units, once `ready` is kept. */
  add(load: Omit<Load, 'blobs'>, room: Room, worker: StageWorker, ready: Promise<unknown>): void {
    for (const [key, known] of this.known) if (known.worker.isOver) this.known.delete(key);
    this.known.set(contentOf(load, room), { worker, ready });
  }
}

function contentOf({ manifest, first, stop }: Omit<Load, 'blobs'>, { provider, threads }: Room): string {
  return [provider, threads, ...unitContents(manifest).slice(first, stop)].join(' ');
}
