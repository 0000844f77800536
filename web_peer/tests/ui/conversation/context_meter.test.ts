/*
 * @vitest-environment jsdom
 *
 * How much of the context is used: in figures, for eyes and for screen readers, and with a warning before it is full.
 */

import { h, render } from 'preact';
import { afterEach, expect, it } from 'vitest';

import { ContextMeter } from '../../../ui/conversation/context_meter';
import type { Talk } from '../../../ui/app/view';

afterEach(() => render(null, document.body));

function shown(usedTokens: number, context: number): HTMLElement | null {
  render(h(ContextMeter, { talk: { usedTokens } as Talk, context }), document.body);
  return document.querySelector<HTMLElement>('.context');
}

it.each([
  [0, 2048],
  [100, 0],
])('is not there while nothing is known (%i of %i)', (used, context) => {
  expect(shown(used, context)).toBeNull();
});

it.each([
  [512, 2048, '25%', '512 of 2048 tokens', 512, false],
  [1740, 2048, '85%', '1740 of 2048 tokens', 1740, false],
  [1742, 2048, '85%', '1742 of 2048 tokens', 1742, true],
  [2048, 2048, '100%', '2048 of 2048 tokens', 2048, true],
  [3000, 2048, '100%', '3000 of 2048 tokens', 2048, true], // instructions that grew meanwhile
])('%i of %i tokens are %s', (used, context, percent, words, value, isFull) => {
  const box = shown(used, context);
  const meter = box?.querySelector('meter');
  const text = `Context used: ${percent} (${words})`;
  expect(box?.textContent).toBe(percent);
  expect(box?.title).toBe(text);
  expect(meter?.getAttribute('aria-label')).toBe(text);
  expect(Number(meter?.getAttribute('value'))).toBe(value);
  expect(Number(meter?.getAttribute('max'))).toBe(context);
  expect(box?.classList.contains('is-full')).toBe(isFull);
});
