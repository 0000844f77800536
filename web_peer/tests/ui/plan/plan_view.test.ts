/* The plan as the page shows it: times, memory, and what the loss of each peer would mean. */

import { describe, expect, it } from 'vitest';

import { EMPTY_STATE, type MeshState } from '../../../src/state/mesh_state';
import type { ChoiceRecord, Member, Profile } from '../../../src/state/generated/commands';
import type { Run } from '../../../src/state/plan_record';
import type { PlannerUnit } from '../../../src/coordination/plan_request';
import type { PlanView } from '../../../ui/app/view';
import { type PlanSeen, planView } from '../../../ui/plan/plan_view';
import type { Report } from '../../../ui/mesh/reports';

const [ME, ADA, BOB, CHO] = ['me', 'ada', 'bob', 'cho'] as const;
const IDLE: Report = {
  ...{ steps: 0, active: 0, sessions: 0, tokensPerS: 0, weightBytes: 0, kvBytes: 0 },
  ...{ rttS: new Map(), stepUs: [], breakers: [] },
};
const KINDS = ['embed', 'attn', 'ffn', 'attn', 'ffn', 'head'] as const;
const UNITS: readonly PlannerUnit[] = KINDS.map((kind, at) => ({
  name: `${kind}.${at}`,
  kind,
  weightBytes: 100,
  packedBytes: 100,
  wideBytes: 300,
  flopsPerToken: 0,
  kvBytesPerToken: kind === 'attn' ? 1 : 0,
  outBytesPerToken: 1000,
}));
const run = (first: number, stop: number): Run => ({ first, stop });

function profile(more: Partial<Profile> = {}): Profile {
  const times = new Map(['embed', 'attn', 'ffn', 'head'].map((kind) => [kind, 1_000_000]));
  return {
    ...{ memoryBytes: 2000, overheadBytes: 50, decodeNs: times, prefillNs: times, batchNs: new Map() },
    ...{ stepNs: 500_000, provider: 'cpu', threads: 1 },
    ...more,
  };
}
function member(peer: string, held: readonly Run[], more: Partial<Member> = {}): Member {
  return {
    ...{ peer, name: `${peer}’s`, compute: true, status: 'measured', profile: profile(), held, reason: '' },
    ...{ headless: false, durable: true, incarnation: 0 },
    ...more,
  };
}
const stage = (first: number, stop: number, primary: string, ...standbys: string[]) => ({
  ...{ first, stop, primary, standbys },
  ...{ weightBytes: 0, kvBytes: 0, overheadBytes: 0 },
});

/** `me` has the first three units, `ada` the others, for whom `bob` stands by. */
function meshOf(members: readonly Member[], more: Partial<MeshState> = {}): MeshState {
  const all = members.map(({ peer }) => peer);
  const links = all.flatMap((src) =>
    all.flatMap((dst) =>
      src === dst ? [] : [{ src, dst, rttUs: 4000, bytesPerS: 1_000_000, overheadUs: 100 }],
    ),
  );
  return {
    ...EMPTY_STATE,
    model: {
      ...{ kind: 'ModelChosen', model: 'x', name: 'toy', units: UNITS.length },
      ...{ context: 10, sessions: 2, objective: 'latency' },
    },
    members: new Map(members.map((one) => [one.peer, one])),
    links,
    plan: {
      ...{ version: 3, stages: [stage(0, 3, ME), stage(3, 6, ADA, BOB)] },
      ...{ predictedTokenUs: 13_200, predictedRateMilli: 151_000, why: [], choices: [] },
    },
    ...more,
  };
}
const MEMBERS = [member(ME, [run(0, 3)]), member(ADA, [run(3, 6)]), member(BOB, [run(3, 6)])];
const SEEN: PlanSeen = {
  me: ME,
  coordinator: ADA,
  voters: [ADA],
  units: UNITS,
  reports: new Map(),
  rttS: new Map(),
  answer: null,
};

function shown(state: MeshState, seen: Partial<PlanSeen> = {}): PlanView {
  const view = planView(state, { ...SEEN, ...seen });
  if (view === null) throw new Error('expected a plan');
  return view;
}
const lossesOf = (view: PlanView): Record<string, string> =>
  Object.fromEntries(view.losses.map(({ peer, outcome, text }) => [peer, `${outcome}: ${text}`]));

