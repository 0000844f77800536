/* One way of a run that this tab asks: who is asked, what happens when peers are lost or nothing ends, how it breaks. */

import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import type { SendValue } from '../../src/dataflow/flow_stage';
import type { ValueArray } from '../../src/dataflow/value_codec';
import { BadCommand, ConnectionLost } from '../../src/errors';
import { openRun } from '../../src/origin/run_client';
import { RunLane } from '../../src/origin/run_lane';
import type { GraphManifest } from '../../src/planner/graph_manifest';
import type { Member, RunStage } from '../../src/state/generated/commands';
import { EMPTY_STATE, type MeshState } from '../../src/state/mesh_state';

const MODEL = 'a'.repeat(64);
const BLOB = { sha256: '0'.repeat(64), bytes: 1, pieces: ['0'.repeat(64)] };
const unit = (name: string, takes: string, makes: string): GraphManifest['units'][number] => ({
  ...{ name, component: 'graph', graph: BLOB, weights: [], tensors: [] },
  ...{ inputs: [takes], outputs: [makes], params: 0, residentBytes: 0, flops: [], state: [], ops: [] },
});
const MANIFEST: GraphManifest = {
  ...{
    name: 'm',
    inputs: ['x'],
    outputs: ['y'],
    sizes: new Map(),
    fused: true,
    opset: 0,
    text: null,
    picture: null,
  },
  values: ['x', 'h', 'y'].map((name) => ({ name, dtype: 'float32', shape: [], bytes: [] })),
  units: [unit('first', 'x', 'h'), unit('second', 'h', 'y')],
};
const OFFERED = { name: 'name', model: MODEL, manifest: MANIFEST };
const [X, Y] = [0, 2];
const number = (value: number): ValueArray => ({
  shape: [],
  data: new Uint8Array(Float32Array.of(value).buffer),
});
const inputs = new Map([[X, number(1)]]);
const never = new AbortController().signal;

function member(peer: string): Member {
  const rest = { profile: null, held: [], reason: '', headless: false, durable: false, incarnation: 0 };
  return { peer, name: peer, compute: true, status: 'measured', ...rest };
}

/** Links, view and flow of the peer `me`. `refuse` says who does not open its stages, and why. */
class World {
  state: MeshState = {
    ...EMPTY_STATE,
    members: new Map(['a', 'b', 'c'].map((peer) => [peer, member(peer)])),
  };
  readonly opened: { readonly peer: string; readonly epoch: number }[] = [];
  readonly closed: string[] = [];
  readonly sent: SendValue[] = [];
  readonly refuse = new Map<string, Error>();
  holds: Promise<unknown> = Promise.resolve(); // what answers of who opens its stages wait for
  readonly gone = new Set<(peer: string) => void>();
  readonly looks = new Set<() => void>();

  constructor() {
    this.place([0, 1, 'a', 'c'], [1, 2, 'b']);
  }

  place(...stages: readonly [first: number, stop: number, primary: string, ...standbys: string[]][]): void {
    const version = (this.state.offers.get('name')?.version ?? 0) + 1;
    const made = stages.map(([first, stop, primary, ...standbys]): RunStage => ({
      first,
      stop,
      primary,
      standbys,
      bytes: 0,
    }));
    const offer = { model: MODEL, version, stages: made, latencyUs: 0, rateMilli: 0, why: [] };
    this.become({ ...this.state, offers: new Map([['name', offer]]) });
  }

  become(state: MeshState): void {
    this.state = state;
    for (const look of [...this.looks]) look();
  }

  lose(peer: string): void {
    for (const listener of [...this.gone]) listener(peer);
  }

  get parts() {
    const opening = (peer: string, { epoch }: { readonly epoch: number }): Promise<object> => {
      this.opened.push({ peer, epoch });
      const why = this.refuse.get(peer);
      return why === undefined ? this.holds.then(() => ({})) : Promise.reject(why);
    };
    const state = (): MeshState => this.state;
    return {
      links: {
        me: 'me',
        ask: (peer: string, _: unknown, said: { epoch: number }) => opening(peer, said),
        call: (peer: string) => Promise.resolve(this.closed.push(peer)),
        onGone: (listener: (peer: string) => void) => {
          this.gone.add(listener);
          return () => this.gone.delete(listener);
        },
        sendOrLose: () => undefined,
      } as never,
      view: {
        get state() {
          return state();
        },
        subscribe: (look: () => void) => {
          this.looks.add(look);
          return () => this.looks.delete(look);
        },
      } as never,
      flow: {
        listen: () => () => undefined,
        exchange: { send: (effect: SendValue) => this.sent.push(effect) },
        manifest: () => Promise.resolve(MANIFEST),
      } as never,
    };
  }

