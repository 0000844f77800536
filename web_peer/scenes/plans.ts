/* A made-up mesh of five that lend, and the plan that it would show. For development and screenshots only. */

import { EMPTY_STATE, type MeshState } from '../src/state/mesh_state';
import type { ChoiceRecord, Member, Profile } from '../src/state/generated/commands';
import type { Run } from '../src/state/plan_record';
import type { PlannerUnit } from '../src/coordination/plan_request';
import { planView } from '../ui/plan/plan_view';
import { type Asked, wishView } from '../ui/plan/plan_goal_view';
import type { Report } from '../ui/mesh/reports';

const MB = 1e6;
const [YOU, STUDIO, MIRA, DESK, TOWER] = ['a', 'b', 'c', 'f', 'g'] as const;

const unit = (
  name: string,
  kind: PlannerUnit['kind'],
  bytes: number,
  wide: number,
  out: number,
): PlannerUnit => ({
  name,
  kind,
  weightBytes: bytes,
  packedBytes: bytes,
  wideBytes: wide,
  flopsPerToken: 0,
  kvBytesPerToken: kind === 'attn' ? 1536 : 0,
  outBytesPerToken: out,
});
const LAYERS = Array.from({ length: 30 }, (_, at) => [
  unit(`attn.${at}`, 'attn', 1 * MB, 3.5 * MB, 2304),
  unit(`ffn.${at}`, 'ffn', 3 * MB, 10.6 * MB, 2304),
]);
const UNITS = [
  unit('embed', 'embed', 30 * MB, 113 * MB, 2304),
  ...LAYERS.flat(),
  unit('head', 'head', 30 * MB, 113 * MB, 4),
];

const profile = (memoryBytes: number, layerNs: number, provider: string): Profile => {
  const times = new Map([
    ['embed', 20_000],
    ['attn', layerNs * 0.4],
    ['ffn', layerNs * 0.6],
    ['head', layerNs * 3],
  ]);
  return {
    memoryBytes,
    overheadBytes: 40 * MB,
    decodeNs: times,
    prefillNs: times,
    batchNs: new Map(),
    stepNs: 300_000,
    provider,
    threads: 4,
  };
};

