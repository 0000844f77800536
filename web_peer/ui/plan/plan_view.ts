/*
 * What the page shows of the plan in force: who computes what and how long it takes, what lies in whose memory, and
 * what the loss of each peer would mean. Pure: from the state that every member has and what peers report of
 * themselves.
 */

import { computeNs, heldPlan, hopNs } from '../../src/coordination/held_plan';
import { named, nameOf, names as namesIn } from '../../src/state/display_names';
import { type MeshState, isAway, serving } from '../../src/state/mesh_state';
import type { Run as StateRun } from '../../src/state/plan_record';
import type { PlanRecord, Profile } from '../../src/state/generated/commands';
import {
  planRequest,
  type PlannerUnit,
  type PlanRequest,
  stageBytes,
} from '../../src/coordination/plan_request';
import { readable } from '../mesh/members_view';
import { choicesOf, comparedChoices } from './plan_alternatives';
import type { Report } from '../mesh/reports';
import type { HopView, LossView, MemoryView, PlanView, StageView } from '../app/view';
import { bytesText, runText } from '../kit/formatting';

const MOST_LOSSES = 24; // peers whose loss is thought through; a plan seldom has as many

/** What this tab knows beyond the state. */
export interface PlanSeen {
  readonly me: string;
  readonly coordinator: string | null;
  readonly voters: readonly string[];
  readonly units: readonly PlannerUnit[]; // [] before the model is known
  readonly reports: ReadonlyMap<string, Report>; // this tab's own among them
  readonly rttS: ReadonlyMap<string, number>; // of this tab's own connections
  readonly answer: { readonly route: readonly string[]; readonly tokensPerS: number } | null; // the last one
}

interface Known {
  readonly state: MeshState;
  readonly seen: PlanSeen;
  readonly names: ReadonlyMap<string, string>;
  readonly request: PlanRequest;
}

/** The plan in force; null where there is none. */
export function planView(state: MeshState, seen: PlanSeen): PlanView | null {
  const { plan, model } = state;
  if (plan === null || model === null) return null;
  const names = namesIn(state.members.values());
  const known: Known = { state, seen, names, request: planRequest(state, seen.units) };
  const stages = plan.stages.map((stage) => stageView(known, stage));
  const hops = plan.stages.length < 2 ? [] : plan.stages.map((_, at) => hopView(known, plan, at));
  const nowMs = reckoned(stages, hops) ?? plan.predictedTokenUs / 1000;
  const compared = comparedChoices(
    plan,
    model.units,
    (peer) => called(known, peer),
    (text) => named(text, names),
  );
  return {
    version: plan.version,
    serves: serving(state) !== null,
    strategy: strategyText(state),
    goal: state.wish?.goal ?? model.objective,
    sessions: model.sessions,
    context: model.context,
    tokenMs: plan.predictedTokenUs / 1000,
    nowMs,
    allPerS: plan.predictedRateMilli / 1000,
    measuredMs: answeredMs(plan, seen),
    stages,
    hops,
    memory: memoryViews(known, plan),
    losses: lossViews(known, plan, nowMs),
    choices:
      compared.length > 1 ? compared : choicesOf(state, seen.units, plan, (peer) => called(known, peer)),
    comparedBy: compared.length > 1 ? 'planner' : 'tab',
    why: plan.why.map((sentence) => readable(sentence, names, model.units)),
    next: nextText(known),
  };
}

/** All stages and hops together; null where one of them is not known. */
function reckoned(stages: readonly StageView[], hops: readonly HopView[]): number | null {
  const times = [...stages, ...hops].map(({ predictedMs }) => predictedMs);
  return times.reduce((all, ms) => (all === null || ms === null ? null : all + ms), 0);
}

/** What a token of the last answer took, if it went over the stages of `plan`. */
function answeredMs({ stages }: PlanRecord, { answer }: PlanSeen): number | null {
  if (answer === null || answer.tokensPerS <= 0) return null;
  const same = answer.route.join() === stages.map(({ primary }) => primary).join();
  return same ? 1000 / answer.tokensPerS : null;
}

function strategyText({ wish, cuts }: MeshState): string {
  if (cuts !== null) return 'cut by hand';
  return wish?.strategy ?? 'optimal';
}

function called({ names, seen }: Known, peer: string): string {
  return peer === seen.me ? 'this tab' : nameOf(peer, names);
}

function profileOf({ state }: Known, peer: string): Profile | null {
  return state.members.get(peer)?.profile ?? null;
}

function holds({ state }: Known, peer: string, { first, stop }: StateRun): boolean {
  return state.members.get(peer)?.held.some((run) => run.first === first && run.stop === stop) ?? false;
}

// --- stages and hops

