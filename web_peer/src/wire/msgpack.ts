/*
 * Decides how values lie in bytes: msgpack of nil, true and false, integers, text, bytes, arrays and maps whose keys are
 * text. Headers of frames and messages between cores are made of them. Pure.
 *
 * A codec of its own, since a reader that follows the protocol must tell 1.0 from 1 and refuse text that is not UTF-8,
 * which the msgpack libraries for JavaScript do not. Integers, lengths and sizes take the shortest form, keys stand in
 * the order in which they are given: bytes are those that Python writes, and what is refused is what Python refuses.
 */

/** What can be packed. */
export type Packed =
  null | boolean | number | string | Uint8Array | readonly Packed[] | { readonly [key: string]: Packed };

/** What can come out. Bytes are views into what was read; floats and integers beyond 2^53-1 are kept as marks, for the field they stand in to refuse. */
export type Unpacked =
  null | boolean | number | string | Uint8Array | Unfit | readonly Unpacked[] | ReadonlyMap<string, Unpacked>;

/** A number that no field takes, spelt out. */
export class Unfit {
  readonly what: string;

  constructor(what: string) {
    this.what = what;
  }
}

/** Bytes that hold no such value, or more than one; the message says what. `why` is what Python's library calls it. */
export class NotPacked extends Error {
  readonly why: string;

  constructor(
    why: 'ValueError' | 'ExtraData' | 'FormatError' | 'StackError' | 'UnicodeDecodeError',
    what: string,
  ) {
    super(what);
    this.why = why;
  }
}

/** The bytes end before the value does. */
export class Truncated extends NotPacked {
  constructor() {
    super('ValueError', 'the end');
  }
}

/** Bounds what claimed sizes can make the reader allocate. */
export interface Limits {
  readonly items: number; // of an array
  readonly entries: number; // of a map
  readonly depth: number; // arrays and maps inside one another
}

const SHORT = 64; // bytes of names and ids, which mostly are ASCII
const TWO_32 = 2 ** 32;

const FROM_UTF8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
const TO_UTF8 = new TextEncoder();

/** The value that `bytes` are. Raises NotPacked. */
export function unpacked(bytes: Uint8Array, limits: Limits): Unpacked {
  const reader = new Reader(bytes, limits);
  const value = reader.value(0);
  const spare = bytes.length - reader.at;
  if (spare > 0) throw new NotPacked('ExtraData', `${spare} bytes to spare`);
  return value;
}

class Reader {
  at = 0;
  private readonly bytes: Uint8Array;
  private readonly view: DataView;
  private readonly limits: Limits;

  constructor(bytes: Uint8Array, limits: Limits) {
    this.limits = limits;
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  value(depth: number): Unpacked {
    const mark = this.view.getUint8(this.take(1));
    if (mark < 0x80) return mark;
    if (mark >= 0xe0) return mark - 256;
    if (mark < 0x90) return this.map(mark & 0x0f, depth);
    if (mark < 0xa0) return this.array(mark & 0x0f, depth);
    if (mark < 0xc0) return this.text(mark & 0x1f);
    switch (mark) {
      case 0xc0:
        return null;
      case 0xc1:
        throw new NotPacked('FormatError', 'the byte 0xc1');
      case 0xc2:
        return false;
      case 0xc3:
        return true;
      case 0xc4:
        return this.blob(this.view.getUint8(this.take(1)));
      case 0xc5:
        return this.blob(this.view.getUint16(this.take(2)));
      case 0xc6:
        return this.blob(this.view.getUint32(this.take(4)));
      case 0xca:
        return float(this.view.getFloat32(this.take(4)));
      case 0xcb:
        return float(this.view.getFloat64(this.take(8)));
      case 0xcc:
        return this.view.getUint8(this.take(1));
      case 0xcd:
        return this.view.getUint16(this.take(2));
      case 0xce:
        return this.view.getUint32(this.take(4));
      case 0xcf:
        return wide(this.view.getBigUint64(this.take(8)));
      case 0xd0:
        return this.view.getInt8(this.take(1));
      case 0xd1:
        return this.view.getInt16(this.take(2));
      case 0xd2:
        return this.view.getInt32(this.take(4));
      case 0xd3:
        return wide(this.view.getBigInt64(this.take(8)));
      case 0xd9:
        return this.text(this.view.getUint8(this.take(1)));
      case 0xda:
        return this.text(this.view.getUint16(this.take(2)));
      case 0xdb:
        return this.text(this.view.getUint32(this.take(4)));
      case 0xdc:
        return this.array(this.view.getUint16(this.take(2)), depth);
      case 0xdd:
        return this.array(this.view.getUint32(this.take(4)), depth);
      case 0xde:
        return this.map(this.view.getUint16(this.take(2)), depth);
      case 0xdf:
        return this.map(this.view.getUint32(this.take(4)), depth);
      default:
        throw new NotPacked('ValueError', `the byte 0x${mark.toString(16)}`); // a type of an application's own
    }
  }

  private take(count: number): number {
    const start = this.at;
    if (start + count > this.bytes.length) throw new Truncated();
    this.at = start + count;
    return start;
  }

  private blob(length: number): Uint8Array {
    const start = this.take(length);
    return this.bytes.subarray(start, start + length);
  }

  private text(length: number): string {
    const start = this.take(length);
    if (length < SHORT) {
      // No call into the decoder for them.
      let made = '';
      let at = start;
      for (; at < start + length; at++) {
        const byte = this.bytes[at] ?? 0;
        if (byte >= 0x80) break;
        made += String.fromCharCode(byte);
      }
      if (at === start + length) return made;
    }
    try {
      return FROM_UTF8.decode(this.bytes.subarray(start, start + length));
    } catch {
      throw new NotPacked('UnicodeDecodeError', 'text that is not UTF-8');
    }
  }

  private array(length: number, depth: number): readonly Unpacked[] {
    if (length > this.limits.items) throw new NotPacked('ValueError', `an array of ${length} items`);
    this.enter(depth);
    const values: Unpacked[] = [];
    for (let index = 0; index < length; index++) values.push(this.value(depth + 1));
    return values;
  }

  private map(length: number, depth: number): ReadonlyMap<string, Unpacked> {
    if (length > this.limits.entries) throw new NotPacked('ValueError', `a map of ${length} entries`);
    this.enter(depth);
    const values = new Map<string, Unpacked>();
    for (let index = 0; index < length; index++) {
      const key = this.value(depth + 1);
      const value = this.value(depth + 1);
      if (typeof key === 'string') values.set(key, value);
      else if (!(key instanceof Uint8Array)) {
        throw new NotPacked('ValueError', 'a key that is no text'); // bytes are keys, and name no field
      }
    }
    return values;
  }

  private enter(depth: number): void {
    const { depth: most } = this.limits;
    if (depth >= most) throw new NotPacked('StackError', `arrays more than ${most} deep`);
  }
}

function float(value: number): Unfit {
  return new Unfit(Number.isInteger(value) ? `${value}.0` : String(value));
}

function wide(value: bigint): number | Unfit {
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : new Unfit(String(value));
}

/** Writes values into one buffer that it keeps. */
export class Packer {
  private bytes = new Uint8Array(1024);
  private view = new DataView(this.bytes.buffer);
  private at = 0;

