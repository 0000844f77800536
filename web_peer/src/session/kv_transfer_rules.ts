/*
 * Decides what of a cache goes from whom to whom when an answer moves: which places of the old route hold which units,
 * what `kv_copy` asks and what is believed of its answer (twin of
 * peer/session/kv_transfer_rules.py). Pure.
 */

import { BadCommand } from '../errors';
import type { SessionId } from '../wire/generated/frames';
import { firstKept } from '../planner/kv_window';
import { kvBytes, kvNames, type Manifest } from '../planner/manifest';
import type { MeshState } from '../state/mesh_state';
import type { PlanRecord } from '../state/generated/commands';
import type { Run } from '../state/plan_record';
import { sumOf } from './position_spans';
import type { KvCopyAnswer, KvCopyRequest } from '../wire/generated/requests';

const REMEMBERED_PLANS = 8; // an answer may still go over one that was replaced

/** Somebody who holds `run` caches what is wanted of `units`, which lie inside. */
export interface Source {
  readonly peer: string;
  readonly run: Run;
  readonly units: Run;
}

/** What a `kv_copy` asks for. */
export interface Wish {
  readonly session: SessionId;
  readonly run: Run;
  readonly units: Run;
}

/** The plans that answers go over, with the newest ones of `state`. */
export function remembered(plans: readonly PlanRecord[], { plan, proposed }: MeshState): PlanRecord[] {
  const fresh = [plan, proposed].filter((each) => each !== null);
  const known = new Map([...plans, ...fresh].map((each) => [each.version, each]));
  return [...known.values()].sort((a, b) => a.version - b.version).slice(-REMEMBERED_PLANS);
}

/**
 * Who caches what of units `run`, of the places of `plan` that `peers` hold; null when that is not its route, or not
 * whole.
 */
export function sourcesOf(
  plan: PlanRecord | undefined,
  peers: readonly string[],
  run: Run,
): readonly Source[] | null {
  if (plan?.stages.length !== peers.length) return null;
  const found = plan.stages.flatMap(({ first, stop }, place) => {
    const units = { first: Math.max(first, run.first), stop: Math.min(stop, run.stop) };
    return units.first < units.stop ? [{ peer: peers[place] ?? '', run: { first, stop }, units }] : [];
  });
  const covered = sumOf(found.map(({ units }) => units.stop - units.first));
  return covered === run.stop - run.first ? found : null;
}

/** The key and value arrays of `units`, in order. */
export function arraysOf(manifest: Manifest, { first, stop }: Run): string[] {
  return kvNames(manifest.units.slice(first, stop));
}

/** Of `count` positions in all of them; arrays with a window give none that are older than it. */
export function cacheBytes({ units, window }: Manifest, { first, stop }: Run, count: number): number {
  return sumOf(
    units.slice(first, stop).flatMap(({ kv }) =>
      kv.map((pair) => {
        const begin = window === null || pair.window === null ? 0 : firstKept(window, count);
        return (count - begin) * kvBytes([pair]);
      }),
    ),
  );
}

/** The request `kv_copy`. */
export function wishRequest({ session, run, units }: Wish): KvCopyRequest {
  return { session, first: units.first, stop: units.stop, from: run.first, to: run.stop };
}

/** What `peer` asks for. Raises BadCommand: it gets nothing but of units that a plan of `state` gives it. */
export function wishOf(said: KvCopyRequest, peer: string, { plan, proposed }: MeshState): Wish {
  const { session } = said;
  const units = { first: said.first, stop: said.stop };
  const run = { first: said.from, stop: said.to };
  const isInside = run.first <= units.first && units.first < units.stop && units.stop <= run.stop;
  const given = [plan, proposed].flatMap((each) => each?.stages ?? []);
  const isGiven = given.some(
    ({ first, stop, primary, standbys }) =>
      first <= units.first && units.stop <= stop && (primary === peer || standbys.includes(peer)),
  );
  if (!isInside || !isGiven) {
    throw new BadCommand('kv_copy: expected units that a plan gives the peer that asks');
  }
  return { session, run, units };
}

/** How many positions the other one caches, and the hash of what it gives, "" where that is nothing. */
export interface Told {
  readonly have: number;
  readonly sha256: string;
}

/** `most`: positions that the session may have. Raises BadCommand. */
export function toldOf({ have, sha256 }: KvCopyAnswer, most: number): Told {
  if (have > most) throw new BadCommand(`have: expected at most ${most} cached positions, got ${have}`);
  return { have, sha256 };
}
