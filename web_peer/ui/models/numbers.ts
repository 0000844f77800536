/* Values of models as what people type and read: JSON to arrays, arrays to lines of numbers and .npy files. Pure. */

import {
  bytesOfStrings,
  ELEMENT_BYTES,
  elementsOf,
  stringsOf,
  type ValueArray,
} from '../../src/dataflow/value_codec';
import { BadCommand } from '../../src/errors';
import { MAX_VALUE_BYTES } from '../../src/limits';
import type { Value, ValueType } from '../../src/planner/graph_manifest';

const SHOWN = 24; // elements of an output
const HALF_BIAS = 15;
const NPY_ALIGN = 64;
const NPY_MAGIC = '\x93NUMPY\x01\x00';

/** How an element lies in memory: how it is written from, and read as, what people see. */
interface Element {
  readonly npy: string; // numpy's name of it; "" where .npy has none
  readonly put: (view: DataView, at: number, given: unknown) => boolean; // false: it cannot be one
  readonly get: (view: DataView, at: number) => number | bigint | boolean;
}

type Setter = 'setInt8' | 'setUint8' | 'setInt16' | 'setUint16' | 'setInt32' | 'setUint32';
type Getter = 'getInt8' | 'getUint8' | 'getInt16' | 'getUint16' | 'getInt32' | 'getUint32';

function whole(npy: string, set: Setter, get: Getter, least: number, most: number): Element {
  return {
    npy,
    put: (view, at, given) => {
      if (typeof given !== 'number' || !Number.isInteger(given) || given < least || given > most)
        return false;
      view[set](at, given, true);
      return true;
    },
    get: (view, at) => view[get](at, true),
  };
}

function large(npy: string, least: bigint, most: bigint): Element {
  const isSigned = least < 0n;
  return {
    npy,
    put: (view, at, given) => {
      if (typeof given !== 'number' || !Number.isSafeInteger(given)) return false;
      const value = BigInt(given);
      if (value < least || value > most) return false;
      if (isSigned) view.setBigInt64(at, value, true);
      else view.setBigUint64(at, value, true);
      return true;
    },
    get: (view, at) => (isSigned ? view.getBigInt64(at, true) : view.getBigUint64(at, true)),
  };
}

const FLOAT32: Element = {
  npy: '<f4',
  put: (view, at, given) => {
    if (typeof given !== 'number') return false;
    view.setFloat32(at, given, true);
    return true;
  },
  get: (view, at) => view.getFloat32(at, true),
};

const ELEMENTS: ReadonlyMap<ValueType, Element> = new Map<ValueType, Element>([
  ['float32', FLOAT32],
  [
    'float64',
    {
      npy: '<f8',
      put: (view, at, given) => {
        if (typeof given !== 'number') return false;
        view.setFloat64(at, given, true);
        return true;
      },
      get: (view, at) => view.getFloat64(at, true),
    },
  ],
  [
    'float16',
    {
      npy: '<f2',
      put: (view, at, given) => {
        if (typeof given !== 'number') return false;
        view.setUint16(at, halfOf(given), true);
        return true;
      },
      get: (view, at) => fromHalf(view.getUint16(at, true)),
    },
  ],
  ['int8', whole('|i1', 'setInt8', 'getInt8', -128, 127)],
  ['uint8', whole('|u1', 'setUint8', 'getUint8', 0, 255)],
  ['int16', whole('<i2', 'setInt16', 'getInt16', -(2 ** 15), 2 ** 15 - 1)],
  ['uint16', whole('<u2', 'setUint16', 'getUint16', 0, 2 ** 16 - 1)],
  ['int32', whole('<i4', 'setInt32', 'getInt32', -(2 ** 31), 2 ** 31 - 1)],
  ['uint32', whole('<u4', 'setUint32', 'getUint32', 0, 2 ** 32 - 1)],
  ['int64', large('<i8', -(2n ** 63n), 2n ** 63n - 1n)],
  ['uint64', large('<u8', 0n, 2n ** 64n - 1n)],
  [
    'bool',
    {
      npy: '|b1',
      put: (view, at, given) => {
        if (typeof given !== 'boolean') return false;
        view.setUint8(at, Number(given));
        return true;
      },
      get: (view, at) => view.getUint8(at) !== 0,
    },
  ],
]);

/** The array that JSON text says: numbers, true and false, or words in nested lists. Raises BadCommand. */
export function arrayOfJson(text: string, value: Value): ValueArray {
  let given: unknown;
  try {
    given = JSON.parse(text);
  } catch {
    throw new BadCommand(`${value.name}: JSON expected, such as [[1, 2], [3, 4]]`);
  }
  const shape: number[] = [];
  for (let part = given; Array.isArray(part); part = part[0]) shape.push(part.length);
  const flat = flattened(given);
  if (flat.length !== elementsOf(shape) || !isEven(given, shape)) {
    throw new BadCommand(`${value.name}: lists of equal lengths expected`);
  }
  return arrayOfList(flat, withAxes(shape, value), value);
}

