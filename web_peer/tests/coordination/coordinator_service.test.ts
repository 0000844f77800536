/* Borders that people fixed by hand, where a tab coordinates: who stands by is the planner's to say. */

import { expect, it, vi } from 'vitest';

import { Coordinating, type Log, type Surroundings } from '../../src/coordination/coordinator_service';
import { Coordinator } from '../../src/coordination/coordinator';
import { type Command, decodeCommand } from '../../src/state/member_commands';
import { EMPTY_STATE } from '../../src/state/mesh_state';
import type { PlanRecord } from '../../src/state/generated/commands';
import type { Planned, PlannerUnit, PlanRequest } from '../../src/coordination/plan_request';

vi.stubGlobal('reportError', (error: unknown) => {
  throw error; // Node has none
});

const KINDS: readonly PlannerUnit['kind'][] = ['embed', 'attn', 'ffn', 'head'];
const UNITS: readonly PlannerUnit[] = KINDS.map((kind) => ({
  ...{ name: kind, kind, weightBytes: 10, packedBytes: 10, wideBytes: 10 },
  ...{ flopsPerToken: 1, kvBytesPerToken: 1, outBytesPerToken: 8 },
}));
const PEERS = ['pa', 'pb', 'pc'];

function mesh(): Coordinator {
  const made = new Coordinator('pa', UNITS, EMPTY_STATE);
  const model = { model: 'ab'.repeat(32), name: 'toy', units: UNITS.length };
  made.submit({ kind: 'ModelChosen', ...model, context: 8, sessions: 1, objective: 'latency' });
  for (const peer of PEERS) {
    made.submit({
      ...{ kind: 'MemberJoined', peer, name: peer, compute: true, headless: false },
      ...{ durable: true, incarnation: 1 },
    });
  }
  const table = new Map(KINDS.map((kind) => [kind, 1000]));
  const times = { decodeNs: table, prefillNs: table, batchNs: table, stepNs: 1 };
  const profile = { memoryBytes: 1 << 20, overheadBytes: 1, ...times, provider: 'wasm', threads: 1 };
  for (const peer of PEERS) {
    const pairs = PEERS.filter((other) => other !== peer).map((other) => [peer, other] as const);
    const links = pairs.map(([src, dst]) => ({ src, dst, rttUs: 1000, bytesPerS: 10 ** 7, overheadUs: 0 }));
    made.submit({ kind: 'MemberMeasured', peer, profile, links });
  }
  return made;
}

/** The plan that is proposed for cuts, where the planner answers so. */
async function proposed(plan: (request: PlanRequest) => Planned | null): Promise<PlanRecord> {
  let take: (plan: PlanRecord) => void = () => undefined;
  const over = new Promise<PlanRecord>((resolve) => {
    take = resolve;
  });
  const log: Log = {
    ...{ epoch: 1, incarnationOf: () => 1, status: {} as Log['status'] },
    propose: (data) => {
      const command: Command = decodeCommand(data);
      if (command.kind === 'PlanProposed') take(command.plan);
      return Promise.resolve([1, 1]);
    },
    change: () => Promise.resolve([1, 1]),
    transfer: () => Promise.resolve([1, 1]),
  };
  const around: Surroundings = {
    ...{ mayCompute: () => true, connected: () => true, speaks: () => 1, failed: () => undefined },
    reach: { answers: () => Promise.resolve(true), present: () => true },
    plan: (request) => Promise.resolve(plan(request)),
  };
  const coordinating = new Coordinating(mesh(), log, around);
  coordinating.submit({ kind: 'CutsFixed', cuts: [2] });
  const record = await over;
  coordinating.close();
  return record;
}

it('the planner places them', async () => {
  const plan = await proposed((request) => {
    const stages = (request.serving?.stages ?? []).map((stage) => ({ ...stage, standbys: ['pc'] }));
    const kept = { stages, predictedTokenUs: 7, predictedRateMilli: 8, why: ['Copies: so.'], choices: [] };
    return { kind: 'plan', plan: { ...kept, stages: [] }, beside: { better: true, kept, relief: null } };
  });
  expect(plan.stages.map(({ first, stop, primary, standbys }) => [first, stop, primary, standbys])).toEqual([
    [0, 2, 'pa', ['pc']],
    [2, 4, 'pb', ['pc']],
  ]);
  expect(plan.why).toEqual([expect.stringMatching(/^The borders \[2\] were fixed by hand/), 'Copies: so.']);
});

it.each([
  ['where it is away', null],
  ['where it finds no plan of its own', { kind: 'infeasible', reason: 'no room' } as const],
])('nobody places them %s', async (_, answer) => {
  const plan = await proposed(() => answer);
  expect(plan.stages.map(({ stop, primary, standbys }) => [stop, primary, standbys])).toEqual([
    [2, 'pa', []],
    [4, 'pb', []],
  ]);
});
