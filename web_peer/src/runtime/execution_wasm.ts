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
  afterTable,
  blobOf,
  firstOfParts,
  kvArrays,
  partsOf,
  rotaryFeeds,
  widestHead,
  type WindowInputs,
  windowInputs,
  withCompany,
} from './execution';
import { type Drop, type KvArray, KvRows, type KvSlots, type Move, type Shape, type Span } from './kv_slots';
import type { KvWindow } from '../planner/kv_window';
import { POSITION_IDS, WINDOW_SEQLENS, WINDOW_TOTAL } from '../planner/lowering';
import type { Dimensions } from '../planner/manifest';
import { giveBack } from '../model/release_arrays';
import { PassingTensors } from './tensor_lending';
import { FLOAT32, INT32, INT64, type WasmCall, WasmModule } from './wasm_module';
import { EmbeddingTable, locationsOf, rowsAt, weightBytes } from './weight_unpacking';

/** Buffers of one call shape (rows, tokens), bound once and used again. */
interface Prepared {
  readonly call: WasmCall;
  readonly hidden: number;
  readonly result: number;
  readonly seqlens: number; // rows of them, then the total
  readonly window: number; // position ids, then as seqlens; 0: the graph takes none
  readonly tensors: readonly number[];
}

/** Runs the units of a shard with onnxruntime's WebAssembly. */
export class WasmExecution implements Execution {
  readonly provider = 'wasm';
  readonly widestHead: number;
  private readonly module: WasmModule;
  private readonly dimensions: Dimensions;
  private readonly table: EmbeddingTable | null;
  private readonly afterTable: number | null; // what is done with rows that were looked up
  private readonly body: number | null;
  private readonly headSession: number | null;
  private readonly shared: SharedWeights;
  private readonly rotary: readonly {
    readonly name: string;
    readonly tensor: number;
    readonly pointer: number;
  }[];
  private readonly cache: KvMemory;
  private readonly bodyCalls = new Map<string, Prepared>();
  private readonly rowCalls = new Map<string, Prepared>(); // of graphs without a cache

  private constructor(
    source: Pick<ShardSource, 'dimensions' | 'units'>,
    context: number,
    shared: SharedWeights,
  ) {
    const { module, table, loaded } = shared;
    this.module = module;
    this.shared = shared;
    shared.users.add(this);
    this.dimensions = source.dimensions;
    this.table = table;
    this.afterTable = loaded.embed;
    this.body = loaded.body;
    this.headSession = loaded.head;
    const arrays = kvArrays(source.units);
    this.widestHead = widestHead(arrays);
    this.cache = new KvMemory(module, arrays, source.dimensions.window);
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
    const { table: place } = source.graphs;
    const table = place === null ? null : new EmbeddingTable(place, blobOf(blobs, place.unit.blob));
    return new WasmExecution(source, context, { module, table, loaded, users: new Set() });
  }

  /** Another one of equal units, with these weights and caches of its own. One of them is called at a time. */
  beside(source: Pick<ShardSource, 'dimensions' | 'units'>, context: number): WasmExecution {
    return new WasmExecution(source, context, this.shared);
  }

  /** Weights and the module are told of by the first that uses them. */
  private get isFirst(): boolean {
    const [first] = this.shared.users;
    return first === this;
  }

