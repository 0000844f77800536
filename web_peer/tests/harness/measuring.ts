/* How fast this browser computes; stands for src/runtime/self_benchmark.ts where a test wants no measurement. */

import type { Times } from '../../src/member/joining';

declare global {
  /** What a test says this browser runs on, and what a unit takes for a token; WebAssembly where it is silent. */
  var measuredAs: { readonly provider: string; readonly unitNs: number } | undefined;
}

const KINDS = ['embed', 'attn', 'ffn', 'head'];

/** Figures of a slow laptop, so that tests need not wait for a measurement. */
export function measureHere(): Promise<Times> {
  const { provider, unitNs } = globalThis.measuredAs ?? { provider: 'wasm', unitNs: 1_000_000 };
  const table = (ns: number): ReadonlyMap<string, number> => new Map(KINDS.map((kind) => [kind, ns]));
  return Promise.resolve({
    overheadBytes: 50 << 20,
    decodeNs: table(unitNs),
    prefillNs: table(0.3 * unitNs),
    batchNs: table(0.5 * unitNs),
    stepNs: 1_000_000,
    provider,
    threads: 1,
  });
}
