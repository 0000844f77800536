/* Decides what a model manifest may say; every count, limit, offset and name is checked before anything uses it. */

import { CannotServe } from '../errors';
import { BOUNDS, MILLION, type SamplingDefaults } from './sampling_defaults';

export const MOST_ENVELOPE_BYTES = 1 << 20;

export const FORMAT = 'shoal-1';
export const PIECE_BYTES = 4 << 20; // blobs are hashed in pieces of this size
export const MAX_MANIFEST_BYTES = 32 << 20;
export const MAX_BLOB_BYTES = 64 * 2 ** 30;
export const MAX_UNITS = 4096;
const MAX_TENSORS = 64; // per unit
const MAX_TEMPLATE_CHARS = 1 << 20;
const SHA256 = /^[0-9a-f]{64}$/;
const LONE_SURROGATE = /\p{Surrogate}/u;

export type UnitKind = 'embed' | 'attn' | 'ffn' | 'head';
export type Dtype = 'f32' | 'f16' | 'u8';
export type WeightFormat = '8bit' | '4bit' | 'f32' | 'f16';
const DTYPE_BYTES: Readonly<Record<Dtype, number>> = { f32: 4, f16: 2, u8: 1 };

export interface BlobRef {
  readonly sha256: string;
  readonly bytes: number;
  readonly pieces: readonly string[]; // SHA-256 of each piece; the last one may be shorter
}

/** `shape` values of `dtype`, little-endian and C-ordered, at `offset` of the unit's blob. */
export interface StoredTensor {
  readonly name: string;
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  readonly offset: number;
  readonly bytes: number;
}

export interface ManifestUnit {
  readonly name: string;
  readonly kind: UnitKind;
  readonly state: readonly string[]; // names of the KV pairs it keeps
  readonly flopsPerToken: number;
  readonly kvBytesPerToken: number;
  readonly outBytesPerToken: number;
  readonly residentBytes: number; // on a CPU with packed weights
  readonly blob: BlobRef;
  readonly tensors: readonly StoredTensor[];
}

export interface RopeScaling {
  readonly kind: 'llama3' | 'linear';
  readonly factor: number;
  readonly lowFreqFactor: number;
  readonly highFreqFactor: number;
  readonly originalContext: number;
}

export interface Architecture {
  readonly family: string;
  readonly blocks: number;
  readonly hidden: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headSize: number;
  readonly ffn: number;
  readonly vocab: number;
  readonly context: number;
  readonly normEpsilon: number;
  readonly ropeBase: number;
  readonly ropeDims: number;
  readonly ropeScaling: RopeScaling | null;
  readonly ropeFactors: readonly number[] | null;
  readonly qkvBias: boolean;
  readonly qkNorm: boolean;
  readonly tiedEmbedding: boolean;
}

const HEAD_GROUP = 16; // onnxruntime's GroupQueryAttention with rotary embedding takes multiples of it only

/** Values per head as the attention kernel computes and caches them: `headSize` and zeros, to whole groups. */
export function kernelHeadSize({ headSize }: Pick<Architecture, 'headSize'>): number {
  return Math.ceil(headSize / HEAD_GROUP) * HEAD_GROUP;
}

/** One model. Its id is the SHA-256 of the manifest's bytes. */
export interface Manifest {
  readonly name: string;
  readonly weights: WeightFormat;
  readonly architecture: Architecture;
  readonly tokenizer: BlobRef;
  readonly chatTemplate: string | null;
  readonly bosToken: number | null;
  readonly endTokens: readonly number[];
  readonly addBos: boolean;
  readonly units: readonly ManifestUnit[];
  readonly sampling: SamplingDefaults | null; // of the model's own files; null: they say nothing
}

/** The blobs that units [first, stop) need, each once, in order. */
export function blobsOf(manifest: Manifest, first: number, stop: number): BlobRef[] {
  const found = new Map<string, BlobRef>();
  for (const unit of manifest.units.slice(first, stop)) found.set(unit.blob.sha256, unit.blob);
  return [...found.values()];
}

/** Bytes of piece `index` of a blob. */
export function pieceBytes(ref: BlobRef, index: number): number {
  return Math.min(PIECE_BYTES, ref.bytes - index * PIECE_BYTES);
}

/** The fields of a manifest of that format. Raises CannotServe, which says `otherwise` of another one. */
export function opened(encoded: Uint8Array, expected: string, otherwise: string): Fields {
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
  if (root.text('format', 64) !== expected) {
    throw new CannotServe(`manifest: format "${expected}" expected; ${otherwise}`);
  }
  return root;
}

/** Raises CannotServe that says which field broke which rule. */
export function decodeManifest(encoded: Uint8Array): Manifest {
  const root = opened(encoded, FORMAT, 'import the model again with this version');
  const architecture = decodeArchitecture(root.fields('architecture'));
  const units = root.listOfFields('units', MAX_UNITS).map(decodeUnit);
  checkUnits(units, architecture.blocks);
  return {
    name: root.text('name', 256),
    weights: root.choice('weights', ['8bit', '4bit', 'f32', 'f16']),
    architecture,
    tokenizer: decodeBlob(root.fields('tokenizer')),
    chatTemplate: root.isNull('chat_template') ? null : root.text('chat_template', MAX_TEMPLATE_CHARS),
    bosToken: root.isNull('bos_token') ? null : root.count('bos_token', architecture.vocab - 1),
    endTokens: root.counts('end_tokens', 64, architecture.vocab - 1),
    addBos: root.boolean('add_bos'),
    units,
    sampling: root.has('sampling') ? decodeSampling(root.fields('sampling')) : null,
  };
}

