/*
 * Plans as they stand in the log: which units each stage holds, on which peers, and what was predicted (twin of
 * peer/state/plan_record.py). Pure; written by hand, as its twin has types with methods.
 */

import { list, record, type Span, text, uint } from '../wire/json_codec';
import { type ChoiceRecord, choicesCodec } from './plan_alternatives';

/** Units [first, stop). */
export type Run = Span;

/** A run as the key of a Map or Set. */
export function runKey({ first, stop }: Run): string {
  return `${first}-${stop}`;
}

/** Units [first, stop) on `primary`; `standbys` hold them too. */
export interface PlanStage {
  readonly first: number;
  readonly stop: number;
  readonly primary: string;
  readonly standbys: readonly string[];
  readonly weightBytes: number;
  readonly kvBytes: number;
  readonly overheadBytes: number;
}

/** A plan numbered by a version that only rises. */
export interface PlanRecord {
  readonly version: number;
  readonly stages: readonly PlanStage[];
  readonly predictedTokenUs: number;
  readonly predictedRateMilli: number; // thousandths of tokens per second, all promised sessions together
  readonly why: readonly string[];
  readonly choices: readonly ChoiceRecord[]; // this plan among others, as it was chosen; for people only
}

/** The primary of each stage, in pipeline order. */
export function routeOf(plan: PlanRecord): string[] {
  return plan.stages.map(({ primary }) => primary);
}

/** Which runs of units each peer must hold for this plan. */
export function holdersOf(plan: Pick<PlanRecord, 'stages'>): Map<string, Run[]> {
  const runs = new Map<string, Run[]>();
  for (const { first, stop, primary, standbys } of plan.stages) {
    for (const peer of [primary, ...standbys]) {
      const held = runs.get(peer) ?? [];
      if (!held.some((run) => run.first === first && run.stop === stop)) held.push({ first, stop });
      runs.set(peer, held);
    }
  }
  return runs;
}

const planStage = record<PlanStage>('PlanStage', {
  first: uint,
  stop: uint,
  primary: text,
  standbys: list(text),
  weightBytes: uint,
  kvBytes: uint,
  overheadBytes: uint,
});

export const planCodec = record<PlanRecord>(
  'PlanRecord',
  {
    version: uint,
    stages: list(planStage),
    predictedTokenUs: uint,
    predictedRateMilli: uint,
    why: list(text),
    choices: choicesCodec,
  },
  { since: { choices: [] } },
);
