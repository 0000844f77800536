/*
 * Decides what a manifest of format shoal-2 may say: units that form a graph, the values between them (twin of
 * planner/model/graph_manifest.py, which says what each field means). It comes from a stranger: every type, limit, name
 * and the order are checked before anything uses it.
 */

import { CannotServe } from '../errors';
import { type BlobRef, MAX_BLOB_BYTES } from './blob_ref';
import { decodeBlob, type Fields, opened } from './checked_fields';

const MAX_UNITS = 4096;
const MAX_NAME_CHARS = 256;
const MAX_RANK = 16;
const MAX_OPSET = 2 ** 20;
const MAX_SIZE = 2 ** 40; // of one axis
const MAX_VALUES = 4 * MAX_UNITS;
const MAX_PORTS = 256; // inputs, outputs of a model or of a unit
const MAX_UNIT_TENSORS = 8192;
const MAX_UNIT_BLOBS = 64;
const MAX_STATES = 16; // of a unit
const MAX_HEADS = 1024;
const MAX_HEAD_SIZE = 1024;
const MAX_WINDOW = 1 << 24; // tokens
const MAX_TERMS = 16;
const MAX_FACTORS = 8;
const MAX_VALUE_CHARS = 512; // exporters name values by their path in the source
const ALIGNED = 64;
const MAX_TOKENIZER_BYTES = 64 << 20;
const MAX_TEXT_TOKENS = 1 << 20; // of one text
const MAX_TOKEN = 2 ** 31 - 1;
const MAX_DIMENSIONS = 1 << 16; // of an embedding
export const MAX_POSITIONS = 1 << 16; // of one picture in a prompt
const MAX_PICTURE_GRAPH_BYTES = 2 ** 20;
const MAX_SIDE = 4096; // pixels of the square that a model takes
const COLOURS = 3;
const TEXT_TYPES: readonly ValueType[] = ['int64', 'int32', 'float32']; // of the inputs that are made of texts
const SHOWN_CHARS = 80; // of a name in an error
const ESCAPES: ReadonlyMap<string, string> = new Map([
  ['\n', '\\n'],
  ['\r', '\\r'],
  ['\t', '\\t'],
]);

/** Halves of a byte that an element takes; a string counts as 32 bytes. */
export const HALF_BYTES = {
  float32: 8,
  float64: 16,
  float16: 4,
  bfloat16: 4,
  int8: 2,
  uint8: 2,
  int16: 4,
  uint16: 4,
  int32: 8,
  uint32: 8,
  int64: 16,
  uint64: 16,
  bool: 2,
  string: 64,
  complex64: 16,
  complex128: 32,
  int4: 1,
  uint4: 1,
} as const;

export type ValueType = keyof typeof HALF_BYTES;
const VALUE_TYPES = Object.keys(HALF_BYTES) as readonly ValueType[];

/** Of an axis: a number, or the name of a symbolic size. */
export type Size = number | string;

/** `factor` times the product of symbolic sizes. */
export interface Term {
  readonly factor: number;
  readonly sizes: readonly string[];
}

/** A tensor that is given, returned, or crosses a border. */
export interface Value {
  readonly name: string;
  readonly dtype: ValueType;
  readonly shape: readonly Size[];
  readonly bytes: readonly Term[];
}

/** A tensor of a unit at `offset` of the blob at place `blob` of the unit's `weights`. */
export interface Weight {
  readonly name: string;
  readonly dtype: ValueType;
  readonly shape: readonly number[];
  readonly blob: number;
  readonly offset: number;
  readonly bytes: number;
}

export interface GraphUnit {
  readonly name: string;
  readonly component: string;
  readonly graph: BlobRef;
  readonly weights: readonly BlobRef[];
  readonly tensors: readonly Weight[];
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly params: number;
  readonly residentBytes: number;
  readonly flops: readonly Term[];
  readonly ops: readonly string[];
  readonly state: readonly KvState[];
}

