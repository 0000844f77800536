import { expect, test } from 'vitest';

import { arithmeticPattern } from '../../src/state/generated/commands';
import { arithmeticDigest } from '../../src/runtime/arithmetic_digest';
import type { Execution, KvCopy, ShardSource } from '../../src/runtime/execution';
import { type Decoder, decodeManifest, graphsOf } from '../../src/planner/manifest';
import { measureUnits } from '../../src/runtime/unit_benchmark';
import vectors from '../../../tests/vectors/lowering.json';

/** Times as its clock says: a millisecond per unit for one row, two for four, thirty-two for a piece of a prompt. */
class Clocked implements Execution {
  readonly provider = 'wasm';
  readonly hasEmbed = false;
  readonly hasHead = false;
  readonly weightBytes = 0;
  readonly kvBytes = 0;
  readonly overheadBytes = 1000;
  readonly widestHead = 64;
  private readonly units: number;
  private readonly spend: (ms: number) => void;

  constructor(source: ShardSource, spend: (ms: number) => void) {
    this.units = source.units.length;
    this.spend = spend;
  }

  ensure(): void {
    return;
  }
  move(): void {
    return;
  }
  copied(): KvCopy {
    return { bytes: 0, free: () => undefined };
  }
  put(): void {
    return;
  }
  read(): Promise<Float32Array<ArrayBuffer>> {
    return Promise.resolve(new Float32Array());
  }
  write(): boolean {
    return true;
  }
  holds(): boolean {
    return true;
  }
  embed(): Promise<Float32Array> {
    return Promise.resolve(new Float32Array());
  }
  decode(hidden: Float32Array, span: { start: number; stop: number }): Promise<Float32Array> {
    this.spend(this.units * (span.stop - span.start > 1 ? 2 : 1));
    return Promise.resolve(hidden);
  }
  prompt(hidden: Float32Array): Promise<Float32Array> {
    this.spend(this.units * 32);
    return Promise.resolve(hidden);
  }
  head(): Promise<Float32Array> {
    return Promise.reject(new Error('a head is not loaded: its time follows from its size'));
  }
  close(): void {
    return;
  }
}

function decoderOf({ manifest: encoded, blobs }: (typeof vectors.cases)[number]): Decoder {
  const manifest = decodeManifest(new TextEncoder().encode(encoded));
  const known = new Map(Object.entries(blobs));
  const graphs = new Map(
    graphsOf(manifest).map(({ sha256 }) => [sha256, Buffer.from(known.get(sha256) ?? '', 'base64')]),
  );
  return { manifest, graphs };
}

test.each(vectors.cases)('times per unit of $name', async (vector) => {
  let clock = 0;
  const decoder = decoderOf(vector);
  const load = (source: ShardSource, blobs: ReadonlyMap<string, Uint8Array>): Promise<Execution> => {
    expect(blobs.size).toBe(source.units.length);
    return Promise.resolve(new Clocked(source, (ms) => (clock += ms)));
  };
  const { kinds, overheadBytes, arithmetic } = await measureUnits(
    decoder,
    'wasm',
    'simd128',
    load,
    () => clock,
  );
  const has = new Set(decoder.manifest.units.map(({ kind }) => kind));
  for (const kind of (['attn', 'ffn'] as const).filter((each) => has.has(each))) {
    expect(kinds[kind]?.decodeS).toBeCloseTo(1e-3, 9);
    expect(kinds[kind]?.prefillS).toBeCloseTo(0.5e-3, 9);
    expect(kinds[kind]?.batchS).toBeCloseTo(1e-3 / 3, 9);
  }
  expect(kinds.head?.decodeS).toBeGreaterThan(0);
  expect(kinds.head?.prefillS).toBe(0);
  expect(overheadBytes).toBeGreaterThan(1000);
  expect(arithmetic).toMatch(/^wasm\/simd128\/wide\/[0-9a-f]{16}$/);
  expect(arithmeticPattern.decode(arithmetic, 'arithmetic')).toBe(arithmetic);
});

/** Computes one number from its weights and inputs; `off`: the last bit of a sum is another one. */
class Adding extends Clocked {
  private readonly sum: number;
  private readonly off: boolean;

  constructor(source: ShardSource, blobs: ReadonlyMap<string, Uint8Array>, off: boolean) {
    super(source, () => undefined);
    this.sum = [...blobs.values()]
      .flatMap((blob) => [...blob])
      .reduce((sum, byte, at) => sum + byte * (at % 7), 0);
    this.off = off;
  }

  override decode(hidden: Float32Array): Promise<Float32Array> {
    return Promise.resolve(
      hidden.map((each) => each * Math.fround(this.sum) * (this.off ? 1 + 2 ** -23 : 1)),
    );
  }
  override prompt(hidden: Float32Array): Promise<Float32Array> {
    return Promise.resolve(hidden);
  }
}

test.each(vectors.cases)('a digest of $name follows from bits alone', async (vector) => {
  const decoder = decoderOf(vector);
  const digest = (off: boolean): Promise<string> =>
    arithmeticDigest(decoder, 'wasm', (source, blobs) => Promise.resolve(new Adding(source, blobs, off)));
  expect(await digest(false)).toBe(await digest(false));
  expect(await digest(true)).not.toBe(await digest(false));
});
