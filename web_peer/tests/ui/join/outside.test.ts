/*
 * @vitest-environment jsdom
 *
 * A tab that could not come in yet: when it tries again is said, and a person may try now or stop that.
 */

import { h, render } from 'preact';
import { afterEach, expect, it } from 'vitest';

import { Waiting } from '../../../ui/join/outside';
import type { View } from '../../../ui/app/view';

const TROUBLE = {
  title: 'Nobody answers in this mesh',
  text: 'Too few are there.',
  remedy: 'retry',
} as const;

afterEach(() => render(null, document.body));

it('says when it tries again, and leaves the message alone meanwhile', () => {
  const did: string[] = [];
  const actions = { retry: () => did.push('retry'), leave: () => did.push('leave') };
  const view = { actions, relayOnly: { value: false } } as unknown as View;
  const shown = (leftS: number): string => {
    render(h(Waiting, { view, trouble: TROUBLE, leftS }), document.body);
    return document.body.textContent;
  };
  expect(shown(4)).toContain('Tries again in 4 s.');
  const alert = document.querySelector('[role=alert]');
  const button = [...document.querySelectorAll('button')].find((one) => one.textContent === 'Try now');
  button?.focus();
  expect(shown(0)).toContain('Trying again…');
  expect(document.querySelector('[role=alert]')).toBe(alert); // it would be read aloud again
  expect(alert?.textContent).toBe('Nobody answers in this meshToo few are there.');
  expect(document.activeElement).toBe(button);
  document.querySelectorAll('button').forEach((one) => one.click());
  expect(did).toEqual(['retry', 'leave']);
});
