/* What the page shows of the mesh, from the state that every member has. Pure. */

import type { Status } from '../../src/consensus/events';
import { holdersOf, routeOf, type Run as StateRun } from '../../src/state/plan_record';
import { named, nameOf, names as namesIn } from '../../src/state/display_names';
import type { Member as StateMember } from '../../src/state/generated/commands';
import { type MeshState, serving } from '../../src/state/mesh_state';
import { LOADING, PAUSED, runsAny, whyNotReady } from '../../src/state/readiness';
import { seenAs } from '../../src/state/decoder_sight';
import { unserved } from '../../src/session/routes';
import { breakersSaid, delaysAmong, factsOf, standbysOf } from './member_card';
import { sharesOf } from './fairness_lines';
import type { Report } from './reports';
import type { AnsweringView, Coordination, LinkView, Member, MemberStatus, MeshView, Run } from '../app/view';
import { offeredUnitsText, runText } from '../kit/formatting';

const UNIT_RUN = /\bunits (\d+)-(\d+)/g;

/** What this tab knows beyond the state. */
export interface Seen {
  readonly me: string;
  readonly coordinator: string | null;
  readonly consensus: Pick<Status, 'term' | 'config' | 'commit' | 'last'> | null;
  readonly busy: ReadonlySet<string>; // members an answer goes through now
  readonly rttS: ReadonlyMap<string, number>; // of this tab's own connections
  readonly reports: ReadonlyMap<string, Report>; // what others say of themselves
  readonly stepsPerS: ReadonlyMap<string, number>; // of whoever works now
  readonly left: readonly StateMember[]; // gone a moment ago
  readonly online: boolean;
  readonly lost: boolean; // the coordinator is gone and its part of the model with it
  readonly unreached: ReadonlySet<string>; // members to whom this tab's connection ended
  readonly askable: ReadonlySet<string>; // further models that are known to take questions, by name
  readonly sees: ReadonlySet<string>; // models that can be asked with pictures, by name; "" the mesh's own
  readonly hears: ReadonlySet<string>; // models that write what is said, and answer nothing
}

/** `text` with names for peer ids, layers for units, and the form of a sentence. */
export function readable(text: string, names: ReadonlyMap<string, string>, units: number): string {
  const said = named(text.trim(), names).replace(UNIT_RUN, (whole, first: string, last: string) => {
    const words = units > 0 ? runText([Number(first), Number(last) + 1], units) : '';
    return words === '' ? whole : words;
  });
  if (said === '') return '';
  const sentence = said.charAt(0).toUpperCase() + said.slice(1);
  return /[.!?…]$/.test(sentence) ? sentence : `${sentence}.`;
}

/** What the page shows, from the state and from what this tab has `seen` itself. */
export function meshView(state: MeshState, seen: Seen): MeshView {
  const plan = serving(state);
  const everyone = [...state.members.values(), ...seen.left];
  const names = namesIn(everyone);
  const units = state.model?.units ?? 0;
  const route = plan === null ? [] : routeOf(plan);
  const wanted = holdersOf(state.proposed ?? state.plan ?? NO_PLAN);
  const gone = new Set(seen.left.map(({ peer }) => peer));
  const members = everyone.map((member) => {
    const { peer, profile } = member;
    const standsBy = gone.has(peer) ? [] : standbysOf(state.plan, member, names);
    const view = memberView(
      member,
      names.get(peer) ?? member.name,
      wanted.get(peer) ?? [],
      units,
      gone,
      seen,
    );
    const facts = factsOf({
      standsBy,
      report: seen.reports.get(peer) ?? null,
      stepsPerS: seen.stepsPerS.get(peer) ?? 0,
      delayMs: (seen.rttS.get(peer) ?? 0) * 1000,
      lentBytes: profile?.memoryBytes ?? 0,
      runsOn: view.runsOn,
      breakers: breakersSaid(peer, seen.reports, names),
      units,
      inWords: state.model !== null,
    });
    const all = [...facts, ...sharesOf(state, peer)];
    const runs = gone.has(peer) ? '' : runsText(state, peer);
    const doing = state.model === null && view.doing === '' ? runs : view.doing;
    return { ...view, doing, runs, standsBy, facts: view.status === 'gone' ? [] : all };
  });
  const hasOwn = state.model !== null || state.members.size === 0; // else nothing is known of it yet
  const models = answeringViews(state, names, seen);
  return {
    models,
    model: hasOwn ? modelName(state.model?.name ?? '') : labelOf(models),
    inWords: hasOwn || models.length > 0,
    hasOwn,
    runs: runsAny(state) && seen.online,
    units,
    context: state.model?.context ?? 0,
    members: members.sort((a, b) => order(a) - order(b) || (a.id < b.id ? -1 : 1)),
    links: linkViews(state, seen),
    route,
    answers: hasOwn ? canAnswer(state, seen) : models.some(({ answers }) => answers),
    whyNot: hasOwn ? whyNot(state, names, seen) : (models[0]?.whyNot ?? whyNot(state, names, seen)),
    coordination: coordinationOf(names, seen),
    writes: writerOf(state, seen),
  };
}

