/*
 * What the page shows of how a mesh wishes its plans to be made, what a person may change of that, and what came of it
 * (twin of peer/coordination/planner_goal.py, and of `shoal wish`). Pure.
 */

import type { Goal, Group, PlanRecord, PlanStrategy, PlanWished } from '../../src/state/generated/commands';
import { names as namesIn } from '../../src/state/display_names';
import { checkWish } from '../../src/state/plan_goal';
import { type MeshState, serving } from '../../src/state/mesh_state';
import type { WishView } from '../app/view';
import { readable } from '../mesh/members_view';
import { runText } from '../kit/formatting';

export const FOLLOWS_MS = 10_000; // in which a plan may follow, as `shoal wish` waits
const NOBODY_LEADS: ReadonlySet<string> = new Set(['NotLeader', 'ConnectFailed', 'ConnectionLost']);

/** A strategy or goal, as the command line calls it, and in a line what it means. */
export interface Meaning<T extends string> {
  readonly name: T;
  readonly means: string;
}

const STRATEGIES: Readonly<Record<PlanStrategy, string>> = {
  optimal: 'Units are cut anywhere.',
  layer: 'Units are cut between blocks only.',
  'attention-ffn': 'Attention on some peers, feed-forward on others, which take turns.',
  pipeline: 'Stages have equally many blocks.',
  component: 'Units are cut between groups that people name, each with the peer that it prefers.',
  hybrid: 'Units are cut anywhere, and a route may come back to a peer.',
  tensor: 'Several peers compute some units together, each a slice.',
};
const GOALS: Readonly<Record<Goal, string>> = {
  latency: 'One answer as fast as possible.',
  throughput: 'Most tokens per second for many answers at once.',
  memory: 'As much memory as possible stays free on the fullest peer.',
  balanced: 'The busiest peer works as little as possible.',
};

const meanings = <T extends string>(table: Readonly<Record<T, string>>): readonly Meaning<T>[] =>
  (Object.keys(table) as T[]).map((name) => ({ name, means: table[name] }));
export const ALL_STRATEGIES = meanings(STRATEGIES);
export const ALL_GOALS = meanings(GOALS);
/** What a strategy means, in words for people. */
export const strategyMeans = (name: PlanStrategy): string => STRATEGIES[name];
/** What a goal means, in words for people. */
export const goalMeans = (name: Goal): string => GOALS[name];

/** What became of the wish that this person said last. */
export type Asked =
  | { readonly kind: 'nothing' }
  | { readonly kind: 'saying'; readonly wish: PlanWished }
  | { readonly kind: 'refused'; readonly text: string }
  | {
      readonly kind: 'said';
      readonly wish: PlanWished;
      readonly version: number; // of the newest plan before
      readonly refused: string; // why there was none before; "" where there was
      readonly sinceMs: number;
      readonly anew: boolean; // false: it was the wish before
    };

/** What the log says, or what the model's promise implies. */
export function wished({ wish, model }: MeshState): PlanWished {
  if (wish !== null) return wish;
  const goal = model?.objective === 'throughput' ? 'throughput' : 'latency';
  return { kind: 'PlanWished', strategy: 'optimal', goal, components: [] };
}

/** `before` with another strategy and goal. Groups go with their strategy: those of `before`, else `last`. */
export function changed(
  before: PlanWished,
  { strategy, goal }: Pick<PlanWished, 'strategy' | 'goal'>,
  last: readonly Group[],
): PlanWished {
  const kept = before.components.length > 0 ? before.components : last;
  return { kind: 'PlanWished', strategy, goal, components: strategy === 'component' ? kept : [] };
}

/** Whatever the order of their fields: one that a snapshot brought has another than one that was said. */
export const sameWish = (a: PlanWished, b: PlanWished): boolean => inOrder(a) === inOrder(b);

