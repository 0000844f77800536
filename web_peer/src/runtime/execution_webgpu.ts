/*
 * A shard on WebGPU: weights as they are stored, KV arrays in buffers of the device, one for all rows. A bound
 * buffer starts at its beginning: a batch begins with row 0, and a prompt of another row runs on a copy.
 *
 * Rows of a batch have different numbers of positions before them; GroupQueryAttention takes each from `seqlens`.
 * Measured against each row alone (SwiftShader, two blocks): float32 weights equal to the bit, 8-bit weights within
 * 2e-5 of values up to 53, because the kernel for packed weights adds up in another order for several rows.
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
  blobOf,
  cacheNames,
  withCompany,
} from './execution';
import type { KvSlots, Move, Shape, Span } from './kv_slots';
import { type Architecture, kernelHeadSize } from '../planner/manifest';
import { giveBack } from '../model/release_arrays';
import { anglesOf, rotaryTables } from '../planner/shards';
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
  readonly weightBytes: number;
  private readonly architecture: Architecture;
  private readonly table: EmbeddingTable | null;
  private readonly sessions: Sessions;
  private readonly rotary: Readonly<Record<'cos' | 'sin', ort.Tensor>>;
  private readonly cache: KvBuffers;
  private slots: KvSlots | null = null;
  private gone: DeviceLost | null = null;
  private readonly running = new Set<(error: DeviceLost) => void>(); // how to end the calls under way

  private constructor(
    source: ShardSource,
    blobs: Blobs,
    context: number,
    sessions: Sessions,
    device: GPUDevice,
  ) {
    const { architecture, units } = source;
    const first = units[0];
    this.architecture = architecture;
    this.table =
      first?.kind === 'embed'
        ? new EmbeddingTable({ unit: first, blob: blobOf(blobs, first.blob) }, architecture.hidden)
        : null;
    this.sessions = sessions;
    this.weightBytes = sessions.bytes + (this.table?.bytes ?? 0);
    this.cache = new KvBuffers(device, cacheNames(units), architecture);
    void goneOf(device).then((error) => {
      this.gone = error;
      for (const end of this.running) end(error);
    });
    const tables = rotaryTables(architecture, context + 1);
    const shape = [context + 1, anglesOf(architecture)];
    this.rotary = {
      cos: new ort.Tensor('float32', tables.cos, shape),
      sin: new ort.Tensor('float32', tables.sin, shape),
    };
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
    return new WebGpuExecution(source, blobs, context, sessions, device);
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

  copied(row: number, count: number): KvCopy {
    return this.cache.copied(row, count);
  }

  put(row: number, copy: KvCopy): void {
    if (copy instanceof BuffersCopy) this.cache.put(row, copy);
  }

  read(row: number, count: number, names: readonly string[]): Promise<Float32Array<ArrayBuffer>> {
    return this.cache.read(row, count, names);
  }

  write(row: number, count: number, part: CachePart): void {
    this.cache.write(row, count, part);
  }

  embed(tokens: Int32Array): Float32Array {
    if (this.table === null) throw new Error('this shard has no embedding');
    return this.table.rows(tokens);
  }

  /** Rows before `span` ride along: what they write is behind what they have, and is overwritten. */
  async decode(hidden: Float32Array, span: Span, lengths: readonly number[]): Promise<Float32Array> {
    const width = this.architecture.hidden;
    const before = Array.from({ length: span.start }, (_, row) => this.slots?.lengthOfRow(row) ?? 0);
    const all = new Float32Array(span.stop * width);
    all.set(hidden, span.start * width);
    const made = await this.run(all, 1, [...before, ...lengths], this.cache.tensors(span.stop));
    return made.subarray(span.start * width);
  }

  async prompt(hidden: Float32Array, row: number, length: number): Promise<Float32Array> {
    const given = withCompany(hidden, this.architecture.hidden);
    const tokens = given.length / this.architecture.hidden;
    const cached = row === 0 ? this.cache.tensors(1) : this.cache.lend(row);
    const result = await this.run(given, tokens, [length], cached);
    if (row !== 0) this.cache.takeBack(row);
    return result.subarray(0, hidden.length);
  }

  async head(hidden: Float32Array): Promise<Float32Array> {
    if (this.sessions.head === null) throw new Error('this shard has no head');
    const shape = [hidden.length / this.architecture.hidden, this.architecture.hidden];
    const found = await this.orLost(
      this.sessions.head.run({ hidden: new ort.Tensor('float32', hidden, shape) }),
    );
    return floatsOf(found['logits']);
  }

  close(): void {
    this.cache.close();
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
      hidden: new ort.Tensor('float32', hidden, [rows, tokens, this.architecture.hidden]),
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

interface Sessions {
  readonly body: ort.InferenceSession | null;
  readonly head: ort.InferenceSession | null;
  readonly bytes: number;
}

async function loadSessions(source: ShardSource, blobs: Blobs): Promise<Sessions> {
  const { architecture, graphs, units } = source;
  const external = (kinds: readonly string[]): { path: string; data: Uint8Array }[] =>
    units
      .filter((unit) => kinds.includes(unit.kind))
      .flatMap((unit) => {
        const held = { unit, blob: blobOf(blobs, unit.blob) };
        return [...locationsOf(unit, 'webgpu', architecture).keys()].map((tensor) => ({
          path: `${unit.name}/${tensor}`,
          data: weightBytes(held, tensor, 'webgpu', architecture),
        }));
      });
  const load = async (
    graph: Uint8Array,
    kinds: readonly string[],
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
  const [body, bodyBytes] = graphs.body === null ? [null, 0] : await load(graphs.body, ['attn', 'ffn']);
  const embedded = units.find((unit) => unit.kind === 'embed')?.blob.sha256;
  for (const [sha256, blob] of blobs) if (sha256 !== embedded) giveBack(blob); // the device has it
  return { body, head, bytes: headBytes + bodyBytes };
}

type Buffers = ReadonlyMap<string, GPUBuffer>;

/** Per KV name a buffer float32 (kvHeads, count, kernelHeadSize). */
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

/** Per KV name a buffer float32 (rows, kvHeads, capacity, kernelHeadSize). */
class KvBuffers {
  shape: Shape = { rows: 0, capacity: 0 };
  private readonly device: GPUDevice;
  private readonly names: readonly string[];
  private readonly heads: number;
  private readonly size: number;
  private readonly arrays = new Map<string, GPUBuffer>();
  private readonly lent = new Map<string, GPUBuffer>(); // one row, once one is needed

  constructor(device: GPUDevice, names: readonly string[], a: Architecture) {
    this.device = device;
    this.names = names;
    this.heads = a.kvHeads;
    this.size = kernelHeadSize(a);
  }

  get bytes(): number {
    const rows = this.shape.rows + (this.lent.size > 0 ? 1 : 0);
    return rows * this.names.length * this.rowBytes(this.shape);
  }

  grow(shape: Shape, lengthOf: (row: number) => number): void {
    if (shape.capacity === this.shape.capacity && shape.rows === this.shape.rows) return;
    const encoder = this.device.createCommandEncoder();
    const old = [...this.arrays.values(), ...this.lent.values()];
    this.lent.clear();
    for (const name of this.names) {
      const fresh = this.buffer(shape.rows * this.rowBytes(shape));
      const from = this.arrays.get(name);
      for (let row = 0; from !== undefined && row < this.shape.rows; row++) {
        for (let head = 0; head < this.heads && lengthOf(row) > 0; head++) {
          const at = 4 * (row * this.heads + head) * this.shape.capacity * this.size;
          const to = 4 * (row * this.heads + head) * shape.capacity * this.size;
          encoder.copyBufferToBuffer(from, at, fresh, to, 4 * lengthOf(row) * this.size);
        }
      }
      this.arrays.set(name, fresh);
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
    return this.of(this.arrays, rows);
  }

  /** A copy of one row, to be taken back. */
  lend(row: number): [string, ort.Tensor][] {
    const size = this.rowBytes(this.shape);
    if (this.lent.size === 0) for (const name of this.names) this.lent.set(name, this.buffer(size));
    this.copy(this.arrays, row, this.lent, 0);
    return this.of(this.lent, 1);
  }

  takeBack(row: number): void {
    this.copy(this.lent, 0, this.arrays, row);
  }

  copied(row: number, count: number): BuffersCopy {
    const bytes = 4 * this.heads * count * this.size;
    const buffers = new Map(this.names.map((name) => [name, this.buffer(bytes)]));
    this.eachHead(buffers, row, count, (encoder, array, at, copy, to, size) =>
      encoder.copyBufferToBuffer(array, at, copy, to, size),
    );
    return new BuffersCopy(count, buffers, bytes * this.names.length);
  }

  put(row: number, { buffers, count }: BuffersCopy): void {
    this.eachHead(buffers, row, count, (encoder, array, at, copy, from, size) =>
      encoder.copyBufferToBuffer(copy, from, array, at, size),
    );
  }

  async read(row: number, count: number, names: readonly string[]): Promise<Float32Array<ArrayBuffer>> {
    const bytes = 4 * count * this.size;
    const size = names.length * this.heads * bytes;
    const staged = this.device.createBuffer({ size, usage: MAP_READ | COPY_DST });
    const encoder = this.device.createCommandEncoder();
    names.forEach((name, place) => {
      const array = this.arrays.get(name);
      for (let head = 0; head < this.heads && array !== undefined; head++) {
        const to = (place * this.heads + head) * bytes;
        encoder.copyBufferToBuffer(array, this.offset(row, head), staged, to, bytes);
      }
    });
    this.device.queue.submit([encoder.finish()]);
    try {
      await staged.mapAsync(MAP_READ);
      return new Float32Array(staged.getMappedRange().slice(0));
    } finally {
      staged.destroy();
    }
  }

  write(row: number, count: number, { names, have, values }: CachePart): void {
    names.forEach((name, place) => {
      const array = this.arrays.get(name);
      for (let head = 0; head < this.heads && array !== undefined; head++) {
        const at = (place * this.heads + head) * have * this.size;
        this.device.queue.writeBuffer(array, this.offset(row, head), values, at, count * this.size);
      }
    });
  }

  private offset(row: number, head: number): number {
    return 4 * (row * this.heads + head) * this.shape.capacity * this.size;
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
    const bytes = 4 * count * this.size;
    for (const [name, array] of this.arrays) {
      const copy = copies.get(name);
      for (let head = 0; head < this.heads && copy !== undefined; head++) {
        const at = this.offset(row, head);
        take(encoder, array, at, copy, head * bytes, bytes);
      }
    }
    this.device.queue.submit([encoder.finish()]);
  }

  close(): void {
    for (const buffer of [...this.arrays.values(), ...this.lent.values()]) buffer.destroy();
    this.arrays.clear();
    this.lent.clear();
    this.shape = { rows: 0, capacity: 0 };
  }

  private copy(from: Buffers, row: number, to: Buffers, at: number): void {
    const encoder = this.device.createCommandEncoder();
    const bytes = this.rowBytes(this.shape);
    for (const [name, buffer] of from) {
      const target = to.get(name);
      if (target !== undefined) encoder.copyBufferToBuffer(buffer, row * bytes, target, at * bytes, bytes);
    }
    this.device.queue.submit([encoder.finish()]);
  }

  private of(arrays: Buffers, rows: number): [string, ort.Tensor][] {
    const dims = [rows, this.heads, this.shape.capacity, this.size];
    return [...arrays].map(([name, buffer]) => [
      name,
      ort.Tensor.fromGpuBuffer(buffer, { dataType: 'float32', dims }),
    ]);
  }

  private buffer(size: number): GPUBuffer {
    return this.device.createBuffer({ size, usage: STORAGE | COPY_SRC | COPY_DST });
  }

  private rowBytes(shape: Shape): number {
    return 4 * this.heads * shape.capacity * this.size;
  }
}
