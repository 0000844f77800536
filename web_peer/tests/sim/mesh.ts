/*
 * Decides what the log says: who is in, which plan serves. A stand-in for the coordinator that never fails.
 *
 * A loss becomes known after a while; then each stage goes to a standby that is here, or to a peer that loads its units
 * first. Every peer hears of each state in order, each at its own time.
 */

import { type Run, holdersOf, routeOf, runKey } from '../../src/state/plan_record';
import { EMPTY_STATE, type MeshState, readyFor, serving } from '../../src/state/mesh_state';
import type { Member as Listed, PlanRecord, PlanStage } from '../../src/state/generated/commands';
import type { Member } from './member';
import type { Network } from './network';
import type { Chance } from './random';
import { UNITS } from './toy';

const LOAD_S = 0.3;
const UNLOAD_S = 1.0;

/** Writes the log and tells everyone. */
export class Mesh {
  state: MeshState;
  onState: () => void = () => undefined;
  private readonly network: Network;
  private readonly chance: Chance;
  private readonly members: ReadonlyMap<string, Member>;
  private readonly compute: ReadonlySet<string>;
  private readonly told = new Map<string, number>();
  private readonly goers = new Set<string>();

  constructor(
    network: Network,
    chance: Chance,
    members: ReadonlyMap<string, Member>,
    compute: readonly string[],
    plan: PlanRecord,
  ) {
    this.network = network;
    this.chance = chance;
    this.members = members;
    this.compute = new Set(compute);
    const holders = holdersOf(plan);
    const listed = new Map(
      [...members.keys()].map((name) => [name, this.listed(name, holders.get(name) ?? [])]),
    );
    for (const [name, runs] of holders) for (const run of runs) members.get(name)?.load(run);
    this.state = {
      ...EMPTY_STATE,
      term: 1,
      index: 1,
      model: {
        kind: 'ModelChosen',
        model: 'toy',
        name: 'toy',
        units: UNITS,
        context: 4096,
        sessions: 8,
        objective: 'latency',
      },
      members: listed,
      plan,
      lastVersion: plan.version,
    };
    for (const member of members.values()) member.know(this.state);
  }

  /** The coordinator noticed that `name` is gone, or it said so itself. */
  left(name: string): void {
    if (!this.state.members.has(name) || (this.members.get(name)?.alive === true && !this.goers.has(name)))
      return;
    const members = new Map(this.state.members);
    members.delete(name);
    this.write({ members });
    this.replan();
  }

  /** Somebody thinks that `name` is lost: it is asked, and who does not answer is out. */
  suspected(name: string): void {
    this.network.at(this.network.now + 0.05 + 0.2 * this.chance.next(), () => {
      this.left(name);
    });
  }

  /** `name` says that it leaves; it serves nobody from here on. */
  leaving(name: string): void {
    const member = this.state.members.get(name);
    if (member === undefined) return;
    this.goers.add(name);
    this.write({ members: new Map([...this.state.members, [name, { ...member, status: 'leaving' }]]) });
    this.replan();
  }

  /** A restarted peer is here again, without anything loaded. */
  joined(name: string): void {
    this.goers.delete(name);
    this.write({ members: new Map([...this.state.members, [name, this.listed(name, [])]]) });
    if (this.state.proposed !== null || serving(this.state) === null) this.replan();
    else if (this.state.plan !== null) this.load(name, holdersOf(this.state.plan).get(name) ?? []);
  }

  /** A plan that moves work though nobody is lost: a standby becomes primary, or the model is cut elsewhere. */
  shuffle(): void {
    const { plan } = this.state;
    if (plan === null || this.state.proposed !== null || serving(this.state) === null) return;
    const stages = [...plan.stages];
    const place = this.chance.whole(0, stages.length - 1);
    const [stage, next] = [stages[place], stages[place + 1]];
    if (stage === undefined) return;
    if (next !== undefined && this.chance.next() < 0.5) {
      const border = this.chance.whole(stage.first + 1, next.stop - 1);
      stages[place] = { ...stage, stop: border };
      stages[place + 1] = { ...next, first: border };
    } else {
      const others =
        stage.standbys.length > 0 ? stage.standbys : this.here().filter((one) => one !== stage.primary);
      if (others.length === 0) return;
      const primary = this.chance.pick(others);
      const standbys = [...stage.standbys.filter((peer) => peer !== primary), stage.primary];
      stages[place] = { ...stage, primary, standbys };
    }
    this.propose(stages);
  }

