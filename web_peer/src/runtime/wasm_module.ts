/*
 * onnxruntime's WebAssembly module as its own C functions show it. The public API copies every input and output
 * between JavaScript and the module's memory at each run, the whole KV cache among them; here tensors are bound to
 * places in that memory once. The names are those of onnxruntime-web/lib/wasm/wasm-types.ts; the version is pinned.
 */

import mjsUrl from 'onnxruntime-web/ort-wasm-simd-threaded.mjs?url';
import wasmUrl from 'onnxruntime-web/ort-wasm-simd-threaded.wasm?url';

/** What onnxruntime calls for external data: anything with these two. */
export interface ExternalBytes {
  readonly byteLength: number;
  subarray(begin: number, end: number): Uint8Array;
}

interface OrtModule {
  readonly HEAPU8: Uint8Array;
  _malloc(bytes: number): number;
  _free(pointer: number): void;
  stackSave(): number;
  stackAlloc(bytes: number): number;
  stackRestore(stack: number): void;
  getValue(pointer: number, type: '*'): number;
  setValue(pointer: number, value: number, type: '*'): void;
  UTF8ToString(pointer: number, mostBytes?: number): string;
  lengthBytesUTF8(text: string): number;
  stringToUTF8(text: string, pointer: number, bytes: number): void;
  mountExternalData(path: string, bytes: ExternalBytes): void;
  unmountExternalData(): void;
  _OrtInit(threads: number, logLevel: number): number;
  _OrtGetLastError(code: number, message: number): number;
  _OrtCreateSessionOptions(
    ...options: [
      optimization: number,
      arena: boolean,
      pattern: boolean,
      mode: number,
      profiling: boolean,
      prefix: number,
      logId: number,
      severity: number,
      verbosity: number,
      path: number,
    ]
  ): number;
  _OrtReleaseSessionOptions(options: number): number;
  _OrtCreateSession(bytes: number, length: number, options: number): number | Promise<number>;
  _OrtReleaseSession(session: number): number;
  _OrtCreateTensor(
    ...tensor: [type: number, data: number, bytes: number, dims: number, rank: number, location: number]
  ): number;
  _OrtGetTensorData(tensor: number, type: number, data: number, dims: number, rank: number): number;
  _OrtFree(pointer: number): number;
  _OrtReleaseTensor(tensor: number): number;
  _OrtCreateRunOptions(severity: number, verbosity: number, terminate: boolean, tag: number): number;
  _OrtReleaseRunOptions(options: number): number;
  _OrtRun(
    ...call: [
      session: number,
      inputNames: number,
      inputs: number,
      inputCount: number,
      outputNames: number,
      outputCount: number,
      outputs: number,
      options: number,
    ]
  ): number | Promise<number>;
}

type Factory = (settings: object) => Promise<OrtModule>;

const POINTER_BYTES = 4;
const ALL_OPTIMIZATIONS = 99;
const BASIC_OPTIMIZATIONS = 1;
const ERRORS_ONLY = 3;
const ON_CPU = 1;
export const FLOAT32 = 1;
export const INT32 = 6;
export const INT64 = 7;

/** A named tensor of a call. */
export interface Bound {
  readonly name: string;
  readonly tensor: number;
}

/** The module, its memory and its sessions. Every pointer is a byte offset into `memory`. */
export class WasmModule {
  private readonly module: OrtModule;
  private readonly names = new Map<string, number>();

  private constructor(module: OrtModule) {
    this.module = module;
  }

  /** `threads` above 1 need a page that is cross-origin isolated. */
  static async load(threads: number): Promise<WasmModule> {
    const { default: factory } = (await import(/* @vite-ignore */ mjsUrl)) as { default: Factory };
    const module = await factory({ numThreads: threads, locateFile: () => wasmUrl });
    const made = new WasmModule(module);
    made.check(module._OrtInit(threads, ERRORS_ONLY), 'starting onnxruntime');
    return made;
  }

  get memoryBytes(): number {
    return this.module.HEAPU8.length;
  }

  allocate(bytes: number): number {
    const pointer = this.module._malloc(bytes);
    if (pointer === 0) throw new Error(`${bytes} bytes more do not fit this tab's memory`);
    return pointer;
  }

  free(pointer: number): void {
    this.module._free(pointer);
  }

  /** A view that is valid until something is allocated. */
  floats(pointer: number, length: number): Float32Array {
    return new Float32Array(this.module.HEAPU8.buffer, pointer, length);
  }

  integers(pointer: number, length: number): Int32Array {
    return new Int32Array(this.module.HEAPU8.buffer, pointer, length);
  }

  bytes(pointer: number, length: number): Uint8Array {
    return new Uint8Array(this.module.HEAPU8.buffer, pointer, length);
  }

  /** The string that begins there, of at most so many bytes. */
  text(pointer: number, mostBytes: number): string {
    return Number.isFinite(mostBytes)
      ? this.module.UTF8ToString(pointer, mostBytes)
      : this.module.UTF8ToString(pointer);
  }

  mount(location: string, bytes: ExternalBytes): void {
    this.module.mountExternalData(location, bytes);
  }

  unmountAll(): void {
    this.module.unmountExternalData();
  }

