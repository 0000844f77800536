import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';

import { decodeManifest } from '../../src/planner/manifest';
import { heldBytes } from '../../src/runtime/unit_benchmark';
import { PassingTensors } from '../../src/runtime/tensor_lending';
import { makeGraphs, type Provider, rotaryTables } from '../../src/planner/shards';
import {
  columnsOf,
  EmbeddingTable,
  locationsOf,
  unpacked,
  weightBytes,
} from '../../src/runtime/weight_unpacking';
import vectors from '../../../tests/vectors/graphs.json';

const sha256 = (bytes: Uint8Array | null): string | null =>
  bytes === null ? null : createHash('sha256').update(bytes).digest('hex');
const bytesOf = (base64: string): Uint8Array => new Uint8Array(Buffer.from(base64, 'base64'));
const floatBytes = (values: Float32Array): Uint8Array =>
  new Uint8Array(values.buffer, values.byteOffset, values.byteLength);

test('a large head is in slices of rows', () => {
  const manifest = decodeManifest(new TextEncoder().encode(vectors.sliced.manifest));
  const stop = manifest.units.length;
  const { head } = makeGraphs(manifest, stop - 1, stop, 'wasm');
  expect(sha256(head)).toBe(vectors.sliced.head);
});

describe.each(vectors.cases)('$name', (vector) => {
  const manifest = decodeManifest(new TextEncoder().encode(vector.manifest));
  const blobs = new Map(Object.entries(vector.blobs).map(([hash, base64]) => [hash, bytesOf(base64)]));
  const source = (name: string) => {
    const unit = manifest.units.find((one) => one.name === name);
    const blob = blobs.get(unit?.blob.sha256 ?? '');
    if (unit === undefined || blob === undefined) throw new Error(`no unit ${name}`);
    return { unit, blob };
  };

  test.each(vector.graphs)('graphs of units $first to $stop for $provider', (graph) => {
    const made = makeGraphs(manifest, graph.first, graph.stop, graph.provider as Provider);
    expect(sha256(made.body)).toBe(graph.body);
    expect(sha256(made.head)).toBe(graph.head);
  });

  test('rotary tables', () => {
    const made = rotaryTables(manifest.architecture, 9);
    expect(floatBytes(made.cos)).toEqual(bytesOf(vector.cos));
    expect(floatBytes(made.sin)).toEqual(bytesOf(vector.sin));
  });

  test.each(vector.linears)('float32 of $unit $name', ({ unit, name, w }) => {
    const wide = unpacked(source(unit), name, columnsOf(manifest.architecture, name));
    expect(sha256(floatBytes(wide))).toBe(w);
  });

  test.each(vector.linears)('rows of $unit $name are those of its matrix', ({ unit, name }) => {
    const columns = columnsOf(manifest.architecture, name);
    const whole = unpacked(source(unit), name, columns);
    for (const [first, stop] of [
      [0, 3],
      [3, 8],
      [whole.length / columns - 1, whole.length / columns],
    ] as const) {
      const rows = unpacked(source(unit), name, columns, { first, stop });
      expect([...rows]).toEqual([...whole.subarray(first * columns, stop * columns)]);
    }
  });

  test.each(manifest.units.filter(({ kind }) => kind !== 'embed'))(
    'tensors of $name pass one by one, and go when they were taken',
    (unit) => {
      const { blob } = source(unit.name);
      const wanted = [...locationsOf(unit, 'wasm', manifest.architecture)];
      const given = blob.slice();
      const passing = new PassingTensors(unit, given, false, manifest.architecture);
      expect(given.length).toBe(0);
      for (const [location, size] of wanted.reverse()) {
        const bytes = weightBytes(passing.source(location), location, 'wasm', manifest.architecture);
        expect(bytes).toEqual(weightBytes({ unit, blob }, location, 'wasm', manifest.architecture));
        passing.taken(location, size / 2);
        passing.source(location);
        passing.taken(location, size / 2);
        if (location.endsWith('.w')) expect(() => passing.source(location)).toThrow(location);
      }
      passing.close();
    },
  );

  test.each(vector.held)('what $unit occupies, as the planner counts it', ({ unit, wasm, webgpu }) => {
    const held = source(unit).unit;
    expect(heldBytes(held, 'wasm', manifest.architecture)).toBe(wasm);
    expect(heldBytes(held, 'webgpu', manifest.architecture)).toBe(webgpu);
  });

  test('rows of the embedding are those of its matrix', () => {
    const { hidden, vocab } = manifest.architecture;
    const table = new EmbeddingTable(source('embed'), hidden);
    const whole = unpacked(source('embed'), 'embed', hidden);
    const rows = table.rows(Int32Array.of(3, 0, vocab - 1));
    const picked = [3, 0, vocab - 1].flatMap((row) => [...whole.subarray(row * hidden, (row + 1) * hidden)]);
    expect([...rows]).toEqual(picked);
  });

  test.each(['wasm', 'webgpu'] as const)('every location of %s has the bytes it promises', (provider) => {
    for (const unit of manifest.units) {
      for (const [tensor, size] of locationsOf(unit, provider, manifest.architecture)) {
        const bytes = weightBytes(source(unit.name), tensor, provider, manifest.architecture);
        expect(bytes.length, `${unit.name}/${tensor}`).toBe(size);
      }
    }
  });
});
