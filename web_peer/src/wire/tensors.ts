/* Decides which arrays may cross the wire and how their bytes lie (docs/protocol.md, chapter Tensors). */

import { WrongTensor } from '../errors';
import { MAX_RANK, MAX_TENSOR_BYTES } from '../limits';

export type Dtype = 'float32' | 'int32';

/** Data type codes on the wire. */
export const DTYPE_CODES: Readonly<Record<Dtype, number>> = { float32: 1, int32: 2 };

const ITEM_BYTES = 4; // both types

/** A typed array as it travels: row-major, little-endian, as the machines that run browsers are. */
export interface Tensor {
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  readonly data: Uint8Array; // product(shape) items
}

/** The tensor over an array's own memory: no copy, so the array must not change until the tensor is sent. */
export function tensorOf(array: Float32Array | Int32Array, shape: readonly number[]): Tensor {
  const wanted = product(shape);
  if (shape.length > MAX_RANK || array.byteLength > MAX_TENSOR_BYTES || wanted !== array.length) {
    throw new WrongTensor(
      `expected at most ${MAX_RANK} dimensions and ${MAX_TENSOR_BYTES} bytes, ` +
        `got shape [${shape.join(', ')}] of ${array.byteLength} bytes; send smaller chunks`,
    );
  }
  const dtype = array instanceof Float32Array ? 'float32' : 'int32';
  return { dtype, shape, data: new Uint8Array(array.buffer, array.byteOffset, array.byteLength) };
}

/** The tensor for header fields and payload of a frame. Raises WrongTensor unless they agree. */
export function tensorFromWire(code: number, shape: readonly number[], data: Uint8Array): Tensor {
  const dtype = code === DTYPE_CODES.float32 ? 'float32' : code === DTYPE_CODES.int32 ? 'int32' : null;
  if (dtype === null) throw new WrongTensor(`expected a data type code of [1, 2], got ${code}`);
  if (shape.length > MAX_RANK) {
    throw new WrongTensor(`expected at most ${MAX_RANK} dimensions, got ${shape.length}`);
  }
  const wanted = product(shape) * ITEM_BYTES;
  if (wanted > MAX_TENSOR_BYTES || wanted !== data.length) {
    throw new WrongTensor(
      `expected ${wanted} bytes (at most ${MAX_TENSOR_BYTES}) for shape [${shape.join(', ')}], got ${data.length}`,
    );
  }
  return { dtype, shape, data };
}

/** The items of a float32 tensor: a view where its bytes lie on a multiple of four, else a copy. */
export function floats(tensor: Tensor): Float32Array {
  if (tensor.dtype !== 'float32') throw new WrongTensor(`expected float32, got ${tensor.dtype}`);
  const data = aligned(tensor.data);
  return new Float32Array(data.buffer, data.byteOffset, data.length / ITEM_BYTES);
}

/** The items of an int32 tensor, as `floats` gives those of a float32 one. */
export function integers(tensor: Tensor): Int32Array {
  if (tensor.dtype !== 'int32') throw new WrongTensor(`expected int32, got ${tensor.dtype}`);
  const data = aligned(tensor.data);
  return new Int32Array(data.buffer, data.byteOffset, data.length / ITEM_BYTES);
}

/** The same bytes, copied where they do not begin at a multiple of ITEM_BYTES in their buffer. */
export function aligned(bytes: Uint8Array): Uint8Array {
  return bytes.byteOffset % ITEM_BYTES === 0 ? bytes : bytes.slice();
}

function product(shape: readonly number[]): number {
  return shape.reduce((made, size) => made * size, 1);
}
