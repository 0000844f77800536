/* What is stored of weights, as a runtime is handed it: as planner/ unpacks it. */

import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';

import { makeGraphs } from '../../src/planner/lowering';
import { decodeManifest } from '../../src/planner/manifest';
import { PassingTensors } from '../../src/runtime/tensor_lending';
import { EmbeddingTable, locationsOf, unpacked, weightBytes } from '../../src/runtime/weight_unpacking';
import vectors from '../../../tests/vectors/lowering.json';

const sha256 = (values: Float32Array): string =>
  createHash('sha256')
    .update(new Uint8Array(values.buffer, values.byteOffset, values.byteLength))
    .digest('hex');

describe.each(vectors.cases)('$name', (vector) => {
  const manifest = decodeManifest(new TextEncoder().encode(vector.manifest));
  const blobs = new Map(
    Object.entries(vector.blobs).map(([hash, base64]) => [
      hash,
      new Uint8Array(Buffer.from(base64, 'base64')),
    ]),
  );
  const whole = (provider: 'wasm' | 'webgpu') =>
    makeGraphs(manifest, blobs, 0, manifest.units.length, provider);
  const wasm = whole('wasm');
  const source = (name: string) => {
    const unit = manifest.units.find((one) => one.name === name);
    const blob = blobs.get(unit?.blob.sha256 ?? '');
    if (unit === undefined || blob === undefined) throw new Error(`no unit ${name}`);
    return { unit, blob };
  };
  /** K of a linear, or of the embedding. */
  const columnsOf = (unit: string, name: string): number => {
    const location = wasm.locations.get(`${unit}/${name}.w`);
    return location?.columns ?? wasm.table?.columns ?? 0;
  };

  test.each(vector.linears)('float32 of $unit $name', ({ unit, name, w }) => {
    expect(sha256(unpacked(source(unit), name, columnsOf(unit, name)))).toBe(w);
  });

  test.each(vector.linears)('rows of $unit $name are those of its matrix', ({ unit, name }) => {
    const columns = columnsOf(unit, name);
    const all = unpacked(source(unit), name, columns);
    const count = all.length / columns; // a router of experts has few
    for (const [first, stop] of [
      [0, Math.min(3, count)],
      [Math.min(3, count - 1), Math.min(8, count)],
      [count - 1, count],
    ] as const) {
      const rows = unpacked(source(unit), name, columns, { first, stop });
      expect([...rows]).toEqual([...all.subarray(first * columns, stop * columns)]);
    }
  });

  test.each(manifest.units.filter(({ kind }) => kind !== 'embed'))(
    'tensors of $name pass one by one, and go when they were taken',
    (unit) => {
      const { blob } = source(unit.name);
      const wanted = locationsOf(wasm, unit);
      const given = blob.slice();
      const passing = new PassingTensors(unit, given, false, wanted);
      expect(given.length).toBe(0);
      for (const location of wanted.reverse()) {
        const { tensor, bytes: size } = location;
        const bytes = weightBytes(passing.source(tensor), location);
        expect(bytes).toEqual(weightBytes({ unit, blob }, location));
        passing.taken(tensor, size / 2);
        passing.source(tensor);
        passing.taken(tensor, size / 2);
        if (tensor.endsWith('.w')) expect(() => passing.source(tensor)).toThrow(tensor);
      }
      passing.close();
    },
  );

  test('rows of the embedding are those of its matrix', () => {
    const { table } = wasm;
    if (table === null) throw new Error('no table');
    const { columns, rows: vocab, weight } = table;
    const { unit, blob } = source(table.unit.name);
    const all = unpacked({ unit, blob }, weight, columns);
    const rows = new EmbeddingTable(table, blob).rows(Int32Array.of(3, 0, vocab - 1));
    const picked = [3, 0, vocab - 1].flatMap((row) => [...all.subarray(row * columns, (row + 1) * columns)]);
    expect([...rows]).toEqual(picked);
  });

  const isRefused = vector.graphs.some((graph) => 'refused' in graph && graph.provider === 'webgpu');
  const providers = isRefused ? (['wasm'] as const) : (['wasm', 'webgpu'] as const);
  test.each(providers)('every location of %s has the bytes it promises', (provider) => {
    const { locations } = whole(provider);
    expect(locations.size).toBeGreaterThan(manifest.units.length);
    for (const location of locations.values()) {
      const bytes = weightBytes(source(location.unit), location);
      expect(bytes.length, `${location.unit}/${location.tensor}`).toBe(location.bytes);
    }
  });
});
