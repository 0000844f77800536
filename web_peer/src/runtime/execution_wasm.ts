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
  type KvArray,
  afterTable,
  blobOf,
  kvArrays,
  partsOf,
  rotaryFeeds,
  withCompany,
} from './execution';
import type { KvSlots, Move, Shape, Span } from './kv_slots';
import type { Dimensions } from '../planner/manifest';
import { giveBack } from '../model/release_arrays';
import { PassingTensors } from './tensor_lending';
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
  private readonly dimensions: Dimensions;
  private readonly table: EmbeddingTable | null;
  private readonly afterTable: number | null; // what is done with rows that were looked up
  private readonly body: number | null;
  private readonly headSession: number | null;
  private readonly rotary: readonly {
    readonly name: string;
    readonly tensor: number;
    readonly pointer: number;
  }[];
  private readonly cache: KvMemory;
  private readonly bodyCalls = new Map<string, Prepared>();
  private readonly rowCalls = new Map<string, Prepared>(); // of graphs without a cache

  private constructor(
    module: WasmModule,
    source: ShardSource,
    blobs: Blobs,
    context: number,
    loaded: Loaded,
  ) {
    this.module = module;
    this.dimensions = source.dimensions;
    const { table } = source.graphs;
    this.table = table === null ? null : new EmbeddingTable(table, blobOf(blobs, table.unit.blob));
    this.afterTable = loaded.embed;
    this.body = loaded.body;
    this.headSession = loaded.head;
    this.weightBytes = loaded.bytes + (this.table?.bytes ?? 0);
    this.cache = new KvMemory(module, kvArrays(source.units));
    this.rotary = rotaryFeeds(source.dimensions, context + 1).map(({ name, values, shape }) => {
      const pointer = module.allocate(values.byteLength);
      module.floats(pointer, values.length).set(values);
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

  async embed(tokens: Int32Array): Promise<Float32Array> {
    if (this.table === null) throw new Error('this shard has no embedding');
    const rows = this.table.rows(tokens);
    const session = this.afterTable;
    if (session === null) return rows;
    const { hidden } = this.dimensions;
    return afterTable(rows, this.table.columns, hidden, (given, count) =>
      this.runRows(session, 'hidden.out', given, count, hidden),
    );
  }

  async decode(hidden: Float32Array, span: Span, lengths: readonly number[]): Promise<Float32Array> {
    return this.run(hidden, span, 1, lengths);
  }

  async prompt(hidden: Float32Array, row: number, length: number): Promise<Float32Array> {
    const given = withCompany(hidden, this.dimensions.hidden);
    const tokens = given.length / this.dimensions.hidden;
    const result = await this.run(given, { start: row, stop: row + 1 }, tokens, [length]);
    return result.subarray(0, hidden.length);
  }

  async head(hidden: Float32Array): Promise<Float32Array> {
    if (this.headSession === null) throw new Error('this shard has no head');
    const { hidden: width, vocab } = this.dimensions;
    return this.runRows(this.headSession, 'logits', hidden, hidden.length / width, vocab);
  }

  close(): void {
    this.forget(this.bodyCalls);
    this.forget(this.rowCalls);
    this.cache.close();
    for (const session of [this.afterTable, this.body, this.headSession]) {
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
    const width = this.dimensions.hidden;
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

  /** (rows, width) -> (rows, `made`), of a graph without a cache, whose output is `output`; valid until the next call. */
  private async runRows(
    session: number,
    output: string,
    hidden: Float32Array,
    rows: number,
    made: number,
  ): Promise<Float32Array> {
    const key = `${output} ${rows}`;
    let prepared = this.rowCalls.get(key);
    if (prepared === undefined) {
      prepared = this.prepareRows(session, output, [rows, hidden.length / rows], made);
      this.rowCalls.set(key, prepared);
    }
    this.module.floats(prepared.hidden, hidden.length).set(hidden);
    await prepared.call.run();
    return this.module.floats(prepared.result, rows * made);
  }

  private prepareRows(
    session: number,
    output: string,
    [rows, width]: readonly [number, number],
    wide: number,
  ): Prepared {
    const { module } = this;
    const hidden = module.allocate(4 * rows * (width + wide));
    const result = hidden + 4 * rows * width;
    const given = module.tensor(FLOAT32, hidden, [rows, width]);
    const made = module.tensor(FLOAT32, result, [rows, wide]);
    const call = module.call(session, [{ name: 'hidden', tensor: given }], [{ name: output, tensor: made }]);
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
  readonly embed: number | null;
  readonly body: number | null;
  readonly head: number | null;
  readonly bytes: number;
}

/**
 * Every tensor lies in memory once more only while onnxruntime takes it: the blobs are taken apart, and a matrix's
 * packed form goes when it was asked for. The head first: what was free while it loads is used again by the body.
 */
async function loadSessions(module: WasmModule, source: ShardSource, blobs: Blobs): Promise<Loaded> {
  const { graphs, units } = source;
  let bytes = 0;
  const passed: (() => void)[] = []; // of one call: onnxruntime has copied by the time it asks for the next
  const settle = (): void => passed.splice(0).forEach((done) => done());
  const passing: PassingTensors[] = [];
  for (const unit of units) {
    const locations = locationsOf(graphs, unit);
    const isTable = unit.blob.sha256 === graphs.table?.unit.blob.sha256; // which stays
    if (isTable && locations.length === 0) continue;
    const shared = isTable || units.filter(({ blob }) => blob.sha256 === unit.blob.sha256).length > 1;
    const held = new PassingTensors(unit, blobOf(blobs, unit.blob), shared, locations);
    passing.push(held);
    for (const location of locations) {
      const { tensor, bytes: size } = location;
      bytes += size;
      module.mount(`${unit.name}/${tensor}`, {
        byteLength: size,
        subarray: (begin, end) => {
          settle();
          const rows = rowsAt(location, begin, end);
          const from = held.source(tensor);
          const found = weightBytes(from, location, rows);
          passed.push(() => held.taken(tensor, end - begin));
          if (found.buffer !== from.blob.buffer) passed.push(() => giveBack(found));
          return rows === undefined ? found.subarray(begin, end) : found;
        },
      });
    }
  }
  try {
    const head = graphs.head === null ? null : await module.session(graphs.head);
    const embed = graphs.embed === null ? null : await module.session(graphs.embed);
    const body = graphs.body === null ? null : await module.session(graphs.body);
    return { embed, body, head, bytes };
  } finally {
    module.unmountAll();
    settle();
    passing.forEach((held) => held.close());
  }
}

/** Per KV name an array float32 (heads, count, headSize), outside the module's memory, which never shrinks. */
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

/** Each array is float32 (rows, heads, capacity, headSize) in the module's memory. */
class KvMemory {
  shape: Shape = { rows: 0, capacity: 0 };
  private readonly module: WasmModule;
  private readonly arrays: readonly KvArray[];
  private readonly pointers = new Map<string, number>();

  constructor(module: WasmModule, arrays: readonly KvArray[]) {
    this.module = module;
    this.arrays = arrays;
  }

  get bytes(): number {
    return this.arrays.reduce((sum, array) => sum + 4 * this.shape.rows * rowLength(array, this.shape), 0);
  }

  /** One array at a time, so that the peak is one array above the new size. */
  grow(shape: Shape, lengthOf: (row: number) => number): void {
    for (const array of this.arrays) {
      const { name, heads, headSize } = array;
      const row = rowLength(array, shape);
      const oldRow = rowLength(array, this.shape);
      const fresh = this.module.allocate(4 * shape.rows * row);
      const target = this.module.floats(fresh, shape.rows * row).fill(0);
      const old = this.pointers.get(name);
      if (old !== undefined) {
        const source = this.module.floats(old, this.shape.rows * oldRow);
        for (let at = 0; at < this.shape.rows; at++) {
          for (let head = 0; head < heads; head++) {
            const from = at * oldRow + head * this.shape.capacity * headSize;
            const kept = source.subarray(from, from + lengthOf(at) * headSize);
            target.set(kept, at * row + head * shape.capacity * headSize);
          }
        }
        this.module.free(old);
      }
      this.pointers.set(name, fresh);
    }
    this.shape = shape;
  }

  move({ source, target, length }: Move): void {
    for (const array of this.held()) {
      const row = rowLength(array, this.shape);
      const values = this.module.floats(this.pointer(array), this.shape.rows * row);
      for (let head = 0; head < array.heads; head++) {
        const from = source * row + head * this.shape.capacity * array.headSize;
        values.copyWithin(target * row + (from - source * row), from, from + length * array.headSize);
      }
    }
  }

  copied(row: number, count: number): FloatsCopy {
    const copy = new FloatsCopy(count);
    for (const array of this.held()) {
      const length = count * array.headSize;
      const made = new Float32Array(array.heads * length);
      this.eachHead(array, row, length, (part, head) => made.set(part, head * length));
      copy.arrays.set(array.name, made);
    }
    return copy;
  }

  put(row: number, { arrays, count }: FloatsCopy): void {
    for (const array of this.held()) {
      const length = count * array.headSize;
      const kept = arrays.get(array.name);
      if (kept === undefined) continue;
      this.eachHead(array, row, length, (part, head) =>
        part.set(kept.subarray(head * length, (head + 1) * length)),
      );
    }
  }

  read(row: number, count: number, names: readonly string[]): Float32Array<ArrayBuffer> {
    const { parts, length } = partsOf(this.arrays, names, count);
    const made = new Float32Array(length);
    for (const { array, offset } of parts) {
      const each = count * array.headSize;
      this.eachHead(array, row, each, (part, head) => made.set(part, offset + head * each));
    }
    return made;
  }

  write(row: number, count: number, { names, have, values }: CachePart): void {
    for (const { array, offset } of partsOf(this.arrays, names, have).parts) {
      this.eachHead(array, row, count * array.headSize, (part, head) => {
        const at = offset + head * have * array.headSize;
        part.set(values.subarray(at, at + part.length));
      });
    }
  }

  /** Tensors over rows `span` of every array; the caller releases them. */
  tensors(span: Span): { name: string; tensor: number }[] {
    return this.arrays.map((array) => {
      const { name, heads, headSize } = array;
      const start = (this.pointers.get(name) ?? 0) + 4 * span.start * rowLength(array, this.shape);
      const shape = [span.stop - span.start, heads, this.shape.capacity, headSize];
      return { name, tensor: this.module.tensor(FLOAT32, start, shape) };
    });
  }

  close(): void {
    for (const pointer of this.pointers.values()) this.module.free(pointer);
    this.pointers.clear();
    this.shape = { rows: 0, capacity: 0 };
  }

  /** The arrays that are in memory. */
  private held(): readonly KvArray[] {
    return this.arrays.filter(({ name }) => this.pointers.has(name));
  }

  private pointer({ name }: KvArray): number {
    const found = this.pointers.get(name);
    if (found === undefined) throw new Error(`this shard caches no ${name}`);
    return found;
  }

  /** The first `length` numbers of each head of a row. */
  private eachHead(
    array: KvArray,
    row: number,
    length: number,
    take: (part: Float32Array, head: number) => void,
  ): void {
    const size = this.shape.rows * rowLength(array, this.shape);
    const values = this.module.floats(this.pointer(array), size);
    for (let head = 0; head < array.heads; head++) {
      const from = (row * array.heads + head) * this.shape.capacity * array.headSize;
      take(values.subarray(from, from + length), head);
    }
  }
}

function rowLength({ heads, headSize }: KvArray, { capacity }: Shape): number {
  return heads * capacity * headSize;
}
