/* A tab's stages of runs: what it loads and lets go of, what it refuses, and that items of all origins take turns. */

import { describe, expect, it } from 'vitest';

import type { ValueArray } from '../../src/dataflow/value_codec';
import { CannotServe } from '../../src/errors';
import type { GraphManifest, Value } from '../../src/planner/graph_manifest';
import { FlowHost, type Runtime } from '../../src/stage/flow_host';
import type { ModelOffer } from '../../src/state/generated/commands';
import { EMPTY_STATE, type MeshState } from '../../src/state/mesh_state';
import { Requests } from '../../src/transport/request_table';
import type { Frame, RunValue } from '../../src/wire/generated/frames';
import { decodeGraphManifest } from '../../src/planner/graph_manifest';
import { vectors } from '../vectors';

const MODEL = 'a'.repeat(64);
const AGAIN = 'b'.repeat(64); // the same units
const RUN = '01'.repeat(16);
const { cases } = vectors('compose') as {
  cases: { name: string; manifest: string; graphs: Record<string, string> }[];
};
const [chain] = cases;
if (chain === undefined) throw new Error('no chain');
const MANIFEST: GraphManifest = decodeGraphManifest(new TextEncoder().encode(chain.manifest));
const BLOBS = new Map(
  Object.entries(chain.graphs).map(([name, text]) => [name, new Uint8Array(Buffer.from(text, 'base64'))]),
);
const stage = (first: number, stop: number, primary: string, ...standbys: string[]) =>
  ({ first, stop, primary, standbys, bytes: 0 }) as ModelOffer['stages'][number];

class Host {
  readonly sent: Frame[] = [];
  readonly ran: ReadonlyMap<string, ValueArray>[] = [];
  readonly loads: string[] = [];
  readonly closed: string[] = [];
  readonly host: FlowHost;
  makes: (inputs: ReadonlyMap<string, ValueArray>) => Map<string, ValueArray> = (inputs) =>
    new Map([['t.0', [...inputs.values()][0] as ValueArray]]);
  refuses = false;
  lose = (): void => undefined; // the worker of the last load
  first: Promise<void> | null = null; // the first load waits for it, later ones until they are taken away
  private state: MeshState = EMPTY_STATE;
  private readonly looks = new Set<() => void>();
  private readonly requests = new Requests(() => true);

  constructor() {
    const state = (): MeshState => this.state;
    const view = {
      get state() {
        return state();
      },
      subscribe: (look: () => void) => {
        this.looks.add(look);
        return () => this.looks.delete(look);
      },
    };
    const connection = { drained: () => Promise.resolve() };
    const links = {
      me: 'me',
      on: this.requests.on.bind(this.requests),
      onConnected: () => () => undefined,
      dial: () => Promise.resolve(connection),
      connection: () => connection,
      send: (_: string, frame: Frame) => this.sent.push(frame),
      sendOrLose: (_: string, frame: Frame) => this.sent.push(frame),
    };
    this.host = new FlowHost(links as never, view);
  }

  lend(): void {
    const fetcher = {
      graphManifest: () => Promise.resolve(MANIFEST),
      blobs: () => Promise.resolve(new Map(BLOBS)),
    };
    this.host.lend(fetcher, 1, ({ composed }, _threads, lost, signal) => {
      this.lose = lost;
      const name = composed.inputs.map((value) => value.name).join();
      if (this.refuses) return Promise.reject(new CannotServe('no memory'));
      this.loads.push(name);
      if (this.first !== null && this.loads.length > 1) {
        return new Promise((_, reject) => {
          signal.addEventListener('abort', () => reject(signal.reason as DOMException));
        });
      }
      const runtime: Runtime = {
        weightBytes: composed.weightBytes,
        run: (inputs) => {
          this.ran.push(inputs);
          return Promise.resolve().then(() => this.makes(inputs));
        },
        close: () => this.closed.push(name),
      };
      return Promise.resolve(this.first).then(() => runtime);
    });
  }

  place(...stages: ModelOffer['stages']): void {
    this.placeModels(stages.length > 0 ? { [MODEL]: stages } : {});
  }

  placeModels(placed: Readonly<Record<string, ModelOffer['stages']>>): void {
    const offers = Object.entries(placed).map(
      ([model, stages]) =>
        [model, { model, version: 1, stages, latencyUs: 0, rateMilli: 0, why: [] }] as const,
    );
    this.state = { ...this.state, offers: new Map(offers) };
    for (const look of [...this.looks]) look();
  }

