/*
 * A shard on WebAssembly: float32 weights that onnxruntime takes from the packed blobs one tensor at a time, and KV
 * arrays in the module's memory that attention updates in place.
 */

import {
  type Blobs,
  type CachePart,
  type Execution,
  KEPT_CALLS,
  type KvCopy,
  type ShardSource,
  blobOf,
  cacheNames,
  withCompany,
} from './execution';
import type { KvSlots, Move, Shape, Span } from './kv_slots';
import { type Architecture, kernelHeadSize } from '../planner/manifest';
import { giveBack } from '../model/release_arrays';
import { PassingTensors } from './tensor_lending';
import { anglesOf, rotaryTables } from '../planner/shards';
import { FLOAT32, INT32, type WasmCall, WasmModule } from './wasm_module';
import { EmbeddingTable, locationsOf, rowsAt, weightBytes } from './weight_unpacking';

/** Buffers of one call shape (rows, tokens), bound once and used again. */
interface Prepared {
  readonly call: WasmCall;
  readonly hidden: number;
  readonly result: number;
  readonly seqlens: number; // rows of them, then the total
  readonly tensors: readonly number[];
}

/** Runs the units of a shard with onnxruntime's WebAssembly. */
export class WasmExecution implements Execution {
  readonly provider = 'wasm';
  readonly weightBytes: number;
  private readonly module: WasmModule;
  private readonly architecture: Architecture;
  private readonly table: EmbeddingTable | null;
  private readonly body: number | null;
  private readonly headSession: number | null;
  private readonly rotary: readonly {
    readonly name: string;
    readonly tensor: number;
    readonly pointer: number;
  }[];
  private readonly cache: KvArrays;
  private readonly bodyCalls = new Map<string, Prepared>();
  private readonly headCalls = new Map<number, Prepared>();

  private constructor(
    module: WasmModule,
    source: ShardSource,
    blobs: Blobs,
    context: number,
    loaded: Loaded,
  ) {
    this.module = module;
    this.architecture = source.architecture;
    const first = source.units[0];
    this.table =
      first?.kind === 'embed'
        ? new EmbeddingTable({ unit: first, blob: blobOf(blobs, first.blob) }, source.architecture.hidden)
        : null;
    this.body = loaded.body;
    this.headSession = loaded.head;
    this.weightBytes = loaded.bytes + (this.table?.bytes ?? 0);
    this.cache = new KvArrays(module, cacheNames(source.units), source.architecture);
    const tables = rotaryTables(source.architecture, context + 1);
    this.rotary = (['cos', 'sin'] as const).map((name) => {
      const values = tables[name];
      const pointer = module.allocate(values.byteLength);
      module.floats(pointer, values.length).set(values);
      const shape = [context + 1, anglesOf(source.architecture)];
      return { name, pointer, tensor: module.tensor(FLOAT32, pointer, shape) };
    });
  }

  /** `blobs` are those of the source's units, and are given up: only the embedding's is kept. */
  static async load(
    source: ShardSource,
    blobs: Blobs,
    threads: number,
    context: number,
  ): Promise<WasmExecution> {
    return WasmExecution.loadInto(await WasmModule.load(threads), source, blobs, context);
  }

  /** The same in a module that another execution has left: a module's memory never shrinks. */
  static async loadInto(
    module: WasmModule,
    source: ShardSource,
    blobs: Blobs,
    context: number,
  ): Promise<WasmExecution> {
    const loaded = await loadSessions(module, source, blobs);
    return new WasmExecution(module, source, blobs, context, loaded);
  }

  get hasEmbed(): boolean {
    return this.table !== null;
  }

  get hasHead(): boolean {
    return this.headSession !== null;
  }

  get kvBytes(): number {
    return this.cache.bytes;
  }

  get overheadBytes(): number {
    const held = this.weightBytes - (this.table?.bytes ?? 0) + this.cache.bytes;
    return Math.max(this.module.memoryBytes - held, 0);
  }

  ensure(slots: KvSlots, rows: number, positions: number): void {
    const wanted = slots.grown(this.cache.shape, rows, positions);
    if (wanted.rows === this.cache.shape.rows && wanted.capacity === this.cache.shape.capacity) return;
    this.forget(this.bodyCalls);
    this.cache.grow(wanted, (row) => slots.lengthOfRow(row));
  }

