/* The worker that computes units of a graph model, so that neither the page nor a running answer waits. Edge. */

import type { ValueArray } from '../dataflow/value_codec';
import { textOf } from '../errors';
import { GraphSession, type GraphSource } from './graph_session';

export type ToGraphWorker =
  | { readonly kind: 'load'; readonly source: GraphSource; readonly threads: number }
  | { readonly kind: 'run'; readonly id: number; readonly inputs: readonly ValueArray[] };

export type FromGraphWorker =
  | { readonly kind: 'loaded' }
  | { readonly kind: 'failed'; readonly text: string }
  | { readonly kind: 'made'; readonly id: number; readonly outputs: readonly ValueArray[] }
  | { readonly kind: 'refused'; readonly id: number; readonly text: string };

const port = self as unknown as {
  postMessage(message: FromGraphWorker, transfer: Transferable[]): void;
  onmessage: ((event: MessageEvent<ToGraphWorker>) => void) | null;
};
let session: GraphSession | null = null;

port.onmessage = ({ data }) => {
  if (data.kind === 'load') {
    GraphSession.load(data.source, data.threads).then(
      (loaded) => {
        session = loaded;
        port.postMessage({ kind: 'loaded' }, []);
      },
      (error: unknown) => port.postMessage({ kind: 'failed', text: textOf(error) }, []),
    );
    return;
  }
  const { id, inputs } = data;
  run(inputs).then(
    (outputs) => {
      const buffers = outputs.map((output) => output.data.buffer as ArrayBuffer);
      port.postMessage({ kind: 'made', id, outputs }, buffers);
    },
    (error: unknown) => port.postMessage({ kind: 'refused', id, text: textOf(error) }, []),
  );
};

async function run(inputs: readonly ValueArray[]): Promise<ValueArray[]> {
  if (session === null) throw new Error('nothing is loaded');
  return session.run(inputs);
}
