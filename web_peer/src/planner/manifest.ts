/*
 * What a model that answers in words is: a chain of units, format shoal-2 with a `decoder` (twin of
 * planner/model/manifest.py, which says what each field means). It comes from a stranger: every type, limit, offset and
 * name is checked before anything uses it.
 */

import { CannotServe } from '../errors';
import type { BlobRef } from './blob_ref';
import { decodeBlob, type Fields, opened, SHA256 } from './checked_fields';
import {
  type GraphManifest,
  graphManifestOf,
  type GraphUnit,
  type KvState,
  MAX_POSITIONS,
  quoted,
  type Term,
  type ValueType,
} from './graph_manifest';
import { type KvWindow, windowCapacity, windowOf } from './kv_window';
import { BOUNDS, MILLION, type SamplingDefaults } from './sampling_defaults';
import { type Speech, speechOf } from './speech';

export const MOST_ENVELOPE_BYTES = 1 << 20; // of what was recorded of rows at borders
const MAX_HIDDEN = 1 << 17;
const MAX_VOCAB = 1 << 24;
const MAX_CONTEXT = 1 << 24;
const MAX_SCRATCH = 1 << 22;
const MAX_TABLES = 16;
const MAX_FREQUENCIES = 512;
const MAX_TEMPLATE_CHARS = 1 << 20;
const MAX_GRAPHS_BYTES = 16 << 20; // of all different graphs: every peer fetches them, whatever it holds
const MAX_UNIT_NAME_CHARS = 64;
const MAX_AROUND = 64; // tokens before and behind the rows of a picture
const MAX_SQUARE = 1 << 10; // pixels
const MOST_AXES = 3; // of a token's place: the picture of a film, its row, its column
const HASH_DIGITS = 64;
const TOKENS = 'tokens';
const LOGITS = 'logits';

export type UnitKind = 'embed' | 'attn' | 'ffn' | 'head';
export const BLOCK_KINDS: readonly UnitKind[] = ['attn', 'ffn']; // between the first and the last unit
export type Dtype = 'f32' | 'f16' | 'u8';
export type WeightFormat = '8bit' | '4bit' | 'f32' | 'f16';
const DTYPES: Readonly<Partial<Record<ValueType, Dtype>>> = { float32: 'f32', float16: 'f16', uint8: 'u8' };

/** `shape` values of `dtype`, little-endian and C-ordered, at `offset` of the unit's blob. */
export interface StoredTensor {
  readonly name: string;
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  readonly offset: number;
  readonly bytes: number;
}

/**
 * A pair of key and value arrays that a unit keeps for each session, called so by the graph and the wire: `heads` rows
 * of `headSize` values for each token. `window`: only so many last tokens are looked at; null: all. Where values are
 * the keys, there is one array, and `value` is `key`.
 */
export interface KvPair {
  readonly key: string;
  readonly value: string;
  readonly heads: number;
  readonly headSize: number;
  readonly window: number | null;
}

/** One unit of a chain: its graph, and weights in one blob. */
export interface ManifestUnit {
  readonly name: string;
  readonly kind: UnitKind;
  readonly graph: BlobRef;
  readonly blob: BlobRef;
  readonly tensors: readonly StoredTensor[];
  readonly kv: readonly KvPair[];
  readonly flopsPerToken: number;
  readonly kvBytesPerToken: number;
  readonly outBytesPerToken: number;
  readonly residentBytes: number; // on a CPU with packed weights
}

/** What a stage knows of its model beside units: rows that cross borders, and how positions turn heads. */
export interface Dimensions {
  readonly vocab: number;
  readonly hidden: number;
  readonly context: number;
  readonly scratch: number; // values of the widest row of activations that a token has
  readonly rotary: readonly (readonly number[])[]; // per table, by how much a position turns each pair of a head
  readonly window: KvWindow | null; // what sessions keep in states with a window; null where no unit has one
}

/** One model. Its id is the SHA-256 of the manifest's bytes. */
export interface Manifest extends Dimensions {
  readonly name: string;
  readonly weights: WeightFormat;
  readonly tokenizer: BlobRef;
  readonly chatTemplate: string | null;
  readonly bosToken: number | null;
  readonly endTokens: readonly number[];
  readonly addBos: boolean;
  readonly units: readonly ManifestUnit[];
  readonly sampling: SamplingDefaults | null; // of the model's own files; null: they say nothing
  readonly readsSources: boolean; // it writes a text of another one, which an encoder reads
  readonly speech: Speech | null; // how it writes what is said; null: it answers questions
  readonly sight: Sight | null; // how it is given pictures; null: it sees none
}

