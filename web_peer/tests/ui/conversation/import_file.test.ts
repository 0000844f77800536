/* Files of conversations are read within bounds, and long ones not by the page. */

import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import {
  BUDGET_MS,
  type ImportWorker,
  MAX_FILE_BYTES,
  readFile,
  SHORT_BYTES,
} from '../../../ui/conversation/import_file';

const FILE = JSON.stringify({
  ...{ format: 'shoal conversation 1', title: 'kept', system: '' },
  messages: [{ form: 'to-model', text: 'why' }],
});
const LONG = FILE.padEnd(SHORT_BYTES + 1);
const kept = { title: 'kept', system: '', messages: [{ form: 'to-model', text: 'why' }] };

class FakeWorker implements ImportWorker {
  onmessage: Worker['onmessage'] = null;
  onerror: Worker['onerror'] = null;
  sent: unknown[] = [];
  ended = 0;

  postMessage(message: unknown): void {
    this.sent.push(message);
  }

  terminate(): void {
    this.ended += 1;
  }
}

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

it('a short file is read here', async () => {
  const never = (): ImportWorker => {
    throw new Error('no worker expected');
  };
  expect(await readFile(new Blob([FILE]), never)).toEqual(kept);
  expect(await readFile(new Blob(['{']), never)).toMatch(/is no JSON/);
});

it('a long one in a worker, which then ends', async () => {
  const worker = new FakeWorker();
  const file = new Blob([LONG]);
  const reading = readFile(file, () => worker);
  expect(worker.sent).toEqual([file]);
  worker.onmessage?.call(worker as unknown as Worker, new MessageEvent('message', { data: kept }));
  expect(await reading).toEqual(kept);
  expect(worker.ended).toBe(1);
  expect(vi.getTimerCount()).toBe(0);
});

it('one that takes too long, or breaks its worker, is refused in words', async () => {
  const slow = new FakeWorker();
  const reading = readFile(new Blob([LONG]), () => slow);
  await vi.advanceTimersByTimeAsync(BUDGET_MS);
  expect(await reading).toMatch(/takes more than 20 s/);
  expect(slow.ended).toBe(1);
  const broken = new FakeWorker();
  const breaking = readFile(new Blob([LONG]), () => broken);
  broken.onerror?.call(broken as unknown as Worker, new Event('error') as ErrorEvent);
  expect(await breaking).toMatch(/cannot be read/);
  expect(broken.ended).toBe(1);
});

it('one above the bound is not read at all', async () => {
  const file = {
    size: MAX_FILE_BYTES + 1,
    text: () => Promise.reject(new Error('read')),
  } as unknown as Blob;
  const worker = new FakeWorker();
  expect(await readFile(file, () => worker)).toMatch(/too large: at most 64 MiB/);
  expect(worker.sent).toEqual([]);
});
