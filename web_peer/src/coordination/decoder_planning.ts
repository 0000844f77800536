/*
 * What a further model that answers in words is planned with: what other models leave of each peer, and how fast it is
 * (twin of peer/coordination/decoder_planning.py).
 *
 * Pure. The mesh's own model comes first. What is planned for a further one is planned as for that, with the memory
 * that all others leave; times are those that peers measured of units of the mesh's own model, by the work of each
 * unit.
 */

import type { Manifest } from '../planner/manifest';
import { loadedParts, unitContents } from '../planner/same_units';
import { seenAs } from '../state/decoder_sight';
import type { DecoderCommand, PlanRecord, Profile } from '../state/generated/commands';
import type { Command } from '../state/member_commands';
import type { MeshState } from '../state/mesh_state';
import { type Run, teamOf } from '../state/plan_record';
import { DECODERS, SHARES } from '../state/version_negotiation';
import { byBytes } from '../wire/utf8_order';
import {
  heldBytes,
  type Holding,
  holdingOf,
  type PlannerUnit,
  plannerUnits,
  type SharedRun,
} from './plan_request';

const FIRST_VERSION = 2 ** 19; // of their plans, which no plan of the mesh's own model reaches
const VERSIONS = 2 ** 18; // by the length of the log, so that another offer of a name begins with others
const NANO = 1e9;
/** The mesh's own model, in `Sharing`; no further one is called so. */
export const OWN = '';
const UNTIMED_FLOPS_PER_S = 1e9; // of a peer that measured nothing of the kind: a slow processor
const TIMED = ['attn', 'ffn', 'head']; // speed is known by these, the most telling one first

/** The units of a model that answers in words, each with a text that units of equal content share. */
export interface Weights {
  readonly units: readonly PlannerUnit[];
  readonly contents: readonly string[];
}

/** Those of a manifest. */
export function weightsOf(manifest: Manifest): Weights {
  return { units: plannerUnits(manifest), contents: unitContents(manifest) };
}

/**
 * The parts of a stage that equal ones of other models are loaded with: bytes in memory, by content. A tab has a stage as
 * a whole.
 */
function partsOf({ units, contents }: Weights, run: Run, holding: Holding): ReadonlyMap<string, number> {
  const kinds = units.map(({ kind }) => kind);
  const whole = [[run.first, run.stop]] as const;
  const parts = holding === 'mapped' ? loadedParts(kinds, run.first, run.stop) : whole;
  return new Map(
    parts.map(([start, end]) => [
      contents.slice(start, end).join(' '),
      units.slice(start, end).reduce((sum, unit) => sum + heldBytes(unit, holding), 0),
    ]),
  );
}

/**
 * What is known of weights that several models have. `models`: by the name of a further one, OWN for the mesh's own;
 * `speaks(peer)`: its version of the protocol.
 */
export interface Sharing {
  readonly models: ReadonlyMap<string, Weights>;
  speaks(peer: string): number;
}

/** Every model for itself. */
export const ALONE: Sharing = { models: new Map(), speaks: () => 0 };

/** How a peer keeps weights, where it loads equal ones of several models once; else null. */
function sharedHolding(sharing: Sharing, state: MeshState, peer: string): Holding | null {
  const profile = state.members.get(peer)?.profile ?? null;
  if (profile === null || sharing.speaks(peer) < SHARES) return null;
  return holdingOf(profile);
}

/**
 * The state as the planner of that further model takes it. `units` are its own, `own` those that the members measured
 * themselves with; `speaks(peer)`: its version of the protocol; `sharing`: as in `takenBytes`.
 */
