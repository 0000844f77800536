/* A header of any length comes back as it was written, also where the buffer of the writer has to grow. */

import { expect, it } from 'vitest';

import { decodeHeader, type Value } from '../../src/wire/frame_header';
import { Packer } from '../../src/wire/msgpack';

it.each<[string, (count: number) => Value[]]>([
  ['text', (count) => [1, 'x'.repeat(count), 'end']],
  ['bytes', (count) => [1, new Uint8Array(count).fill(7), 300]],
  ['numbers behind text', (count) => ['x'.repeat(count), 1, -1, 200, -200, 70_000, 2 ** 40, []]],
  ['short texts', (count) => ['x'.repeat(count), 'a', 'b', 'c', new Uint8Array(1)]],
])('%s', (_, make) => {
  for (let count = 990; count < 1040; count++) {
    const values = make(count);
    expect(decodeHeader(new Packer().packed(values))).toEqual(values);
  }
});
