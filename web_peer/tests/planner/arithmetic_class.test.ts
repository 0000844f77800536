import { expect, test } from 'vitest';

import { isCrossed, otherBits, sameBits, shownClass, unlike } from '../../src/planner/arithmetic_class';

const VNNI = 'cpu/avx512_vnni/rows-1/9f3ac1d2e4b07755';
const AVX2 = 'cpu/avx2/rows-1/0123456789abcdef';

test.each([
  [VNNI, VNNI, true, false, 0, false],
  [VNNI, AVX2, false, true, 2, true],
  [VNNI, '', false, false, 1, true],
  ['', VNNI, false, false, 1, true],
  ['', '', false, false, 1, false],
])('what the classes %s and %s say', (one, another, same, other, last, across) => {
  expect(unlike(one, another)).toBe(last);
  expect(sameBits(one, another)).toBe(same);
  expect(otherBits(one, another)).toBe(other);
  expect(isCrossed(one, another)).toBe(across);
});

test.each([
  [VNNI, 'cpu avx512_vnni rows-1 9f3a'],
  ['webgpu//packed/0123456789abcdef', 'webgpu packed 0123'],
  ['odd', 'odd'],
  ['', ''],
])('what people read of %s', (arithmetic, text) => {
  expect(shownClass(arithmetic)).toBe(text);
});
