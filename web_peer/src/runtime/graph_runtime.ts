/*
 * Units of a graph model at work in this tab: a worker of their own, whose memory comes back when it ends (twin of
 * peer/runtime/graph_runtime.py). Edge.
 */

import { ELEMENT_BYTES, type ValueArray } from '../dataflow/value_codec';
import { CannotServe } from '../errors';
import type { Composed } from '../planner/compose';
import type { Value, ValueType } from '../planner/graph_manifest';
import type { GraphSource } from './graph_session';
import type { FromGraphWorker, ToGraphWorker } from './graph_worker';

const NOT_IN_TABS: ReadonlySet<string> = new Set(['complex64', 'complex128']); // of what leaves a peer at all

interface Waiting {
  readonly resolve: (outputs: readonly ValueArray[]) => void;
  readonly reject: (error: CannotServe) => void;
}

/** One run after the other; `lost` when the worker broke off. */
export class GraphRuntime {
  readonly weightBytes: number;
  private readonly composed: Composed;
  private readonly worker: Worker;
  private readonly waiting = new Map<number, Waiting>();
  private nextId = 0;
  private why: string | null = null; // nothing answers any more

  private constructor(composed: Composed, worker: Worker, lost: () => void) {
    this.composed = composed;
    this.weightBytes = composed.weightBytes;
    this.worker = worker;
    worker.onmessage = ({ data }: MessageEvent<FromGraphWorker>) => this.take(data);
    worker.onerror = (event) => {
      this.end(event.message || 'the worker broke off');
      lost();
    };
  }

  /** Raises CannotServe where onnxruntime refuses the units; `signal` ends the worker. `source` is given up. */
  static load(
    source: GraphSource,
    threads: number,
    lost: () => void,
    signal: AbortSignal,
  ): Promise<GraphRuntime> {
    const { composed, blobs } = source;
    for (const { name, dtype } of [...composed.inputs, ...composed.outputs]) {
      if (NOT_IN_TABS.has(dtype) || !ELEMENT_BYTES.has(dtype)) {
        throw new CannotServe(`${name}: a tab computes no values of ${dtype}`);
      }
    }
    signal.throwIfAborted();
    const worker = new Worker(new URL('./graph_worker.ts', import.meta.url), { type: 'module' });
    return new Promise((resolve, reject) => {
      const fail = (text: string): void => {
        worker.terminate();
        reject(new CannotServe(`onnxruntime refused these units: ${text}`));
      };
      const stop = (): void => fail('stopped');
      signal.addEventListener('abort', stop, { once: true });
      worker.onerror = (event) => fail(event.message || 'the worker did not start');
      worker.onmessage = ({ data }: MessageEvent<FromGraphWorker>) => {
        signal.removeEventListener('abort', stop);
        if (data.kind === 'loaded') resolve(new GraphRuntime(composed, worker, lost));
        else if (data.kind === 'failed') fail(data.text);
      };
      const buffers = [...new Set([...blobs.values()].map(({ buffer }) => buffer as ArrayBuffer))];
      worker.postMessage({ kind: 'load', source, threads } satisfies ToGraphWorker, buffers);
    });
  }

  /** Outputs by the names of their values. Raises CannotServe when they cannot be computed. */
  async run(inputs: ReadonlyMap<string, ValueArray>): Promise<Map<string, ValueArray>> {
    const given = this.composed.inputs.map(({ name }) => {
      const array = inputs.get(name);
      if (array === undefined) throw new CannotServe(`${name} is missing`);
      return array;
    });
    const made = await new Promise<readonly ValueArray[]>((resolve, reject) => {
      if (this.why !== null) {
        reject(new CannotServe(this.why));
        return;
      }
      const id = (this.nextId += 1);
      this.waiting.set(id, { resolve, reject });
      this.worker.postMessage({ kind: 'run', id, inputs: given } satisfies ToGraphWorker);
    });
    return new Map(
      this.composed.outputs.flatMap(({ name }, at) => {
        const array = made[at];
        return array === undefined ? [] : [[name, array] as const];
      }),
    );
  }

  /** Ends the worker, which gives its memory back. */
  close(): void {
    this.end('these units were unloaded');
  }

  private take(message: FromGraphWorker): void {
    if (message.kind !== 'made' && message.kind !== 'refused') return;
    const waiting = this.waiting.get(message.id);
    this.waiting.delete(message.id);
    if (message.kind === 'made') waiting?.resolve(message.outputs);
    else waiting?.reject(new CannotServe(`onnxruntime could not compute it: ${message.text}`));
  }

  private end(why: string): void {
    this.why ??= why;
    this.worker.terminate();
    for (const { reject } of this.waiting.values()) reject(new CannotServe(why));
    this.waiting.clear();
  }
}

/** An input or output of a file. */
export interface Port {
  readonly name: string;
  readonly dtype: ValueType;
  readonly shape: Value['shape'];
}

/**
 * Loads a small ONNX file of a model, such as the steps before it, until `ended`, on one thread. Close it when it is over.
 * Raises CannotServe where onnxruntime refuses it.
 */
export async function loadFileGraph(
  file: Uint8Array,
  input: Port,
  output: Port,
  ended: AbortSignal,
): Promise<GraphRuntime> {
  const value = (port: Port): Value => ({ ...port, bytes: [] });
  const composed = {
    model: new Uint8Array(file),
    inputs: [value(input)],
    outputs: [value(output)],
    weightBytes: 0,
  };
  const source = { composed, blobs: new Map<string, Uint8Array>(), fused: false };
  const runtime = await GraphRuntime.load(source, 1, () => undefined, ended);
  ended.addEventListener('abort', () => runtime.close(), { once: true });
  return runtime;
}
