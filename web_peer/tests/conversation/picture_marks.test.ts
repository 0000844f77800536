/* How messages say that pictures were asked with: as in Python. */

import { describe, expect, it } from 'vitest';

import { markedText, type PictureMark, toldText, unmarkedText } from '../../src/conversation/picture_marks';
import { vectors } from '../vectors';

interface Vectors {
  readonly said: readonly { pictures: readonly PictureMark[]; words: string; text: string }[];
  readonly read: readonly { text: string; words: string; told: string; pictures: readonly PictureMark[] }[];
}

const { said, read } = vectors('picture_marks') as Vectors;

describe('a message with pictures', () => {
  it.each(said)('is written, case %#', ({ pictures, words, text }) => {
    expect(markedText({ pictures, words })).toBe(text);
  });

  it.each(read)('is read, case %#', ({ text, words, told, pictures }) => {
    expect(unmarkedText(text)).toEqual({ pictures, words });
    expect(toldText(text)).toBe(told);
  });
});