  move(move: Move): void {
    this.cache.move(move);
  }

  copied(row: number, count: number): KvCopy {
    return this.cache.copied(row, count);
  }

  put(row: number, copy: KvCopy): void {
    if (copy instanceof FloatsCopy) this.cache.put(row, copy);
  }

  read(row: number, count: number, names: readonly string[]): Promise<Float32Array<ArrayBuffer>> {
    return Promise.resolve(this.cache.read(row, count, names));
  }

  write(row: number, count: number, part: CachePart): void {
    this.cache.write(row, count, part);
  }

  embed(tokens: Int32Array): Float32Array {
    if (this.table === null) throw new Error('this shard has no embedding');
    return this.table.rows(tokens);
  }

  async decode(hidden: Float32Array, span: Span, lengths: readonly number[]): Promise<Float32Array> {
    return this.run(hidden, span, 1, lengths);
  }

  async prompt(hidden: Float32Array, row: number, length: number): Promise<Float32Array> {
    const given = withCompany(hidden, this.architecture.hidden);
    const tokens = given.length / this.architecture.hidden;
    const result = await this.run(given, { start: row, stop: row + 1 }, tokens, [length]);
    return result.subarray(0, hidden.length);
  }

  async head(hidden: Float32Array): Promise<Float32Array> {
    if (this.headSession === null) throw new Error('this shard has no head');
    const rows = hidden.length / this.architecture.hidden;
    let prepared = this.headCalls.get(rows);
    if (prepared === undefined) {
      prepared = this.prepareHead(this.headSession, rows);
      this.headCalls.set(rows, prepared);
    }
    this.module.floats(prepared.hidden, hidden.length).set(hidden);
    await prepared.call.run();
    return this.module.floats(prepared.result, rows * this.architecture.vocab);
  }

  close(): void {
    this.forget(this.bodyCalls);
    this.forget(this.headCalls);
    this.cache.close();
    for (const session of [this.body, this.headSession]) {
      if (session !== null) this.module.releaseSession(session);
    }
    for (const { tensor, pointer } of this.rotary) {
      this.module.releaseTensor(tensor);
      this.module.free(pointer);
    }
  }

  private async run(
    hidden: Float32Array,
    span: Span,
    tokens: number,
    lengths: readonly number[],
  ): Promise<Float32Array> {
    if (this.body === null) return hidden;
    const key = `${span.start} ${span.stop} ${tokens}`;
    let prepared = this.bodyCalls.get(key);
    if (prepared === undefined) {
      if (this.bodyCalls.size >= KEPT_CALLS) this.forget(this.bodyCalls);
      prepared = this.prepareBody(this.body, span, tokens);
      this.bodyCalls.set(key, prepared);
    }
    this.module.floats(prepared.hidden, hidden.length).set(hidden);
    const numbers = this.module.integers(prepared.seqlens, lengths.length + 1);
    numbers.set(lengths.map((length) => length + tokens - 1));
    numbers[lengths.length] = Math.max(...lengths) + tokens;
    await prepared.call.run();
    return this.module.floats(prepared.result, hidden.length);
  }

  private prepareBody(session: number, span: Span, tokens: number): Prepared {
    const { module } = this;
    const rows = span.stop - span.start;
    const width = this.architecture.hidden;
    const bytes = 4 * rows * tokens * width;
    const hidden = module.allocate(2 * bytes + 4 * (rows + 1));
    const result = hidden + bytes;
    const seqlens = result + bytes;
    const given = module.tensor(FLOAT32, hidden, [rows, tokens, width]);
    const made = module.tensor(FLOAT32, result, [rows, tokens, width]);
    const lengths = module.tensor(INT32, seqlens, [rows]);
    const total = module.tensor(INT32, seqlens + 4 * rows, [1]);
    const cached = this.cache.tensors(span);
    const call = module.call(
      session,
      [
        { name: 'hidden', tensor: given },
        { name: 'seqlens', tensor: lengths },
        { name: 'total', tensor: total },
        ...this.rotary,
        ...cached,
      ],
      [
        { name: 'hidden.out', tensor: made },
        ...cached.map(({ name, tensor }) => ({ name: `${name}.out`, tensor })),
      ],
    );
    const tensors = [given, made, lengths, total, ...cached.map(({ tensor }) => tensor)];
    return { call, hidden, result, seqlens, tensors };
  }