/** What further models are called together. */
function labelOf(models: readonly AnsweringView[]): string {
  const [first] = models;
  if (first === undefined) return '';
  return models.length === 1 ? first.label : `${models.length} models`;
}

/** The first model by name that would write now what is said. */
function writerOf(state: MeshState, seen: Seen): string {
  const names = [...seen.hears].sort();
  return names.find((name) => canAnswer(seenAs(state, name), { ...seen, lost: false })) ?? '';
}

/** Whether a question would be answered now by the model of `state`. */
function canAnswer(state: MeshState, { unreached, online, lost }: Seen): boolean {
  const plan = serving(state);
  return plan !== null && unserved(state, plan, unreached).length === 0 && online && !lost;
}

/**
 * The models that answer in words: the mesh's own, then further ones by their names. Where it has none of its own, a
 * further one counts once it is known to take questions.
 */
function answeringViews(
  state: MeshState,
  names: ReadonlyMap<string, string>,
  seen: Seen,
): readonly AnsweringView[] {
  const own = state.model;
  const viewOf = (name: string, label: string, sight: MeshState, around: Seen): AnsweringView => ({
    name,
    label,
    context: sight.model?.context ?? 0,
    answers: canAnswer(sight, around),
    whyNot: whyNot(sight, names, around),
    sees: seen.sees.has(name),
  });
  const further = [...state.decoders.keys()]
    .filter((name) => (own !== null || seen.askable.has(name)) && !seen.hears.has(name))
    .sort()
    .map((name) => viewOf(name, name, seenAs(state, name), { ...seen, lost: false }));
  return own === null ? further : [viewOf('', modelName(own.name), state, seen), ...further];
}

/** What `peer` runs of the models beside the mesh's own: "units 0–4 of detector". */
function runsText({ offers, decoders }: MeshState, peer: string): string {
  const plans = [...decoders].map(([name, { plan }]) => [name, plan?.stages ?? []] as const);
  const placed = [...offers].map(([name, { stages }]) => [name, stages] as const);
  return [...plans, ...placed]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .flatMap(([name, stages]) => {
      const mine = stages.filter(({ primary }) => primary === peer);
      if (mine.length === 0) return [];
      const whole = mine.length === stages.length;
      return [whole ? name : `${mine.map(offeredUnitsText).join(', ')} of ${name}`];
    })
    .join('; ');
}

function coordinationOf(
  names: ReadonlyMap<string, string>,
  { coordinator, consensus }: Seen,
): Coordination | null {
  if (consensus === null || consensus.last === 0) return null;
  const { term, config, commit, last } = consensus;
  const called = (peer: string): string => nameOf(peer, names);
  return {
    leader: coordinator === null ? '' : called(coordinator),
    term,
    voters: config.voters.map(called),
    learners: config.servers.length - config.voters.length,
    lag: last - commit,
  };
}

const NO_PLAN = { version: 0, stages: [], predictedTokenUs: 0, predictedRateMilli: 0, why: [], choices: [] };

/** "SmolLM2-135M-Instruct.Q4_1" without what its file was packed as, and with room to breathe. */
const modelName = (name: string): string =>
  name.replace(/[.-](?:I?Q\d\w*|B?F\d+)$/i, '').replaceAll(/[-_]+/g, ' ');

function order(member: Member): number {
  if (member.you) return -1;
  const first = member.holds[0]?.[0] ?? member.coming[0]?.[0];
  if (member.status === 'gone') return 3e6;
  return first ?? (member.lends ? 1e6 : 2e6);
}

const runOf = ({ first, stop }: StateRun): Run => [first, stop];

function memberView(
  member: StateMember,
  name: string,
  wanted: readonly StateRun[],
  units: number,
  gone: ReadonlySet<string>,
  seen: Seen,
): Member {
  const isGone = gone.has(member.peer);
  const missing = wanted.filter(
    (run) => !member.held.some((held) => held.first === run.first && held.stop === run.stop),
  );
  const { profile } = member;
  return {
    id: member.peer,
    name,
    you: member.peer === seen.me,
    coordinates: member.peer === seen.coordinator,
    lends: member.compute,
    status: isGone ? 'gone' : statusOf(member, missing.length > 0, seen.busy.has(member.peer)),
    doing: isGone ? '' : doingOf(member, missing, units),
    holds: isGone ? [] : member.held.map(runOf),
    coming: isGone ? [] : missing.map(runOf),
    runs: '',
    standsBy: [],
    facts: [],
    lentBytes: profile?.memoryBytes ?? 0,
    runsOn: profile === null ? '' : runsOnText(profile.provider, profile.threads),
  };
}