/** The array of a flat list. Raises BadCommand where an element is not of the value's type. */
export function arrayOfList(flat: readonly unknown[], shape: readonly number[], value: Value): ValueArray {
  const { name, dtype } = value;
  if (dtype === 'string') {
    const words = flat.filter((word) => typeof word === 'string');
    if (words.length !== flat.length) throw new BadCommand(`${name}: words in quotes expected`);
    return { shape, data: bytesOfStrings(words) };
  }
  const element = ELEMENTS.get(dtype);
  const width = ELEMENT_BYTES.get(dtype) ?? 1;
  if (element === undefined) throw new BadCommand(`${name}: this page makes no values of ${dtype}`);
  if (flat.length * width > MAX_VALUE_BYTES) {
    throw new BadCommand(`${name}: at most ${MAX_VALUE_BYTES} bytes expected, got ${flat.length * width}`);
  }
  const data = new Uint8Array(flat.length * width);
  const view = new DataView(data.buffer);
  flat.forEach((given, place) => {
    if (!element.put(view, place * width, given)) {
      throw new BadCommand(`${name}: ${dtype} expected, got ${JSON.stringify(given)}`.slice(0, 200));
    }
  });
  return { shape, data };
}

/** With axes of one in front, where the model has more. */
export function withAxes(shape: readonly number[], value: Value): readonly number[] {
  const lacking = value.shape.length - shape.length;
  const fits = value.shape
    .slice(0, Math.max(lacking, 0))
    .every((size) => typeof size === 'string' || size === 1);
  return lacking > 0 && fits ? [...Array.from({ length: lacking }, () => 1), ...shape] : shape;
}

/** The first elements as people read them, "…" after them where there are more. */
export function shownValues(array: ValueArray, { name, dtype }: Value): string {
  const count = elementsOf(array.shape);
  const more = count > SHOWN ? [`… ${count - SHOWN} more`] : [];
  if (dtype === 'string')
    return [...stringsOf(array.data, array.shape, name).slice(0, SHOWN), ...more].join('\n');
  const element = ELEMENTS.get(dtype);
  if (element === undefined) return `values of ${dtype}`;
  const { data } = array;
  const width = ELEMENT_BYTES.get(dtype) ?? 1;
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const words = Array.from({ length: Math.min(count, SHOWN) }, (_, at) => {
    const found = element.get(view, at * width);
    return typeof found === 'number' && !Number.isInteger(found) ? found.toPrecision(4) : String(found);
  });
  return [...words, ...more].join('  ');
}

/** The bytes of an .npy file; null for what numpy has no plain type for. */
export function npyOf(array: ValueArray, dtype: ValueType): Uint8Array<ArrayBuffer> | null {
  const descr = ELEMENTS.get(dtype)?.npy ?? '';
  if (descr === '') return null;
  const sizes = array.shape.join(', ') + (array.shape.length === 1 ? ',' : '');
  const header = `{'descr': '${descr}', 'fortran_order': False, 'shape': (${sizes}), }`;
  const padded = header.padEnd(
    header.length + NPY_ALIGN - 1 - ((NPY_MAGIC.length + 2 + header.length) % NPY_ALIGN),
  );
  const made = new Uint8Array(NPY_MAGIC.length + 2 + padded.length + 1 + array.data.length);
  const put = (text: string, at: number): void => {
    for (let place = 0; place < text.length; place += 1) made[at + place] = text.charCodeAt(place);
  };
  put(NPY_MAGIC, 0);
  new DataView(made.buffer).setUint16(NPY_MAGIC.length, padded.length + 1, true);
  put(`${padded}\n`, NPY_MAGIC.length + 2);
  made.set(array.data, made.length - array.data.length);
  return made;
}

function flattened(given: unknown): unknown[] {
  return Array.isArray(given) ? given.flatMap(flattened) : [given];
}

/** Whether nested lists have these sizes everywhere. */
function isEven(given: unknown, [size, ...rest]: readonly number[]): boolean {
  if (size === undefined) return !Array.isArray(given);
  return Array.isArray(given) && given.length === size && given.every((part) => isEven(part, rest));
}

/** The nearest float16, ties to even. */
function halfOf(value: number): number {
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0;
  const size = Math.abs(value);
  if (Number.isNaN(value)) return 0x7e00;
  if (size >= 65520) return sign | 0x7c00;
  const exponent = Math.max(Math.floor(Math.log2(size === 0 ? 2 ** -30 : size)), 1 - HALF_BIAS);
  const steps = size / 2 ** (exponent - 10);
  const low = Math.floor(steps);
  const up = steps - low > 0.5 || (steps - low === 0.5 && low % 2 === 1) ? 1 : 0;
  return sign | ((exponent + HALF_BIAS - 1) * 1024 + low + up); // a carry goes into the exponent; subnormals add up
}

function fromHalf(bits: number): number {
  const sign = (bits & 0x8000) === 0 ? 1 : -1;
  const exponent = (bits >> 10) & 0x1f;
  const rest = bits & 0x3ff;
  if (exponent === 31) return rest === 0 ? sign * Infinity : NaN;
  if (exponent === 0) return sign * rest * 2 ** -24;
  return sign * (1 + rest / 1024) * 2 ** (exponent - HALF_BIAS);
}