  private prepareHead(session: number, rows: number): Prepared {
    const { module } = this;
    const { hidden: width, vocab } = this.architecture;
    const hidden = module.allocate(4 * rows * (width + vocab));
    const result = hidden + 4 * rows * width;
    const given = module.tensor(FLOAT32, hidden, [rows, width]);
    const made = module.tensor(FLOAT32, result, [rows, vocab]);
    const call = module.call(
      session,
      [{ name: 'hidden', tensor: given }],
      [{ name: 'logits', tensor: made }],
    );
    return { call, hidden, result, seqlens: 0, tensors: [given, made] };
  }

  private forget(calls: Map<unknown, Prepared>): void {
    for (const { call, hidden, tensors } of calls.values()) {
      call.release();
      for (const tensor of tensors) this.module.releaseTensor(tensor);
      this.module.free(hidden);
    }
    calls.clear();
  }
}

interface Loaded {
  readonly body: number | null;
  readonly head: number | null;
  readonly bytes: number;
}

/**
 * Every tensor lies in memory once more only while onnxruntime takes it: the blobs are taken apart, and a matrix's
 * packed form goes when it was asked for. The head first: what was free while it loads is used again by the body.
 */
async function loadSessions(module: WasmModule, source: ShardSource, blobs: Blobs): Promise<Loaded> {
  const { architecture, graphs, units } = source;
  let bytes = 0;
  const passed: (() => void)[] = []; // of one call: onnxruntime has copied by the time it asks for the next
  const settle = (): void => passed.splice(0).forEach((done) => done());
  const passing: PassingTensors[] = [];
  for (const unit of units) {
    if (unit.kind === 'embed') continue;
    const shared = units.filter(({ blob }) => blob.sha256 === unit.blob.sha256).length > 1;
    const held = new PassingTensors(unit, blobOf(blobs, unit.blob), shared, architecture);
    passing.push(held);
    for (const [tensor, size] of locationsOf(unit, 'wasm', architecture)) {
      bytes += size;
      module.mount(`${unit.name}/${tensor}`, {
        byteLength: size,
        subarray: (begin, end) => {
          settle();
          const rows = rowsAt(tensor, begin, end, architecture);
          const from = held.source(tensor);
          const found = weightBytes(from, tensor, 'wasm', architecture, rows);
          passed.push(() => held.taken(tensor, end - begin));
          if (found.buffer !== from.blob.buffer) passed.push(() => giveBack(found));
          return rows === undefined ? found.subarray(begin, end) : found;
        },
      });
    }
  }
  try {
    const head = graphs.head === null ? null : await module.session(graphs.head);
    const body = graphs.body === null ? null : await module.session(graphs.body);
    return { body, head, bytes };
  } finally {
    module.unmountAll();
    settle();
    passing.forEach((held) => held.close());
  }
}

/** Per KV name an array float32 (kvHeads, count, kernelHeadSize), outside the module's memory, which never shrinks. */
class FloatsCopy implements KvCopy {
  readonly count: number;
  readonly arrays = new Map<string, Float32Array<ArrayBuffer>>();

  constructor(count: number) {
    this.count = count;
  }

  get bytes(): number {
    let sum = 0;
    for (const array of this.arrays.values()) sum += array.byteLength;
    return sum;
  }

  free(): void {
    this.arrays.clear();
  }
}

/** Per KV name an array float32 (rows, kvHeads, capacity, kernelHeadSize) in the module's memory. */
class KvArrays {
  shape: Shape = { rows: 0, capacity: 0 };
  private readonly module: WasmModule;
  private readonly names: readonly string[];
  private readonly heads: number;
  private readonly size: number;
  private readonly arrays = new Map<string, number>();

  constructor(module: WasmModule, names: readonly string[], a: Architecture) {
    this.module = module;
    this.names = names;
    this.heads = a.kvHeads;
    this.size = kernelHeadSize(a);
  }

  get bytes(): number {
    return 4 * this.names.length * this.shape.rows * this.rowLength(this.shape);
  }

