/*
 * How fast this tab multiplies matrices, for meshes without a model that answers in words (twin of
 * peer/runtime/product_benchmark.py). Edge. It runs as units of offered models do: on WebAssembly, in a worker.
 */

import type { ValueArray } from '../dataflow/value_codec';
import type { Value } from '../planner/graph_manifest';
import { GRAPH, KIND, ROWS, WIDTH } from '../planner/yardstick';
import { fromHex } from '../wire/hex';
import { GraphRuntime } from './graph_runtime';
import { abilities, TAB_BYTES, type Times } from './self_benchmark';

const RUNS = 31;
const FASTEST = 10; // one run in so many is faster than what counts: others that compute only make it slower
const LOADED_WITHIN_MS = 20_000; // and measured, with one number of threads; a page that takes longer is of no use

/** Measures with one thread, and with as many as this page may have, and picks the faster. Raises CannotServe. */
export async function measureProduct(signal: AbortSignal): Promise<Times> {
  const most = (await abilities()).threads;
  const one = await timesWith(1, signal);
  if (most === 1) return one;
  const many = await timesWith(most, signal);
  const rowNs = ({ prefillNs }: Times): number => prefillNs.get(KIND) ?? Infinity;
  return rowNs(many) < rowNs(one) ? many : one;
}

async function timesWith(threads: number, signal: AbortSignal): Promise<Times> {
  const limit = AbortSignal.any([signal, AbortSignal.timeout(LOADED_WITHIN_MS)]);
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
  for (let run = 0; run < RUNS; run += 1) {
    signal.throwIfAborted();
    const began = performance.now();
    await runtime.run(new Map([['x', x]]));
    taken.push((performance.now() - began) / 1000);
  }
  return taken.sort((a, b) => a - b)[Math.floor(RUNS / FASTEST)] ?? 0;
}
