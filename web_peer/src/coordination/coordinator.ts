/*
 * Decides, on the one peer that coordinates: who is in, when to plan anew, when a plan takes over (twin of
 * peer/coordination/coordinator.py). A tab evaluates no plans: the planning service that it asks says what a plan is
 * worth beside the stages that serve.
 *
 * Pure: commands and planner results in, commands for the log out. `state` runs ahead of the log by what is not
 * committed yet.
 */

import { BadCommand } from '../errors';
import { heldPlan, type Held, planOf } from './held_plan';
import { apply, isAway, type MeshState, readyFor, serving } from '../state/mesh_state';
import type { Command } from '../state/member_commands';
import { computingIn, holdersOf, sliceKey, slicesOf, teamOf } from '../state/plan_record';
import type {
  DecoderHeld,
  HeldSlice,
  LinkFacts,
  MemberMeasured,
  PlanRecord,
  PlanStage,
  UnitsHeld,
} from '../state/generated/commands';
import { MAX_SHARE } from '../state/generated/commands';
import { byBytes } from '../wire/utf8_order';
import {
  type Beside,
  type PlannerUnit,
  type Planned,
  planRequest,
  type PlanRequest,
  readyToServe,
  type Serving,
  type SharedRun,
  type Unnumbered,
  unusable,
} from './plan_request';
import { unitCosts } from '../audit/receipts';
import { type News, newsOf, Relief, shown } from './rebalance';
import { repairOrder } from './repair_order';

const WORTH_MOVING = 0.95; // where a service compares no plans: below this share of the time that was predicted
const SLOWEST_RTT_US = 60_000_000; // a link slower than these is as good as none, whoever measured it
const SLOWEST_BYTES_PER_S = 1000;
const MAX_REASON = 500;
const LENDS_LESS: ReadonlySet<string> = new Set([
  'MemberDraining',
  'MemberPaused',
  'MemberLeaving',
  'MemberLeft',
  'CheckFailed',
]);
const PLANNED_ANEW: ReadonlySet<string> = new Set([
  ...LENDS_LESS,
  'MemberMeasured',
  'PeerPardoned',
  'ProtectionChosen',
  'CutsFixed',
  'PlanWished',
]); // a plan made after these is not for somebody's pace alone
const KEPT = 'The stages stay; who stands by for them has changed.';
const COPIES = 'Copies: '; // how a sentence on those who stand by begins
export const SILENT = 'it does not answer'; // the reason of a member that the coordinator itself drains

/** A planner run to make. */
export interface Wanted {
  readonly request: PlanRequest;
  readonly key: string; // what the request was made of; a result for an older key is dropped
}

/** The log's writer: turns requests, losses and plans into commands, and obeys them itself at once. */
export class Coordinator {
  readonly me: string;
  state: MeshState; // what all commands so far build, those of the coordinators before among them
  private readonly units: readonly PlannerUnit[];
  private plannedKey = '';
  private joined: readonly string[]; // order of joining, for hand-made cuts
  private needed = false; // no plan exists without the members that drain
  private readonly waiting = new Set<string>(); // lost members that may come back before anything is planned anew
  private readonly relief = new Relief();
  private looked: { readonly wanted: Wanted; readonly beside: Beside } | null = null; // for somebody's pace
  private paced = false; // what is planned anew is for somebody's pace alone
  private pending = false; // something came since the last plan was made
  private stays = false; // and it was surroundings alone: who serves stays, others may stand by

  private shared: readonly SharedRun[];

  /** `shared`: where other models have the weights of these units loaded. */
  constructor(
    me: string,
    units: readonly PlannerUnit[],
    state: MeshState,
    shared: readonly SharedRun[] = [],
  ) {
    this.me = me;
    this.units = units;
    this.shared = shared;
    this.state = state;
    this.joined = [...state.members.keys()];
  }

  /** Fixes the borders by hand, or with null hands them back to the planner. Raises BadCommand on bad borders. */
  setCuts(cuts: readonly number[] | null): readonly Command[] {
    if (cuts !== null) checkCuts(cuts, this.units.length);
    this.plannedKey = '';
    return JSON.stringify(cuts) === JSON.stringify(this.state.cuts)
      ? []
      : this.submit({ kind: 'CutsFixed', cuts });
  }

