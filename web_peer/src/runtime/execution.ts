/*
 * How a shard runs, whatever runs it: what a stage asks of a loaded shard. WebAssembly is in execution_wasm.ts,
 * WebGPU in execution_webgpu.ts. One caller at a time: each promise must settle before the next call.
 */

import type { KvArray, KvRows, KvSlots, Move, Span } from './kv_slots';
import type { BlobRef } from '../planner/blob_ref';
import type { Provider } from '../planner/linear';
import { type Graphs, rotaryInputs, rotaryTables } from '../planner/lowering';
import { type Dimensions, type ManifestUnit, namesOf, outputsOf } from '../planner/manifest';

export type LoadExecution = (
  source: ShardSource,
  blobs: ReadonlyMap<string, Uint8Array>,
  context: number,
) => Promise<Execution>;

/**
 * Per array of `names`, one after the other, float32 (heads, have, headSize) of its own; of arrays with a window from
 * the first position on that a session of `have` keeps.
 */
export interface CachePart {
  readonly names: readonly string[];
  readonly have: number;
  readonly values: Float32Array<ArrayBuffer>;
}

export const ATTENTION_ROWS = 32; // tokens that GroupQueryAttention works on at a time
export const KEPT_CALLS = 64; // bound buffers of call shapes; ranges of rows repeat

/** Units [first, stop) of a model with their graphs; the blobs go by hash. */
export interface ShardSource {
  readonly dimensions: Dimensions;
  readonly units: readonly ManifestUnit[];
  readonly graphs: Graphs;
}

/** Keys and values of the first positions of one row, apart from the arrays of sessions. */
export interface KvCopy {
  readonly bytes: number;
  free(): void;
}

export interface Execution {
  readonly provider: Provider;
  readonly hasEmbed: boolean;
  readonly hasHead: boolean;
  readonly weightBytes: number; // as they are held, the embedding included
  readonly kvBytes: number; // allocated now
  readonly widestHead: number; // values; 0 where nothing is cached
  readonly overheadBytes: number;

  /** Grows the KV arrays so that `rows` rows of `positions` fit; what is cached is kept. */
  ensure(slots: KvSlots, rows: number, positions: number): void;
  move(move: Move): void;
  /**
   * Whether a row has what comes after its first `length` positions looks at: arrays with a window drop old ones, so
   * that a session can take back only a few.
   */
  holds(row: number, length: number): boolean;
  /** The first `count` positions of a row, to be put into others; null where a window has dropped some that go on. */
  copied(row: number, count: number): KvCopy | null;
  /** A row begins with the positions of `copy`, which this execution made. */
  put(row: number, copy: KvCopy): void;
  /** The first `count` positions of a row in arrays `names`, as a CachePart has them; null as in `copied`. */
  read(row: number, count: number, names: readonly string[]): Promise<Float32Array<ArrayBuffer>> | null;
  /** In the arrays of `parts` a row has their first `count` positions; false where they do not suffice to go on. */
  write(row: number, count: number, parts: readonly CachePart[]): boolean;
  /** tokens (T,) -> (T, hidden). */
  embed(tokens: Int32Array): Promise<Float32Array>;
  /** One token for each row of `span`: (rows, hidden) -> (rows, hidden), valid until the next call. */
  decode(hidden: Float32Array, span: Span, lengths: readonly number[]): Promise<Float32Array>;
  /** Tokens of one row with `length` cached before them: (T, hidden) -> (T, hidden), valid until the next call. */
  prompt(hidden: Float32Array, row: number, length: number): Promise<Float32Array>;
  /** (rows, hidden) -> logits (rows, vocab), valid until the next call. */
  head(hidden: Float32Array): Promise<Float32Array>;
  close(): void;
}

/**
 * A prompt's piece as attention wants it. It works on ATTENTION_ROWS tokens at a time and adds up in another order
 * for a single one, so a single one left over gets company (room for one position more is needed): no result depends
 * on how a prompt is cut.
 */
export function withCompany(hidden: Float32Array, width: number): Float32Array {
  const count = hidden.length / width;
  if (count % ATTENTION_ROWS !== 1) return hidden;
  const more = new Float32Array(hidden.length + width);
  more.set(hidden);
  more.set(hidden.subarray(hidden.length - width), hidden.length);
  return more;
}

const EMBED_ROWS = 64; // rows that the graph behind an embedding works on at a time

/**
 * rows (T, width) -> (T, hidden), by `run`, which has a few at a time. A single one gets company, as in withCompany.
 */
