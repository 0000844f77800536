/*
 * Commands of the log and the values in them (docs/protocol.md, chapter Mesh state). Pure.
 *
 * Generated from schema/commands.toml by `make generate`: change that, not this.
 */

import { MAX_SAMPLING } from '../../limits';
import {
  type Codec,
  flag,
  integer,
  list,
  matching,
  maybe,
  oneOf,
  prose,
  record,
  span,
  table,
  text,
  uint,
  type Span,
} from '../../wire/json_codec';
import { type Surroundings, surroundingsCodec, UNKNOWN } from '../failure_domains';

export const MAX_LINKS = 65536; // of a snapshot: between any two of 256 members
export const MAX_INVITES = 1024;
export const MAX_CONVERSATIONS = 256;
export const MAX_PARTICIPANTS = 256;
export const MAX_MESSAGES = 16384; // of one conversation
export const MAX_MESSAGE_BYTES = 65536; // of UTF-8
export const MAX_CONVERSATION_BYTES = 16 * 2 ** 20; // texts of the messages of one conversation
export const MAX_ALL_BYTES = 64 * 2 ** 20; // of all conversations: bounds what a snapshot brings
export const MAX_OFFERS = 64; // links into one conversation
export const MAX_BARRED = 256; // beyond that the first one put out is forgotten
export const MAX_ENTRIES = 256; // of a batch of work
export const MAX_FINDINGS = 256; // the newest: two peers that find the same step wrong do so within seconds
export const MAX_QUARANTINED = 1024;
export const MAX_SERVED = 8; // the last sessions of a peer, which are marked when it is convicted
export const MAX_WORDS = 8; // findings that convict a peer
export const ALLOWANCE_MILLI = 2000 * 1000; // what anybody may ask for before it must contribute: 2000 tokens
export const CHECKS_PPM = 20 * 1000;
export const MAX_TRANSACTIONS = 512; // remembered; the oldest that are over go first
export const MAX_ADDRESSES = 16;
export const MAX_KEPT = 64; // commands of a newer version
export const MAX_KEPT_BYTES = 65536; // of all of them
export const MAX_COMPONENTS = 64;
export const MAX_HELPERS = 8; // of a stage that a team computes, beside its lead
export const MAX_SHARE = 1000; // of one member of a team
export const MAX_CHOICES = 16; // that a plan is shown among
export const MAX_MODELS = 16; // offered beside the one that the mesh was begun for
export const MAX_DECODERS = 8; // that answer in words beside the one that the mesh was begun for
export const MAX_RUN_STAGES = 256; // of an offered model: as many as an entry of the log holds with their standbys
export const MAX_RUN_STANDBYS = 8; // of one stage of an offered model

export type MemberStatus = 'joining' | 'measured' | 'draining' | 'paused' | 'leaving';
export type Objective = 'latency' | 'throughput';
export type Shadow = 'off' | 'log' | 'shadow';
export type RepairStrategy = 'simple' | 'progressive' | 'parallel' | 'coordinated';
export type Role = 'owner' | 'member' | 'viewer';
export type Given = 'member' | 'viewer';
export type Form = 'to-model' | 'to-people' | 'answer';
export type Progress = 'running' | 'done' | 'stopped' | 'failed';
export type Ended = 'done' | 'stopped' | 'failed';
export type Policy = 'open' | 'fair' | 'off';
export type OperationKind = 'load' | 'unload' | 'migrate' | 'open' | 'take-over' | 'close';
export type Outcome = 'begun' | 'committed' | 'rolled-back';
export type Ending = 'committed' | 'rolled-back';
export type PlanStrategy = 'optimal' | 'layer' | 'attention-ffn' | 'pipeline' | 'component' | 'hybrid' | 'tensor';
export type Goal = 'latency' | 'throughput' | 'memory' | 'balanced';

// --- values

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

/**
 * The part of units [first, stop) that the member at `place` of a team computes: `shares` say how they are
 * cut.
 */
export interface HeldSlice {
  readonly first: number;
  readonly stop: number;
  readonly place: number; // 0: the lead; else that of the helper, from 1 on
  readonly shares: readonly number[];
}