  /**
   * What `sender` says of itself as it may enter the log; null when the log has it already.
   *
   * Raises BadCommand. Whatever passes can be planned with, so that no member can stop the planner.
   */
  told(sender: string, command: MemberMeasured | UnitsHeld | DecoderHeld): Command | null {
    const member = this.state.members.get(sender);
    if (member?.compute !== true || command.peer !== sender) {
      throw new BadCommand('expected what a member that computes says of itself');
    }
    if (command.kind === 'DecoderHeld') {
      const { name, held } = command;
      const decoder = this.state.decoders.get(name);
      const units = decoder?.units ?? 0;
      if (held.length > units || held.some(({ stop }) => stop > units)) {
        throw new BadCommand(`held: expected runs of the ${units} units of ${name}`);
      }
      return JSON.stringify(held) === JSON.stringify(decoder?.held.get(sender) ?? []) ? null : command;
    }
    if (command.kind === 'UnitsHeld') {
      const most = this.state.model === null ? 0 : this.units.length;
      if (command.held.length > most || command.held.some(({ stop }) => stop > most)) {
        throw new BadCommand(`held: expected runs of the model's ${most} units`);
      }
      const slices = command.slices ?? [];
      if (slices.length > most || !slices.every((part) => isSliceable(part, most))) {
        throw new BadCommand(`slices: expected parts of the model's ${most} units`);
      }
      const known = JSON.stringify([member.held, (member.slices ?? []).map(sliceKey)]);
      return JSON.stringify([command.held, slices.map(sliceKey)]) === known ? null : command;
    }
    const { profile } = command;
    const kinds = new Set<string>(this.units.map(({ kind }) => kind));
    for (const table of [profile.decodeNs, profile.prefillNs, profile.batchNs]) {
      if ([...table.keys()].some((kind) => !kinds.has(kind))) {
        throw new BadCommand(`profile: expected times of ${[...kinds].sort(byBytes).join(', ')} only`);
      }
    }
    const links = command.links.filter((link) => this.usable(sender, link));
    const kept: MemberMeasured = { ...command, links };
    const planned = readyToServe(apply(this.state, kept)).some(({ peer }) => peer === sender);
    const why = planned ? unusable(profile, this.units) : '';
    if (why !== '') throw new BadCommand(`profile: ${why}`);
    return kept;
  }

  /** Raises BadCommand for a link between others. One to a peer that left meanwhile is not worth an error. */
  private usable(sender: string, { src, dst, rttUs, bytesPerS, overheadUs }: LinkFacts): boolean {
    if (sender !== src && sender !== dst) {
      throw new BadCommand('links: expected links of the peer that measured them');
    }
    const other = sender === src ? dst : src;
    const fast = Math.max(rttUs, overheadUs) <= SLOWEST_RTT_US && bytesPerS >= SLOWEST_BYTES_PER_S;
    return other !== sender && this.state.members.has(other) && fast;
  }

  /** Applies `command` and whatever follows from it at once; returns all of them in log order. */
  submit(command: Command): readonly Command[] {
    if (PLANNED_ANEW.has(command.kind)) this.heard(newsOf(this.state, command));
    const awaited = this.worthWaiting(command);
    this.apply(command);
    if (awaited !== null) this.waiting.add(awaited);
    const lendsLess = LENDS_LESS.has(command.kind);
    if (lendsLess || command.kind === 'MemberMeasured') this.needed = false;
    return [command, ...(lendsLess ? this.quick() : []), ...this.followUps()];
  }

  private heard(news: News): void {
    if (news !== 'surroundings') {
      this.paced = news === 'pace';
      this.looked = null;
    }
    this.stays = news === 'surroundings' && (this.stays || !this.pending);
    this.pending = true;
  }

  /** What follows from the state that another coordinator left behind. */
  goOn(): readonly Command[] {
    return [...this.quick(), ...this.followUps()];
  }

  /**
   * Takes a state that another coordinator builds, which this one plans a further model in, and where other models have
   * its weights loaded; what follows from it at once.
   */
  follow(state: MeshState, shared: readonly SharedRun[] = []): readonly Command[] {
    const before = standing(this.state);
    this.state = state;
    this.shared = shared;
    if (before === standing(state)) return this.followUps();
    this.needed = false;
    return this.goOn();
  }

  /** `peer` was waited for long enough: what follows from its loss, unless it is back. */
  stopWaiting(peer: string): readonly Command[] {
    return this.waiting.delete(peer) ? this.goOn() : [];
  }

  /** Lost members that are waited for. */
  get awaited(): ReadonlySet<string> {
    return this.waiting;
  }