function stageView(known: Known, stage: PlanRecord['stages'][number]): StageView {
  const { state, seen, request } = known;
  const { first, stop, primary } = stage;
  const member = state.members.get(primary);
  const profile = member?.profile ?? null;
  const steps = seen.reports.get(primary)?.stepUs ?? [];
  const measured = steps.find(([from, to]) => from === first && to === stop)?.[2];
  const knowsUnits = request.units.length >= stop;
  return {
    peer: primary,
    name: nameOf(primary, known.names),
    you: primary === seen.me,
    here: member !== undefined && !isAway(member) && holds(known, primary, stage),
    run: [first, stop],
    units: runText([first, stop], state.model?.units ?? 0),
    predictedMs: profile === null || !knowsUnits ? null : computeNs(request, profile, first, stop) / 1e6,
    measuredMs: measured === undefined ? null : measured / 1000,
    standbys: stage.standbys.map((peer) => ({
      name: called(known, peer),
      ready: holds(known, peer, stage),
    })),
  };
}

function hopView(known: Known, { stages }: PlanRecord, at: number): HopView {
  const { state, request } = known;
  const [src, dst] = [stages[at]?.primary ?? '', stages[(at + 1) % stages.length]?.primary ?? ''];
  const border = stages[at]?.stop ?? 0;
  const link = state.links.find((each) => each.src === src && each.dst === dst);
  const ns = hopNs(request, src, dst, border);
  return {
    from: called(known, src),
    to: called(known, dst),
    back: at + 1 === stages.length,
    predictedMs: ns === null ? null : ns / 1e6,
    roundTripMs:
      src === dst ? 0 : (roundTripMs(known, src, dst) ?? (link === undefined ? null : link.rttUs / 1000)),
    bytes: request.units[border - 1]?.outBytesPerToken ?? 0,
    bytesPerS: link?.bytesPerS ?? 0,
  };
}

/** As those at its ends measure it now. */
function roundTripMs({ seen }: Known, a: string, b: string): number | null {
  const own = a === seen.me ? seen.rttS.get(b) : b === seen.me ? seen.rttS.get(a) : undefined;
  const told = [own, seen.reports.get(a)?.rttS.get(b), seen.reports.get(b)?.rttS.get(a)];
  const found = told.find((rttS) => rttS !== undefined && rttS > 0);
  return found === undefined ? null : found * 1000;
}

// --- memory

/** The runs that the plan gives a peer: those it serves, and those it only stands by for. */
function runsOf(
  plan: PlanRecord,
  peer: string,
): { readonly serves: readonly StateRun[]; readonly spare: readonly StateRun[] } {
  const serves = plan.stages.filter(({ primary }) => primary === peer);
  const spare = plan.stages.filter(({ primary, standbys }) => primary !== peer && standbys.includes(peer));
  return { serves, spare };
}

function memoryViews(known: Known, plan: PlanRecord): readonly MemoryView[] {
  const { state, seen, request } = known;
  const order = plan.stages.map(({ primary }) => primary);
  const place = (peer: string): number => (order.includes(peer) ? order.indexOf(peer) : order.length);
  const lenders = [...state.members.values()].flatMap(({ peer, profile, compute }) =>
    compute && profile !== null ? [{ peer, profile }] : [],
  );
  return lenders
    .sort((a, b) => place(a.peer) - place(b.peer) || (a.peer < b.peer ? -1 : 1))
    .map(({ peer, profile }) => {
      const { serves, spare } = runsOf(plan, peer);
      const sizes = serves.map(({ first, stop }) => stageBytes(request, profile, first, stop));
      const spares = spare.map(({ first, stop }) => stageBytes(request, profile, first, stop));
      const report = seen.reports.get(peer);
      return {
        peer,
        name: known.names.get(peer) ?? '',
        you: peer === seen.me,
        pledge: profile.memoryBytes,
        weights: sum(sizes.map(({ weightBytes }) => weightBytes)),
        kv: sum(sizes.map(({ kvBytes }) => kvBytes)),
        standby: sum(spares.map(({ weightBytes, kvBytes }) => weightBytes + kvBytes)),
        scratch: serves.length + spare.length > 0 ? profile.overheadBytes : 0,
        inUse: report === undefined ? 0 : report.weightBytes + report.kvBytes,
      };
    });
}

const sum = (counts: readonly number[]): number => counts.reduce((a, b) => a + b, 0);

const freeBytes = ({ pledge, weights, kv, standby, scratch }: MemoryView): number =>
  Math.max(0, pledge - weights - kv - standby - scratch);

// --- losses

