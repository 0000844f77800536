/* Workers of stages: equal units find the worker that has them, and it ends with the last stage in it. */

import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import { StageWorker, StageWorkers } from '../../src/runtime/worker_handle';
import type { FromWorker, Room, ToWorker } from '../../src/runtime/worker_messages';
import type { Manifest } from '../../src/planner/manifest';

class FakeWorker {
  static all: FakeWorker[] = [];
  onmessage: ((event: { data: FromWorker }) => void) | null = null;
  onerror: ((event: { message: string }) => void) | null = null;
  readonly told: ToWorker[] = [];
  isOver = false;

  constructor() {
    FakeWorker.all.push(this);
  }

  postMessage(message: ToWorker): void {
    this.told.push(message);
  }

  terminate(): void {
    this.isOver = true;
  }
}

beforeEach(() => {
  FakeWorker.all = [];
  vi.stubGlobal('Worker', FakeWorker);
});
afterEach(() => {
  vi.unstubAllGlobals();
});

const ROOM: Room = { provider: 'wasm', threads: 1, slots: 2, context: 64 };

function manifest(...blobs: readonly string[]): Manifest {
  const units = blobs.map((sha256, at) => ({
    ...{ name: `u${at}`, kind: at === 0 ? 'embed' : 'ffn', graph: { sha256: 'g' }, blob: { sha256 } },
    ...{ tensors: [], kv: [] },
  }));
  return {
    units,
    weights: 'f32',
    vocab: 9,
    hidden: 4,
    context: 64,
    scratch: 4,
    rotary: [],
  } as unknown as Manifest;
}

function made(): { readonly worker: StageWorker; readonly fake: FakeWorker } {
  const worker = new StageWorker();
  const fake = FakeWorker.all.at(-1);
  if (fake === undefined) throw new Error('no worker was begun');
  return { worker, fake };
}

it.each([
  ['the same run of another model', manifest('a', 'b', 'c'), 0, 2, ROOM, true],
  ['a run that is cut otherwise', manifest('a', 'b'), 0, 1, ROOM, false],
  ['other weights', manifest('a', 'x'), 0, 2, ROOM, false],
  ['another provider', manifest('a', 'b'), 0, 2, { ...ROOM, provider: 'webgpu' as const }, false],
  ['a longer context and more seats', manifest('a', 'b'), 0, 2, { ...ROOM, context: 9, slots: 1 }, true],
])('%s', async (_, other, first, stop, room, isFound) => {
  const workers = new StageWorkers();
  const { worker } = made();
  workers.add({ manifest: manifest('a', 'b'), first: 0, stop: 2 }, ROOM, worker, Promise.resolve());
  expect(await workers.having({ manifest: other, first, stop }, room)).toBe(isFound ? worker : null);
});

it('a worker is found once what it loads is there, and not where that failed and ended it', async () => {
  const workers = new StageWorkers();
  const load = { manifest: manifest('a'), first: 0, stop: 1 };
  const { worker } = made();
  const stage = worker.open(() => undefined);
  let fail: (error: Error) => void = () => undefined;
  const loads = new Promise((_, reject) => (fail = reject));
  workers.add(load, ROOM, worker, loads);
  const found = workers.having(load, ROOM);
  worker.leave(stage);
  fail(new Error('no room'));
  expect(await found).toBeNull();
  const { worker: next } = made();
  workers.add(load, ROOM, next, Promise.resolve());
  expect(await workers.having(load, ROOM)).toBe(next);
});

it('each stage is told what is said of it, and the last that leaves ends the worker', () => {
  const { worker, fake } = made();
  const heard: string[] = [];
  const one = worker.open((message) => heard.push(`one ${message.kind}`));
  const two = worker.open((message) => heard.push(`two ${message.kind}`));
  fake.onmessage?.({ data: { kind: 'failed', text: 'x', stage: two } });
  worker.tell(one, { kind: 'release', session: 's' });
  worker.leave(one);
  worker.leave(one);
  fake.onmessage?.({ data: { kind: 'failed', text: 'x', stage: one } });
  expect(heard).toEqual(['two failed']);
  expect(fake.told).toEqual([
    { stage: one, kind: 'release', session: 's' },
    { stage: one, kind: 'unload' },
  ]);
  expect([fake.isOver, worker.isOver]).toEqual([false, false]);
  worker.leave(two);
  expect([fake.isOver, worker.isOver]).toEqual([true, true]);
});

it.each([
  ['a device that is gone', (fake: FakeWorker) => fake.onmessage?.({ data: { kind: 'lost', text: 'gone' } })],
  ['a worker that breaks off', (fake: FakeWorker) => fake.onerror?.({ message: 'gone' })],
])('%s is the loss of all stages, once', (_, breaks) => {
  const { worker, fake } = made();
  const heard: string[] = [];
  for (const name of ['one', 'two']) {
    worker.open((message) => heard.push(`${name} ${message.kind === 'lost' ? message.text : message.kind}`));
  }
  breaks(fake);
  breaks(fake);
  expect(heard).toEqual(['one gone', 'two gone']);
  expect([fake.isOver, worker.isOver]).toEqual([true, true]);
});
