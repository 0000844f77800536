/* What the ledger of the mesh says of a member, as lines of its card. Pure. */

import type { MeshState } from '../../src/state/mesh_state';
import { countText } from '../kit/formatting';
import type { Fact } from '../app/view';

const MILLI = 1000;

/** Credits that it earned and spent, and whether two peers found its results wrong; nothing where nothing is known. */
export function sharesOf({ ledger, fairness }: MeshState, peer: string): readonly Fact[] {
  const balance = ledger.balances.get(peer);
  const credits = (milli: number): string => countText(Math.round(milli / MILLI));
  const given: Fact[] =
    balance === undefined || fairness.policy === 'off'
      ? []
      : [
          {
            label: 'Credits',
            value: `${credits(balance.earned)} earned, ${credits(balance.spent)} spent`,
            tone: 'plain',
          },
        ];
  if (!fairness.quarantined.has(peer)) return given;
  return [...given, { label: 'Results', value: 'wrong, as two peers found', tone: 'warn' }];
}