function inOrder({ strategy, goal, components }: PlanWished): string {
  const groups = components.map(({ name, first, stop, prefers }) => [name, first, stop, prefers]);
  return JSON.stringify([strategy, goal, groups]);
}

/** Null before the model is known: nothing is planned then. */
export function wishView(
  state: MeshState,
  me: string,
  last: readonly Group[],
  asked: Asked,
  nowMs: number,
): WishView | null {
  const { model, cuts, members, people } = state;
  if (model === null) return null;
  const names = namesIn(members.values());
  const now = wished(state);
  const usable = changed(now, { strategy: 'component', goal: now.goal }, last);
  return {
    strategy: now.strategy,
    goal: now.goal,
    groups: now.components.map(({ name, first, stop, prefers }) => ({
      name,
      units: runText([first, stop], model.units),
      prefers: names.get(prefers) ?? prefers,
    })),
    hasGroups: checkWish(usable, model.units) === '',
    byHand: cuts !== null,
    mayWish: people.roles.get(me) === 'owner',
    ...outcomeOf(state, asked, nowMs),
  };
}

type Outcome = Pick<WishView, 'outcome' | 'tone'>;
const NOTHING: Outcome = { outcome: '', tone: 'calm' };

function outcomeOf(state: MeshState, asked: Asked, nowMs: number): Outcome {
  switch (asked.kind) {
    case 'nothing':
      return NOTHING;
    case 'saying':
      return { outcome: 'The mesh is being told.', tone: 'busy' };
    case 'refused':
      return { outcome: asked.text, tone: 'bad' };
    case 'said':
      // The log here may be a moment behind; with another wish in it, somebody changed it since.
      return sameWish(wished(state), asked.wish) || nowMs - asked.sinceMs < FOLLOWS_MS
        ? followed(state, asked, nowMs)
        : NOTHING;
    default:
      return asked satisfies never;
  }
}

/** Which plan followed, as far as that is known. */
function followed(state: MeshState, asked: Extract<Asked, { kind: 'said' }>, nowMs: number): Outcome {
  const { version, refused, sinceMs, anew } = asked;
  const waits = anew && nowMs - sinceMs < FOLLOWS_MS;
  const calm = (outcome: string): Outcome => ({ outcome, tone: 'calm' });
  const busy = (outcome: string): Outcome => ({ outcome, tone: 'busy' });
  const now = serving(state);
  const newer = (plan: PlanRecord | null): string =>
    plan !== null && plan.version > version ? String(plan.version) : '';
  if (newer(state.proposed) !== '') {
    return busy(`Plan ${newer(state.proposed)} was made so. It is being loaded, then it takes over.`);
  }
  if (newer(now) !== '') return calm(`Plan ${newer(now)} was made so, and is in force.`);
  if (state.refused !== '' && (state.refused !== refused || !waits)) {
    const why = readable(state.refused, namesIn(state.members.values()), state.model?.units ?? 0);
    return { outcome: `No plan can be made so. ${why}`, tone: 'bad' };
  }
  if (state.cuts !== null)
    return calm('The mesh has it. The borders are fixed by hand: no plan changes now.');
  if (waits) return busy('The mesh has it. A new plan is being made.');
  if (now === null) return calm('The mesh has it. Nobody who could serve has measured yet.');
  const stays = `Plan ${now.version} stays`;
  return calm(anew ? `${stays}: no other one is better by enough.` : `It was so before. ${stays}.`);
}

/** Why the mesh did not take it, in people's words. `name`: of the error, or its code on the wire. */
export function refusedText({ name, text }: { readonly name: string; readonly text: string }): string {
  if (NOBODY_LEADS.has(name)) {
    return 'Nobody coordinates the mesh now, so nothing was changed. Try again in a moment.';
  }
  if (text.includes('expected an owner')) {
    return 'The mesh did not take it: this tab is no owner of the mesh any more.';
  }
  return `The mesh did not take it. ${readable(text.replace(/^propose: /, ''), new Map(), 0)}`;
}
