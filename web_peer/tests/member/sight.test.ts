/* Pictures of a question in a tab: which models it does not ask with them. */

import { expect, test } from 'vitest';

import { PictureRows } from '../../src/member/sight';
import type { Manifest } from '../../src/planner/manifest';

test.each([
  ['with pictures that keep their form', { square: 28 }, 'takes pictures in their own form'],
  ['that sees none', null, 'sees no pictures'],
])('a model %s is refused before anything is prepared', async (_, sight, why) => {
  const rows = new PictureRows({} as ConstructorParameters<typeof PictureRows>[0]);
  const picture = { sha256: 'a'.repeat(64), file: new Blob() };
  const given = rows.given('tiny', { sight } as Manifest, [picture], [1]);
  await expect(given).rejects.toThrow(`tiny ${why}`);
});
