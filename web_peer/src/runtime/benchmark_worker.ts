/* The worker that measures one provider, so that the page stays free and its memory comes back. Edge. */

import { WasmExecution } from './execution_wasm';
import type { Provider } from '../planner/linear';
import type { Decoder } from '../planner/manifest';
import { measureUnits, type UnitTimes } from './unit_benchmark';
import { WasmModule } from './wasm_module';

export type ToMeasurer =
  | { readonly kind: 'ping' }
  | {
      readonly kind: 'measure';
      readonly decoder: Decoder;
      readonly provider: Provider;
      readonly threads: number;
    };

export type FromMeasurer =
  | { readonly kind: 'pong' }
  | { readonly kind: 'times'; readonly times: UnitTimes }
  | { readonly kind: 'failed'; readonly text: string };

const NAME_CHARS = 40; // of a GPU's name: a class has at most 96

const port = self as unknown as {
  postMessage(message: FromMeasurer): void;
  onmessage: ((event: MessageEvent<ToMeasurer>) => void) | null;
};

port.onmessage = ({ data }) => {
  if (data.kind === 'ping') {
    port.postMessage({ kind: 'pong' });
    return;
  }
  measured(data).then(
    (times) => port.postMessage({ kind: 'times', times }),
    (error: unknown) => port.postMessage({ kind: 'failed', text: String(error) }),
  );
};

async function measured(order: Extract<ToMeasurer, { kind: 'measure' }>): Promise<UnitTimes> {
  const now = (): number => performance.now();
  if (order.provider === 'webgpu') {
    const { WebGpuExecution } = await import('./execution_webgpu');
    return measureUnits(
      order.decoder,
      'webgpu',
      await adapterName(),
      (source, blobs, context) => WebGpuExecution.load(source, blobs, context, () => undefined),
      now,
    );
  }
  const module = await WasmModule.load(order.threads);
  return measureUnits(
    order.decoder,
    'wasm',
    'simd128', // onnxruntime-web has no other build
    (source, blobs, context) => WasmExecution.loadInto(module, source, blobs, context),
    now,
  );
}

/** What the GPU says of itself, as it may stand in a class of arithmetic. */
async function adapterName(): Promise<string> {
  const info = (await navigator.gpu.requestAdapter())?.info;
  const said = [info?.vendor, info?.architecture].filter((part) => part !== undefined && part !== '');
  const name = said
    .join('-')
    .toLowerCase()
    .replace(/[^a-z0-9_.+-]+/g, '-');
  return name === '' ? 'unknown' : name.slice(0, NAME_CHARS);
}