  open(peers: readonly string[], epoch = 1, origin = 'asker', run = RUN): Promise<unknown> {
    const spans = [
      [0, 1],
      [1, 3],
      [3, 4],
    ];
    return this.requests.answer(origin, 'run_open', { run, epoch, model: MODEL, spans, peers });
  }

  value(item: number, origin = 'before', run = RUN): void {
    const data = new Uint8Array(Float32Array.from({ length: 8 }, () => item).buffer);
    const place = MANIFEST.values.findIndex(({ name }) => name === 'u0/t.0');
    const frame = { kind: 'RUN_VALUE', run, epoch: 1, item, value: place, shape: [1, 8], offset: 0 } as const;
    this.host.value(origin, { ...frame, total: 32, body: data });
  }
}

const settled = async (): Promise<void> => {
  for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setTimeout(resolve));
};
const PEERS = ['before', 'me', 'after'];

describe('units', () => {
  it('are loaded when a placement gives them, and let go of with it', async () => {
    const made = new Host();
    made.place(stage(0, 1, 'before'), stage(1, 3, 'other', 'me'), stage(3, 4, 'after'));
    made.lend();
    await settled();
    expect(made.loads).toEqual(['u0/t.0']);
    expect(made.host.units).toEqual([{ model: MODEL, first: 1, stop: 3 }]);
    expect(made.host.weightBytes).toBe(4 * (64 + 2 * 8));
    made.place();
    await settled();
    expect(made.closed).toEqual(['u0/t.0']);
    expect(made.host.weightBytes).toBe(0);
  });

  it('stay while a run uses them', async () => {
    const made = new Host();
    made.lend();
    made.place(stage(0, 1, 'before'), stage(1, 3, 'me'), stage(3, 4, 'after'));
    await made.open(PEERS);
    made.place();
    await settled();
    expect(made.closed).toEqual([]);
    made.host.perform(made.host.core.close('asker', RUN));
    await settled();
    expect(made.closed).toEqual(['u0/t.0']);
  });

  it('that two models share are loaded once, and stay for the other', async () => {
    const made = new Host();
    made.lend();
    const held = [stage(0, 1, 'before'), stage(1, 3, 'me'), stage(3, 4, 'after')];
    made.placeModels({ [MODEL]: held, [AGAIN]: held });
    await settled();
    expect(made.loads).toEqual(['u0/t.0']);
    expect(made.host.units).toHaveLength(2);
    expect(made.host.weightBytes).toBe(4 * (64 + 2 * 8));
    made.placeModels({ [AGAIN]: held });
    await settled();
    expect([made.host.units, made.closed]).toEqual([[{ model: AGAIN, first: 1, stop: 3 }], []]);
    made.placeModels({ [MODEL]: [stage(0, 1, 'before'), stage(1, 4, 'me')], [AGAIN]: held });
    await settled();
    expect(made.loads).toHaveLength(2); // equal in part only
    made.placeModels({});
    await settled();
    expect(made.closed).toHaveLength(2);
    expect(made.host.weightBytes).toBe(0);
  });

  it('that two models share are lost for both with their worker', async () => {
    const made = new Host();
    made.lend();
    const held = [stage(0, 1, 'before'), stage(1, 3, 'me'), stage(3, 4, 'after')];
    made.placeModels({ [MODEL]: held, [AGAIN]: held });
    await settled();
    made.lose();
    await settled();
    expect(made.loads).toHaveLength(2);
    expect(made.host.units).toHaveLength(2);
    made.host.close();
    await settled();
    expect(made.closed).toHaveLength(1);
  });

  it('that do not load are told to who opens a run, and are tried again', async () => {
    const made = new Host();
    made.refuses = true;
    made.lend();
    made.place(stage(0, 1, 'before'), stage(1, 3, 'me'), stage(3, 4, 'after'));
    await expect(made.open(PEERS)).rejects.toThrow('no memory');
    made.refuses = false;
    await made.open(PEERS);
    expect(made.host.units).toHaveLength(1);
    made.host.close();
  });

  it('that are taken away while they load are refused in words', async () => {
    const made = new Host();
    let free = (): void => undefined;
    made.first = new Promise((resolve) => (free = resolve));
    made.lend();
    made.place(stage(0, 1, 'me'), stage(1, 3, 'other'), stage(3, 4, 'after'));
    await expect.poll(() => made.loads).toHaveLength(1);
    made.place(stage(0, 1, 'me'), stage(1, 3, 'me'), stage(3, 4, 'after'));
    const opened = made.open(PEERS);
    await expect.poll(() => made.loads).toHaveLength(2);
    made.place(stage(0, 1, 'me'), stage(1, 3, 'other'), stage(3, 4, 'after'));
    free();
    await expect(opened).rejects.toThrow('no placement gives this peer these units any more');
    made.host.close();
  });
});

