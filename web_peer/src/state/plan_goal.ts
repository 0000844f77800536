/*
 * Decides what a mesh wishes of its plans: the strategy by which units are cut, and what a plan is to be good at (twin
 * of peer/state/plan_goal.py). Pure.
 */

import { type Codec, list, maybe, oneOf, record, text, uint } from '../wire/json_codec';

export type PlanStrategy = 'optimal' | 'layer' | 'attention-ffn' | 'pipeline' | 'component' | 'hybrid';
export type Goal = 'latency' | 'throughput' | 'memory' | 'balanced';

const MAX_COMPONENTS = 64;

/** Units [first, stop) under one name. `prefers`: the id or the name of the peer that is to hold them; "": any. */
export interface Group {
  readonly name: string;
  readonly first: number;
  readonly stop: number;
  readonly prefers: string;
}

/** How plans are made from now on. `components` cover all units, in order; of the strategy `component` only. */
export interface PlanWished {
  readonly kind: 'PlanWished';
  readonly strategy: PlanStrategy;
  readonly goal: Goal;
  readonly components: readonly Group[];
}

export type WishCommand = PlanWished;

/** Why the components do not hold all `units` units of the model in order, where they are needed; "" when they do. */
export function checkWish({ strategy, components }: PlanWished, units: number): string {
  if (strategy !== 'component') {
    return components.length === 0 ? '' : 'component: expected the strategy component with it';
  }
  let at = 0;
  for (const { name, first, stop } of components) {
    if (first !== at || stop <= first || stop > units) {
      return `component ${name}: expected units from ${at} to at most ${units - 1}, got ${first}-${stop - 1}`;
    }
    at = stop;
  }
  return at === units ? '' : `component: expected groups that hold all ${units} units, got the first ${at}`;
}

// --- wire

const fields = {
  strategy: oneOf<PlanStrategy>('optimal', 'layer', 'attention-ffn', 'pipeline', 'component', 'hybrid'),
  goal: oneOf<Goal>('latency', 'throughput', 'memory', 'balanced'),
  components: list(
    record<Group>('Group', { name: text, first: uint, stop: uint, prefers: text }),
    MAX_COMPONENTS,
  ),
};

/** In a snapshot the wish stands without a kind. */
const bare = record<PlanWished>('PlanWished', fields);

export const wish: Codec<PlanWished | null> = maybe({
  decode: (value, where) => ({ ...bare.decode(value, where), kind: 'PlanWished' }),
  encode: (value) => bare.encode(value),
});

export const WISH_COMMANDS: { readonly PlanWished: Codec<PlanWished> } = {
  PlanWished: record<PlanWished>('PlanWished', fields, { kind: 'PlanWished' }),
};
