/* Frames and effects as the traces write them: names with underscores, bytes in hex, sets as sorted lists. */

import { fromHex, toHex } from '../src/wire/hex';
import type { Frame } from '../src/wire/generated/frames';
import type { PlanRecord } from '../src/state/generated/commands';
import { DTYPE_CODES, type Dtype, type Tensor } from '../src/wire/tensors';
import { camel, snake } from './vectors';

export type Row = Readonly<Record<string, unknown>>;

/** `value` as JSON holds it. */
export function shown(value: unknown): unknown {
  if (value instanceof Uint8Array) return toHex(value);
  if (value instanceof Int32Array || value instanceof Float32Array) return [...value];
  if (value instanceof Set) return [...(value as Set<string>)].sort();
  if (Array.isArray(value)) return value.map(shown);
  if (typeof value !== 'object' || value === null) return value;
  const made: Record<string, unknown> = {};
  for (const [name, held] of Object.entries(value)) {
    made[snake(name)] = name === 'dtype' ? DTYPE_CODES[held as Dtype] : shown(held);
  }
  return made;
}

export function frameOf(row: Row): Frame {
  const made: Record<string, unknown> = {};
  for (const [name, held] of Object.entries(row)) {
    if (name === 'tensor') made['tensor'] = tensorOf(held as Row);
    else if (name === 'body') made['body'] = fromHex(held as string);
    else if (name === 'history') made['history'] = Int32Array.from(held as number[]);
    else made[camel(name)] = held;
  }
  return made as unknown as Frame;
}

export function planOf(row: Row): PlanRecord {
  return deepCamel(row) as PlanRecord;
}

export function deepCamel(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(deepCamel);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, held]) => [camel(name), deepCamel(held)]));
}

function tensorOf({ dtype, shape, data }: Row): Tensor {
  const named: Dtype = dtype === DTYPE_CODES.float32 ? 'float32' : 'int32';
  return { dtype: named, shape: shape as number[], data: fromHex(data as string) };
}
