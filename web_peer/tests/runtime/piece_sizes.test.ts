/* How large pieces of prompts are: both languages come to the same sizes. */

import { expect, it } from 'vitest';

import { PieceSizes } from '../../src/runtime/piece_sizes';
import { vectors } from '../vectors';

interface Trace {
  readonly least: number;
  readonly ops: readonly (readonly [
    'decoded' | 'ran' | 'released' | 'next',
    number,
    number,
    readonly string[],
  ])[];
}

it.each((vectors('piece_sizes') as { readonly traces: readonly Trace[] }).traces)(
  'trace %#',
  ({ least, ops }) => {
    const sizes = new PieceSizes(least);
    for (const [what, first, second, sessions] of ops) {
      const [session = ''] = sessions;
      if (what === 'decoded') sizes.decoded(first / 1e6, second / 1e6, sessions);
      else if (what === 'ran') sizes.ran(session, first, second / 1e6);
      else if (what === 'released') sizes.released(session);
      else expect(sizes.next(first / 1e6)).toBe(second);
    }
  },
);
