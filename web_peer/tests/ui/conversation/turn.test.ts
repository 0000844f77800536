/* How an answer came about, in a line: only what is known. */

import { expect, it } from 'vitest';

import { factsText } from '../../../ui/conversation/turn';

it.each([
  [{ tokens: 1, tokensPerS: 0, firstTokenS: 0, route: [] }, '1 token'],
  [
    { tokens: 25, tokensPerS: 20.9, firstTokenS: 0.42, route: ['studio', 'you'] },
    '25 tokens · 20.9 tokens/s · first after 0.4 s · studio → you',
  ],
  [{ tokens: 0, tokensPerS: 0, firstTokenS: 0, route: [] }, ''], // brought in from a file, or as a copy
])('%j: %s', (facts, text) => expect(factsText(facts)).toBe(text));
