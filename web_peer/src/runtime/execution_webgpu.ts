/*
 * A shard on WebGPU: weights as they are stored, KV arrays in buffers of the device, one for all rows. A bound
 * buffer starts at its beginning: a batch begins with row 0, and a prompt of another row runs on a copy.
 *
 * Rows of a batch have different numbers of positions before them; GroupQueryAttention takes each from `seqlens`.
 * Measured against each row alone (SwiftShader, two blocks): float32 weights equal to the bit, 8-bit weights within
 * 2e-5 of values up to 53, because the kernel for packed weights adds up in another order for several rows.
 *
 * No array has a window: lowering refuses those on a GPU.
 */

import * as ort from 'onnxruntime-web/webgpu';
import wasmUrl from 'onnxruntime-web/ort-wasm-simd-threaded.asyncify.wasm?url';

import { DeviceLost } from '../errors';
import {
  type Blobs,
  type CachePart,
  type Execution,
  type KvCopy,
  type ShardSource,
  afterTable,
  blobOf,
  kvArrays,
  partsOf,
  rotaryFeeds,
  widestHead,
  withCompany,
} from './execution';
import { type KvArray, KvRows, type KvSlots, type Move, type Shape, type Span } from './kv_slots';
import type { Dimensions, UnitKind } from '../planner/manifest';
import { giveBack } from '../model/release_arrays';
import { EmbeddingTable, locationsOf, weightBytes } from './weight_unpacking';

// GPUBufferUsage, which the compiler's types lack.
const COPY_SRC = 4;
const COPY_DST = 8;
const STORAGE = 128;
const MAP_READ = 1; // also GPUMapMode.READ

const LOSS_KNOWN_MS = 1000; // between a call that breaks off and the word that its device is gone

/** Runs the units of a shard on the GPU. */
export class WebGpuExecution implements Execution {
  readonly provider = 'webgpu';
  readonly overheadBytes = 0; // the device tells nobody
  readonly widestHead: number;
  private readonly shared: SharedWeights;
  private readonly dimensions: Dimensions;
  private readonly table: EmbeddingTable | null;
  private readonly sessions: Sessions;
  private readonly rotary: Readonly<Record<string, ort.Tensor>>;
  private readonly cache: KvBuffers;
  private slots: KvSlots | null = null;
  private gone: DeviceLost | null = null;
  private readonly running = new Set<(error: DeviceLost) => void>(); // how to end the calls under way

  private constructor(
    source: Pick<ShardSource, 'dimensions' | 'units'>,
    context: number,
    shared: SharedWeights,
  ) {
    const { dimensions, units } = source;
    const { table, sessions, device, users } = shared;
    users.add(this);
    this.shared = shared;
    this.dimensions = dimensions;
    this.table = table;
    this.sessions = sessions;
    const arrays = kvArrays(units);
    this.widestHead = widestHead(arrays);
    this.cache = new KvBuffers(device, arrays);
    void goneOf(device).then((error) => {
      this.gone = error;
      for (const end of this.running) end(error);
    });
    this.rotary = Object.fromEntries(
      rotaryFeeds(dimensions, context + 1).map(({ name, values, shape }) => [
        name,
        new ort.Tensor('float32', values, shape),
      ]),
    );
  }

  /**
   * `blobs` are given up, but for the embedding's. `lost` is called when the device is gone. Raises an Error where
   * there is no adapter or it refuses the graphs.
   */
  static async load(
    source: ShardSource,
    blobs: Blobs,
    context: number,
    lost: (text: string) => void,
  ): Promise<WebGpuExecution> {
    ort.env.wasm.wasmPaths = { wasm: wasmUrl };
    ort.env.wasm.numThreads = 1;
    const sessions = await loadSessions(source, blobs);
    const device = await ort.env.webgpu.device;
    void goneOf(device).then(({ message }) => lost(message));
    const { table: place } = source.graphs;
    const table = place === null ? null : new EmbeddingTable(place, blobOf(blobs, place.unit.blob));
    return new WebGpuExecution(source, context, { table, sessions, device, users: new Set() });
  }

