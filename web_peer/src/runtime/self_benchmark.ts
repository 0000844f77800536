/*
 * Decides by a short measurement whether this tab computes on WebGPU or WebAssembly, and what it tells the planner.
 * Each candidate runs in a worker of its own. Edge.
 */

import type { ValueArray } from '../dataflow/value_codec';
import { CannotServe, NotNow } from '../errors';
import type { Value } from '../planner/graph_manifest';
import type { Provider } from '../planner/linear';
import { BLOCK_KINDS, type Decoder } from '../planner/manifest';
import { GRAPH, KIND, ROWS, WIDTH } from '../planner/yardstick';
import { fromHex } from '../wire/hex';
import { GraphRuntime } from './graph_runtime';
import type { KindTimes, UnitTimes } from './unit_benchmark';
import type { FromMeasurer, ToMeasurer } from './benchmark_worker';
import type { Profile } from '../state/generated/commands';

const CANDIDATE_MS = 20_000; // loading the runtime included; a software adapter takes longer, and is no use
const PRODUCTS = 31; // runs of a product of matrices
const FASTEST = 10; // one run in so many is faster than what counts: others that compute only make it slower
const PINGS = 21;
const MAX_THREADS = 4; // more gain little and leave no core for the page
const TAB_BYTES = 144 << 20; // of the page and its worker, measured (docs/benchmarks.md): code, compiled WebAssembly, gaps in its memory

/** How fast this tab computes; its memory is for the person to say. */
export type Times = Omit<Profile, 'memoryBytes'>;

/** What this browser could run on. */
export interface Abilities {
  readonly gpu: boolean;
  readonly threads: number;
}

/** Looks at the browser: an adapter that it lends, and threads where the page is cross-origin isolated. */
export async function abilities(): Promise<Abilities> {
  const cores = navigator.hardwareConcurrency;
  const threads = globalThis.crossOriginIsolated ? Math.max(1, Math.min(MAX_THREADS, cores >> 1)) : 1;
  return { gpu: await hasAdapter(), threads };
}

async function hasAdapter(): Promise<boolean> {
  try {
    return (await navigator.gpu.requestAdapter()) !== null;
  } catch {
    return false; // no WebGPU here
  }
}

