/*
 * Decides, without a planner, which peers serve what after a loss: whoever holds the units already, so that nothing is
 * fetched (what a tab can do of planner/solvers/placement.py's replan_held). Pure.
 *
 * First the plan before with standbys in the places of peers that are gone: surviving stages keep their caches. Else
 * whole runs that are held, of all chains the one that is predicted to be fastest.
 */

import { unlike } from '../planner/arithmetic_class';
import { doubtful, hazardOf, shared } from './independent_copies';
import type { LinkFacts, PlanStage, Profile } from '../state/generated/commands';
import { holds } from '../state/mesh_state';
import { type Run, teamOf } from '../state/plan_record';
import { byBytes } from '../wire/utf8_order';
import { type Measured, type PlanRequest, stageBytes, type Unnumbered } from './plan_request';

type Place = Pick<PlanStage, 'first' | 'stop' | 'primary' | 'helpers' | 'shares'>;
export type Held = ReadonlyMap<string, readonly Run[]>;

/** Null: the units that are held make no whole model, or those who hold them do not reach each other. */
export function heldPlan(request: PlanRequest, held: Held, before: readonly PlanStage[]): Unnumbered | null {
  const kept = promoted(request, held, before);
  const places = kept ?? chained(request, held);
  if (places === null) return null;
  const why =
    kept !== null
      ? 'Who stood by took over; nobody else moves.'
      : 'Only units that peers hold already are used, runs as they are.';
  return recordOf(request, places, standbysOf(request, held, places), [why]);
}

/** A plan of the stages that people fixed by hand; null where one of these peers has no room, or no link. */
export function planOf(
  request: PlanRequest,
  places: readonly Place[],
  held: Held,
  why: readonly string[],
): Unnumbered | null {
  const facts = profilesOf(request);
  const roomy = places.every(({ primary }) => {
    const profile = facts.get(primary);
    const runs = places.filter((place) => place.primary === primary);
    return profile !== undefined && fits(request, { peer: primary, profile }, runs);
  });
  if (!roomy || !linked(request, places)) return null;
  return recordOf(request, places, standbysOf(request, held, places), why);
}

function profilesOf({ peers }: PlanRequest): ReadonlyMap<string, Profile> {
  return new Map(peers.map(({ peer, profile }) => [peer, profile]));
}

function hasRun(held: Held, peer: string, { first, stop }: Run): boolean {
  return (held.get(peer) ?? []).some((run) => run.first === first && run.stop === stop);
}

/** `before` where a lost stage goes to its first standby that holds it, else to whoever else does. */
function promoted(request: PlanRequest, held: Held, before: readonly PlanStage[]): readonly Place[] | null {
  const found: Place[] = [];
  for (const stage of before) {
    const { first, stop, helpers = [], shares = [] } = stage;
    if (isTeamHere(request, stage)) {
      found.push({ first, stop, primary: stage.primary, helpers, shares });
      continue;
    }
    const able = request.peers
      .filter(({ peer }) => hasRun(held, peer, stage))
      .map(({ peer, profile }) => ({
        peer,
        often: hazardOf(profile) * (1 + found.filter(({ primary }) => primary === peer).length),
        ns: computeNs(request, profile, first, stop),
      }))
      .sort((a, b) => a.often - b.often || a.ns - b.ns || byBytes(a.peer, b.peer))
      .map(({ peer }) => peer);
    const primary = [stage.primary, ...stage.standbys, ...able].find((peer) => able.includes(peer));
    if (primary === undefined) return null;
    found.push({ first, stop, primary });
  }
  return found.length > 0 && linked(request, found) ? found : null;
}

/** Whether a team computes the stage all of whose members can go on. */
function isTeamHere({ state, peers }: PlanRequest, stage: PlanStage): boolean {
  const here = new Set(peers.map(({ peer }) => peer));
  const isTeam = (stage.helpers ?? []).length > 0;
  return isTeam && teamOf(stage).every((peer) => here.has(peer) && holds(state, peer, stage));
}

