/* How fast this browser computes; stands for src/measure.ts where a test wants no measurement. */

import type { Times } from '../../src/joining';

declare global {
  var measuredProvider: string | undefined; // what a test says this browser runs on; WebAssembly where it is silent
}

const KINDS = ['embed', 'attn', 'ffn', 'head'];

/** Figures of a slow laptop, so that tests need not wait for a measurement. */
export function measureHere(): Promise<Times> {
  const table = (ns: number): ReadonlyMap<string, number> => new Map(KINDS.map((kind) => [kind, ns]));
  return Promise.resolve({
    overheadBytes: 50 << 20,
    decodeNs: table(1_000_000),
    prefillNs: table(300_000),
    batchNs: table(500_000),
    stepNs: 1_000_000,
    provider: globalThis.measuredProvider ?? 'wasm',
    threads: 1,
  });
}
