/*
 * The beginning of a prompt as a stage knows it: how many positions, and a hash over what goes in there (twin of
 * peer/session/prefix.py). Pure.
 */

import { rowsIn } from './activation_log';
import { sha256 } from '../wire/sha256';
import type { Tensor } from '../wire/tensors';

/**
 * The first `count` positions; `digest`, in hex, is over what goes into a stage there (NOT_SAID: it is to keep them).
 */
export interface Prefix {
  readonly count: number;
  readonly digest: string;
}

export const MARK = 8; // bytes of a hash

/** The mark of each row. */
export function marksOf(tensor: Tensor): Uint8Array[] {
  const width = tensor.data.length / rowsIn(tensor);
  return Array.from({ length: rowsIn(tensor) }, (_, at) =>
    sha256(tensor.data.subarray(at * width, (at + 1) * width)).subarray(0, MARK),
  );
}
