/*
 * Decides how far a peer counts as a holder of a copy: what fails together is one holder, who may be behind a relay is
 * none (what a tab needs of planner/cost/independent_copies.py). Pure.
 */

import type { Profile } from '../state/generated/commands';
import type { PlanRequest } from './plan_request';
import { domainsOf, UNKNOWN } from '../state/failure_domains';

const PRIOR_HAZARD_MILLI = 500; // of a peer that nothing is known of: as a tab that somebody may close

/** Peers that no link reaches, or leaves, of which it is known that no relay is in it. */
export function doubtful({ state, peers }: PlanRequest): ReadonlySet<string> {
  const here = new Set(peers.map(({ peer }) => peer));
  const direct = state.links.filter(
    ({ src, dst, relayed = null }) => relayed === false && here.has(src) && here.has(dst),
  );
  const to = new Set(direct.map(({ dst }) => dst));
  const out = new Set(direct.map(({ src }) => src));
  const unsure = [...here].filter((peer) => here.size > 1 && !(to.has(peer) && out.has(peer)));
  return new Set(unsure);
}

/** In how many ways the first fails together with the other. */
export function shared(a: Profile, b: Profile): number {
  const others = new Set(domainsOf(b.surroundings ?? UNKNOWN));
  return domainsOf(a.surroundings ?? UNKNOWN).filter((name) => others.has(name)).length;
}

/** How often it leaves, in thousandths an hour. */
export function hazardOf({ surroundings = UNKNOWN }: Profile): number {
  return surroundings.hazardMilli ?? PRIOR_HAZARD_MILLI;
}