describe('the plan', () => {
  it('says who computes what, and how long that takes', () => {
    const view = shown(meshOf(MEMBERS));
    expect(view).toMatchObject({
      ...{ version: 3, serves: true, strategy: 'optimal', goal: 'latency', sessions: 2, context: 10 },
      ...{ tokenMs: 13.2, allPerS: 151, measuredMs: null, next: '' },
    });
    expect(view.stages).toMatchObject([
      { peer: ME, you: true, here: true, predictedMs: 3.5, measuredMs: null, standbys: [] },
      { peer: ADA, you: false, here: true, predictedMs: 3.5, standbys: [{ name: 'bob’s', ready: true }] },
    ]);
    expect(view.stages.map(({ units }) => units)).toEqual(['embedding, layer 1', 'layer 2, head']);
    expect(view.hops).toMatchObject([
      { from: 'this tab', to: 'ada’s', back: false, bytes: 1000, roundTripMs: 4 },
      { from: 'ada’s', to: 'this tab', back: true },
    ]);
    expect(view.hops[0]?.predictedMs).toBeCloseTo(2 + 0.1 + 1);
  });

  it('shows what was measured: stages as their peers report them, round trips as they are now', () => {
    const reports = new Map<string, Report>([
      [
        ME,
        {
          ...IDLE,
          stepUs: [
            [0, 3, 3900],
            [3, 6, 1],
          ],
        },
      ],
      [ADA, { ...IDLE, stepUs: [[0, 6, 7000]], rttS: new Map([[ME, 0.009]]) }],
    ]);
    const answer = { route: [ME, ADA], tokensPerS: 50 };
    const view = shown(meshOf(MEMBERS), { reports, answer });
    expect(view.stages.map(({ measuredMs }) => measuredMs)).toEqual([3.9, null]);
    expect(view.measuredMs).toBe(20);
    expect(view.hops.map(({ roundTripMs }) => roundTripMs)).toEqual([9, 9]);
    expect(shown(meshOf(MEMBERS), { reports, rttS: new Map([[ADA, 0.005]]) }).hops[1]?.roundTripMs).toBe(5);
    expect(shown(meshOf(MEMBERS), { answer: { ...answer, route: [ADA, ME] } }).measuredMs).toBeNull();
  });

  it('puts into each memory what the plan gives it', () => {
    const idle = member(CHO, [], { profile: profile({ provider: 'wasm', memoryBytes: 999 }) });
    const asks = member('dee', [], { compute: false, profile: null });
    const reports = new Map([[ADA, { ...IDLE, weightBytes: 290, kvBytes: 7 }]]);
    const view = shown(meshOf([idle, asks, ...MEMBERS]), { reports });
    expect(view.memory.map(({ peer }) => peer)).toEqual([ME, ADA, BOB, CHO]);
    expect(view.memory).toMatchObject([
      { pledge: 2000, weights: 300, kv: 20, standby: 0, scratch: 50, inUse: 0 },
      { weights: 300, kv: 20, standby: 0, scratch: 50, inUse: 297 },
      { weights: 0, kv: 0, standby: 320, scratch: 50 },
      { pledge: 999, weights: 0, kv: 0, standby: 0, scratch: 0 },
    ]);
  });

  it('thinks through the loss of each peer', () => {
    const view = shown(meshOf(MEMBERS));
    expect(lossesOf(view)).toEqual({
      [ME]: 'waits: Answers wait until ada’s, which has the room, has loaded 320 B.',
      [ADA]:
        'covered: Answers go on: bob’s takes over at once, nothing is loaded; nobody else coordinates, so nobody ' +
        'can come in until it is back.',
      [BOB]: 'unnoticed: Only stands by: answers do not notice.',
    });
    expect(view.losses.map(({ tokenMs }) => tokenMs)).toEqual([null, 13.2, 13.2]);
    const many = shown(meshOf(MEMBERS), { voters: [ME, ADA, BOB] });
    expect(lossesOf(many)[ADA]).toContain('another coordinator is chosen');
    const two = shown(meshOf(MEMBERS), { voters: [ME, ADA] });
    expect(lossesOf(two)[ADA]).toContain('too few voters are left to choose another coordinator, 1 of 2');
    expect(lossesOf(two)[ME]).toContain('too few voters are left, 1 of 2');
  });

  it('says when nobody has the room', () => {
    const tight = profile({ memoryBytes: 400 });
    const state = meshOf(MEMBERS.map((one) => ({ ...one, profile: tight })));
    expect(lossesOf(shown(state))[ME]).toBe('stops: No answers: 260 B more would have to be lent.');
    const parts = [CHO, 'dee', 'eva'].map((peer) =>
      member(peer, [], { profile: profile({ memoryBytes: 300 }) }),
    );
    const shared = meshOf([...MEMBERS.map((one) => ({ ...one, profile: tight })), ...parts]);
    expect(lossesOf(shown(shared))[ME]).toContain('wait until the others have shared 320 B');
  });

  it('stands among other plans, and says which of them nothing beats', () => {
    const slow = new Map([...profile().decodeNs].map(([kind, ns]) => [kind, 3 * ns]));
    const small = { profile: profile({ memoryBytes: 500 }) };
    const members = [
      member(ME, [run(0, 3)], small), // no room for all units
      member(ADA, [run(3, 6)], { profile: profile({ decodeNs: slow }) }),
      member(BOB, [run(3, 6)], small),
    ];
    const { choices } = shown(meshOf(members));
    expect(choices.map(({ words, onFront, chosen }) => [words, onFront, chosen])).toEqual([
      ['layer 2, head on bob’s', true, false],
      ['ada’s alone', false, false],
      ['embedding, layer 1 on bob’s', false, false],
      ['this plan', false, true],
    ]);
    expect(choices.map(({ tokenMs }) => tokenMs)).toEqual([13.2, 18.5, 19.2, 19.2]);
    expect(choices[0]).toMatchObject({ route: 'this tab → bob’s', perS: 151.515 });
    const both = member(ADA, [run(0, 3), run(3, 6)]);
    const less = shown(meshOf([MEMBERS[0] ?? both, both])).choices.find(
      ({ words }) => words === 'without this tab',
    );
    expect(less).toMatchObject({ route: 'ada’s → ada’s', tokenMs: 7, perS: 142.857 }); // one peer does it all
    expect(shown(meshOf(members), { units: [] }).choices).toEqual([]);
    const lonely = meshOf([member(ME, [run(0, 6)])], { plan: proposedOf(ME) });
    expect(shown(lonely).choices).toEqual([]); // nothing to compare it with
  });

  it('stands among the plans that its planner compared, where the log has them', () => {
    const choice = (name: string, tokenUs: number, more: Partial<ChoiceRecord> = {}): ChoiceRecord => ({
      ...{ name, tokenUs, prefillUs: 2500, rateMilli: 300_000 - tokenUs, memoryBytes: 3_000_000 },
      ...{ chosen: false, best: false, knee: false, whyNot: '', ...more },
    });
    const choices = [
      choice(`${ME} 0-2 > ${ADA} 2-6`, 13_200, { chosen: true, best: true }),
      choice(`${ADA} 0-6`, 15_000, { whyNot: '15.0 ms a token, 1.80 ms more' }),
      choice(`${BOB} 0-3 > ${ME} 3-6`, 15_500, { best: true, knee: true, rateMilli: 310_000 }),
      choice(`2 stages on ${ADA}, ${BOB}`, 19_000, { best: true, rateMilli: 320_000 }),
      choice(`${BOB} alone`, 0, {
        ...{ prefillUs: 0, memoryBytes: 0 },
        whyNot: `${BOB} alone is 9 MiB short`,
      }),
    ];
    const state = meshOf(MEMBERS);
    if (state.plan === null) throw new Error('a plan is needed');
    const view = shown({ ...state, plan: { ...state.plan, choices } });
    expect(view.comparedBy).toBe('planner');
    expect(view.choices.map(({ words, able, onFront, knee }) => [words, able, onFront, knee])).toEqual([
      ['this plan', true, true, false],
      ['ada’s alone', true, false, false],
      ['a bit of both', true, true, true],
      ['most for all', true, true, false],
      ['bob alone', false, false, false],
    ]);
    expect(view.choices[0]).toMatchObject({ tokenMs: 13.2, perS: 286.8, promptMs: 2.5, whyNot: '' });
    expect(view.choices[2]?.route).toBe('bob’s (embedding, layer 1) → this tab (layer 2, head)');
    expect(view.choices[3]?.route).toBe('2 stages on ada, bob');
    expect(view.choices[4]?.whyNot).toBe('bob alone is 9 MiB short');
    expect(shown(state).comparedBy).toBe('tab');
  });

  it('says what is missing, and what the next plan waits for', () => {
    const late = MEMBERS.map((one) => (one.peer === ME ? { ...one, held: [] } : one));
    const proposed = {
      ...{ version: 4, stages: [stage(0, 2, BOB), stage(2, 6, ADA)] },
      ...{ predictedTokenUs: 1, predictedRateMilli: 1, why: [], choices: [] },
    };
    const view = shown(meshOf(late, { proposed, cuts: [2] }));
    expect(view).toMatchObject({ serves: false, strategy: 'cut by hand' });
    expect(view.stages.map(({ here }) => here)).toEqual([false, true]);
    expect(view.next).toBe(
      'Plan 4 is being loaded. It waits for bob’s for embedding, half of layer 1; ada’s for half of layer 1, ' +
        'layer 2, head.',
    );
  });

  it('guesses nothing before the model and its peers are known', () => {
    expect(planView({ ...EMPTY_STATE, model: meshOf(MEMBERS).model }, SEEN)).toBeNull();
    const early = shown(meshOf(MEMBERS), { units: [] });
    expect(early.stages.map(({ predictedMs }) => predictedMs)).toEqual([null, null]);
    expect(early.losses).toEqual([]);
    const left = shown(meshOf(MEMBERS.slice(0, 1)));
    expect(left.stages[1]).toMatchObject({ name: 'somebody who left (ada)', here: false, predictedMs: null });
    expect(left.hops.map(({ predictedMs }) => predictedMs)).toEqual([null, null]);
    const alone = meshOf(MEMBERS.slice(0, 1).map((one) => ({ ...one, held: [run(0, 6)] })));
    const whole = { ...alone, plan: { ...proposedOf(ME) } };
    expect(shown(whole).hops).toEqual([]);
  });
});

const proposedOf = (peer: string) => ({
  ...{
    version: 1,
    stages: [stage(0, 6, peer)],
    predictedTokenUs: 6500,
    predictedRateMilli: 1,
    why: [],
    choices: [],
  },
});
