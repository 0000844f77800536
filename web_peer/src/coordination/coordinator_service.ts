/*
 * The coordinator at work: answers members, asks the planner, and proposes what is decided for the log (twin of
 * peer/coordination/coordinator_service.py). Edge around coordinator.ts, which decides.
 *
 * It lives as long as this peer leads: it begins with the state that is committed, runs ahead of it by what it proposed
 * itself, and ends when it leads no more or a proposal is refused.
 */

import type { BreakerState } from '../transport/circuit_breakers';
import type { Change, Status } from '../consensus/events';
import { type Coordinator, SILENT, type Wanted } from './coordinator';
import { DecoderPlanning, type DecoderSurroundings, type Led } from './decoder_planning_service';
import { Electorate } from './electorate';
import { Placing, type PlacingSurroundings } from './offer_placement_service';
import { BadCommand, BeginAnew, NotAdmitted, PeerError } from '../errors';
import { HIGHEST_VERSION, LOWEST_VERSION, MAX_ENTRY_BYTES } from '../limits';
import { apply, type MeshState, refusal } from '../state/mesh_state';
import { type Command, decodeCommand, encodeCommand } from '../state/member_commands';
import type {
  DecoderHeld,
  LinkFacts,
  Member,
  MemberDraining,
  MemberMeasured,
  MemberPaused,
  UnitsHeld,
} from '../state/generated/commands';
import { tally } from '../state/work_ledger';
import type { Planned, PlanRequest } from './plan_request';
import { priced, Till } from '../audit/receipts';
import type { Order } from '../replication/replica';
import { MARK_BYTES, markOf } from '../state/decoders';
import { nameFault } from '../state/display_names';
import { maySay } from '../state/proposal_rights';
import { type Reach, Suspicions } from './suspicion';
import { neededToLead, tooNew } from '../state/version_negotiation';
import { nextMove, PATIENCE, type Patience, type Situation } from './voter_policy';
import {
  DRAIN,
  type DrainRequest,
  HELD,
  type HeldRequest,
  JOIN,
  type JoinRequest,
  LEAVING,
  LEFT,
  MEASURED,
  type MeasuredRequest,
  PAUSED,
  type PausedRequest,
  type ProposeRequest,
  SUSPECT,
  type SuspectRequest,
  WORK,
  type WorkRequest,
} from '../wire/generated/requests';
import type { RequestKind } from '../wire/request_kind';