/**
 * How a decoder is given pictures: by rows that the model `model` (an id) makes of each, `positions` of them in place of
 * the token `token`, between the tokens `before` and `behind`. `square`: pixels along a side of what one position shows,
 * where pictures keep their form: `positions` is the most then; 0: all pictures have as many. `axes`: of the place of a
 * token.
 */
export interface Sight {
  readonly model: string;
  readonly token: number;
  readonly positions: number;
  readonly before: readonly number[];
  readonly behind: readonly number[];
  readonly square: number;
  readonly axes: number;
}

/** A model and the graphs of all its units, by hash. */
export interface Decoder {
  readonly manifest: Manifest;
  readonly graphs: ReadonlyMap<string, Uint8Array>;
}

/** The blobs that units [first, stop) need, graphs before weights, each once, in order. */
export function blobsOf(manifest: Manifest, first: number, stop: number): BlobRef[] {
  const units = manifest.units.slice(first, stop);
  return once([...units.map(({ graph }) => graph), ...units.map(({ blob }) => blob)]);
}

/** The blobs of all graphs, each once, in order; a few kilobytes. */
export function graphsOf({ units }: Manifest): BlobRef[] {
  return once(units.map(({ graph }) => graph));
}

/** What a stage knows of the model beside its units. */
export function dimensionsOf({ vocab, hidden, context, scratch, rotary, window }: Manifest): Dimensions {
  return { vocab, hidden, context, scratch, rotary, window };
}

/** How many positions of a session the arrays of a unit have at most, in a model with this window; 0: all of them. */
export function kvPositions({ kv }: Pick<ManifestUnit, 'kv'>, window: KvWindow | null): number {
  if (window === null || kv.length === 0 || kv.some((pair) => pair.window === null)) return 0;
  return windowCapacity(window);
}

/** What a session of `context` tokens takes in the arrays of a unit. */
export function sessionBytes(
  unit: Pick<ManifestUnit, 'kv' | 'kvBytesPerToken'>,
  context: number,
  window: KvWindow | null,
): number {
  const most = kvPositions(unit, window);
  return unit.kvBytesPerToken * (most > 0 ? Math.min(most, context) : context);
}

/** The key and value arrays of a run of units, in the order that graphs name them. */
export function kvNames(units: readonly Pick<ManifestUnit, 'kv'>[]): string[] {
  return units.flatMap(({ kv }) => kv.flatMap(namesOf));
}

/** The pair of that number among those of a model. */
export function pairOf(number: number, state: KvState): KvPair {
  const { heads, headSize, window, isShared } = state;
  const key = `key.${number}`;
  return { key, value: isShared ? key : `value.${number}`, heads, headSize, window };
}

/** How the graph and the wire call the arrays of a pair. */
export function namesOf({ key, value }: Pick<KvPair, 'key' | 'value'>): string[] {
  return key === value ? [key] : [key, value];
}

/** How the graph calls keys and values behind a step; shared ones lie in one array. */
export function outputsOf({ key, value }: Pick<KvPair, 'key' | 'value'>): [string, string] {
  return [`${key}.out`, key === value ? `${key}.value` : `${value}.out`];
}

/** Bytes of cache of one position of a session in these pairs. */
export function kvBytes(pairs: readonly KvPair[]): number {
  return pairs.reduce((sum, pair) => sum + namesOf(pair).length * 4 * pair.heads * pair.headSize, 0);
}

/** What a unit's weights occupy in a tab with a GPU, which multiplies packed ones; an embedding lies in memory. */
export function packedBytes({ kind, tensors }: Pick<ManifestUnit, 'kind' | 'tensors'>): number {
  return tensors.reduce(
    (sum, { dtype, shape, bytes }) =>
      sum + (dtype === 'f16' && kind !== 'embed' ? 4 * elements(shape) : bytes),
    0,
  );
}

