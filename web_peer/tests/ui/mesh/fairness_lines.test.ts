/* What a member's card says of its share. */

import { expect, it } from 'vitest';

import { EMPTY_STATE, type MeshState } from '../../../src/state/mesh_state';
import { sharesOf } from '../../../ui/mesh/fairness_lines';

const STATE: MeshState = {
  ...EMPTY_STATE,
  ledger: { ...EMPTY_STATE.ledger, balances: new Map([['pa', { earned: 12_400, spent: 600 }]]) },
};

it('tells what was earned and spent, where work is counted', () => {
  expect(sharesOf(STATE, 'pa')).toEqual([{ label: 'Credits', value: '12 earned, 1 spent', tone: 'plain' }]);
  expect(sharesOf(STATE, 'pb')).toEqual([]);
  expect(sharesOf({ ...STATE, fairness: { ...STATE.fairness, policy: 'off' } }, 'pa')).toEqual([]);
});

it('tells whose results are wrong', () => {
  const verdict = { whenMs: 1, by: ['pa', 'pb'], lostMilli: 5, sessions: [] };
  const fairness = { ...STATE.fairness, quarantined: new Map([['pc', verdict]]) };
  expect(sharesOf({ ...STATE, fairness }, 'pc').map(({ tone }) => tone)).toEqual(['warn']);
});
