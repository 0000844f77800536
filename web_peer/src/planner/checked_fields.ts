/* JSON of a model whose fields are read with their type and limit, so that errors name the place. */

import { CannotServe } from '../errors';
import { type BlobRef, MAX_BLOB_BYTES, PIECE_BYTES } from './blob_ref';

export const FORMAT = 'shoal-2';
export const MAX_MANIFEST_BYTES = 32 << 20;
const OLD_DECODERS = 'shoal-1'; // knew one family of decoders
export const SHA256 = /^[0-9a-f]{64}$/;
const LONE_SURROGATE = /\p{Surrogate}/u;

/** The fields of a manifest. Raises CannotServe where it is of another format. */
export function opened(encoded: Uint8Array): Fields {
  if (encoded.length > MAX_MANIFEST_BYTES) {
    throw new CannotServe(`manifest: at most ${MAX_MANIFEST_BYTES} bytes expected, got ${encoded.length}`);
  }
  let document: unknown;
  try {
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(encoded);
    document = JSON.parse(text);
  } catch (error) {
    throw new CannotServe(`manifest: JSON expected: ${String(error)}; import the model again`);
  }
  const root = new Fields(document, 'manifest');
  const format = root.text('format', 64);
  if (format === OLD_DECODERS) {
    throw new CannotServe(
      `this model is stored in the format "${format}" of an older version: import the model again`,
    );
  }
  if (format !== FORMAT) {
    throw new CannotServe(`manifest: format "${FORMAT}" expected; import the model again with this version`);
  }
  return root;
}

/** A blob with as many hashes as it has pieces. Raises CannotServe. */
export function decodeBlob(fields: Fields): BlobRef {
  const sha256 = fields.text('sha256', 64);
  const bytes = fields.count('bytes', MAX_BLOB_BYTES);
  const pieces = fields.texts('pieces', MAX_BLOB_BYTES / PIECE_BYTES, 64);
  if (![sha256, ...pieces].every((hash) => SHA256.test(hash))) {
    throw new CannotServe(`${fields.place}: hashes of 64 lower-case hex digits expected`);
  }
  const wanted = Math.ceil(bytes / PIECE_BYTES);
  if (pieces.length !== wanted) {
    throw new CannotServe(
      `${fields.place}: ${wanted} pieces expected for ${bytes} bytes, got ${pieces.length}`,
    );
  }
  return { sha256, bytes, pieces };
}

/** A JSON object whose fields are read with their type and limit, so that errors name the place. */
export class Fields {
  readonly place: string;
  private readonly value: Readonly<Record<string, unknown>>;

  constructor(value: unknown, place: string) {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) {
      throw new CannotServe(`${place}: an object expected`);
    }
    this.value = value as Record<string, unknown>;
    this.place = place;
  }

  /** Whether the field is there, as those are that came later. */
  has(name: string): boolean {
    return Object.hasOwn(this.value, name);
  }

  isNull(name: string): boolean {
    return this.get(name) === null;
  }

  text(name: string, limit: number): string {
    const value = this.get(name);
    if (!isText(value, limit)) {
      throw this.wrong(name, `a string of at most ${limit} characters`);
    }
    return value;
  }

  boolean(name: string): boolean {
    const value = this.get(name);
    if (typeof value !== 'boolean') throw this.wrong(name, 'true or false');
    return value;
  }

  count(name: string, limit: number = Number.MAX_SAFE_INTEGER, least = 0): number {
    const value = this.get(name);
    if (!isCount(value, limit, least)) {
      throw this.wrong(name, `a whole number from ${least} to ${limit}`);
    }
    return value;
  }

  positive(name: string): number {
    const value = this.get(name);
    if (typeof value !== 'number' || !Number.isFinite(value) || value <= 0) {
      throw this.wrong(name, 'a positive finite number');
    }
    return value;
  }

  choice<T extends string>(name: string, allowed: readonly T[]): T {
    const value = this.get(name);
    const found = allowed.find((option) => option === value);
    if (found === undefined) throw this.wrong(name, `one of ${allowed.join(', ')}`);
    return found;
  }

  /** From 0 on, finite, at least one. */
  numbers(name: string, length: number): number[] {
    const values = this.list(name, length);
    const isRight = (value: unknown): value is number =>
      typeof value === 'number' && Number.isFinite(value) && value >= 0;
    if (values.length === 0 || !values.every(isRight)) throw this.wrong(name, 'finite numbers from 0 on');
    return values;
  }

  counts(name: string, length: number, limit: number, least = 0): number[] {
    return this.list(name, length).map((value) => {
      if (!isCount(value, limit, least)) throw this.wrong(name, `whole numbers from ${least} to ${limit}`);
      return value;
    });
  }

  texts(name: string, length: number, limit: number): string[] {
    return this.list(name, length).map((value) => {
      if (!isText(value, limit)) throw this.wrong(name, `strings of at most ${limit} characters`);
      return value;
    });
  }

  /** A list of at most `length` whole numbers up to `limit` or names of sizes. Raises CannotServe. */
  sizes(name: string, length: number, limit: number, chars: number): (number | string)[] {
    return this.list(name, length).map((value) => {
      if (isCount(value, limit, 0) || (isText(value, chars) && value !== '')) return value;
      throw this.wrong(name, `whole numbers up to ${limit} or names`);
    });
  }

  /** The names of all fields. Raises CannotServe where there are too many or too long ones. */
  names(length: number, chars: number): string[] {
    const found = Object.keys(this.value);
    if (found.length <= length && found.every((name) => isText(name, chars))) return found;
    throw new CannotServe(`${this.place}: at most ${length} fields with names of up to ${chars} expected`);
  }

  fields(name: string): Fields {
    return new Fields(this.get(name), `${this.place}.${name}`);
  }

  listOfFields(name: string, limit: number): Fields[] {
    return this.list(name, limit).map((value, at) => new Fields(value, `${this.place}.${name}[${at}]`));
  }

  private get(name: string): unknown {
    if (!Object.hasOwn(this.value, name)) throw new CannotServe(`${this.place}: field '${name}' is missing`);
    return this.value[name];
  }

  private list(name: string, limit: number): unknown[] {
    const value = this.get(name);
    if (!Array.isArray(value) || value.length > limit)
      throw this.wrong(name, `a list of at most ${limit} items`);
    return value;
  }

  private wrong(name: string, expected: string): CannotServe {
    return new CannotServe(`${this.place}.${name}: ${expected} expected`);
  }
}

/** Whether it is a string of so many characters that UTF-8 can say. */
function isText(value: unknown, limit: number): value is string {
  if (typeof value !== 'string' || LONE_SURROGATE.test(value)) return false;
  return value.length <= limit || [...value].length <= limit; // a character may be two units of UTF-16
}

function isCount(value: unknown, limit: number, least: number): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= least && value <= limit;
}