/** Keys and values that a unit keeps for each session: `heads` rows of `headSize` values for each token of each. */
export interface KvState {
  readonly heads: number;
  readonly headSize: number;
  readonly window: number | null; // only so many last tokens are looked at; null: all
  readonly isShared: boolean; // values are the keys, kept once
}

/** How texts become all inputs of a model, each with axes (texts, tokens). */
export interface TextInputs {
  readonly tokenizer: BlobRef; // a tokenizer.json
  readonly tokens: string; // the input of token ids
  readonly mask: string | null; // that of 1 for a token and 0 for what fills up a shorter text
  readonly types: string | null; // that of 1 for a token of the second text of a pair, 0 for all others
  readonly longest: number; // tokens of a text or a pair, the marks at its ends included
  readonly pad: number; // the token id that fills up
  readonly vectors: string | null; // the output that is the embedding of each text, (texts, dimensions)
  readonly scores: string | null; // that of how well the second text of each pair answers the first, (texts, 1)
}

/** How pictures become an input of a model (docs/format.md). */
export interface PictureInputs {
  readonly graph: BlobRef; // an ONNX file that makes that input of one picture
  readonly input: string;
  readonly rows: string | null; // the output that decoders read
}

/** One model. Its id is the SHA-256 of the manifest's bytes. */
export interface GraphManifest {
  readonly name: string;
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly sizes: ReadonlyMap<string, number>;
  readonly values: readonly Value[];
  readonly units: readonly GraphUnit[];
  readonly fused: boolean; // computed with all optimizations of the engine; else with basic ones only
  readonly opset: number; // of ONNX's own operators in all units; 0: not said
  readonly text: TextInputs | null; // how its inputs are made of texts, where they can be
  readonly picture: PictureInputs | null; // how one of them is made of pictures, where it can be
}

/** The blobs that units [first, stop) need, graphs and weights, each once, in order. */
export function graphBlobsOf(manifest: GraphManifest, first: number, stop: number): BlobRef[] {
  const found = new Map<string, BlobRef>();
  for (const { graph, weights } of manifest.units.slice(first, stop)) {
    for (const blob of [graph, ...weights]) found.set(blob.sha256, blob);
  }
  return [...found.values()];
}

/** The values that units [first, stop) take from elsewhere, each once, in order of use. */
export function neededBy(manifest: GraphManifest, first: number, stop: number): string[] {
  const units = manifest.units.slice(first, stop);
  const made = new Set(units.flatMap(({ outputs }) => outputs));
  return [...new Set(units.flatMap(({ inputs }) => inputs))].filter((name) => !made.has(name));
}

/** The values that units [first, stop) make and that are outputs or needed after them, in order. */
export function givenBy(manifest: GraphManifest, first: number, stop: number): string[] {
  const later = new Set(manifest.units.slice(stop).flatMap(({ inputs }) => inputs));
  for (const name of manifest.outputs) later.add(name);
  const made = manifest.units.slice(first, stop).flatMap(({ outputs }) => outputs);
  return made.filter((name) => later.has(name));
}

/** Raises CannotServe that says which field broke which rule. */
export function decodeGraphManifest(encoded: Uint8Array): GraphManifest {
  const root = opened(encoded);
  if (root.has('decoder')) {
    throw new CannotServe('manifest: a model of inputs and outputs expected, this one answers in words');
  }
  return graphManifestOf(root);
}

