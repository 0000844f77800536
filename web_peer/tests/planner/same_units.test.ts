/* Which runs of units are the same. */

import { expect, it } from 'vitest';

import { decodeGraphManifest, type GraphManifest } from '../../src/planner/graph_manifest';
import { sameUnits } from '../../src/planner/same_units';
import { vectors } from '../vectors';

const { cases } = vectors('compose') as { cases: { name: string; manifest: string }[] };
const MODEL = decodeGraphManifest(new TextEncoder().encode(cases[0]?.manifest));

function changed(place: number, changes: Partial<GraphManifest['units'][number]>): GraphManifest {
  const units = MODEL.units.map((unit, at) => (at === place ? { ...unit, ...changes } : unit));
  return { ...MODEL, units };
}

it.each<[string, GraphManifest, boolean, boolean]>([
  ['another name', { ...MODEL, name: 'again' }, true, true],
  ['another name of a unit', changed(1, { name: 'other', component: 'other' }), true, true],
  ['another graph', changed(1, { graph: { sha256: 'f'.repeat(64), bytes: 1, pieces: [] } }), true, false],
  ['other weights', changed(1, { tensors: [] }), true, false],
  ['other optimizations', { ...MODEL, fused: !MODEL.fused }, false, false],
])('%s', (_, other, first, second) => {
  expect(sameUnits(other, 0, 1) === sameUnits(MODEL, 0, 1)).toBe(first);
  expect(sameUnits(other, 1, 2) === sameUnits(MODEL, 1, 2)).toBe(second);
  expect(sameUnits(MODEL, 0, 1)).not.toBe(sameUnits(MODEL, 1, 2));
});