  /** Puts every stage with somebody who is here; those who hold it already come first. */
  private replan(): void {
    const { plan } = this.state;
    if (plan === null) return;
    const here = this.here();
    const stages: PlanStage[] = [];
    for (const stage of plan.stages) {
      const holders = [stage.primary, ...stage.standbys].filter((peer) => here.includes(peer));
      const busy = routeOf(plan);
      const [primary = here.find((peer) => !busy.includes(peer)) ?? here[0], ...standbys] = holders;
      if (primary === undefined) return;
      stages.push({ ...stage, primary, standbys });
    }
    const key = (of: readonly PlanStage[]): string =>
      JSON.stringify(of.map((one) => [one.primary, one.standbys]));
    if (key(stages) !== key(plan.stages)) this.propose(stages);
  }

  private here(): string[] {
    return [...this.state.members.values()]
      .filter(({ peer, status }) => this.compute.has(peer) && status === 'measured')
      .map(({ peer }) => peer)
      .sort();
  }

  private listed(peer: string, held: readonly Run[]): Listed {
    return {
      peer,
      name: peer,
      compute: this.compute.has(peer),
      status: 'measured',
      profile: null,
      held,
      reason: '',
      headless: false,
      durable: false,
      incarnation: 0,
    };
  }

  private propose(stages: readonly PlanStage[]): void {
    const version = this.state.lastVersion + 1;
    const record: PlanRecord = {
      version,
      stages,
      predictedTokenUs: 0,
      predictedRateMilli: 0,
      why: [],
      choices: [],
    };
    this.write({ proposed: record, lastVersion: version });
    for (const [name, runs] of holdersOf(record)) this.load(name, runs);
    this.settle();
  }

  private load(name: string, runs: readonly Run[]): void {
    const held = this.state.members.get(name)?.held ?? [];
    for (const run of runs) {
      if (held.some((one) => runKey(one) === runKey(run))) continue;
      this.network.at(this.network.now + LOAD_S * (0.5 + this.chance.next()), () => {
        this.loaded(name, run);
      });
    }
  }

  private loaded(name: string, run: Run): void {
    const [member, listed] = [this.members.get(name), this.state.members.get(name)];
    if (!member?.alive || listed === undefined) return;
    if (member.frozen) {
      member.later(0, () => {
        this.loaded(name, run);
      });
      return;
    }
    member.load(run);
    const held = [...listed.held.filter((one) => runKey(one) !== runKey(run)), run];
    this.write({ members: new Map([...this.state.members, [name, { ...listed, held }]]) });
    this.settle();
  }

  private settle(): void {
    const { proposed } = this.state;
    if (proposed === null) return;
    const here = this.here();
    if (proposed.stages.some(({ primary }) => !here.includes(primary))) {
      this.write({ proposed: null });
      this.replan();
    } else if (readyFor(this.state, proposed)) {
      this.write({ plan: proposed, proposed: null });
      this.network.at(this.network.now + UNLOAD_S, () => {
        this.unload();
      });
    }
  }

  /** What no plan wants any more is let go. */
  private unload(): void {
    const plans = [this.state.plan, this.state.proposed].filter((plan) => plan !== null);
    const wanted = plans.map(holdersOf);
    const members = new Map(this.state.members);
    let changed = false;
    for (const [name, listed] of members) {
      const member = this.members.get(name);
      if (!member?.alive || member.frozen) continue;
      const keys = new Set(wanted.flatMap((holders) => holders.get(name) ?? []).map(runKey));
      const kept = listed.held.filter((run) => keys.has(runKey(run)));
      if (kept.length === listed.held.length) continue;
      for (const run of listed.held) if (!keys.has(runKey(run))) member.unload(run);
      members.set(name, { ...listed, held: kept });
      changed = true;
    }
    if (changed) this.write({ members });
  }

  private write(change: Partial<MeshState>): void {
    const state = { ...this.state, ...change, index: this.state.index + 1 };
    this.state = state;
    this.onState();
    for (const [name, member] of this.members) {
      const when = Math.max(this.network.now + 0.03 * this.chance.next(), this.told.get(name) ?? 0);
      this.told.set(name, when);
      this.network.at(when, () => {
        if (!member.alive || !state.members.has(name)) return;
        member.later(0, () => {
          member.know(state);
        });
      });
    }
  }
}
