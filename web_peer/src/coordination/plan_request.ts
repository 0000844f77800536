/*
 * Decides what a planner is asked in a state of the mesh, in the JSON of `POST /plan`, and what its answer means (twin
 * of planner/service/planning_service.py and plan_request in peer/coordination/coordinator.py). Pure.
 */

import { BadCommand } from '../errors';
import type { Run } from '../state/plan_record';
import {
  kvPositions as kvPositionsOf,
  type Manifest,
  type ManifestUnit,
  packedBytes,
  type UnitKind,
  wideBytes,
} from '../planner/manifest';
import { FLOPS, KIND, WIDTH } from '../planner/yardstick';
import {
  type ChoiceRecord,
  MAX_CHOICES,
  type Member,
  type PlanRecord,
  type PlanStage,
  type Profile,
} from '../state/generated/commands';
import type { MeshState } from '../state/mesh_state';
import { byBytes } from '../wire/utf8_order';
import { domainsOf, UNKNOWN } from '../state/failure_domains';

const MAX_TEXT = 512; // characters of a sentence in a record
const MAX_STAGES = 64;
const MAX_SECONDS = 1e6; // no single measured time is longer than this
const MAX_SUM = 2 ** 58; // picoseconds or bytes that a plan may add up to
const MICRO = 1_000_000;

/** A unit as the planner sees it. */
export interface PlannerUnit {
  readonly name: string;
  readonly kind: UnitKind;
  readonly weightBytes: number; // in a process
  readonly packedBytes: number; // in a tab with a GPU
  readonly wideBytes: number; // in a tab without one
  readonly flopsPerToken: number;
  readonly kvBytesPerToken: number;
  readonly kvPositions?: number; // of a session that it caches at most; absent: all of them
  readonly outBytesPerToken: number;
}

/** The units of a model as the planner knows them: sizes in bytes, work in floating-point operations. */
export function plannerUnits({ units, window }: Manifest): readonly PlannerUnit[] {
  const most = (unit: ManifestUnit): { readonly kvPositions?: number } => {
    const kvPositions = kvPositionsOf(unit, window);
    return kvPositions > 0 ? { kvPositions } : {};
  };
  return units.map((unit) => ({
    name: unit.name,
    kind: unit.kind,
    weightBytes: unit.residentBytes,
    packedBytes: packedBytes(unit),
    wideBytes: wideBytes(unit),
    flopsPerToken: unit.flopsPerToken,
    kvBytesPerToken: unit.kvBytesPerToken,
    ...most(unit),
    outBytesPerToken: unit.outBytesPerToken,
  }));
}

/** What peers time where no model answers in words, as the planner knows it; nobody holds it. */
export const YARDSTICK_UNITS: readonly PlannerUnit[] = [
  {
    name: 'yardstick',
    kind: KIND,
    weightBytes: 0,
    packedBytes: 0,
    wideBytes: 0,
    flopsPerToken: FLOPS,
    kvBytesPerToken: 0,
    outBytesPerToken: 4 * WIDTH,
  },
];

export type Holding = 'mapped' | 'packed' | 'wide';

/** How a peer keeps weights: processes map them, tabs hold them packed on a GPU or as float32. */
export function holdingOf({ provider }: Profile): Holding {
  if (provider === 'wasm') return 'wide';
  return provider === 'webgpu' ? 'packed' : 'mapped';
}

/** A member that has measured itself. */
export interface Measured {
  readonly peer: string;
  readonly profile: Profile;
}

/** The members that a plan may use, by peer id; those that drain only where there is none without them. */
export function readyToServe(state: MeshState): readonly Member[] {
  return [...state.members.values()]
    .filter(({ compute, status }) => compute && (status === 'measured' || status === 'draining'))
    .sort((a, b) => byBytes(a.peer, b.peer));
}

/**
 * Units [first, stop) that `peer` may have as a stage with `bytes` of weights less: another model has equal ones loaded
 * there. Runs with 0 are where another model of that sort is cut.
 */
export interface SharedRun {
  readonly peer: string;
  readonly first: number;
  readonly stop: number;
  readonly bytes: number;
}

/** What the planner is told: who may serve, what each unit takes, what serves already, and what others have loaded. */
export interface PlanRequest {
  readonly state: MeshState;
  readonly units: readonly PlannerUnit[];
  readonly peers: readonly Measured[];
  readonly serving: Serving | null;
  readonly shared: readonly SharedRun[];
}

