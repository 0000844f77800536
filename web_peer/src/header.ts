/*
 * Decides how a frame's header lies in bytes: a msgpack array of integers, text, bytes and arrays, nothing else.
 *
 * A codec of its own, since a reader that follows the protocol must tell 1.0 from 1 and refuse text that is not
 * UTF-8, which the msgpack libraries for JavaScript do not. Integers, lengths and array sizes take the shortest form.
 */

import { TruncatedFrame, WrongField } from './errors';

/** What a header may hold. Bytes are views into what was decoded. */
export type Value = number | string | Uint8Array | readonly Value[];

/** What a decoded header may hold: other msgpack types are kept as marks, to be refused by the field they stand in. */
export type Decoded = number | string | Uint8Array | Unfit | readonly Decoded[];

/** A value that no field takes: nil, true, false, a float, or an integer beyond 2^53-1. */
export class Unfit {
  readonly what: string;

  constructor(what: string) {
    this.what = what;
  }
}

export const MAX_HEADER_ITEMS = 1024; // per array: bounds what a claimed size can make the decoder allocate
const MAX_DEPTH = 16; // the deepest layout has 2

const UTF8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
const TO_UTF8 = new TextEncoder();
const TWO_32 = 2 ** 32;

/** The values of a header. Raises TruncatedFrame where it ends early, WrongField for anything that is not an array. */
export function decodeHeader(bytes: Uint8Array): readonly Decoded[] {
  if (bytes.length === 0) throw truncated(0);
  const reader = new Reader(bytes);
  const values = reader.value(0);
  if (reader.at !== bytes.length) {
    throw notAnHeader(`${bytes.length - reader.at} bytes to spare`);
  }
  if (!isArray(values) || values.length === 0) {
    throw new WrongField(`expected a msgpack array of kind and fields as header, got ${shown(values)}`);
  }
  return values;
}

/** A number as it is; of anything that people may have written only its type and length. */
export function shown(value: unknown): string {
  if (typeof value === 'number') return String(value);
  if (typeof value === 'string') return `text of length ${value.length}`;
  if (value instanceof Unfit) return value.what;
  if (value instanceof Uint8Array) return `bytes of length ${value.length}`;
  if (Array.isArray(value) || ArrayBuffer.isView(value)) {
    return `list of length ${(value as unknown as ArrayLike<unknown>).length}`;
  }
  return typeof value;
}

class Reader {
  at = 0;
  private readonly bytes: Uint8Array;
  private readonly view: DataView;

  constructor(bytes: Uint8Array) {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  value(depth: number): Decoded {
    const mark = this.view.getUint8(this.take(1));
    if (mark < 0x80) return mark;
    if (mark >= 0xe0) return mark - 256;
    if (mark < 0x90) return this.map(mark & 0x0f);
    if (mark < 0xa0) return this.array(mark & 0x0f, depth);
    if (mark < 0xc0) return this.text(mark & 0x1f);
    switch (mark) {
      case 0xc0:
        return new Unfit('nil');
      case 0xc2:
        return new Unfit('false');
      case 0xc3:
        return new Unfit('true');
      case 0xc4:
        return this.blob(this.view.getUint8(this.take(1)));
      case 0xc5:
        return this.blob(this.view.getUint16(this.take(2)));
      case 0xc6:
        return this.blob(this.view.getUint32(this.take(4)));
      case 0xca:
        return new Unfit(String(this.view.getFloat32(this.take(4))));
      case 0xcb:
        return new Unfit(String(this.view.getFloat64(this.take(8))));
      case 0xcc:
        return this.view.getUint8(this.take(1));
      case 0xcd:
        return this.view.getUint16(this.take(2));
      case 0xce:
        return this.view.getUint32(this.take(4));
      case 0xcf:
        return this.wide(this.view.getBigUint64(this.take(8)));
      case 0xd0:
        return this.view.getInt8(this.take(1));
      case 0xd1:
        return this.view.getInt16(this.take(2));
      case 0xd2:
        return this.view.getInt32(this.take(4));
      case 0xd3:
        return this.wide(this.view.getBigInt64(this.take(8)));
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
        return this.map(this.view.getUint16(this.take(2)));
      case 0xdf:
        return this.map(this.view.getUint32(this.take(4)));
      default:
        throw notAnHeader(`the byte 0x${mark.toString(16)}`);
    }
  }

  private take(count: number): number {
    const start = this.at;
    if (start + count > this.bytes.length) throw truncated(this.bytes.length);
    this.at = start + count;
    return start;
  }

  private wide(value: bigint): number | Unfit {
    const number = Number(value);
    return Number.isSafeInteger(number) ? number : new Unfit(String(value));
  }

  private blob(length: number): Uint8Array {
    const start = this.take(length);
    return this.bytes.subarray(start, start + length);
  }

  private text(length: number): string {
    const start = this.take(length);
    if (length < 64) {
      // Names and ids are short and ASCII: no call into the decoder for them.
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
      return UTF8.decode(this.bytes.subarray(start, start + length));
    } catch {
      throw notAnHeader('text that is not UTF-8');
    }
  }

  private array(length: number, depth: number): readonly Decoded[] {
    if (length > MAX_HEADER_ITEMS) throw notAnHeader(`an array of ${length} items`);
    if (depth >= MAX_DEPTH) throw notAnHeader(`arrays more than ${MAX_DEPTH} deep`);
    const values: Decoded[] = [];
    for (let index = 0; index < length; index++) values.push(this.value(depth + 1));
    return values;
  }

  private map(length: number): Unfit {
    if (length > 0) throw notAnHeader(`a map of ${length} entries`);
    return new Unfit('a map');
  }
}

function isArray(value: Decoded): value is readonly Decoded[] {
  return Array.isArray(value);
}

function truncated(bytes: number): TruncatedFrame {
  return new TruncatedFrame(`expected a whole msgpack header, it ends after ${bytes} bytes`);
}

function notAnHeader(what: string): WrongField {
  return new WrongField(`expected a msgpack array as header, got other bytes (${what})`);
}

/** Writes headers into one buffer that it keeps; what it returns is valid until the next call. */
export class HeaderWriter {
  private bytes = new Uint8Array(1024);
  private view = new DataView(this.bytes.buffer);
  private at = 0;

