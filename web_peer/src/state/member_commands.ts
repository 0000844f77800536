/*
 * Decides what can be said in the log of a mesh, and how it stands in bytes (twin of peer/state/member_commands.py).
 *
 * Pure. Times in microseconds. Here stand members and plans; people, conversations, the ledger and upkeep have modules
 * of their own. mesh_state.ts says what the commands mean.
 */

import { arithmeticCodec } from '../planner/arithmetic_class';
import {
  type Codec,
  dump,
  flag,
  list,
  load,
  maybe,
  oneOf,
  record,
  type Span,
  span,
  table,
  text,
  uint,
} from '../wire/json_codec';
import { type ChoiceRecord, choices } from './plan_alternatives';
import { CONVERSATION_COMMANDS, type ConversationCommand } from './conversations';
import { FAIRNESS_COMMANDS, type FairnessCommand } from './fairness';
import { LEDGER_COMMANDS, type LedgerCommand } from './work_ledger';
import { PEOPLE_COMMANDS, type PeopleCommand } from './roles';
import { UPKEEP_COMMANDS, type UpkeepCommand } from './upkeep';
import { WISH_COMMANDS, type WishCommand } from './plan_goal';
import type { Protection } from './protection';
import { surroundings, type Surroundings, UNKNOWN } from './failure_domains';

export type Objective = 'latency' | 'throughput';
export type MemberStatus = 'joining' | 'measured' | 'draining' | 'paused' | 'leaving';

export const MAX_LINKS = 65536; // of a snapshot: between any two of 256 members

/** Units [first, stop). */
export type Run = Span;

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
  readonly surroundings?: Surroundings;
  readonly arithmetic?: string; // two peers compute equal bits where both say the same; "": unknown
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
  readonly headless: boolean; // no tab: nobody closes it by accident
  readonly durable: boolean; // what it stores outlives a crash, so it may vote
  readonly incarnation: number; // counts the times that it lost what it had stored
}

