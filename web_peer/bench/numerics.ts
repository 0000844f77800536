/* Logits of a whole model on one provider, step by step over given tokens: what docs/numerics.md compares. */

import type { Execution, ShardSource } from '../src/runtime/execution';
import { WasmExecution } from '../src/runtime/execution_wasm';
import { PIECE_TOKENS, pieceStop } from '../src/runtime/piece_sizes';
import { KvSlots } from '../src/runtime/kv_slots';
import type { Provider } from '../src/planner/linear';
import { makeGraphs } from '../src/planner/lowering';
import { blobsOf, decodeManifest, dimensionsOf, kvNames, type ManifestUnit } from '../src/planner/manifest';
import { type Load, StageRuntime } from '../src/runtime/worker_handle';

const CONTEXT = 128;

declare global {
  interface Window {
    /** Base64 of float32 (tokens.length - prompt + 1, vocab): after the prompt, then after each token more. */
    logits(model: string, provider: Provider, tokens: number[], prompt: number): Promise<string>;
    /**
     * How many values differ by a bit between sessions alone and in a batch, between a prompt whole and cut, and
     * between a cache and what was made of it elsewhere.
     */
    unequal(model: string, provider: Provider): Promise<{ batch: number; chunks: number; moved: number }>;
    /**
     * The largest difference between sessions alone and the same in one batch; no row has as many tokens as another.
     * And how many values of a cache differ by a bit from what was made of it elsewhere.
     */
    crowd(model: string, provider: Provider): Promise<{ apart: number; moved: number }>;
    /**
     * Of tokens of which the first `prompt` are given, where old positions are dropped: the largest difference from what
     * is computed with all of them, also behind a copy of the cache, its bytes with and without, and the last logits.
     */
    windowed(model: string, provider: Provider, tokens: number[], prompt: number): Promise<Windowed>;
    /** Loads the model on the GPU, says "loaded" on the console, and gives what is said when the device is lost. */
    untilLost(model: string): Promise<string>;
  }
}

interface Windowed {
  readonly apart: number;
  readonly moved: number;
  readonly kvBytes: readonly [number, number];
  readonly logits: string; // base64 of float32 (vocab,)
}

async function whole(model: string): Promise<Load> {
  const fetched = async (path: string): Promise<Uint8Array> =>
    new Uint8Array(await (await fetch(path)).arrayBuffer());
  const manifest = decodeManifest(await fetched(`/models/${model}/manifest.json`));
  const stop = manifest.units.length;
  const blobs = new Map<string, Uint8Array>();
  for (const { sha256 } of blobsOf(manifest, 0, stop)) blobs.set(sha256, await fetched(`/blobs/${sha256}`));
  return { manifest, first: 0, stop, blobs };
}

/** The model on one provider, whole. */
async function loaded(
  model: string,
  provider: Provider,
  context = CONTEXT,
  isWhole = false,
): Promise<{ readonly manifest: Load['manifest']; readonly execution: Execution }> {
  const { manifest, stop, blobs } = await whole(model);
  const graphs = makeGraphs(manifest, blobs, 0, stop, provider);
  const { window } = manifest;
  const dimensions = { ...dimensionsOf(manifest), window: isWhole ? null : window };
  const source = { dimensions, units: manifest.units, graphs };
  return { manifest, execution: await load(provider, source, blobs, context) };
}

