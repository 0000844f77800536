/* Whose checks answer what others ask, and what was checked of several models together. */

import { expect, it } from 'vitest';

import { addedUp, CheckRequests, type Checks } from '../../src/audit/step_checks';
import { Requests } from '../../src/transport/request_table';

const OWN = '00'.repeat(16);
const FURTHER = `${'ab'.repeat(6)}${'00'.repeat(10)}`;

it('what others ask goes to the checks of the model whose session it is, one check at a time', async () => {
  const heard: string[] = [];
  let over: () => void = () => undefined;
  const checksOf = (name: string): Checks =>
    ({
      odd: (peer: string) => void heard.push(`${name} ${peer}`),
      checked: (peer: string) => {
        heard.push(`${name} checks for ${peer}`);
        return new Promise((resolve) => {
          over = () => resolve({ verdict: 'same' });
        });
      },
    }) as unknown as Checks;
  const own = checksOf('own');
  const further = checksOf('further');
  const requests = new Requests(() => true);
  new CheckRequests({ on: requests.on.bind(requests) }, (session) => (session === FURTHER ? further : own));
  for (const session of [OWN, FURTHER]) await requests.answer('p', 'odd', { session, position: 3 });
  expect(heard).toEqual(['own p', 'further p']);
  const asked = (session: string): Promise<unknown> =>
    requests.answer('q', 'check', {
      ...{ session, stage: 0, position: 3, units: [0, 2], peer: 'p', before: '', after: '', spans: [4] },
      ...{ token: -1, sampling: [], sampled: 0 },
    });
  const first = asked(FURTHER);
  await expect(asked(OWN)).rejects.toThrow('one at a time'); // of whatever model
  over();
  await first;
  expect(heard.slice(2)).toEqual(['further checks for q']);
});

it('what was checked of several models is told together', () => {
  const counts = { same: 1, differs: 2, disputed: 3, unable: 4 };
  const none = { same: 0, differs: 0, disputed: 0, unable: 1 };
  expect(
    addedUp([
      { made: counts, got: counts, kept: 5, positions: 6, worstPpm: 7 },
      { made: counts, got: none, kept: 1, positions: 1, worstPpm: 9 },
    ]),
  ).toEqual({
    made: { same: 2, differs: 4, disputed: 6, unable: 8 },
    got: { same: 1, differs: 2, disputed: 3, unable: 5 },
    ...{ kept: 6, positions: 7, worstPpm: 9 },
  });
});
