/*
 * Decides what can be said in the log of a mesh, and how it stands in bytes (twin of peer/mesh_commands.py).
 *
 * Pure. Canonical JSON of integers and strings only, times in microseconds, so that Python and JavaScript spell every
 * number alike. mesh_state.ts says what the commands mean.
 */

import { BadCommand } from './errors';
import {
  type Codec,
  dump,
  flag,
  itemsOf,
  list,
  load,
  maybe,
  oneOf,
  record,
  shown,
  table,
  text,
  uint,
} from './json_codec';
import type { Protection } from './protection';

export type Objective = 'latency' | 'throughput';
export type MemberStatus = 'joining' | 'measured' | 'draining' | 'paused' | 'leaving';

/** Units [first, stop). */
export interface Run {
  readonly first: number;
  readonly stop: number;
}

/** A run as the key of a Map or Set. */
export function runKey({ first, stop }: Run): string {
  return `${first}-${stop}`;
}

/** Measured memory and speed of one peer, in bytes and microseconds (nanoseconds where stated). */
export interface Profile {
  readonly memoryBytes: number;
  readonly overheadBytes: number;
  readonly decodeNs: ReadonlyMap<string, number>; // one unit of a kind, one decode token
  readonly prefillNs: ReadonlyMap<string, number>; // one unit of a kind, one prompt token
  readonly batchNs: ReadonlyMap<string, number>; // one more row in a decode batch
  readonly stepNs: number;
  readonly provider: string;
  readonly threads: number;
}

/** One peer of the mesh. `compute` is false for a peer that only asks. */
export interface Member {
  readonly peer: string;
  readonly name: string;
  readonly compute: boolean;
  readonly status: MemberStatus;
  readonly profile: Profile | null;
  readonly held: readonly Run[]; // runs of units that are loaded and can serve
  readonly reason: string; // why it drains or is paused, for people
}

/** Measured path from `src` to `dst`. */
export interface LinkFacts {
  readonly src: string;
  readonly dst: string;
  readonly rttUs: number;
  readonly bytesPerS: number;
  readonly overheadUs: number;
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
}

/** The primary of each stage, in pipeline order. */
export function routeOf(plan: PlanRecord): string[] {
  return plan.stages.map(({ primary }) => primary);
}