window.windowed = async (model, provider, tokens, prompt) => {
  const context = tokens.length + 1;
  const run = async (
    isWhole: boolean,
  ): Promise<{ rows: Float32Array; bytes: number; logits: Float32Array }> => {
    const { manifest, execution } = await loaded(model, provider, context, isWhole);
    const { hidden: width, units } = manifest;
    const slots = new KvSlots(2, context);
    for (const session of ['0', '1']) slots.admit(session);
    execution.ensure(slots, 2, context);
    const given = await execution.embed(Int32Array.from(tokens));
    const rows = new Float32Array((tokens.length + 1) * width);
    for (let at = 0; at < prompt;) {
      const stop = pieceStop(at, Math.min(at + PIECE_TOKENS, prompt), execution.widestHead);
      rows.set(await execution.prompt(given.slice(at * width, stop * width), 1, at), at * width);
      at = stop;
    }
    slots.setLength('1', prompt);
    const names = kvNames(units);
    const values = await execution.read(1, prompt, names);
    if (values === null || !execution.write(0, prompt, [{ names, have: prompt, values }])) {
      throw new Error('a cache that can be copied expected');
    }
    for (let at = prompt; at < tokens.length; at++) {
      slots.setLength('0', at);
      slots.setLength('1', at);
      const one = given.slice(at * width, (at + 1) * width);
      const two = new Float32Array([...one, ...one]);
      const made = await execution.decode(two, { start: 0, stop: 2 }, [at, at]);
      rows.set(made.subarray(0, width), at * width);
      if (at === tokens.length - 1) rows.set(made.subarray(width), tokens.length * width);
    }
    const bytes = execution.kvBytes;
    const logits = (await execution.head(rows.slice(-width))).slice();
    execution.close();
    return { rows, bytes, logits };
  };
  const [kept, all] = [await run(false), await run(true)];
  const width = kept.rows.length / (tokens.length + 1);
  const distance = (one: Float32Array, other: Float32Array): number =>
    one.reduce((most, value, at) => Math.max(most, Math.abs(value - (other[at] ?? NaN))), 0);
  return {
    apart: distance(kept.rows, all.rows),
    moved: distance(kept.rows.slice(-width), kept.rows.slice(-2 * width, -width)),
    kvBytes: [kept.bytes, all.bytes],
    logits: base64(new Uint8Array(kept.logits.buffer)),
  };
};

window.unequal = async (model, provider) => {
  const { manifest, execution } = await loaded(model, provider);
  const { hidden: width, units, vocab } = manifest;
  const rows = 4;
  const slots = new KvSlots(rows + 1, CONTEXT);
  for (let row = 0; row <= rows; row++) slots.admit(String(row));
  execution.ensure(slots, rows + 1, CONTEXT);
  const given = await execution.embed(Int32Array.from({ length: 40 }, (_, at) => 100 + 7 * at));
  const lengths = [3, 17, 40, 8];
  for (const [row, length] of lengths.entries())
    await execution.prompt(given.slice(0, length * width), row, 0);
  const tokens = await execution.embed(Int32Array.of(11, 22, 33, 44));
  const together = (await execution.decode(tokens, { start: 0, stop: rows }, lengths)).slice();
  const logits = (await execution.head(together)).slice();
  let batch = 0;
  for (const [row, length] of lengths.entries()) {
    const one = tokens.slice(row * width, (row + 1) * width);
    const alone = (await execution.decode(one, { start: row, stop: row + 1 }, [length])).slice();
    batch += different(alone, together.subarray(row * width, (row + 1) * width));
    batch += different(await execution.head(alone), logits.subarray(row * vocab, (row + 1) * vocab));
  }
  const uncut = (await execution.prompt(given, rows, 0)).slice();
  let chunks = 0;
  for (let at = 0, size = 1; at < 40; at += size, size = (size % 13) + 4) {
    const piece = given.slice(at * width, (at + size) * width);
    const made = await execution.prompt(piece, rows, at);
    chunks += different(made, uncut.subarray(at * width, at * width + made.length));
  }
  let moved = await movedUnequal(execution, units, { from: 2, count: 40, rows: [0, 1, 3] });
  const next = async (row: number): Promise<Float32Array> =>
    (await execution.decode(tokens.slice(0, width), { start: row, stop: row + 1 }, [40])).slice();
  const expected = await next(2);
  for (const row of [0, 1]) moved += different(await next(row), expected);
  execution.close();
  return { batch, chunks, moved };
};

/**
 * What row `from` caches, as numbers in the first of `rows`, from row to row in the second, and its first half in the
 * third: how many values differ by a bit.
 */