describe('a run', () => {
  it('is refused where nothing is lent or placed here', async () => {
    const made = new Host();
    await expect(made.open(PEERS)).rejects.toThrow('lends nothing');
    made.lend();
    await expect(made.open(PEERS)).rejects.toThrow('no placement gives this peer these units');
    made.place(stage(0, 1, 'before'), stage(1, 3, 'me'), stage(3, 4, 'after'));
    await expect(made.open(['before', 'other', 'after'])).rejects.toThrow('no placement');
    await expect(made.open(['before', 'me'])).rejects.toThrow('3 peers expected, got 2');
    made.host.close();
  });

  it('gets what its stage makes, and items of several origins in turn', async () => {
    const made = new Host();
    made.lend();
    made.place(stage(0, 1, 'before'), stage(1, 3, 'me'), stage(3, 4, 'after'));
    const second = '02'.repeat(16);
    await made.open(PEERS);
    await made.open(PEERS, 1, 'other asker', second);
    for (const item of [0, 1, 2]) made.value(item);
    made.value(7, 'before', second);
    await settled();
    const first = made.ran.map(
      (inputs) => new Float32Array([...inputs.values()][0]?.data.slice().buffer ?? [])[0],
    );
    expect(first).toEqual([0, 1, 7, 2]);
    const values = made.sent.filter((frame): frame is RunValue => frame.kind === 'RUN_VALUE');
    expect(values.map(({ run, item }) => [run, item])).toEqual([
      [RUN, 0],
      [RUN, 1],
      [second, 7],
      [RUN, 2],
    ]);
    made.host.close();
  });

  it('hears of an item that cannot be computed, or that comes out in another shape', async () => {
    const made = new Host();
    made.lend();
    made.place(stage(0, 1, 'before'), stage(1, 3, 'me'), stage(3, 4, 'after'));
    await made.open(PEERS);
    made.makes = () => {
      throw new CannotServe('onnxruntime could not: ' + 'é'.repeat(5000));
    };
    made.value(0);
    await settled();
    made.makes = () => new Map([['t.0', { shape: [1, 9], data: new Uint8Array(36) }]]);
    made.value(1);
    await settled();
    const told = made.sent.flatMap((frame) => (frame.kind === 'RUN_ITEM_FAILED' ? [frame] : []));
    expect(told.map(({ item }) => item)).toEqual([0, 1]);
    expect(new TextEncoder().encode(told[0]?.message).length).toBeLessThanOrEqual(4096);
    expect(told[0]?.message).toMatch(/^onnxruntime could not: é+$/);
    expect(told[1]?.message).toContain('shape (rows, 8) expected');
    made.host.close();
  });

  it('hears of no failure from a tab that leaves while it computes', async () => {
    const made = new Host();
    made.lend();
    made.place(stage(0, 1, 'before'), stage(1, 3, 'me'), stage(3, 4, 'after'));
    await made.open(PEERS);
    made.makes = () => {
      throw new CannotServe('the worker was ended');
    };
    made.value(0);
    made.host.close();
    await settled();
    expect(made.ran).toHaveLength(1);
    expect(made.sent).toEqual([]);
  });
});

it('a value of a run that this tab asks for which there is no room fails its item', () => {
  const made = new Host();
  const failed: unknown[][] = [];
  const place = MANIFEST.values.findIndex(({ name }) => name === 'u0/t.0');
  const wanted: Value = { name: 'y', dtype: 'float32', shape: ['rows'], bytes: [] };
  made.host.listen(RUN, {
    wanted: () => wanted,
    came: () => expect.unreachable(),
    failed: (...told) => void failed.push(told),
  });
  const bytes = 1 << 30;
  const head = { kind: 'RUN_VALUE', run: RUN, epoch: 2, item: 5, value: place, offset: 0 } as const;
  made.host.value('maker', { ...head, shape: [bytes / 4], total: bytes, body: new Uint8Array(16) });
  expect(failed).toEqual([
    ['maker', 2, 5, expect.stringContaining('no room for a value of 1073741824 bytes')],
  ]);
  made.host.close();
});
