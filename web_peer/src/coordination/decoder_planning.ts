/*
 * What a further model that answers in words is planned with: what other models leave of each peer, and how fast it is
 * (twin of peer/coordination/decoder_planning.py).
 *
 * Pure. The mesh's own model comes first. What is planned for a further one is planned as for that, with the memory
 * that all others leave; times are those that peers measured of units of the mesh's own model, by the work of each
 * unit.
 */

import { seenAs } from '../state/decoder_sight';
import type { DecoderCommand, PlanRecord, Profile } from '../state/generated/commands';
import type { Command } from '../state/member_commands';
import type { MeshState } from '../state/mesh_state';
import { DECODERS } from '../state/version_negotiation';
import type { PlannerUnit } from './plan_request';

const FIRST_VERSION = 2 ** 19; // of their plans, which no plan of the mesh's own model reaches
const VERSIONS = 2 ** 18; // by the length of the log, so that another offer of a name begins with others
const NANO = 1e9;
const UNTIMED_FLOPS_PER_S = 1e9; // of a peer that measured nothing of the kind: a slow processor
const TIMED = ['attn', 'ffn', 'head']; // speed is known by these, the most telling one first

/**
 * The state as the planner of that further model takes it. `units` are its own, `own` those that the members measured
 * themselves with; `speaks(peer)`: its version of the protocol.
 */
export function plannedWith(
  state: MeshState,
  name: string,
  units: readonly PlannerUnit[],
  own: readonly PlannerUnit[],
  speaks: (peer: string) => number,
): MeshState {
  const seen = seenAs(state, name);
  const taken = takenBytes(state, name);
  const members = new Map(
    [...seen.members].map(([peer, member]) => {
      const { profile } = member;
      if (profile === null || speaks(peer) < DECODERS) return [peer, { ...member, compute: false }];
      const memoryBytes = Math.max(0, profile.memoryBytes - (taken.get(peer) ?? 0));
      return [peer, { ...member, profile: { ...paced(profile, units, own), memoryBytes } }];
    }),
  );
  const lastVersion = seen.lastVersion === 0 ? FIRST_VERSION + (state.index % VERSIONS) : seen.lastVersion;
  return { ...seen, members, lastVersion };
}

/** What each peer holds, or is to hold, of all models but the further one that is called `without`. */
export function takenBytes(state: MeshState, without = ''): ReadonlyMap<string, number> {
  const found = new Map(planBytes([state.plan, state.proposed]));
  const more = (peer: string, bytes: number): unknown => found.set(peer, (found.get(peer) ?? 0) + bytes);
  for (const [name, { plan, proposed, refused }] of state.decoders) {
    if (name === without || refused !== '') continue;
    for (const [peer, bytes] of planBytes([plan, proposed])) more(peer, bytes);
  }
  for (const { stages } of state.offers.values()) {
    for (const { primary, standbys, bytes } of stages)
      for (const peer of [primary, ...standbys]) more(peer, bytes);
  }
  return found;
}

/** What each peer needs for these plans of one model; what two of them give a peer counts once. */
export function planBytes(plans: readonly (PlanRecord | null)[]): ReadonlyMap<string, number> {
  const held = new Map<string, { readonly peer: string; readonly bytes: number }>();
  for (const stage of plans.flatMap((plan) => plan?.stages ?? [])) {
    const { first, stop, primary, standbys, weightBytes, kvBytes } = stage;
    for (const peer of [primary, ...standbys]) {
      const key = `${first} ${stop} ${peer}`;
      held.set(key, { peer, bytes: Math.max(held.get(key)?.bytes ?? 0, weightBytes + kvBytes) });
    }
  }
  const found = new Map<string, number>();
  for (const { peer, bytes } of held.values()) found.set(peer, (found.get(peer) ?? 0) + bytes);
  return found;
}

/**
 * The same with the times of these units. A kind that both models have takes as much longer as there is more to
 * compute; of others it is known by how fast the peer is on the whole.
 */
function paced(profile: Profile, units: readonly PlannerUnit[], own: readonly PlannerUnit[]): Profile {
  const wanted = flopsOf(units);
  const measured = flopsOf(own);
  const rate = flopsPerS(profile, measured);
  const times = (table: ReadonlyMap<string, number>): ReadonlyMap<string, number> =>
    new Map(
      [...wanted].flatMap(([kind, flops]): [string, number][] => {
        const took = table.get(kind);
        const known = measured.get(kind);
        if (took !== undefined && known !== undefined) {
          return [[kind, nearest(took * (flops > 0 && known > 0 ? flops / known : 1))]];
        }
        return table.size > 0 ? [[kind, nearest((flops / rate) * NANO)]] : [];
      }),
    );
  const { decodeNs, prefillNs, batchNs } = profile;
  return { ...profile, decodeNs: times(decodeNs), prefillNs: times(prefillNs), batchNs: times(batchNs) };
}

/** How fast a peer is; `flops` of a token in a unit of each kind that it measured itself with. */
function flopsPerS({ prefillNs }: Profile, flops: ReadonlyMap<string, number>): number {
  for (const kind of TIMED) {
    const work = nearest(flops.get(kind) ?? 0);
    const tookNs = prefillNs.get(kind) ?? 0;
    if (work > 0 && tookNs > 0) return work / (tookNs / NANO);
  }
  return UNTIMED_FLOPS_PER_S;
}

/** The nearest whole number, the upper one of two. */
function nearest(value: number): number {
  return Math.floor(value + 0.5);
}

/** Of a token in a unit of each kind, on the average. */
function flopsOf(units: readonly PlannerUnit[]): ReadonlyMap<string, number> {
  const every = new Map<string, number[]>();
  for (const { kind, flopsPerToken } of units) every.set(kind, [...(every.get(kind) ?? []), flopsPerToken]);
  return new Map([...every].map(([kind, all]) => [kind, all.reduce((a, b) => a + b, 0) / all.length]));
}

/**
 * What a coordinator decides of its model, as the log takes it of the further model of that name. Raises TypeError for
 * what is not about plans.
 */
export function saidOf(name: string, command: Command): DecoderCommand {
  switch (command.kind) {
    case 'PlanProposed':
      return { kind: 'DecoderPlanned', name, plan: command.plan };
    case 'PlanActivated':
      return { kind: 'DecoderActivated', name, version: command.version };
    case 'PlanRefused':
      return { kind: 'DecoderRefused', name, reason: command.reason };
    default:
      throw new TypeError(`expected a decision about plans, got ${command.kind}`);
  }
}