  /** Another one of equal units, with these weights and caches of its own. One of them is called at a time. */
  beside(source: Pick<ShardSource, 'dimensions' | 'units'>, context: number): WebGpuExecution {
    return new WebGpuExecution(source, context, this.shared);
  }

  /** Told of by the first that uses them. */
  get weightBytes(): number {
    const { users, sessions, table } = this.shared;
    const [first] = users;
    return first === this ? sessions.bytes + (table?.bytes ?? 0) : 0;
  }

  get hasEmbed(): boolean {
    return this.table !== null;
  }

  get hasHead(): boolean {
    return this.sessions.head !== null;
  }

  get kvBytes(): number {
    return this.cache.bytes;
  }

  ensure(slots: KvSlots, rows: number, positions: number): void {
    this.slots = slots;
    const each = Array.from({ length: rows }, (_, row) => slots.lengthOfRow(row) + 1);
    this.cache.grow(slots.grown(this.cache.shape, rows, Math.max(positions, ...each)), (row) =>
      slots.lengthOfRow(row),
    );
  }

  move(move: Move): void {
    this.cache.move(move);
  }

  holds(): boolean {
    return true;
  }

  copied(row: number, count: number): KvCopy {
    return this.cache.copied(row, count);
  }

  put(row: number, copy: KvCopy): void {
    if (copy instanceof BuffersCopy) this.cache.put(row, copy);
  }

  read(row: number, count: number, names: readonly string[]): Promise<Float32Array<ArrayBuffer>> {
    return this.cache.read(row, count, names);
  }

  write(row: number, count: number, parts: readonly CachePart[]): boolean {
    for (const part of parts) this.cache.write(row, count, part);
    return true;
  }

  async embed(tokens: Int32Array): Promise<Float32Array> {
    if (this.table === null) throw new Error('this shard has no embedding');
    const rows = this.table.rows(tokens);
    const session = this.sessions.embed;
    if (session === null) return rows;
    const { columns } = this.table;
    return afterTable(rows, columns, this.dimensions.hidden, (given, count) =>
      this.runRows(session, 'hidden.out', given, count),
    );
  }

  /** Rows before `span` ride along: what they write is behind what they have, and is overwritten. */
  async decode(hidden: Float32Array, span: Span, lengths: readonly number[]): Promise<Float32Array> {
    const width = this.dimensions.hidden;
    const before = Array.from({ length: span.start }, (_, row) => this.slots?.lengthOfRow(row) ?? 0);
    const all = new Float32Array(span.stop * width);
    all.set(hidden, span.start * width);
    const made = await this.run(all, 1, [...before, ...lengths], this.cache.tensors(span.stop));
    return made.subarray(span.start * width);
  }

  async prompt(hidden: Float32Array, row: number, length: number): Promise<Float32Array> {
    const given = withCompany(hidden, this.dimensions.hidden);
    const tokens = given.length / this.dimensions.hidden;
    const cached = row === 0 ? this.cache.tensors(1) : this.cache.lend(row);
    const result = await this.run(given, tokens, [length], cached);
    if (row !== 0) this.cache.takeBack(row);
    return result.subarray(0, hidden.length);
  }

  async head(hidden: Float32Array): Promise<Float32Array> {
    if (this.sessions.head === null) throw new Error('this shard has no head');
    return this.runRows(this.sessions.head, 'logits', hidden, hidden.length / this.dimensions.hidden);
  }

  close(): void {
    this.shared.users.delete(this);
    this.cache.close();
  }

  /** (rows, …) through a graph without a cache, whose output is `output`. */
  private async runRows(
    session: ort.InferenceSession,
    output: string,
    hidden: Float32Array,
    rows: number,
  ): Promise<Float32Array> {
    const given = new ort.Tensor('float32', hidden, [rows, hidden.length / rows]);
    const found = await this.orLost(session.run({ hidden: given }));
    return floatsOf(found[output]);
  }

