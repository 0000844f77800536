/*
 * What every member knows alike: one log of commands, applied by one function.
 *
 * Pure. The coordinator appends commands; members receive them in order (ENTRY frames) or as a snapshot, and
 * `apply` builds the same `MeshState` everywhere.
 */

import { type Codec, dump, list, load, maybe, record, table, text, uint } from './json_codec';
import {
  type Command,
  link,
  type LinkFacts,
  member,
  type Member,
  type MemberDraining,
  type MemberMeasured,
  type MemberPaused,
  type MemberStatus,
  modelFields,
  type ModelChosen,
  plan,
  type PlanRecord,
  protection,
} from './mesh_commands';
import { type Protection, STANDARD } from './protection';

export {
  decodeCommand,
  encodeCommand,
  holdersOf,
  routeOf,
  runKey,
  type Command,
  type LinkFacts,
  type Member,
  type MemberStatus,
  type ModelChosen,
  type PlanRecord,
  type Profile,
  type Run,
} from './mesh_commands';

/** No session may use a member of these. */
export function isAway({ status }: Member): boolean {
  return status === 'paused' || status === 'leaving';
}

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
  readonly protection: Protection;
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
  protection: STANDARD,
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
      const member: Member = { peer, name, compute, status: 'joining', profile: null, held: [], reason: '' };
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
    case 'MemberDraining':
      return lendsLess(state, command, 'draining', ['measured', 'draining']);
    case 'MemberPaused':
      return lendsLess(state, command, 'paused', ['joining', 'measured', 'draining', 'paused']);
    case 'MemberLeaving':
      return withMember(state, command.peer, { status: 'leaving', reason: '' });
    case 'MemberLeft': {
      const members = new Map([...state.members].filter(([peer]) => peer !== command.peer));
      const links = state.links.filter(({ src, dst }) => src !== command.peer && dst !== command.peer);
      return { ...state, members, links };
    }
    case 'ProtectionChosen':
      return { ...state, protection: command.protection };
    default:
      return command satisfies never;
  }
}

function withMember(state: MeshState, peer: string, changes: Partial<Member>): MeshState {
  const member = state.members.get(peer);
  if (member === undefined) return state;
  return { ...state, members: new Map([...state.members, [peer, { ...member, ...changes }]]) };
}

function lendsLess(
  state: MeshState,
  { peer, reason }: MemberDraining | MemberPaused,
  status: MemberStatus,
  of: readonly MemberStatus[],
): MeshState {
  const member = state.members.get(peer);
  if (member?.compute !== true || !of.includes(member.status)) return state; // it lends nothing anyway
  return withMember(state, peer, { status, reason });
}

function measured(state: MeshState, { peer, profile, links }: MemberMeasured): MeshState {
  const member = state.members.get(peer);
  if (member === undefined) return state;
  const isFresh = (old: LinkFacts): boolean =>
    !links.some(({ src, dst }) => src !== dst && src === old.src && dst === old.dst);
  const last = new Map(links.filter(({ src, dst }) => src !== dst).map((link) => [linkKey(link), link]));
  const known = [...state.links.filter(isFresh), ...last.values()].sort(byEnds);
  const status = member.status === 'leaving' ? 'leaving' : 'measured';
  return { ...withMember(state, peer, { profile, status, reason: '' }), links: known };
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
  protection,
});

/** Canonical JSON of a whole state, for a member that joins. */
export function encodeState(state: MeshState): Uint8Array<ArrayBuffer> {
  return dump(snapshot.encode(state));
}

/** The state in `bytes`. Raises BadCommand naming what was expected. */
export function decodeState(bytes: Uint8Array): MeshState {
  return snapshot.decode(load(bytes), 'snapshot');
}