/** Measured path from `src` to `dst`. */
export interface LinkFacts {
  readonly src: string;
  readonly dst: string;
  readonly rttUs: number;
  readonly bytesPerS: number;
  readonly overheadUs: number;
  readonly relayed?: boolean | null; // through a relay or a third peer; null: unknown
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

/** `incarnation` must not be below the highest that the log ever had for this peer. */
export interface MemberJoined {
  readonly kind: 'MemberJoined';
  readonly peer: string;
  readonly name: string;
  readonly compute: boolean;
  readonly headless?: boolean;
  readonly durable?: boolean;
  readonly incarnation?: number;
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

/** A command of a newer version: kept as it came and skipped. */
export interface UnknownCommand {
  readonly kind: 'Unknown';
  readonly name: string;
  readonly body: string;
}

type MeshCommand =
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

type KnownCommand =
  | MeshCommand
  | ConversationCommand
  | PeopleCommand
  | LedgerCommand
  | FairnessCommand
  | UpkeepCommand
  | WishCommand;
export type Command = KnownCommand | UnknownCommand;

// --- wire

const profile = record<Required<Profile>>(
  'Profile',
  {
    memoryBytes: uint,
    overheadBytes: uint,
    decodeNs: table(uint),
    prefillNs: table(uint),
    batchNs: table(uint),
    stepNs: uint,
    provider: text,
    threads: uint,
    surroundings,
    arithmetic: arithmeticCodec,
  },
  { since: { surroundings: UNKNOWN, arithmetic: '' } },
) as Codec<Profile>;

export const member = record<Member>(
  'Member',
  {
    peer: text,
    name: text,
    compute: flag,
    status: oneOf('joining', 'measured', 'draining', 'paused', 'leaving'),
    profile: maybe(profile),
    held: list(span),
    reason: text,
    headless: flag,
    durable: flag,
    incarnation: uint,
  },
  { since: { headless: false, durable: false, incarnation: 0 } },
);

export const link = record<Required<LinkFacts>>(
  'LinkFacts',
  { src: text, dst: text, rttUs: uint, bytesPerS: uint, overheadUs: uint, relayed: maybe(flag) },
  { since: { relayed: null } },
) as Codec<LinkFacts>;

const planStage = record<PlanStage>('PlanStage', {
  first: uint,
  stop: uint,
  primary: text,
  standbys: list(text),
  weightBytes: uint,
  kvBytes: uint,
  overheadBytes: uint,
});

export const plan = record<PlanRecord>(
  'PlanRecord',
  {
    version: uint,
    stages: list(planStage),
    predictedTokenUs: uint,
    predictedRateMilli: uint,
    why: list(text),
    choices,
  },
  { since: { choices: [] } },
);

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

const COMMANDS: { readonly [K in KnownCommand['kind']]: Codec<Extract<KnownCommand, { kind: K }>> } = {
  ModelChosen: record<ModelChosen>('ModelChosen', modelFields, { kind: 'ModelChosen' }),
  MemberJoined: record<MemberJoined>(
    'MemberJoined',
    { peer: text, name: text, compute: flag, headless: flag, durable: flag, incarnation: uint },
    { kind: 'MemberJoined', since: { headless: false, durable: false, incarnation: 0 } },
  ),
  MemberMeasured: record<MemberMeasured>(
    'MemberMeasured',
    { peer: text, profile, links: list(link) },
    { kind: 'MemberMeasured' },
  ),
  PlanProposed: record<PlanProposed>('PlanProposed', { plan }, { kind: 'PlanProposed' }),
  UnitsHeld: record<UnitsHeld>('UnitsHeld', { peer: text, held: list(span) }, { kind: 'UnitsHeld' }),
  PlanActivated: record<PlanActivated>('PlanActivated', { version: uint }, { kind: 'PlanActivated' }),
  PlanRefused: record<PlanRefused>('PlanRefused', { reason: text }, { kind: 'PlanRefused' }),
  MemberDraining: record<MemberDraining>(
    'MemberDraining',
    { peer: text, reason: text },
    { kind: 'MemberDraining' },
  ),
  MemberPaused: record<MemberPaused>('MemberPaused', { peer: text, reason: text }, { kind: 'MemberPaused' }),
  MemberLeaving: record<MemberLeaving>('MemberLeaving', { peer: text }, { kind: 'MemberLeaving' }),
  MemberLeft: record<MemberLeft>('MemberLeft', { peer: text, reason: text }, { kind: 'MemberLeft' }),
  ProtectionChosen: record<ProtectionChosen>(
    'ProtectionChosen',
    { protection },
    { kind: 'ProtectionChosen' },
  ),
  ...PEOPLE_COMMANDS,
  ...CONVERSATION_COMMANDS,
  ...LEDGER_COMMANDS,
  ...FAIRNESS_COMMANDS,
  ...UPKEEP_COMMANDS,
  ...WISH_COMMANDS,
};

/** Canonical JSON of one command: {"kind": name, ...fields}. A command of a newer version is as it came. */
export function encodeCommand(command: Command): Uint8Array<ArrayBuffer> {
  if (command.kind === 'Unknown') return new TextEncoder().encode(command.body);
  return dump((COMMANDS[command.kind] as Codec<KnownCommand>).encode(command));
}

/** The command in `bytes`; what this build does not know is an UnknownCommand. Raises BadCommand. */
export function decodeCommand(bytes: Uint8Array): Command {
  const body = load(bytes);
  const kind = text.decode(body['kind'], 'kind');
  if (Object.hasOwn(COMMANDS, kind)) return COMMANDS[kind as KnownCommand['kind']].decode(body, kind);
  return { kind: 'Unknown', name: kind, body: new TextDecoder().decode(bytes) };
}

/** Raises BadCommand, naming the field, when `command` breaks a bound: to be asked before it is proposed. */
export function checkCommand(command: Command): void {
  decodeCommand(encodeCommand(command));
}