  /** Who is lost by `command`, not politely, from the plan that serves, where the strategy is to wait first. */
  private worthWaiting(command: Command): string | null {
    if (command.kind !== 'MemberLeft' || this.state.protection.strategy !== 'simple') return null;
    const member = this.state.members.get(command.peer);
    const plan = serving(this.state);
    const impolite = member !== undefined && !isAway(member);
    return impolite && plan !== null && computingIn(plan).has(command.peer) ? command.peer : null;
  }

  private quick(): readonly Command[] {
    const quick = this.waiting.size > 0 ? null : this.withoutLoading();
    if (quick === null) return [];
    this.apply(quick);
    return [quick];
  }

  private followUps(): readonly Command[] {
    const log: Command[] = [];
    for (let follow = this.followUp(); follow !== null; follow = this.followUp()) {
      log.push(follow);
      this.apply(follow);
    }
    return log;
  }

  /** The planner run that the present members call for, unless it was made already. */
  wanted(): Wanted | null {
    const { model, cuts, wish, protection } = this.state;
    if (model === null || this.waiting.size > 0) return null;
    const spared = this.needed ? new Set<string>() : this.draining();
    const ready = readyToServe(this.state).filter(({ peer }) => !spared.has(peer));
    if (ready.length === 0 && spared.size > 0) {
      this.needed = true;
      return this.wanted();
    }
    if (ready.length === 0) return null; // nobody has measured yet
    const known = ready.map(({ peer, profile }) => [peer, profile === null ? null : shown(profile)]);
    const { shared } = this;
    const key = JSON.stringify([model, cuts, wish, protection, this.lost().length > 0, known, shared]);
    if (key === this.plannedKey) return null;
    this.plannedKey = key;
    const here = new Set(ready.map(({ peer }) => peer));
    return { request: planRequest(this.state, this.units, spared, this.stagesNow(here), shared), key };
  }

  /** The stages that serve, or of the plan that can serve no more, of whose peers some are not `here`. */
  private stagesNow(here: ReadonlySet<string>): Serving | null {
    const { priority, together } = this.state.protection;
    const stages = this.lost();
    if (stages.length === 0) {
      const present = serving(this.state);
      return present === null ? null : { stages: present.stages, lost: false, first: [] };
    }
    const gone = stages.flatMap((stage, place) =>
      teamOf(stage).every((peer) => here.has(peer)) ? [] : [place],
    );
    const names = this.units.map(({ name }) => name);
    return { stages, lost: true, first: repairOrder(gone, stages, names, priority, together) };
  }

  /** The members are planned with once more; the result counts as one for somebody's pace alone. */
  private reconsider(): void {
    this.plannedKey = '';
    this.looked = null;
    this.stays = false;
    this.paced = this.pending = true;
  }

  /** The plan for cuts fixed by hand: the stages in order of joining. Null when the planner decides. */
  byHand(request: PlanRequest): Planned | null {
    const { cuts, plan } = this.state;
    if (cuts === null) return null;
    const borders = [0, ...cuts, this.units.length];
    const runs = borders.slice(1).map((stop, at) => ({ first: borders[at] ?? 0, stop }));
    const here = new Set(request.peers.map(({ peer }) => peer));
    const present = this.joined.filter((peer) => here.has(peer));
    if (present.length < runs.length) {
      const wanted = `need ${runs.length} peers, here: ${present.length}`;
      return { kind: 'infeasible', reason: `the cuts [${cuts.join(', ')}] ${wanted}` };
    }
    const now = plan?.stages ?? [];
    const same = now.length === runs.length && runs.every(({ first }, at) => now[at]?.first === first);
    let stay = runs.map((_, at) => {
      const primary = same ? now[at]?.primary : undefined;
      return primary !== undefined && here.has(primary) ? primary : null;
    });
    const staying = stay.filter((peer) => peer !== null);
    if (new Set(staying).size < staying.length) stay = runs.map(() => null); // after a loss one peer served several
    const others = present.filter((peer) => !stay.includes(peer));
    const places = runs.map((run, at) => ({ ...run, primary: stay[at] ?? others.shift() ?? '' }));
    const why = `The borders [${cuts.join(', ')}] were fixed by hand; stages go to peers in the order they joined.`;
    const found = planOf(request, places, this.held(), [why]);
    if (found !== null) {
      const stages = found.stages.map((stage, at) => {
        const before = same && now[at]?.primary === stage.primary ? now[at].standbys : [];
        const standbys = new Set([...before.filter((peer) => here.has(peer)), ...stage.standbys]);
        return { ...stage, standbys: [...standbys] };
      });
      return { kind: 'plan', plan: { ...found, stages }, beside: null };
    }
    return {
      kind: 'infeasible',
      reason: `the cuts [${cuts.join(', ')}] cannot be served: no room, or no link`,
    };
  }