/** The same in a tab that unpacks every linear to float32, columns in whole blocks; an embedding stays as stored. */
export function wideBytes(unit: Pick<ManifestUnit, 'kind' | 'tensors'>): number {
  if (unit.kind === 'embed') return packedBytes(unit);
  let total = 0;
  for (const { name, shape, bytes } of unit.tensors) {
    const dot = name.lastIndexOf('.');
    const [linear, form] = [name.slice(0, Math.max(dot, 0)), name.slice(dot + 1)];
    if (linear !== '' && ['q4', 'q8', 'w'].includes(form))
      total += 4 * elements(shape) * (form === 'q4' ? 2 : 1);
    else if (!['scale', 'zero', 'rest'].includes(form)) total += bytes;
  }
  return total;
}

/** Raises CannotServe that says which field broke which rule. */
export function decodeManifest(encoded: Uint8Array): Manifest {
  const root = opened(encoded);
  if (!root.has('decoder')) {
    throw new CannotServe(
      "manifest: field 'decoder' is missing: this model answers no questions; import one that does",
    );
  }
  const graph = graphManifestOf(root);
  const said = root.fields('decoder');
  const vocab = said.count('vocab', MAX_VOCAB, 1);
  const hidden = said.count('hidden', MAX_HIDDEN, 1);
  const context = said.count('context', MAX_CONTEXT, 1);
  checkChain(graph, vocab, hidden);
  const units = unitsOf(graph, hidden);
  return {
    name: graph.name,
    weights: said.choice('weights', ['8bit', '4bit', 'f32', 'f16']),
    vocab,
    hidden,
    context,
    scratch: said.count('scratch', MAX_SCRATCH, 1),
    rotary: said
      .listOfFields('rotary', MAX_TABLES)
      .map((table) => table.numbers('frequencies', MAX_FREQUENCIES)),
    tokenizer: decodeBlob(said.fields('tokenizer')),
    chatTemplate: said.isNull('chat_template') ? null : said.text('chat_template', MAX_TEMPLATE_CHARS),
    bosToken: said.isNull('bos_token') ? null : said.count('bos_token', vocab - 1),
    endTokens: said.counts('end_tokens', 64, vocab - 1),
    addBos: said.boolean('add_bos'),
    units,
    window: windowOf(units.flatMap(({ kv }) => kv)),
    sampling: said.has('sampling') ? decodeSampling(said.fields('sampling')) : null,
    readsSources: said.has('source'),
    speech: said.has('speech') ? speechOf(said.fields('speech'), vocab, context) : null,
    sight: said.has('sight') ? decodeSight(said.fields('sight'), vocab) : null,
  };
}

