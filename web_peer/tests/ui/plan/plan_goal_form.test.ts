/*
 * @vitest-environment jsdom
 *
 * The form of the wish: what somebody chooses as soon as it is there is what they wish.
 */

import { h, render } from 'preact';
import { expect, it } from 'vitest';

import { PlanWish } from '../../../ui/plan/plan_goal_form';
import type { View, WishView } from '../../../ui/app/view';

const WISH: WishView = {
  strategy: 'optimal',
  goal: 'latency',
  groups: [],
  hasGroups: false,
  byHand: false,
  mayWish: true,
  outcome: '',
  tone: 'calm',
};

/** Until effects that wait for a frame have run. */
const framesLater = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 300));

it('is kept when it was chosen before the first frame was drawn', async () => {
  const wished: string[][] = [];
  const actions = { wishPlan: (...words: string[]) => wished.push(words) };
  render(h(PlanWish, { view: { wish: { value: WISH }, actions } as unknown as View }), document.body);
  const layer = document.querySelector<HTMLInputElement>('input[value=layer]');
  layer?.click();
  await framesLater();
  expect(layer?.checked).toBe(true);
  document.querySelector<HTMLButtonElement>('button[type=submit]')?.click();
  expect(wished).toEqual([['layer', 'latency']]);
});
