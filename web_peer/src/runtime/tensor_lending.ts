/* Decides how long stored tensors stay in memory while a runtime takes them one by one. */

import type { Location } from '../planner/linear';
import type { ManifestUnit, StoredTensor } from '../planner/manifest';
import { giveBack } from '../model/release_arrays';
import type { UnitBlob } from './weight_unpacking';

const ALIGNMENT = 64; // of tensors in a buffer, as in a blob

/**
 * A unit's tensors on their way into a runtime, each linear in memory of its own, so that it can go as soon as the
 * runtime has it.
 */
export class PassingTensors {
  private readonly parts = new Map<string, UnitBlob>();
  private readonly shared: boolean;
  private readonly left = new Map<string, number>(); // bytes of a matrix that the runtime has yet to take

  /** Takes `blob` apart and gives it back, unless it is `shared`. `locations`: what the runtime will take of it. */
  constructor(unit: ManifestUnit, blob: Uint8Array, shared: boolean, locations: readonly Location[]) {
    this.shared = shared;
    for (const { tensor, bytes } of locations) this.left.set(tensor, bytes);
    const keys = new Set(unit.tensors.map(({ name }) => partOf(name)));
    for (const key of keys) {
      const mine = unit.tensors.filter(({ name }) => partOf(name) === key);
      this.parts.set(key, shared ? { unit, blob } : moved(unit, blob, mine));
    }
    if (!shared) giveBack(blob);
  }

  source(location: string): UnitBlob {
    const found = this.parts.get(partOf(location));
    if (found === undefined)
      throw new Error(`the runtime asked for ${location}, which it has or never was there`);
    return found;
  }

  /** The runtime has copied `bytes` of a location; what is stored of a matrix goes when it has all of it. */
  taken(location: string, bytes: number): void {
    const left = (this.left.get(location) ?? 0) - bytes;
    this.left.set(location, left);
    if (left <= 0 && location.endsWith('.w')) this.drop(partOf(location));
  }

  close(): void {
    for (const key of [...this.parts.keys()]) this.drop(key);
  }

  private drop(key: string): void {
    const part = this.parts.get(key);
    this.parts.delete(key);
    if (part !== undefined && !this.shared) giveBack(part.blob);
  }
}

/** The linear that a tensor belongs to, or its own name. */
function partOf(name: string): string {
  return /^(.*)\.(q4|q8|w|scale|zero|rest)$/.exec(name)?.[1] ?? name;
}

/** A copy of some tensors of a blob, and what says where they lie in it. */
function moved(unit: ManifestUnit, blob: Uint8Array, tensors: readonly StoredTensor[]): UnitBlob {
  let size = 0;
  const placed = tensors.map((tensor): StoredTensor => {
    const offset = size;
    size += Math.ceil(tensor.bytes / ALIGNMENT) * ALIGNMENT;
    return { ...tensor, offset };
  });
  const made = new Uint8Array(size);
  placed.forEach(({ offset }, at) => {
    const tensor = tensors[at];
    if (tensor !== undefined) made.set(blob.subarray(tensor.offset, tensor.offset + tensor.bytes), offset);
  });
  return { unit: { ...unit, tensors: placed }, blob: made };
}
