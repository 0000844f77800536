/* What a model has of sampling, and how an answer is drawn of that and of what its asker says: as in Python. */

import { describe, expect, it } from 'vitest';

import { CannotServe } from '../../src/errors';
import { decodeManifest } from '../../src/planner/manifest';
import { type SamplingDefaults, USUAL } from '../../src/planner/sampling_defaults';
import { samplingFor, samplingToWire } from '../../src/session/sampling';
import { camel, vectors } from '../vectors';

type Fields = Readonly<Record<string, number>>;
interface Vectors {
  readonly usual: readonly Fields[];
  readonly manifests: readonly { says: unknown; found: Fields | null }[];
  readonly drawn: readonly { defaults: Fields; asked: Fields; wire: number[] | null }[];
}

const { usual, manifests, drawn } = vectors('sampling_defaults') as Vectors;
const graphs = vectors('lowering') as { readonly cases: readonly { manifest: string }[] };
const WHOLE = JSON.parse(graphs.cases[0]?.manifest ?? '') as { readonly decoder: object };

const inCamel = (fields: Fields): Record<string, number> =>
  Object.fromEntries(Object.entries(fields).map(([name, value]) => [camel(name), value]));
const decoded = (more: Record<string, unknown>): SamplingDefaults | null =>
  decodeManifest(
    new TextEncoder().encode(JSON.stringify({ ...WHOLE, decoder: { ...WHOLE.decoder, ...more } })),
  ).sampling;

describe('the field of a manifest', () => {
  it('is missing where the model says nothing, as in older ones', () => {
    expect(decoded({})).toBeNull();
    expect(USUAL).toEqual(inCamel(usual[0] ?? {}));
  });

  it.each(manifests)('$says', ({ says, found }) => {
    if (found === null) expect(() => decoded({ sampling: says })).toThrow(CannotServe);
    else expect(decoded({ sampling: says })).toEqual(inCamel(found));
  });
});

it.each(drawn)('$asked over $defaults', ({ defaults, asked, wire }) => {
  const made = (): number[] =>
    samplingToWire(samplingFor(inCamel(defaults) as unknown as SamplingDefaults, inCamel(asked), 7));
  if (wire === null) expect(made).toThrow('must be');
  else expect(made()).toEqual(wire);
});
