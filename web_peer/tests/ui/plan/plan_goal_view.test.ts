/*
 * How plans are wished to be made: what the page shows of it, who may change it, and what people read of what follows.
 */

import { expect, it } from 'vitest';

import { BadCommand, NotLeader } from '../../../src/errors';
import type { Command } from '../../../src/state/member_commands';
import { EMPTY_STATE, type MeshState } from '../../../src/state/mesh_state';
import {
  type Group,
  type ModelChosen,
  type PlanRecord,
  type PlanWished,
  barePlanWishedCodec,
} from '../../../src/state/generated/commands';
import { checkWish } from '../../../src/state/plan_goal';
import type { WishView } from '../../../ui/app/view';
import {
  type Asked,
  changed,
  FOLLOWS_MS,
  refusedText,
  sameWish,
  wished,
  wishView,
} from '../../../ui/plan/plan_goal_view';
import { PlanWishing } from '../../../ui/plan/plan_goal_proposals';
import { vectors } from '../../vectors';

interface Vectors {
  readonly check: readonly {
    readonly wish: Omit<PlanWished, 'kind'>;
    readonly units: number;
    readonly why: string;
  }[];
  readonly wished: readonly {
    readonly wish: Omit<PlanWished, 'kind'> | null;
    readonly objective: 'latency' | 'throughput';
    readonly gives: Omit<PlanWished, 'kind'>;
  }[];
}

const VECTORS = vectors('wish') as Vectors;
const ME = 'me';
const LAYER: PlanWished = { kind: 'PlanWished', strategy: 'layer', goal: 'latency', components: [] };
const GROUPS: readonly Group[] = [
  { name: 'low', first: 0, stop: 3, prefers: 'Ada' },
  { name: 'high', first: 3, stop: 6, prefers: '' },
];
const GROUPED: PlanWished = { ...LAYER, strategy: 'component', components: GROUPS };
const MODEL: ModelChosen = {
  ...{ kind: 'ModelChosen', model: 'x', name: 'toy', units: 6 },
  ...{ context: 10, sessions: 2, objective: 'latency' },
};
const plan = (version: number): PlanRecord => ({
  ...{ version, stages: [], predictedTokenUs: 1, predictedRateMilli: 1, why: [], choices: [] },
});

/** A mesh that serves by plan 3; `me` owns it. */
function meshOf(more: Partial<MeshState> = {}): MeshState {
  const people = { ...EMPTY_STATE.people, roles: new Map([[ME, 'owner' as const]]) };
  return { ...EMPTY_STATE, model: MODEL, plan: plan(3), lastVersion: 3, people, ...more };
}
function shown(state: MeshState, asked: Asked = { kind: 'nothing' }, nowMs = 0): WishView {
  const view = wishView(state, ME, [], asked, nowMs);
  if (view === null) throw new Error('expected a view');
  return view;
}

it('counts as in Python', () => {
  expect(VECTORS.check.length).toBeGreaterThan(20);
  for (const { wish, units, why } of VECTORS.check) {
    expect(checkWish({ kind: 'PlanWished', ...wish }, units)).toBe(why);
  }
  for (const { wish, objective, gives } of VECTORS.wished) {
    const said: PlanWished | null = wish === null ? null : { kind: 'PlanWished', ...wish };
    const state = meshOf({ wish: said, model: { ...MODEL, objective } });
    expect(wished(state)).toEqual({ kind: 'PlanWished', ...gives });
  }
});

it('keeps groups with their strategy, and has them back', () => {
  const goal = changed(GROUPED, { strategy: 'component', goal: 'memory' }, []);
  expect(goal).toEqual({ ...GROUPED, goal: 'memory' });
  const without = changed(GROUPED, LAYER, []);
  expect(without).toEqual(LAYER);
  expect(changed(without, GROUPED, GROUPS)).toEqual(GROUPED);
});

it('shows what the mesh wishes, to everybody', () => {
  const people = EMPTY_STATE.people;
  expect(shown(meshOf({ people }))).toMatchObject({
    ...{ strategy: 'optimal', goal: 'latency', groups: [], hasGroups: false, mayWish: false, outcome: '' },
  });
  const view = shown(meshOf({ wish: GROUPED, cuts: [3] }));
  expect(view).toMatchObject({ strategy: 'component', hasGroups: true, byHand: true, mayWish: true });
  expect(view.groups).toEqual([
    { name: 'low', units: 'embedding, layer 1', prefers: 'Ada' },
    { name: 'high', units: 'layer 2, head', prefers: '' },
  ]);
  expect(shown(meshOf({ wish: { ...GROUPED, components: GROUPS.slice(1) } })).hasGroups).toBe(false);
  expect(wishView(meshOf({ model: null }), ME, [], { kind: 'nothing' }, 0)).toBeNull();
});

