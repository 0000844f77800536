/*
 * Which tokens may come when speech is written without times, as masks (twin of peer/model/speech_rules.py). Pure.
 */

import type { Speech } from '../planner/speech';
import { maskWords } from '../session/ask';

/** What stands before the tokens of each window. `language`: a token, null where the model knows one. */
export function promptOf(
  { start, transcribe, noTimestamps }: Speech,
  language: number | null,
): readonly number[] {
  const task = language === null ? null : transcribe;
  return [start, language, task, noTimestamps].filter((token) => token !== null);
}

/** The mask of the tokens below `vocab` that may come, as the first one of a window or behind others. */
export function allowed(
  { suppressed, beginSuppressed, noTimestamps }: Speech,
  vocab: number,
  isFirst: boolean,
): readonly number[] {
  const never = new Set(isFirst ? [...suppressed, ...beginSuppressed] : suppressed);
  return maskWords(vocab, (token) => token < noTimestamps && !never.has(token));
}

/** The mask of the tokens of languages: the likeliest of them is drawn behind the token that begins a prompt. */
export function languageMask({ languages }: Speech, vocab: number): readonly number[] {
  const known = new Set(languages.values());
  return maskWords(vocab, (token) => known.has(token));
}
