/*
 * Decides which version of the protocol two peers speak, and what a mesh with older voters may not say (twin of
 * peer/state/version_negotiation.py).
 *
 * Pure. HELLO carries the lowest version in its first field, where every version reads it. The highest stands behind
 * the agent's name, since version 3 has no field for it.
 */

import { VersionMismatch } from '../errors';
import type { Hello } from '../wire/generated/frames';
import { HIGHEST_VERSION, LOWEST_VERSION } from '../limits';
import type { Command } from './member_commands';
import type { MeshState } from './mesh_state';
import { type PlanRecord, SINCE } from './generated/commands';

const ENTRIES = 4; // conversations that one is invited to, and is put out of, came with it
const OFFERS = 5; // models beside the mesh's own came with it
export const DECODERS = 6; // those of them that answer in words
export const PICTURES = 7; // prompts with rows in place of token ids
export const TEAMS = 8; // stages that several peers compute, each a slice
export const SHARES = 8; // peers of it load equal weights of models that answer in words once
export const OPENS = 4; // and so did OPENs that name a front, or have no settings since their asker keeps its ends
const SPEAKS = /^(.*) speaks ([0-9]{1,4})$/s;

/** What one side speaks, both included. */
export interface Versions {
  readonly lowest: number;
  readonly highest: number;
}

export const SPOKEN: Versions = { lowest: LOWEST_VERSION, highest: HIGHEST_VERSION };
export const OLDER: Versions = { lowest: LOWEST_VERSION, highest: LOWEST_VERSION }; // as a peer that was not updated yet

/** The HELLO of a side that speaks these. */
export function announced({ lowest, highest }: Versions, peer: string, name: string, agent: string): Hello {
  const more = highest > lowest ? ` speaks ${highest}` : '';
  return { kind: 'HELLO', protocol: lowest, peer, name, agent: `${agent}${more}` };
}

/** What the sender of a HELLO speaks, and that HELLO with nothing but the agent's name in `agent`. */
export function told(hello: Hello): { readonly versions: Versions; readonly hello: Hello } {
  const found = SPEAKS.exec(hello.agent);
  const lowest = hello.protocol;
  if (found === null) return { versions: { lowest, highest: lowest }, hello };
  const [, agent = '', highest = ''] = found;
  return { versions: { lowest, highest: Math.max(lowest, Number(highest)) }, hello: { ...hello, agent } };
}

/** The highest version of both. Raises VersionMismatch where there is none. */
export function common(own: Versions, other: Versions): number {
  if (other.lowest > own.highest || other.highest < own.lowest) {
    throw new VersionMismatch(
      `expected protocol ${own.lowest} to ${own.highest}, the other peer speaks ${other.lowest} to ` +
        `${other.highest}; update the older one`,
    );
  }
  return Math.min(own.highest, other.highest);
}

// --- the log

/** The version that every voter must speak before the log may have `command`. */
export function neededBy(command: Command): number {
  if (command.kind === 'PlanProposed' && hasTeams(command.plan)) return TEAMS;
  if (command.kind === 'UnitsHeld' && (command.slices ?? []).length > 0) return TEAMS;
  if (command.kind === 'PlanWished' && command.strategy === 'tensor') return TEAMS;
  return SINCE.get(command.kind) ?? LOWEST_VERSION;
}

/** The version that a peer must speak to vote: a snapshot of an older one would lose a part of this state. */
export function neededToLead({
  conversations,
  decoders,
  members,
  offers,
  plan,
  proposed,
  wish,
}: MeshState): number {
  if (hasTeams(plan) || hasTeams(proposed) || wish?.strategy === 'tensor') return TEAMS;
  if ([...members.values()].some(({ slices = [] }) => slices.length > 0)) return TEAMS;
  if (decoders.size > 0) return DECODERS;
  if (offers.size > 0) return OFFERS;
  const isOpen = [...conversations.values()].every(
    ({ entry }) => !entry.byInvite && entry.offers.size === 0 && entry.barred.length === 0,
  );
  return isOpen ? LOWEST_VERSION : ENTRIES;
}

function hasTeams(plan: PlanRecord | null): boolean {
  return plan?.stages.some(({ helpers = [] }) => helpers.length > 0) ?? false;
}

/** Why the log may not have `command` yet; "" when it may. */
export function tooNew(
  command: Command,
  voters: readonly string[],
  speaks: (peer: string) => number,
): string {
  const needed = neededBy(command);
  const lowest = Math.min(...voters.map(speaks));
  if (lowest >= needed) return '';
  return `a peer that keeps the mesh speaks protocol ${lowest}, and this needs ${needed}: update it first`;
}