const run = (first: number, stop: number): Run => ({ first, stop });
const member = (peer: string, name: string, held: readonly Run[], measured: Profile): Member => ({
  ...{ peer, name, compute: true, status: 'measured', profile: measured, held, reason: '' },
  ...{ headless: false, durable: true, incarnation: 0 },
});
const MEMBERS = [
  member(YOU, 'Chromium on Linux', [run(19, 41)], profile(1000 * MB, 1_500_000, 'wasm')),
  member(STUDIO, 'studio', [run(0, 19)], profile(560 * MB, 520_000, 'cpu')),
  member(MIRA, 'Mira’s laptop', [run(41, 62)], profile(500 * MB, 610_000, 'webgpu')),
  member(DESK, 'desk in the hall', [run(19, 41)], profile(580 * MB, 800_000, 'cpu')),
  member(TOWER, 'Firefox on Windows', [], profile(1000 * MB, 1_700_000, 'wasm')),
];
const links = MEMBERS.flatMap(({ peer: src }, at) =>
  MEMBERS.flatMap(({ peer: dst }, to) =>
    src === dst
      ? []
      : [
          {
            src,
            dst,
            rttUs: Math.abs(at - to) === 1 && at + to === 1 ? 1400 : 21_000 + 800 * ((at + to) % 4),
            bytesPerS: 12 * MB,
            overheadUs: 200,
          },
        ],
  ),
);
const stage = (first: number, stop: number, primary: string, standbys: readonly string[]) => ({
  ...{ first, stop, primary, standbys },
  ...{ weightBytes: 0, kvBytes: 0, overheadBytes: 0 },
});
const choice = (
  name: string,
  [tokenUs, prefillUs, rateMilli, megabytes]: readonly [number, number, number, number],
  is: 'chosen' | 'front' | 'knee' | 'beaten',
  whyNot = '',
): ChoiceRecord => ({
  ...{ name, tokenUs, prefillUs, rateMilli, memoryBytes: megabytes * MB, whyNot },
  ...{ chosen: is === 'chosen', best: is !== 'beaten', knee: is === 'knee' },
});
const STATE: MeshState = {
  ...EMPTY_STATE,
  model: {
    ...{ kind: 'ModelChosen', model: 'x', name: 'SmolLM2-135M-Instruct.Q4_1', units: 62 },
    ...{ context: 2048, sessions: 4, objective: 'latency' },
  },
  members: new Map(MEMBERS.map((one) => [one.peer, one])),
  links,
  plan: {
    version: 7,
    stages: [stage(0, 19, STUDIO, [TOWER]), stage(19, 41, YOU, [DESK]), stage(41, 62, MIRA, [])],
    predictedTokenUs: 52_300,
    predictedRateMilli: 58_200,
    why: [
      'Split over 3 peers: none has room for all units; desk in the hall comes closest, 17.0 MiB short.',
      '4 sessions get 58.2 tokens/s together; limit: the round of 68.7 ms that a batch of 4 takes.',
      'The best of all choices and orders of 5 peers.',
    ],
    choices: [
      choice(`${STUDIO} 0-19 > ${YOU} 19-41 > ${MIRA} 41-62`, [52_300, 9_100, 58_200, 217], 'chosen'),
      choice(
        `${STUDIO} 0-30 > ${DESK} 30-62`,
        [53_900, 9_900, 57_100, 410],
        'beaten',
        '53.9 ms a token, 1.6 ms more',
      ),
      choice(
        `${STUDIO} 0-19 > ${DESK} 19-41 > ${MIRA} 41-62`,
        [54_700, 7_000, 66_900, 188],
        'knee',
        '54.7 ms a token, 2.4 ms more',
      ),
      choice(
        `${STUDIO} 0-17 > ${DESK} 17-33 > ${YOU} 33-46 > ${MIRA} 46-62`,
        [71_200, 6_100, 74_300, 162],
        'front',
        '71.2 ms a token, 18.9 ms more',
      ),
      choice(`${TOWER} 0-62`, [78_100, 19_000, 12_800, 806], 'beaten', '78.1 ms a token, 25.8 ms more'),
      choice('desk in the hall alone', [0, 0, 0, 0], 'beaten', 'desk in the hall alone is 17.0 MiB short'),
    ],
  },
};

const IDLE: Report = {
  ...{ steps: 0, active: 0, sessions: 0, tokensPerS: 0, weightBytes: 0, kvBytes: 0 },
  ...{ rttS: new Map(), stepUs: [], breakers: [] },
};

/** What the sheet shows of how plans are made, in the same mesh with `more`. */
export const wishShown = (more: Partial<MeshState>, asked: Asked): ReturnType<typeof wishView> =>
  wishView({ ...STATE, ...more }, YOU, [], asked, performance.now());

export const PLAN = planView(STATE, {
  me: YOU,
  coordinator: STUDIO,
  voters: [STUDIO, YOU, DESK],
  units: UNITS,
  reports: new Map([
    [YOU, { ...IDLE, weightBytes: 155 * MB, kvBytes: 62 * MB, stepUs: [[19, 41, 17_900]] }],
    [
      STUDIO,
      {
        ...{ ...IDLE, weightBytes: 66 * MB, kvBytes: 21 * MB },
        ...{ rttS: new Map([['c', 0.024]]), stepUs: [[0, 19, 5150]] },
      },
    ],
    [MIRA, { ...IDLE, weightBytes: 70 * MB, kvBytes: 44 * MB, stepUs: [[41, 62, 9700]] }],
    [DESK, { ...IDLE, weightBytes: 44 * MB }],
  ]),
  rttS: new Map([
    [STUDIO, 0.0014],
    [MIRA, 0.022],
  ]),
  answer: { route: [STUDIO, YOU, MIRA], tokensPerS: 18.4 },
});
