/* Names of peers are those that a terminal shows, by the vectors of tests/vectors/make_display_names.py. */

import { expect, it } from 'vitest';

import { GONE, named, nameOf, names, plain, toldApart } from '../../src/state/display_names';
import type { Member } from '../../src/state/generated/commands';
import { vectors } from '../vectors';

interface Case {
  readonly members: { peer: string; name: string; compute: boolean }[];
  readonly names: Record<string, string>;
  readonly apart: Record<string, string>;
  readonly text: string;
  readonly named: string;
}

const { cases, plain: texts } = vectors('display_names') as { cases: Case[]; plain: [string, string][] };

it.each(cases)('members $members.length are told apart', (given) => {
  const members = given.members as unknown as Member[];
  const called = names(members);
  expect(Object.fromEntries(called)).toEqual(given.names);
  const all = new Map(members.map(({ peer, name }) => [peer, name]));
  expect(Object.fromEntries(toldApart(all))).toEqual(given.apart);
  expect(new Set(called.values()).size).toBe(members.length);
  expect(named(given.text, called)).toBe(given.named);
});

it('a peer that is no member any more has no bare id', () => {
  expect(nameOf('abcdefgh', new Map())).toBe(`${GONE} (abcd)`);
});

it.each(texts)('%j is shown', (text, shown) => {
  expect(plain(text)).toBe(shown);
  expect(plain('a\ud83d')).toBe('a\ufffd');
});
