/* What people type becomes the arrays that numpy would make, and comes back as they read it. */

import { describe, expect, it, test } from 'vitest';

import { arrayOfPixels, formsOfMedia, pictureAxes } from '../../../ui/models/media';
import { arrayOfJson, npyOf, shownValues } from '../../../ui/models/numbers';
import type { Value, ValueType } from '../../../src/planner/graph_manifest';
import { toHex } from '../../../src/wire/hex';

const value = (dtype: ValueType, ...shape: (number | string)[]): Value => ({
  name: 'v',
  dtype,
  shape,
  bytes: [],
});

describe('JSON', () => {
  it.each<[string, Value, readonly number[], string]>([
    ['[1, -2]', value('int64', 'n'), [2], '0100000000000000feffffffffffffff'],
    ['[[1.5]]', value('float32', 1, 1), [1, 1], '0000c03f'],
    ['[[1], [2]]', value('uint8', 2, 'n'), [2, 1], '0102'],
    ['true', value('bool'), [], '01'],
    [
      '[0, 1, -2, 65504, 0.1, 5.960464477539063e-8, 1e9]',
      value('float16', 'n'),
      [7],
      '0000003c00c0ff7b662e0100007c',
    ],
    ['["é"]', value('string', 'n'), [1], '02000000c3a9'],
    ['[7]', value('int32', 1, 'n'), [1, 1], '07000000'], // axes of one are put in front
    ['[]', value('float32', 'n'), [0], ''],
  ])('%s', (text, of, shape, bytes) => {
    const made = arrayOfJson(text, of);
    expect([made.shape, toHex(made.data)]).toEqual([shape, bytes]);
  });

  it.each<[string, Value, string]>([
    ['[1, 2', value('int64', 'n'), 'JSON expected'],
    ['[[1], [2, 3]]', value('int64', 'n', 'm'), 'equal lengths'],
    ['[[1], 2]', value('int64', 'n', 'm'), 'equal lengths'],
    ['[1.5]', value('int32', 'n'), 'int32 expected, got 1.5'],
    ['[256]', value('uint8', 'n'), 'uint8 expected, got 256'],
    ['[-1]', value('uint64', 'n'), 'uint64 expected, got -1'],
    ['["a"]', value('float32', 'n'), 'float32 expected'],
    ['[1]', value('string', 'n'), 'words in quotes'],
    ['[1]', value('complex64', 'n'), 'makes no values of complex64'],
  ])('%s is no %o', (text, of, says) => {
    expect(() => arrayOfJson(text, of)).toThrow(says);
  });
});

test('values are shown as they are, and how many more there are', () => {
  const shown = (text: string, of: Value): string => shownValues(arrayOfJson(text, of), of);
  expect(shown('[1, 0.25, -3]', value('float16', 'n'))).toBe('1  0.2500  -3');
  expect(shown('[true, false]', value('bool', 'n'))).toBe('true  false');
  expect(shown('["a", "b"]', value('string', 'n'))).toBe('a\nb');
  const many = Array.from({ length: 30 }, (_, at) => at);
  expect(shown(JSON.stringify(many), value('int64', 'n'))).toMatch(/^0 {2}1 .* 23 {2}… 6 more$/);
});

test('an .npy file begins as numpy writes it', () => {
  const of = value('float32', 2, 1);
  const made = npyOf(arrayOfJson('[[1], [2]]', of), 'float32');
  const text = new TextDecoder('latin1').decode(made ?? new Uint8Array());
  expect(text.slice(1, 8)).toBe('NUMPY\x01\x00');
  expect(text).toContain("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }");
  expect(text.indexOf('\n') + 1).toBe(128);
  expect(made?.length).toBe(128 + 8);
  expect(npyOf({ shape: [1], data: new Uint8Array(4) }, 'string')).toBeNull();
});

test('a picture becomes the axes that the model has', () => {
  const pixels = [255, 0, 51, 255, 0, 255, 0, 255]; // two pixels side by side
  const first = value('float32', 1, 3, 'height', 'width');
  const axes = pictureAxes(first);
  if (axes === null) throw new Error('no picture');
  const made = arrayOfPixels(pixels, 2, 1, first, axes);
  expect(made.shape).toEqual([1, 3, 1, 2]);
  expect([...new Float32Array(made.data.buffer)].map((part) => Math.round(part * 255))).toEqual([
    255, 0, 0, 255, 51, 0,
  ]);
  const last = value('uint8', 'height', 'width', 3);
  const lastAxes = pictureAxes(last);
  if (lastAxes === null) throw new Error('no picture');
  expect([...arrayOfPixels(pixels, 2, 1, last, lastAxes).data]).toEqual([255, 0, 51, 0, 255, 0]);
  expect(pictureAxes(value('int64', 1, 3, 2, 2))).toBeNull();
});

it.each<[Value, readonly string[]]>([
  [value('float32', 1, 3, 'h', 'w'), ['picture', 'json']],
  [value('float32', 'batch', 'samples'), ['sound', 'json']],
  [value('string', 'n'), ['words', 'json']],
  [value('int64', 'batch', 'length'), ['json']],
])('%o is given as %j', (of, forms) => {
  expect(formsOfMedia(of)).toEqual(forms);
});
