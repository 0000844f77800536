/* Prompts, and the tokens that may come in texts without times: as in Python. */

import { describe, expect, it } from 'vitest';

import { allowed, languageMask, promptOf } from '../../src/model/speech_rules';
import { Fields } from '../../src/planner/checked_fields';
import { speechOf } from '../../src/planner/speech';
import { maskWords } from '../../src/session/ask';
import { vectors } from '../vectors';

interface Vectors {
  readonly made: readonly [{ readonly vocab: number; readonly context: number }];
  readonly rules: readonly {
    readonly speech: object;
    readonly language: number | null;
    readonly prompt: readonly number[];
    readonly first: readonly number[];
    readonly later: readonly number[];
  }[];
}

const {
  made: [{ vocab, context }],
  rules,
} = vectors('speech') as Vectors;

describe.each(rules)('a text without times, case %#', ({ speech: given, language, prompt, first, later }) => {
  const speech = speechOf(new Fields(given, 'speech'), vocab, context);
  const maskOf = (tokens: readonly number[]): number[] => maskWords(vocab, (token) => tokens.includes(token));

  it('begins with language and task', () => {
    expect(promptOf(speech, language)).toEqual(prompt);
  });

  it('has no tokens of times, and none that is suppressed', () => {
    expect(allowed(speech, vocab, true)).toEqual(maskOf(first));
    expect(allowed(speech, vocab, false)).toEqual(maskOf(later));
  });

  it('is in one of the languages that the model knows', () => {
    expect(languageMask(speech, vocab)).toEqual(maskOf([...speech.languages.values()]));
  });
});
