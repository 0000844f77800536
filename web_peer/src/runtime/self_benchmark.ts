/*
 * Decides by a short measurement whether this tab computes on WebGPU or WebAssembly, and what it tells the planner.
 * Each candidate runs in a worker of its own. Edge.
 */

import { CannotServe, NotNow } from '../errors';
import type { Provider } from '../planner/linear';
import { BLOCK_KINDS, type Decoder } from '../planner/manifest';
import type { KindTimes, UnitTimes } from './unit_benchmark';
import type { FromMeasurer, ToMeasurer } from './benchmark_worker';
import type { Profile } from '../state/generated/commands';

const CANDIDATE_MS = 20_000; // loading the runtime included; a software adapter takes longer, and is no use
const PINGS = 21;
const MAX_THREADS = 4; // more gain little and leave no core for the page
export const TAB_BYTES = 144 << 20; // of the page and its worker, measured (docs/benchmarks.md): code, compiled WebAssembly, gaps in its memory

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