function statusOf(member: StateMember, waits: boolean, busy: boolean): MemberStatus {
  if (!member.compute) return 'ready';
  if (member.status === 'paused' || (member.status === 'draining' && member.held.length === 0))
    return 'paused';
  if (busy && member.held.length > 0) return 'busy';
  const lends = member.status === 'measured' || member.status === 'draining';
  const usable = lends && (member.held.length > 0 || !waits);
  return usable ? 'ready' : 'loading';
}

function doingOf(member: StateMember, missing: readonly StateRun[], units: number): string {
  if (!member.compute) return '';
  switch (member.status) {
    case 'joining':
      return 'measuring itself';
    case 'draining':
    case 'paused': {
      const serves = member.status === 'draining' && member.held.length > 0;
      const how = serves ? 'serves while nobody else can' : 'lends nothing now';
      return member.reason === '' ? how : `${how}: ${member.reason}`;
    }
    case 'leaving':
      return member.held.length > 0 ? 'handing its part on' : 'lends nothing now';
    case 'measured': {
      const [run] = missing;
      if (run === undefined || member.held.length > 0) return '';
      return `fetching ${runText(runOf(run), units)}`;
    }
  }
}

/** A delay that does not flicker, in seconds: to a tenth of a millisecond below 10, to a whole one above. */
export function steady(s: number): number {
  return s < 0.01 ? Math.round(s * 1e4) / 1e4 : Math.round(s * 1e3) / 1e3;
}

/** What a peer computes with: "WebGPU", or "CPU, 4 threads". */
export function runsOnText(provider: string, threads: number): string {
  const on: Readonly<Record<string, string>> = {
    wasm: 'WebAssembly',
    webgpu: 'WebGPU',
    cpu: 'CPU',
    cuda: 'CUDA',
  };
  const name = on[provider] ?? provider;
  return threads > 1 && provider !== 'webgpu' ? `${name}, ${threads} threads` : name;
}

function linkViews(state: MeshState, seen: Seen): readonly LinkView[] {
  const delays = new Map<string, LinkView>();
  const note = (a: string, b: string, delayMs: number): void => {
    const [low, high] = a < b ? [a, b] : [b, a];
    delays.set(`${low} ${high}`, { a: low, b: high, delayMs });
  };
  for (const { src, dst, rttUs } of state.links) note(src, dst, rttUs / 1000);
  for (const [a, b, ms] of delaysAmong(state, seen.reports)) note(a, b, steady(ms / 1000) * 1000);
  for (const [peer, rttS] of seen.rttS) {
    if (rttS > 0 && state.members.has(peer)) note(seen.me, peer, rttS * 1000); // fresher than what was measured once
  }
  return [...delays.values()];
}

function whyNot(state: MeshState, names: ReadonlyMap<string, string>, seen: Seen): string {
  if (!seen.online) return 'You are offline: questions can be sent when the network is back.';
  if (state.model === null && state.members.size > 0) return 'No model here answers in words.';
  if (seen.lost)
    return 'The coordinator is gone, and its part of the model with it: no answer until it is back.';
  const nobody = withNobody(state, names, seen);
  if (nobody !== '') return nobody;
  if (serving(state) !== null) return '';
  if (whyNotReady(state) === PAUSED) return `No answers now: ${PAUSED}.`;
  if (state.refused !== '') {
    return readable(`the mesh cannot answer now: ${state.refused}`, names, state.model?.units ?? 0);
  }
  const loading = [...state.members.values()].filter(
    ({ compute, status }) => compute && status === 'joining',
  );
  const who = loading.map(({ peer }) => (peer === seen.me ? 'you' : (names.get(peer) ?? ''))).join(', ');
  if (who !== '') return `The mesh is getting ready: waiting for ${who}.`;
  const why = whyNotReady(state);
  return why === LOADING
    ? 'The mesh is getting ready: its peers are loading the model.'
    : `No answers now: ${why}.`;
}

/** Which part of the model nobody has that can be asked, and why; "": every stage of the plan has somebody. */
function withNobody(state: MeshState, names: ReadonlyMap<string, string>, seen: Seen): string {
  const { plan, proposed, refused, model } = state;
  const stages = plan === null ? [] : unserved(state, plan, seen.unreached);
  if (stages.length === 0) return '';
  const units = model?.units ?? 0;
  const parts = stages.map(({ first, stop }) => runText([first, stop], units)).join('; ');
  const who = [...new Set(stages.map(({ primary }) => primary))].map((peer) => {
    const name = peer === seen.me ? 'you' : nameOf(peer, names);
    if (!state.members.has(peer)) return `${name} left`;
    return seen.unreached.has(peer) ? `${name} cannot be reached` : `${name} does not have it now`;
  });
  const next =
    proposed !== null
      ? ' Others are loading it.'
      : refused === ''
        ? ''
        : ` ${readable(refused, names, units)}`;
  return `No answers now: nobody has ${parts} (${who.join(', ')}).${next}`;
}