  lane(): RunLane {
    const { links, view, flow } = this.parts;
    return new RunLane(links, view, flow, OFFERED);
  }

  async open(): Promise<RunLane> {
    const lane = this.lane();
    await lane.open();
    return lane;
  }

  answer(lane: RunLane): void {
    lane.came(lane.route.makers.get(Y) ?? '', this.opened.at(-1)?.epoch ?? 0, 0, Y, number(7));
  }
}

const peersOf = ({ route }: RunLane): readonly string[] => route.stages.map(({ peer }) => peer);

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

it('a lost primary gives way to its standby, and the item is sent again', async () => {
  const world = new World();
  const lane = await world.open();
  const asking = lane.run(inputs, never);
  expect(world.sent.map(({ peer, epoch }) => [peer, epoch])).toEqual([['a', 1]]);
  world.lose('a');
  await vi.advanceTimersByTimeAsync(0);
  expect(peersOf(lane)).toEqual(['c', 'b']);
  expect(world.sent.slice(1).map(({ peer, epoch }) => [peer, epoch])).toEqual([['c', 2]]);
  world.answer(lane);
  expect((await asking).get(Y)).toEqual(number(7));
  await lane.close();
  expect(world.closed).toEqual(['a', 'b', 'c']); // "a" may be back, with what it kept
  expect(world.gone.size + world.looks.size).toBe(0);
});

it('a peer whose connection alone was lost is tried again', async () => {
  const world = new World();
  const lane = await world.open();
  world.lose('b'); // nobody stands by for it
  await vi.advanceTimersByTimeAsync(4000);
  expect(world.opened.map(({ epoch }) => epoch)).toEqual([1, 1]);
  await vi.advanceTimersByTimeAsync(2000);
  expect(peersOf(lane)).toEqual(['a', 'b']);
  expect(world.opened.at(-1)?.epoch).toBe(2);
  await lane.close();
});

it('stages are opened again where nothing ends, less and less often', async () => {
  const world = new World();
  const lane = await world.open();
  const asking = lane.run(inputs, never);
  const at: number[] = [];
  for (let s = 1; s <= 300; s += 1) {
    for (const look of [...world.looks]) look(); // a state that changes all the time is no sign of progress
    const before = world.opened.length;
    await vi.advanceTimersByTimeAsync(1000);
    if (world.opened.length > before) at.push(s);
  }
  expect(at).toHaveLength(3);
  expect(at.map((s, place) => Math.round((s - (at[place - 1] ?? 0)) / 30))).toEqual([1, 2, 4]);
  world.answer(lane);
  expect((await asking).get(Y)).toEqual(number(7));
  await lane.close();
});

it('what waits fails when the model is withdrawn', async () => {
  const world = new World();
  const lane = await world.open();
  const asking = expect(lane.run(inputs, never)).rejects.toThrow('name was withdrawn');
  world.become({ ...world.state, offers: new Map() });
  await asking;
  await expect(lane.run(inputs, never)).rejects.toThrow('name was withdrawn');
  await lane.close();
});

it('who cannot be reached is passed over, and who refuses is asked again', async () => {
  const world = new World();
  world.refuse.set('a', new ConnectionLost('gone'));
  const opening = world.open();
  await vi.advanceTimersByTimeAsync(1000);
  const lane = await opening;
  expect(peersOf(lane)).toEqual(['c', 'b']);
  await lane.close();
  world.refuse.clear();
  world.refuse.set('b', new BadCommand('no placement gives this peer these units'));
  const again = world.open();
  const asked = world.opened.length;
  await vi.advanceTimersByTimeAsync(2000);
  expect(world.opened.length).toBeGreaterThan(asked + 3);
  world.refuse.clear();
  await vi.advanceTimersByTimeAsync(1000);
  await (await again).close();
});