  /** `tokens` of each row that has one of `lengths` before them. */
  private async run(
    hidden: Float32Array,
    tokens: number,
    lengths: readonly number[],
    cached: readonly [string, ort.Tensor][],
  ): Promise<Float32Array> {
    if (this.sessions.body === null) return hidden;
    const rows = lengths.length;
    const last = lengths.map((length) => length + tokens - 1);
    const feeds: Record<string, ort.Tensor> = {
      hidden: new ort.Tensor('float32', hidden, [rows, tokens, this.dimensions.hidden]),
      seqlens: new ort.Tensor('int32', Int32Array.from(last), [rows]),
      total: new ort.Tensor('int32', Int32Array.of(Math.max(...last) + 1), [1]),
      ...this.rotary,
    };
    const fetches: Record<string, ort.Tensor | null> = { 'hidden.out': null };
    for (const [name, tensor] of cached) {
      feeds[name] = tensor;
      fetches[`${name}.out`] = tensor;
    }
    const found = await this.orLost(this.sessions.body.run(feeds, fetches));
    return floatsOf(found['hidden.out']);
  }

  /** What `run` gives. Raises DeviceLost when the device is gone, however the call took that, even if it hangs. */
  private orLost<T>(run: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      if (this.gone !== null) {
        reject(this.gone);
        return;
      }
      this.running.add(reject);
      run.then(
        (result) => {
          this.running.delete(reject);
          resolve(result);
        },
        (error: unknown) => {
          setTimeout(() => {
            this.running.delete(reject);
            reject(error instanceof Error ? error : new Error(String(error)));
          }, LOSS_KNOWN_MS);
        },
      );
    });
  }
}

function goneOf(device: GPUDevice): Promise<DeviceLost> {
  return device.lost.then(
    (info) => new DeviceLost(`the GPU device is gone: ${info.message || info.reason}`),
    (error: unknown) => new DeviceLost(String(error)),
  );
}

function floatsOf(tensor: ort.Tensor | undefined): Float32Array {
  if (!(tensor?.data instanceof Float32Array)) throw new Error('float32 expected from the graph');
  return tensor.data;
}

/** What several executions of equal units compute with; it ends with the worker. */
interface SharedWeights {
  readonly table: EmbeddingTable | null;
  readonly sessions: Sessions;
  readonly device: GPUDevice;
  readonly users: Set<WebGpuExecution>;
}

interface Sessions {
  readonly embed: ort.InferenceSession | null;
  readonly body: ort.InferenceSession | null;
  readonly head: ort.InferenceSession | null;
  readonly bytes: number;
}

async function loadSessions(source: ShardSource, blobs: Blobs): Promise<Sessions> {
  const { graphs, units } = source;
  const external = (kinds: readonly UnitKind[]): { path: string; data: Uint8Array }[] =>
    units
      .filter((unit) => kinds.includes(unit.kind))
      .flatMap((unit) => {
        const held = { unit, blob: blobOf(blobs, unit.blob) };
        return locationsOf(graphs, unit).map((location) => ({
          path: `${unit.name}/${location.tensor}`,
          data: weightBytes(held, location),
        }));
      });
  const load = async (
    graph: Uint8Array,
    kinds: readonly UnitKind[],
  ): Promise<[ort.InferenceSession, number]> => {
    const externalData = external(kinds);
    const session = await ort.InferenceSession.create(graph, {
      executionProviders: ['webgpu'],
      externalData,
      preferredOutputLocation: 'cpu',
    });
    const bytes = externalData.reduce((sum, { data }) => sum + data.length, 0);
    const stored = new Set([...blobs.values()].map(({ buffer }) => buffer));
    for (const { data } of externalData) if (!stored.has(data.buffer)) giveBack(data); // what was made of it
    return [session, bytes];
  };
  const [head, headBytes] = graphs.head === null ? [null, 0] : await load(graphs.head, ['head']);
  const [embed, embedBytes] = graphs.embed === null ? [null, 0] : await load(graphs.embed, ['embed']);
  const [body, bodyBytes] = graphs.body === null ? [null, 0] : await load(graphs.body, ['attn', 'ffn']);
  const embedded = graphs.table?.unit.blob.sha256;
  for (const [sha256, blob] of blobs) if (sha256 !== embedded) giveBack(blob); // the device has it
  return { embed, body, head, bytes: headBytes + embedBytes + bodyBytes };
}