  /** One array at a time, so that the peak is one array above the new size. */
  grow(shape: Shape, lengthOf: (row: number) => number): void {
    const row = this.rowLength(shape);
    const oldRow = this.rowLength(this.shape);
    for (const name of this.names) {
      const fresh = this.module.allocate(4 * shape.rows * row);
      const target = this.module.floats(fresh, shape.rows * row).fill(0);
      const old = this.arrays.get(name);
      if (old !== undefined) {
        const source = this.module.floats(old, this.shape.rows * oldRow);
        for (let at = 0; at < this.shape.rows; at++) {
          for (let head = 0; head < this.heads; head++) {
            const from = at * oldRow + head * this.shape.capacity * this.size;
            const kept = source.subarray(from, from + lengthOf(at) * this.size);
            target.set(kept, at * row + head * shape.capacity * this.size);
          }
        }
        this.module.free(old);
      }
      this.arrays.set(name, fresh);
    }
    this.shape = shape;
  }

  move({ source, target, length }: Move): void {
    const row = this.rowLength(this.shape);
    for (const pointer of this.arrays.values()) {
      const array = this.module.floats(pointer, this.shape.rows * row);
      for (let head = 0; head < this.heads; head++) {
        const from = source * row + head * this.shape.capacity * this.size;
        array.copyWithin(target * row + (from - source * row), from, from + length * this.size);
      }
    }
  }

  copied(row: number, count: number): FloatsCopy {
    const copy = new FloatsCopy(count);
    const length = count * this.size;
    for (const [name, pointer] of this.arrays) {
      const made = new Float32Array(this.heads * length);
      this.eachHead(pointer, row, length, (part, head) => made.set(part, head * length));
      copy.arrays.set(name, made);
    }
    return copy;
  }

  put(row: number, { arrays, count }: FloatsCopy): void {
    const length = count * this.size;
    for (const [name, pointer] of this.arrays) {
      const kept = arrays.get(name);
      if (kept === undefined) continue;
      this.eachHead(pointer, row, length, (part, head) =>
        part.set(kept.subarray(head * length, (head + 1) * length)),
      );
    }
  }

  read(row: number, count: number, names: readonly string[]): Float32Array<ArrayBuffer> {
    const length = count * this.size;
    const made = new Float32Array(names.length * this.heads * length);
    names.forEach((name, place) =>
      this.eachHead(this.pointer(name), row, length, (part, head) =>
        made.set(part, (place * this.heads + head) * length),
      ),
    );
    return made;
  }

  write(row: number, count: number, { names, have, values }: CachePart): void {
    names.forEach((name, place) =>
      this.eachHead(this.pointer(name), row, count * this.size, (part, head) => {
        const at = (place * this.heads + head) * have * this.size;
        part.set(values.subarray(at, at + part.length));
      }),
    );
  }

  private pointer(name: string): number {
    const found = this.arrays.get(name);
    if (found === undefined) throw new Error(`this shard caches no ${name}`);
    return found;
  }

  /** The first `length` numbers of each head of a row. */
  private eachHead(
    pointer: number,
    row: number,
    length: number,
    take: (part: Float32Array, head: number) => void,
  ): void {
    const array = this.module.floats(pointer, this.shape.rows * this.rowLength(this.shape));
    for (let head = 0; head < this.heads; head++) {
      const from = (row * this.heads + head) * this.shape.capacity * this.size;
      take(array.subarray(from, from + length), head);
    }
  }

  /** Tensors over rows `span` of every array; the caller releases them. */
  tensors(span: Span): { name: string; tensor: number }[] {
    const shape = [span.stop - span.start, this.heads, this.shape.capacity, this.size];
    return this.names.map((name) => {
      const start = (this.arrays.get(name) ?? 0) + 4 * span.start * this.rowLength(this.shape);
      return { name, tensor: this.module.tensor(FLOAT32, start, shape) };
    });
  }

  close(): void {
    for (const pointer of this.arrays.values()) this.module.free(pointer);
    this.arrays.clear();
    this.shape = { rows: 0, capacity: 0 };
  }

  private rowLength(shape: Shape): number {
    return this.heads * shape.capacity * this.size;
  }
}