/** The chain of whole runs from the first unit to the last that is predicted to take least. */
function chained(request: PlanRequest, held: Held): readonly Place[] | null {
  interface Way {
    readonly ns: number;
    readonly places: readonly Place[];
  }
  const count = request.units.length;
  const best = new Map<string, Way>(); // by border and the peer before it
  const starting = new Map<number, { readonly peer: string; readonly stop: number; readonly ns: number }[]>();
  for (const { peer, profile } of request.peers) {
    for (const { first, stop } of held.get(peer) ?? []) {
      if (stop > count || stop <= first) continue;
      const runs = starting.get(first) ?? [];
      runs.push({ peer, stop, ns: computeNs(request, profile, first, stop) });
      starting.set(first, runs);
    }
  }
  const ways = (border: number): Way[] =>
    border === 0
      ? [{ ns: 0, places: [] }]
      : request.peers.flatMap(({ peer }) => best.get(`${border} ${peer}`) ?? []);
  for (let border = 0; border < count; border += 1) {
    for (const way of ways(border)) {
      for (const { peer, stop, ns: takesNs } of starting.get(border) ?? []) {
        const last = way.places.at(-1)?.primary;
        const hop = last === undefined ? 0 : hopNs(request, last, peer, border);
        if (hop === null) continue;
        const ns = way.ns + hop + takesNs;
        const key = `${stop} ${peer}`;
        const known = best.get(key);
        if (known === undefined || ns < known.ns) {
          best.set(key, { ns, places: [...way.places, { first: border, stop, primary: peer }] });
        }
      }
    }
  }
  const whole = ways(count)
    .filter(({ places }) => linked(request, places))
    .sort((a, b) => a.ns - b.ns)[0];
  return whole?.places ?? null;
}

/** Whether each reaches the next, and the last one the first. */
function linked(request: PlanRequest, places: readonly Place[]): boolean {
  return places.every(({ primary, stop }, at) => {
    const next = places[(at + 1) % places.length]?.primary ?? primary;
    return hopNs(request, primary, next, stop) !== null;
  });
}

/**
 * For each place whoever holds all of it, does not serve it, is reached by its neighbours and has the room: those first
 * that fail with its primary in fewer ways, then those of its class of arithmetic, then whose loss is less likely and
 * takes fewer places. The costliest loss comes first: of peers that may be behind a relay, the embedding and the head,
 * then more bytes and likelier, then the earlier.
 */
function standbysOf(
  request: PlanRequest,
  held: Held,
  places: readonly Place[],
): ReadonlyMap<Place, readonly string[]> {
  const runs = new Map<string, Map<string, Run>>(); // by peer: those it has a place for
  const put = (peer: string, { first, stop }: Run): void => {
    runs.set(peer, (runs.get(peer) ?? new Map<string, Run>()).set(`${first} ${stop}`, { first, stop }));
  };
  for (const place of places) for (const peer of teamOf(place)) put(peer, place);
  const found = new Map<Place, readonly string[]>();
  const [facts, unsure] = [profilesOf(request), doubtful(request)];
  for (const place of lossOrder(request, places, unsure)) {
    const primary = facts.get(place.primary);
    const able = request.peers.filter(
      ({ peer, profile }) =>
        !teamOf(place).includes(peer) &&
        reached(request, places, place, peer) &&
        fits(request, { peer, profile }, [...(runs.get(peer)?.values() ?? []), place]),
    );
    const liked = able
      .map(({ peer, profile }) => ({
        peer,
        together: primary === undefined ? 0 : shared(profile, primary),
        doubt: Number(unsure.has(peer)),
        other: unlike(primary?.arithmetic ?? '', profile.arithmetic ?? ''),
        often: hazardOf(profile) * (1 + (runs.get(peer)?.size ?? 0)),
        serves: Number(places.some(({ primary }) => primary === peer)),
        ns: computeNs(request, profile, place.first, place.stop),
      }))
      .sort(
        (x, y) =>
          x.together - y.together ||
          x.doubt - y.doubt ||
          x.other - y.other ||
          x.often - y.often ||
          x.serves - y.serves ||
          x.ns - y.ns ||
          byBytes(x.peer, y.peer),
      )
      .filter(({ peer }) =>
        (held.get(peer) ?? []).some(({ first, stop }) => first <= place.first && place.stop <= stop),
      );
    for (const { peer } of liked) put(peer, place);
    const named = [...liked].sort((x, y) => x.other - y.other); // the first one takes over
    found.set(
      place,
      named.map(({ peer }) => peer),
    );
  }
  return found;
}

function lossOrder(
  request: PlanRequest,
  places: readonly Place[],
  unsure: ReadonlySet<string>,
): readonly Place[] {
  const facts = profilesOf(request);
  const cost = (
    place: Place,
  ): { readonly doubt: number; readonly critical: number; readonly loss: number } => {
    const units = request.units.slice(place.first, place.stop);
    const profile = facts.get(place.primary);
    const { weightBytes = 0, kvBytes = 0 } =
      profile === undefined ? {} : stageBytes(request, profile, place.first, place.stop);
    const critical = Number(units.some(({ kind }) => kind === 'embed' || kind === 'head'));
    const often = profile === undefined ? 0 : hazardOf(profile);
    return { doubt: Number(unsure.has(place.primary)), critical, loss: often * (weightBytes + kvBytes) };
  };
  return places
    .map((place) => ({ place, ...cost(place) }))
    .sort((a, b) => b.doubt - a.doubt || b.critical - a.critical || b.loss - a.loss)
    .map(({ place }) => place);
}