  /** What a planner run leads to: a proposal, a refusal, or nothing when the present plan is as good. */
  planned(wanted: Wanted, result: Planned): readonly Command[] {
    if (wanted.key !== this.plannedKey) return [];
    if (result.kind === 'infeasible') {
      if (this.draining().size > 0 && !this.needed) {
        this.needed = true; // they serve on; looked at again when somebody comes
        this.plannedKey = '';
        return [];
      }
      const serves = serving(this.state) !== null;
      return serves ? [] : this.submit({ kind: 'PlanRefused', reason: result.reason.slice(0, MAX_REASON) });
    }
    const present = serving(this.state);
    const { plan, beside } = result;
    if (present !== null && this.state.cuts === null && !this.isOf(wanted, present)) {
      this.plannedKey = ''; // other stages serve than those that it was compared with
      return [];
    }
    const stays = this.stays && present !== null;
    this.pending = this.stays = false;
    if (present === null) return this.proposed(plan);
    if (beside === null) return this.unlike(present, plan, wanted);
    if (this.paced && !stays) {
      this.looked = { wanted, beside };
      return [];
    }
    const kept = stays || !beside.better ? withReasons(present, beside.kept) : null;
    return sameHolders(kept ?? plan, present) ? [] : this.proposed(kept ?? plan);
  }

  /** Called often: a plan for peers that became slower or faster, once what it gains has held for a while. */
  relieve(nowMs: number): readonly Command[] {
    const present = serving(this.state);
    if (this.looked === null || present === null || this.state.proposed !== null) return [];
    const { wanted, beside } = this.looked;
    if (!this.isOf(wanted, present) || !this.isHeldAsIn(wanted)) {
      this.reconsider(); // the step was reckoned for other stages, or for units that others hold
      return [];
    }
    const plan = this.relief.check(nowMs, beside.relief);
    if (plan !== null || this.relief.over) this.looked = null;
    return plan === null ? [] : this.proposed(plan);
  }

  private proposed(plan: Unnumbered): readonly Command[] {
    return this.submit({ kind: 'PlanProposed', plan: this.numbered(plan) });
  }

  /** Whether the service was asked beside the stages that serve now. */
  private isOf({ request }: Wanted, present: PlanRecord): boolean {
    return request.serving !== null && sameStages(request.serving, present);
  }

  private isHeldAsIn({ request }: Wanted): boolean {
    const runs = ({ members }: MeshState): string =>
      JSON.stringify(request.peers.map(({ peer }) => members.get(peer)?.held ?? []));
    return runs(request.state) === runs(this.state);
  }

  /** A plan that nobody compared with the one that serves: borders fixed by hand, or the word of an older service. */
  private unlike(present: PlanRecord, plan: Unnumbered, wanted: Wanted): readonly Command[] {
    if (!sameStages(plan, present) && this.goodEnough(present, plan, wanted)) return [];
    return sameHolders(plan, present) ? [] : this.proposed(plan);
  }

  /** No planner answers: this run may be asked for again. */
  unplanned(wanted: Wanted): void {
    if (wanted.key === this.plannedKey) this.plannedKey = '';
  }

  /** What the units cost beside one another, as the members measured them. */
  unitCosts(): readonly number[] {
    const profiles = [...this.state.members.values()].flatMap(({ profile }) =>
      profile === null ? [] : [profile.decodeNs],
    );
    return unitCosts(
      this.units.map(({ kind }) => kind),
      profiles,
    );
  }

  private goodEnough(present: PlanRecord, fresh: Unnumbered, { request }: Wanted): boolean {
    if (this.state.cuts !== null) return false;
    const here = new Set(request.peers.map(({ peer }) => peer));
    if ([...computingIn(present)].some((peer) => !here.has(peer))) return false; // a member of it drains
    if (covered(fresh) > covered(present)) return false; // nobody else places standbys
    return request.state.model?.objective === 'throughput'
      ? fresh.predictedRateMilli * WORTH_MOVING <= present.predictedRateMilli
      : fresh.predictedTokenUs >= present.predictedTokenUs * WORTH_MOVING;
  }

  /** After a loss: a plan over units that the others hold already, which can serve at once. */
  private withoutLoading(): Command | null {
    const { state } = this;
    const lost = this.lost();
    if (state.model === null || lost.length === 0) return null;
    const found = heldPlan(
      planRequest(state, this.units, this.silent(), null, this.shared),
      this.held(),
      lost,
    );
    if (found === null) return null;
    const borders = found.stages.slice(0, -1).map(({ stop }) => stop);
    if (state.cuts !== null && JSON.stringify(borders) !== JSON.stringify(state.cuts)) return null;
    return { kind: 'PlanProposed', plan: this.numbered(found) };
  }