/** The graph of units that opened fields say, also of a model that answers in words. Raises CannotServe. */
export function graphManifestOf(root: Fields): GraphManifest {
  const sizes = root.fields('sizes');
  const manifest: GraphManifest = {
    name: root.text('name', MAX_NAME_CHARS),
    inputs: root.texts('inputs', MAX_PORTS, MAX_VALUE_CHARS),
    outputs: root.texts('outputs', MAX_PORTS, MAX_VALUE_CHARS),
    sizes: new Map(
      sizes.names(MAX_PORTS, MAX_VALUE_CHARS).map((name) => [name, sizes.count(name, MAX_SIZE, 1)]),
    ),
    values: root.listOfFields('values', MAX_VALUES).map(decodeValue),
    units: root.listOfFields('units', MAX_UNITS).map(decodeUnit),
    fused: !root.has('fused') || root.boolean('fused'),
    opset: root.has('opset') ? root.count('opset', MAX_OPSET, 1) : 0,
    text: root.has('text') ? decodeText(root.fields('text')) : null,
    picture: root.has('picture') ? decodePicture(root.fields('picture')) : null,
  };
  checkOrder(manifest);
  if (manifest.picture !== null) checkPicture(manifest, manifest.picture);
  if (manifest.text !== null) checkText(manifest, manifest.text);
  return manifest;
}

function decodeText(fields: Fields): TextInputs {
  return {
    tokenizer: decodeBlob(fields.fields('tokenizer')),
    tokens: fields.text('tokens', MAX_VALUE_CHARS),
    mask: fields.has('mask') ? fields.text('mask', MAX_VALUE_CHARS) : null,
    types: fields.has('types') ? fields.text('types', MAX_VALUE_CHARS) : null,
    longest: fields.count('longest', MAX_TEXT_TOKENS, 1),
    pad: fields.count('pad', MAX_TOKEN),
    vectors: fields.has('vectors') ? fields.text('vectors', MAX_VALUE_CHARS) : null,
    scores: fields.has('scores') ? fields.text('scores', MAX_VALUE_CHARS) : null,
  };
}

function decodePicture(fields: Fields): PictureInputs {
  const graph = decodeBlob(fields.fields('graph'));
  if (graph.bytes > MAX_PICTURE_GRAPH_BYTES) {
    throw new CannotServe(`manifest.picture: a graph of at most ${MAX_PICTURE_GRAPH_BYTES} bytes expected`);
  }
  return {
    graph,
    input: fields.text('input', MAX_VALUE_CHARS),
    rows: fields.has('rows') ? fields.text('rows', MAX_VALUE_CHARS) : null,
  };
}

/** Raises CannotServe unless pictures become that input, and an output is the rows of each. */
function checkPicture({ inputs, outputs, values }: GraphManifest, picture: PictureInputs): void {
  const named = new Map(values.map((value) => [value.name, value]));
  const taken = inputs.includes(picture.input) ? named.get(picture.input) : undefined;
  const [pictures, colours, height, width] = taken?.shape ?? [];
  const isFree = typeof height === 'string'; // pictures keep their form: they have as many rows as it makes
  const isSquare = isFree
    ? typeof width === 'string' && width !== height && pictures !== height && pictures !== width
    : height === width && height !== undefined && height > 0 && height <= MAX_SIDE;
  if (taken?.dtype !== 'float32' || taken.shape.length !== 4 || colours !== COLOURS || !isSquare) {
    throw new CannotServe(
      `manifest.picture: an input of float32 (pictures, 3, side, side), up to ${MAX_SIDE}, expected`,
    );
  }
  if (picture.rows === null) return;
  const made = outputs.includes(picture.rows) ? named.get(picture.rows) : undefined;
  const fits = made?.dtype === 'float32' && made.shape.length === 3 && made.shape[0] === pictures;
  const [, positions, wide] = made?.shape ?? [];
  if (!fits || (typeof positions === 'string') !== isFree || typeof wide !== 'number') {
    throw new CannotServe('manifest.picture: rows (pictures, positions, hidden) expected');
  }
}

/** The inputs that texts become. */
export function textInputsOf({ tokens, mask, types }: TextInputs): string[] {
  return [tokens, mask, types].filter((name) => name !== null);
}

