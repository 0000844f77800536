/*
 * What every member knows alike: one log of commands, applied by one function.
 *
 * Pure. The coordinator appends commands; members receive them in order (ENTRY frames) or as a snapshot, and
 * `apply` builds the same `MeshState` everywhere. A state is never changed: what did not change is shared with the
 * next.
 */

import { BadCommand } from '../errors';
import { checksum, dump, list, load, maybe, record, table, text, uint } from '../wire/json_codec';
import { byBytes } from '../wire/utf8_order';
import { type Command, decodeCommand } from './member_commands';
import { type Conversations, conversationsCodec, converse } from './conversations';
import { type Decoders, deciding, decodersCodec, unheld, withoutDecoder } from './decoders';
import { nameFault } from './display_names';
import { accountFairly, type Fairness, fairnessCodec, OPEN_TO_ALL, settle } from './fairness';
import { EMPTY_LEDGER, type Ledger, ledgerCodec } from './work_ledger';
import { govern, NOBODY } from './roles';
import { runKey, sliceKey, sliceOf, teamFault, teamOf } from './plan_record';
import { type Offers, offering, offersCodec, without } from './offers';
import { begun, boundedSkippedCodec, ended, NOTHING_SKIPPED, seen, skip } from './upkeep';
import { STANDARD } from './protection';
import {
  type LinkFacts,
  MAX_ADDRESSES,
  MAX_LINKS,
  MAX_TRANSACTIONS,
  type Member,
  type MemberDraining,
  type MemberJoined,
  type MemberMeasured,
  type MemberPaused,
  type MemberStatus,
  type ModelChosen,
  type People,
  type PlanRecord,
  type PlanStage,
  type PlanWished,
  type Protection,
  type Skipped,
  type Standby,
  type StandbyReady,
  type Transaction,
  addressPattern,
  bareModelChosenCodec,
  barePlanWishedCodec,
  isConversationCommand,
  isDecoderCommand,
  isFairnessCommand,
  isOfferCommand,
  isPeopleCommand,
  linkFactsCodec,
  memberCodec,
  peopleCodec,
  planRecordCodec,
  protectionCodec,
  standbyCodec,
  transactionCodec,
} from './generated/commands';

const CONVICTED = 'two peers found that its results are wrong';

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
  readonly people: People;
  readonly conversations: Conversations;
  readonly ledger: Ledger;
  readonly standbys: ReadonlyMap<string, Standby>;
  readonly transactions: readonly Transaction[];
  readonly signaling: readonly string[]; // addresses where peers meet, the best first
  readonly cuts: readonly number[] | null; // borders of stages fixed by hand; null: the planner decides
  readonly incarnations: ReadonlyMap<string, number>; // the highest, also of peers that left
  readonly skipped: Skipped;
  readonly fairness: Fairness;
  readonly wish: PlanWished | null; // null: the strategy `optimal`, by the model's objective
  readonly offers: Offers; // models that run beside `model`, by name
  readonly decoders: Decoders; // those of them that answer in words, by name
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
  people: NOBODY,
  conversations: new Map(),
  ledger: EMPTY_LEDGER,
  standbys: new Map(),
  transactions: [],
  signaling: [],
  cuts: null,
  incarnations: new Map(),
  skipped: NOTHING_SKIPPED,
  fairness: OPEN_TO_ALL,
  wish: null,
  offers: new Map(),
  decoders: new Map(),
};

/**
 * Whether `peer` is here with what `stage` gives it: its slice, where it is of the stage's team, or else all of the
 * units.
 */
export function holds({ members }: MeshState, peer: string, stage: PlanStage): boolean {
  const member = members.get(peer);
  if (member === undefined || isAway(member)) return false;
  const part = sliceOf(stage, peer);
  return part === null
    ? member.held.some((run) => runKey(run) === runKey(stage))
    : (member.slices ?? []).some((each) => sliceKey(each) === sliceKey(part));
}

/** Whether every primary of `plan` holds its units, and every member of a team its slice; standbys may still load. */
export function readyFor(state: MeshState, plan: PlanRecord): boolean {
  return plan.stages.every((stage) => teamOf(stage).every((peer) => holds(state, peer, stage)));
}

/** The active plan when all its primaries, and the helpers of teams, are here, else null. */
export function serving(state: MeshState): PlanRecord | null {
  return state.plan !== null && readyFor(state, state.plan) ? state.plan : null;
}

/** The state after `command`. One that has no effect, as about a member that is gone, changes only the index. */
export function apply(state: MeshState, command: Command): MeshState {
  const after = changed(state, command);
  return { ...(typeof after === 'string' ? state : after), index: state.index + 1 };
}

/** The state after a committed entry, whatever its bytes are: what is no command is counted and skipped. */
export function applyEntry(state: MeshState, bytes: Uint8Array): MeshState {
  try {
    return apply(state, decodeCommand(bytes));
  } catch (error) {
    if (!(error instanceof BadCommand)) throw error;
    const broken = state.skipped.broken + 1;
    return { ...state, index: state.index + 1, skipped: { ...state.skipped, broken } };
  }
}