/** The stages that serve. */
export interface Serving {
  readonly stages: readonly PlanStage[];
  readonly lost: boolean; // they can serve no more: what moves then counts most
  readonly first: readonly number[]; // places that are lost, in the order of their repair
}

/**
 * What the planner is asked: the members but those of `without`, and the stages of `serving` to compare with; `shared`:
 * where other models have the weights of these units loaded.
 */
export function planRequest(
  state: MeshState,
  units: readonly PlannerUnit[],
  without: ReadonlySet<string> = new Set(),
  serving: Serving | null = null,
  shared: readonly SharedRun[] = [],
): PlanRequest {
  const peers = readyToServe(state).flatMap(({ peer, profile }) =>
    profile === null || without.has(peer) ? [] : [{ peer, profile }],
  );
  const here = new Set(peers.map(({ peer }) => peer));
  return { state, units, peers, serving, shared: shared.filter(({ peer }) => here.has(peer)) };
}

/** Weights of a unit in memory on a peer that keeps them this way. */
export function heldBytes(unit: PlannerUnit, holding: Holding): number {
  return { mapped: unit.weightBytes, packed: unit.packedBytes, wide: unit.wideBytes }[holding];
}

/** (weights, KV of every promised session at full context, overhead) of units [first, stop) on a peer. */
export function stageBytes(
  { state, units }: PlanRequest,
  profile: Profile,
  first: number,
  stop: number,
): { readonly weightBytes: number; readonly kvBytes: number; readonly overheadBytes: number } {
  const holding = holdingOf(profile);
  const { context = 0, sessions = 0 } = state.model ?? {};
  const run = units.slice(first, stop);
  const weights = run.map((unit) => heldBytes(unit, holding));
  const kv = run.map(
    ({ kvBytesPerToken, kvPositions = context }) =>
      kvBytesPerToken * Math.min(kvPositions, context) * sessions,
  );
  const sum = (numbers: readonly number[]): number => numbers.reduce((a, b) => a + b, 0);
  return { weightBytes: sum(weights), kvBytes: sum(kv), overheadBytes: profile.overheadBytes };
}

/** Why a planner could not use this profile; "" where it can. */
export function unusable(profile: Profile, units: readonly PlannerUnit[]): string {
  const kinds = new Set<string>(units.map(({ kind }) => kind));
  for (const [name, table] of [
    ['decode_ns', profile.decodeNs],
    ['prefill_ns', profile.prefillNs],
  ] as const) {
    for (const kind of kinds) {
      if (!table.has(kind)) return `expected ${name} for every kind of unit, ${kind} is missing`;
    }
  }
  const times = [profile.decodeNs, profile.prefillNs, profile.batchNs].flatMap((table) => [
    ...table.values(),
  ]);
  if ([...times, profile.stepNs].some((ns) => ns > MAX_SECONDS * 1e9)) {
    return `expected seconds from 0 to ${MAX_SECONDS}`;
  }
  const slowest = Math.max(0, ...times) * 2 * units.length + profile.stepNs;
  if (slowest * 1000 * MAX_STAGES > MAX_SUM) return 'expected times that add up to hours at most';
  return '';
}

// --- the service

/** JSON as planner/service/planning_service.py reads it. */
export function encodeRequest(request: PlanRequest): string {
  const { state, units, peers, shared } = request;
  const { model, protection, links } = state;
  const here = new Set(peers.map(({ peer }) => peer));
  const seconds = (table: ReadonlyMap<string, number>): Record<string, number> =>
    Object.fromEntries([...table].map(([kind, ns]) => [kind, ns / 1e9]));
  return JSON.stringify({
    units: units.map((unit) => ({
      name: unit.name,
      kind: unit.kind,
      weight_bytes: unit.weightBytes,
      flops_per_token: unit.flopsPerToken,
      kv_bytes_per_token: unit.kvBytesPerToken,
      ...(unit.kvPositions === undefined ? {} : { kv_positions: unit.kvPositions }),
      out_bytes_per_token: unit.outBytesPerToken,
      packed_bytes: unit.packedBytes,
      wide_bytes: unit.wideBytes,
    })),
    peers: peers.map(({ peer, profile }) => ({
      peer,
      memory_bytes: profile.memoryBytes,
      overhead_bytes: profile.overheadBytes,
      decode_s: seconds(profile.decodeNs),
      prefill_s: seconds(profile.prefillNs),
      step_s: profile.stepNs / 1e9,
      batch_s: seconds(profile.batchNs),
      holding: holdingOf(profile),
      facts: factsOf(profile),
    })),
    links: links
      .filter(({ src, dst }) => here.has(src) && here.has(dst))
      .map(({ src, dst, rttUs, bytesPerS, overheadUs, relayed = null }) => ({
        src,
        dst,
        rtt_s: rttUs / MICRO,
        bytes_per_s: Math.max(1, bytesPerS),
        overhead_s: overheadUs / MICRO,
        relayed,
      })),
    context: model?.context ?? 1,
    sessions: model?.sessions ?? 1,
    objective: model?.objective ?? 'latency',
    redundancy: protection.redundancyMilli,
    spare: protection.spare,
    ...(shared.length > 0 ? { shared } : {}),
    ...wishOf(state),
    ...servingOf(request),
  });
}

