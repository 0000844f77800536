/*
 * What a coordinating tab plans when peers become slower, come, and are lost: the histories that both languages replay.
 */

import { describe, expect, it } from 'vitest';

import { Coordinator } from '../../src/coordination/coordinator';
import { type Command, decodeCommand, encodeCommand } from '../../src/state/member_commands';
import { EMPTY_STATE } from '../../src/state/mesh_state';
import type { Run } from '../../src/state/plan_record';
import {
  decodeAnswer,
  encodeRequest,
  type PlannerUnit,
  type PlanRequest,
} from '../../src/coordination/plan_request';
import { repairOrder } from '../../src/coordination/repair_order';
import { vectors } from '../vectors';

interface Op {
  readonly do: 'submit' | 'plan' | 'look';
  readonly command?: unknown;
  readonly serving?: unknown;
  readonly answer?: string;
  readonly now_ms?: number;
  readonly gives: readonly unknown[];
}

const { units, traces, repairs } = vectors('relief') as {
  units: { name: string; kind: PlannerUnit['kind']; weight_bytes: number }[];
  traces: { name: string; ops: Op[] }[];
  repairs: {
    runs: [number, number][];
    lost: number[];
    priority: string[];
    together: boolean;
    order: number[];
  }[];
};
const UNITS: readonly PlannerUnit[] = units.map(({ name, kind, weight_bytes: bytes }) => ({
  ...{ name, kind, weightBytes: bytes, packedBytes: bytes, wideBytes: bytes, flopsPerToken: 10 ** 6 },
  ...{ kvBytesPerToken: kind === 'attn' ? 1024 : 0, outBytesPerToken: 2048 },
}));

/** Commands are canonical JSON. */
function sortedKeys(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sortedKeys);
  if (typeof value !== 'object' || value === null) return value;
  const fields = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return Object.fromEntries(fields.map(([name, each]) => [name, sortedKeys(each)]));
}

function plans(coordinator: Coordinator, { serving, answer = '' }: Op): readonly Command[] {
  const wanted = coordinator.wanted();
  if (wanted === null) throw new Error('expected that a plan is wanted');
  const asked = JSON.parse(encodeRequest(wanted.request)) as { serving?: unknown };
  expect(asked.serving ?? null).toEqual(serving);
  return coordinator.planned(wanted, decodeAnswer(answer, wanted.request));
}

function perform(coordinator: Coordinator, op: Op): readonly Command[] {
  switch (op.do) {
    case 'submit': {
      const text = JSON.stringify(sortedKeys(op.command));
      return coordinator.submit(decodeCommand(new TextEncoder().encode(text)));
    }
    case 'plan':
      return plans(coordinator, op);
    case 'look':
      return coordinator.relieve(op.now_ms ?? 0);
  }
}

function replayed(ops: readonly Op[]): Coordinator {
  const coordinator = new Coordinator('p0', UNITS, EMPTY_STATE);
  for (const [at, op] of ops.entries()) {
    const log = perform(coordinator, op).map((command) => new TextDecoder().decode(encodeCommand(command)));
    expect(log.map((each) => JSON.parse(each) as unknown)).toEqual(op.gives);
    if (op.do === 'plan' && ops[at + 1]?.do !== 'plan') expect(coordinator.wanted()).toBeNull();
  }
  return coordinator;
}

describe('histories', () => {
  it.each(traces)('$name', ({ ops }) => {
    expect(replayed(ops).state.lastVersion).toBeGreaterThan(0);
  });
});

const relieves = (op: Op): boolean => op.do === 'look' && op.gives.length > 0;
const history = traces.find(({ ops }) => ops.some(relieves))?.ops ?? [];
const when = history.findIndex(relieves);
const before = history.slice(0, when);

