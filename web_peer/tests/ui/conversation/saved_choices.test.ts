/*
 * @vitest-environment jsdom
 *
 * What a person chose, kept in this browser: a name that was told is one that the mesh takes.
 */

import { beforeEach, expect, it } from 'vitest';

import { nameFault } from '../../../src/state/display_names';
import { keepName, keptName } from '../../../ui/conversation/saved_choices';

beforeEach(() => localStorage.clear());

it.each([
  [' Ann ', 'Ann'],
  ['A\u0000\n\u202en\u2028n', 'Ann'],
  [`${'x'.repeat(39)}😀y`, `${'x'.repeat(39)}😀`],
  ['😀'.repeat(99), '😀'.repeat(40)],
])('keeps %j as %j', (told, kept) => {
  keepName(told);
  expect(keptName()).toBe(kept);
  expect(nameFault(kept)).toBe('');
});

it.each(['', ' \u2028 ', '\u202e'])('keeps none of %j', (told) => {
  keepName(told);
  expect(keptName()).toBeNull();
});
