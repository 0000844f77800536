/* With what further models are planned where a tab coordinates: as in Python; and what it decides about them. */

import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { OWN, plannedWith, saidOf, sharedRuns, takenBytes } from '../../src/coordination/decoder_planning';
import { DecoderPlanning } from '../../src/coordination/decoder_planning_service';
import { Coordinator } from '../../src/coordination/coordinator';
import {
  encodeRequest,
  type Planned,
  type PlannerUnit,
  type PlanRequest,
} from '../../src/coordination/plan_request';
import { BadCommand, CannotServe } from '../../src/errors';
import type { Manifest } from '../../src/planner/manifest';
import { seenAs } from '../../src/state/decoder_sight';
import { type Command, decodeCommand } from '../../src/state/member_commands';
import { apply, EMPTY_STATE, type MeshState, serving } from '../../src/state/mesh_state';
import { vectors } from '../vectors';

interface SaidUnit {
  readonly name: string;
  readonly kind: PlannerUnit['kind'];
  readonly flops_per_token: number;
  readonly weight_bytes: number;
  readonly packed_bytes: number;
  readonly wide_bytes: number;
}
interface Vectors {
  readonly units: readonly SaidUnit[];
  readonly own: readonly SaidUnit[];
  readonly speaks: readonly (readonly [string, number])[];
  readonly states: readonly {
    what: string;
    commands: string[];
    taken: Record<string, Record<string, number>>;
    shared: readonly {
      contents: Record<string, string[]>;
      taken: Record<string, Record<string, number>>;
      runs: Record<string, readonly [string, number, number, number][]>;
    }[];
    seen: readonly { name: string; own: SaidUnit[]; last_version: number; members: unknown }[];
  }[];
  readonly said: readonly (readonly [string, string])[];
}

vi.stubGlobal('reportError', (error: unknown) => {
  throw error; // Node has none
});

const VECTORS = vectors('decoder_planning') as Vectors;
const command = (text: string): Command => decodeCommand(new TextEncoder().encode(text));
const unit = (said: SaidUnit): PlannerUnit => ({
  ...{ name: said.name, kind: said.kind, flopsPerToken: said.flops_per_token },
  ...{ weightBytes: said.weight_bytes, packedBytes: said.packed_bytes, wideBytes: said.wide_bytes },
  ...{ kvBytesPerToken: 0, outBytesPerToken: 4 },
});

const VERSIONS = new Map(VECTORS.speaks);
const speaks = (peer: string): number => VERSIONS.get(peer) ?? 0;

describe.each(VECTORS.states)('$what', ({ commands, taken, shared, seen }) => {
  const state = commands.map(command).reduce(apply, EMPTY_STATE);

  it('what is loaded once', () => {
    for (const { contents, taken: once, runs } of shared) {
      const models = new Map(
        Object.entries(contents).map(([name, texts]) => [
          name,
          { units: (name === OWN ? VECTORS.own : VECTORS.units).map(unit), contents: texts },
        ]),
      );
      for (const [name, bytes] of Object.entries(once)) {
        expect(Object.fromEntries(takenBytes(state, name, { models, speaks }))).toEqual(bytes);
      }
      for (const [name, found] of Object.entries(runs)) {
        const told = sharedRuns(state, name, { models, speaks });
        expect(told.map(({ peer, first, stop, bytes }) => [peer, first, stop, bytes])).toEqual(found);
      }
    }
  });

  it('what others take', () => {
    for (const [name, bytes] of Object.entries(taken)) {
      expect(Object.fromEntries(takenBytes(state, name))).toEqual(bytes);
    }
  });

  it('memory and times of each peer', () => {
    for (const { name, own, last_version: version, members } of seen) {
      const found = plannedWith(state, name, VECTORS.units.map(unit), own.map(unit), speaks);
      const told = [...found.members].map(([peer, { compute, profile }]) => [
        peer,
        {
          compute,
          memory_bytes: profile?.memoryBytes ?? 0,
          decode_ns: Object.fromEntries(profile?.decodeNs ?? []),
          prefill_ns: Object.fromEntries(profile?.prefillNs ?? []),
          batch_ns: Object.fromEntries(profile?.batchNs ?? []),
        },
      ]);
      expect([found.lastVersion, Object.fromEntries(told)]).toEqual([version, members]);
    }
  });
});