describe('a peer that is to be relieved', () => {
  const now = history[when]?.now_ms ?? 0;
  const { answer = '' } = before.findLast((op) => op.do === 'plan') ?? {};

  it('is planned for anew when others hold units than those that the step was reckoned for', () => {
    const coordinator = replayed(before);
    const [peer] = coordinator.state.members.keys();
    const first = coordinator.state.members.get(peer ?? '')?.held ?? [];
    coordinator.submit({ kind: 'UnitsHeld', peer: peer ?? '', held: [...first, { first: 7, stop: 8 }] });
    expect(coordinator.relieve(now)).toEqual([]);
    const wanted = coordinator.wanted();
    if (wanted === null) throw new Error('expected that a plan is wanted');
    expect(JSON.stringify(JSON.parse(encodeRequest(wanted.request)))).toContain('[7,8]');
    expect(coordinator.planned(wanted, decodeAnswer(answer, wanted.request))).toEqual([]);
    const [command] = coordinator.relieve(now + 1000);
    expect(command?.kind === 'PlanProposed' && command.plan.why[0]).toMatch(/^Relief: /);
  });

  it('stays when nobody reckons what a plan is beside the one that serves', () => {
    const at = before.findLastIndex((op) => op.do === 'plan');
    const coordinator = replayed(before.slice(0, at));
    const wanted = coordinator.wanted();
    if (wanted === null) throw new Error('expected that a plan is wanted');
    const { plan } = JSON.parse(answer) as { plan: unknown };
    const planned = decodeAnswer(JSON.stringify({ plan }), wanted.request); // as an older service answers
    expect(planned.kind === 'plan' && planned.beside).toBeNull();
    expect(coordinator.planned(wanted, planned)).toEqual([]);
    expect(coordinator.relieve(now + 60_000)).toEqual([]);
  });
});

it('what was compared with stages that serve no more is asked for anew', () => {
  const first = history.findIndex((op) => op.do === 'plan');
  const coordinator = replayed(history.slice(0, first));
  const wanted = coordinator.wanted();
  const [op, ...later] = history.slice(first);
  if (wanted === null || op === undefined) throw new Error('a wrong vector');
  const planned = decodeAnswer(op.answer ?? '', wanted.request);
  if (planned.kind !== 'plan') throw new Error('a wrong vector');
  coordinator.submit({ kind: 'PlanProposed', plan: { ...planned.plan, version: 1 } });
  for (const held of later.slice(
    0,
    later.findIndex(({ do: what }) => what !== 'submit'),
  ))
    perform(coordinator, held);
  expect(coordinator.state.plan?.version).toBe(1);
  expect(coordinator.planned(wanted, planned)).toEqual([]);
  expect(coordinator.wanted()?.request.serving?.stages).toEqual(planned.plan.stages);
});

describe('what a service says of the stages that serve', () => {
  const coordinator = replayed(before.slice(0, -1));
  const request: PlanRequest = {
    ...{
      shared: [],
      state: coordinator.state,
      units: UNITS,
      serving: { stages: [], lost: false, first: [] },
    },
    peers: [...coordinator.state.members.values()].flatMap(({ peer, profile }) =>
      profile === null ? [] : [{ peer, profile }],
    ),
  };
  const { plan, serving } = JSON.parse(before.findLast((op) => op.do === 'plan')?.answer ?? '') as {
    plan: { stages: object[] };
    serving: { kept: object; relief: object };
  };
  const stages = plan.stages.map((stage) => ({ ...stage, peer: 'px' }));

  it.each([
    [7, 'an object as serving'],
    [{ ...serving, kept: undefined }, 'an object as plan'],
    [{ ...serving, kept: { ...plan, stages } }, 'peers of the request'],
    [{ ...serving, relief: undefined }, 'an object as relief'],
    [{ ...serving, relief: { plan } }, 'a whole number as checks'],
    [{ ...serving, relief: { checks: -1, plan } }, 'a whole number as checks'],
    [{ ...serving, relief: { checks: 3, plan: { ...plan, stages: plan.stages.slice(1) } } }, 'unit'],
  ])('is not believed: %j', (said, why) => {
    expect(() => decodeAnswer(JSON.stringify({ plan, serving: said }), request)).toThrow(why);
    expect(() => decodeAnswer(JSON.stringify({ plan, serving }), request)).not.toThrow();
  });
});

describe('lost stages', () => {
  it.each(repairs)('of $runs: $lost', ({ runs, lost, priority, together, order }) => {
    const places: Run[] = runs.map(([first, stop]) => ({ first, stop }));
    const names = units.map(({ name }) => name);
    expect(repairOrder(lost, places, names, priority, together)).toEqual(order);
  });
});