function reached(request: PlanRequest, places: readonly Place[], place: Place, peer: string): boolean {
  if (places.length === 1) return true;
  const at = places.indexOf(place);
  const before = places[(at - 1 + places.length) % places.length]?.primary ?? peer;
  const after = places[(at + 1) % places.length]?.primary ?? peer;
  return (
    hopNs(request, before, peer, place.first) !== null && hopNs(request, peer, after, place.stop) !== null
  );
}

/** Whether a peer has the memory for all these runs; the same run twice counts once. */
function fits(request: PlanRequest, { peer, profile }: Measured, runs: readonly Run[]): boolean {
  const distinct = new Map(runs.map((run) => [`${run.first} ${run.stop}`, run]));
  let need = profile.overheadBytes;
  for (const { first, stop } of distinct.values()) {
    const { weightBytes, kvBytes } = stageBytes(request, profile, first, stop);
    const loaded = request.shared.find(
      (each) => each.peer === peer && each.first === first && each.stop === stop,
    );
    need += weightBytes - (loaded?.bytes ?? 0) + kvBytes;
  }
  return need <= profile.memoryBytes;
}

function recordOf(
  request: PlanRequest,
  places: readonly Place[],
  standbys: ReadonlyMap<Place, readonly string[]>,
  why: readonly string[],
): Unnumbered {
  const facts = profilesOf(request);
  let tokenNs = 0;
  const busyNs = new Map<string, number>(); // of each peer in a round, with all its places
  const stages = places.map((place, at) => {
    const { first, stop, primary } = place;
    const profile = facts.get(primary);
    if (profile === undefined) throw new Error('expected a peer of the request');
    const busy = teamNs(request, facts, place);
    const next = places[(at + 1) % places.length]?.primary ?? primary;
    tokenNs += busy + (hopNs(request, primary, next, stop) ?? 0);
    busyNs.set(primary, (busyNs.get(primary) ?? 0) + busy);
    return {
      first,
      stop,
      primary,
      standbys: standbys.get(place) ?? [],
      ...largestOf(request, profile, place),
      helpers: place.helpers ?? [],
      shares: place.shares ?? [],
    };
  });
  const slowestNs = Math.max(1, ...busyNs.values());
  return {
    stages,
    predictedTokenUs: Math.round(tokenNs / 1000),
    predictedRateMilli: Math.min(
      Math.round(1e12 / slowestNs),
      Math.round((1e12 * (request.state.model?.sessions ?? 1)) / Math.max(tokenNs, 1)),
    ),
    why,
    choices: [],
  };
}

/** Decode of one token by whoever computes a place: of a team, until its slowest member is done. */
function teamNs(request: PlanRequest, facts: ReadonlyMap<string, Profile>, place: Place): number {
  const { first, stop, shares = [] } = place;
  const all = shares.reduce((sum, share) => sum + share, 0);
  const each = teamOf(place).map((peer, at) => {
    const profile = facts.get(peer);
    if (profile === undefined) throw new Error('expected a peer of the request');
    const part = all === 0 ? 1 : (shares[at] ?? 0) / all;
    return profile.stepNs + (computeNs(request, profile, first, stop) - profile.stepNs) * part;
  });
  return Math.max(...each);
}

/** What a place takes of its primary, or of the member of its team that has most. */
function largestOf(request: PlanRequest, profile: Profile, place: Place): ReturnType<typeof stageBytes> {
  const whole = stageBytes(request, profile, place.first, place.stop);
  const shares = place.shares ?? [];
  if (shares.length === 0) return whole;
  const part = Math.max(...shares) / shares.reduce((sum, share) => sum + share, 0);
  const [weightBytes, kvBytes] = [Math.ceil(whole.weightBytes * part), Math.ceil(whole.kvBytes * part)];
  return { ...whole, weightBytes, kvBytes };
}

/** Decode of one token over units [first, stop). */
export function computeNs({ units }: PlanRequest, profile: Profile, first: number, stop: number): number {
  const run = units.slice(first, stop);
  return run.reduce((sum, { kind }) => sum + (profile.decodeNs.get(kind) ?? 0), profile.stepNs);
}

/** From one peer to the other, what leaves the unit before `border`; null: there is no link. */
export function hopNs(
  { state, units }: PlanRequest,
  src: string,
  dst: string,
  border: number,
): number | null {
  if (src === dst) return 0;
  const link = state.links.find((each: LinkFacts) => each.src === src && each.dst === dst);
  if (link === undefined) return null;
  const bytes = units[border - 1]?.outBytesPerToken ?? 0;
  return (link.rttUs / 2 + link.overheadUs) * 1000 + (bytes / Math.max(1, link.bytesPerS)) * 1e9;
}