it('who gives an item up hears so at once, and no stage is waited for', async () => {
  const world = new World();
  const lane = await world.open();
  const stop = new AbortController();
  const asking = expect(lane.run(inputs, stop.signal)).rejects.toThrow('stopped');
  stop.abort();
  await asking;
  expect(lane.underWay).toBe(0);
  await lane.close();
});

it('an item that a stage cannot compute fails alone, and closing fails the rest', async () => {
  const world = new World();
  const lane = await world.open();
  const first = expect(lane.run(inputs, never)).rejects.toThrow('too large');
  const second = expect(lane.run(inputs, never)).rejects.toThrow('closed');
  lane.failed('b', 1, 0, 'too large');
  await first;
  await lane.close();
  await second;
  await expect(lane.run(inputs, never)).rejects.toThrow('closed');
});

it('a peer that refuses for two minutes ends the run with its words', async () => {
  const world = new World();
  world.refuse.set('b', new BadCommand('no placement gives this peer these units'));
  const opening = expect(world.open()).rejects.toThrow(
    'b does not open its stages of name: no placement gives this peer these units',
  );
  await vi.advanceTimersByTimeAsync(119_000);
  expect(world.closed).toEqual([]);
  await vi.advanceTimersByTimeAsync(2000);
  await opening;
  expect(world.closed).toEqual(['a', 'b']);
  world.refuse.clear();
  const lane = await world.open();
  const asking = expect(lane.run(inputs, never)).rejects.toThrow('b does not open its stages');
  world.refuse.set('b', new ConnectionLost('gone')); // and nobody stands by for it
  world.lose('b');
  await vi.advanceTimersByTimeAsync(140_000);
  await asking;
  await lane.close();
});

it('what waits ends whatever ends the leading of its run', async () => {
  const defects: unknown[] = [];
  vi.stubGlobal('reportError', (error: unknown) => void defects.push(error));
  const world = new World();
  const lane = await world.open();
  const asking = expect(lane.run(inputs, never)).rejects.toThrow('this peer failed: TypeError');
  const defect = new TypeError('a defect');
  world.refuse.set('b', defect);
  world.lose('a');
  await vi.advanceTimersByTimeAsync(0);
  await asking;
  expect(defects).toEqual([defect]);
  await lane.close();
});

it('a run of which nothing ends for an hour is given up', async () => {
  const world = new World();
  const lane = await world.open();
  let isOver = false;
  const asking = lane.run(inputs, never).catch((error: unknown) => {
    isOver = true;
    throw error;
  });
  const given = expect(asking).rejects.toThrow('no item of name has ended for 3600 s');
  await vi.advanceTimersByTimeAsync(3_500_000);
  expect(isOver).toBe(false);
  expect(lane.reroutes).toBeGreaterThan(5);
  await vi.advanceTimersByTimeAsync(1_000_000);
  await given;
  await lane.close();
});

it('closing waits for no peer that opens its stages, and tells it again once it has', async () => {
  const world = new World();
  const lane = await world.open();
  const asking = expect(lane.run(inputs, never)).rejects.toThrow('closed');
  let open = (): void => undefined;
  world.holds = new Promise<void>((resolve) => (open = resolve));
  world.lose('a');
  await vi.advanceTimersByTimeAsync(0);
  expect(world.opened.map(({ peer }) => peer)).toEqual(['a', 'b', 'c', 'b']);
  await lane.close();
  await asking;
  expect(world.closed).toEqual(['a', 'b', 'c']);
  open();
  await vi.advanceTimersByTimeAsync(0);
  expect(world.closed.slice(3).sort()).toEqual(['b', 'c']);
});

it('a run names what the mesh offers, and refuses inputs that the model does not take', async () => {
  const { links, view, flow } = new World().parts;
  const manifests = { graphManifest: () => Promise.resolve(MANIFEST) };
  await expect(openRun(links, view, flow, manifests, 'other')).rejects.toThrow(
    'this mesh offers no model other; it offers name',
  );
  const run = await openRun(links, view, flow, manifests, 'name');
  await expect(run.run(new Map(), never)).rejects.toThrow('name takes x; got nothing');
  const wrong = new Map([['x', { shape: [2], data: new Uint8Array(8) }]]);
  await expect(run.run(wrong, never)).rejects.toThrow('x: shape () expected, got (2)');
  expect(run.peers).toEqual(['a', 'b']);
  await run.close();
});
