/* Offered models where a tab coordinates: when a server is asked for places, and what of its answers enters the log. */

import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import { type PlacementsAsked, Placing } from '../../src/coordination/offer_placement_service';
import { decodePlacements, encodeAsked } from '../../src/coordination/planning_client';
import { BadCommand, CannotServe } from '../../src/errors';
import type { ModelPlaced, RunStage } from '../../src/state/generated/commands';
import { type Command, decodeCommand, encodeCommand } from '../../src/state/member_commands';
import { apply, decodeState, EMPTY_STATE, type MeshState } from '../../src/state/mesh_state';
import { vectors } from '../vectors';

vi.stubGlobal('reportError', (error: unknown) => {
  throw error; // Node has none
});
beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

const { states } = vectors('offer_promotion') as { readonly states: readonly { commands: string[] }[] };
const MEMBERS = (states[0]?.commands ?? [])
  .map((text) => decodeCommand(new TextEncoder().encode(text)))
  .filter(({ kind }) => !kind.startsWith('Model') || kind === 'ModelChosen');
const DET = 'b'.repeat(64);
const UNITS = 4;

function placed(name: string, ...stages: readonly RunStage[]): ModelPlaced {
  return { kind: 'ModelPlaced', name, version: 1, stages, latencyUs: 1, rateMilli: 2, why: ['It is best.'] };
}

function stage(first: number, stop: number, primary: string, ...standbys: readonly string[]): RunStage {
  return { first, stop, primary, standbys, bytes: 9 };
}

/** A mesh that a tab leads without a plan of its own model; what it decides holds at once. */
class Mesh {
  state = MEMBERS.reduce(apply, EMPTY_STATE);
  readonly said: Command[] = [];
  readonly asked: PlacementsAsked[] = [];
  answers: () => Promise<readonly ModelPlaced[] | null> = () => Promise.resolve([]);
  readonly placing: Placing;

  constructor() {
    this.state = { ...this.state, refused: 'nobody has room' };
    const state = (): MeshState => this.state;
    const led = {
      me: 't',
      get state() {
        return state();
      },
      submit: (each: Command) => {
        this.said.push(each);
        this.state = apply(this.state, each);
        this.placing.look();
      },
    };
    const around = {
      unitsOf: () => Promise.resolve(UNITS),
      flops: new Map([['attn', 2000]]),
      speaks: () => 8,
      place: (asked: PlacementsAsked) => {
        this.asked.push(asked);
        return this.answers();
      },
    };
    this.placing = new Placing(around, led);
  }

  takes(command: Command): void {
    this.state = apply(this.state, command);
    this.placing.look();
  }

  stages(name = 'det'): readonly RunStage[] {
    return this.state.offers.get(name)?.stages ?? [];
  }
}

const settle = (ms = 0): Promise<unknown> => vi.advanceTimersByTimeAsync(ms);
const OFFER: Command = { kind: 'ModelOffered', model: DET, name: 'det' };

it('a model is placed when it is offered, taken over when its peer is lost, and placed anew then', async () => {
  const mesh = new Mesh();
  mesh.answers = () => Promise.resolve([placed('det', stage(0, 4, 'a', 'b'))]);
  mesh.takes(OFFER);
  await settle();
  expect(mesh.stages()).toEqual([stage(0, 4, 'a', 'b')]);
  expect(mesh.asked).toHaveLength(1); // its own answer asks for nothing more
  mesh.answers = () => Promise.resolve([placed('det', stage(0, 4, 'b', 'c'))]);
  mesh.takes({ kind: 'MemberLeft', peer: 'a', reason: 'lost' });
  expect(mesh.stages()).toEqual([stage(0, 4, 'b')]); // at once
  await settle();
  expect(mesh.asked).toHaveLength(2);
  expect(mesh.asked[1]?.state.members.has('a')).toBe(false);
  expect(mesh.stages()).toEqual([stage(0, 4, 'b', 'c')]);
  const versions = mesh.said.map((each) => (each.kind === 'ModelPlaced' ? each.version : 0));
  expect(versions).toEqual([...new Set(versions)].sort((x, y) => x - y)); // the log only grows
});