  get weightBytes(): number {
    const { loaded, table } = this.shared;
    return this.isFirst ? loaded.bytes + (table?.bytes ?? 0) : 0;
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
    if (!this.isFirst) return 0;
    const { loaded, users } = this.shared;
    const caches = [...users].reduce((sum, { cache }) => sum + cache.bytes, 0);
    return Math.max(this.module.memoryBytes - loaded.bytes - caches, 0);
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

  holds(row: number, length: number): boolean {
    return this.cache.rows.holds(row, length);
  }

  copied(row: number, count: number): KvCopy | null {
    return this.cache.rows.copies(row, count) ? this.cache.copied(row, count) : null;
  }

  put(row: number, copy: KvCopy): void {
    if (copy instanceof FloatsCopy) this.cache.put(row, copy);
  }

  read(row: number, count: number, names: readonly string[]): Promise<Float32Array<ArrayBuffer>> | null {
    return this.cache.rows.copies(row, count) ? Promise.resolve(this.cache.read(row, count, names)) : null;
  }

  write(row: number, count: number, parts: readonly CachePart[]): boolean {
    return this.cache.write(row, count, parts);
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
    const { users } = this.shared;
    if (users.delete(this) && users.size === 0) {
      for (const session of [this.afterTable, this.body, this.headSession]) {
        if (session !== null) this.module.releaseSession(session);
      }
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
    if (prepared.window !== 0) {
      const firsts = lengths.map((length, at) => this.cache.makeRoom(span.start + at, length, tokens));
      this.giveWindow(prepared.window, windowInputs(lengths, firsts, tokens));
    }
    await prepared.call.run();
    return this.module.floats(prepared.result, hidden.length);
  }

  private giveWindow(pointer: number, { positions, seqlens, total }: WindowInputs): void {
    const ids = new Int32Array(positions.buffer); // little-endian, as the module's memory
    const numbers = this.module.integers(pointer, ids.length + seqlens.length + 1);
    numbers.set(ids);
    numbers.set(seqlens, ids.length);
    numbers[ids.length + seqlens.length] = total;
  }

  private prepareBody(session: number, span: Span, tokens: number): Prepared {
    const { module } = this;
    const rows = span.stop - span.start;
    const width = this.dimensions.hidden;
    const bytes = 4 * rows * tokens * width;
    const idBytes = this.cache.rows.isWindowed ? 8 * rows * tokens : 0;
    const hidden = module.allocate(idBytes + 2 * bytes + 8 * (rows + 1));
    const result = hidden + bytes;
    const window = result + bytes; // a multiple of 8 from a multiple of 8 on
    const seqlens = window + idBytes + 4 * (rows + 1);
    const windowed =
      idBytes === 0
        ? []
        : [
            { name: POSITION_IDS, tensor: module.tensor(INT64, window, [rows, tokens], idBytes) },
            { name: WINDOW_SEQLENS, tensor: module.tensor(INT32, window + idBytes, [rows]) },
            { name: WINDOW_TOTAL, tensor: module.tensor(INT32, window + idBytes + 4 * rows, [1]) },
          ];
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
        ...windowed,
        ...this.rotary,
        ...cached,
      ],
      [
        { name: 'hidden.out', tensor: made },
        ...cached.flatMap(({ outputs, tensor }) => outputs.map((name) => ({ name, tensor }))),
      ],
    );
    const tensors = [given, made, lengths, total, ...[...windowed, ...cached].map(({ tensor }) => tensor)];
    return { call, hidden, result, seqlens, window: idBytes === 0 ? 0 : window, tensors };
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
    return { call, hidden, result, seqlens: 0, window: 0, tensors: [given, made] };
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

/** What several executions of equal units compute with; the last one releases it. */
interface SharedWeights {
  readonly module: WasmModule;
  readonly table: EmbeddingTable | null;
  readonly loaded: Loaded;
  readonly users: Set<WasmExecution>;
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

/**
 * Per KV name an array float32 (heads, count, headSize), with a window from the first position on that `count` keep;
 * outside the module's memory, which never shrinks.
 */
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
  readonly rows: KvRows;
  private readonly module: WasmModule;
  private readonly arrays: readonly KvArray[];
  private readonly pointers = new Map<string, number>();

  constructor(module: WasmModule, arrays: readonly KvArray[], window: KvWindow | null) {
    this.module = module;
    this.arrays = arrays;
    this.rows = new KvRows(arrays, window);
  }

  get bytes(): number {
    return this.arrays.reduce((sum, array) => sum + 4 * this.shape.rows * this.rowLength(array), 0);
  }

  /** One array at a time, so that the peak is one array above the new size. */
  grow(shape: Shape, lengthOf: (row: number) => number): void {
    for (const array of this.arrays) {
      const { name, heads, headSize } = array;
      const row = this.rowLength(array, shape);
      const oldRow = this.rowLength(array);
      const capacity = this.rows.capacity(array, shape);
      const oldCapacity = this.rows.capacity(array, this.shape);
      const fresh = this.module.allocate(4 * shape.rows * row);
      const target = this.module.floats(fresh, shape.rows * row).fill(0);
      const old = this.pointers.get(name);
      if (old !== undefined) {
        const source = this.module.floats(old, this.shape.rows * oldRow);
        for (let at = 0; at < this.shape.rows; at++) {
          for (let head = 0; head < heads; head++) {
            const from = at * oldRow + head * oldCapacity * headSize;
            const count = Math.max(lengthOf(at) - this.rows.first(array, at), 0);
            const kept = source.subarray(from, from + count * headSize);
            target.set(kept, at * row + head * capacity * headSize);
          }
        }
        this.module.free(old);
      }
      this.pointers.set(name, fresh);
    }
    this.shape = shape;
  }

  move(move: Move): void {
    const { source, target, length } = move;
    for (const array of this.held()) {
      const row = this.rowLength(array);
      const count = length - this.rows.first(array, source);
      const values = this.module.floats(this.pointer(array), this.shape.rows * row);
      for (let head = 0; head < array.heads; head++) {
        const from = source * row + head * this.rows.capacity(array, this.shape) * array.headSize;
        values.copyWithin(target * row + (from - source * row), from, from + count * array.headSize);
      }
    }
    this.rows.moved(move);
  }

  /** Room for `tokens` behind `length` positions of a row; returns the first one that arrays with a window have. */
  makeRoom(row: number, length: number, tokens: number): number {
    const drop = this.rows.makeRoom(row, length, tokens, this.shape);
    if (drop !== null) this.drop(drop);
    return this.rows.firstOf(row);
  }

  private drop({ row, by, count }: Drop): void {
    for (const array of this.held().filter(({ isWindowed }) => isWindowed)) {
      this.eachHead(array, row, 0, by + count, (part) => part.copyWithin(0, by * array.headSize));
    }
  }

  copied(row: number, count: number): FloatsCopy {
    const copy = new FloatsCopy(count);
    for (const array of this.held()) {
      const begin = this.rows.begin(array, count);
      const length = (count - begin) * array.headSize;
      const made = new Float32Array(array.heads * length);
      this.eachHead(array, row, begin, count - begin, (part, head) => made.set(part, head * length));
      copy.arrays.set(array.name, made);
    }
    return copy;
  }

  put(row: number, { arrays, count }: FloatsCopy): void {
    for (const array of this.held()) {
      const begin = this.rows.begin(array, count);
      if (array.isWindowed) this.rows.put(row, begin);
      const length = (count - begin) * array.headSize;
      const kept = arrays.get(array.name);
      if (kept === undefined) continue;
      this.eachHead(array, row, begin, count - begin, (part, head) =>
        part.set(kept.subarray(head * length, (head + 1) * length)),
      );
    }
  }

  read(row: number, count: number, names: readonly string[]): Float32Array<ArrayBuffer> {
    const { parts, length } = partsOf(this.arrays, names, count, this.rows);
    const made = new Float32Array(length);
    for (const { array, offset, begin } of parts) {
      const each = (count - begin) * array.headSize;
      this.eachHead(array, row, begin, count - begin, (part, head) => made.set(part, offset + head * each));
    }
    return made;
  }

  write(row: number, count: number, parts: readonly CachePart[]): boolean {
    const first = firstOfParts(this.arrays, this.rows, parts);
    if (!this.rows.suffices(first, count)) return false;
    this.rows.put(row, first);
    for (const { names, have, values } of parts) {
      for (const { array, offset, begin } of partsOf(this.arrays, names, have, this.rows).parts) {
        const from = this.rows.first(array, row);
        this.eachHead(array, row, from, count - from, (part, head) => {
          const at = offset + (head * (have - begin) + from - begin) * array.headSize;
          part.set(values.subarray(at, at + part.length));
        });
      }
    }
    return true;
  }

  /** Tensors over rows `span` of every array; the caller releases them. */
  tensors(span: Span): { name: string; outputs: readonly string[]; tensor: number }[] {
    return this.arrays.map((array) => {
      const { name, outputs, heads, headSize } = array;
      const start = (this.pointers.get(name) ?? 0) + 4 * span.start * this.rowLength(array);
      const shape = [span.stop - span.start, heads, this.rows.capacity(array, this.shape), headSize];
      return { name, outputs, tensor: this.module.tensor(FLOAT32, start, shape) };
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

  /** `count` positions of each head of a row, from `begin` on. */
  private eachHead(
    array: KvArray,
    row: number,
    begin: number,
    count: number,
    take: (part: Float32Array, head: number) => void,
  ): void {
    const { heads, headSize } = array;
    const capacity = this.rows.capacity(array, this.shape);
    const skipped = Math.max(begin - this.rows.first(array, row), 0);
    const values = this.module.floats(this.pointer(array), this.shape.rows * this.rowLength(array));
    for (let head = 0; head < heads; head++) {
      const from = ((row * heads + head) * capacity + skipped) * headSize;
      take(values.subarray(from, from + count * headSize), head);
    }
  }

  private rowLength(array: KvArray, shape = this.shape): number {
    return array.heads * this.rows.capacity(array, shape) * array.headSize;
  }
}
