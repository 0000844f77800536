/*
 * Decides whether this tab measures itself once more when who coordinates asks for it, and ends that for an answer
 * (twin of peer/member/remeasure.py). Edge. Only while the tab has nothing else to do, and seldom, whoever asks: no
 * coordinator can keep it busy.
 */

import { BadCommand } from '../errors';
import type { Decoder } from '../planner/manifest';
import { candidate, type Times } from '../runtime/self_benchmark';
import type { Lending } from './lending';
import type { MeshMember } from './mesh_member';
import type { Profile } from '../state/generated/commands';
import type { Provider } from '../planner/linear';
import { nowS } from '../transport/ticker';
import { MEASURE, type MeasureAnswer, type MeasureRequest } from '../wire/generated/requests';

const PAUSE_S = 300; // between two measurements; a coordinator asks the same peer half as often at most
const ENDED_S = 15; // after one that made room for an answer
const LOOK_MS = 20; // for an answer that begins, while it measures
const MEASURING_BYTES = 192 << 20; // of the worker that measures: code, 64 MiB of weights, and those once more as they come

type Measure = typeof candidate;
/** What of a mesh this concerns. */
export interface Measurable {
  readonly signal: AbortSignal;
  readonly model: Pick<MeshMember['model'], 'decoder'>;
  readonly view: Pick<MeshMember['view'], 'me' | 'state' | 'measured'>;
  readonly lending: Pick<Lending, 'isAtRest' | 'measured' | 'facts' | 'profile'>;
}

/** Answers requests to measure again: measures with `measure`, or refuses while busy or too soon. */
export class MeasuringAgain {
  private readonly mesh: Measurable;
  private readonly measure: Measure;
  private notBefore = -Infinity;

  constructor(mesh: Measurable, measure: Measure = candidate) {
    this.mesh = mesh;
    this.measure = measure;
  }

  /** Of the request `measure`: `measured`, and where it was not `busy`, whether it may be soon. Raises BadCommand. */
  async answer({ model }: MeasureRequest): Promise<MeasureAnswer> {
    const { view } = this.mesh;
    const { decoder } = this.mesh.model;
    if (decoder === null || model !== view.state.model?.model) {
      throw new BadCommand('measure: expected the id of the model that this mesh serves, as `model`');
    }
    const before = this.atRest();
    if (before !== null && !this.hasRoom(before)) return { measured: false, busy: false };
    if (before === null || nowS() < this.notBefore) return { measured: false, busy: true };
    this.notBefore = nowS() + PAUSE_S;
    const times = await this.undisturbed(decoder, before);
    const profile = this.atRest();
    if (times === null || profile === null) {
      this.notBefore = nowS() + ENDED_S;
      return { measured: false, busy: true };
    }
    await this.tell(profile, times);
    return { measured: true, busy: false };
  }

  /** What this tab measured, while it has nothing else to do and holds what plans give it; else null. */
  private atRest(): Profile | null {
    const { me, state } = this.mesh.view;
    const { members, plan, proposed } = state;
    const { runs } = this.mesh.lending.facts();
    const mine = (plan?.stages ?? []).filter(
      ({ primary, standbys }) => primary === me || standbys.includes(me),
    );
    const isLoaded = mine.every((stage) =>
      runs.some(({ first, stop }) => first === stage.first && stop === stage.stop),
    );
    const isKnown = members.get(me)?.status === 'measured';
    return isKnown && isLoaded && proposed === null && this.mesh.lending.isAtRest()
      ? this.mesh.lending.profile
      : null;
  }

  /** What is measured while nothing else is computed here; null when something was. Raises CannotServe. */
  private async undisturbed(decoder: Decoder, profile: Profile): Promise<Times | null> {
    const disturbed = new AbortController();
    const steps = this.mesh.lending.facts().tokensHelped; // those that run behind a stage, as of a standby, are work as well
    const looking = setInterval(() => {
      if (this.atRest() === null || this.mesh.lending.facts().tokensHelped !== steps) disturbed.abort();
    }, LOOK_MS);
    try {
      const limit = AbortSignal.any([disturbed.signal, this.mesh.signal]);
      return await this.measure(decoder, profile.provider as Provider, profile.threads, limit);
    } catch (error) {
      if (disturbed.signal.aborted) return null;
      throw error;
    } finally {
      clearInterval(looking);
    }
  }

  /** Whether what is measured fits beside what this tab holds, inside what it pledged. */
  private hasRoom({ overheadBytes }: Profile): boolean {
    const { weightBytes, kvBytes, pledgeBytes } = this.mesh.lending.facts();
    return weightBytes + kvBytes + overheadBytes + MEASURING_BYTES <= pledgeBytes;
  }

  /**
   * As at first, but for what has not changed: memory, surroundings, links, and the class of arithmetic, since what is
   * loaded computes as it was found at first.
   */
  private async tell(before: Profile, times: Times): Promise<void> {
    const { view } = this.mesh;
    const { decodeNs, prefillNs, batchNs, stepNs } = times;
    const arithmetic = (before.arithmetic ?? '') || (times.arithmetic ?? '');
    const profile = { ...before, decodeNs, prefillNs, batchNs, stepNs, arithmetic };
    this.mesh.lending.measured(profile);
    const surroundings = view.state.members.get(view.me)?.profile?.surroundings;
    const said = surroundings === undefined ? profile : { ...profile, surroundings };
    await view.measured({ kind: 'MemberMeasured', peer: view.me, profile: said, links: [] }, true);
  }
}

/** From here on this tab, which lends, answers `measure`. */
export function measuresAgain(mesh: MeshMember): void {
  const again = new MeasuringAgain(mesh);
  mesh.links.on(MEASURE, (_, said) => again.answer(said));
}