it.each(VECTORS.said)('%s is said of the model by its name', (decided, said) => {
  expect(saidOf('more', command(decided))).toEqual(command(said));
});

it('nothing else is decided of it', () => {
  expect(() => saidOf('more', { kind: 'CutsFixed', cuts: null })).toThrow(TypeError);
});

// --- planning

const SMALL = 'c'.repeat(64);
const LOST = 'd'.repeat(64);
const UNITS = VECTORS.units.map(unit);

/** A plan of all units on one of the peers, with the first of the others standing by. */
function onePeer({ peers, units }: PlanRequest): Planned {
  const [first, second] = [...peers].sort((a, b) => b.profile.memoryBytes - a.profile.memoryBytes);
  if (first === undefined) return { kind: 'infeasible', reason: 'nobody is there' };
  const standbys = second === undefined ? [] : [second.peer];
  const stage = { first: 0, stop: units.length, primary: first.peer, standbys };
  const stages = [{ ...stage, weightBytes: 1, kvBytes: 1, overheadBytes: 1 }];
  const plan = { stages, predictedTokenUs: 1, predictedRateMilli: 1, why: [], choices: [] };
  return { kind: 'plan', plan, beside: null };
}

/** A mesh that a tab leads; what it decides holds at once. */
class Mesh {
  state: MeshState;
  readonly said: string[] = [];
  readonly asked: PlanRequest[] = [];
  answers: (request: PlanRequest) => Planned | null = onePeer;
  readonly planning: DecoderPlanning;

  constructor() {
    const commands = VECTORS.states[0]?.commands.map(command) ?? [];
    const own = commands.filter(({ kind }) => kind !== 'DecoderOffered');
    this.state = own.reduce(apply, EMPTY_STATE);
    const state = (): MeshState => this.state;
    const led = {
      me: 'a',
      get state() {
        return state();
      },
      submit: (each: Command) => this.submit(each),
    };
    const around = {
      manifestOf: (model: string): Promise<Manifest> =>
        model === LOST
          ? Promise.reject(new CannotServe('the store does not have it'))
          : Promise.resolve(MANIFEST),
      ...{ own: UNITS, answering: null, speaks: () => 8 },
      plan: (request: PlanRequest) => {
        this.asked.push(request);
        return Promise.resolve(this.answers(request));
      },
    };
    this.planning = new DecoderPlanning(around, led);
  }

  submit(each: Command): void {
    this.said.push(each.kind);
    this.state = apply(this.state, each);
    this.planning.look();
  }

  offer(name: string, model = SMALL): void {
    const promise = { units: UNITS.length, context: 128, sessions: 2, objective: 'latency' } as const;
    this.submit({ kind: 'DecoderOffered', name, model, ...promise });
  }

  /** Every peer of the plan that is proposed holds what it gives it. */
  hold(name: string): void {
    for (const { primary, standbys, first, stop } of this.state.decoders.get(name)?.proposed?.stages ?? []) {
      for (const peer of [primary, ...standbys]) {
        this.submit({ kind: 'DecoderHeld', name, peer, held: [{ first, stop }] });
      }
    }
  }
}

const MANIFEST = {
  units: VECTORS.units.map(({ name, kind, flops_per_token: flopsPerToken }) => ({
    ...{ name, kind, flopsPerToken, residentBytes: 7, kvBytesPerToken: 0, outBytesPerToken: 4 },
    ...{ tensors: [], kv: [], graph: { sha256: 'g' }, blob: { sha256: name } },
  })),
  window: 0,
} as unknown as Manifest;

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});
const settle = (ms = 0): Promise<unknown> => vi.advanceTimersByTimeAsync(ms);