function lossViews(known: Known, plan: PlanRecord, nowMs: number): readonly LossView[] {
  if (known.request.units.length === 0) return [];
  const peers = new Set([
    ...plan.stages.map(({ primary }) => primary),
    ...plan.stages.flatMap(({ standbys }) => standbys),
    ...(known.seen.coordinator === null ? [] : [known.seen.coordinator]),
  ]);
  return [...peers]
    .filter((peer) => known.state.members.has(peer))
    .slice(0, MOST_LOSSES)
    .map((peer) => lossOf(known, plan, peer, nowMs));
}

function lossOf(known: Known, plan: PlanRecord, peer: string, nowMs: number): LossView {
  const { outcome, tokenMs, text } = answersWithout(known, plan, peer, nowMs);
  const name = known.names.get(peer) ?? '';
  const whole = [text, coordinationWithout(known, peer)].filter((each) => each !== '').join('; ');
  return { peer, name, you: peer === known.seen.me, outcome, tokenMs, text: `${sentence(whole)}.` };
}

const sentence = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);

type Without = Pick<LossView, 'outcome' | 'tokenMs' | 'text'>;

function answersWithout(known: Known, plan: PlanRecord, peer: string, nowMs: number): Without {
  const { state, seen } = known;
  const { serves, spare } = runsOf(plan, peer);
  if (serves.length === 0) {
    const text =
      spare.length > 0 ? 'only stands by: answers do not notice' : 'holds no part: answers do not notice';
    return { outcome: 'unnoticed', tokenMs: nowMs, text };
  }
  const request = planRequest(state, seen.units, new Set([peer]));
  const held = new Map(
    [...state.members].flatMap(([id, { held: runs }]) => (id === peer ? [] : [[id, runs] as const])),
  );
  const after = heldPlan(request, held, plan.stages);
  if (after !== null) {
    const takers = after.stages.flatMap(({ first, stop, primary }) =>
      serves.some((run) => run.first === first && run.stop === stop) ? [called(known, primary)] : [],
    );
    const who = [...new Set(takers)];
    const take =
      who.length === 0 ? 'others take' : `${who.join(' and ')} ${who.length > 1 ? 'take' : 'takes'}`;
    const text = `answers go on: ${take} over at once, nothing is loaded`;
    return { outcome: 'covered', tokenMs: after.predictedTokenUs / 1000, text };
  }
  const others = memoryViews(known, plan).filter((each) => each.peer !== peer);
  const needed = (profile: Profile): number =>
    sum(
      serves.map(({ first, stop }) => {
        const { weightBytes, kvBytes } = stageBytes(request, profile, first, stop);
        return weightBytes + kvBytes;
      }),
    );
  const roomy = others.find((each) => {
    const profile = profileOf(known, each.peer);
    return (
      profile !== null &&
      freeBytes(each) >= needed(profile) + (each.scratch === 0 ? profile.overheadBytes : 0)
    );
  });
  const mine = profileOf(known, peer);
  const lost = mine === null ? 0 : needed(mine);
  if (roomy !== undefined) {
    const text = `answers wait until ${called(known, roomy.peer)}, which has the room, has loaded ${bytesText(lost)}`;
    return { outcome: 'waits', tokenMs: null, text };
  }
  const room = sum(others.map(freeBytes));
  if (room >= lost) {
    return {
      outcome: 'waits',
      tokenMs: null,
      text: `answers wait until the others have shared ${bytesText(lost)} among them, if that can be`,
    };
  }
  return {
    outcome: 'stops',
    tokenMs: null,
    text: `no answers: ${bytesText(lost - room)} more would have to be lent`,
  };
}

function coordinationWithout(known: Known, peer: string): string {
  const { coordinator, voters } = known.seen;
  if (!voters.includes(peer)) return peer === coordinator ? 'another coordinator is chosen' : '';
  const left = voters.length - 1;
  const enough = 2 * left > voters.length;
  if (peer !== coordinator) return enough ? '' : `too few voters are left, ${left} of ${voters.length}`;
  if (enough) return 'another coordinator is chosen';
  return voters.length === 1
    ? 'nobody else coordinates, so nobody can come in until it is back'
    : `too few voters are left to choose another coordinator, ${left} of ${voters.length}`;
}

// --- the plan after this one

function nextText(known: Known): string {
  const { proposed, model } = known.state;
  if (proposed === null) return '';
  const waits = proposed.stages.filter((stage) => !holds(known, stage.primary, stage));
  const who = waits.map(
    ({ primary, first, stop }) =>
      `${called(known, primary)} for ${runText([first, stop], model?.units ?? 0)}`,
  );
  return who.length === 0
    ? `Plan ${proposed.version} is ready and takes over.`
    : `Plan ${proposed.version} is being loaded. It waits for ${who.join('; ')}.`;
}
