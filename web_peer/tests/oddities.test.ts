/* An asker hears of an odd row, and not of each; without recorded lengths nobody looks. */

import { expect, it } from 'vitest';

import type { Body } from '../src/calls';
import type { RunStep } from '../src/effects';
import type { Manifest } from '../src/manifest';
import type { Node } from '../src/node';
import { looksAtRows } from '../src/oddities';
import type { Serving } from '../src/serving';

const SESSION = '01'.repeat(16);
const LENGTHS = '{"format":"shoal-envelopes-1","borders":[[0,2000],[3000,4000]]}';
const MANIFEST = { units: [0, 1, 2], architecture: { hidden: 4 } } as unknown as Manifest;

async function told(encoded: string | null): Promise<readonly (readonly [string, string, Body])[]> {
  const heard: [string, string, Body][] = [];
  const node = {
    me: 'v',
    state: { model: { model: 'm' } },
    core: { asker: () => 'q' },
    calls: {
      call: (peer: string, method: string, body: Body) => {
        heard.push([peer, method, body]);
        return Promise.resolve({});
      },
    },
  } as unknown as Node;
  const serving = { look: () => undefined } as unknown as Serving;
  const file = encoded === null ? null : new TextEncoder().encode(encoded);
  const recorded = (): Promise<Uint8Array | null> => Promise.resolve(file);
  await looksAtRows(node, serving, MANIFEST, recorded, new AbortController().signal);
  const step = { session: SESSION, run: { first: 1, stop: 3 }, position: 7 };
  const look = (lengths: readonly number[]): void => {
    const hidden = Float32Array.from(lengths.flatMap((length) => [0, length, 0, 0]));
    serving.look({ ...step, hidden } as unknown as RunStep);
  };
  look([2, 3]);
  expect(heard).toEqual([]);
  look([2, 99]);
  look([99]);
  return heard;
}

it('an asker hears of the first odd row', async () => {
  expect(await told(LENGTHS)).toEqual([['q', 'odd', { session: SESSION, units: [1, 3], position: 8 }]]);
});

it.each([null, '{}'])('without lengths that make sense nobody looks: %s', async (encoded) => {
  expect(await told(encoded)).toEqual([]);
});