/** Why `command` would have no effect now, for people; "" when it has one. Asked before it is proposed. */
export function refusal(state: MeshState, command: Command): string {
  const after = changed(state, command);
  return typeof after === 'string' ? after : '';
}

/** The state with what `command` changes, or why it changes nothing. */
function changed(state: MeshState, command: Command): MeshState | string {
  if (isConversationCommand(command)) {
    return having(state, 'conversations', converse(state.conversations, command));
  }
  if (isPeopleCommand(command)) return having(state, 'people', govern(state.people, command));
  if (isFairnessCommand(command)) return settled(state, settle(state.ledger, state.fairness, command));
  if (command.kind === 'ModelWithdrawn' && state.decoders.has(command.name)) {
    return { ...state, decoders: withoutDecoder(state.decoders, command.name) };
  }
  const own = state.model === null ? [] : [state.model.name];
  if (isOfferCommand(command)) {
    const taken = new Set([...own, ...state.decoders.keys()]);
    return having(state, 'offers', offering(state.offers, taken, command));
  }
  if (isDecoderCommand(command)) {
    const taken = new Set([...own, ...state.offers.keys()]);
    return having(state, 'decoders', deciding(state.decoders, taken, state.members, command));
  }
  switch (command.kind) {
    case 'ModelChosen':
      return chosen(state, command);
    case 'MemberJoined':
      return joined(state, command);
    case 'MemberMeasured':
      return measured(state, command);
    case 'PlanProposed':
      return proposed(state, command.plan);
    case 'UnitsHeld':
      return withMember(state, command.peer, { held: command.held, slices: command.slices ?? [] });
    case 'PlanActivated':
      return activated(state, command.version);
    case 'PlanRefused':
      return { ...state, proposed: null, refused: command.reason };
    case 'MemberDraining':
      return lendsLess(state, command, 'draining', ['measured', 'draining']);
    case 'MemberPaused':
      return lendsLess(state, command, 'paused', ['joining', 'measured', 'draining', 'paused']);
    case 'MemberRenamed':
      return nameFault(command.name) || withMember(state, command.peer, { name: command.name });
    case 'MemberLeaving':
      return withMember(state, command.peer, { status: 'leaving', reason: '' });
    case 'MemberLeft':
      return left(state, command.peer);
    case 'ProtectionChosen':
      return { ...state, protection: command.protection };
    case 'WorkRecorded':
      return settled(state, accountFairly(state.ledger, state.fairness, command));
    case 'StandbyReady':
      return ready(state, command);
    case 'TransactionBegun':
      return having(state, 'transactions', begun(state.transactions, command));
    case 'TransactionEnded':
      return having(state, 'transactions', ended(state.transactions, command));
    case 'SignalingListed':
      return { ...state, signaling: command.addresses };
    case 'CutsFixed':
      return { ...state, cuts: command.cuts };
    case 'PlanWished':
      return { ...state, wish: command };
    case 'Unknown':
      return { ...state, skipped: skip(state.skipped, command.body) };
    default:
      return command satisfies never;
  }
}

/** The state with another `part`, or why there is none. */
function having<K extends keyof MeshState>(
  state: MeshState,
  part: K,
  made: MeshState[K] | string,
): MeshState | string {
  return typeof made === 'string' ? made : { ...state, [part]: made };
}

function proposed(state: MeshState, plan: PlanRecord): MeshState | string {
  const fault = teamFault(plan, state.members);
  return fault === '' ? { ...state, proposed: plan, lastVersion: plan.version, refused: '' } : fault;
}

function chosen(state: MeshState, model: ModelChosen): MeshState {
  const offers = without(state.offers, model.name);
  const decoders = withoutDecoder(state.decoders, model.name);
  return { ...state, model, plan: null, proposed: null, refused: '', standbys: new Map(), offers, decoders };
}

function joined(state: MeshState, command: MemberJoined): MeshState | string {
  const { peer, name, compute, headless = false, durable = false, incarnation = 0 } = command;
  const known = state.incarnations.get(peer) ?? 0;
  if (incarnation < known) return `incarnation ${incarnation} of this peer is over: it has had ${known}`;
  const made: Member = {
    ...{ peer, name, compute, status: 'joining', profile: null, held: [], reason: '' },
    ...{ headless, durable, incarnation, slices: [] },
  };
  const members = new Map(state.members).set(peer, made);
  const incarnations = seen(state.incarnations, peer, incarnation);
  return { ...state, members, incarnations, decoders: unheld(state.decoders, peer) };
}

function withMember(state: MeshState, peer: string, changes: Partial<Member>): MeshState | string {
  const found = state.members.get(peer);
  if (found === undefined) return 'there is no such member';
  return { ...state, members: new Map(state.members).set(peer, { ...found, ...changes }) };
}