/** Raises CannotServe unless texts become all inputs of the model as its values say. */
function checkText({ inputs, outputs, values, picture }: GraphManifest, text: TextInputs): void {
  if (text.tokenizer.bytes > MAX_TOKENIZER_BYTES) {
    throw new CannotServe(`manifest.text: a tokenizer of at most ${MAX_TOKENIZER_BYTES} bytes expected`);
  }
  const made = textInputsOf(text);
  const all = picture === null ? made : [...made, picture.input];
  if (all.length !== inputs.length || !inputs.every((name) => all.includes(name))) {
    throw new CannotServe('manifest.text: tokens, mask and types expected to be all inputs, each once');
  }
  const named = new Map(values.map((value) => [value.name, value]));
  const tokens = named.get(text.tokens);
  const wide = tokens?.shape[1];
  if (tokens?.shape.length !== 2 || (typeof wide === 'number' && wide < text.longest)) {
    throw new CannotServe('manifest.text: axes (texts, tokens) with room for the longest text expected');
  }
  for (const name of made) {
    const value = named.get(name);
    const isAlike =
      value?.shape.length === 2 && value.shape.every((size, axis) => size === tokens.shape[axis]);
    if (value === undefined || !isAlike || !TEXT_TYPES.includes(value.dtype)) {
      throw new CannotServe(`manifest.text: ${quoted(name)}: the axes of the tokens, and numbers, expected`);
    }
  }
  if (tokens.dtype === 'float32') {
    throw new CannotServe('manifest.text: whole numbers expected for tokens');
  }
  for (const [what, name, most] of [
    ['vectors', text.vectors, MAX_DIMENSIONS],
    ['scores', text.scores, 1],
  ] as const) {
    if (name === null) continue;
    const made = outputs.includes(name) ? named.get(name) : undefined;
    if (made === undefined || !isOfTexts(made, tokens.shape[0], most)) {
      const width = most > 1 ? `1 to ${most}` : '1';
      throw new CannotServe(
        `manifest.text: ${what}: an output of float32 and axes (texts, ${width}) expected`,
      );
    }
  }
}

function isOfTexts({ dtype, shape }: Value, texts: number | string | undefined, most: number): boolean {
  const width = shape[1];
  return (
    dtype === 'float32' &&
    shape.length === 2 &&
    shape[0] === texts &&
    typeof width === 'number' &&
    width >= 1 &&
    width <= most
  );
}

function decodeTerms(fields: Fields, name: string): Term[] {
  return fields.listOfFields(name, MAX_TERMS).map((item) => ({
    factor: item.positive('factor'),
    sizes: item.texts('sizes', MAX_FACTORS, MAX_VALUE_CHARS),
  }));
}

function decodeValue(fields: Fields): Value {
  return {
    name: fields.text('name', MAX_VALUE_CHARS),
    dtype: fields.choice('dtype', VALUE_TYPES),
    shape: fields.sizes('shape', MAX_RANK, MAX_SIZE, MAX_VALUE_CHARS),
    bytes: decodeTerms(fields, 'bytes'),
  };
}

function decodeWeight(fields: Fields, blobs: readonly BlobRef[]): Weight {
  const dtype = fields.choice('dtype', VALUE_TYPES);
  const shape = fields.counts('shape', MAX_RANK, MAX_SIZE);
  const offset = fields.count('offset', MAX_BLOB_BYTES);
  const bytes = fields.count('bytes', MAX_BLOB_BYTES);
  if (dtype === 'string') {
    throw new CannotServe(`${fields.place}: weights of numbers expected, got strings`);
  }
  const elements = shape.reduce((made, size) => made * size, 1);
  if (bytes !== Math.ceil((elements * HALF_BYTES[dtype]) / 2)) {
    throw new CannotServe(`${fields.place}: ${bytes} bytes do not hold ${dtype} of shape ${shown(shape)}`);
  }
  const blob = fields.count('blob', MAX_UNIT_BLOBS);
  const held = blobs[blob];
  if (held === undefined) {
    throw new CannotServe(`${fields.place}.blob: a place among ${blobs.length} blobs expected, got ${blob}`);
  }
  if (offset % ALIGNED || offset + bytes > held.bytes) {
    throw new CannotServe(
      `${fields.place}: offset ${offset} plus ${bytes} must be ${ALIGNED}-aligned and inside ${held.bytes} bytes`,
    );
  }
  return { name: fields.text('name', MAX_VALUE_CHARS), dtype, shape, blob, offset, bytes };
}