/** One peer of the mesh. `compute` is false for a peer that only asks. */
export interface Member {
  readonly peer: string;
  readonly name: string;
  readonly compute: boolean;
  readonly status: MemberStatus;
  readonly profile: Profile | null;
  readonly held: readonly Span[]; // runs of units [first, stop) that are loaded and can serve
  readonly reason: string; // why it drains or is paused, for people
  readonly headless: boolean; // no tab: nobody closes it by accident
  readonly durable: boolean; // what it stores outlives a crash, so it may vote
  readonly incarnation: number; // counts the times that it lost what it had stored
  readonly slices?: readonly HeldSlice[]; // loaded parts of units that a team computes
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

/** What all peers of a mesh keep to. The default is the level `standard`. */
export interface Protection {
  readonly redundancyMilli: number; // copies of stages in thousandths: 1500 is half of them doubled
  readonly spare: boolean; // peers that would lie idle stand by as well, beyond that
  readonly shadow: Shadow; // standbys get nothing; keep inputs; compute behind as well
  readonly strategy: RepairStrategy;
  readonly transactions: boolean; // operations of a peer are logged, and undone after a restart
  readonly priority: readonly string[]; // units whose stages are repaired first
  readonly together: boolean; // stages that do not wait for one another are repaired at the same time
  readonly logSessionBytes: number; // activation log of one session on one stage
  readonly logTotalBytes: number; // of all sessions of a peer
}

/** A link that somebody was given. `proof`: the signed grant as JSON, or empty. */
export interface Invite {
  readonly role: Role;
  readonly expiresUnix: number; // seconds; 0: never
  readonly uses: number; // 0: unlimited
  readonly by: string;
  readonly whenMs: number;
  readonly proof: string;
}

/** An invite with which nobody comes in any more. `proof`: the signed revocation as JSON, or empty. */
export interface Revocation {
  readonly by: string;
  readonly whenMs: number;
  readonly proof: string;
}

/** Roles by peer, also of peers that are not here; invites and revocations by the invite's public key. */
export interface People {
  readonly roles: ReadonlyMap<string, Role>;
  readonly invites: ReadonlyMap<string, Invite>;
  readonly revocations: ReadonlyMap<string, Revocation>;
}

/** Somebody who takes part in a conversation. */
export interface Participant {
  readonly name: string;
  readonly colour: string;
  readonly role: Role;
}

/** One message. Another with the same parent is another branch: an edited question, or an answer made again. */
export interface Message {
  readonly id: string;
  readonly parent: string; // "": it begins the conversation
  readonly author: string; // of an answer: the peer that asks the model
  readonly form: Form;
  readonly text: string;
  readonly whenMs: number;
  readonly state: Progress;
  readonly tokens: number; // of an answer, so far
  readonly reason: string; // why an answer failed, for people
  readonly session: string; // of an answer, with the model and the settings that whoever adopts it needs
  readonly model: string;
  readonly sampling: readonly number[];
  readonly maxTokens: number;
}

/** A link that lets into one conversation. */
export interface Offer {
  readonly role: Given;
  readonly by: string;
  readonly whenMs: number;
}

/** `byInvite`: nobody comes in by themselves. `barred`: who was put out, the first one first. */
export interface Entry {
  readonly byInvite: boolean;
  readonly offers: ReadonlyMap<string, Offer>; // by public key
  readonly barred: readonly string[];
}

/**
 * `peer` computed positions of a session through units, for `asker`. The price is in thousandths of a
 * credit.
 */
export interface Work {
  readonly session: string;
  readonly startedMs: number; // of the session, the same in all of its entries
  readonly peer: string;
  readonly asker: string;
  readonly positions: Span;
  readonly units: Span;
  readonly milli: number;
}

/** A peer that was convicted: when, by whose words, what it lost, and the sessions that it computed last. */
export interface Quarantine {
  readonly whenMs: number;
  readonly by: readonly string[];
  readonly lostMilli: number;
  readonly sessions: readonly string[];
}

/** A plan that was looked at; `tokenUs` 0: it cannot run, and has no figures. */
export interface ChoiceRecord {
  readonly name: string; // "PEER FIRST-STOP > PEER FIRST-STOP", or words
  readonly tokenUs: number; // of one answer
  readonly prefillUs: number; // of one token of a prompt
  readonly rateMilli: number; // thousandths of tokens per second, all promised sessions together
  readonly memoryBytes: number; // on the peer that it fills most
  readonly chosen: boolean;
  readonly best: boolean; // none beats it in both time and rate
  readonly knee: boolean;
  readonly whyNot: string; // in numbers, for people
}

/**
 * Units [first, stop) on `primary`; `standbys` hold them too. With `helpers` they are computed by a team,
 * whose lead is `primary`: each member holds its slice alone, and `weightBytes` and the others are of the
 * member with most.
 */
export interface PlanStage {
  readonly first: number;
  readonly stop: number;
  readonly primary: string;
  readonly standbys: readonly string[];
  readonly weightBytes: number;
  readonly kvBytes: number;
  readonly overheadBytes: number;
  readonly helpers?: readonly string[]; // in the order of the team, after the lead
  readonly shares?: readonly number[]; // of each member, the lead first
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

/** Runs of units that a peer can take over at once, for the plan of this version. */
export interface Standby {
  readonly version: number;
  readonly ready: readonly Span[];
}

/** An operation of a peer on a run of units or on a session. */
export interface Transaction {
  readonly id: string;
  readonly peer: string;
  readonly operation: OperationKind;
  readonly units: Span | null;
  readonly session: string;
  readonly to: string; // the peer that units migrate to
  readonly whenMs: number;
  readonly state: Outcome;
  readonly reason: string;
}

/**
 * Commands of a newer version: how many, and the last ones as they came. `broken`: entries that are no
 * commands.
 */
export interface Skipped {
  readonly count: number;
  readonly broken: number;
  readonly kept: readonly string[];
}

/**
 * Units [first, stop) under one name. `prefers`: the id or the name of the peer that is to hold them; "":
 * any.
 */
export interface Group {
  readonly name: string;
  readonly first: number;
  readonly stop: number;
  readonly prefers: string;
}

/** Units [first, stop) of an offered model on `primary`; `standbys` hold them too. */
export interface RunStage {
  readonly first: number;
  readonly stop: number;
  readonly primary: string;
  readonly standbys: readonly string[];
  readonly bytes: number; // that it takes on each of its peers: weights, and room for one run
}

/**
 * A model that is offered beside the mesh's own, and where it runs. Without stages it runs nowhere; `why`
 * says why.
 */
export interface ModelOffer {
  readonly model: string;
  readonly version: number; // of its placement; 0: not placed yet
  readonly stages: readonly RunStage[]; // in the order of the units
  readonly latencyUs: number; // predicted, of one run
  readonly rateMilli: number; // predicted, thousandths of runs per second in a stream
  readonly why: readonly string[];
}

/**
 * A further model that answers in words, with what the log says of the mesh's own: what is promised, and
 * its plans.
 */
export interface Decoder {
  readonly model: string;
  readonly units: number;
  readonly context: number;
  readonly sessions: number;
  readonly objective: Objective;
  readonly plan: PlanRecord | null;
  readonly proposed: PlanRecord | null; // a plan whose peers still load
  readonly refused: string; // why there is no plan, when there is none
  readonly held: ReadonlyMap<string, readonly Span[]>; // runs of its units that are loaded, by peer
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

/** What `peer` measured: its profile, and its links to others. */
export interface MemberMeasured {
  readonly kind: 'MemberMeasured';
  readonly peer: string;
  readonly profile: Profile;
  readonly links: readonly LinkFacts[];
}

/** A plan that becomes active once its peers have loaded their units. */
export interface PlanProposed {
  readonly kind: 'PlanProposed';
  readonly plan: PlanRecord;
}

/** The runs of units that `peer` has loaded, and its slices of those that teams compute. */
export interface UnitsHeld {
  readonly kind: 'UnitsHeld';
  readonly peer: string;
  readonly held: readonly Span[];
  readonly slices?: readonly HeldSlice[];
}

/** The plan that was proposed serves from now on. */
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

/** `peer` is called `name` from now on. */
export interface MemberRenamed {
  readonly kind: 'MemberRenamed';
  readonly peer: string;
  readonly name: string;
}

/** A polite leave has begun: no new session may use this peer. */
export interface MemberLeaving {
  readonly kind: 'MemberLeaving';
  readonly peer: string;
}

/** `peer` is no member any more. */
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

/** `peer` has this role in the mesh from now on. */
export interface RoleGiven {
  readonly kind: 'RoleGiven';
  readonly peer: string;
  readonly role: Role;
}

/** `peer` has no role of its own any more. */
export interface RoleTaken {
  readonly kind: 'RoleTaken';
  readonly peer: string;
}

/** A link into the mesh was given to somebody; `key` is its public key. */
export interface InviteRecorded {
  readonly kind: 'InviteRecorded';
  readonly key: string;
  readonly role: Role;
  readonly expiresUnix: number;
  readonly uses: number;
  readonly by: string;
  readonly whenMs: number;
  readonly proof: string;
}

/** Nobody comes into the mesh with that link any more. */
export interface InviteRevoked {
  readonly kind: 'InviteRevoked';
  readonly key: string;
  readonly by: string;
  readonly whenMs: number;
  readonly proof: string;
}

/** `peer` becomes its owner. */
export interface ConversationStarted {
  readonly kind: 'ConversationStarted';
  readonly conversation: string;
  readonly title: string;
  readonly model: string;
  readonly system: string;
  readonly sampling: readonly number[];
  readonly whenMs: number;
  readonly peer: string;
  readonly name: string;
  readonly colour: string;
}

/** The conversation has another title, model, system prompt and settings from now on. */
export interface ConversationChanged {
  readonly kind: 'ConversationChanged';
  readonly conversation: string;
  readonly title: string;
  readonly model: string;
  readonly system: string;
  readonly sampling: readonly number[];
}

/** The conversation is gone with all its messages. */
export interface ConversationRemoved {
  readonly kind: 'ConversationRemoved';
  readonly conversation: string;
}

/** `peer` comes in, or has another name, colour or role from now on. */
export interface ParticipantSet {
  readonly kind: 'ParticipantSet';
  readonly conversation: string;
  readonly peer: string;
  readonly name: string;
  readonly colour: string;
  readonly role: Role;
}

/** `peer` takes part no more, by its own wish. */
export interface ParticipantLeft {
  readonly kind: 'ParticipantLeft';
  readonly conversation: string;
  readonly peer: string;
}

/** An answer is running from here on; other messages are done. */
export interface MessageAdded {
  readonly kind: 'MessageAdded';
  readonly conversation: string;
  readonly id: string;
  readonly parent: string;
  readonly author: string;
  readonly form: Form;
  readonly text: string;
  readonly whenMs: number;
  readonly session: string;
  readonly model: string;
  readonly sampling: readonly number[];
  readonly maxTokens: number;
}

/** `text` follows what a running answer has: it had `after` tokens and has `tokens` now. */
export interface MessageExtended {
  readonly kind: 'MessageExtended';
  readonly conversation: string;
  readonly id: string;
  readonly after: number;
  readonly tokens: number;
  readonly text: string;
}

/** `text`: all of the answer, or null for what is there. */
export interface MessageEnded {
  readonly kind: 'MessageEnded';
  readonly conversation: string;
  readonly id: string;
  readonly state: Ended;
  readonly tokens: number;
  readonly text: string | null;
  readonly reason: string;
}

/** `author` makes an answer go on that `before` asked for: of several peers that try, the first one does. */
export interface AnswerAdopted {
  readonly kind: 'AnswerAdopted';
  readonly conversation: string;
  readonly id: string;
  readonly before: string;
  readonly author: string;
  readonly session: string;
}

/** Whether only who is invited comes into the conversation. */
export interface EntryChosen {
  readonly kind: 'EntryChosen';
  readonly conversation: string;
  readonly byInvite: boolean;
}

/** There is a link into the conversation; `key` is its public key. */
export interface EntryOffered {
  readonly kind: 'EntryOffered';
  readonly conversation: string;
  readonly key: string;
  readonly role: Given;
  readonly by: string;
  readonly whenMs: number;
}

/** Nobody comes in with that link any more; who came with it stays. */
export interface EntryWithdrawn {
  readonly kind: 'EntryWithdrawn';
  readonly conversation: string;
  readonly key: string;
}

/** `peer` comes in with what the link gives. `proof`: its signature by the link's key. */
export interface ParticipantInvited {
  readonly kind: 'ParticipantInvited';
  readonly conversation: string;
  readonly key: string;
  readonly peer: string;
  readonly name: string;
  readonly colour: string;
  readonly proof: string;
}

/** `peer` takes part no more and does not come back, unless an owner sets its role. */
export interface ParticipantPutOut {
  readonly kind: 'ParticipantPutOut';
  readonly conversation: string;
  readonly peer: string;
}

/** A batch: each entry counts or does not, whatever the others do. */
export interface WorkRecorded {
  readonly kind: 'WorkRecorded';
  readonly entries: readonly Work[];
}

/** `open`: balances order who waits; `fair`: who owes too much may not ask; `off`: nothing is counted. */
export interface FairnessChosen {
  readonly kind: 'FairnessChosen';
  readonly policy: Policy;
  readonly allowanceMilli: number;
  readonly checksPpm: number; // millionths of steps that askers have checked
}

/** `by` computed `position` of a session through `units` itself, and found another result than `peer` gave. */
export interface CheckFailed {
  readonly kind: 'CheckFailed';
  readonly session: string;
  readonly position: number;
  readonly units: Span;
  readonly peer: string;
  readonly by: string;
  readonly whenMs: number;
}

/** An owner lets a convicted peer compute again; what it lost stays lost. */
export interface PeerPardoned {
  readonly kind: 'PeerPardoned';
  readonly peer: string;
}

/** `peer` can take these runs of units of the plan of this version over at once. */
export interface StandbyReady {
  readonly kind: 'StandbyReady';
  readonly peer: string;
  readonly version: number;
  readonly ready: readonly Span[];
}

/** `peer` has begun an operation on a run of units or on a session. */
export interface TransactionBegun {
  readonly kind: 'TransactionBegun';
  readonly id: string;
  readonly peer: string;
  readonly operation: OperationKind;
  readonly units: Span | null;
  readonly session: string;
  readonly to: string;
  readonly whenMs: number;
}

/** An operation that was begun is over. */
export interface TransactionEnded {
  readonly kind: 'TransactionEnded';
  readonly id: string;
  readonly state: Ending;
  readonly reason: string;
}

/** Where peers meet from now on, the best first. */
export interface SignalingListed {
  readonly kind: 'SignalingListed';
  readonly addresses: readonly string[];
}

/** The borders of stages, fixed by hand; null: the planner decides. */
export interface CutsFixed {
  readonly kind: 'CutsFixed';
  readonly cuts: readonly number[] | null;
}

/** How plans are made from now on. `components` cover all units, in order; of the strategy `component` only. */
export interface PlanWished {
  readonly kind: 'PlanWished';
  readonly strategy: PlanStrategy;
  readonly goal: Goal;
  readonly components: readonly Group[];
  readonly minTensorBytes?: number;
}

/** The mesh runs this model, too, under a name that no other model of the mesh has. */
export interface ModelOffered {
  readonly kind: 'ModelOffered';
  readonly model: string;
  readonly name: string;
}

/** The mesh runs that model no more. */
export interface ModelWithdrawn {
  readonly kind: 'ModelWithdrawn';
  readonly name: string;
}

/** Where an offered model runs from now on. Without stages: nowhere, and `why` says what is missing. */
export interface ModelPlaced {
  readonly kind: 'ModelPlaced';
  readonly name: string;
  readonly version: number;
  readonly stages: readonly RunStage[];
  readonly latencyUs: number;
  readonly rateMilli: number;
  readonly why: readonly string[];
}

/**
 * The mesh answers with this model, too, under a name that no other model of the mesh has, with this
 * promise of room.
 */
export interface DecoderOffered {
  readonly kind: 'DecoderOffered';
  readonly name: string;
  readonly model: string;
  readonly units: number;
  readonly context: number;
  readonly sessions: number;
  readonly objective: Objective;
}

/** PlanProposed of that model. */
export interface DecoderPlanned {
  readonly kind: 'DecoderPlanned';
  readonly name: string;
  readonly plan: PlanRecord;
}

/** PlanActivated of that model. */
export interface DecoderActivated {
  readonly kind: 'DecoderActivated';
  readonly name: string;
  readonly version: number;
}

/** PlanRefused of that model. */
export interface DecoderRefused {
  readonly kind: 'DecoderRefused';
  readonly name: string;
  readonly reason: string;
}

/** UnitsHeld of that model. */
export interface DecoderHeld {
  readonly kind: 'DecoderHeld';
  readonly name: string;
  readonly peer: string;
  readonly held: readonly Span[];
}

export type MemberCommand =
  | ModelChosen
  | MemberJoined
  | MemberMeasured
  | PlanProposed
  | UnitsHeld
  | PlanActivated
  | PlanRefused
  | MemberDraining
  | MemberPaused
  | MemberRenamed
  | MemberLeaving
  | MemberLeft
  | ProtectionChosen;
export type PeopleCommand =
  | RoleGiven
  | RoleTaken
  | InviteRecorded
  | InviteRevoked;
export type ConversationCommand =
  | ConversationStarted
  | ConversationChanged
  | ConversationRemoved
  | ParticipantSet
  | ParticipantLeft
  | MessageAdded
  | MessageExtended
  | MessageEnded
  | AnswerAdopted
  | EntryChosen
  | EntryOffered
  | EntryWithdrawn
  | ParticipantInvited
  | ParticipantPutOut;
export type EntryCommand =
  | EntryChosen
  | EntryOffered
  | EntryWithdrawn
  | ParticipantInvited
  | ParticipantPutOut;
export type LedgerCommand =
  | WorkRecorded;
export type FairnessCommand =
  | FairnessChosen
  | CheckFailed
  | PeerPardoned;
export type UpkeepCommand =
  | StandbyReady
  | TransactionBegun
  | TransactionEnded
  | SignalingListed
  | CutsFixed
  | PlanWished;
export type OfferCommand =
  | ModelOffered
  | ModelWithdrawn
  | ModelPlaced;
export type DecoderCommand =
  | DecoderOffered
  | DecoderPlanned
  | DecoderActivated
  | DecoderRefused
  | DecoderHeld;
export type KnownCommand =
  | ModelChosen
  | MemberJoined
  | MemberMeasured
  | PlanProposed
  | UnitsHeld
  | PlanActivated
  | PlanRefused
  | MemberDraining
  | MemberPaused
  | MemberRenamed
  | MemberLeaving
  | MemberLeft
  | ProtectionChosen
  | RoleGiven
  | RoleTaken
  | InviteRecorded
  | InviteRevoked
  | ConversationStarted
  | ConversationChanged
  | ConversationRemoved
  | ParticipantSet
  | ParticipantLeft
  | MessageAdded
  | MessageExtended
  | MessageEnded
  | AnswerAdopted
  | EntryChosen
  | EntryOffered
  | EntryWithdrawn
  | ParticipantInvited
  | ParticipantPutOut
  | WorkRecorded
  | FairnessChosen
  | CheckFailed
  | PeerPardoned
  | StandbyReady
  | TransactionBegun
  | TransactionEnded
  | SignalingListed
  | CutsFixed
  | PlanWished
  | ModelOffered
  | ModelWithdrawn
  | ModelPlaced
  | DecoderOffered
  | DecoderPlanned
  | DecoderActivated
  | DecoderRefused
  | DecoderHeld;

// --- on the wire

export const idPattern = matching(/^[0-9A-Za-z_.:-]{1,64}$/, 'an id of 1 to 64 letters, digits and _.:-');
export const parentPattern = matching(/^[0-9A-Za-z_.:-]{0,64}$/, 'the id of a message, or nothing');
export const sessionPattern = matching(/^[0-9a-f]{32}$/, 'a session of 16 bytes in hex');
export const maybeSessionPattern = matching(/^([0-9a-f]{32})?$/, 'a session of 16 bytes in hex, or nothing');
export const colourPattern = matching(/^#[0-9a-f]{6}$/, 'a colour such as #3366cc');
export const inviteKeyPattern = matching(/^A[Q-Za-f][0-9A-Za-z_-]{42}$/, 'the public key of an invite');
export const proofPattern = matching(/^[0-9A-Za-z_-]{86}$/, 'a signature of 64 bytes');
export const addressPattern = matching(/^https?:\/\/[0-9A-Za-z_.:/~%[\]-]{1,256}$/, 'an address such as https://host:8443');
export const modelIdPattern = matching(/^[0-9a-f]{64}$/, 'the id of a model: 64 digits of SHA-256 in hex');
export const modelNamePattern = matching(/^[0-9A-Za-z][0-9A-Za-z_.:+-]{0,63}$/, 'a name of 1 to 64 letters, digits and _.:+-, a letter or digit first');
export const arithmeticPattern = matching(/^[a-z0-9_.+/-]{0,96}$/, 'nothing or at most 96 characters of a to z, 0 to 9 and _.+/-');
export const memberStatusCodec = oneOf<MemberStatus>('joining', 'measured', 'draining', 'paused', 'leaving');
export const objectiveCodec = oneOf<Objective>('latency', 'throughput');
export const shadowCodec = oneOf<Shadow>('off', 'log', 'shadow');
export const repairStrategyCodec = oneOf<RepairStrategy>('simple', 'progressive', 'parallel', 'coordinated');
export const roleCodec = oneOf<Role>('owner', 'member', 'viewer');
export const givenCodec = oneOf<Given>('member', 'viewer');
export const formCodec = oneOf<Form>('to-model', 'to-people', 'answer');
export const progressCodec = oneOf<Progress>('running', 'done', 'stopped', 'failed');
export const endedCodec = oneOf<Ended>('done', 'stopped', 'failed');
export const policyCodec = oneOf<Policy>('open', 'fair', 'off');
export const operationKindCodec = oneOf<OperationKind>('load', 'unload', 'migrate', 'open', 'take-over', 'close');
export const outcomeCodec = oneOf<Outcome>('begun', 'committed', 'rolled-back');
export const endingCodec = oneOf<Ending>('committed', 'rolled-back');
export const planStrategyCodec = oneOf<PlanStrategy>('optimal', 'layer', 'attention-ffn', 'pipeline', 'component', 'hybrid', 'tensor');
export const goalCodec = oneOf<Goal>('latency', 'throughput', 'memory', 'balanced');
export const profileCodec = record<Required<Profile>>(
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
    surroundings: surroundingsCodec,
    arithmetic: arithmeticPattern,
  }, { since: { surroundings: UNKNOWN, arithmetic: '' } }) as Codec<Profile>;
export const heldSliceCodec = record<HeldSlice>(
  'HeldSlice',
  {
    first: uint,
    stop: uint,
    place: uint,
    shares: list(uint, MAX_HELPERS + 1),
  });
export const memberCodec = record<Required<Member>>(
  'Member',
  {
    peer: text,
    name: text,
    compute: flag,
    status: memberStatusCodec,
    profile: maybe(profileCodec),
    held: list(span),
    reason: text,
    headless: flag,
    durable: flag,
    incarnation: uint,
    slices: list(heldSliceCodec),
  }, { since: { headless: false, durable: false, incarnation: 0, slices: [] }, omit: ['slices'] }) as Codec<Member>;
export const linkFactsCodec = record<Required<LinkFacts>>(
  'LinkFacts',
  {
    src: text,
    dst: text,
    rttUs: uint,
    bytesPerS: uint,
    overheadUs: uint,
    relayed: maybe(flag),
  }, { since: { relayed: null } }) as Codec<LinkFacts>;
export const protectionCodec = record<Protection>(
  'Protection',
  {
    redundancyMilli: uint,
    spare: flag,
    shadow: shadowCodec,
    strategy: repairStrategyCodec,
    transactions: flag,
    priority: list(text),
    together: flag,
    logSessionBytes: uint,
    logTotalBytes: uint,
  });
export const inviteCodec = record<Invite>(
  'Invite',
  {
    role: roleCodec,
    expiresUnix: uint,
    uses: uint,
    by: text,
    whenMs: uint,
    proof: text,
  });
export const revocationCodec = record<Revocation>(
  'Revocation',
  {
    by: text,
    whenMs: uint,
    proof: text,
  });
export const peopleCodec = record<People>(
  'People',
  {
    roles: table(roleCodec),
    invites: table(inviteCodec, MAX_INVITES),
    revocations: table(revocationCodec),
  });
export const participantCodec = record<Participant>(
  'Participant',
  {
    name: text,
    colour: colourPattern,
    role: roleCodec,
  });
export const messageCodec = record<Message>(
  'Message',
  {
    id: idPattern,
    parent: parentPattern,
    author: text,
    form: formCodec,
    text: prose(MAX_MESSAGE_BYTES),
    whenMs: uint,
    state: progressCodec,
    tokens: uint,
    reason: text,
    session: maybeSessionPattern,
    model: text,
    sampling: list(integer, MAX_SAMPLING),
    maxTokens: uint,
  });
export const offerCodec = record<Offer>(
  'Offer',
  {
    role: givenCodec,
    by: text,
    whenMs: uint,
  });
export const entryCodec = record<Entry>(
  'Entry',
  {
    byInvite: flag,
    offers: table(offerCodec, MAX_OFFERS),
    barred: list(text, MAX_BARRED),
  });
export const workCodec = record<Work>(
  'Work',
  {
    session: sessionPattern,
    startedMs: uint,
    peer: text,
    asker: text,
    positions: span,
    units: span,
    milli: uint,
  });
export const quarantineCodec = record<Quarantine>(
  'Quarantine',
  {
    whenMs: uint,
    by: list(text, MAX_WORDS),
    lostMilli: uint,
    sessions: list(sessionPattern, MAX_SERVED),
  });
export const choiceRecordCodec = record<ChoiceRecord>(
  'ChoiceRecord',
  {
    name: text,
    tokenUs: uint,
    prefillUs: uint,
    rateMilli: uint,
    memoryBytes: uint,
    chosen: flag,
    best: flag,
    knee: flag,
    whyNot: text,
  });
export const planStageCodec = record<Required<PlanStage>>(
  'PlanStage',
  {
    first: uint,
    stop: uint,
    primary: text,
    standbys: list(text),
    weightBytes: uint,
    kvBytes: uint,
    overheadBytes: uint,
    helpers: list(text, MAX_HELPERS),
    shares: list(uint, MAX_HELPERS + 1),
  }, { since: { helpers: [], shares: [] }, omit: ['helpers', 'shares'] }) as Codec<PlanStage>;
export const planRecordCodec = record<PlanRecord>(
  'PlanRecord',
  {
    version: uint,
    stages: list(planStageCodec),
    predictedTokenUs: uint,
    predictedRateMilli: uint,
    why: list(text),
    choices: list(choiceRecordCodec, MAX_CHOICES),
  }, { since: { choices: [] } });
export const standbyCodec = record<Standby>(
  'Standby',
  {
    version: uint,
    ready: list(span),
  });
export const transactionCodec = record<Transaction>(
  'Transaction',
  {
    id: idPattern,
    peer: text,
    operation: operationKindCodec,
    units: maybe(span),
    session: maybeSessionPattern,
    to: text,
    whenMs: uint,
    state: outcomeCodec,
    reason: text,
  });
export const skippedCodec = record<Skipped>(
  'Skipped',
  {
    count: uint,
    broken: uint,
    kept: list(prose(MAX_KEPT_BYTES), MAX_KEPT),
  });
export const groupCodec = record<Group>(
  'Group',
  {
    name: text,
    first: uint,
    stop: uint,
    prefers: text,
  });
export const runStageCodec = record<RunStage>(
  'RunStage',
  {
    first: uint,
    stop: uint,
    primary: text,
    standbys: list(text, MAX_RUN_STANDBYS),
    bytes: uint,
  });
export const modelOfferCodec = record<ModelOffer>(
  'ModelOffer',
  {
    model: modelIdPattern,
    version: uint,
    stages: list(runStageCodec, MAX_RUN_STAGES),
    latencyUs: uint,
    rateMilli: uint,
    why: list(text),
  });
export const decoderCodec = record<Decoder>(
  'Decoder',
  {
    model: modelIdPattern,
    units: uint,
    context: uint,
    sessions: uint,
    objective: objectiveCodec,
    plan: maybe(planRecordCodec),
    proposed: maybe(planRecordCodec),
    refused: text,
    held: table(list(span)),
  });
export const modelChosenCodec = record<ModelChosen>(
  'ModelChosen',
  {
    model: text,
    name: text,
    units: uint,
    context: uint,
    sessions: uint,
    objective: objectiveCodec,
  }, { kind: 'ModelChosen' });
const modelChosenFields = record<ModelChosen>(
  'ModelChosen',
  {
    model: text,
    name: text,
    units: uint,
    context: uint,
    sessions: uint,
    objective: objectiveCodec,
  });
/** As it stands in a snapshot: without its kind. */
export const bareModelChosenCodec: Codec<ModelChosen> = {
  decode: (value, where) => ({ ...modelChosenFields.decode(value, where), kind: 'ModelChosen' }),
  encode: (value) => modelChosenFields.encode(value),
};
export const memberJoinedCodec = record<Required<MemberJoined>>(
  'MemberJoined',
  {
    peer: text,
    name: text,
    compute: flag,
    headless: flag,
    durable: flag,
    incarnation: uint,
  }, { kind: 'MemberJoined', since: { headless: false, durable: false, incarnation: 0 } }) as Codec<MemberJoined>;
export const memberMeasuredCodec = record<MemberMeasured>(
  'MemberMeasured',
  {
    peer: text,
    profile: profileCodec,
    links: list(linkFactsCodec),
  }, { kind: 'MemberMeasured' });
export const planProposedCodec = record<PlanProposed>(
  'PlanProposed',
  {
    plan: planRecordCodec,
  }, { kind: 'PlanProposed' });
export const unitsHeldCodec = record<Required<UnitsHeld>>(
  'UnitsHeld',
  {
    peer: text,
    held: list(span),
    slices: list(heldSliceCodec),
  }, { kind: 'UnitsHeld', since: { slices: [] }, omit: ['slices'] }) as Codec<UnitsHeld>;
export const planActivatedCodec = record<PlanActivated>(
  'PlanActivated',
  {
    version: uint,
  }, { kind: 'PlanActivated' });
export const planRefusedCodec = record<PlanRefused>(
  'PlanRefused',
  {
    reason: text,
  }, { kind: 'PlanRefused' });
export const memberDrainingCodec = record<MemberDraining>(
  'MemberDraining',
  {
    peer: text,
    reason: text,
  }, { kind: 'MemberDraining' });
export const memberPausedCodec = record<MemberPaused>(
  'MemberPaused',
  {
    peer: text,
    reason: text,
  }, { kind: 'MemberPaused' });
export const memberRenamedCodec = record<MemberRenamed>(
  'MemberRenamed',
  {
    peer: text,
    name: text,
  }, { kind: 'MemberRenamed' });
export const memberLeavingCodec = record<MemberLeaving>(
  'MemberLeaving',
  {
    peer: text,
  }, { kind: 'MemberLeaving' });
export const memberLeftCodec = record<MemberLeft>(
  'MemberLeft',
  {
    peer: text,
    reason: text,
  }, { kind: 'MemberLeft' });
export const protectionChosenCodec = record<ProtectionChosen>(
  'ProtectionChosen',
  {
    protection: protectionCodec,
  }, { kind: 'ProtectionChosen' });
export const roleGivenCodec = record<RoleGiven>(
  'RoleGiven',
  {
    peer: text,
    role: roleCodec,
  }, { kind: 'RoleGiven' });
export const roleTakenCodec = record<RoleTaken>(
  'RoleTaken',
  {
    peer: text,
  }, { kind: 'RoleTaken' });
export const inviteRecordedCodec = record<InviteRecorded>(
  'InviteRecorded',
  {
    key: inviteKeyPattern,
    role: roleCodec,
    expiresUnix: uint,
    uses: uint,
    by: text,
    whenMs: uint,
    proof: text,
  }, { kind: 'InviteRecorded' });
export const inviteRevokedCodec = record<InviteRevoked>(
  'InviteRevoked',
  {
    key: inviteKeyPattern,
    by: text,
    whenMs: uint,
    proof: text,
  }, { kind: 'InviteRevoked' });
export const conversationStartedCodec = record<ConversationStarted>(
  'ConversationStarted',
  {
    conversation: idPattern,
    title: text,
    model: text,
    system: prose(MAX_MESSAGE_BYTES),
    sampling: list(integer, MAX_SAMPLING),
    whenMs: uint,
    peer: text,
    name: text,
    colour: colourPattern,
  }, { kind: 'ConversationStarted' });
export const conversationChangedCodec = record<ConversationChanged>(
  'ConversationChanged',
  {
    conversation: idPattern,
    title: text,
    model: text,
    system: prose(MAX_MESSAGE_BYTES),
    sampling: list(integer, MAX_SAMPLING),
  }, { kind: 'ConversationChanged' });
export const conversationRemovedCodec = record<ConversationRemoved>(
  'ConversationRemoved',
  {
    conversation: idPattern,
  }, { kind: 'ConversationRemoved' });
export const participantSetCodec = record<ParticipantSet>(
  'ParticipantSet',
  {
    conversation: idPattern,
    peer: text,
    name: text,
    colour: colourPattern,
    role: roleCodec,
  }, { kind: 'ParticipantSet' });
export const participantLeftCodec = record<ParticipantLeft>(
  'ParticipantLeft',
  {
    conversation: idPattern,
    peer: text,
  }, { kind: 'ParticipantLeft' });
export const messageAddedCodec = record<MessageAdded>(
  'MessageAdded',
  {
    conversation: idPattern,
    id: idPattern,
    parent: parentPattern,
    author: text,
    form: formCodec,
    text: prose(MAX_MESSAGE_BYTES),
    whenMs: uint,
    session: maybeSessionPattern,
    model: text,
    sampling: list(integer, MAX_SAMPLING),
    maxTokens: uint,
  }, { kind: 'MessageAdded' });
export const messageExtendedCodec = record<MessageExtended>(
  'MessageExtended',
  {
    conversation: idPattern,
    id: idPattern,
    after: uint,
    tokens: uint,
    text: prose(MAX_MESSAGE_BYTES),
  }, { kind: 'MessageExtended' });
export const messageEndedCodec = record<MessageEnded>(
  'MessageEnded',
  {
    conversation: idPattern,
    id: idPattern,
    state: endedCodec,
    tokens: uint,
    text: maybe(prose(MAX_MESSAGE_BYTES)),
    reason: text,
  }, { kind: 'MessageEnded' });
export const answerAdoptedCodec = record<AnswerAdopted>(
  'AnswerAdopted',
  {
    conversation: idPattern,
    id: idPattern,
    before: text,
    author: text,
    session: sessionPattern,
  }, { kind: 'AnswerAdopted' });
export const entryChosenCodec = record<EntryChosen>(
  'EntryChosen',
  {
    conversation: idPattern,
    byInvite: flag,
  }, { kind: 'EntryChosen' });
export const entryOfferedCodec = record<EntryOffered>(
  'EntryOffered',
  {
    conversation: idPattern,
    key: inviteKeyPattern,
    role: givenCodec,
    by: text,
    whenMs: uint,
  }, { kind: 'EntryOffered' });
export const entryWithdrawnCodec = record<EntryWithdrawn>(
  'EntryWithdrawn',
  {
    conversation: idPattern,
    key: inviteKeyPattern,
  }, { kind: 'EntryWithdrawn' });
export const participantInvitedCodec = record<ParticipantInvited>(
  'ParticipantInvited',
  {
    conversation: idPattern,
    key: inviteKeyPattern,
    peer: text,
    name: text,
    colour: colourPattern,
    proof: proofPattern,
  }, { kind: 'ParticipantInvited' });
export const participantPutOutCodec = record<ParticipantPutOut>(
  'ParticipantPutOut',
  {
    conversation: idPattern,
    peer: text,
  }, { kind: 'ParticipantPutOut' });
export const workRecordedCodec = record<WorkRecorded>(
  'WorkRecorded',
  {
    entries: list(workCodec, MAX_ENTRIES),
  }, { kind: 'WorkRecorded' });
export const fairnessChosenCodec = record<FairnessChosen>(
  'FairnessChosen',
  {
    policy: policyCodec,
    allowanceMilli: uint,
    checksPpm: uint,
  }, { kind: 'FairnessChosen' });
export const checkFailedCodec = record<CheckFailed>(
  'CheckFailed',
  {
    session: sessionPattern,
    position: uint,
    units: span,
    peer: text,
    by: text,
    whenMs: uint,
  }, { kind: 'CheckFailed' });
const checkFailedFields = record<CheckFailed>(
  'CheckFailed',
  {
    session: sessionPattern,
    position: uint,
    units: span,
    peer: text,
    by: text,
    whenMs: uint,
  });
/** As it stands in a snapshot: without its kind. */
export const bareCheckFailedCodec: Codec<CheckFailed> = {
  decode: (value, where) => ({ ...checkFailedFields.decode(value, where), kind: 'CheckFailed' }),
  encode: (value) => checkFailedFields.encode(value),
};
export const peerPardonedCodec = record<PeerPardoned>(
  'PeerPardoned',
  {
    peer: text,
  }, { kind: 'PeerPardoned' });
export const standbyReadyCodec = record<StandbyReady>(
  'StandbyReady',
  {
    peer: text,
    version: uint,
    ready: list(span),
  }, { kind: 'StandbyReady' });
export const transactionBegunCodec = record<TransactionBegun>(
  'TransactionBegun',
  {
    id: idPattern,
    peer: text,
    operation: operationKindCodec,
    units: maybe(span),
    session: maybeSessionPattern,
    to: text,
    whenMs: uint,
  }, { kind: 'TransactionBegun' });
export const transactionEndedCodec = record<TransactionEnded>(
  'TransactionEnded',
  {
    id: idPattern,
    state: endingCodec,
    reason: text,
  }, { kind: 'TransactionEnded' });
export const signalingListedCodec = record<SignalingListed>(
  'SignalingListed',
  {
    addresses: list(addressPattern, MAX_ADDRESSES),
  }, { kind: 'SignalingListed' });
export const cutsFixedCodec = record<CutsFixed>(
  'CutsFixed',
  {
    cuts: maybe(list(uint)),
  }, { kind: 'CutsFixed' });
export const planWishedCodec = record<Required<PlanWished>>(
  'PlanWished',
  {
    strategy: planStrategyCodec,
    goal: goalCodec,
    components: list(groupCodec, MAX_COMPONENTS),
    minTensorBytes: uint,
  }, { kind: 'PlanWished', since: { minTensorBytes: 0 }, omit: ['minTensorBytes'] }) as Codec<PlanWished>;
const planWishedFields = record<Required<PlanWished>>(
  'PlanWished',
  {
    strategy: planStrategyCodec,
    goal: goalCodec,
    components: list(groupCodec, MAX_COMPONENTS),
    minTensorBytes: uint,
  }, { since: { minTensorBytes: 0 }, omit: ['minTensorBytes'] }) as Codec<PlanWished>;
/** As it stands in a snapshot: without its kind. */
export const barePlanWishedCodec: Codec<PlanWished> = {
  decode: (value, where) => ({ ...planWishedFields.decode(value, where), kind: 'PlanWished' }),
  encode: (value) => planWishedFields.encode(value),
};
export const modelOfferedCodec = record<ModelOffered>(
  'ModelOffered',
  {
    model: modelIdPattern,
    name: modelNamePattern,
  }, { kind: 'ModelOffered' });
export const modelWithdrawnCodec = record<ModelWithdrawn>(
  'ModelWithdrawn',
  {
    name: modelNamePattern,
  }, { kind: 'ModelWithdrawn' });
export const modelPlacedCodec = record<ModelPlaced>(
  'ModelPlaced',
  {
    name: modelNamePattern,
    version: uint,
    stages: list(runStageCodec, MAX_RUN_STAGES),
    latencyUs: uint,
    rateMilli: uint,
    why: list(text),
  }, { kind: 'ModelPlaced' });
export const decoderOfferedCodec = record<DecoderOffered>(
  'DecoderOffered',
  {
    name: modelNamePattern,
    model: modelIdPattern,
    units: uint,
    context: uint,
    sessions: uint,
    objective: objectiveCodec,
  }, { kind: 'DecoderOffered' });
export const decoderPlannedCodec = record<DecoderPlanned>(
  'DecoderPlanned',
  {
    name: modelNamePattern,
    plan: planRecordCodec,
  }, { kind: 'DecoderPlanned' });
export const decoderActivatedCodec = record<DecoderActivated>(
  'DecoderActivated',
  {
    name: modelNamePattern,
    version: uint,
  }, { kind: 'DecoderActivated' });
export const decoderRefusedCodec = record<DecoderRefused>(
  'DecoderRefused',
  {
    name: modelNamePattern,
    reason: text,
  }, { kind: 'DecoderRefused' });
export const decoderHeldCodec = record<DecoderHeld>(
  'DecoderHeld',
  {
    name: modelNamePattern,
    peer: text,
    held: list(span),
  }, { kind: 'DecoderHeld' });

export const CODECS: {
  readonly [K in KnownCommand['kind']]: Codec<Extract<KnownCommand, { kind: K }>>;
} = {
  ModelChosen: modelChosenCodec,
  MemberJoined: memberJoinedCodec,
  MemberMeasured: memberMeasuredCodec,
  PlanProposed: planProposedCodec,
  UnitsHeld: unitsHeldCodec,
  PlanActivated: planActivatedCodec,
  PlanRefused: planRefusedCodec,
  MemberDraining: memberDrainingCodec,
  MemberPaused: memberPausedCodec,
  MemberRenamed: memberRenamedCodec,
  MemberLeaving: memberLeavingCodec,
  MemberLeft: memberLeftCodec,
  ProtectionChosen: protectionChosenCodec,
  RoleGiven: roleGivenCodec,
  RoleTaken: roleTakenCodec,
  InviteRecorded: inviteRecordedCodec,
  InviteRevoked: inviteRevokedCodec,
  ConversationStarted: conversationStartedCodec,
  ConversationChanged: conversationChangedCodec,
  ConversationRemoved: conversationRemovedCodec,
  ParticipantSet: participantSetCodec,
  ParticipantLeft: participantLeftCodec,
  MessageAdded: messageAddedCodec,
  MessageExtended: messageExtendedCodec,
  MessageEnded: messageEndedCodec,
  AnswerAdopted: answerAdoptedCodec,
  EntryChosen: entryChosenCodec,
  EntryOffered: entryOfferedCodec,
  EntryWithdrawn: entryWithdrawnCodec,
  ParticipantInvited: participantInvitedCodec,
  ParticipantPutOut: participantPutOutCodec,
  WorkRecorded: workRecordedCodec,
  FairnessChosen: fairnessChosenCodec,
  CheckFailed: checkFailedCodec,
  PeerPardoned: peerPardonedCodec,
  StandbyReady: standbyReadyCodec,
  TransactionBegun: transactionBegunCodec,
  TransactionEnded: transactionEndedCodec,
  SignalingListed: signalingListedCodec,
  CutsFixed: cutsFixedCodec,
  PlanWished: planWishedCodec,
  ModelOffered: modelOfferedCodec,
  ModelWithdrawn: modelWithdrawnCodec,
  ModelPlaced: modelPlacedCodec,
  DecoderOffered: decoderOfferedCodec,
  DecoderPlanned: decoderPlannedCodec,
  DecoderActivated: decoderActivatedCodec,
  DecoderRefused: decoderRefusedCodec,
  DecoderHeld: decoderHeldCodec,
};

/** The version of the protocol that brought a command, where that is above the lowest one. */
export const SINCE: ReadonlyMap<string, number> = new Map([
  ['MemberRenamed', 5],
  ['EntryChosen', 4],
  ['EntryOffered', 4],
  ['EntryWithdrawn', 4],
  ['ParticipantInvited', 4],
  ['ParticipantPutOut', 4],
  ['ModelOffered', 5],
  ['ModelWithdrawn', 5],
  ['ModelPlaced', 5],
  ['DecoderOffered', 6],
  ['DecoderPlanned', 6],
  ['DecoderActivated', 6],
  ['DecoderRefused', 6],
  ['DecoderHeld', 6],
]);

/**
 * Who may propose a command: the leader, an owner, a member that is there to stay (headless), the
 * member that the named field names, or as the rules of conversations and operations have it.
 */
export const PROPOSED_BY: Readonly<Record<KnownCommand['kind'], string>> = {
  ModelChosen: 'leader',
  MemberJoined: 'leader',
  MemberMeasured: 'leader',
  PlanProposed: 'leader',
  UnitsHeld: 'leader',
  PlanActivated: 'leader',
  PlanRefused: 'leader',
  MemberDraining: 'leader',
  MemberPaused: 'leader',
  MemberRenamed: 'peer',
  MemberLeaving: 'leader',
  MemberLeft: 'leader',
  ProtectionChosen: 'owner',
  RoleGiven: 'owner',
  RoleTaken: 'owner',
  InviteRecorded: 'owner',
  InviteRevoked: 'owner',
  ConversationStarted: 'rules',
  ConversationChanged: 'rules',
  ConversationRemoved: 'rules',
  ParticipantSet: 'rules',
  ParticipantLeft: 'rules',
  MessageAdded: 'rules',
  MessageExtended: 'rules',
  MessageEnded: 'rules',
  AnswerAdopted: 'rules',
  EntryChosen: 'rules',
  EntryOffered: 'rules',
  EntryWithdrawn: 'rules',
  ParticipantInvited: 'rules',
  ParticipantPutOut: 'rules',
  WorkRecorded: 'leader',
  FairnessChosen: 'owner',
  CheckFailed: 'by',
  PeerPardoned: 'owner',
  StandbyReady: 'peer',
  TransactionBegun: 'peer',
  TransactionEnded: 'rules',
  SignalingListed: 'headless',
  CutsFixed: 'owner',
  PlanWished: 'owner',
  ModelOffered: 'owner',
  ModelWithdrawn: 'owner',
  ModelPlaced: 'leader',
  DecoderOffered: 'owner',
  DecoderPlanned: 'leader',
  DecoderActivated: 'leader',
  DecoderRefused: 'leader',
  DecoderHeld: 'leader',
};

const MEMBER_KINDS: ReadonlySet<string> = new Set([
  'ModelChosen',
  'MemberJoined',
  'MemberMeasured',
  'PlanProposed',
  'UnitsHeld',
  'PlanActivated',
  'PlanRefused',
  'MemberDraining',
  'MemberPaused',
  'MemberRenamed',
  'MemberLeaving',
  'MemberLeft',
  'ProtectionChosen',
]);

/** Whether a command is one of its group. */
export function isMemberCommand(command: { readonly kind: string }): command is MemberCommand {
  return MEMBER_KINDS.has(command.kind);
}

const PEOPLE_KINDS: ReadonlySet<string> = new Set([
  'RoleGiven',
  'RoleTaken',
  'InviteRecorded',
  'InviteRevoked',
]);

/** Whether a command is one of its group. */
export function isPeopleCommand(command: { readonly kind: string }): command is PeopleCommand {
  return PEOPLE_KINDS.has(command.kind);
}

const CONVERSATION_KINDS: ReadonlySet<string> = new Set([
  'ConversationStarted',
  'ConversationChanged',
  'ConversationRemoved',
  'ParticipantSet',
  'ParticipantLeft',
  'MessageAdded',
  'MessageExtended',
  'MessageEnded',
  'AnswerAdopted',
  'EntryChosen',
  'EntryOffered',
  'EntryWithdrawn',
  'ParticipantInvited',
  'ParticipantPutOut',
]);

/** Whether a command is one of its group. */
export function isConversationCommand(command: { readonly kind: string }): command is ConversationCommand {
  return CONVERSATION_KINDS.has(command.kind);
}

const ENTRY_KINDS: ReadonlySet<string> = new Set([
  'EntryChosen',
  'EntryOffered',
  'EntryWithdrawn',
  'ParticipantInvited',
  'ParticipantPutOut',
]);

/** Whether a command is one of its group. */
export function isEntryCommand(command: { readonly kind: string }): command is EntryCommand {
  return ENTRY_KINDS.has(command.kind);
}

const FAIRNESS_KINDS: ReadonlySet<string> = new Set([
  'FairnessChosen',
  'CheckFailed',
  'PeerPardoned',
]);

/** Whether a command is one of its group. */
export function isFairnessCommand(command: { readonly kind: string }): command is FairnessCommand {
  return FAIRNESS_KINDS.has(command.kind);
}

const UPKEEP_KINDS: ReadonlySet<string> = new Set([
  'StandbyReady',
  'TransactionBegun',
  'TransactionEnded',
  'SignalingListed',
  'CutsFixed',
  'PlanWished',
]);

/** Whether a command is one of its group. */
export function isUpkeepCommand(command: { readonly kind: string }): command is UpkeepCommand {
  return UPKEEP_KINDS.has(command.kind);
}

const OFFER_KINDS: ReadonlySet<string> = new Set([
  'ModelOffered',
  'ModelWithdrawn',
  'ModelPlaced',
]);

/** Whether a command is one of its group. */
export function isOfferCommand(command: { readonly kind: string }): command is OfferCommand {
  return OFFER_KINDS.has(command.kind);
}

const DECODER_KINDS: ReadonlySet<string> = new Set([
  'DecoderOffered',
  'DecoderPlanned',
  'DecoderActivated',
  'DecoderRefused',
  'DecoderHeld',
]);

/** Whether a command is one of its group. */
export function isDecoderCommand(command: { readonly kind: string }): command is DecoderCommand {
  return DECODER_KINDS.has(command.kind);
}