/** Whose planner is told what serves can say what a plan is worth beside it. */
function servingOf({ serving, peers, state }: PlanRequest): Record<string, unknown> {
  if (serving === null) return {};
  const stages = serving.stages.map(({ first, stop, primary, helpers = [], shares = [] }) => ({
    ...{ first, stop, peer: primary },
    ...(helpers.length === 0 ? {} : { helpers, shares }),
  }));
  const runs = (held: readonly Run[]): number[][] => held.map(({ first, stop }) => [first, stop]);
  const held = Object.fromEntries(peers.map(({ peer }) => [peer, runs(state.members.get(peer)?.held ?? [])]));
  return { serving: { stages, held, lost: serving.lost, first: serving.first } };
}

/** What the peer says of how it may fail, and of how it computes. */
function factsOf({ surroundings = UNKNOWN, arithmetic = '' }: Profile): Record<string, unknown> {
  const { hazardMilli } = surroundings;
  return {
    hazard_per_h: hazardMilli === null ? null : hazardMilli / 1000,
    domains: domainsOf(surroundings),
    ...(arithmetic === '' ? {} : { arithmetic }),
  };
}

/**
 * What the mesh wishes of its plans. A component may prefer a peer by its id or by its name; of equal names the first
 * id.
 */
function wishOf({ wish, members }: MeshState): Record<string, unknown> {
  if (wish === null) return {};
  const called = (name: string): string =>
    [...members.values()]
      .filter((member) => member.name === name)
      .map(({ peer }) => peer)
      .sort(byBytes)[0] ?? '';
  const { strategy, goal, minTensorBytes = 0 } = wish;
  const components = wish.components.map(({ name, first, stop, prefers }) => ({
    name,
    first,
    stop,
    prefers: members.has(prefers) ? prefers : called(prefers),
  }));
  const least = minTensorBytes === 0 ? {} : { min_tensor_bytes: minTensorBytes };
  return { wish: { strategy, goal, components, ...least } };
}

/** A plan for the log, without its number. */
export type Unnumbered = Omit<PlanRecord, 'version'>;

/** Such a plan and what it is beside the stages that serve (null: nobody said that), or why there is none. */
export type Planned =
  | { readonly kind: 'plan'; readonly plan: Unnumbered; readonly beside: Beside | null }
  | { readonly kind: 'infeasible'; readonly reason: string };

/** What a new plan is beside the stages that serve. */
export interface Beside {
  readonly better: boolean;
  readonly kept: Unnumbered | null; // the stages that serve, with others who stand by; null: they cannot serve
  readonly relief: Relieving | null; // null: nothing asks for another plan
}

/** A step that relieves once `checks` in a row have seen that one is asked for; null: none is worth what it moves. */
export interface Relieving {
  readonly checks: number;
  readonly plan: Unnumbered | null;
}

/** The service's answer. Raises BadCommand for anything but a plan of `units` units over these peers, or a reason. */
export function decodeAnswer(text: string, request: PlanRequest): Planned {
  let answer: unknown;
  try {
    answer = JSON.parse(text);
  } catch {
    throw new BadCommand('plan: expected JSON');
  }
  const top = objectOf(answer, 'answer');
  if (top['infeasible'] !== undefined) {
    const { reason } = objectOf(top['infeasible'], 'infeasible');
    if (typeof reason !== 'string') throw new BadCommand('infeasible: expected a reason');
    return { kind: 'infeasible', reason };
  }
  const plan = planIn(top['plan'], request);
  return { kind: 'plan', plan, beside: besideOf(top['serving'], request) };
}

function besideOf(value: unknown, request: PlanRequest): Beside | null {
  if (value === undefined || request.serving === null) return null;
  const { better, kept, relief } = objectOf(value, 'serving');
  return {
    better: better === true,
    kept: kept === null ? null : planIn(kept, request),
    relief: relief === null ? null : relievingOf(relief, request),
  };
}

