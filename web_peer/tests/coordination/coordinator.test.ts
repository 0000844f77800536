/* What a coordinator adds to the log: the histories that both languages replay. */

import { describe, expect, it } from 'vitest';

import { Coordinator } from '../../src/coordination/coordinator';
import { BadCommand } from '../../src/errors';
import { type Command, decodeCommand, encodeCommand } from '../../src/state/member_commands';
import { EMPTY_STATE } from '../../src/state/mesh_state';
import {
  decodeAnswer,
  encodeRequest,
  type PlannerUnit,
  YARDSTICK_UNITS,
} from '../../src/coordination/plan_request';
import { vectors } from '../vectors';

interface Op {
  readonly do: 'submit' | 'told' | 'stop_waiting';
  readonly command?: unknown;
  readonly peer?: string;
  readonly gives?: readonly unknown[];
  readonly refused?: true;
  readonly awaited?: readonly string[];
}

const { units, traces } = vectors('coordinator') as {
  units: { name: string; kind: PlannerUnit['kind']; weight_bytes: number }[];
  traces: { name: string; units?: 'yardstick'; ops: Op[] }[];
};
const UNITS: readonly PlannerUnit[] = units.map(({ name, kind, weight_bytes: bytes }) => ({
  ...{ name, kind, weightBytes: bytes, packedBytes: bytes, wideBytes: bytes },
  ...{ flopsPerToken: 5, kvBytesPerToken: 2, outBytesPerToken: 64 },
}));

function commandOf(value: unknown): Command {
  return decodeCommand(new TextEncoder().encode(JSON.stringify(sortedKeys(value))));
}

/** Commands are canonical JSON. */
function sortedKeys(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sortedKeys);
  if (typeof value !== 'object' || value === null) return value;
  const fields = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return Object.fromEntries(fields.map(([name, each]) => [name, sortedKeys(each)]));
}

function bare(command: Command): unknown {
  if (command.kind !== 'PlanProposed') return JSON.parse(new TextDecoder().decode(encodeCommand(command)));
  const { version, stages } = command.plan;
  const shown = stages.map(({ first, stop, primary, standbys }) => [first, stop, primary, [...standbys]]);
  return { kind: 'PlanProposed', version, stages: shown };
}

function perform(coordinator: Coordinator, op: Op): readonly Command[] {
  if (op.do === 'stop_waiting') return coordinator.stopWaiting(op.peer ?? '');
  const command = commandOf(op.command);
  if (op.do === 'submit') return coordinator.submit(command);
  if (command.kind !== 'MemberMeasured' && command.kind !== 'UnitsHeld') throw new Error('a wrong vector');
  const taken = coordinator.told(op.peer ?? '', command);
  return taken === null ? [] : [taken];
}

describe('histories', () => {
  it.each(traces)('$name', ({ units: known, ops }) => {
    const coordinator = new Coordinator('pa', known === undefined ? UNITS : YARDSTICK_UNITS, EMPTY_STATE);
    for (const op of ops) {
      if (op.refused === true) expect(() => perform(coordinator, op)).toThrow(BadCommand);
      else expect(perform(coordinator, op).map(bare)).toEqual(op.gives);
      if (op.awaited !== undefined) expect([...coordinator.awaited].sort()).toEqual(op.awaited);
    }
  });
});

describe('a planning service', () => {
  const trace = traces[0];
  const coordinator = new Coordinator('pa', UNITS, EMPTY_STATE);
  for (const op of trace?.ops.slice(0, 14) ?? []) perform(coordinator, op);
  const wanted = coordinator.wanted();
  if (wanted === null) throw new Error('a wrong vector');
  const stage = {
    ...{ first: 0, stop: 6, peer: 'pb', standbys: ['pc'] },
    ...{ weight_bytes: 1, kv_bytes: 2, overhead_bytes: 3 },
  };
  const plan = { stages: [stage], objective: 'latency', decode_s: 0.0001, tokens_per_s: 9, why: ['so'] };

  const choice = {
    ...{ name: 'pb 0-6', decode_s: 0.0001, prefill_s: 0.00002, tokens_per_s: 9.5, memory_bytes: 4 },
    ...{ chosen: true, best: true, knee: false, why_not: '' },
  };

  it('says among which plans it chose', () => {
    const planned = decodeAnswer(
      JSON.stringify({
        plan: { ...plan, choices: [choice, { ...choice, chosen: false, why_not: 'x'.repeat(600) }] },
      }),
      wanted.request,
    );
    if (planned.kind !== 'plan') throw new Error('expected a plan');
    const [first, second] = planned.plan.choices;
    expect(first).toEqual({
      ...{ name: 'pb 0-6', tokenUs: 100, prefillUs: 20, rateMilli: 9500, memoryBytes: 4 },
      ...{ chosen: true, best: true, knee: false, whyNot: '' },
    });
    expect(second?.whyNot).toHaveLength(512);
  });

  it('is asked with who is ready', () => {
    const request = JSON.parse(encodeRequest(wanted.request)) as {
      peers: { peer: string }[];
      units: unknown[];
    };
    expect(request.peers.map(({ peer }) => peer)).toEqual(['pa', 'pb', 'pc', 'pd']);
    expect(request.units).toHaveLength(UNITS.length);
  });

  it('is asked once for the same mesh, and again when it did not answer', () => {
    expect(coordinator.wanted()).toBeNull();
    coordinator.unplanned(wanted);
    expect(coordinator.wanted()?.key).toBe(wanted.key);
  });

  it('answers with a plan, which is proposed', () => {
    const planned = decodeAnswer(JSON.stringify({ plan }), wanted.request);
    const before = coordinator.state.lastVersion;
    const [command] = coordinator.planned(wanted, planned);
    expect(command).toMatchObject({
      kind: 'PlanProposed',
      plan: { version: before + 1, predictedTokenUs: 100 },
    });
  });

  it.each([
    ['{', 'JSON'],
    [JSON.stringify({ plan: { ...plan, stages: [{ ...stage, stop: 5 }] } }), 'all 6 units'],
    [JSON.stringify({ plan: { ...plan, stages: [{ ...stage, first: 1 }] } }), 'from unit 0'],
    [JSON.stringify({ plan: { ...plan, stages: [{ ...stage, peer: 'px' }] } }), 'peers of the request'],
    [JSON.stringify({ plan: { ...plan, decode_s: -1 } }), 'a number'],
    [JSON.stringify({ plan: { ...plan, choices: [7] } }), 'an object'],
    [JSON.stringify({ plan: { ...plan, choices: [{ ...choice, tokens_per_s: -1 }] } }), 'a number'],
    [JSON.stringify({ infeasible: {} }), 'a reason'],
  ])('is not believed: %s', (text, why) => {
    expect(() => decodeAnswer(text, wanted.request)).toThrow(why);
  });
});
