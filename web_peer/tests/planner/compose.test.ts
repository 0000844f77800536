/* Manifests of graphs of units, and models composed of them, are those of Python; so is what is refused. */

import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';

import { compose, ELEMENT_TYPES } from '../../src/planner/compose';
import {
  decodeGraphManifest,
  givenBy,
  graphBlobsOf,
  type GraphManifest,
  HALF_BYTES,
  neededBy,
} from '../../src/planner/graph_manifest';
import { messageTable } from '../../src/planner/onnx_messages';
import { vectors } from '../vectors';

interface Run {
  readonly first: number;
  readonly stop: number;
  readonly model: string;
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly weight_bytes: number;
  readonly blobs: readonly string[];
}
interface Vectors {
  readonly tables: readonly [{ messages: object; element_types: object; half_bytes: object }];
  readonly cases: readonly {
    readonly name: string;
    readonly manifest: string;
    readonly graphs: Readonly<Record<string, string>>;
    readonly runs: readonly Run[];
  }[];
  readonly graphs: readonly { readonly graph: string; readonly says?: string; readonly model?: string }[];
  readonly manifests: readonly {
    readonly manifest: string;
    readonly says?: string;
    readonly values?: readonly unknown[];
    readonly needed?: readonly unknown[];
    readonly given?: readonly unknown[];
    readonly sizes?: object;
    readonly fused?: boolean;
  }[];
}

const { tables, cases, graphs, manifests } = vectors('compose') as Vectors;
const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');
const bytesOf = (base64: string): Uint8Array => new Uint8Array(Buffer.from(base64, 'base64'));
const encoded = (text: string): Uint8Array => new TextEncoder().encode(text);
const manifestOf = (name: string): GraphManifest =>
  decodeGraphManifest(encoded(cases.find((each) => each.name === name)?.manifest ?? ''));

/** What `work` gives, or what its error says, without what differs by language. */
function outcome<T>(work: () => T): T | string {
  try {
    return work();
  } catch (error) {
    return plain((error as Error).message);
  }
}

function plain(text: string): string {
  return text
    .replace(/(JSON expected): .*(; import)/, '$1$2')
    .replace(/(an object expected), got \w+$/, '$1');
}

test('fields and data types are those of onnx', () => {
  const [{ messages, element_types: elements, half_bytes: halves }] = tables;
  expect(messageTable()).toEqual(messages);
  expect(ELEMENT_TYPES).toEqual(elements);
  expect(HALF_BYTES).toEqual(halves);
});

describe.each(cases)('$name', ({ manifest, graphs: stored, runs }) => {
  const made = decodeGraphManifest(encoded(manifest));
  const blobs = new Map(Object.entries(stored).map(([name, text]) => [name, bytesOf(text)]));

  test.each(runs)('units $first to $stop are the same model', (run) => {
    const composed = compose(made, blobs, run.first, run.stop);
    expect(sha256(composed.model)).toBe(run.model);
    expect(composed.inputs.map(({ name }) => name)).toEqual(run.inputs);
    expect(composed.outputs.map(({ name }) => name)).toEqual(run.outputs);
    expect(composed.weightBytes).toBe(run.weight_bytes);
    expect(graphBlobsOf(made, run.first, run.stop).map((blob) => blob.sha256)).toEqual(run.blobs);
  });

  test('a graph that is not here, or is another one, is refused', () => {
    const [[name, graph] = ['', new Uint8Array()]] = [...blobs];
    const other = new Map(blobs).set(name, graph.slice(1));
    expect(() => compose(made, new Map(), 0, 1)).toThrow('is not here');
    expect(() => compose(made, other, 0, made.units.length)).toThrow('other bytes than its name says');
  });
});

test('graphs that are odd or spoiled are composed or refused alike', () => {
  const manifest = manifestOf('everything');
  const composed = graphs.map(({ graph }) => {
    const bytes = bytesOf(graph);
    const blob = { sha256: sha256(bytes), bytes: bytes.length, pieces: [] };
    const units = manifest.units.map((unit, place) => (place === 0 ? { ...unit, graph: blob } : unit));
    return outcome(() =>
      sha256(compose({ ...manifest, units }, new Map([[blob.sha256, bytes]]), 0, 1).model),
    );
  });
  expect(composed).toEqual(graphs.map(({ says, model }) => says ?? model));
});

test('manifests that are odd or spoiled are read or refused alike', () => {
  const read = manifests.map(({ manifest: text }) =>
    outcome(() => {
      const manifest = decodeGraphManifest(encoded(text));
      const places = manifest.units.map((_, place) => place);
      return {
        values: manifest.values.map(({ name, dtype, shape }) => [name, dtype, shape]),
        needed: places.map((place) => neededBy(manifest, place, places.length)),
        given: places.map((place) => givenBy(manifest, place, place + 1)),
        sizes: Object.fromEntries(manifest.sizes),
        fused: manifest.fused,
      };
    }),
  );
  const expected = manifests.map(({ says, values, needed, given, sizes, fused }) =>
    says === undefined ? { values, needed, given, sizes, fused } : plain(says),
  );
  expect(read).toEqual(expected);
});

test('what is large is refused before it is read', () => {
  const manifest = manifestOf('chain');
  const [unit] = manifest.units;
  if (unit === undefined) throw new Error('no unit');
  const having = (bytes: Uint8Array): [GraphManifest, Map<string, Uint8Array>] => {
    const graph = { sha256: sha256(bytes), bytes: bytes.length, pieces: [] };
    return [
      { ...manifest, units: [{ ...unit, graph }, ...manifest.units.slice(1)] },
      new Map([[graph.sha256, bytes]]),
    ];
  };
  expect(() => compose(...having(new Uint8Array(5 << 20)), 0, 1)).toThrow('at most 4194304 bytes expected');
  const inner = new Uint8Array((4 << 20) - 16);
  for (let at = 0; at < inner.length; at += 2) inner[at] = 0x0a; // two million nodes, which are not all made
  const graph = Uint8Array.from([0x3a, 0xf0, 0xff, 0xff, 0x01, ...inner]);
  expect(() => compose(...having(graph), 0, 1)).toThrow('an ONNX model expected');
});