function decodeSight(fields: Fields, vocab: number): Sight {
  const model = fields.text('model', HASH_DIGITS);
  if (!SHA256.test(model)) {
    throw new CannotServe('manifest.decoder.sight.model: the id of a model expected');
  }
  const around = (name: string): number[] =>
    fields.has(name) ? fields.counts(name, MAX_AROUND, vocab - 1) : [];
  return {
    model,
    token: fields.count('token', vocab - 1),
    positions: fields.count('positions', MAX_POSITIONS, 1),
    before: around('before'),
    behind: around('behind'),
    square: fields.has('square') ? fields.count('square', MAX_SQUARE, 1) : 0,
    axes: fields.has('axes') ? fields.count('axes', MOST_AXES, MOST_AXES) : 1,
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

function once(blobs: readonly BlobRef[]): BlobRef[] {
  return [...new Map(blobs.map((blob) => [blob.sha256, blob])).values()];
}

function elements(shape: readonly number[]): number {
  return shape.reduce((made, size) => made * size, 1);
}

/** Raises CannotServe unless each unit takes what the one before it makes, from tokens to logits. */
function checkChain(graph: GraphManifest, vocab: number, hidden: number): void {
  const { units, inputs, outputs, values } = graph;
  if (units.length < 2 || String(inputs) !== TOKENS || String(outputs) !== LOGITS) {
    throw new CannotServe(`manifest: two units or more, from ${TOKENS} to ${LOGITS}, expected`);
  }
  const types = new Map(values.map(({ name, dtype, shape }) => [name, JSON.stringify([dtype, ...shape])]));
  const isOf = (name: string, ...type: readonly (string | number)[]): boolean =>
    types.get(name) === JSON.stringify(type);
  if (!isOf(TOKENS, 'int64', 'batch', 'tokens') || !isOf(LOGITS, 'float32', 'positions', vocab)) {
    throw new CannotServe(
      `manifest.values: ${TOKENS} int64 (batch, tokens), ${LOGITS} float32 (positions, ${vocab}) expected`,
    );
  }
  let before = TOKENS;
  units.forEach((unit, place) => {
    const where = `manifest.units[${place}]`;
    const [made] = unit.outputs;
    if (
      unit.inputs.length !== 1 ||
      unit.inputs[0] !== before ||
      unit.outputs.length !== 1 ||
      made === undefined
    ) {
      throw new CannotServe(`${where}: one input, ${quoted(before)}, and one output expected`);
    }
    before = made;
    const isLast = place === units.length - 1;
    if (!isLast && !isOf(made, 'float32', 'batch', 'tokens', hidden)) {
      throw new CannotServe(`${where}: float32 (batch, tokens, ${hidden}) expected of its output`);
    }
    if ((made === LOGITS) !== isLast) {
      throw new CannotServe(`${where}: ${LOGITS} expected of the last unit alone`);
    }
    if (unit.state.length > 0 && (isLast || place === 0)) {
      throw new CannotServe(`${where}: no state expected of the first and the last unit`);
    }
    checkUnit(unit, where);
  });
  const total = once(units.map((unit) => unit.graph)).reduce((sum, { bytes }) => sum + bytes, 0);
  if (total > MAX_GRAPHS_BYTES) {
    throw new CannotServe(
      `manifest.units: graphs of at most ${MAX_GRAPHS_BYTES} bytes together expected, got ${total}`,
    );
  }
}

function checkUnit({ name, weights, tensors }: GraphUnit, where: string): void {
  if (name === '' || [...name].length > MAX_UNIT_NAME_CHARS || name.includes('/')) {
    throw new CannotServe(`${where}.name: up to ${MAX_UNIT_NAME_CHARS} characters without / expected`);
  }
  if (weights.length !== 1 || !tensors.every(({ dtype }) => DTYPES[dtype] !== undefined)) {
    throw new CannotServe(
      `${where}: one blob of weights, and tensors of ${Object.values(DTYPES).join(', ')}, expected`,
    );
  }
  if (!tensors.every(({ shape }) => shape.length > 0 && elements(shape) > 0)) {
    throw new CannotServe(`${where}: tensors with at least one value and one axis expected`);
  }
}

function unitsOf({ units }: GraphManifest, hidden: number): ManifestUnit[] {
  let pairs = 0;
  return units.map((unit, place) => {
    const kv = unit.state.map((state, at) => pairOf(pairs + at, state));
    pairs += kv.length;
    const kind = kindOf(place, units.length, kv);
    const [blob] = unit.weights;
    if (blob === undefined) throw new Error('a checked unit has a blob');
    return {
      name: unit.name,
      kind,
      graph: unit.graph,
      blob,
      tensors: unit.tensors.flatMap(({ name, dtype, shape, offset, bytes }) => {
        const known = DTYPES[dtype];
        return known === undefined ? [] : [{ name, dtype: known, shape, offset, bytes }];
      }),
      kv,
      flopsPerToken: flopsOf(unit.flops),
      kvBytesPerToken: kvBytes(kv),
      outBytesPerToken: kind === 'head' ? 4 : 4 * hidden,
      residentBytes: unit.residentBytes,
    };
  });
}

/** Of one token: every symbolic size counts as 1. */
function flopsOf(flops: readonly Term[]): number {
  return roundedEven(
    Math.min(
      flops.reduce((sum, { factor }) => sum + factor, 0),
      2 ** 53,
    ),
  );
}

/** As Python rounds: halves to the even number. */
function roundedEven(value: number): number {
  const low = Math.floor(value);
  if (value - low !== 0.5) return Math.round(value);
  return low % 2 === 0 ? low : low + 1;
}

/** What the planner and measurements take a unit for. */
function kindOf(place: number, units: number, kv: readonly KvPair[]): UnitKind {
  if (place === 0) return 'embed';
  if (place === units - 1) return 'head';
  return kv.length > 0 ? 'attn' : 'ffn';
}
