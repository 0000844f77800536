/* Bytes of messages between cores, good and damaged, come to what Python's vectors say. */

import { expect, it } from 'vitest';

import { messageOf, textOf } from '../../src/consensus/trace_json';
import { BadMessage } from '../../src/consensus/errors';
import { decode, encode } from '../../src/consensus/message_codec';
import { toHex } from '../../src/wire/hex';
import { bytesOf, vectors } from '../vectors';

const { rows } = vectors('consensus_wire') as { readonly rows: readonly (readonly [string, string])[] };

function says(hex: string): string {
  try {
    return textOf(decode(bytesOf(hex)));
  } catch (error) {
    if (!(error instanceof BadMessage)) throw error;
    return `error ${error.message}`;
  }
}

it('bytes come to a message or an error', () => {
  expect(rows.length).toBeGreaterThan(390);
  for (const [hex, said] of rows) expect([hex, says(hex)]).toEqual([hex, said]);
});

it('a message comes to its bytes again', () => {
  const good = rows.filter(([, said]) => !said.startsWith('error'));
  const written = good.map(([, said]) => toHex(encode(messageOf(said))));
  expect(good.filter(([hex], place) => written[place] === hex).length).toBeGreaterThan(120);
  for (const [place, [, said]] of good.entries()) expect(says(written[place] ?? '')).toBe(said);
});
