/* The worker that measures one provider, so that the page stays free and its memory comes back. Edge. */

import { WasmExecution } from './execution_wasm';
import type { Manifest } from './manifest';
import { measureUnits, type UnitTimes } from './measure_units';
import type { Provider } from './shards';
import { WasmModule } from './wasm_module';

export type ToMeasurer =
  | { readonly kind: 'ping' }
  | {
      readonly kind: 'measure';
      readonly manifest: Manifest;
      readonly provider: Provider;
      readonly threads: number;
    };

export type FromMeasurer =
  | { readonly kind: 'pong' }
  | { readonly kind: 'times'; readonly times: UnitTimes }
  | { readonly kind: 'failed'; readonly text: string };

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
      order.manifest,
      'webgpu',
      (source, blobs, context) => WebGpuExecution.load(source, blobs, context, () => undefined),
      now,
    );
  }
  const module = await WasmModule.load(order.threads);
  return measureUnits(
    order.manifest,
    'wasm',
    (source, blobs, context) => WasmExecution.loadInto(module, source, blobs, context),
    now,
  );
}