  /** The stages of the last plan when it can no longer serve, or only with somebody who is silent; else none. */
  private lost(): readonly PlanStage[] {
    const { plan } = this.state;
    if (plan === null) return [];
    const present = serving(this.state);
    const silent = this.silent();
    if (present !== null && ![...computingIn(present)].some((peer) => silent.has(peer))) return [];
    return plan.stages;
  }

  private silent(): ReadonlySet<string> {
    return this.those(({ status, reason }) => status === 'draining' && reason === SILENT);
  }

  private draining(): ReadonlySet<string> {
    return this.those(({ status }) => status === 'draining');
  }

  private those(which: (member: { status: string; reason: string }) => boolean): ReadonlySet<string> {
    return new Set([...this.state.members.values()].filter(which).map(({ peer }) => peer));
  }

  private held(): Held {
    return new Map([...this.state.members].map(([peer, { held }]) => [peer, held]));
  }

  private numbered(plan: Unnumbered): PlanRecord {
    return { ...plan, version: this.state.lastVersion + 1 };
  }

  private followUp(): Command | null {
    const { proposed, members } = this.state;
    if (proposed === null) return null;
    if ([...computingIn(proposed)].some((peer) => !members.has(peer))) {
      return { kind: 'PlanRefused', reason: 'a peer of the next plan is gone' };
    }
    return readyFor(this.state, proposed) ? { kind: 'PlanActivated', version: proposed.version } : null;
  }

  private apply(command: Command): void {
    this.state = apply(this.state, command);
    const { members } = this.state;
    if (this.waiting.size > 0 && serving(this.state) !== null) this.waiting.clear();
    const stay = this.joined.filter((peer) => members.has(peer));
    this.joined = [...stay, ...[...members.keys()].filter((peer) => !stay.includes(peer))];
  }
}

function standing({ members }: MeshState): string {
  return JSON.stringify([...members.values()].map(({ peer, status }) => [peer, status]));
}

/** The plan that serves with others who stand by, `kept`. */
function withReasons({ why, choices }: PlanRecord, kept: Unnumbered | null): Unnumbered | null {
  if (kept === null) return null;
  const reasons = why.filter((each) => each !== KEPT && !each.startsWith(COPIES));
  return { ...kept, why: [...reasons, ...kept.why, KEPT], choices };
}

/** How many stages have somebody who stands by. */
function covered({ stages }: Unnumbered): number {
  return stages.filter(({ standbys }) => standbys.length > 0).length;
}

function sameStages(one: Pick<PlanRecord, 'stages'>, other: Pick<PlanRecord, 'stages'>): boolean {
  const bare = ({ stages }: Pick<PlanRecord, 'stages'>): string =>
    JSON.stringify(
      stages.map((stage) => [stage.first, stage.stop, ...teamOf(stage), ...(stage.shares ?? [])]),
    );
  return bare(one) === bare(other);
}

function sameHolders(one: Unnumbered, other: Unnumbered): boolean {
  const all = (plan: Unnumbered): string =>
    JSON.stringify(
      [...holdersOf(plan)]
        .map(([peer, runs]) => [peer, runs.map(({ first, stop }) => `${first}-${stop}`).sort()] as const)
        .sort(([a], [b]) => byBytes(a, b)),
    );
  const cut = (plan: Unnumbered): string =>
    JSON.stringify(
      [...slicesOf(plan)]
        .map(([peer, parts]) => [peer, parts.map(sliceKey).sort()] as const)
        .sort(([a], [b]) => byBytes(a, b)),
    );
  return all(one) === all(other) && cut(one) === cut(other);
}

function isSliceable({ first, stop, place, shares }: HeldSlice, units: number): boolean {
  const isCut = place < shares.length && shares.every((share) => share > 0 && share <= MAX_SHARE);
  return first < stop && stop <= units && isCut;
}

/** Raises BadCommand unless `cuts` are rising borders inside a model of `units` units. */
function checkCuts(cuts: readonly number[], units: number): void {
  const rises = cuts.every((cut, at) => cut > (cuts[at - 1] ?? 0));
  if (!rises || cuts.some((cut) => cut >= units)) {
    throw new BadCommand(`cuts must rise and lie between 1 and ${units - 1}, got [${cuts.join(', ')}]`);
  }
}
