/*
 * What every member knows alike: one log of commands, applied by one function.
 *
 * Pure. The coordinator appends commands; members receive them in order (ENTRY frames) or as a snapshot, and
 * `apply` builds the same `MeshState` everywhere. Wire form is canonical JSON of integers and strings only:
 * times in microseconds, so that Python and JavaScript spell every number alike.
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

export type Objective = 'latency' | 'throughput';
export type MemberStatus = 'joining' | 'measured' | 'paused' | 'leaving';

/** No session may use a member of these. */
export function isAway({ status }: Member): boolean {
  return status === 'paused' || status === 'leaving';
}

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

/** `peer` stays, but lends nothing until it measures again: a hidden tab, a low battery. `reason` is for people. */
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

export type Command =
  | ModelChosen
  | MemberJoined
  | MemberMeasured
  | PlanProposed
  | UnitsHeld
  | PlanActivated
  | PlanRefused
  | MemberPaused
  | MemberLeaving
  | MemberLeft;

// --- state

/** The result of applying every command up to `index`. `proposed` is a plan whose peers still load. */
export interface MeshState {
  readonly term: number;
  readonly index: number;
  readonly model: ModelChosen | null;
  readonly members: ReadonlyMap<string, Member>;
  readonly links: readonly LinkFacts[];
  readonly plan: PlanRecord | null;
  readonly proposed: PlanRecord | null;
  readonly lastVersion: number;
  readonly refused: string; // why there is no plan, when there is none
}

export const EMPTY_STATE: MeshState = {
  term: 0,
  index: 0,
  model: null,
  members: new Map(),
  links: [],
  plan: null,
  proposed: null,
  lastVersion: 0,
  refused: '',
};

/** Whether every primary of `plan` holds its units; standbys may still load. */
export function readyFor(state: MeshState, plan: PlanRecord): boolean {
  return plan.stages.every(({ primary, first, stop }) => {
    const member = state.members.get(primary);
    if (member === undefined || isAway(member)) return false;
    return member.held.some((run) => run.first === first && run.stop === stop);
  });
}

/** The active plan when all its primaries are here, else null. */
export function serving(state: MeshState): PlanRecord | null {
  return state.plan !== null && readyFor(state, state.plan) ? state.plan : null;
}

/** The state after `command`. Commands about members that are gone change nothing but the index. */
export function apply(before: MeshState, command: Command): MeshState {
  const state = { ...before, index: before.index + 1 };
  switch (command.kind) {
    case 'ModelChosen':
      return { ...state, model: command, plan: null, proposed: null, refused: '' };
    case 'MemberJoined': {
      const { peer, name, compute } = command;
      const member: Member = { peer, name, compute, status: 'joining', profile: null, held: [] };
      return { ...state, members: new Map([...state.members, [peer, member]]) };
    }
    case 'MemberMeasured':
      return measured(state, command);
    case 'PlanProposed':
      return { ...state, proposed: command.plan, lastVersion: command.plan.version, refused: '' };
    case 'UnitsHeld':
      return withMember(state, command.peer, { held: command.held });
    case 'PlanActivated':
      if (state.proposed?.version !== command.version) return state;
      return { ...state, plan: state.proposed, proposed: null, refused: '' };
    case 'PlanRefused':
      return { ...state, proposed: null, refused: command.reason };
    case 'MemberPaused': {
      const member = state.members.get(command.peer);
      // One that lends nothing yet, or leaves anyway, has nothing to pause.
      return member?.status === 'measured' ? withMember(state, command.peer, { status: 'paused' }) : state;
    }
    case 'MemberLeaving':
      return withMember(state, command.peer, { status: 'leaving' });
    case 'MemberLeft': {
      const members = new Map([...state.members].filter(([peer]) => peer !== command.peer));
      const links = state.links.filter(({ src, dst }) => src !== command.peer && dst !== command.peer);
      return { ...state, members, links };
    }
    default:
      return command satisfies never;
  }
}

function withMember(state: MeshState, peer: string, changes: Partial<Member>): MeshState {
  const member = state.members.get(peer);
  if (member === undefined) return state;
  return { ...state, members: new Map([...state.members, [peer, { ...member, ...changes }]]) };
}

function measured(state: MeshState, { peer, profile, links }: MemberMeasured): MeshState {
  const member = state.members.get(peer);
  if (member === undefined) return state;
  const isFresh = (old: LinkFacts): boolean =>
    !links.some(({ src, dst }) => src !== dst && src === old.src && dst === old.dst);
  const last = new Map(links.filter(({ src, dst }) => src !== dst).map((link) => [linkKey(link), link]));
  const known = [...state.links.filter(isFresh), ...last.values()].sort(byEnds);
  const status = member.status === 'leaving' ? 'leaving' : 'measured';
  return { ...withMember(state, peer, { profile, status }), links: known };
}

function linkKey({ src, dst }: LinkFacts): string {
  return JSON.stringify([src, dst]);
}

function byEnds(a: LinkFacts, b: LinkFacts): number {
  if (a.src !== b.src) return a.src < b.src ? -1 : 1;
  if (a.dst !== b.dst) return a.dst < b.dst ? -1 : 1;
  return 0;
}

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

const member = record<Member>('Member', {
  peer: text,
  name: text,
  compute: flag,
  status: oneOf('joining', 'measured', 'paused', 'leaving'),
  profile: maybe(profile),
  held: list(run),
});

const link = record<LinkFacts>('LinkFacts', {
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

const plan = record<PlanRecord>('PlanRecord', {
  version: uint,
  stages: list(planStage),
  predictedTokenUs: uint,
  predictedRateMilli: uint,
  why: list(text),
});

const modelFields = {
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
  MemberPaused: record<MemberPaused>('MemberPaused', { peer: text, reason: text }, 'MemberPaused'),
  MemberLeaving: record<MemberLeaving>('MemberLeaving', { peer: text }, 'MemberLeaving'),
  MemberLeft: record<MemberLeft>('MemberLeft', { peer: text, reason: text }, 'MemberLeft'),
};

/** In a snapshot the model stands without a kind. */
const bareModel = record<ModelChosen>('ModelChosen', modelFields);
const model: Codec<ModelChosen> = {
  decode: (value, where) => ({ ...bareModel.decode(value, where), kind: 'ModelChosen' }),
  encode: (value) => bareModel.encode(value),
};

const snapshot = record<MeshState>('MeshState', {
  term: uint,
  index: uint,
  model: maybe(model),
  members: table(member),
  links: list(link),
  plan: maybe(plan),
  proposed: maybe(plan),
  lastVersion: uint,
  refused: text,
});

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

/** Canonical JSON of a whole state, for a member that joins. */
export function encodeState(state: MeshState): Uint8Array<ArrayBuffer> {
  return dump(snapshot.encode(state));
}

/** The state in `bytes`. Raises BadCommand naming what was expected. */
export function decodeState(bytes: Uint8Array): MeshState {
  return snapshot.decode(load(bytes), 'snapshot');
}
