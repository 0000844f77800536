import { expect, test } from 'vitest';

import {
  crossedText,
  type Crossing,
  Crossings,
  type Part,
  partsOf,
} from '../../src/origin/arithmetic_changes';

const A = 'cpu/avx512_vnni/rows-1/9f3ac1d2e4b07755';
const B = 'cpu/avx2/rows-1/0123456789abcdef';

const halves = (one: string, other: string, border = 3): readonly Part[] => [
  { first: 0, stop: border, arithmetic: one },
  { first: border, stop: 6, arithmetic: other },
];
const whole = (arithmetic: string): readonly Part[] => [{ first: 0, stop: 6, arithmetic }];
const crossing = (tokens: number, first: number, stop: number, before: string, after: string): Crossing => ({
  tokens,
  first,
  stop,
  before,
  after,
});

const CASES: readonly (readonly [string, readonly (readonly Part[] | null)[], readonly Crossing[]])[] = [
  ['nothing changes', [halves(A, B), halves(A, B)], []],
  ['a stage goes on', [halves(A, A), halves(A, A), halves(A, B)], [crossing(2, 3, 6, A, B)]],
  ['one run of units', [halves(A, A), halves(B, B)], [crossing(1, 0, 6, A, B)]],
  [
    'there and back',
    [halves(A, A), halves(B, A), halves(A, A)],
    [crossing(1, 0, 3, A, B), crossing(2, 0, 3, B, A)],
  ],
  ['unknown and unknown', [halves('', ''), whole('')], []],
  ['unknown and known', [halves(A, ''), halves(A, A)], [crossing(1, 3, 6, '', A)]],
  ['a border moves', [halves(A, B), halves(A, B, 4)], [crossing(1, 3, 4, B, A)]],
  ['nobody knows of one', [halves(A, A), null, halves(A, B)], [crossing(2, 3, 6, A, B)]],
];

test.each(CASES)('%s', (_, tokens, found) => {
  const crossings = new Crossings();
  for (const parts of tokens) crossings.token(parts);
  expect(crossings.found).toEqual(found);
});

test('an answer of another peer had tokens before', () => {
  const crossings = new Crossings(10);
  for (const parts of [halves(A, A), halves(A, B)]) crossings.token(parts);
  expect(crossings.found).toEqual([crossing(11, 3, 6, A, B)]);
});

test('who computes a route how', () => {
  const stage = { standbys: [], weightBytes: 0, kvBytes: 0, overheadBytes: 0 };
  const stages = [
    { ...stage, first: 0, stop: 3, primary: 'p' },
    { ...stage, first: 3, stop: 6, primary: 'q' },
  ];
  const members = new Map([['p', { profile: null }]]);
  expect(partsOf({ stages }, ['p', 'p'], members)).toEqual(halves('', ''));
  expect(partsOf({ stages }, ['p', 'q'], members)).toBeNull();
});

test('what people read', () => {
  expect(crossedText([])).toBe('');
  expect(crossedText([crossing(12, 0, 30, A, B)])).toBe(
    'after 12 tokens units 0 to 29 went on with other arithmetic (cpu avx2 rows-1 0123, before cpu avx512_vnni ' +
      'rows-1 9f3a): wording may differ from there on',
  );
  expect(crossedText([crossing(1, 5, 6, '', B), crossing(2, 5, 6, B, '')])).toContain(
    'after 1 token unit 5 went on with other arithmetic (cpu avx2 rows-1 0123, before unknown), and 1 more such changes',
  );
});
