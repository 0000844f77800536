/* Units of a graph model on onnxruntime's WebAssembly: one session of a composed model, whose arrays are copied. Edge. */

import {
  ELEMENT_BYTES,
  elementsOf,
  stringsOf,
  bytesOfStrings,
  type ValueArray,
} from '../dataflow/value_codec';
import { giveBack } from '../model/release_arrays';
import type { Composed } from '../planner/compose';
import { ELEMENT_TYPES } from '../planner/compose';
import type { Value } from '../planner/graph_manifest';
import { withBodyWeights } from './body_weights';
import { type Bound, WasmModule } from './wasm_module';

/** A composed model and the blobs of its weights by hash, which are given up; `fused` as in the manifest. */
export interface GraphSource {
  readonly composed: Composed;
  readonly blobs: ReadonlyMap<string, Uint8Array>;
  readonly fused: boolean;
}

/** One caller at a time. */
export class GraphSession {
  private readonly module: WasmModule;
  private readonly session: number;
  private readonly inputs: readonly Value[];
  private readonly outputs: readonly Value[];

  private constructor(module: WasmModule, session: number, { inputs, outputs }: Composed) {
    this.module = module;
    this.session = session;
    this.inputs = inputs;
    this.outputs = outputs;
  }

  /** Raises an Error where onnxruntime refuses the model. */
  static async load({ composed, blobs, fused }: GraphSource, threads: number): Promise<GraphSession> {
    const module = await WasmModule.load(threads);
    for (const [location, bytes] of blobs) {
      module.mount(location, { byteLength: bytes.length, subarray: (a, b) => bytes.subarray(a, b) });
    }
    try {
      const model = withBodyWeights(composed.model, blobs);
      return new GraphSession(module, await module.session(model, fused), composed);
    } finally {
      module.unmountAll();
      for (const bytes of blobs.values()) giveBack(bytes); // onnxruntime has its own now
    }
  }

  get memoryBytes(): number {
    return this.module.memoryBytes;
  }

  /** Outputs in the order of the composed model's, for inputs in the order of its. Raises an Error. */
  async run(given: readonly ValueArray[]): Promise<ValueArray[]> {
    const { module } = this;
    const pointers: number[] = [];
    const bound: Bound[] = [];
    let made: number[] = [];
    try {
      this.inputs.forEach((value, at) => {
        const array = given[at];
        if (array === undefined) throw new Error(`no array for ${value.name}`);
        bound.push({ name: value.name, tensor: this.tensor(value, array, pointers) });
      });
      const names = this.outputs.map(({ name }) => name);
      made = await module.run(this.session, bound, names);
      return this.outputs.map((value, at) => this.read(value, made[at] as number));
    } finally {
      for (const tensor of [...bound.map((each) => each.tensor), ...made]) module.releaseTensor(tensor);
      for (const pointer of pointers) module.free(pointer);
    }
  }

  private tensor({ name, dtype }: Value, { shape, data }: ValueArray, pointers: number[]): number {
    const { module } = this;
    const type = ELEMENT_TYPES[dtype];
    const place = (bytes: number): number => {
      const pointer = module.allocate(Math.max(bytes, 1));
      pointers.push(pointer);
      return pointer;
    };
    if (dtype !== 'string') {
      const pointer = place(data.length);
      module.bytes(pointer, data.length).set(data);
      return module.tensor(type, pointer, shape, data.length);
    }
    const words = stringsOf(data, shape, name);
    if (words.some((word) => word.includes('\0'))) {
      throw new Error(`${name}: onnxruntime in a tab has no strings with a zero character`);
    }
    const table = place(4 * words.length);
    const texts = words.map((word) => {
      const bytes = new TextEncoder().encode(`${word}\0`);
      const pointer = place(bytes.length);
      module.bytes(pointer, bytes.length).set(bytes);
      return pointer;
    });
    module.integers(table, texts.length).set(texts);
    return module.tensor(type, table, shape, 4 * words.length);
  }

  private read({ name, dtype }: Value, tensor: number): ValueArray {
    const { module } = this;
    const { type, pointer, shape } = module.contents(tensor);
    if (type !== ELEMENT_TYPES[dtype]) {
      throw new Error(`${name}: ${dtype} expected, onnxruntime made data type ${type}`);
    }
    const count = elementsOf(shape);
    if (dtype !== 'string') {
      return { shape, data: module.bytes(pointer, count * (ELEMENT_BYTES.get(dtype) ?? 0)).slice() };
    }
    const starts = [...module.integers(pointer, count)];
    const words = starts.map((start, at) => module.text(start, (starts[at + 1] ?? Infinity) - start));
    module.free(pointer);
    return { shape, data: bytesOfStrings(words) };
  }
}