  /** The bytes of `value`, whose integers are safe ones; a view that is valid until the next call. */
  packed(value: Packed): Uint8Array {
    this.at = 0;
    this.value(value);
    return this.bytes.subarray(0, this.at);
  }

  private value(value: Packed): void {
    if (value === null) this.byte(0xc0);
    else if (typeof value === 'boolean') this.byte(value ? 0xc3 : 0xc2);
    else if (typeof value === 'number') this.integer(value);
    else if (typeof value === 'string') {
      const encoded = TO_UTF8.encode(value);
      this.size(encoded.length, 0xa0, 31, 0xd9, 0xda);
      this.put(encoded);
    } else if (value instanceof Uint8Array) {
      this.size(value.length, null, 0, 0xc4, 0xc5);
      this.put(value);
    } else if (isList(value)) {
      this.size(value.length, 0x90, 15, null, 0xdc);
      for (const each of value) this.value(each);
    } else {
      const held = Object.entries(value);
      this.size(held.length, 0x80, 15, null, 0xde);
      for (const [key, each] of held) {
        this.value(key);
        this.value(each);
      }
    }
  }

  /** Where the next `count` bytes begin. May replace `bytes` and `view`: call it before reading them. */
  private room(count: number): number {
    const start = this.at;
    if (start + count > this.bytes.length) {
      const larger = new Uint8Array(Math.max(this.bytes.length * 2, start + count));
      larger.set(this.bytes);
      this.bytes = larger;
      this.view = new DataView(larger.buffer);
    }
    this.at = start + count;
    return start;
  }

  private byte(value: number): void {
    const at = this.room(1);
    this.view.setUint8(at, value);
  }

  private put(bytes: Uint8Array): void {
    const at = this.room(bytes.length);
    this.bytes.set(bytes, at);
  }

  /** `mark` and a number of two bytes. */
  private two(mark: number, value: number): void {
    const at = this.room(3);
    this.view.setUint8(at, mark);
    this.view.setUint16(at + 1, value);
  }

  /** `mark` and a number of four bytes. */
  private four(mark: number, value: number): void {
    const at = this.room(5);
    this.view.setUint8(at, mark);
    this.view.setUint32(at + 1, value);
  }

  /** A length in its shortest form: inside the mark, one byte, two, or four (its mark follows that of two). */
  private size(length: number, fix: number | null, fixMost: number, one: number | null, two: number): void {
    if (fix !== null && length <= fixMost) this.byte(fix | length);
    else if (one !== null && length < 0x100) {
      this.byte(one);
      this.byte(length);
    } else if (length < 0x10000) this.two(two, length);
    else this.four(two + 1, length);
  }

  private integer(value: number): void {
    if (value < 0) this.negative(value);
    else if (value < 0x80) this.byte(value);
    else if (value < 0x100) {
      this.byte(0xcc);
      this.byte(value);
    } else if (value < 0x10000) this.two(0xcd, value);
    else if (value < TWO_32) this.four(0xce, value);
    else {
      const at = this.room(9);
      this.view.setUint8(at, 0xcf);
      this.view.setUint32(at + 1, Math.floor(value / TWO_32));
      this.view.setUint32(at + 5, value % TWO_32);
    }
  }

  private negative(value: number): void {
    if (value >= -0x20) this.byte(value & 0xff);
    else if (value >= -0x80) {
      this.byte(0xd0);
      this.byte(value & 0xff);
    } else if (value >= -0x8000) this.two(0xd1, value & 0xffff);
    else if (value >= -0x80000000) this.four(0xd2, value >>> 0);
    else {
      const at = this.room(9);
      this.view.setUint8(at, 0xd3);
      this.view.setBigInt64(at + 1, BigInt(value));
    }
  }
}

function isList(value: object): value is readonly Packed[] {
  return Array.isArray(value);
}
