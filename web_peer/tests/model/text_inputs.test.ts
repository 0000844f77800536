/* Texts as inputs of a model: as the vectors say, which Python wrote. */

import { describe, expect, it } from 'vitest';

import { CannotServe } from '../../src/errors';
import { TextReader } from '../../src/model/text_inputs';
import { decodeGraphManifest, type GraphManifest } from '../../src/planner/graph_manifest';
import { vectors } from '../vectors';

interface Vectors {
  readonly tokenizer: readonly [string];
  readonly manifests: readonly { readonly manifest: string; readonly why: string }[];
  readonly texts: readonly {
    readonly manifest: string;
    readonly texts: readonly string[];
    readonly arrays: Readonly<Record<string, readonly (readonly number[])[]>>;
    readonly why: string;
  }[];
  readonly tokenizers: readonly {
    readonly kind: string;
    readonly manifest: string;
    readonly rules: string;
    readonly texts: readonly string[];
    readonly ids: readonly (readonly number[])[];
  }[];
}

const { tokenizer, manifests, texts, tokenizers } = vectors('text_inputs') as Vectors;
const RULES = new TextEncoder().encode(tokenizer[0]);
const read = (manifest: string): GraphManifest => decodeGraphManifest(new TextEncoder().encode(manifest));

function numbers(data: Uint8Array, dtype: string): number[] {
  const { buffer } = data.slice();
  if (dtype === 'int64') return [...new BigInt64Array(buffer)].map(Number);
  return [...(dtype === 'int32' ? new Int32Array(buffer) : new Float32Array(buffer))];
}

describe('a manifest', () => {
  it.each(manifests.map(({ manifest, why }) => [why || 'is read', manifest, why]))(
    '%s',
    (_, manifest, why) => {
      if (why === '') expect(read(manifest).text).not.toBeNull();
      else
        expect(() => read(manifest)).toThrow(why.startsWith('manifest.text') ? 'manifest.text' : CannotServe);
    },
  );
});

describe('texts', () => {
  it.each(texts.map((each) => [each.texts.join(' | ').slice(0, 40), each] as const))('%s', (_, each) => {
    const manifest = read(each.manifest);
    const reader = new TextReader(manifest, RULES);
    if (each.why !== '') {
      expect(() => reader.arrays(each.texts)).toThrow(each.why);
      return;
    }
    const found = reader.arrays(each.texts);
    const types = new Map(manifest.values.map(({ name, dtype }) => [name, dtype]));
    for (const [name, rows] of Object.entries(each.arrays)) {
      const array = found.get(name);
      expect(array?.shape).toEqual([rows.length, rows[0]?.length]);
      expect(numbers(array?.data ?? new Uint8Array(), types.get(name) ?? '')).toEqual(rows.flat());
    }
    expect(found.size).toBe(Object.keys(each.arrays).length);
  });

  it('need a tokenizer that can be read, and a model that says how', () => {
    const manifest = read(manifests[0]?.manifest ?? '');
    expect(() => new TextReader(manifest, new TextEncoder().encode('{'))).toThrow('cannot be read');
    expect(() => new TextReader({ ...manifest, text: null }, RULES)).toThrow('does not say how');
  });
});

describe('tokens of every kind of tokenizer', () => {
  it.each(
    tokenizers.flatMap((each) =>
      each.texts.map((text, at) => [each.kind, text, each.ids[at] ?? [], each] as const),
    ),
  )('%s: %s', (_, text, ids, { manifest, rules }) => {
    const reader = new TextReader(read(manifest), new TextEncoder().encode(rules));
    const found = reader.arrays([text]).get('tokens');
    expect(numbers(found?.data ?? new Uint8Array(), 'int64')).toEqual(ids);
  });
});