/** Measures each candidate, one after the other, and picks the one that decodes faster. Raises CannotServe. */
export async function measure(decoder: Decoder, signal: AbortSignal): Promise<Times> {
  const found = await abilities();
  const candidates: { readonly provider: Provider; readonly threads: number }[] = [
    { provider: 'wasm', threads: 1 },
  ];
  // Threads that wait for a busy core lose more than they gain, so they are measured, too.
  if (found.threads > 1) candidates.push({ provider: 'wasm', threads: found.threads });
  if (found.gpu) candidates.push({ provider: 'webgpu', threads: 1 });
  let best: Times | null = null;
  const troubles: string[] = [];
  let isLate = false;
  for (const { provider, threads } of candidates) {
    signal.throwIfAborted();
    try {
      const times = await candidate(decoder, provider, threads, signal);
      if (best === null || blockNs(times) < blockNs(best)) best = times;
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof NotNow) isLate = true;
      troubles.push(`${provider}: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
  if (best === null) {
    const text = `this browser cannot compute: ${troubles.join('; ')}`;
    throw isLate ? new NotNow(text) : new CannotServe(text);
  }
  return best;
}

/** For one provider: after a GPU device was lost, the tab goes on with 'wasm'. */
export async function candidate(
  decoder: Decoder,
  provider: Provider,
  threads: number,
  signal: AbortSignal,
): Promise<Times> {
  const worker = new Worker(new URL('./benchmark_worker.ts', import.meta.url), { type: 'module' });
  const limit = AbortSignal.any([signal, AbortSignal.timeout(CANDIDATE_MS)]);
  try {
    const ask = (order: ToMeasurer): Promise<FromMeasurer> => answerOf(worker, order, limit);
    const answer = await ask({ kind: 'measure', decoder, provider, threads });
    if (answer.kind !== 'times') throw new CannotServe(answer.kind === 'failed' ? answer.text : 'no answer');
    const trips: number[] = [];
    for (let ping = 0; ping < PINGS; ping++) {
      const started = performance.now();
      await ask({ kind: 'ping' });
      trips.push(performance.now() - started);
    }
    const stepMs = trips.sort((a, b) => a - b)[PINGS >> 1] ?? 0;
    return timesOf(answer.times, provider, threads, stepMs);
  } finally {
    worker.terminate();
  }
}

function timesOf(times: UnitTimes, provider: Provider, threads: number, stepMs: number): Times {
  const table = (value: (of: KindTimes) => number): Map<string, number> =>
    new Map(
      Object.entries(times.kinds)
        .map(([kind, of]): [string, number] => [kind, Math.round(value(of) * 1e9)])
        .sort(([a], [b]) => (a < b ? -1 : 1)),
    );
  return {
    overheadBytes: times.overheadBytes + TAB_BYTES,
    decodeNs: table((of) => of.decodeS),
    prefillNs: table((of) => of.prefillS),
    batchNs: table((of) => of.batchS),
    stepNs: Math.round(stepMs * 1e6),
    provider,
    threads: provider === 'wasm' ? threads : 1,
    arithmetic: times.arithmetic,
  };
}

function blockNs(times: Times): number {
  return BLOCK_KINDS.reduce((sum, kind) => sum + (times.decodeNs.get(kind) ?? 0), 0);
}

function answerOf(worker: Worker, order: ToMeasurer, limit: AbortSignal): Promise<FromMeasurer> {
  return new Promise((resolve, reject) => {
    const stop = (): void => reject(new NotNow('measuring took too long'));
    limit.addEventListener('abort', stop, { once: true });
    worker.onerror = (event) => reject(new CannotServe(event.message || 'the worker did not start'));
    worker.onmessage = ({ data }: MessageEvent<FromMeasurer>) => {
      limit.removeEventListener('abort', stop);
      resolve(data);
    };
    worker.postMessage(order);
  });
}

// --- without a model that answers in words

/**
 * For meshes without a model that answers in words: how fast this tab multiplies matrices, as units of offered models
 * run. Measures with one thread, and with as many as this page may have, and picks the faster. Raises
 * CannotServe.
 */
export async function measureProduct(signal: AbortSignal): Promise<Times> {
  const most = (await abilities()).threads;
  const one = await timesWith(1, signal);
  if (most === 1) return one;
  const many = await timesWith(most, signal);
  const rowNs = ({ prefillNs }: Times): number => prefillNs.get(KIND) ?? Infinity;
  return rowNs(many) < rowNs(one) ? many : one;
}

async function timesWith(threads: number, signal: AbortSignal): Promise<Times> {
  const limit = AbortSignal.any([signal, AbortSignal.timeout(CANDIDATE_MS)]);
  const runtime = await loaded(threads, limit);
  try {
    const oneS = await seconds(runtime, 1, limit);
    const manyS = await seconds(runtime, ROWS, limit);
    // A run that was held up makes no tab infinitely fast.
    const rowS = Math.max(manyS - oneS, manyS / ROWS / 2) / (ROWS - 1);
    const table = (s: number): ReadonlyMap<string, number> => new Map([[KIND, Math.round(s * 1e9)]]);
    return {
      overheadBytes: TAB_BYTES,
      decodeNs: table(oneS),
      prefillNs: table(rowS),
      batchNs: table(rowS),
      stepNs: Math.round(Math.max(oneS - rowS, 0) * 1e9),
      provider: 'wasm',
      threads,
      arithmetic: '',
    };
  } finally {
    runtime.close();
  }
}

function loaded(threads: number, signal: AbortSignal): Promise<GraphRuntime> {
  const value = (name: string): Value => ({ name, dtype: 'float32', shape: ['rows', WIDTH], bytes: [] });
  const composed = {
    model: new Uint8Array(fromHex(GRAPH)),
    inputs: [value('x')],
    outputs: [value('y')],
    weightBytes: 0,
  };
  const source = { composed, blobs: new Map<string, Uint8Array>(), fused: true };
  return GraphRuntime.load(source, threads, () => undefined, signal);
}

async function seconds(runtime: GraphRuntime, rows: number, signal: AbortSignal): Promise<number> {
  const data = new Uint8Array(new Float32Array(rows * WIDTH).fill(1).buffer);
  const x: ValueArray = { shape: [rows, WIDTH], data };
  const taken: number[] = [];
  for (let run = 0; run < PRODUCTS; run += 1) {
    signal.throwIfAborted();
    const began = performance.now();
    await runtime.run(new Map([['x', x]]));
    taken.push((performance.now() - began) / 1000);
  }
  return taken.sort((a, b) => a - b)[Math.floor(PRODUCTS / FASTEST)] ?? 0;
}