  write(values: readonly Value[]): Uint8Array {
    this.at = 0;
    this.array(values);
    return this.bytes.subarray(0, this.at);
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

  private array(values: readonly Value[]): void {
    this.size(values.length, 0x90, 15, null, 0xdc);
    for (const value of values) this.value(value);
  }

  private value(value: Value): void {
    if (typeof value === 'number') this.integer(value);
    else if (typeof value === 'string') this.text(value);
    else if (value instanceof Uint8Array) {
      this.size(value.length, null, 0, 0xc4, 0xc5);
      const at = this.room(value.length);
      this.bytes.set(value, at);
    } else this.array(value);
  }

  private text(value: string): void {
    const encoded = TO_UTF8.encode(value);
    this.size(encoded.length, 0xa0, 31, 0xd9, 0xda);
    const at = this.room(encoded.length);
    this.bytes.set(encoded, at);
  }

  /** A length in its shortest form: inside the mark, one byte, two, or four (its mark follows that of two). */
  private size(length: number, fix: number | null, fixMost: number, one: number | null, two: number): void {
    if (fix !== null && length <= fixMost) {
      const at = this.room(1);
      this.view.setUint8(at, fix | length);
    } else if (one !== null && length < 0x100) {
      const at = this.room(2);
      this.view.setUint16(at, (one << 8) | length);
    } else if (length < 0x10000) {
      const at = this.room(3);
      this.view.setUint8(at, two);
      this.view.setUint16(at + 1, length);
    } else {
      const at = this.room(5);
      this.view.setUint8(at, two + 1);
      this.view.setUint32(at + 1, length);
    }
  }

  private integer(value: number): void {
    if (value >= 0) {
      if (value < 0x80) {
        const at = this.room(1);
        this.view.setUint8(at, value);
      } else if (value < 0x100) {
        const at = this.room(2);
        this.view.setUint16(at, 0xcc00 | value);
      } else if (value < 0x10000) {
        const at = this.room(3);
        this.view.setUint8(at, 0xcd);
        this.view.setUint16(at + 1, value);
      } else if (value < TWO_32) {
        const at = this.room(5);
        this.view.setUint8(at, 0xce);
        this.view.setUint32(at + 1, value);
      } else {
        const at = this.room(9);
        this.view.setUint8(at, 0xcf);
        this.view.setUint32(at + 1, Math.floor(value / TWO_32));
        this.view.setUint32(at + 5, value % TWO_32);
      }
    } else if (value >= -0x20) {
      const at = this.room(1);
      this.view.setInt8(at, value);
    } else if (value >= -0x80) {
      const at = this.room(2);
      this.view.setUint8(at, 0xd0);
      this.view.setInt8(at + 1, value);
    } else if (value >= -0x8000) {
      const at = this.room(3);
      this.view.setUint8(at, 0xd1);
      this.view.setInt16(at + 1, value);
    } else if (value >= -0x80000000) {
      const at = this.room(5);
      this.view.setUint8(at, 0xd2);
      this.view.setInt32(at + 1, value);
    } else {
      const at = this.room(9);
      this.view.setUint8(at, 0xd3);
      this.view.setBigInt64(at + 1, BigInt(value));
    }
  }
}
