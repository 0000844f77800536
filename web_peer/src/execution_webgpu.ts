/*
 * A shard on WebGPU: weights as they are stored, KV arrays in buffers of the device. A buffer of its own for every
 * row of every array, because a bound buffer starts at its beginning: rows run one after another, and move for free.
 */

import * as ort from 'onnxruntime-web/webgpu';
import wasmUrl from 'onnxruntime-web/ort-wasm-simd-threaded.asyncify.wasm?url';

import { DeviceLost } from './errors';
import type { Blobs, Execution, ShardSource } from './execution';
import { blobOf, cacheNames, withCompany } from './execution';
import type { KvSlots, Move, Shape, Span } from './kv_slots';
import type { Architecture } from './manifest';
import { rotaryTables } from './shards';
import { EmbeddingTable, locationsOf, weightBytes } from './weights';

// GPUBufferUsage, which the compiler's types lack.
const COPY_SRC = 4;
const COPY_DST = 8;
const STORAGE = 128;

const LOSS_KNOWN_MS = 1000; // between a call that breaks off and the word that its device is gone

export class WebGpuExecution implements Execution {
  readonly provider = 'webgpu';
  readonly overheadBytes = 0; // the device tells nobody
  readonly weightBytes: number;
  private readonly architecture: Architecture;
  private readonly table: EmbeddingTable | null;
  private readonly sessions: Sessions;
  private readonly rotary: Readonly<Record<'cos' | 'sin', ort.Tensor>>;
  private readonly cache: KvBuffers;
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
    const shape = [context + 1, architecture.ropeDims / 2];
    this.rotary = {
      cos: new ort.Tensor('float32', tables.cos, shape),
      sin: new ort.Tensor('float32', tables.sin, shape),
    };
  }

  /** `lost` is called when the device is gone. Raises an Error where there is no adapter or it refuses the graphs. */
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
    this.cache.grow(slots.grown(this.cache.shape, rows, positions), (row) => slots.lengthOfRow(row));
  }

  move(move: Move): void {
    this.cache.move(move);
  }

  embed(tokens: Int32Array): Float32Array {
    if (this.table === null) throw new Error('this shard has no embedding');
    return this.table.rows(tokens);
  }

  async decode(hidden: Float32Array, span: Span, lengths: readonly number[]): Promise<Float32Array> {
    const width = this.architecture.hidden;
    const made = new Float32Array(hidden.length);
    for (let row = span.start; row < span.stop; row++) {
      const at = (row - span.start) * width;
      const one = hidden.slice(at, at + width);
      made.set(await this.run(one, row, lengths[row - span.start] ?? 0), at);
    }
    return made;
  }

  async prompt(hidden: Float32Array, row: number, length: number): Promise<Float32Array> {
    const result = await this.run(withCompany(hidden, this.architecture.hidden), row, length);
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

  private async run(hidden: Float32Array, row: number, length: number): Promise<Float32Array> {
    if (this.sessions.body === null) return hidden;
    const tokens = hidden.length / this.architecture.hidden;
    const cached = this.cache.tensors(row);
    const feeds: Record<string, ort.Tensor> = {
      hidden: new ort.Tensor('float32', hidden, [1, tokens, this.architecture.hidden]),
      seqlens: new ort.Tensor('int32', Int32Array.of(length + tokens - 1), [1]),
      total: new ort.Tensor('int32', Int32Array.of(length + tokens), [1]),
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
    return [session, externalData.reduce((sum, { data }) => sum + data.length, 0)];
  };
  const [head, headBytes] = graphs.head === null ? [null, 0] : await load(graphs.head, ['head']);
  const [body, bodyBytes] = graphs.body === null ? [null, 0] : await load(graphs.body, ['attn', 'ffn']);
  return { body, head, bytes: headBytes + bodyBytes };
}

/** Per row and KV name a buffer float32 (1, kvHeads, capacity, headSize). */
class KvBuffers {
  shape: Shape = { rows: 0, capacity: 0 };
  private readonly device: GPUDevice;
  private readonly names: readonly string[];
  private readonly heads: number;
  private readonly size: number;
  private rows: Map<string, GPUBuffer>[] = [];

  constructor(device: GPUDevice, names: readonly string[], a: Architecture) {
    this.device = device;
    this.names = names;
    this.heads = a.kvHeads;
    this.size = a.headSize;
  }

  get bytes(): number {
    return this.shape.rows * this.names.length * this.bufferBytes(this.shape);
  }

  grow(shape: Shape, lengthOf: (row: number) => number): void {
    if (shape.capacity !== this.shape.capacity) {
      this.rows.forEach((row, at) => this.widen(row, shape, lengthOf(at)));
    }
    for (let row = this.rows.length; row < shape.rows; row++) {
      this.rows.push(new Map(this.names.map((name) => [name, this.buffer(shape)])));
    }
    this.shape = shape;
  }

  /** The source row's buffers become the target's; what the target held is free to be overwritten. */
  move({ source, target }: Move): void {
    const moved = this.rows[source];
    const freed = this.rows[target];
    if (moved === undefined || freed === undefined) return;
    this.rows[target] = moved;
    this.rows[source] = freed;
  }

  tensors(row: number): [string, ort.Tensor][] {
    const dims = [1, this.heads, this.shape.capacity, this.size];
    return [...(this.rows[row] ?? [])].map(([name, buffer]) => {
      return [name, ort.Tensor.fromGpuBuffer(buffer, { dataType: 'float32', dims })];
    });
  }

  close(): void {
    for (const row of this.rows.splice(0)) for (const buffer of row.values()) buffer.destroy();
    this.shape = { rows: 0, capacity: 0 };
  }

  private widen(row: Map<string, GPUBuffer>, shape: Shape, length: number): void {
    const encoder = this.device.createCommandEncoder();
    const old = [...row.values()];
    for (const [name, buffer] of row) {
      const fresh = this.buffer(shape);
      for (let head = 0; head < this.heads && length > 0; head++) {
        const from = 4 * head * this.shape.capacity * this.size;
        const to = 4 * head * shape.capacity * this.size;
        encoder.copyBufferToBuffer(buffer, from, fresh, to, 4 * length * this.size);
      }
      row.set(name, fresh);
    }
    this.device.queue.submit([encoder.finish()]);
    for (const buffer of old) buffer.destroy();
  }

  private buffer(shape: Shape): GPUBuffer {
    return this.device.createBuffer({ size: this.bufferBytes(shape), usage: STORAGE | COPY_SRC | COPY_DST });
  }

  private bufferBytes(shape: Shape): number {
    return 4 * this.heads * shape.capacity * this.size;
  }
}