export async function afterTable(
  rows: Float32Array,
  width: number,
  hidden: number,
  run: (rows: Float32Array, count: number) => Promise<Float32Array>,
): Promise<Float32Array> {
  const count = rows.length / width;
  const made = new Float32Array(count * hidden);
  for (let first = 0; first < count; first += EMBED_ROWS) {
    const given = withCompany(rows.subarray(first * width, (first + EMBED_ROWS) * width), width);
    const result = await run(given, given.length / width);
    made.set(result.subarray(0, Math.min(EMBED_ROWS, count - first) * hidden), first * hidden);
  }
  return made;
}

/** The KV arrays of a run of units, in the order that graphs name them. */
export function kvArrays(units: readonly ManifestUnit[]): KvArray[] {
  return units.flatMap(({ kv }) =>
    kv.flatMap((pair) => {
      const { heads, headSize, window } = pair;
      const outputs = outputsOf(pair);
      const names = namesOf(pair);
      return names.map((name, at) => ({
        name,
        outputs: names.length === 1 ? outputs : outputs.slice(at, at + 1),
        heads,
        headSize,
        isWindowed: window !== null,
      }));
    }),
  );
}

/**
 * Where the values of each of `names` begin in a CachePart of `count` positions, and at which position. Raises an Error
 * for a foreign name.
 */
export function partsOf(
  arrays: readonly KvArray[],
  names: readonly string[],
  count: number,
  rows: KvRows,
): {
  readonly parts: readonly { readonly array: KvArray; readonly offset: number; readonly begin: number }[];
  readonly length: number;
} {
  let length = 0;
  const parts = names.map((name) => {
    const array = arrays.find((each) => each.name === name);
    if (array === undefined) throw new Error(`this shard has no array ${name}`);
    const offset = length;
    const begin = rows.begin(array, count);
    length += array.heads * (count - begin) * array.headSize;
    return { array, offset, begin };
  });
  return { parts, length };
}

/** The position at which a row that is written from these parts begins in its arrays with a window: the last of theirs. */
export function firstOfParts(arrays: readonly KvArray[], rows: KvRows, parts: readonly CachePart[]): number {
  return Math.max(
    0,
    ...parts.flatMap(({ names, have }) => partsOf(arrays, names, have, rows).parts.map(({ begin }) => begin)),
  );
}

/** Values of the widest head; 0 where nothing is cached. */
export function widestHead(arrays: readonly KvArray[]): number {
  return Math.max(0, ...arrays.map(({ headSize }) => headSize));
}

/** What a call says of arrays with a window. */
export interface WindowInputs {
  readonly seqlens: Int32Array<ArrayBuffer>; // (rows,): tokens in the arrays after the step - 1
  readonly total: number;
  readonly positions: BigInt64Array<ArrayBuffer>; // (rows, tokens)
}

/** For `tokens` behind `lengths` positions of rows, of which those before `firsts` were dropped. */
export function windowInputs(
  lengths: readonly number[],
  firsts: readonly number[],
  tokens: number,
): WindowInputs {
  const seqlens = Int32Array.from(lengths, (length, at) => length - (firsts[at] ?? 0) + tokens - 1);
  const positions = BigInt64Array.from({ length: lengths.length * tokens }, (_, at) =>
    BigInt((lengths[Math.floor(at / tokens)] ?? 0) + (at % tokens)),
  );
  return { seqlens, total: Math.max(...seqlens) + 1, positions };
}

/** cos and sin of each rotary table up to `positions`, as graphs name them, with their shape. */
export function rotaryFeeds(
  { rotary }: Dimensions,
  positions: number,
): { readonly name: string; readonly values: Float32Array; readonly shape: readonly [number, number] }[] {
  return rotary.flatMap((frequencies, table) => {
    const [cos, sin] = rotaryInputs(table);
    const tables = rotaryTables(frequencies, positions);
    const shape = [positions, frequencies.length] as const;
    return [
      { name: cos, values: tables.cos, shape },
      { name: sin, values: tables.sin, shape },
    ];
  });
}

export type Blobs = ReadonlyMap<string, Uint8Array>;

/** The bytes of a blob that must have been fetched. */
export function blobOf(blobs: Blobs, ref: BlobRef): Uint8Array {
  const found = blobs.get(ref.sha256);
  if (found?.length !== ref.bytes)
    throw new Error(`blob ${ref.sha256.slice(0, 12)} was not handed over whole`);
  return found;
}