function decodeSampling(fields: Fields): SamplingDefaults {
  const number = (name: Exclude<keyof typeof BOUNDS, 'top_k'>): number => {
    const [low, high] = BOUNDS[name];
    return fields.count(name, Math.round(high * MILLION), Math.round(low * MILLION)) / MILLION;
  };
  return {
    temperature: number('temperature'),
    topK: fields.count('top_k', BOUNDS.top_k[1]),
    topP: number('top_p'),
    minP: number('min_p'),
    repetitionPenalty: number('repetition_penalty'),
  };
}

function decodeArchitecture(fields: Fields): Architecture {
  let ropeScaling: RopeScaling | null = null;
  if (!fields.isNull('rope_scaling')) {
    const inner = fields.fields('rope_scaling');
    ropeScaling = {
      kind: inner.choice('kind', ['llama3', 'linear']),
      factor: inner.positive('factor'),
      lowFreqFactor: inner.positive('low_freq_factor'),
      highFreqFactor: inner.positive('high_freq_factor'),
      originalContext: inner.count('original_context', 1 << 24, 1),
    };
  }
  const found: Architecture = {
    family: fields.text('family', 64),
    blocks: fields.count('blocks', 2000, 1),
    hidden: fields.count('hidden', 1 << 17, 1),
    heads: fields.count('heads', 1024, 1),
    kvHeads: fields.count('kv_heads', 1024, 1),
    headSize: fields.count('head_size', 1024, 1),
    ffn: fields.count('ffn', 1 << 20, 1),
    vocab: fields.count('vocab', 1 << 24, 1),
    context: fields.count('context', 1 << 24, 1),
    normEpsilon: fields.positive('norm_epsilon'),
    ropeBase: fields.positive('rope_base'),
    ropeDims: fields.count('rope_dims', 1024, 1),
    ropeScaling,
    ropeFactors: fields.isNull('rope_factors') ? null : fields.positives('rope_factors', 512),
    qkvBias: fields.boolean('qkv_bias'),
    qkNorm: fields.boolean('qk_norm'),
    tiedEmbedding: fields.boolean('tied_embedding'),
  };
  if (found.ropeFactors !== null && found.ropeFactors.length !== found.ropeDims / 2) {
    throw new CannotServe(`${fields.place}.rope_factors: ${found.ropeDims / 2} numbers expected`);
  }
  if (found.heads % found.kvHeads || found.ropeDims > found.headSize || found.ropeDims % 2) {
    throw new CannotServe(`${fields.place}: heads, kv_heads, head_size and rope_dims do not fit together`);
  }
  return found;
}

function decodeUnit(fields: Fields): ManifestUnit {
  const blob = decodeBlob(fields.fields('blob'));
  const tensors = fields.listOfFields('tensors', MAX_TENSORS).map((one) => decodeTensor(one, blob));
  if (new Set(tensors.map((tensor) => tensor.name)).size !== tensors.length) {
    throw new CannotServe(`${fields.place}: tensor names must differ`);
  }
  return {
    name: fields.text('name', 64),
    kind: fields.choice('kind', ['embed', 'attn', 'ffn', 'head']),
    state: fields.texts('state', 16, 64),
    flopsPerToken: fields.count('flops_per_token'),
    kvBytesPerToken: fields.count('kv_bytes_per_token'),
    outBytesPerToken: fields.count('out_bytes_per_token'),
    residentBytes: fields.count('resident_bytes'),
    blob,
    tensors,
  };
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

function decodeTensor(fields: Fields, blob: BlobRef): StoredTensor {
  const dtype = fields.choice('dtype', ['f32', 'f16', 'u8']);
  const shape = fields.counts('shape', 4, 2 ** 32, 1);
  const offset = fields.count('offset', MAX_BLOB_BYTES);
  const bytes = fields.count('bytes', MAX_BLOB_BYTES);
  if (bytes !== shape.reduce((made, size) => made * size, 1) * DTYPE_BYTES[dtype]) {
    throw new CannotServe(`${fields.place}: ${bytes} bytes do not hold ${dtype} of shape ${String(shape)}`);
  }
  if (offset % 64 || offset + bytes > blob.bytes) {
    throw new CannotServe(
      `${fields.place}: offset ${offset} plus ${bytes} must be 64-aligned and inside ${blob.bytes} bytes`,
    );
  }
  return { name: fields.text('name', 64), dtype, shape, offset, bytes };
}

function checkUnits(units: readonly ManifestUnit[], blocks: number): void {
  const expected = ['embed'];
  for (let block = 0; block < blocks; block++) expected.push(`attn.${block}`, `ffn.${block}`);
  expected.push('head');
  const fits =
    units.length === expected.length &&
    units.every((unit, at) => unit.name === expected[at] && unit.name.split('.')[0] === unit.kind);
  if (!fits) {
    throw new CannotServe(
      `manifest.units: embed, attn.0, ffn.0, ... head for ${blocks} blocks expected, got ${units.length} units in another order`,
    );
  }
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

  positives(name: string, length: number): number[] {
    return this.list(name, length).map((value) => new Fields({ [name]: value }, this.place).positive(name));
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
