/*
 * How fast a runtime runs each kind of unit, on made-up weights of the model's shapes, so that nothing is fetched
 * first. A unit is loaded several times over, because weights that stay in the processor's cache would flatter it.
 */

import { arithmeticDigest } from './arithmetic_digest';
import type { Execution, LoadExecution, ShardSource } from './execution';
import { KvSlots } from './kv_slots';
import type { Provider } from '../planner/linear';
import { makeGraphs } from '../planner/lowering';
import {
  BLOCK_KINDS,
  type Decoder,
  type Dimensions,
  dimensionsOf,
  type Manifest,
  type ManifestUnit,
  packedBytes,
  pairOf,
  type StoredTensor,
  type UnitKind,
  wideBytes,
} from '../planner/manifest';
import { PIECE_TOKENS } from './piece_sizes';
import { EmbeddingTable } from './weight_unpacking';

const WORKING_BYTES = 64 << 20; // weights under the clock: above the last-level cache of most machines
const CONTEXT = 256;
const FILLED = 128; // positions in the cache while decoding: a question and half an answer
const ROWS = 4; // of the batch that batchS comes from
const RUNS = 15;
const LIMIT_MS = 400; // for the runs of one kind
const HOPELESS_MS = 2000; // a single call this slow needs no second

/** Seconds of one unit of a kind: one decode token, one prompt token, one more row in a decode batch. */
export interface KindTimes {
  readonly decodeS: number;
  readonly prefillS: number;
  readonly batchS: number;
}

export interface UnitTimes {
  readonly kinds: Readonly<Partial<Record<UnitKind, KindTimes>>>; // of those that the model has
  readonly overheadBytes: number; // of the runtime, without weights and KV
  readonly arithmetic: string; // the class of what it computes
}

/** How a provider holds weights, as the class of its arithmetic says it. */
const FORMS: Readonly<Record<Provider, string>> = { wasm: 'wide', webgpu: 'packed' };

/** `load` makes the execution under test, with these `instructions`; `now` gives milliseconds. */
export async function measureUnits(
  decoder: Decoder,
  provider: Provider,
  instructions: string,
  load: LoadExecution,
  now: () => number,
): Promise<UnitTimes> {
  const { manifest } = decoder;
  let overheadBytes = 0;
  const timed = async (kind: UnitKind): Promise<KindTimes> => {
    const { source, blobs } = copies(decoder, kind, provider);
    const execution = await load(source, blobs, CONTEXT);
    try {
      const times = await bodyTimes(execution, source, now);
      overheadBytes = Math.max(overheadBytes, execution.overheadBytes + scratchBytes(manifest));
      return times;
    } finally {
      execution.close();
    }
  };
  const kinds: Partial<Record<UnitKind, KindTimes>> = {};
  for (const kind of BLOCK_KINDS) {
    if (manifest.units.some((unit) => unit.kind === kind)) kinds[kind] = await timed(kind);
  }
  const digest = await arithmeticDigest(decoder, provider, load);
  return {
    kinds: { ...kinds, head: headTimes(manifest, provider, kinds), embed: embedTimes(decoder, now) },
    overheadBytes,
    arithmetic: `${provider}/${instructions}/${FORMS[provider]}/${digest}`,
  };
}

/** What one piece of a prompt occupies while it runs: the widest layer a few times over, and the logits. */
export function scratchBytes({ scratch, vocab }: Dimensions): number {
  return 4 * (4 * PIECE_TOKENS * scratch + vocab);
}

/** Bytes of a unit's weights as `provider` holds them. */
export function heldBytes(unit: ManifestUnit, provider: Provider): number {
  return provider === 'wasm' ? wideBytes(unit) : packedBytes(unit);
}

/** One unit among as many copies of it as fit, each with weights of its own. */
function copies(
  { manifest, graphs }: Decoder,
  kind: UnitKind,
  provider: Provider,
): { source: ShardSource; blobs: Map<string, Uint8Array> } {
  const one = first(manifest, kind);
  const alike = manifest.units.filter((unit) => unit.kind === kind).length;
  const size = heldBytes(one, provider);
  const count = Math.max(1, Math.min(alike, Math.floor(WORKING_BYTES / size)));
  const blobs = new Map<string, Uint8Array>();
  const units = Array.from({ length: count }, (_, copy): ManifestUnit => {
    const sha256 = String(copy);
    blobs.set(sha256, madeUp(one, copy));
    const kv = one.kv.map((pair, at) => {
      return pairOf(copy * one.kv.length + at, { ...pair, isShared: pair.key === pair.value });
    });
    return { ...one, name: `${kind}.${copy}`, kv, blob: { ...one.blob, sha256 } };
  });
  const lowered = makeGraphs({ ...manifest, units }, graphs, 0, count, provider);
  return { source: { dimensions: dimensionsOf(manifest), units, graphs: lowered }, blobs };
}

/** The first unit of that kind. Raises an Error where there is none. */
function first({ units }: Manifest, kind: UnitKind): ManifestUnit {
  const found = units.find((unit) => unit.kind === kind);
  if (found === undefined) throw new Error(`a model with a unit of kind ${kind} expected`);
  return found;
}