it('a further model is planned, activated when it is held, and planned anew after a loss', async () => {
  const mesh = new Mesh();
  mesh.offer('more');
  expect(mesh.planning.unitCosts('more', SMALL)).toBeNull(); // its manifest is on its way
  await settle();
  expect(mesh.planning.unitCosts('more', SMALL)).toHaveLength(UNITS.length);
  expect(mesh.state.decoders.get('more')?.proposed?.version).toBeGreaterThan(2 ** 19);
  mesh.hold('more');
  const plan = serving(seenAs(mesh.state, 'more'));
  const [stage] = plan?.stages ?? [];
  expect(stage).toMatchObject({ first: 0, stop: UNITS.length, primary: 'old' });
  mesh.submit({ kind: 'MemberLeft', peer: 'old', reason: 'lost' });
  const held = mesh.state.decoders.get('more')?.plan;
  expect(held?.stages.map(({ primary }) => primary)).toEqual([stage?.standbys[0]]); // who stood by serves at once
  await settle();
  mesh.submit({ kind: 'ModelWithdrawn', name: 'more' });
  expect(mesh.state.decoders.size).toBe(0);
});

it('one that nobody can hold is refused, and the others go on', async () => {
  const mesh = new Mesh();
  mesh.answers = (request) =>
    request.state.model?.name === 'huge'
      ? { kind: 'infeasible', reason: 'it lacks 9 MiB' }
      : onePeer(request);
  mesh.offer('huge', 'e'.repeat(64));
  mesh.offer('more');
  await settle();
  expect(mesh.state.decoders.get('huge')?.refused).toBe('it lacks 9 MiB');
  expect(mesh.state.decoders.get('more')?.proposed).not.toBeNull();
});

it('a manifest that cannot be had is said, and asked for again', async () => {
  const mesh = new Mesh();
  mesh.offer('lost', LOST);
  await settle();
  expect(mesh.state.decoders.get('lost')?.refused).toBe(
    'its manifest cannot be had: the store does not have it',
  );
});

it('while no planner answers, it is asked again', async () => {
  const mesh = new Mesh();
  mesh.answers = () => null;
  mesh.offer('more');
  await settle();
  expect(mesh.asked).toHaveLength(1);
  mesh.answers = onePeer;
  await settle(5000);
  expect(mesh.asked).toHaveLength(2);
  expect(mesh.state.decoders.get('more')?.proposed).not.toBeNull();
  mesh.planning.close();
});

it('what is held is for who holds it to say', () => {
  const mesh = new Mesh();
  mesh.offer('more');
  const core = new Coordinator('a', UNITS, mesh.state);
  const said = (name: string, peer: string, stop: number) =>
    ({ kind: 'DecoderHeld', name, peer, held: [{ first: 0, stop }] }) as const;
  expect(core.told('b', said('more', 'b', 5))).toEqual(said('more', 'b', 5));
  expect(() => core.told('b', said('more', 'a', 5))).toThrow('what a member that computes says of itself');
  expect(() => core.told('b', said('more', 'b', 6))).toThrow('runs of the 5 units of more');
  expect(() => core.told('b', said('none', 'b', 1))).toThrow(BadCommand);
});

it('a planner is told where the weights of a further model are loaded already', async () => {
  const mesh = new Mesh();
  mesh.offer('more');
  await settle();
  mesh.offer('twin');
  await settle();
  const [first, second] = mesh.asked;
  expect(first?.shared).toEqual([]);
  const [stage] = mesh.state.decoders.get('more')?.proposed?.stages ?? [];
  const holders = [stage?.primary, ...(stage?.standbys ?? [])].filter((peer) => peer !== undefined);
  const bytesAt = (peer: string): number => (['t', 'g'].includes(peer) ? 0 : 7 * (UNITS.length - 1));
  expect(holders.some((peer) => bytesAt(peer) > 0)).toBe(true); // in tabs these units have no tensors
  expect(second?.shared).toEqual(
    holders.sort().map((peer) => ({ peer, first: 0, stop: UNITS.length, bytes: bytesAt(peer) })),
  );
  const said = JSON.parse(encodeRequest(second ?? raise())) as { shared: unknown };
  expect(said.shared).toEqual(second?.shared);
});

function raise(): never {
  throw new Error('nothing was asked');
}