it.each([
  ['a plan is made', {}, 0, 'The mesh has it. A new plan is being made.', 'busy'],
  ['none is better', {}, FOLLOWS_MS, 'Plan 3 stays: no other one is better by enough.', 'calm'],
  [
    'one is loaded',
    { proposed: plan(4), lastVersion: 4 },
    0,
    'Plan 4 was made so. It is being loaded, then it takes over.',
    'busy',
  ],
  ['it is in force', { plan: plan(4), lastVersion: 4 }, 0, 'Plan 4 was made so, and is in force.', 'calm'],
  [
    'what there was no plan for before tells nothing',
    { plan: null, refused: 'nobody' },
    0,
    'The mesh has it. A new plan is being made.',
    'busy',
  ],
  ['there is none', { plan: null, refused: '9 B short' }, 0, 'No plan can be made so. 9 B short.', 'bad'],
  [
    'borders are fixed',
    { cuts: [3] },
    0,
    'The mesh has it. The borders are fixed by hand: no plan changes now.',
    'calm',
  ],
  ['somebody wished otherwise since', { wish: GROUPED }, FOLLOWS_MS, '', 'calm'],
] as const)('says that %s', (_, more, nowMs, outcome, tone) => {
  const asked: Asked = { kind: 'said', wish: LAYER, version: 3, refused: 'nobody', sinceMs: 0, anew: true };
  const state = meshOf({ wish: LAYER, ...more });
  expect(shown(state, asked, nowMs)).toMatchObject({ outcome, tone });
});

it('says it in the log once, and in plain words where the mesh does not take it', async () => {
  const state = meshOf();
  const said: Command[] = [];
  const answers: (() => Promise<void>)[] = [
    () => Promise.reject(new BadCommand('propose: expected an owner of this mesh, such as its founder')),
    () => Promise.reject(new NotLeader('nobody coordinates now')),
    () => {
      view.state = { ...state, wish: LAYER };
      return Promise.resolve();
    },
  ];
  const view = {
    me: ME,
    state,
    propose: (command: Command) => {
      said.push(command);
      return answers.shift()?.() ?? Promise.resolve();
    },
  };
  const mesh = { view, signal: new AbortController().signal };
  const wishing: PlanWishing = new PlanWishing(() => wishing.look(mesh, performance.now()));
  const after = async (to: PlanWished): Promise<string | undefined> => {
    wishing.wish(mesh, to);
    wishing.wish(mesh, to); // pressed twice
    await new Promise((resolve) => setTimeout(resolve));
    return wishing.view.value?.outcome;
  };
  expect(await after(GROUPED)).toContain('expected groups that hold all 6 units');
  expect(said).toEqual([]);
  expect(await after(LAYER)).toBe('The mesh did not take it: this tab is no owner of the mesh any more.');
  expect(await after(LAYER)).toContain('Nobody coordinates the mesh now');
  expect(await after(LAYER)).toBe('The mesh has it. A new plan is being made.');
  expect(said).toEqual([LAYER, LAYER, LAYER]);
  expect(await after(LAYER)).toBe('It was so before. Plan 3 stays.');
  expect(said.length).toBe(3);
});

it('has words for every refusal', () => {
  expect(refusedText({ name: 'BadCommand', text: 'propose: too many commands' })).toBe(
    'The mesh did not take it. Too many commands.',
  );
});

it('a wish that a snapshot brought is the one that is chosen again', () => {
  for (const wish of [LAYER, GROUPED]) {
    const brought = barePlanWishedCodec.decode(barePlanWishedCodec.encode(wish), 'wish');
    expect(sameWish(changed(brought, wish, []), brought)).toBe(true);
    expect(sameWish({ ...wish, goal: 'memory' }, brought)).toBe(false);
  }
  expect(sameWish({ ...GROUPED, components: [...GROUPS].reverse() }, GROUPED)).toBe(false);
});
