/* What other peers report of themselves, who works by it, and what of an answer is read aloud. */

import { describe, expect, it } from 'vitest';

import { breakersSaid, delaysAmong, factsOf, type Known } from '../../../ui/mesh/member_card';
import { type Report, reportOf, Reports } from '../../../ui/mesh/reports';
import { sayable, spoken } from '../../../ui/conversation/read_aloud';
import { BadCommand } from '../../../src/errors';
import { EMPTY_STATE } from '../../../src/state/mesh_state';
import { STATUS } from '../../../src/wire/generated/requests';
import { readAnswer } from '../../../src/wire/request_kind';

const A = 'a'.repeat(32);
const B = 'b'.repeat(32);
const SAID = {
  ...{ name: 'ann', agent: 'shoal', runs: [[0, 9]], rss_bytes: 0, pledge_bytes: 0, tokens: 0 },
  ...{ steps: 1200, active: 1, sessions: 2, tokens_per_s_milli: 18_400 },
  ...{ weight_bytes: 200e6, kv_bytes: 40e6, rtt_us: { [B]: 1500 } },
};
const reported = (more: object): Report => reportOf(readAnswer(STATUS, { ...SAID, ...more }));
const REPORT = reported({});

describe('reports', () => {
  it('are decoded', () => {
    expect(REPORT).toMatchObject({ steps: 1200, active: 1, sessions: 2, tokensPerS: 18.4 });
    expect(REPORT.rttS.get(B)).toBe(0.0015);
    const steps = [
      [0, 9, 21_500],
      [9, 20, 0],
    ];
    expect(reported({ step_us: steps }).stepUs).toEqual([[0, 9, 21_500]]);
    expect(reported({ step_us: Array.from({ length: 999 }, () => [0, 1, 2]) }).stepUs).toHaveLength(64);
  });

  it.each<object>([
    ...[{ steps: '7' }, { active: -1 }, { sessions: Number.NaN }, { kv_bytes: 1e300 }, { rtt_us: [null] }],
    ...[{ rtt_us: null }, { step_us: {} }, { step_us: [[9, 20]] }, { breakers: [7] }, { runs: [[4, 4]] }],
  ])('with another value are none: %j', (change) => {
    expect(() => reported(change)).toThrow(BadCommand);
  });

  it('tell who works: whoever ran steps since the report before', () => {
    const reports = new Reports();
    reports.came(A, REPORT, 10);
    expect(reports.working(10).size).toBe(0); // one report alone says nothing
    reports.came(A, { ...REPORT, steps: 1218 }, 11);
    expect(reports.stepsPerS(A, 11)).toBe(18);
    expect([...reports.working(11)]).toEqual([A]);
    reports.came(A, { ...REPORT, steps: 1218 }, 12);
    expect(reports.working(12).size).toBe(0);
  });

  it('of a peer that restarted, fell silent, or left count for nothing', () => {
    const reports = new Reports();
    reports.came(A, REPORT, 10);
    reports.came(A, { ...REPORT, steps: 3 }, 11);
    expect(reports.stepsPerS(A, 11)).toBe(0);
    reports.came(A, { ...REPORT, steps: 30 }, 12);
    expect(reports.stepsPerS(A, 12)).toBe(27);
    expect(reports.stepsPerS(A, 18)).toBe(0);
    reports.keep(new Set([B]));
    expect(reports.of(A)).toBeNull();
  });
});

describe('the card of a peer', () => {
  const known: Known = {
    breakers: [],
    standsBy: [{ run: [0, 3], of: 'studio', ready: true }],
    report: REPORT,
    stepsPerS: 18,
    delayMs: 1.44,
    lentBytes: 1e9,
    runsOn: 'WebGPU',
    units: 8,
    inWords: true,
  };

  it('says all that is known', () => {
    expect(factsOf(known).map(({ label, value }) => `${label}: ${value}`)).toEqual([
      'Stands by for: embedding, layer 1 of studio: ready',
      'Runs on: WebGPU',
      'Memory: 240 MB in use of 1 GB',
      'Tokens helped: 1,200',
      'Now: 18.0 tokens/s',
      'Conversations: 1 now, 2 kept',
      'From you: 1.4 ms',
    ]);
  });

  it('says who leaves it, or a link to it, alone', () => {
    const breakers = [
      [B, 'open'],
      [`${A}>${B}`, 'half-open'],
      [A, 'open'],
      [B, 'shut'],
    ];
    const report = reported({ breakers });
    expect(report.breakers).toHaveLength(3);
    const said = breakersSaid(B, new Map([[A, report]]), new Map([[A, 'studio']]));
    expect(factsOf({ ...known, standsBy: [], breakers: said }).slice(0, 2)).toEqual([
      { label: 'After failures', value: 'left alone, says studio', tone: 'warn' },
      { label: 'Link from studio', value: 'tried again with little, says studio', tone: 'warn' },
    ]);
  });

  it('says nothing of what is not known', () => {
    expect(factsOf({ ...known, standsBy: [], report: null, delayMs: 0, lentBytes: 0, runsOn: '' })).toEqual(
      [],
    );
  });

  it('takes delays among members only', () => {
    const member = {
      name: '',
      compute: true,
      status: 'measured',
      profile: null,
      held: [],
      reason: '',
      headless: false,
      durable: false,
      incarnation: 0,
    } as const;
    const state = { ...EMPTY_STATE, members: new Map([A, B].map((peer) => [peer, { ...member, peer }])) };
    expect(delaysAmong(state, new Map([[A, REPORT]]))).toEqual([[A, B, 1.5]]);
    expect(delaysAmong(EMPTY_STATE, new Map([[A, REPORT]]))).toEqual([]);
  });
});

describe('reading aloud', () => {
  it.each([
    ['', false, ''],
    ['A model is a long stack of layers', false, ''],
    [
      'A model is a long stack of many, many layers. Each comp',
      false,
      'A model is a long stack of many, many layers.',
    ],
    ['Yes. No. ', false, ''],
    ['Half a sentence', true, 'Half a sentence'],
  ])('of %j (over: %s) says %j', (rest, over, said) => {
    expect(rest.slice(0, sayable(rest, over))).toBe(said);
  });

  it.each([
    ['**bold** and `code`', 'bold and code'],
    ['## A title\n\n- one\n- two', 'A title one two'],
    ['[a link](https://example.org/) and ![a picture](x)', 'a link and a picture'],
    ['```python\nprint(1)\n```', 'print(1)'],
    ['| a | b |\n| --- | ---: |\n| 1 | 2 |', 'a b 1 2'],
  ])('%j without its marks', (text, said) => {
    expect(spoken(text).replaceAll(/\s+/g, ' ')).toBe(said);
  });
});