it('a server learns what placements depend on, and nothing that people say', async () => {
  const mesh = new Mesh();
  mesh.state = { ...mesh.state, signaling: ['wss://elsewhere.example'] };
  mesh.takes(OFFER);
  await settle();
  const [asked] = mesh.asked;
  if (asked === undefined) throw new Error('nothing was asked');
  const said = JSON.parse(encodeAsked(asked)) as { state: unknown; speaks: unknown; flops: unknown };
  expect(said.flops).toEqual({ attn: 2000 });
  expect(said.speaks).toEqual(Object.fromEntries([...mesh.state.members.keys()].map((peer) => [peer, 8])));
  const state = decodeState(new TextEncoder().encode(JSON.stringify(said.state)));
  expect(state).toEqual(asked.state);
  expect(state.offers).toEqual(mesh.state.offers);
  expect([state.signaling, state.conversations.size, state.ledger]).toEqual([[], 0, EMPTY_STATE.ledger]);
});

it.each([
  ['of another model', [placed('cls', stage(0, 4, 'a'))]],
  ['over other units', [placed('det', stage(0, 3, 'a'))]],
  ['on a peer that is not here', [placed('det', stage(0, 4, 'x'))]],
  ['with a standby that has not measured itself', [placed('det', stage(0, 4, 'a', 'z'))]],
])('no placement enters the log %s', async (_, answer) => {
  const mesh = new Mesh();
  mesh.answers = () => Promise.resolve(answer);
  mesh.takes(OFFER);
  await settle();
  expect(mesh.said).toEqual([]);
});

it('what was withdrawn, or placed by another, while a server answered stays as it is', async () => {
  for (const command of [
    { kind: 'ModelWithdrawn', name: 'det' } as const,
    { ...placed('det', stage(0, 4, 'b')), version: 7000 },
  ]) {
    const mesh = new Mesh();
    let answer: (found: readonly ModelPlaced[]) => void = () => undefined;
    const answered = new Promise<readonly ModelPlaced[]>((resolve) => (answer = resolve));
    mesh.answers = () => answered;
    mesh.takes(OFFER);
    mesh.takes(command);
    mesh.answers = () => Promise.resolve([]);
    answer([placed('det', stage(0, 4, 'a'))]);
    await settle();
    expect(mesh.said).toEqual([]);
  }
});

it('while nobody answers, or a model has no place, it is asked again', async () => {
  const mesh = new Mesh();
  mesh.answers = () => Promise.resolve(null);
  mesh.takes(OFFER);
  await settle();
  mesh.placing.look(true);
  await settle();
  expect(mesh.asked).toHaveLength(1);
  mesh.answers = () => Promise.reject(new CannotServe('not now'));
  await settle(30_000);
  mesh.placing.look(true);
  await settle();
  expect(mesh.asked).toHaveLength(2);
  mesh.answers = () => Promise.resolve([{ ...placed('det'), why: ['it lacks 9 MiB'] }]);
  await settle(30_000);
  mesh.placing.look(true);
  await settle();
  expect(mesh.state.offers.get('det')?.why).toEqual(['it lacks 9 MiB']);
  await settle(30_000);
  mesh.placing.look(true);
  await settle();
  expect(mesh.asked).toHaveLength(4);
  expect(mesh.said).toHaveLength(1); // the same reason is not said again
  mesh.placing.close();
  await settle(30_000);
  mesh.placing.look(true);
  expect(mesh.asked).toHaveLength(4);
});

it('an answer is a list of placements, or none', () => {
  const right = placed('det', stage(0, 4, 'a', 'b'));
  const text = new TextDecoder().decode(encodeCommand(right));
  expect(decodePlacements(`[${text}]`)).toEqual([right]);
  expect(decodePlacements('[]')).toEqual([]);
  for (const wrong of [
    '',
    '{}',
    '[1]',
    `[${text},{"kind":"Nothing"}]`,
    `[${text.replace('"b"', '7')}]`,
    '[{"kind":"ModelWithdrawn","name":"det"}]',
    `[${Array.from({ length: 17 }, () => text).join(',')}]`,
  ]) {
    expect(() => decodePlacements(wrong), wrong).toThrow(BadCommand);
  }
});