function decodeUnit(fields: Fields): GraphUnit {
  const weights = fields.listOfFields('weights', MAX_UNIT_BLOBS).map(decodeBlob);
  const tensors = fields.listOfFields('tensors', MAX_UNIT_TENSORS).map((item) => decodeWeight(item, weights));
  if (new Set(tensors.map(({ name }) => name)).size !== tensors.length) {
    throw new CannotServe(`${fields.place}: tensor names must differ`);
  }
  return {
    name: fields.text('name', MAX_VALUE_CHARS),
    component: fields.text('component', 64),
    graph: decodeBlob(fields.fields('graph')),
    weights,
    tensors,
    inputs: fields.texts('inputs', MAX_PORTS, MAX_VALUE_CHARS),
    outputs: fields.texts('outputs', MAX_PORTS, MAX_VALUE_CHARS),
    params: fields.count('params'),
    residentBytes: fields.count('resident_bytes'),
    flops: decodeTerms(fields, 'flops'),
    ops: fields.texts('ops', 256, 256),
    state: fields.has('state') ? fields.listOfFields('state', MAX_STATES).map(decodeState) : [],
  };
}

function decodeState(fields: Fields): KvState {
  const kind = fields.choice('kind', ['kv', 'shared_kv']);
  return {
    heads: fields.count('heads', MAX_HEADS, 1),
    headSize: fields.count('head_size', MAX_HEAD_SIZE, 1),
    window: fields.has('window') ? fields.count('window', MAX_WINDOW, 1) : null,
    isShared: kind === 'shared_kv',
  };
}

/** Raises CannotServe unless every value is declared once, made once or given, and made before it is used. */
function checkOrder({ inputs, outputs, values, units }: GraphManifest): void {
  const known = new Set(values.map(({ name }) => name));
  if (known.size !== values.length || known.has('')) {
    throw new CannotServe('manifest.values: names must differ and have a letter');
  }
  if (new Set(units.map(({ name }) => name)).size !== units.length || units.length === 0) {
    throw new CannotServe('manifest.units: at least one unit expected, names must differ');
  }
  const made = new Set(inputs);
  if (made.size !== inputs.length || new Set(outputs).size !== outputs.length) {
    throw new CannotServe('manifest: names of inputs and of outputs must differ');
  }
  units.forEach((unit, place) => {
    const at = `manifest.units[${place}]`;
    for (const name of unit.inputs) {
      if (!made.has(name)) throw new CannotServe(`${at}: input ${quoted(name)} is not made before it`);
    }
    for (const name of unit.outputs) {
      if (made.has(name)) throw new CannotServe(`${at}: output ${quoted(name)} is made twice`);
      made.add(name);
    }
    if (new Set(unit.inputs).size !== unit.inputs.length || unit.outputs.length === 0) {
      throw new CannotServe(`${at}: different inputs, and outputs, expected`);
    }
  });
  const strange = [...made].find((name) => !known.has(name));
  if (strange !== undefined) throw new CannotServe(`manifest.values: ${quoted(strange)} is not declared`);
  if (outputs.length === 0 || !outputs.every((name) => made.has(name))) {
    throw new CannotServe('manifest.outputs: names of values that units make expected');
  }
}

/** A name as an error shows it: in one line, as Python does. */
export function quoted(name: string): string {
  const short = [...name].slice(0, SHOWN_CHARS).join('').replaceAll('\\', '\\\\');
  const hex = (one: string): string => `\\x${(one.codePointAt(0) ?? 0).toString(16).padStart(2, '0')}`;
  return `'${short.replace(/\p{Cc}/gu, (one) => ESCAPES.get(one) ?? hex(one))}'`;
}

/** As Python writes a tuple. */
function shown(shape: readonly number[]): string {
  return `(${shape.join(', ')}${shape.length === 1 ? ',' : ''})`;
}