type Buffers = ReadonlyMap<string, GPUBuffer>;

/** Per KV name a buffer float32 (heads, count, headSize). */
class BuffersCopy implements KvCopy {
  readonly bytes: number;
  readonly count: number;
  readonly buffers: Buffers;

  constructor(count: number, buffers: Buffers, bytes: number) {
    this.count = count;
    this.buffers = buffers;
    this.bytes = bytes;
  }

  free(): void {
    for (const buffer of this.buffers.values()) buffer.destroy();
  }
}

/** Each array is a buffer float32 (rows, heads, capacity, headSize). */
class KvBuffers {
  shape: Shape = { rows: 0, capacity: 0 };
  private readonly device: GPUDevice;
  private readonly arrays: readonly KvArray[];
  private readonly buffers = new Map<string, GPUBuffer>();
  private readonly rows: KvRows;
  private readonly lent = new Map<string, GPUBuffer>(); // one row, once one is needed

  constructor(device: GPUDevice, arrays: readonly KvArray[]) {
    this.device = device;
    this.arrays = arrays;
    this.rows = new KvRows(arrays, null);
  }

  get bytes(): number {
    const rows = this.shape.rows + (this.lent.size > 0 ? 1 : 0);
    return this.arrays.reduce((sum, array) => sum + rows * rowBytes(array, this.shape), 0);
  }

  grow(shape: Shape, lengthOf: (row: number) => number): void {
    if (shape.capacity === this.shape.capacity && shape.rows === this.shape.rows) return;
    const encoder = this.device.createCommandEncoder();
    const old = [...this.buffers.values(), ...this.lent.values()];
    this.lent.clear();
    for (const array of this.arrays) {
      const { name, heads, headSize } = array;
      const fresh = this.buffer(shape.rows * rowBytes(array, shape));
      const from = this.buffers.get(name);
      for (let row = 0; from !== undefined && row < this.shape.rows; row++) {
        for (let head = 0; head < heads && lengthOf(row) > 0; head++) {
          const at = 4 * (row * heads + head) * this.shape.capacity * headSize;
          const to = 4 * (row * heads + head) * shape.capacity * headSize;
          encoder.copyBufferToBuffer(from, at, fresh, to, 4 * lengthOf(row) * headSize);
        }
      }
      this.buffers.set(name, fresh);
    }
    this.device.queue.submit([encoder.finish()]);
    for (const buffer of old) buffer.destroy();
    this.shape = shape;
  }

  /** By way of the lent row: a buffer is not copied into itself. */
  move({ source, target }: Move): void {
    this.lend(source);
    this.takeBack(target);
  }

  /** Of the first `rows` rows. */
  tensors(rows: number): [string, ort.Tensor][] {
    return this.of(this.buffers, rows);
  }

  /** A copy of one row, to be taken back. */
  lend(row: number): [string, ort.Tensor][] {
    if (this.lent.size === 0) {
      for (const array of this.arrays) this.lent.set(array.name, this.buffer(rowBytes(array, this.shape)));
    }
    this.copy(this.buffers, row, this.lent, 0);
    return this.of(this.lent, 1);
  }

  takeBack(row: number): void {
    this.copy(this.lent, 0, this.buffers, row);
  }

  copied(row: number, count: number): BuffersCopy {
    let bytes = 0;
    const buffers = new Map<string, GPUBuffer>();
    for (const { name, heads, headSize } of this.arrays) {
      const size = 4 * heads * count * headSize;
      buffers.set(name, this.buffer(size));
      bytes += size;
    }
    this.eachHead(buffers, row, count, (encoder, array, at, copy, to, size) =>
      encoder.copyBufferToBuffer(array, at, copy, to, size),
    );
    return new BuffersCopy(count, buffers, bytes);
  }

