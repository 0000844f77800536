/* Dictation: what a person reads where nothing can be recorded, how loud it is, and where words go. */

// @vitest-environment jsdom

import { describe, expect, it, vi } from 'vitest';

import { Dictation, levelOf, refusalText, whyNot } from '../../../ui/conversation/dictation';
import { clockText, inserted } from '../../../ui/conversation/dictation_bar';

const nothing = (): AsyncIterable<never> => {
  throw new Error('nothing is written here');
};

describe('where nothing can be recorded', () => {
  it('says that the page is not secure', async () => {
    vi.stubGlobal('isSecureContext', false);
    expect(whyNot()).toContain('open this mesh by https, or on its own machine');
    const dictation = new Dictation();
    await dictation.start(nothing);
    expect(dictation.view.value).toEqual({ kind: 'failed', text: whyNot() });
    dictation.drop();
    expect(dictation.view.value).toEqual({ kind: 'idle' });
    vi.unstubAllGlobals();
  });

  it.each([
    ['NotAllowedError', 'allow it beside the page’s address'],
    ['NotFoundError', 'No microphone was found: connect one'],
    ['NotReadableError', 'close the program that has it'],
    ['TypeError', 'The microphone cannot be used: odd.'],
  ])('says %s in one line', (name, words) => {
    expect(refusalText(new DOMException('odd', name))).toContain(words);
  });
});

it('shows how loud it is', () => {
  expect(levelOf(new Float32Array(64))).toBe(0);
  expect(levelOf(new Float32Array(64).fill(1))).toBe(1);
  expect(levelOf(new Float32Array(64).fill(0.1))).toBeCloseTo(2 / 3, 3);
});

it('shows how long it is', () => {
  expect([0, 7.9, 65, 299.9].map(clockText)).toEqual(['0:00', '0:07', '1:05', '4:59']);
});

describe('what was said', () => {
  it.each([
    ['', 'a fish', 0, 0, 'a fish', 6],
    ['before after', 'a fish', 6, 6, 'before a fish after', 13],
    ['one two three', 'a fish', 4, 7, 'one a fish three', 10],
    ['word', 'a fish', 4, 4, 'word a fish', 11],
    ['word?', 'a fish', 4, 4, 'word a fish?', 11],
  ] as const)('goes into %j', (text, said, start, stop, made, caret) => {
    expect(inserted(text, said, start, stop)).toEqual({ text: made, caret });
  });
});