export function plannedWith(
  state: MeshState,
  name: string,
  units: readonly PlannerUnit[],
  own: readonly PlannerUnit[],
  speaks: (peer: string) => number,
  sharing: Sharing = ALONE,
): MeshState {
  const seen = seenAs(state, name);
  const taken = takenBytes(state, name, sharing);
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

/**
 * What each peer holds, or is to hold, of all models but the further one that is called `without`. What equal parts
 * take on a peer that loads them once, as far as `sharing` knows, counts once.
 */
export function takenBytes(state: MeshState, without = '', sharing = ALONE): ReadonlyMap<string, number> {
  const found = new Map<string, number>();
  const more = (peer: string, bytes: number): unknown => found.set(peer, (found.get(peer) ?? 0) + bytes);
  for (const [, plans] of plansOf(state, without)) {
    for (const [peer, bytes] of planBytes(plans)) more(peer, bytes);
  }
  for (const [peer, parts] of loadedOf(state, without, sharing)) {
    const once = new Map([...parts.values()].map(({ content, bytes }) => [content, bytes]));
    more(peer, sumOf(once.values()) - sumOf([...parts.values()].map(({ bytes }) => bytes)));
  }
  const places = new Map<string, { readonly peer: string; readonly bytes: number }>();
  for (const { model, stages } of state.offers.values()) {
    for (const { first, stop, primary, standbys, bytes } of stages) {
      for (const peer of [primary, ...standbys])
        places.set(`${model} ${first} ${stop} ${peer}`, { peer, bytes });
    }
  }
  for (const { peer, bytes } of places.values()) more(peer, bytes);
  return found;
}

/** Where stages of that further model are loaded with equal ones of other models; none where they are nowhere. */
export function sharedRuns(state: MeshState, name: string, sharing: Sharing): readonly SharedRun[] {
  const weights = sharing.models.get(name);
  const decoder = state.decoders.get(name);
  if (weights === undefined || decoder === undefined) return [];
  const loaded = loadedOf(state, name, sharing);
  const wanted = new Map<string, Placed>();
  const others = plansOf(state, name).filter(([other]) => sharing.models.has(other));
  for (const [, plans] of [...others, [name, [decoder.plan, decoder.proposed]] as const]) {
    for (const placed of placesOf(plans)) wanted.set(keyOf(placed), placed);
  }
  const found = [...wanted.values()]
    .sort((a, b) => byBytes(a.peer, b.peer) || a.first - b.first || a.stop - b.stop)
    .flatMap(({ peer, first, stop }): SharedRun[] => {
      const holding = sharedHolding(sharing, state, peer);
      if (holding === null || stop > weights.units.length) return [];
      const there = new Set([...(loaded.get(peer)?.values() ?? [])].map(({ content }) => content));
      const parts = [...partsOf(weights, { first, stop }, holding)].filter(([content]) => there.has(content));
      return [{ peer, first, stop, bytes: sumOf(parts.map(([, bytes]) => bytes)) }];
    });
  return found.some(({ bytes }) => bytes > 0) ? found : [];
}

type Plans = readonly (PlanRecord | null)[];

/** The plans of each model that answers in words, the mesh's own first. */
function plansOf(state: MeshState, without: string): readonly (readonly [string, Plans])[] {
  const further = [...state.decoders].filter(([name]) => name !== without);
  return [
    [OWN, [state.plan, state.proposed]],
    ...further.map(([name, { plan, proposed, refused }]): [string, Plans] => [
      name,
      refused === '' ? [plan, proposed] : [],
    ]),
  ];
}

interface Loaded {
  readonly content: string;
  readonly bytes: number;
}

/** By peer: what it loads of models that are known, each part of a model once. */
function loadedOf(
  state: MeshState,
  without: string,
  sharing: Sharing,
): ReadonlyMap<string, ReadonlyMap<string, Loaded>> {
  const found = new Map<string, Map<string, Loaded>>();
  for (const [name, plans] of plansOf(state, without)) {
    const weights = sharing.models.get(name);
    if (weights === undefined) continue;
    for (const { peer, first, stop } of placesOf(plans)) {
      const holding = sharedHolding(sharing, state, peer);
      if (holding === null || stop > weights.units.length) continue;
      const parts = found.get(peer) ?? new Map<string, Loaded>();
      for (const [content, bytes] of partsOf(weights, { first, stop }, holding)) {
        parts.set(`${name} ${content}`, { content, bytes });
      }
      found.set(peer, parts);
    }
  }
  return found;
}

interface Placed extends Run {
  readonly peer: string;
}

function keyOf({ peer, first, stop }: Placed): string {
  return `${first} ${stop} ${peer}`;
}

/** What these plans give peers, each place once; not stages that a team computes, each peer a slice. */
function placesOf(plans: Plans): readonly Placed[] {
  const found = plans
    .flatMap((plan) => plan?.stages ?? [])
    .filter(({ helpers = [] }) => helpers.length === 0)
    .flatMap(({ first, stop, primary, standbys }) =>
      [primary, ...standbys].map((peer) => ({ peer, first, stop })),
    );
  return [...new Map(found.map((placed) => [keyOf(placed), placed])).values()];
}

function sumOf(numbers: Iterable<number>): number {
  return [...numbers].reduce((a, b) => a + b, 0);
}

/** What each peer needs for these plans of one model; what two of them give a peer counts once. */
export function planBytes(plans: readonly (PlanRecord | null)[]): ReadonlyMap<string, number> {
  const held = new Map<string, { readonly peer: string; readonly bytes: number }>();
  for (const stage of plans.flatMap((plan) => plan?.stages ?? [])) {
    const { first, stop, standbys, weightBytes, kvBytes } = stage;
    for (const peer of [...teamOf(stage), ...standbys]) {
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
