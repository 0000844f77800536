/* The worker that computes: loads one shard, then runs what the page submits. Edge. */

import { CacheOrders } from './kv_requests';
import { DeviceLost } from '../errors';
import type { Blobs, Execution, ShardSource } from './execution';
import { WasmExecution } from './execution_wasm';
import type { FromWorker, MemoryBytes, Room, ToWorker } from './worker_messages';
import { Stage } from './stage_runtime';

const port = self as unknown as {
  postMessage(message: FromWorker, transfer: Transferable[]): void;
  onmessage: ((event: MessageEvent<ToWorker>) => void) | null;
};
const breath = new MessageChannel(); // a way round the event loop, unlike timers without a delay

interface Loaded {
  readonly execution: Execution;
  readonly stage: Stage;
}

const orders = new CacheOrders(
  (work) => {
    loaded?.stage.cache(work);
    go();
  },
  (id, read, isThere) =>
    tell({ kind: 'cache', id, read, isThere }, read === null ? [] : [read.values.buffer]),
);
let loaded: Loaded | null = null;
let running = false;

port.onmessage = ({ data }) => {
  switch (data.kind) {
    case 'load':
      load(data).catch((error: unknown) => tell({ kind: 'failed', text: String(error) }));
      return;
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
      orders.take(data.order);
      return;
    case 'release':
      orders.released(data.session);
      loaded?.stage.release(data.session);
      break;
    default:
      data satisfies never;
  }
  go();
};

function go(): void {
  if (!running) run().catch((error: unknown) => tell({ kind: 'lost', text: textOf(error) }));
}

async function load(order: Extract<ToWorker, { kind: 'load' }>): Promise<void> {
  const { dimensions, units, graphs, blobs, room } = order;
  const execution = await executionFor({ dimensions, units, graphs }, blobs, room);
  loaded = { execution, stage: new Stage(execution, dimensions, room) };
  tell({ kind: 'loaded', memory: memoryOf(loaded) });
}

async function executionFor(source: ShardSource, blobs: Blobs, room: Room): Promise<Execution> {
  if (room.provider === 'wasm') return WasmExecution.load(source, blobs, room.threads, room.context);
  const { WebGpuExecution } = await import('./execution_webgpu');
  return WebGpuExecution.load(source, blobs, room.context, (text) => tell({ kind: 'lost', text }));
}

/** Turns of the stage until nothing waits; between them messages come in. */
async function run(): Promise<void> {
  if (loaded === null) return;
  const { stage } = loaded;
  running = true;
  try {
    while (stage.busy) {
      const answers = await stage.turn();
      const transfer = answers.flatMap((answer) =>
        answer.kind === 'done' ? [...buffersOf(answer.hidden), ...buffersOf(answer.logits)] : [],
      );
      tell({ kind: 'answers', answers, lengths: stage.lengths(), memory: memoryOf(loaded) }, transfer);
      await breathe();
    }
  } finally {
    running = false;
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

function memoryOf({ execution, stage }: Loaded): MemoryBytes {
  const { weightBytes: weights, kvBytes: kv, overheadBytes: overhead } = execution;
  return { weights, kv, overhead, fronts: stage.frontBytes };
}

function textOf(error: unknown): string {
  return error instanceof DeviceLost ? error.message : String(error);
}

function tell(message: FromWorker, transfer: Transferable[] = []): void {
  port.postMessage(message, transfer);
}