async function movedUnequal(
  execution: Execution,
  units: readonly ManifestUnit[],
  of: { readonly from: number; readonly count: number; readonly rows: readonly [number, number, number] },
): Promise<number> {
  const { from, count, rows } = of;
  const names = kvNames(units);
  const read = (row: number, most: number, of = names): Promise<Float32Array<ArrayBuffer>> =>
    execution.read(row, most, of) ?? Promise.reject(new Error('a cache that can be copied expected'));
  const values = await read(from, count);
  const part = { names, have: count, values };
  const half = count >> 1;
  execution.write(rows[0], count, [part]);
  execution.move({ source: from, target: rows[1], length: count });
  execution.write(rows[2], half, [part]);
  const other = names.slice().reverse();
  return (
    different(await read(rows[0], count), values) +
    different(await read(rows[1], count, other), await read(from, count, other)) +
    different(await read(rows[2], half), await read(from, half)) +
    Number(values.every((value) => value === 0))
  );
}

window.crowd = async (model, provider) => {
  const { manifest, execution } = await loaded(model, provider);
  const { hidden: width, units } = manifest;
  const lengths = [3, 17, 8];
  const slots = new KvSlots(lengths.length + 1, CONTEXT);
  for (const row of lengths.keys()) slots.admit(String(row));
  execution.ensure(slots, lengths.length + 1, CONTEXT);
  const given = await execution.embed(Int32Array.from({ length: 17 }, (_, at) => 100 + 7 * at));
  const tokens = await execution.embed(Int32Array.of(11, 22, 33));
  const alone: Float32Array[] = [];
  for (const [row, length] of lengths.entries()) {
    await execution.prompt(given.slice(0, length * width), 0, 0);
    const one = tokens.slice(row * width, (row + 1) * width);
    alone.push((await execution.decode(one, { start: 0, stop: 1 }, [length])).slice());
  }
  for (const [row, length] of lengths.entries())
    await execution.prompt(given.slice(0, length * width), row, 0);
  const together = await execution.decode(tokens, { start: 0, stop: lengths.length }, lengths);
  const distances = alone.flatMap((one, row) =>
    [...one].map((value, at) => Math.abs(value - (together[row * width + at] ?? NaN))),
  );
  const moved = await movedUnequal(execution, units, { from: 1, count: 17, rows: [0, 2, 3] });
  execution.close();
  return { apart: Math.max(...distances), moved };
};

function different(one: Float32Array, other: Float32Array): number {
  return one.reduce((count, value, at) => count + Number(value !== other[at]), 0);
}

window.untilLost = async (model) => {
  const load = await whole(model);
  return new Promise((resolve, reject) => {
    const room = { provider: 'webgpu', threads: 1, slots: 1, context: CONTEXT } as const;
    const receiver = { answers: () => undefined, lost: resolve };
    // eslint-disable-next-line no-console -- what the driver waits for
    StageRuntime.load(load, room, receiver).then(() => console.log('loaded'), reject);
  });
};

window.logits = async (model, provider, tokens, prompt) => {
  const { manifest, execution } = await loaded(model, provider);
  const { hidden: width, vocab } = manifest;
  const slots = new KvSlots(1, CONTEXT);
  slots.admit('0');
  execution.ensure(slots, 1, CONTEXT);
  const found = new Float32Array((tokens.length - prompt + 1) * vocab);
  const given = await execution.embed(Int32Array.from(tokens.slice(0, prompt)));
  let hidden = (await execution.prompt(given, 0, 0)).slice(-width);
  found.set(await execution.head(hidden));
  for (let at = prompt; at < tokens.length; at++) {
    const row = await execution.embed(Int32Array.of(tokens[at] ?? 0));
    hidden = (await execution.decode(row, { start: 0, stop: 1 }, [at])).slice();
    found.set(await execution.head(hidden), (at - prompt + 1) * vocab);
  }
  execution.close();
  return base64(new Uint8Array(found.buffer));
};

async function load(
  provider: Provider,
  source: ShardSource,
  blobs: ReadonlyMap<string, Uint8Array>,
  context: number,
): Promise<Execution> {
  if (provider === 'wasm') return WasmExecution.load(source, blobs, 1, context);
  const { WebGpuExecution } = await import('../src/runtime/execution_webgpu');
  return WebGpuExecution.load(source, blobs, context, () => undefined);
}

function base64(bytes: Uint8Array): string {
  let text = '';
  for (let at = 0; at < bytes.length; at += 8192)
    text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(text);
}