  put(row: number, { buffers, count }: BuffersCopy): void {
    this.eachHead(buffers, row, count, (encoder, array, at, copy, from, size) =>
      encoder.copyBufferToBuffer(copy, from, array, at, size),
    );
  }

  async read(row: number, count: number, names: readonly string[]): Promise<Float32Array<ArrayBuffer>> {
    const { parts, length } = partsOf(this.arrays, names, count, this.rows);
    const staged = this.device.createBuffer({ size: 4 * length, usage: MAP_READ | COPY_DST });
    const encoder = this.device.createCommandEncoder();
    for (const { array, offset } of parts) {
      const buffer = this.buffers.get(array.name);
      const bytes = 4 * count * array.headSize;
      for (let head = 0; head < array.heads && buffer !== undefined; head++) {
        const to = 4 * offset + head * bytes;
        encoder.copyBufferToBuffer(buffer, this.offset(array, row, head), staged, to, bytes);
      }
    }
    this.device.queue.submit([encoder.finish()]);
    try {
      await staged.mapAsync(MAP_READ);
      return new Float32Array(staged.getMappedRange().slice(0));
    } finally {
      staged.destroy();
    }
  }

  write(row: number, count: number, { names, have, values }: CachePart): void {
    for (const { array, offset } of partsOf(this.arrays, names, have, this.rows).parts) {
      const buffer = this.buffers.get(array.name);
      for (let head = 0; head < array.heads && buffer !== undefined; head++) {
        const at = offset + head * have * array.headSize;
        const size = count * array.headSize;
        this.device.queue.writeBuffer(buffer, this.offset(array, row, head), values, at, size);
      }
    }
  }

  close(): void {
    for (const buffer of [...this.buffers.values(), ...this.lent.values()]) buffer.destroy();
    this.buffers.clear();
    this.lent.clear();
    this.shape = { rows: 0, capacity: 0 };
  }

  private offset({ heads, headSize }: KvArray, row: number, head: number): number {
    return 4 * (row * heads + head) * this.shape.capacity * headSize;
  }

  /** The first `count` positions of each head of a row, and where they lie in `copies`. */
  private eachHead(
    copies: Buffers,
    row: number,
    count: number,
    take: (
      ...part: [
        encoder: GPUCommandEncoder,
        array: GPUBuffer,
        at: number,
        copy: GPUBuffer,
        from: number,
        bytes: number,
      ]
    ) => void,
  ): void {
    const encoder = this.device.createCommandEncoder();
    for (const array of this.arrays) {
      const buffer = this.buffers.get(array.name);
      const copy = copies.get(array.name);
      if (buffer === undefined || copy === undefined) continue;
      const bytes = 4 * count * array.headSize;
      for (let head = 0; head < array.heads; head++) {
        take(encoder, buffer, this.offset(array, row, head), copy, head * bytes, bytes);
      }
    }
    this.device.queue.submit([encoder.finish()]);
  }

  private copy(from: Buffers, row: number, to: Buffers, at: number): void {
    const encoder = this.device.createCommandEncoder();
    for (const array of this.arrays) {
      const bytes = rowBytes(array, this.shape);
      const source = from.get(array.name);
      const target = to.get(array.name);
      if (source !== undefined && target !== undefined) {
        encoder.copyBufferToBuffer(source, row * bytes, target, at * bytes, bytes);
      }
    }
    this.device.queue.submit([encoder.finish()]);
  }

  private of(buffers: Buffers, rows: number): [string, ort.Tensor][] {
    return this.arrays.flatMap(({ name, heads, headSize }) => {
      const buffer = buffers.get(name);
      const dims = [rows, heads, this.shape.capacity, headSize];
      return buffer === undefined
        ? []
        : [[name, ort.Tensor.fromGpuBuffer(buffer, { dataType: 'float32', dims })]];
    });
  }

  private buffer(size: number): GPUBuffer {
    return this.device.createBuffer({ size, usage: STORAGE | COPY_SRC | COPY_DST });
  }
}

function rowBytes({ heads, headSize }: KvArray, { capacity }: Shape): number {
  return 4 * heads * capacity * headSize;
}
