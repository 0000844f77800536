/*
 * Decides where an answer went on with other arithmetic: units whose class changed between two of its tokens (twin of
 * peer/origin/arithmetic_changes.py). Pure.
 */

import { isCrossed, shownClass } from '../planner/arithmetic_class';
import type { Member, PlanRecord } from '../state/generated/commands';

const MOST = 8; // of one answer that are told

/** Units [first, stop) that a peer of this class computes; '': unknown. */
export interface Part {
  readonly first: number;
  readonly stop: number;
  readonly arithmetic: string;
}

/** After `tokens` of an answer units [first, stop) went on with the class `after` in place of `before`; '': unknown. */
export interface Crossing {
  readonly tokens: number;
  readonly first: number;
  readonly stop: number;
  readonly before: string;
  readonly after: string;
}

/** Who computes the stages of `plan` how on a route over `peers`; null where one of them is no member. */
export function partsOf(
  plan: Pick<PlanRecord, 'stages'>,
  peers: readonly string[],
  members: ReadonlyMap<string, Pick<Member, 'profile'>>,
): readonly Part[] | null {
  const found: Part[] = [];
  for (const [place, { first, stop }] of plan.stages.slice(0, peers.length).entries()) {
    const member = members.get(peers[place] ?? '');
    if (member === undefined) return null;
    found.push({ first, stop, arithmetic: member.profile?.arithmetic ?? '' });
  }
  return found;
}

/**
 * Of one answer, which has `tokens` of somebody else already. `found`: those between its tokens so far, the first MOST.
 */
export class Crossings {
  found: readonly Crossing[] = [];
  private tokens: number;
  private parts: readonly Part[] = [];

  constructor(tokens = 0) {
    this.tokens = tokens;
  }

  /** One more token came, of stages that compute so; null: as the one before, as far as anybody knows. */
  token(parts: readonly Part[] | null): void {
    if (parts !== null) {
      const changed = between(this.parts, parts).map((each) => ({ tokens: this.tokens, ...each }));
      this.found = [...this.found, ...changed].slice(0, MOST);
      this.parts = parts;
    }
    this.tokens += 1;
  }
}

type Change = Omit<Crossing, 'tokens'>;

/** Runs of units whose class changed. */
function between(before: readonly Part[], after: readonly Part[]): Change[] {
  const all = [...before, ...after].flatMap(({ first, stop }) => [first, stop]);
  const borders = [...new Set(all)].sort((a, b) => a - b);
  const found: Change[] = [];
  for (const [at, first] of borders.slice(0, -1).entries()) {
    const stop = borders[at + 1] ?? first;
    const [was, now] = [classOf(before, first), classOf(after, first)];
    if (was === null || now === null || !isCrossed(was, now)) continue;
    const last = found.at(-1);
    if (last?.stop === first && last.before === was && last.after === now) {
      found[found.length - 1] = { ...last, stop };
    } else {
      found.push({ first, stop, before: was, after: now });
    }
  }
  return found;
}

function classOf(parts: readonly Part[], unit: number): string | null {
  return parts.find(({ first, stop }) => first <= unit && unit < stop)?.arithmetic ?? null;
}

/** One line for people; '' where nothing crossed. */
export function crossedText(found: readonly Crossing[]): string {
  const [one] = found;
  if (one === undefined) return '';
  const units = one.stop === one.first + 1 ? `unit ${one.first}` : `units ${one.first} to ${one.stop - 1}`;
  const called = (arithmetic: string): string => shownClass(arithmetic) || 'unknown';
  const more = found.length > 1 ? `, and ${found.length - 1} more such changes` : '';
  return (
    `after ${one.tokens} token${one.tokens === 1 ? '' : 's'} ${units} went on with other arithmetic ` +
    `(${called(one.after)}, before ${called(one.before)})${more}: wording may differ from there on`
  );
}