const MAX_REASON = 500;
const MAX_COMMANDS = 120; // reports of one member in COMMANDS_MS; an honest one has a handful for each plan
const MAX_PROPOSALS = 1200; // of what people of one member say in COMMANDS_MS, texts of running answers among it
const COMMANDS_MS = 60_000;
const BILL_EVERY_MS = 2000; // work enters the log in batches
const TEND_EVERY_MS = 750; // members and group are looked at this often where nothing calls for it
const MISSING_MS = 5000; // without a connection to the coordinator, which dials it meanwhile, a member has left
const REFUSED_MS = 500; // a change of the group is proposed again after that: a learner may have caught up
const SAME_PEER_MS = 3000; // how long the strategy `simple` waits for a peer that was lost before it plans anew
const PLAN_AGAIN_MS = 5000; // after a planner that did not answer
const UNSHOWN =
  /[\u0000-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/gu;

/** Where proposals go. A promise is kept when the entry is committed; NotLeader where nobody can say so. */
export interface Log {
  readonly epoch: number;
  readonly status: Status;
  propose(data: Uint8Array): Promise<Order>;
  change(change: Change): Promise<Order>;
  transfer(to: string): Promise<Order>;
  /** Of the server of that name in the group; 0: none. */
  incarnationOf(peer: string): number;
}

/** What a coordinator needs of this peer. */
export interface Surroundings {
  mayCompute(peer: string): boolean; // by its invite
  connected(peer: string): boolean;
  speaks(peer: string): number; // the version of the protocol that it was heard to speak
  readonly reach: Reach;
  /** A plan of a planner; null: none answers now. */
  plan(request: PlanRequest): Promise<Planned | null>;
  /** What plans further models that answer in words takes; absent: they are not planned here. */
  readonly decoders?: DecoderSurroundings;
  /** What placing offered models takes; absent: they stay where they are. */
  readonly placing?: PlacingSurroundings;
  /** A proposal was refused: what was decided since is void, and another must begin. Called once. */
  failed(): void;
}

/** One turn at coordinating, over `log`. When a proposal is refused, it is over and another must begin. */
export class Coordinating {
  alone = false; // nobody is here who could lead instead
  private readonly core: Coordinator;
  private readonly log: Log;
  private readonly around: Surroundings;
  private readonly patience: Patience;
  private readonly electorate: Electorate;
  private readonly suspicions: Suspicions;
  private last: Promise<Order> | null = null; // the latest proposal
  private closed = false;
  private readonly spent: Spent = new Map(); // reports, by peer
  private readonly proposals: Spent = new Map(); // the same
  private readonly till = new Till();
  private billedMs = 0; // when work was last put into the log
  private tendedMs = 0; // when members and group were last looked at because time has passed
  private readonly missing = new Map<string, number>(); // members without a connection: since when
  private changing = false; // the group
  private handing = false; // leadership
  private handedOverMs: number | null = null;
  private readonly refused = new Map<string, number>(); // changes, by the core: not again before
  private planning = false;
  private readonly away = new Map<string, { member: Member; links: readonly LinkFacts[] }>(); // silent and gone
  private readonly waits = new Map<string, ReturnType<typeof setTimeout>>(); // for lost peers to come back
  private again: ReturnType<typeof setTimeout> | undefined; // to ask a planner
  private readonly decoders: DecoderPlanning | null;
  private readonly placing: Placing | null;

  constructor(coordinator: Coordinator, log: Log, around: Surroundings, patience: Patience = PATIENCE) {
    this.core = coordinator;
    this.log = log;
    this.around = around;
    this.patience = patience;
    this.electorate = new Electorate(patience);
    const findings = {
      silent: (peer: string) => this.silent(peer),
      gone: (peer: string) => this.silentAndGone(peer),
      back: (peer: string) => this.back(peer),
    };
    this.decoders = around.decoders === undefined ? null : new DecoderPlanning(around.decoders, this.led());
    this.placing = around.placing === undefined ? null : new Placing(around.placing, this.led());
    this.suspicions = new Suspicions(around.reach, findings, () =>
      this.state.protection.strategy === 'simple' ? SAME_PEER_MS : 0,
    );
  }

  get state(): MeshState {
    return this.core.state;
  }

  private led(): Led {
    const state = (): MeshState => this.state;
    return {
      me: this.core.me,
      get state() {
        return state();
      },
      submit: (command) => {
        if (!this.closed) this.submit(command);
      },
    };
  }

  /** Proposes it and what follows; plans anew when members changed. Raises BadCommand when it is too long. */
  submit(command: Command): void {
    if (encodeCommand(command).length > MAX_ENTRY_BYTES) {
      throw new BadCommand(`expected an entry of at most ${MAX_ENTRY_BYTES} bytes for the log`);
    }
    this.publish(this.core.submit(command));
    this.planIfWanted();
    for (const peer of this.core.awaited) {
      if (this.waits.has(peer)) continue;
      this.waits.set(
        peer,
        setTimeout(() => this.waited(peer), SAME_PEER_MS),
      );
    }
  }

  /** Takes over, after `before` led ("": nobody known): what was under way goes on. */
  begin(before: string): void {
    this.publish(this.core.goOn());
    if (before !== '' && before !== this.core.me) this.hinted(before);
    for (const { peer, status, reason } of this.state.members.values()) {
      if (status === 'draining' && reason === SILENT) this.suspicions.watch(peer);
    }
    this.planIfWanted();
  }

  /** (term, index) of the latest proposal once it is committed, and so are all before. Raises NotLeader. */
  settled(): Promise<Order> {
    return this.last ?? Promise.resolve([0, 0]);
  }

  /** Called often. Time has passed: who has had no connection for long has left, and the group may be changed. */
  look(now: number): void {
    if (now - this.tendedMs < TEND_EVERY_MS) return;
    this.tendedMs = now;
    const { members } = this.state;
    for (const peer of [...members.keys()]) {
      if (peer === this.core.me || this.around.connected(peer)) continue;
      const since = this.missing.get(peer) ?? now;
      this.missing.set(peer, since);
      if (now - since > MISSING_MS) this.gone(peer, 'there is no connection to it');
    }
    for (const peer of [...this.missing.keys()]) {
      if (!this.state.members.has(peer) || this.around.connected(peer)) this.missing.delete(peer);
    }
    if (this.till.size > 0 && now - this.billedMs >= BILL_EVERY_MS) {
      this.billedMs = now;
      this.bill();
    }
    this.publish(this.core.relieve(now));
    this.planIfWanted();
    this.decoders?.look(true);
    this.placing?.look(true);
    this.tend();
  }

  /** Brings the group nearer to who is here, and leadership to whom it suits: one step at a time. */
  tend(): void {
    if (this.closed || this.changing || this.handing) return;
    const now = nowMs();
    const situation = this.situation(now);
    const move = nextMove(situation, this.patience);
    if (move === null) return;
    const deed = move.do;
    if (deed.kind === 'hand_over') this.handOver(deed.to, now);
    else if (now >= (this.refused.get(JSON.stringify(deed)) ?? 0)) this.change(deed);
  }

  /** The page goes: leadership goes to the best voter that is there, as far as that can be said in one breath. */
  farewell(): void {
    const now = nowMs();
    const situation = this.situation(now);
    const candidates = situation.candidates.map((each) =>
      each.id === this.core.me ? { ...each, leaving: true } : each,
    );
    const move = nextMove({ ...situation, candidates }, this.patience);
    if (move?.do.kind === 'hand_over') this.handOver(move.do.to, now);
  }

  private situation(now: number): Situation {
    const { me } = this.core;
    const { status } = this.log;
    const here = new Set(
      [...this.state.members.keys()].filter((peer) => peer === me || this.around.connected(peer)),
    );
    const needed = neededToLead(this.state);
    const candidates = this.electorate
      .candidates(now, this.state, status, here)
      .map((each) => ({ ...each, mayVote: each.mayVote && this.around.speaks(each.id) >= needed }));
    this.alone = !candidates.some(
      ({ id, mayVote, leaving, sight }) => id !== me && mayVote && !leaving && sight.connected,
    );
    const { config } = status;
    return { nowMs: now, leader: me, config, candidates, settled: true, handedOverMs: this.handedOverMs };
  }

  private handOver(to: string, now: number): void {
    this.handedOverMs = now;
    this.handing = true;
    const over = (): void => {
      this.handing = false;
    };
    this.log.transfer(to).then(over, over);
  }

  private change(change: Change): void {
    this.changing = true;
    this.log.change(change).then(
      () => {
        this.changing = false;
        this.tend();
      },
      () => {
        this.changing = false;
        this.refused.clear();
        this.refused.set(JSON.stringify(change), nowMs() + REFUSED_MS);
      },
    );
  }

  /** The signaling server says that `peer` left: maybe it did. */
  hinted(peer: string): void {
    if (this.state.members.has(peer) && peer !== this.core.me) this.suspicions.look(peer);
  }

  /** Raises NotAdmitted where a request of that kind is for members, of the state that runs ahead. */
  admit(peer: string, kind: RequestKind<unknown, unknown>): void {
    if (kind.sender === 'members' && !this.state.members.has(peer)) throw new NotAdmitted('join first');
  }

  /** A member's request to the coordinator, other than to propose. Raises BadCommand or NotAdmitted. */
  answer(peer: string, method: string, said: unknown): void {
    switch (method) {
      case JOIN.method:
        this.join(peer, said as JoinRequest);
        break;
      case MEASURED.method:
        this.reported(peer, (said as MeasuredRequest).command, ['MemberMeasured']);
        break;
      case HELD.method:
        this.reported(peer, (said as HeldRequest).command, ['UnitsHeld', 'DecoderHeld']);
        break;
      case DRAIN.method:
        this.lendsLess({ kind: 'MemberDraining', peer, reason: reasonOf((said as DrainRequest).why) });
        break;
      case PAUSED.method:
        this.lendsLess({ kind: 'MemberPaused', peer, reason: reasonOf((said as PausedRequest).why) });
        break;
      case LEAVING.method:
        spend(this.spent, peer, MAX_COMMANDS);
        if (this.state.members.get(peer)?.status !== 'leaving') this.submit({ kind: 'MemberLeaving', peer });
        break;
      case LEFT.method:
        this.putOut(peer);
        break;
      case WORK.method:
        this.work(peer, said as WorkRequest);
        break;
      case SUSPECT.method:
        spend(this.spent, peer, MAX_COMMANDS);
        this.hinted((said as SuspectRequest).peer);
        break;
      default:
        throw new BadCommand(`unknown request ${method.slice(0, 40)}`);
    }
  }

  /** It said goodbye, or its invite was withdrawn: nothing is kept for it. */
  putOut(peer: string): void {
    if (this.state.members.has(peer)) this.submit({ kind: 'MemberLeft', peer, reason: 'left' });
    this.electorate.left(peer);
    this.tend();
  }

  /** The peers that this coordinator leaves alone, with the state of each breaker. */
  breakers(): readonly (readonly [string, BreakerState])[] {
    return this.suspicions.breakers.shown(nowMs());
  }

  /** The connection to a member ended. */
  gone(peer: string, reason: string): void {
    this.spent.delete(peer);
    this.proposals.delete(peer);
    this.missing.delete(peer);
    this.away.delete(peer);
    this.suspicions.ended(peer);
    const member = this.state.members.get(peer);
    if (member === undefined) return;
    this.electorate.lost(nowMs(), member);
    this.submit({ kind: 'MemberLeft', peer, reason: reasonOf(reason) });
    this.tend(); // the next voter may go within the second
  }

  /** Ends every question to others. */
  close(): void {
    this.closed = true;
    clearTimeout(this.again);
    this.decoders?.close();
    this.placing?.close();
    for (const wait of this.waits.values()) clearTimeout(wait);
    this.suspicions.close();
  }

  // --- silence

  private waited(peer: string): void {
    this.waits.delete(peer);
    if (this.closed) return;
    this.publish(this.core.stopWaiting(peer));
    this.planIfWanted();
  }

  /** Its connection holds, but it says nothing: plans leave it out where they can. */
  private silent(peer: string): boolean {
    const member = this.state.members.get(peer);
    if (member?.compute !== true || !['measured', 'draining'].includes(member.status)) return false;
    this.submit({ kind: 'MemberDraining', peer, reason: SILENT });
    return true;
  }

  private silentAndGone(peer: string): boolean {
    const member = this.state.members.get(peer);
    if (member === undefined) return false;
    const links = this.state.links.filter(({ src, dst }) => src === peer || dst === peer);
    this.away.set(peer, { member, links });
    this.electorate.lost(nowMs(), member);
    this.submit({ kind: 'MemberLeft', peer, reason: 'silent, and gone from the signaling server' });
    this.tend();
    return true;
  }

  /** It speaks again, and was quiet for long enough: it is as it was, and lends what it lent. */
  private back(peer: string): void {
    const gone = this.away.get(peer);
    this.away.delete(peer);
    const member = gone?.member ?? this.state.members.get(peer);
    if (member === undefined) return;
    if (!this.state.members.has(peer)) {
      const { name, compute, headless, durable, incarnation, held, slices = [] } = member;
      if (this.log.incarnationOf(peer) !== incarnation) return; // its place is taken away: it joins again
      this.submit({ kind: 'MemberJoined', peer, name, compute, headless, durable, incarnation });
      if (held.length + slices.length > 0) this.submit({ kind: 'UnitsHeld', peer, held, slices });
    } else if (member.reason !== SILENT) return;
    if (member.profile === null) return;
    const links = (gone?.links ?? []).filter(
      ({ src, dst }) => this.state.members.has(src) && this.state.members.has(dst),
    );
    this.submit({ kind: 'MemberMeasured', peer, profile: member.profile, links });
  }

  // --- members

  private join(peer: string, said: JoinRequest): void {
    const { name, compute, protocol, headless, durable, incarnation, fresh, epoch } = said;
    const fault = nameFault(name);
    if (fault !== '') throw new BadCommand(`join: ${fault}; choose another with --name`);
    if (protocol < LOWEST_VERSION || protocol > HIGHEST_VERSION) {
      throw new NotAdmitted(
        `this mesh speaks protocol ${LOWEST_VERSION} to ${HIGHEST_VERSION}, not ${protocol}; update shoal`,
      );
    }
    if (compute && !this.around.mayCompute(peer)) {
      throw new NotAdmitted(
        'this invite lets you ask, not lend memory; ask for an invite with the role peer',
      );
    }
    if (incarnation === 0) throw new BadCommand('join: expected an incarnation from 1 to 2^53-1');
    if (epoch !== this.log.epoch) {
      throw new BadCommand(`join: this mesh is in epoch ${this.log.epoch}; look again who leads`);
    }
    const place = this.log.incarnationOf(peer);
    const member = this.state.members.get(peer);
    const known = place === incarnation || member?.incarnation === incarnation;
    const highest = Math.max(place, this.state.incarnations.get(peer) ?? 0);
    if (!known && (!fresh || incarnation <= highest)) {
      throw new BeginAnew(
        'this log is of a life of this peer that is over; join again with an empty one',
        highest,
      );
    }
    const same =
      member?.status === 'joining' &&
      member.profile === null &&
      member.held.length === 0 &&
      member.name === name &&
      member.compute === compute &&
      member.headless === headless &&
      member.durable === durable &&
      member.incarnation === incarnation;
    // What it measured and held was of a process that may have ended.
    if (!same) this.submit({ kind: 'MemberJoined', peer, name, compute, headless, durable, incarnation });
    this.tend();
  }

  /** What a member wants to say in its own name. Raises BadCommand. */
  proposal(peer: string, { command }: ProposeRequest): Command {
    spend(this.proposals, peer, MAX_PROPOSALS);
    return decodeCommand(bytesOf(command));
  }

  /** Takes such a command, whose signature was checked if it has one. Raises BadCommand. */
  propose(peer: string, command: Command): void {
    const why =
      maySay(this.state, peer, command) ||
      refusal(this.state, command) ||
      tooNew(command, this.log.status.config.voters, (each) => this.around.speaks(each));
    if (why !== '') throw new BadCommand(`propose: ${why}`);
    if (command.kind !== 'CutsFixed') this.submit(command);
    else {
      this.publish(this.core.setCuts(command.cuts));
      this.planIfWanted();
    }
  }

  /** What a member itself measured or holds. */
  private reported(peer: string, spelled: string, kinds: readonly OwnWord['kind'][]): void {
    spend(this.spent, peer, MAX_COMMANDS);
    const said = decodeCommand(bytesOf(spelled));
    if (!isOneOf(said, kinds)) throw new BadCommand(`expected a ${kinds[0] ?? ''} of this peer itself`);
    const command = this.core.told(peer, said);
    if (command !== null) this.submit(command);
  }

  private lendsLess(command: MemberDraining | MemberPaused): void {
    const { peer } = command;
    spend(this.spent, peer, MAX_COMMANDS);
    const before = this.state.members.get(peer);
    const after = apply(this.state, command).members.get(peer);
    // It lends nothing anyway, or said so before.
    if (after?.status !== before?.status || after?.reason !== before?.reason) this.submit(command);
  }

  // --- work

  /** What `peer` says was computed for it: it pays. */
  private work(peer: string, { entries }: WorkRequest): void {
    const { members, ledger } = this.state;
    spend(this.spent, peer, MAX_COMMANDS);
    const known = entries.filter((claim) => members.has(claim.peer) || ledger.balances.has(claim.peer));
    const own = this.core.unitCosts();
    const further = this.costsByMark();
    const works = known.flatMap((claim) => {
      const mark = claim.session.slice(0, 2 * MARK_BYTES);
      const costs = further.has(mark) ? (further.get(mark) ?? null) : own;
      return costs === null ? [] : [priced(claim, peer, costs)]; // what no manifest is known for yet is said again
    });
    this.till.put(works);
  }

  /** What units of further models cost, by what the ids of their sessions begin with; null: not known yet. */
  private costsByMark(): ReadonlyMap<string, readonly number[] | null> {
    return new Map(
      [...this.state.decoders].map(([name, { model }]) => [
        markOf(name, model),
        this.decoders?.unitCosts(name, model) ?? null,
      ]),
    );
  }

  /** Has the log take what counts of the work that askers said. */
  private bill(): void {
    const { state } = this;
    const batch = this.till.batch();
    const { why } = tally(state.ledger, batch);
    const entries = batch.filter((_, at) => why[at] === '');
    const command: Command = { kind: 'WorkRecorded', entries };
    if (entries.length > 0 && refusal(state, command) === '') this.submit(command);
  }

  // --- the log

  private publish(commands: readonly Command[]): void {
    for (const command of commands) {
      const proposal = this.log.propose(encodeCommand(command));
      this.last = proposal;
      proposal.catch(() => {
        if (this.closed) return;
        this.closed = true;
        this.around.failed();
      });
    }
    this.decoders?.look();
    this.placing?.look();
  }

  // --- plans

  private planIfWanted(): void {
    if (this.planning || this.closed) return; // looked at again when that run is done
    const wanted = this.core.wanted();
    if (wanted === null) return;
    clearTimeout(this.again);
    this.planning = true;
    void this.plan(wanted)
      .catch(reportError)
      .finally(() => {
        this.planning = false;
      })
      .then(() => this.planIfWanted());
  }

  private async plan(wanted: Wanted): Promise<void> {
    const byHand = this.core.byHand(wanted.request);
    const found = byHand === null ? await this.asked(wanted.request) : await this.doubled(wanted, byHand);
    if (this.closed) return;
    if (found !== null) {
      this.publish(this.core.planned(wanted, found));
      return;
    }
    // Nobody plans now; what serves, serves on.
    this.again = setTimeout(() => {
      this.core.unplanned(wanted);
      this.planIfWanted();
    }, PLAN_AGAIN_MS);
  }

  /** A plan whose borders were fixed by hand, with standbys as the planner places them where it answers. */
  private async doubled({ request }: Wanted, byHand: Planned): Promise<Planned> {
    if (byHand.kind === 'infeasible') return byHand;
    const { plan } = byHand;
    const answer = await this.asked({ ...request, serving: { stages: plan.stages, lost: false, first: [] } });
    const kept = answer?.kind === 'plan' ? (answer.beside?.kept ?? null) : null;
    return kept === null ? byHand : { ...byHand, plan: { ...kept, why: [...plan.why, ...kept.why] } };
  }

  private async asked(request: PlanRequest): Promise<Planned | null> {
    try {
      return await this.around.plan(request);
    } catch (error) {
      if (!(error instanceof PeerError)) throw error;
      return { kind: 'infeasible', reason: error.message };
    }
  }
}

type OwnWord = MemberMeasured | UnitsHeld | DecoderHeld; // what a member says of itself

function isOneOf(command: Command, kinds: readonly OwnWord['kind'][]): command is OwnWord {
  return kinds.some((kind) => kind === command.kind);
}

type Spent = Map<string, { readonly sinceMs: number; readonly count: number }>;

/** Every command goes to every member: nobody may send them in floods. Raises BadCommand. */
function spend(all: Spent, peer: string, most: number): void {
  const now = nowMs();
  const known = all.get(peer);
  const { sinceMs, count } =
    known !== undefined && now - known.sinceMs <= COMMANDS_MS ? known : { sinceMs: now, count: 0 };
  if (count >= most) {
    throw new BadCommand(`expected at most ${most} reports in ${COMMANDS_MS / 1000} s; slow down`);
  }
  all.set(peer, { sinceMs, count: count + 1 });
}

function nowMs(): number {
  return Math.floor(performance.now());
}

/** Fit to be shown, and of a length that the log takes. */
function reasonOf(text: string): string {
  return [...text.replace(UNSHOWN, '\ufffd')].slice(0, MAX_REASON).join('');
}

function bytesOf(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}