  /** `fused`: operators may be joined. */
  async session(model: Uint8Array, fused = true): Promise<number> {
    const module = this.module;
    const options = module._OrtCreateSessionOptions(
      ...[
        fused ? ALL_OPTIMIZATIONS : BASIC_OPTIMIZATIONS,
        false,
        false,
        0,
        false,
        0,
        this.name(''),
        ERRORS_ONLY,
        0,
        0,
      ],
    );
    if (options === 0) this.fail('session options');
    const copy = this.allocate(model.length);
    module.HEAPU8.set(model, copy);
    try {
      const session = await module._OrtCreateSession(copy, model.length, options);
      if (session === 0) this.fail('loading a graph');
      return session;
    } finally {
      this.free(copy);
      module._OrtReleaseSessionOptions(options);
    }
  }

  releaseSession(session: number): void {
    this.module._OrtReleaseSession(session);
  }

  /** A tensor over memory that stays the caller's; `bytes` of it, where elements have not four each. */
  tensor(type: number, pointer: number, shape: readonly number[], bytes = 4 * product(shape)): number {
    const module = this.module;
    const stack = module.stackSave();
    const dims = module.stackAlloc(POINTER_BYTES * shape.length);
    shape.forEach((size, at) => module.setValue(dims + POINTER_BYTES * at, size, '*'));
    const tensor = module._OrtCreateTensor(type, pointer, bytes, dims, shape.length, ON_CPU);
    module.stackRestore(stack);
    if (tensor === 0) this.fail('binding a tensor');
    return tensor;
  }

  releaseTensor(tensor: number): void {
    this.module._OrtReleaseTensor(tensor);
  }

  /** The type, place and shape of a tensor's elements. Strings are pointers, in memory that the caller frees. */
  contents(tensor: number): { readonly type: number; readonly pointer: number; readonly shape: number[] } {
    const module = this.module;
    const stack = module.stackSave();
    const found = module.stackAlloc(4 * POINTER_BYTES);
    try {
      const places = [0, 1, 2, 3].map((at) => found + POINTER_BYTES * at) as [number, number, number, number];
      this.check(module._OrtGetTensorData(tensor, ...places), 'reading a result');
      const [type = 0, pointer = 0, dims = 0, rank = 0] = this.integers(found, 4);
      const shape = [...this.integers(dims, rank)];
      this.check(module._OrtFree(dims), 'reading a shape');
      return { type, pointer, shape };
    } finally {
      module.stackRestore(stack);
    }
  }

  /** Runs `session` once: the tensors of `outputs`, which the caller releases. */
  async run(session: number, inputs: readonly Bound[], outputs: readonly string[]): Promise<number[]> {
    const made = outputs.map((name) => ({ name, tensor: 0 })); // onnxruntime makes them
    const call = this.call(session, inputs, made);
    try {
      return await call.run();
    } finally {
      call.release();
    }
  }

  /** A call of `session` whose inputs and outputs stay bound. */
  call(session: number, inputs: readonly Bound[], outputs: readonly Bound[]): WasmCall {
    const rows = [
      inputs.map(({ name }) => this.name(name)),
      inputs.map(({ tensor }) => tensor),
      outputs.map(({ name }) => this.name(name)),
      outputs.map(({ tensor }) => tensor),
    ];
    const table = this.allocate(POINTER_BYTES * rows.flat().length);
    this.integers(table, rows.flat().length).set(rows.flat());
    const starts = [0, inputs.length, 2 * inputs.length, 2 * inputs.length + outputs.length].map(
      (at) => table + POINTER_BYTES * at,
    ) as [number, number, number, number];
    const options = this.module._OrtCreateRunOptions(ERRORS_ONLY, 0, false, 0);
    return {
      run: async () => {
        const [inputNames, inputsAt, outputNames, outputsAt] = starts;
        const code = await this.module._OrtRun(
          ...[session, inputNames, inputsAt, inputs.length],
          ...[outputNames, outputs.length, outputsAt, options],
        );
        this.check(code, 'running a graph');
        return [...this.integers(outputsAt, outputs.length)];
      },
      release: () => {
        this.module._OrtReleaseRunOptions(options);
        this.free(table);
      },
    };
  }

  /** The name as a C string; names are few and kept. */
  private name(text: string): number {
    let pointer = this.names.get(text);
    if (pointer === undefined) {
      const bytes = this.module.lengthBytesUTF8(text) + 1;
      pointer = this.allocate(bytes);
      this.module.stringToUTF8(text, pointer, bytes);
      this.names.set(text, pointer);
    }
    return pointer;
  }

  private check(code: number, what: string): void {
    if (code !== 0) this.fail(what);
  }

  private fail(what: string): never {
    const module = this.module;
    const stack = module.stackSave();
    const places = module.stackAlloc(2 * POINTER_BYTES);
    module._OrtGetLastError(places, places + POINTER_BYTES);
    const message = module.getValue(places + POINTER_BYTES, '*');
    const text = message === 0 ? 'no reason given' : module.UTF8ToString(message);
    module.stackRestore(stack);
    throw new Error(`${what} failed: ${text}`);
  }
}

function product(shape: readonly number[]): number {
  return shape.reduce((made, size) => made * size, 1);
}

export interface WasmCall {
  /** The tensors of the outputs. */
  run(): Promise<number[]>;
  release(): void;
}
