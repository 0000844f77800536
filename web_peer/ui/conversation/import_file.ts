/*
 * A conversation out of a file, without holding the page up: bounds first, then a budget (twin of
 * peer/launch/transcript_files.py).
 *
 * Edge. Few bytes of JSON can take seconds, and the page carries heartbeats. A short file is read here, any other in a
 * worker, which ends when it takes too long.
 */

import { MAX_CONVERSATION_BYTES } from '../../src/state/generated/commands';
import { type Brought, broughtOf } from './export';

export const MAX_FILE_BYTES = 4 * MAX_CONVERSATION_BYTES; // texts as JSON spells them, and what stands around them
export const SHORT_BYTES = 64 << 10;
export const BUDGET_MS = 20_000;

/** The part of a Worker that is used. */
export type ImportWorker = Pick<Worker, 'postMessage' | 'terminate' | 'onmessage' | 'onerror'>;

const started = (): ImportWorker =>
  new Worker(new URL('./import_worker.ts', import.meta.url), { type: 'module' });

/** The conversation of a file that `asJson` wrote, or why there is none. */
export async function readFile(file: Blob, start: () => ImportWorker = started): Promise<Brought | string> {
  if (file.size > MAX_FILE_BYTES) {
    return `This file is too large: at most ${MAX_FILE_BYTES >> 20} MiB can be brought in.`;
  }
  if (file.size <= SHORT_BYTES) {
    try {
      return broughtOf(await file.text());
    } catch {
      return 'This file cannot be read.';
    }
  }
  const worker = start();
  try {
    return await inWorker(worker, file);
  } finally {
    worker.terminate();
  }
}

function inWorker(worker: ImportWorker, file: Blob): Promise<Brought | string> {
  return new Promise((resolve) => {
    const late = setTimeout(
      () => resolve(`This file takes more than ${BUDGET_MS / 1000} s to read.`),
      BUDGET_MS,
    );
    worker.onerror = () => {
      clearTimeout(late);
      resolve('This file cannot be read.');
    };
    worker.onmessage = ({ data }: MessageEvent<Brought | string>) => {
      clearTimeout(late);
      resolve(data);
    };
    worker.postMessage(file);
  });
}