/** A convicted peer is paused, so that no plan and no session uses it; one that is pardoned lends again. */
function settled(
  state: MeshState,
  after: { readonly ledger: Ledger; readonly fairness: Fairness } | string,
): MeshState | string {
  if (typeof after === 'string') return after;
  const before = state.fairness.quarantined;
  const now = after.fairness.quarantined;
  const members = new Map(state.members);
  for (const peer of new Set([...before.keys(), ...now.keys()])) {
    const member = members.get(peer);
    if (before.has(peer) === now.has(peer)) continue;
    if (member?.compute !== true || member.status === 'leaving') continue;
    if (now.has(peer)) members.set(peer, { ...member, status: 'paused', reason: CONVICTED });
    else if (member.reason === CONVICTED) {
      members.set(peer, { ...member, status: member.profile === null ? 'joining' : 'measured', reason: '' });
    }
  }
  return { ...state, ...after, members };
}

function lendsLess(
  state: MeshState,
  { peer, reason }: MemberDraining | MemberPaused,
  status: MemberStatus,
  of: readonly MemberStatus[],
): MeshState | string {
  const found = state.members.get(peer);
  if (found?.compute !== true || !of.includes(found.status)) return 'it lends nothing anyway';
  return withMember(state, peer, { status, reason });
}

function measured(state: MeshState, { peer, profile, links }: MemberMeasured): MeshState | string {
  const found = state.members.get(peer);
  if (found === undefined) return 'there is no such member';
  const isFresh = (old: LinkFacts): boolean =>
    !links.some(({ src, dst }) => src !== dst && src === old.src && dst === old.dst);
  const last = new Map(links.filter(({ src, dst }) => src !== dst).map((each) => [linkKey(each), each]));
  const known = [...state.links.filter(isFresh), ...last.values()].sort(byEnds);
  const status = found.status === 'leaving' ? 'leaving' : 'measured';
  const isConvicted = status === 'measured' && state.fairness.quarantined.has(peer);
  const standing: Partial<Member> = isConvicted
    ? { status: 'paused', reason: CONVICTED }
    : { status, reason: '' };
  const members = new Map(state.members).set(peer, { ...found, profile, ...standing });
  return { ...state, members, links: known };
}

function activated(state: MeshState, version: number): MeshState | string {
  if (state.proposed?.version !== version) return 'this plan is not the one that was proposed last';
  const standbys = new Map([...state.standbys].filter(([, each]) => each.version === version));
  return { ...state, plan: state.proposed, proposed: null, refused: '', standbys };
}

function left(state: MeshState, peer: string): MeshState {
  const members = new Map([...state.members].filter(([each]) => each !== peer));
  const standbys = new Map([...state.standbys].filter(([each]) => each !== peer));
  const links = state.links.filter(({ src, dst }) => src !== peer && dst !== peer);
  return { ...state, members, links, standbys, decoders: unheld(state.decoders, peer) };
}

function ready(state: MeshState, command: StandbyReady): MeshState | string {
  const { peer, version, ready } = command;
  if (!state.members.has(peer)) return 'there is no such member';
  if (![state.plan, state.proposed].some((each) => each?.version === version)) {
    return 'this plan is neither active nor proposed';
  }
  return { ...state, standbys: new Map(state.standbys).set(peer, { version, ready }) };
}

function linkKey({ src, dst }: LinkFacts): string {
  return JSON.stringify([src, dst]);
}

function byEnds(a: LinkFacts, b: LinkFacts): number {
  return byBytes(a.src, b.src) || byBytes(a.dst, b.dst);
}

// --- wire

const snapshot = record<MeshState>(
  'MeshState',
  {
    term: uint,
    index: uint,
    model: maybe(bareModelChosenCodec),
    members: table(memberCodec),
    links: list(linkFactsCodec, MAX_LINKS),
    plan: maybe(planRecordCodec),
    proposed: maybe(planRecordCodec),
    lastVersion: uint,
    refused: text,
    protection: protectionCodec,
    people: peopleCodec,
    conversations: conversationsCodec,
    ledger: ledgerCodec,
    standbys: table(standbyCodec),
    transactions: list(transactionCodec, MAX_TRANSACTIONS),
    signaling: list(addressPattern, MAX_ADDRESSES),
    cuts: maybe(list(uint)),
    incarnations: table(uint),
    skipped: boundedSkippedCodec,
    fairness: fairnessCodec,
    wish: maybe(barePlanWishedCodec),
    offers: offersCodec,
    decoders: decodersCodec,
  },
  { since: { fairness: OPEN_TO_ALL, wish: null, offers: new Map(), decoders: new Map() } },
);

/** Canonical JSON of a whole state: a snapshot, as for a member that joins. */
export function encodeState(state: MeshState): Uint8Array<ArrayBuffer> {
  return dump(snapshot.encode(state));
}

/** The state in `bytes`. Raises BadCommand naming what was expected. */
export function decodeState(bytes: Uint8Array): MeshState {
  return snapshot.decode(load(bytes), 'snapshot');
}

/** 16 hex digits, the same for equal states in both languages. */
export function stateDigest(state: MeshState): string {
  return checksum(encodeState(state));
}
