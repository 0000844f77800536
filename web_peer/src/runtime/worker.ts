/* The worker that computes: loads one shard, for one stage or several, then runs what the page submits. Edge. */

import { CacheOrders } from './kv_requests';
import { DeviceLost } from '../errors';
import type { Blobs, Execution, ShardSource } from './execution';
import { WasmExecution } from './execution_wasm';
import type { Dimensions } from '../planner/manifest';
import type { FromStage, FromWorker, MemoryBytes, Room, ToWorker } from './worker_messages';
import { Stage } from './stage_runtime';

const port = self as unknown as {
  postMessage(message: FromWorker, transfer: Transferable[]): void;
  onmessage: ((event: MessageEvent<ToWorker>) => void) | null;
};
const breath = new MessageChannel(); // a way round the event loop, unlike timers without a delay

/** An execution with whose weights others may be made. */
type Shareable = Execution & {
  beside(source: Pick<ShardSource, 'dimensions' | 'units'>, context: number): Shareable;
};

interface Loaded {
  readonly execution: Shareable;
  readonly stage: Stage;
  readonly orders: CacheOrders;
}

const stages = new Map<number, Loaded>();
const leaving: Loaded[] = []; // closed between calls
let running = false;

port.onmessage = ({ data }) => {
  const loaded = stages.get(data.stage);
  switch (data.kind) {
    case 'load':
      load(data).catch((error: unknown) => tell(data.stage, { kind: 'failed', text: String(error) }));
      return;
    case 'beside':
      beside(data);
      return;
    case 'unload':
      if (loaded !== undefined) leaving.push(loaded);
      stages.delete(data.stage);
      break;
    case 'steps':
      for (const step of data.steps) loaded?.stage.submit(step);
      break;
    case 'truncate':
      loaded?.stage.truncate(data.session, data.length);
      break;
    case 'front':
      loaded?.stage.front(data.work);
      break;
    case 'cache':
      loaded?.orders.take(data.order);
      return;
    case 'release':
      loaded?.orders.released(data.session);
      loaded?.stage.release(data.session);
      break;
    default:
      data satisfies never;
  }
  go();
};

function go(): void {
  if (!running) run().catch((error: unknown) => lost(textOf(error)));
}

async function load(order: Extract<ToWorker, { kind: 'load' }>): Promise<void> {
  const { stage, dimensions, units, graphs, blobs, room } = order;
  enter(stage, await executionFor({ dimensions, units, graphs }, blobs, room), dimensions, room);
}

/** A stage with the weights of those that are here, which are equal to its own. */
function beside({ stage, dimensions, units, room }: Extract<ToWorker, { kind: 'beside' }>): void {
  const [other] = stages.values();
  if (other === undefined)
    tell(stage, { kind: 'failed', text: 'nothing is loaded beside which it could be' });
  else enter(stage, other.execution.beside({ dimensions, units }, room.context), dimensions, room);
}

function enter(at: number, execution: Shareable, dimensions: Dimensions, room: Room): void {
  const stage = new Stage(execution, dimensions, room);
  const orders = new CacheOrders(
    (work) => {
      stage.cache(work);
      go();
    },
    (id, read, isThere) =>
      tell(at, { kind: 'cache', id, read, isThere }, read === null ? [] : [read.values.buffer]),
  );
  const loaded = { execution, stage, orders };
  stages.set(at, loaded);
  tell(at, { kind: 'loaded', memory: memoryOf(loaded) });
}

async function executionFor(source: ShardSource, blobs: Blobs, room: Room): Promise<Shareable> {
  if (room.provider === 'wasm') return WasmExecution.load(source, blobs, room.threads, room.context);
  const { WebGpuExecution } = await import('./execution_webgpu');
  return WebGpuExecution.load(source, blobs, room.context, lost);
}

/** Turns of the stages, one after the other, until nothing waits; between them messages come in. */
async function run(): Promise<void> {
  running = true;
  try {
    for (;;) {
      closeLeaving();
      const busy = [...stages].filter(([, { stage }]) => stage.busy);
      if (busy.length === 0) return;
      for (const [at, loaded] of busy) {
        if (stages.get(at) !== loaded) continue; // unloaded meanwhile
        const { stage } = loaded;
        const answers = await stage.turn();
        const transfer = answers.flatMap((answer) =>
          answer.kind === 'done' ? [...buffersOf(answer.hidden), ...buffersOf(answer.logits)] : [],
        );
        const memory = memoryOf(loaded);
        tell(at, { kind: 'answers', answers, lengths: stage.lengths(), memory }, transfer);
        await breathe();
      }
    }
  } finally {
    running = false;
  }
}

/** Who stays is told of its memory: the weights may be its own now. */
function closeLeaving(): void {
  if (leaving.length === 0) return;
  for (const { execution } of leaving.splice(0)) execution.close();
  for (const [at, loaded] of stages) {
    const lengths = loaded.stage.lengths();
    tell(at, { kind: 'answers', answers: [], lengths, memory: memoryOf(loaded) });
  }
}

function breathe(): Promise<void> {
  return new Promise((resolve) => {
    breath.port1.onmessage = () => resolve();
    breath.port2.postMessage(null);
  });
}

/** Arrays of an answer are slices of their own: nobody else reads them. */
function buffersOf(array: Float32Array | null): readonly ArrayBuffer[] {
  return array === null ? [] : [array.buffer as ArrayBuffer];
}

function memoryOf({ execution, stage }: Pick<Loaded, 'execution' | 'stage'>): MemoryBytes {
  const { weightBytes: weights, kvBytes: kv, overheadBytes: overhead } = execution;
  return { weights, kv, overhead, fronts: stage.frontBytes };
}

function textOf(error: unknown): string {
  return error instanceof DeviceLost ? error.message : String(error);
}

function tell(stage: number, message: FromStage, transfer: Transferable[] = []): void {
  port.postMessage({ stage, ...message }, transfer);
}

function lost(text: string): void {
  port.postMessage({ kind: 'lost', text }, []);
}
