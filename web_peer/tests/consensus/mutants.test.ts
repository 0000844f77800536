/* Every mutant's patch applies exactly once, and one that does not fails. */

import { expect, it } from 'vitest';

import { Core } from '../../src/consensus/core';
import { apply, coreOf, MUTANTS, parse } from './mutants';

const SOURCE = 'one\ntwo\nthree\ntwo\n';

it.each([...MUTANTS.values()])('$name applies', async (mutant) => {
  const core = (await coreOf(mutant))();
  expect(core).not.toBeInstanceOf(Core);
  expect(() => core.step(0, { kind: 'tick' })).toThrow('expected Boot as the first event');
  for (const { before, after } of mutant.edits) expect(before).not.toBe(after);
});

it('a patch names lines', () => {
  const text = 'What it does.\n\n--- a/x.py\n@@\n one\n-two\n+2\n@@\n-three\n--- b.py\n@@\n+0\n one\n';
  expect(parse('7-x', text)).toEqual({
    name: '7-x',
    defect: 'What it does.',
    edits: [
      { path: 'a/x.py', before: 'one\ntwo\n', after: 'one\n2\n' },
      { path: 'a/x.py', before: 'three\n', after: '' },
      { path: 'b.py', before: 'one\n', after: '0\none\n' },
    ],
  });
});

it.each(['two', '@@ -1 +1 @@', '+++ a'])('another line is refused: %s', (line) => {
  expect(() => parse('7-x', `What it does.\n\n--- a/x.py\n${line}\n`)).toThrow('expected a line of a patch');
});

it.each([
  ['two\n', 2],
  ['four\n', 0],
  ['wo\n', 0],
  ['three\none\n', 0],
  ['', 5],
])('%j does not stand there once', (before, count) => {
  const edit = { path: 'x.py', before, after: 'new\n' };
  expect(() => apply(edit, SOURCE)).toThrow(`expected these lines once, found them ${count} times`);
});

it('whole lines are replaced', () => {
  expect(apply({ path: 'x.py', before: 'one\ntwo\n', after: '1\n' }, SOURCE)).toBe('1\nthree\ntwo\n');
  expect(apply({ path: 'x.py', before: 'three\n', after: '' }, SOURCE)).toBe('one\ntwo\ntwo\n');
});