function relievingOf(value: unknown, request: PlanRequest): Relieving {
  const { checks, plan } = objectOf(value, 'relief');
  return { checks: whole(checks, 'checks'), plan: plan === null ? null : planIn(plan, request) };
}

function planIn(value: unknown, { units, peers }: PlanRequest): Unnumbered {
  const plan = objectOf(value, 'plan');
  const here = new Set(peers.map(({ peer }) => peer));
  const stages = listOf(plan['stages'], 'stages').map((each) => stageOf(each, here));
  let at = 0;
  for (const { first, stop } of stages) {
    if (first !== at || stop <= first) throw new BadCommand(`plan: expected a stage from unit ${at} on`);
    at = stop;
  }
  if (at !== units.length) throw new BadCommand(`plan: expected all ${units.length} units, got ${at}`);
  const why = listOf(plan['why'], 'why').flatMap((each) =>
    typeof each === 'string' ? [[...each].slice(0, MAX_TEXT).join('')] : [],
  );
  return {
    stages,
    predictedTokenUs: Math.round(number(plan['decode_s'], 'decode_s') * MICRO),
    predictedRateMilli: Math.round(number(plan['tokens_per_s'], 'tokens_per_s') * 1000),
    why,
    choices: choicesOf(plan['choices']),
  };
}

/** For people only: what is none, as in the answer of an older service, is passed over. */
function choicesOf(value: unknown): readonly ChoiceRecord[] {
  if (value === undefined) return [];
  return listOf(value, 'choices')
    .slice(0, MAX_CHOICES)
    .map((each): ChoiceRecord => {
      const fields = objectOf(each, 'choice');
      const sentence = (said: unknown): string =>
        typeof said === 'string' ? [...said].slice(0, MAX_TEXT).join('') : '';
      return {
        name: sentence(fields['name']),
        tokenUs: Math.round(number(fields['decode_s'], 'decode_s') * MICRO),
        prefillUs: Math.round(number(fields['prefill_s'], 'prefill_s') * MICRO),
        rateMilli: Math.round(number(fields['tokens_per_s'], 'tokens_per_s') * 1000),
        memoryBytes: whole(fields['memory_bytes'], 'memory_bytes'),
        chosen: fields['chosen'] === true,
        best: fields['best'] === true,
        knee: fields['knee'] === true,
        whyNot: sentence(fields['why_not']),
      };
    });
}

function stageOf(value: unknown, here: ReadonlySet<string>): PlanRecord['stages'][number] {
  const fields = objectOf(value, 'stage');
  const peerOf = (each: unknown): string => {
    if (typeof each !== 'string' || !here.has(each))
      throw new BadCommand('plan: expected peers of the request');
    return each;
  };
  const helpers = listOf(fields['helpers'] ?? [], 'helpers').map(peerOf);
  const shares = listOf(fields['shares'] ?? [], 'shares').map((each) => whole(each, 'share'));
  return {
    first: whole(fields['first'], 'first'),
    stop: whole(fields['stop'], 'stop'),
    primary: peerOf(fields['peer']),
    standbys: listOf(fields['standbys'], 'standbys').map(peerOf),
    weightBytes: whole(fields['weight_bytes'], 'weight_bytes'),
    kvBytes: whole(fields['kv_bytes'], 'kv_bytes'),
    overheadBytes: whole(fields['overhead_bytes'], 'overhead_bytes'),
    ...(helpers.length + shares.length === 0 ? {} : { helpers, shares }),
  };
}

function objectOf(value: unknown, what: string): Readonly<Record<string, unknown>> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new BadCommand(`plan: expected an object as ${what}`);
  }
  return value as Readonly<Record<string, unknown>>;
}

function listOf(value: unknown, what: string): readonly unknown[] {
  if (!Array.isArray(value) || value.length > MAX_STAGES) {
    throw new BadCommand(`plan: expected a list of at most ${MAX_STAGES} as ${what}`);
  }
  return value;
}

function whole(value: unknown, what: string): number {
  if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 0) {
    throw new BadCommand(`plan: expected a whole number as ${what}`);
  }
  return value;
}

function number(value: unknown, what: string): number {
  if (typeof value !== 'number' || !(value >= 0 && value <= Number.MAX_SAFE_INTEGER)) {
    throw new BadCommand(`plan: expected a number as ${what}`);
  }
  return value;
}