/** Which runs of units each peer must hold for this plan. */
export function holdersOf(plan: PlanRecord): Map<string, Run[]> {
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

// --- commands

/** The mesh serves this model store entry, with this promise of room. */
export interface ModelChosen {
  readonly kind: 'ModelChosen';
  readonly model: string;
  readonly name: string;
  readonly units: number;
  readonly context: number;
  readonly sessions: number;
  readonly objective: Objective;
}

export interface MemberJoined {
  readonly kind: 'MemberJoined';
  readonly peer: string;
  readonly name: string;
  readonly compute: boolean;
}

export interface MemberMeasured {
  readonly kind: 'MemberMeasured';
  readonly peer: string;
  readonly profile: Profile;
  readonly links: readonly LinkFacts[];
}

export interface PlanProposed {
  readonly kind: 'PlanProposed';
  readonly plan: PlanRecord;
}

export interface UnitsHeld {
  readonly kind: 'UnitsHeld';
  readonly peer: string;
  readonly held: readonly Run[];
}

export interface PlanActivated {
  readonly kind: 'PlanActivated';
  readonly version: number;
}

/** No plan exists for the members there are; `reason` says what is missing. */
export interface PlanRefused {
  readonly kind: 'PlanRefused';
  readonly reason: string;
}

/** `peer` serves on, but only while nobody else can, until it measures again. `reason` is for people. */
export interface MemberDraining {
  readonly kind: 'MemberDraining';
  readonly peer: string;
  readonly reason: string;
}

/** `peer` stays, but lends nothing until it measures again: its tab is frozen, say. `reason` is for people. */
export interface MemberPaused {
  readonly kind: 'MemberPaused';
  readonly peer: string;
  readonly reason: string;
}

/** A polite leave has begun: no new session may use this peer. */
export interface MemberLeaving {
  readonly kind: 'MemberLeaving';
  readonly peer: string;
}

export interface MemberLeft {
  readonly kind: 'MemberLeft';
  readonly peer: string;
  readonly reason: string;
}

/** How answers are protected from now on. */
export interface ProtectionChosen {
  readonly kind: 'ProtectionChosen';
  readonly protection: Protection;
}

export type Command =
  | ModelChosen
  | MemberJoined
  | MemberMeasured
  | PlanProposed
  | UnitsHeld
  | PlanActivated
  | PlanRefused
  | MemberDraining
  | MemberPaused
  | MemberLeaving
  | MemberLeft
  | ProtectionChosen;

// --- wire

const run: Codec<Run> = {
  decode(value, where) {
    const [first, stop, ...more] = itemsOf(value, where);
    if (first === undefined || stop === undefined || more.length > 0) throw notARun(value, where);
    const made = { first: uint.decode(first, where), stop: uint.decode(stop, where) };
    if (made.first >= made.stop) throw notARun(value, where);
    return made;
  },
  encode: ({ first, stop }) => [first, stop],
};

function notARun(value: unknown, where: string): BadCommand {
  return new BadCommand(`${where}: expected pairs [first, stop) with first < stop, got ${shown(value)}`);
}

const profile = record<Profile>('Profile', {
  memoryBytes: uint,
  overheadBytes: uint,
  decodeNs: table(uint),
  prefillNs: table(uint),
  batchNs: table(uint),
  stepNs: uint,
  provider: text,
  threads: uint,
});

export const member = record<Member>('Member', {
  peer: text,
  name: text,
  compute: flag,
  status: oneOf('joining', 'measured', 'draining', 'paused', 'leaving'),
  profile: maybe(profile),
  held: list(run),
  reason: text,
});

export const link = record<LinkFacts>('LinkFacts', {
  src: text,
  dst: text,
  rttUs: uint,
  bytesPerS: uint,
  overheadUs: uint,
});

const planStage = record<PlanStage>('PlanStage', {
  first: uint,
  stop: uint,
  primary: text,
  standbys: list(text),
  weightBytes: uint,
  kvBytes: uint,
  overheadBytes: uint,
});

export const plan = record<PlanRecord>('PlanRecord', {
  version: uint,
  stages: list(planStage),
  predictedTokenUs: uint,
  predictedRateMilli: uint,
  why: list(text),
});

export const protection = record<Protection>('Protection', {
  redundancyMilli: uint,
  spare: flag,
  shadow: oneOf('off', 'log', 'shadow'),
  strategy: oneOf('simple', 'progressive', 'parallel', 'coordinated'),
  transactions: flag,
  priority: list(text),
  together: flag,
  logSessionBytes: uint,
  logTotalBytes: uint,
});

export const modelFields = {
  model: text,
  name: text,
  units: uint,
  context: uint,
  sessions: uint,
  objective: oneOf('latency', 'throughput'),
};

const COMMANDS: { readonly [K in Command['kind']]: Codec<Extract<Command, { kind: K }>> } = {
  ModelChosen: record<ModelChosen>('ModelChosen', modelFields, 'ModelChosen'),
  MemberJoined: record<MemberJoined>(
    'MemberJoined',
    { peer: text, name: text, compute: flag },
    'MemberJoined',
  ),
  MemberMeasured: record<MemberMeasured>(
    'MemberMeasured',
    { peer: text, profile, links: list(link) },
    'MemberMeasured',
  ),
  PlanProposed: record<PlanProposed>('PlanProposed', { plan }, 'PlanProposed'),
  UnitsHeld: record<UnitsHeld>('UnitsHeld', { peer: text, held: list(run) }, 'UnitsHeld'),
  PlanActivated: record<PlanActivated>('PlanActivated', { version: uint }, 'PlanActivated'),
  PlanRefused: record<PlanRefused>('PlanRefused', { reason: text }, 'PlanRefused'),
  MemberDraining: record<MemberDraining>('MemberDraining', { peer: text, reason: text }, 'MemberDraining'),
  MemberPaused: record<MemberPaused>('MemberPaused', { peer: text, reason: text }, 'MemberPaused'),
  MemberLeaving: record<MemberLeaving>('MemberLeaving', { peer: text }, 'MemberLeaving'),
  MemberLeft: record<MemberLeft>('MemberLeft', { peer: text, reason: text }, 'MemberLeft'),
  ProtectionChosen: record<ProtectionChosen>('ProtectionChosen', { protection }, 'ProtectionChosen'),
};

/** Canonical JSON of one command: {"kind": name, ...fields}. */
export function encodeCommand(command: Command): Uint8Array<ArrayBuffer> {
  return dump((COMMANDS[command.kind] as Codec<Command>).encode(command));
}

/** The command in `bytes`. Raises BadCommand naming what was expected. */
export function decodeCommand(bytes: Uint8Array): Command {
  const body = load(bytes);
  const kind = body['kind'];
  if (typeof kind !== 'string' || !Object.hasOwn(COMMANDS, kind)) {
    throw new BadCommand(
      `unknown command ${shown(kind)}; this build is older than the coordinator, update it`,
    );
  }
  return COMMANDS[kind as Command['kind']].decode(body, kind);
}
