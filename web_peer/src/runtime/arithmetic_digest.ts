/*
 * What the class of a tab's arithmetic ends with: the hash of results of an attention and a feed-forward unit of the
 * model's shapes, from weights and inputs that are made up and the same everywhere. Two tabs that give the same hash
 * compute the same bits, whatever they are called.
 */

import type { Execution, LoadExecution } from './execution';
import { toHex } from '../wire/hex';
import { KvSlots } from './kv_slots';
import type { Provider } from '../planner/linear';
import { makeGraphs } from '../planner/lowering';
import { BLOCK_KINDS, type Decoder, dimensionsOf, type ManifestUnit } from '../planner/manifest';
import { sha256 } from '../wire/sha256';

const GIVEN = 5; // tokens of a prompt; one that is sampled follows, which attention adds up in another order
const CONTEXT = 64;
const DIGEST_HEX = 16;
const SEED = 20_270_114;

/** 16 hex digits. `load` makes the execution under test. */
export async function arithmeticDigest(
  { manifest, graphs }: Decoder,
  provider: Provider,
  load: LoadExecution,
): Promise<string> {
  const random = randomBytes(SEED);
  const blobs = new Map<string, Uint8Array>();
  const units = BLOCK_KINDS.flatMap((kind): ManifestUnit[] => {
    const unit = manifest.units.find((each) => each.kind === kind);
    if (unit === undefined) return [];
    blobs.set(kind, madeUp(unit, random));
    return [{ ...unit, blob: { ...unit.blob, sha256: kind } }];
  });
  const lowered = makeGraphs({ ...manifest, units }, graphs, 0, units.length, provider);
  const source = { dimensions: dimensionsOf(manifest), units, graphs: lowered };
  const execution = await load(source, blobs, CONTEXT);
  const { hidden } = manifest;
  try {
    return await digestOf(execution, inputs((GIVEN + 1) * hidden, random), hidden);
  } finally {
    execution.close();
  }
}

async function digestOf(execution: Execution, hidden: Float32Array, width: number): Promise<string> {
  const slots = new KvSlots(1, CONTEXT);
  slots.admit('digest');
  execution.ensure(slots, 1, CONTEXT);
  const results = new Float32Array(hidden.length);
  results.set(await execution.prompt(hidden.slice(0, GIVEN * width), 0, 0));
  results.set(
    await execution.decode(hidden.slice(GIVEN * width), { start: 0, stop: 1 }, [GIVEN]),
    GIVEN * width,
  );
  return toHex(sha256(new Uint8Array(results.buffer))).slice(0, DIGEST_HEX);
}

/** Numbers from -2 to 2, exact in float32. */
function inputs(count: number, random: () => number): Float32Array {
  return Float32Array.from({ length: count }, () => (random() - 128) / 64);
}

/** Weights that keep activations small: norms around 1, scales of packed ones around 0.001. All of them are exact. */
function madeUp(unit: ManifestUnit, random: () => number): Uint8Array {
  const blob = new Uint8Array(unit.blob.bytes);
  for (const { dtype, shape, offset, bytes } of unit.tensors) {
    if (dtype === 'u8') {
      for (let at = offset; at < offset + bytes; at += 1) blob[at] = random();
    } else if (dtype === 'f16') {
      const scales = new Uint16Array(blob.buffer, offset, bytes / 2);
      for (let at = 0; at < scales.length; at += 1) scales[at] = 0x1400 + random();
    } else {
      const floats = new Float32Array(blob.buffer, offset, bytes / 4);
      const isNorm = shape.length === 1;
      for (let at = 0; at < floats.length; at += 1) {
        floats[at] = isNorm ? 0.5 + random() / 256 : (random() - 128) / 2048;
      }
    }
  }
  return blob;
}

/** A number from 0 to 255 each time: the same ones from the same seed in every engine (xorshift, 32 bits). */
function randomBytes(seed: number): () => number {
  let state = seed;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return state >>> 24;
  };
}
