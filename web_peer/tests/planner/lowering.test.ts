import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';

import { CannotServe } from '../../src/errors';
import { firstKept, windowCapacity, windowHolds, windowOf } from '../../src/planner/kv_window';
import { decodeManifest, kvNames, kvPositions, packedBytes, wideBytes } from '../../src/planner/manifest';
import type { Provider } from '../../src/planner/linear';
import { makeGraphs, rotaryTables } from '../../src/planner/lowering';
import vectors from '../../../tests/vectors/lowering.json';

const sha256 = (bytes: Uint8Array | null): string | null =>
  bytes === null ? null : createHash('sha256').update(bytes).digest('hex');
const bytesOf = (base64: string): Uint8Array => new Uint8Array(Buffer.from(base64, 'base64'));
const blobsOf = (blobs: object): Map<string, Uint8Array> =>
  new Map(Object.entries(blobs).map(([hash, base64]) => [hash, bytesOf(base64 as string)]));
const manifestOf = (encoded: string): ReturnType<typeof decodeManifest> =>
  decodeManifest(new TextEncoder().encode(encoded));
const floatBytes = (values: Float32Array): Uint8Array =>
  new Uint8Array(values.buffer, values.byteOffset, values.byteLength);

test('a large head is in slices of rows', () => {
  const manifest = manifestOf(vectors.sliced.manifest);
  const stop = manifest.units.length;
  const { head } = makeGraphs(manifest, blobsOf(vectors.sliced.blobs), stop - 1, stop, 'wasm');
  expect(sha256(head)).toBe(vectors.sliced.head);
});

test('what a manifest says of speech is checked', () => {
  const manifest = JSON.parse(vectors.sliced.manifest) as { decoder: Record<string, unknown> };
  const speech = { ...manifest, decoder: { ...manifest.decoder, speech: {} } };
  expect(() => manifestOf(JSON.stringify(speech))).toThrow('speech');
});

test('a manifest says in which form pictures are given', () => {
  const manifest = JSON.parse(vectors.sliced.manifest) as { decoder: Record<string, unknown> };
  const seen = (more: object) => {
    const sight = { model: 'a'.repeat(64), token: 1, positions: 9, ...more };
    return manifestOf(JSON.stringify({ ...manifest, decoder: { ...manifest.decoder, sight } })).sight;
  };
  expect(seen({})).toMatchObject({ square: 0, axes: 1 });
  expect(seen({ square: 28, axes: 3 })).toMatchObject({ square: 28, axes: 3 });
  for (const wrong of [{ square: 0 }, { square: 1025 }, { axes: 2 }, { axes: '3' }]) {
    expect(() => seen(wrong)).toThrow('manifest.decoder.sight');
  }
});

const odd = vectors.cases.find(({ name }) => name === 'odd');
if (odd === undefined) throw new Error('expected the odd decoder among the cases');

test.each(vectors.refused)('refused: $name', ({ unit, graph }) => {
  const bytes = bytesOf(graph);
  const hash = sha256(bytes) ?? '';
  const edited = JSON.parse(odd.manifest) as { units: { graph: object }[] };
  edited.units[unit] = {
    ...edited.units[unit],
    graph: { bytes: bytes.length, pieces: [hash], sha256: hash },
  };
  const manifest = manifestOf(JSON.stringify(edited));
  expect(() => makeGraphs(manifest, new Map([[hash, bytes]]), unit, unit + 1, 'wasm')).toThrow(CannotServe);
});

test('the odd decoder is lowered where no graph of it is another one', () => {
  const { manifest: encoded, blobs } = odd;
  const manifest = manifestOf(encoded);
  for (const { unit } of vectors.refused) {
    expect(() => makeGraphs(manifest, blobsOf(blobs), unit, unit + 1, 'wasm')).not.toThrow();
  }
});

/** The hashes of what units [first, stop) become. */
interface GraphsVector {
  readonly first: number;
  readonly stop: number;
  readonly provider: string;
  readonly refused?: boolean; // a GPU does not compute it
  readonly embed?: string | null;
  readonly body?: string | null;
  readonly head?: string | null;
}

describe.each(vectors.cases)('$name', (vector) => {
  const manifest = manifestOf(vector.manifest);
  const blobs = blobsOf(vector.blobs);

  test.each<GraphsVector>(vector.graphs)('graphs of units $first to $stop for $provider', (graph) => {
    const make = (): ReturnType<typeof makeGraphs> =>
      makeGraphs(manifest, blobs, graph.first, graph.stop, graph.provider as Provider);
    if (graph.refused === true) {
      expect(make).toThrow('not computed right on a GPU');
      return;
    }
    const made = make();
    expect(sha256(made.embed)).toBe(graph.embed);
    expect(sha256(made.body)).toBe(graph.body);
    expect(sha256(made.head)).toBe(graph.head);
  });

  test('rotary tables', () => {
    vector.rotary.forEach(({ cos, sin }, table) => {
      const made = rotaryTables(manifest.rotary[table] ?? [], 9);
      expect(floatBytes(made.cos)).toEqual(bytesOf(cos));
      expect(floatBytes(made.sin)).toEqual(bytesOf(sin));
    });
    expect(manifest.rotary).toHaveLength(vector.rotary.length);
  });

  test('units', () => {
    const found = manifest.units.map((unit) => ({
      name: unit.name,
      kind: unit.kind,
      state: kvNames([unit]),
      kv_bytes_per_token: unit.kvBytesPerToken,
      kv_positions: kvPositions(unit, manifest.window),
      flops_per_token: unit.flopsPerToken,
      out_bytes_per_token: unit.outBytesPerToken,
    }));
    expect(found).toEqual(vector.units);
  });

  test('what units occupy, as the planner counts it', () => {
    const held = manifest.units.map((unit) => ({
      unit: unit.name,
      wasm: wideBytes(unit),
      webgpu: packedBytes(unit),
    }));
    expect(held).toEqual(vector.held);
  });
});

test.each(vectors.windows)('what sessions keep of a window of $tokens', (vector) => {
  const window = windowOf(
    vector.states.map(([headSize, tokens]) => ({ headSize: headSize ?? 0, window: tokens ?? null })),
  );
  expect(window).toEqual({ tokens: vector.tokens, block: vector.block });
  if (window === null) return;
  expect(windowCapacity(window)).toBe(vector.capacity);
  for (const { length, first, holds } of vector.lengths) {
    expect(firstKept(window, length)).toBe(first);
    expect(holds.map((_, at) => windowHolds(window, at * window.block, length))).toEqual(holds);
  }
});
