/* Sampling: the vectors that both languages replay, against a plain definition, and its time. */

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { BadSampling, NotFiniteLogits, SamplingError } from '../../src/errors';
import { fromHex } from '../../src/wire/hex';
import {
  exponential,
  murmur3,
  sample,
  type Sampling,
  samplingFromWire,
  samplingOf,
  samplingToWire,
  uniform,
} from '../../src/session/sampling';
import { vectors } from '../vectors';

interface Case {
  readonly name: string;
  readonly settings: number[];
  readonly position: number;
  readonly history: number[];
  readonly generated: number[];
  readonly logits?: string;
  readonly made?: { seed: number; vocab: number; span: number };
  readonly token: number;
}
interface Vectors {
  readonly uniform: [number, number, number, number, number][];
  readonly exponential: [string, string][];
  readonly sample: Case[];
  readonly reject: { logits: string }[];
}

const VECTORS = vectors('sampling') as Vectors;
const ROWS = new Map<string, Float32Array>();

function logitsOf({ logits, made }: Case): Float32Array {
  if (made === undefined) return new Float32Array(fromHex(logits ?? '').buffer);
  const { seed, vocab, span } = made;
  const key = JSON.stringify(made);
  const row =
    ROWS.get(key) ?? Float32Array.from({ length: vocab }, (_, at) => uniform(seed, at) * span - span / 2);
  ROWS.set(key, row);
  return row;
}

function float64(hex: string): number {
  return new DataView(fromHex(hex).buffer).getFloat64(0);
}

it.each(VECTORS.uniform)('uniform(%i, %i)', (seed, position, high, low, bits) => {
  const words = [seed % 2 ** 32, Math.floor(seed / 2 ** 32), position];
  expect([murmur3(words, 1), murmur3(words, 2)]).toEqual([high, low]);
  expect(uniform(seed, position) * 2 ** 53).toBe(bits);
});

it.each(VECTORS.exponential)('exponential of %s', (exponent, value) => {
  expect(exponential(float64(exponent))).toBe(float64(value));
});

it.each(VECTORS.sample)('$name at $position', (given) => {
  const sampling = samplingFromWire(given.settings);
  const token = sample(logitsOf(given), sampling, given.position, given.history, given.generated);
  expect(token).toBe(given.token);
  expect(samplingToWire(sampling)).toEqual(given.settings);
});

it.each(VECTORS.reject)('logits $logits are refused', ({ logits }) => {
  const row = new Float32Array(fromHex(logits).buffer);
  expect(() => sample(row, samplingOf({}), 0)).toThrow(NotFiniteLogits);
});

it.each([
  [{ temperature: -1 }],
  [{ temperature: NaN }],
  [{ topP: 0 }],
  [{ topK: 1.5 }],
  [{ seed: 2 ** 53 }],
  [{ repetitionPenalty: 0 }],
  [{ presencePenalty: 2.1 }],
])('settings %j are refused', (given) => {
  expect(() => samplingOf(given)).toThrow(BadSampling);
});

it.each([[[1, 2, 3]], [[0, 0, 1e6, 0, 1e6, 0, 0, 0.5]], [[0, 0, 1e6, 0, 1e6, 0, 0, 2 ** 53]]])(
  'wire settings %j are refused',
  (values) => {
    expect(() => samplingFromWire(values)).toThrow(BadSampling);
  },
);

it('murmur3 equals its published values', () => {
  expect(murmur3([], 1)).toBe(0x514e28b7);
  expect(murmur3([0xffffffff], 0)).toBe(0x76293b50);
  expect(murmur3([0x87654321], 0x5082edee)).toBe(0x2362f9de);
});

describe('against a plain definition', () => {
  const settings = fc.record({
    temperature: fc.constantFrom(0.3, 1, 2.5),
    topK: fc.constantFrom(0, 1, 3, 20),
    topP: fc.constantFrom(0.1, 0.5, 0.95, 1),
    minP: fc.constantFrom(0, 0.05, 0.5),
    seed: fc.nat(),
  });
  const row = fc.array(
    fc.oneof(fc.integer({ min: -4, max: 4 }), fc.double({ min: -60, max: 60, noNaN: true })),
    {
      minLength: 1,
      maxLength: 60,
    },
  );

  it('draws the same token', () => {
    fc.assert(
      fc.property(row, settings, fc.nat(1000), (values, given, position) => {
        const logits = Float32Array.from(values);
        const sampling = samplingOf(given);
        expect(sample(logits, sampling, position)).toBe(plain(logits, sampling, position));
      }),
      { numRuns: 500 },
    );
  });
});

/** The definition, with one full sort. */
function plain(logits: Float32Array, sampling: Sampling, position: number): number {
  const top = Math.max(...logits);
  let ranked = [...logits.entries()].sort(([a, x], [b, y]) => y - x || a - b);
  if (sampling.topK > 0) ranked = ranked.slice(0, sampling.topK);
  let weighed = ranked
    .map(([id, logit]) => ({ id, exponent: (logit - top) / sampling.temperature }))
    .filter(({ exponent }) => exponent >= -40)
    .map(({ id, exponent }) => ({ id, weight: exponential(exponent) }));
  const byId = (): typeof weighed => [...weighed].sort((a, b) => a.id - b.id);
  const total = (): number => byId().reduce((sum, { weight }) => sum + weight, 0);
  if (sampling.topP < 1) {
    const goal = sampling.topP * total();
    let running = 0;
    const length = weighed.findIndex(({ weight }) => (running += weight) >= goal) + 1;
    if (length > 0) weighed = weighed.slice(0, length);
  }
  weighed = weighed.filter(({ weight }) => weight >= sampling.minP);
  const drawn = uniform(sampling.seed, position) * total();
  let running = 0;
  return byId().find(({ weight }) => (running += weight) > drawn)?.id ?? -1;
}

it.each([
  ['NaN', [0, Number.NaN, 1]],
  ['+Inf', [0, Infinity]],
  ['nothing but -Inf', [-Infinity, -Infinity]],
  ['no logits', []],
])('%s is a named error', (_, values) => {
  expect(() => sample(Float32Array.from(values), samplingOf({ temperature: 1 }), 0)).toThrow(SamplingError);
});

it('-Inf is never drawn', () => {
  const logits = Float32Array.from([-Infinity, 0, -Infinity, 0]);
  for (let position = 0; position < 50; position++) {
    expect([1, 3]).toContain(sample(logits, samplingOf({ temperature: 2, topK: 3, topP: 0.9 }), position));
  }
});

it('settings are kept to a millionth', () => {
  expect(samplingOf({ temperature: 0.1234567 }).temperature).toBe(0.123457);
  expect(samplingOf({ minP: 0.0000005 }).minP).toBe(0); // half to even, as everywhere
});