/** Small ordinary numbers, different in each copy: equal weights are kept once, odd ones take odd times. */
function madeUp(unit: ManifestUnit, copy: number): Uint8Array {
  const blob = new Uint8Array(unit.blob.bytes);
  for (const tensor of unit.tensors) {
    const { offset, bytes } = tensor;
    if (tensor.dtype === 'f32') new Float32Array(blob.buffer, offset, bytes / 4).fill(0.01 + copy * 1e-4);
    else if (tensor.dtype === 'f16') new Uint16Array(blob.buffer, offset, bytes / 2).fill(0x2100 + copy);
    else fillPattern(blob.subarray(offset, offset + bytes), copy);
  }
  return blob;
}

function fillPattern(target: Uint8Array, copy: number): void {
  for (let at = 0; at < target.length; at++) target[at] = (at * 31 + copy * 7) & 255;
}

async function bodyTimes(execution: Execution, source: ShardSource, now: () => number): Promise<KindTimes> {
  const { dimensions, units } = source;
  const slots = new KvSlots(ROWS, CONTEXT);
  for (let row = 0; row < ROWS; row++) slots.admit(String(row));
  execution.ensure(slots, ROWS, CONTEXT);
  const hidden = new Float32Array(PIECE_TOKENS * dimensions.hidden);
  for (let at = 0; at < hidden.length; at++) hidden[at] = ((at * 37) % 101) / 101 - 0.5;
  const one = hidden.subarray(0, dimensions.hidden);
  const batch = hidden.subarray(0, ROWS * dimensions.hidden);
  const filled = Array<number>(ROWS).fill(FILLED);
  const [decodeMs = 0, batchMs = 0, promptMs = 0] = await medians(
    [
      () => execution.decode(one, { start: 0, stop: 1 }, [FILLED]),
      () => execution.decode(batch, { start: 0, stop: ROWS }, filled),
      () => execution.prompt(hidden, 0, 0),
    ],
    now,
  );
  const per = 1000 * units.length;
  return {
    decodeS: decodeMs / per,
    prefillS: promptMs / per / PIECE_TOKENS,
    batchS: Math.max(batchMs - decodeMs, 0) / per / (ROWS - 1),
  };
}

/** By its size: one row is bound by reading weights. Only a prompt's last token meets the head. */
function headTimes(
  manifest: Manifest,
  provider: Provider,
  kinds: Readonly<Partial<Record<UnitKind, KindTimes>>>,
): KindTimes {
  const kind = kinds.ffn === undefined ? 'attn' : 'ffn'; // of products alone, where there is one
  const times = kinds[kind];
  if (times === undefined) return { decodeS: 0, prefillS: 0, batchS: 0 };
  const share = heldBytes(first(manifest, 'head'), provider) / heldBytes(first(manifest, kind), provider);
  return { decodeS: times.decodeS * share, prefillS: 0, batchS: times.batchS * share };
}

/** Unpacking rows, on a table of few. */
function embedTimes({ manifest, graphs }: Decoder, now: () => number): KindTimes {
  const { table: whole } = makeGraphs(manifest, graphs, 0, 1, 'wasm');
  if (whole === null) throw new Error('a model with an embedding expected');
  let offset = 0;
  const tensors = whole.unit.tensors.flatMap((tensor): StoredTensor[] => {
    if (!tensor.name.startsWith(`${whole.weight}.`)) return [];
    const bytes = (tensor.bytes / whole.rows) * PIECE_TOKENS;
    const small = { ...tensor, shape: [PIECE_TOKENS, ...tensor.shape.slice(1)], offset, bytes };
    offset += Math.ceil(bytes / 64) * 64;
    return [small];
  });
  const unit = { ...whole.unit, tensors, blob: { ...whole.unit.blob, bytes: offset } };
  const table = new EmbeddingTable({ ...whole, unit, rows: PIECE_TOKENS }, madeUp(unit, 0));
  const tokens = Int32Array.from({ length: PIECE_TOKENS }, (_, at) => at);
  table.rows(tokens);
  const started = now();
  table.rows(tokens);
  const each = (now() - started) / 1000 / PIECE_TOKENS;
  return { decodeS: each, prefillS: each, batchS: each };
}

/** Median time of a call of each, taken in turns so that a busy moment meets all, after one that warms up. */
async function medians(runs: readonly (() => Promise<unknown>)[], now: () => number): Promise<number[]> {
  const times = runs.map((): number[] => []);
  for (const [at, run] of runs.entries()) {
    const started = now();
    await run();
    if (now() - started > HOPELESS_MS) times[at]?.push(now() - started);
  }
  const end = now() + LIMIT_MS;
  for (let round = 0; round < RUNS && (round < 3 || now() < end); round++) {
    for (const [at, run] of runs.entries()) {
      if (times.some(([slow = 0]) => slow > HOPELESS_MS)) continue;
      const started = now();
      await run();
      times[at]?.push(now() - started);
    }
  }
  return times.map((taken) => {
    const sorted = taken.sort((a, b) => a - b);
    return sorted[sorted.length >> 1] ?? HOPELESS_MS;
  });
}
