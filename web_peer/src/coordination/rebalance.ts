/*
 * Decides whether a mesh whose peers compute slower or faster than planned is planned anew (twin of
 * peer/coordination/rebalance.py; the step itself is reckoned by the planning service). Pure.
 *
 * What asks for it must hold over some checks; one relief is followed by a rest, so that two peers that waver do not
 * toss the units to and fro.
 */

import type { Command } from '../state/member_commands';
import type { MeshState } from '../state/mesh_state';
import type { Profile } from '../state/generated/commands';
import { byBytes } from '../wire/utf8_order';
import type { Relieving, Unnumbered } from './plan_request';
import { UNKNOWN } from '../state/failure_domains';

const LOOK_MS = 700; // between two checks, at least: who coordinates looks every 0.75 s
const REST_MS = 60_000; // after a relief

/** Checks one case after the other. */
export class Relief {
  over = false; // whether the case that was looked at last asks for nothing, or nothing helps
  private seen = 0; // checks in a row that asked for another plan
  private lookedMs = -Infinity;
  private restsUntilMs = -Infinity;

  /** The plan that relieves, once what asks for it has held; null: nothing yet, or nothing that is worth it. */
  check(nowMs: number, relieving: Relieving | null): Unnumbered | null {
    this.over = false;
    if (nowMs - this.lookedMs < LOOK_MS || nowMs < this.restsUntilMs) return null;
    this.lookedMs = nowMs;
    this.seen = relieving === null ? 0 : this.seen + 1;
    if (relieving === null || this.seen < relieving.checks) {
      this.over = relieving === null;
      return null;
    }
    if (relieving.plan === null) {
      this.over = true;
      return null;
    }
    this.restsUntilMs = nowMs + REST_MS;
    this.seen = 0;
    return relieving.plan;
  }
}

/** What a command says that is planned anew. */
export type News = 'all' | 'pace' | 'surroundings';

/**
 * "pace", where a member that serves says no more than that it has become slower or faster, and maybe what its
 * surroundings are; "surroundings", where it says these alone.
 */
export function newsOf({ members }: MeshState, command: Command): News {
  if (command.kind !== 'MemberMeasured' || command.links.length > 0) return 'all';
  const member = members.get(command.peer);
  if (member?.status !== 'measured' || member.profile === null) return 'all';
  const [before, now] = [member.profile, command.profile];
  if (rest(before) !== rest(now)) return 'all';
  return times(before) === times(now) ? 'surroundings' : 'pace';
}

/** Two profiles that say the same are the same text. */
export function shown(profile: Profile): string {
  return rest(profile) + times(profile) + JSON.stringify(profile.surroundings ?? UNKNOWN);
}

function rest({ memoryBytes, overheadBytes, provider, threads }: Profile): string {
  return JSON.stringify([memoryBytes, overheadBytes, provider, threads]);
}

function times({ decodeNs, prefillNs, batchNs, stepNs }: Profile): string {
  const rows = [decodeNs, prefillNs, batchNs].map((table) => [...table].sort(([a], [b]) => byBytes(a, b)));
  return JSON.stringify([...rows, stepNs]);
}
