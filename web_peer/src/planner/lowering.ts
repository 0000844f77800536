/*
 * How a run of a decoder's units becomes the ONNX graphs that onnxruntime runs in a tab (twin of
 * planner/model/lowering.py, byte for byte): the units' graphs one after the other, with what only peers know put in
 * place of the operators of domain `shoal`. docs/format.md says what those mean.
 *
 * The location of weights is "<unit>/<tensor>". For "wasm" every linear `name` is "<unit>/<name>.w", float32 (N, K),
 * whatever form is stored (weight_unpacking.ts unpacks it), in slices of rows where it is large. For "webgpu" a float32
 * matrix (`.w`, `.rest`) is "<unit>/<tensor>.T", widened and transposed, because the GPU has no product with a
 * transposed one; packed weights are as stored.
 */

import { CannotServe } from '../errors';
import { toHex } from '../wire/hex';
import {
  type AttentionOperator,
  type CachedOperator,
  type EmbeddingOperator,
  type ExpertsOperator,
  operatorOf,
  type PositionsOperator,
  type RotaryOperator,
  SHOAL,
} from './abstract_operators';
import {
  bodiesOf,
  ELEMENT_TYPES,
  GRAPH,
  MAX_RUN_BYTES,
  MODEL,
  NODE,
  OPSET,
  TENSOR,
  textOf,
  checkedGraph,
  wrongGraph,
} from './compose';
import { quoted } from './graph_manifest';
import { type KvPair, type Manifest, type ManifestUnit, namesOf, outputsOf } from './manifest';
import { type Attribute, GraphDraft, MICROSOFT, OPSETS, type Port } from './graph_draft';
import {
  addLinear,
  addStored,
  checkTable,
  type Location,
  type Making,
  need,
  type Provider,
  tensorOf,
} from './linear';
import { integerItem, type Message, textItem } from './onnx_messages';

const KNOWN_OPSETS: readonly (readonly [string, number])[] = [...OPSETS, [SHOAL, 1]];
export const WINDOW_SEQLENS = 'window.seqlens'; // as seqlens and total, of arrays with a window
export const WINDOW_TOTAL = 'window.total';
export const POSITION_IDS = 'position_ids';
// onnxruntime-web 1.30 leaves soft caps and position ids out without a word.
const NOT_ON_GPU =
  'attention with a window, a soft cap, sinks or values that are the keys is not computed right on a GPU: a tab ' +
  'computes it without one';
const FAR = -(10 ** 18); // added to the score of a position that is not looked at: its share is exactly 0
const HEAD_GROUP = 16; // onnxruntime's GroupQueryAttention with rotary embedding takes multiples of it only

/** A table whose rows are looked up by token: the stored tensors of `unit` called `weight`. */
export interface Table {
  readonly unit: ManifestUnit;
  readonly weight: string;
  readonly rows: number;
  readonly columns: number;
}

/**
 * What units [first, stop) compute: rows of a table, a graph for them where more is to be done, the body, the head;
 * each null where the run has no such part.
 *
 * Embed: hidden f32 (tokens, columns) -> hidden.out (tokens, hidden). Body: hidden f32 (batch, tokens, hidden), seqlens
 * i32 (batch) = tokens in the cache after the step - 1, total i32 (1), cos and sin f32 (positions, angles) of each rotary
 * table, key.N and value.N f32 (batch, heads, capacity, headSize), updated in place (bound as key.N.out, value.N.out,
 * too) -> hidden.out. Where a pair has a window, old positions may be absent from its arrays: window.seqlens,
 * window.total are for those, and position_ids i64 (batch, tokens) say where the step's tokens stand. Head: hidden f32 (batch, hidden) -> logits f32 (batch, vocab).
 */
export interface Graphs {
  readonly table: Table | null;
  readonly embed: Uint8Array<ArrayBuffer> | null;
  readonly body: Uint8Array<ArrayBuffer> | null;
  readonly head: Uint8Array<ArrayBuffer> | null;
  readonly locations: ReadonlyMap<string, Location>; // of weights, by name
}

/** `graphs`: the blobs of the units' graphs, by hash. Raises CannotServe for what is not a decoder's. */
export function makeGraphs(
  manifest: Manifest,
  graphs: ReadonlyMap<string, Uint8Array>,
  first: number,
  stop: number,
  provider: Provider,
): Graphs {
  const units = manifest.units.slice(first, stop);
  if (units.length !== stop - first || first < 0 || units.length === 0) {
    throw new Error(`units [${first}, ${stop}) of ${manifest.units.length}`);
  }
  if (units.reduce((sum, { graph }) => sum + graph.bytes, 0) > MAX_RUN_BYTES) {
    throw new CannotServe(`units ${first} to ${stop - 1}: graphs of at most ${MAX_RUN_BYTES} bytes expected`);
  }
  const locations = new Map<string, Location>();
  const placed = units.map((unit, at): PlacedUnit => ({
    unit,
    place: first + at,
    graph: graphOf(unit, graphs),
  }));
  const part = (isFlat: boolean): Lowering => new Lowering(manifest, provider, isFlat, locations);
  const blocks = placed.filter(({ unit: { kind } }) => kind === 'attn' || kind === 'ffn');
  const begin = placed.find(({ unit }) => unit.kind === 'embed');
  const end = placed.find(({ unit }) => unit.kind === 'head');
  const table = begin === undefined ? null : tableOf(begin, manifest);
  return {
    table: table?.table ?? null,
    embed: begin === undefined || table === null ? null : part(true).embed(begin, table),
    body: blocks.length === 0 ? null : part(false).body(blocks),
    head: end === undefined ? null : part(true).head(end),
    locations,
  };
}

/** Values per head as the attention kernel computes and caches them: `headSize` and zeros, to whole groups. */
export function kernelHeadSize(headSize: number): number {
  return Math.ceil(headSize / HEAD_GROUP) * HEAD_GROUP;
}

/** cos and sin, each (positions, angles), of one rotary table. */
export function rotaryTables(
  frequencies: readonly number[],
  positions: number,
): { cos: Float32Array; sin: Float32Array } {
  const angles = frequencies.length;
  const cos = new Float32Array(positions * angles);
  const sin = new Float32Array(positions * angles);
  frequencies.forEach((frequency, at) => {
    for (let position = 0; position < positions; position++) {
      cos[position * angles + at] = Math.cos(position * frequency);
      sin[position * angles + at] = Math.sin(position * frequency);
    }
  });
  return { cos, sin };
}

/** How graphs call the two inputs of a rotary table. */
export function rotaryInputs(table: number): readonly [cos: string, sin: string] {
  return table === 0 ? ['cos', 'sin'] : [`cos.${table}`, `sin.${table}`];
}

interface PlacedUnit {
  readonly unit: ManifestUnit;
  readonly place: number;
  readonly graph: Message;
}

/** The checked graph of a unit: operators of known versions, none of them with a body. */
function graphOf(unit: ManifestUnit, graphs: ReadonlyMap<string, Uint8Array>): Message {
  const model = checkedGraph({ ...unit, inputs: [''], outputs: [''] }, graphs);
  const imported = new Set<string>();
  for (const opset of model.messages(MODEL.opsets)) {
    const domain = textOf(opset.bytes(OPSET.domain)[0], unit);
    const version = toHex(opset.bytes(OPSET.version)[0] ?? integerItem(0));
    if (!KNOWN_OPSETS.some(([known, of]) => known === domain && toHex(integerItem(of)) === version)) {
      const known = KNOWN_OPSETS.map(([name, of]) => `${quoted(name)} ${of}`).join(', ');
      throw wrongGraph(unit, `operators of ${known} expected`);
    }
    imported.add(domain);
  }
  const [graph] = model.messages(MODEL.graph);
  if (graph === undefined) throw wrongGraph(unit, 'a graph expected');
  for (const node of graph.messages(GRAPH.nodes)) {
    const domain = textOf(node.bytes(NODE.domain)[0], unit);
    if (!imported.has(domain)) throw wrongGraph(unit, `operators of ${quoted(domain)} are not imported`);
    if (node.messages(NODE.attributes).some((attribute) => bodiesOf(attribute).length > 0)) {
      throw wrongGraph(unit, 'no bodies expected');
    }
  }
  return graph;
}

function isAbstract(node: Message, unit: ManifestUnit): boolean {
  return textOf(node.bytes(NODE.domain)[0], unit) === SHOAL;
}

/** What a body takes beside lengths where a state of its units has a window. */
function windowPorts(blocks: readonly PlacedUnit[]): Port[] {
  if (!blocks.some(({ unit }) => unit.kv.some(({ window }) => window !== null))) return [];
  return [
    { name: WINDOW_SEQLENS, dtype: 'int32', shape: ['batch'] },
    { name: WINDOW_TOTAL, dtype: 'int32', shape: [1] },
    { name: POSITION_IDS, dtype: 'int64', shape: ['batch', 'tokens'] },
  ];
}

/** Whether the graph is one node. */
function isAlone(graph: Message): boolean {
  return graph.messages(GRAPH.nodes).length === 1;
}

/** The one Embedding of the first unit, which alone takes tokens. */
function tableOf(
  { unit, graph }: PlacedUnit,
  { vocab, hidden }: Manifest,
): { table: Table; operator: EmbeddingOperator } {
  const found: EmbeddingOperator[] = [];
  let users = 0;
  for (const node of graph.messages(GRAPH.nodes)) {
    users += node.bytes(NODE.inputs).filter((name) => textOf(name, unit) === 'in.0').length;
    if (!isAbstract(node, unit)) continue;
    const operator = operatorOf(node, unit);
    if (operator.kind === 'Embedding') found.push(operator);
  }
  const [operator] = found;
  if (operator === undefined || found.length !== 1 || users !== 1 || operator.inputs[0] !== 'in.0') {
    throw wrongGraph(unit, 'one Embedding, which alone takes in.0, expected');
  }
  const { weight, rows, columns } = operator;
  if (rows !== vocab || (isAlone(graph) && columns !== hidden)) {
    throw wrongGraph(unit, `an Embedding of (${vocab}, ${hidden}) expected, got (${rows}, ${columns})`);
  }
  checkTable(unit, weight, rows, columns);
  return { table: { unit, weight, rows, columns }, operator };
}

/** One graph: units that stand one after the other. */
class Lowering implements Making {
  readonly draft = new GraphDraft();
  readonly provider: Provider;
  readonly isFlat: boolean;
  readonly locations: Map<string, Location>;
  readonly sums = new Map<string, string>();
  private readonly unseen = new Map<number, string>(); // what is added to scores, by the chunk of an Attention
  readonly matrices = new Map<string, string>();
  private readonly manifest: Manifest;

  constructor(manifest: Manifest, provider: Provider, isFlat: boolean, locations: Map<string, Location>) {
    this.manifest = manifest;
    this.provider = provider;
    this.isFlat = isFlat;
    this.locations = locations;
  }

  /** What follows the Embedding, null where nothing does. */
  embed(
    placed: PlacedUnit,
    { operator }: { readonly operator: EmbeddingOperator },
  ): Uint8Array<ArrayBuffer> | null {
    if (isAlone(placed.graph)) return null;
    this.add(placed, 'hidden', 'hidden.out', operator);
    const port = (name: string, width: number): Port => ({
      name,
      dtype: 'float32',
      shape: ['tokens', width],
    });
    return this.draft.finish([port('hidden', operator.columns)], [port('hidden.out', this.manifest.hidden)]);
  }

  body(blocks: readonly PlacedUnit[]): Uint8Array<ArrayBuffer> {
    const rows: Port = { name: 'hidden', dtype: 'float32', shape: ['batch', 'tokens', this.manifest.hidden] };
    const inputs: Port[] = [
      rows,
      { name: 'seqlens', dtype: 'int32', shape: ['batch'] },
      { name: 'total', dtype: 'int32', shape: [1] },
      ...windowPorts(blocks),
      ...this.manifest.rotary.flatMap(({ length }, table) =>
        rotaryInputs(table).map((name): Port => ({ name, dtype: 'float32', shape: ['positions', length] })),
      ),
    ];
    const outputs: Port[] = [{ ...rows, name: 'hidden.out' }];
    let hidden = 'hidden';
    blocks.forEach((placed, at) => {
      const output = at === blocks.length - 1 ? 'hidden.out' : `u${placed.place}/out.0`;
      this.add(placed, hidden, output, null);
      hidden = output;
      for (const pair of placed.unit.kv) {
        const { heads, headSize } = pair;
        const port = (name: string): Port => {
          return { name, dtype: 'float32', shape: ['batch', heads, 'capacity', headSize] };
        };
        inputs.push(...namesOf(pair).map(port));
        outputs.push(...outputsOf(pair).map(port));
      }
    });
    return this.draft.finish(inputs, outputs);
  }

  head(placed: PlacedUnit): Uint8Array<ArrayBuffer> {
    this.add(placed, 'hidden', 'logits', null);
    const port = (name: string, width: number): Port => ({ name, dtype: 'float32', shape: ['batch', width] });
    return this.draft.finish([port('hidden', this.manifest.hidden)], [port('logits', this.manifest.vocab)]);
  }

  /** The unit's nodes, from `source` to `target`; those of its `embedding`, where it has one, are rows of `source`. */
  private add(
    { unit, place, graph }: PlacedUnit,
    source: string,
    target: string,
    embedding: EmbeddingOperator | null,
  ): void {
    const names = new Map([
      [embedding?.output ?? 'in.0', source],
      ['out.0', target],
    ]);
    const named = (name: string): string => {
      if (name === '') return '';
      const known = names.get(name);
      if (known !== undefined) return known;
      const tensor = tensorOf(unit, name);
      const made = tensor === undefined ? `u${place}/${name}` : addStored(this, unit, place, tensor);
      names.set(name, made);
      return made;
    };
    const rename = (item: Uint8Array): Uint8Array => textItem(named(textOf(item, unit)));
    for (const tensor of graph.messages(GRAPH.initializers)) {
      tensor.fields.set(TENSOR.name, tensor.bytes(TENSOR.name).map(rename));
      this.draft.keepConstant(tensor);
    }
    const states = new Set<number>();
    for (const node of graph.messages(GRAPH.nodes)) {
      if (!isAbstract(node, unit)) {
        this.draft.keepNode(node, rename);
        continue;
      }
      const operator = operatorOf(node, unit);
      if (operator.kind === 'Embedding') {
        if (embedding === null) throw wrongGraph(unit, 'Embedding expected in the first unit alone');
        continue;
      }
      const found = { ...operator, inputs: operator.inputs.map(named), output: named(operator.output) };
      if (found.kind === 'Attention') {
        const [sinks, bias] = [named(found.sinks), named(found.bias)];
        if (states.has(found.state)) throw wrongGraph(unit, `state ${found.state} expected to be used once`);
        states.add(found.state);
        this.attention(unit, { ...found, sinks, bias });
      } else if (
        found.kind === 'Positions' ||
        found.kind === 'Cached' ||
        found.kind === 'Rotary' ||
        found.kind === 'Experts'
      ) {
        const expected = `${found.kind} expected between the first and the last unit alone`;
        if (this.isFlat) throw wrongGraph(unit, expected);
        if (found.kind === 'Positions') this.positions(found);
        else if (found.kind === 'Cached') this.cached(found);
        else if (found.kind === 'Rotary') this.rotary(unit, { ...found, sines: named(found.sines) });
        else this.experts(unit, place, found);
      } else {
        const { inputs, output, weight, rows, columns } = found;
        const [taken = '', bias = ''] = inputs;
        addLinear(this, { unit, place, weight, rows, columns, source: taken, bias, output });
      }
    }
    if (states.size !== unit.kv.length)
      throw wrongGraph(unit, `each of ${unit.kv.length} states used expected`);
  }

  /** What each expert makes that any token chose, one after the other; a row takes nothing of others' experts. */
  private experts(unit: ManifestUnit, place: number, operator: ExpertsOperator): void {
    const { draft } = this;
    const { inputs, output, weight, count, rows, columns } = operator;
    const [source = '', shares = '', base = '', limit = ''] = inputs;
    const alpha = operator.alpha || 1;
    const names = (): [string, ...string[]] => [
      draft.fresh(),
      ...Array.from({ length: count - 1 }, () => draft.fresh()),
    ];
    const own = names();
    draft.add('Split', [shares], own, { axis: -1, num_outputs: count });
    const largest = draft.add('ReduceMax', [shares, draft.vector([0, 1])], draft.fresh(), { keepdims: 0 });
    const anyOf = draft.add('Cast', [largest], draft.fresh(), { to: ELEMENT_TYPES.bool });
    const taken = names();
    draft.add('Split', [anyOf], taken, { axis: 0, num_outputs: count });
    let made = base;
    own.forEach((share, expert) => {
      const result = expert === count - 1 ? output : draft.fresh();
      const then = new GraphDraft(draft);
      const other = new GraphDraft(draft);
      const branch: Making = { ...this.making(), draft: then, sums: new Map(), matrices: new Map() };
      const product = (name: string, size: readonly [number, number], of: string, to: string): string => {
        const [height, width] = size;
        const matrix = { weight: `${weight}.${expert}.${name}`, rows: height, columns: width };
        const added = `${matrix.weight}.bias`;
        const isBiased = tensorOf(unit, added) !== undefined;
        const bias = isBiased ? addStored(branch, unit, place, need(unit, added, 'f32', [height])) : '';
        addLinear(branch, { unit, place, ...matrix, source: of, bias, output: to });
        return to;
      };
      const both = product('gate_up', [2 * rows, columns], source, draft.fresh());
      const halves: [string, string] = [draft.fresh(), draft.fresh()];
      then.add('Split', [both], halves, { axis: -1, num_outputs: 2 });
      let [gate, up] = halves;
      if (limit !== '') {
        gate = then.add('Min', [gate, limit], draft.fresh());
        const least = then.add('Neg', [limit], draft.fresh());
        up = then.add('Max', [then.add('Min', [up, limit], draft.fresh()), least], draft.fresh());
      }
      const active = then.add('QuickGelu', [gate], draft.fresh(), { alpha: { float: alpha } }, MICROSOFT);
      let inner = then.add('Mul', [active, up], draft.fresh());
      if (limit !== '') inner = then.add('Add', [inner, active], draft.fresh());
      const whole = product('down', [columns, rows], inner, draft.fresh());
      const part = then.add('Mul', [whole, share], draft.fresh());
      const total = then.add('Add', [made, part], draft.fresh());
      const its = then.add('Cast', [share], draft.fresh(), { to: ELEMENT_TYPES.bool });
      const port = (name: string): Port => ({ name, dtype: 'float32', shape: ['batch', 'tokens', columns] });
      const chosen = port(then.add('Where', [its, total, made], draft.fresh()));
      const kept = port(other.add('Identity', [made], draft.fresh()));
      made = draft.add('If', [taken[expert] ?? ''], result, {
        then_branch: { graph: then.branch(chosen) },
        else_branch: { graph: other.branch(kept) },
      });
    });
  }

  private making(): Omit<Making, 'draft' | 'sums' | 'matrices'> {
    const { provider, isFlat, locations } = this;
    return { provider, isFlat, locations };
  }

  /** Those cached after the step, counted back. */
  private positions({ inputs, output }: PositionsOperator): void {
    const [rows = ''] = inputs;
    this.places(rows, output);
  }

  /** The positions of the tokens of `rows`, (batch, tokens), counted back from `lengths`. */
  private places(rows: string, output: string, lengths = 'seqlens'): string {
    const { draft } = this;
    const one = (): string => draft.vector([1]);
    const tokens = draft.add('Shape', [rows], draft.fresh(), { end: 2, start: 1 });
    const first = draft.add('Sub', [one(), tokens], draft.fresh());
    const steps = draft.add('Range', [first, one(), one()], draft.fresh());
    const lasts = draft.add('Cast', [lengths], draft.fresh(), { to: ELEMENT_TYPES.int64 });
    const column = draft.add('Unsqueeze', [lasts, one()], draft.fresh());
    return draft.add('Add', [column, steps], output);
  }

  /** q and k, of so many heads each, turned by the positions of their tokens. */
  private turned(
    [q, k]: readonly [string, string],
    [heads, kvHeads]: readonly [number, number],
    table: number,
  ): [string, string] {
    const { draft } = this;
    const places = this.places('hidden', draft.fresh());
    const angles = 2 * (this.manifest.rotary[table]?.length ?? 0);
    const turn = (each: string, count: number): string =>
      draft.add(
        'RotaryEmbedding',
        [each, places, ...rotaryInputs(table)],
        draft.fresh(),
        { num_heads: count, rotary_embedding_dim: angles },
        MICROSOFT,
      );
    return [turn(q, heads), turn(k, kvHeads)];
  }

  /** Those of the longest conversation of the step. */
  private cached({ output }: CachedOperator): void {
    const { draft } = this;
    const count = draft.add('Cast', ['total'], draft.fresh(), { to: ELEMENT_TYPES.int64 });
    draft.add('Range', [draft.vector([0]), count, draft.vector([1])], output);
  }

  /** Cosines and sines of places that rows say, inside the table. */
  private rotary(unit: ManifestUnit, { inputs, output, sines, rotary }: RotaryOperator): void {
    const { draft } = this;
    if (rotary >= this.manifest.rotary.length) {
      throw wrongGraph(unit, `Rotary: rotary table ${rotary} does not fit`);
    }
    const [cos, sin] = rotaryInputs(rotary);
    const count = draft.add('Shape', [cos], draft.fresh(), { end: 1, start: 0 });
    const last = draft.add('Sub', [count, draft.vector([1])], draft.fresh());
    const least = draft.add('Max', [...inputs, draft.vector([0])], draft.fresh());
    const inside = draft.add('Min', [least, last], draft.fresh());
    draft.add('Gather', [cos, inside], output, { axis: 0 });
    draft.add('Gather', [sin, inside], sines, { axis: 0 });
  }

  private attention(unit: ManifestUnit, operator: AttentionOperator): void {
    const { draft } = this;
    const { inputs, output, heads, kvHeads, headSize, softcap, rotary, sinks, chunk } = operator;
    const pair = this.pairOf(unit, operator);
    const isPlain = sinks === '' && operator.bias === '' && chunk === 0;
    const isShared = inputs.length === 2;
    const isApart = pair.window !== null || !isPlain || isShared;
    if (this.provider === 'webgpu' && (isApart || softcap !== 0)) throw wrongGraph(unit, NOT_ON_GPU);
    const isFilled = pair.headSize !== headSize;
    const [packed = '', key = '', value = ''] = inputs;
    let operands = [packed, key, value].map((each) =>
      each !== '' && isFilled ? this.filledHeads(headSize, pair.headSize, each) : each,
    );
    let table = rotary;
    if (isShared) {
      const [q = '', k = ''] = operands;
      const [turnedQ, turnedK] = rotary < 0 ? [q, k] : this.turned([q, k], [heads, kvHeads], rotary);
      operands = [turnedQ, turnedK, turnedK];
      table = -1;
    }
    const isWindowed = pair.window !== null;
    const turning = table < 0 ? [] : [...rotaryInputs(table), ...(isWindowed ? [POSITION_IDS] : [])];
    const attributes: Record<string, Attribute> = {
      num_heads: heads,
      kv_num_heads: kvHeads,
      do_rotary: Number(table >= 0),
      rotary_interleaved: 0,
    };
    if (isFilled || operator.scale !== 0) attributes['scale'] = { float: operator.scale || headSize ** -0.5 };
    if (softcap !== 0) attributes['softcap'] = { float: softcap };
    if (pair.window !== null) attributes['local_window_size'] = pair.window;
    const gaps = isPlain ? [] : ['', '', ''].slice(turning.length);
    const bias = chunk === 0 ? operator.bias : this.unseenBefore(chunk);
    const last = sinks !== '' ? [bias, sinks] : isPlain ? [] : [bias];
    const attended = isFilled ? draft.fresh() : output;
    draft.add(
      'GroupQueryAttention',
      [
        ...operands,
        ...[pair.key, pair.value],
        ...(isWindowed ? [WINDOW_SEQLENS, WINDOW_TOTAL] : ['seqlens', 'total']),
        ...turning,
        ...[...gaps, ...last],
      ],
      [attended, ...outputsOf(pair)],
      attributes,
      MICROSOFT,
    );
    if (isFilled) this.cutHeads(headSize, pair.headSize, attended, output);
  }

  /**
   * What is added to scores (batch, 1, tokens, total) so that a token looks at its own chunk alone. Positions of the state
   * begin where the first ones were dropped.
   */
  private unseenBefore(chunk: number): string {
    const { draft } = this;
    const known = this.unseen.get(chunk);
    if (known !== undefined) return known;
    const passed = draft.add('Mod', [POSITION_IDS, draft.vector([chunk])], draft.fresh());
    const own = this.places('hidden', draft.fresh(), WINDOW_SEQLENS);
    const first = draft.add('Sub', [own, passed], draft.fresh());
    const count = draft.add('Cast', [WINDOW_TOTAL], draft.fresh(), { to: ELEMENT_TYPES.int64 });
    const places = draft.add('Range', [draft.vector([0]), count, draft.vector([1])], draft.fresh());
    const begun = draft.add('Unsqueeze', [first, draft.vector([1, 3])], draft.fresh());
    const outside = draft.add('Less', [places, begun], draft.fresh());
    const marks = draft.add('Cast', [outside], draft.fresh(), { to: ELEMENT_TYPES.float32 });
    const far = draft.add('Cast', [draft.vector([FAR])], draft.fresh(), { to: ELEMENT_TYPES.float32 });
    const made = draft.add('Mul', [marks, far], draft.fresh());
    this.unseen.set(chunk, made);
    return made;
  }

  /** Where it keeps keys and values. Raises CannotServe where its numbers do not fit them. */
  private pairOf(unit: ManifestUnit, operator: AttentionOperator): KvPair {
    const { inputs, heads, kvHeads, headSize, state, rotary, bias, chunk } = operator;
    const pair = unit.kv[state];
    const angles = rotary < 0 ? 0 : this.manifest.rotary[rotary]?.length;
    const size = kernelHeadSize(headSize);
    const fits =
      pair?.heads === kvHeads &&
      pair.headSize === size &&
      heads % kvHeads === 0 &&
      headSize % 2 === 0 &&
      angles !== undefined &&
      angles <= size / 2 &&
      (pair.window === null || bias === '') &&
      (inputs.length === 2) === (pair.key === pair.value) &&
      (pair.window === null || inputs.length !== 2) &&
      (chunk === 0 || chunk === pair.window);
    if (!fits) throw wrongGraph(unit, 'Attention that fits its state and its rotary table expected');
    return pair;
  }

  /** `source` (batch, tokens, heads * headSize) with zeros behind each half of a head: `size` values. */
  private filledHeads(headSize: number, size: number, source: string): string {
    const { draft } = this;
    const halves = this.halves(headSize, source);
    const pads = draft.vector([0, 0, 0, 0, 0, 0, 0, (size - headSize) / 2]);
    const padded = draft.add('Pad', [halves, pads], draft.fresh());
    return draft.add('Reshape', [padded, draft.vector([0, 0, -1])], draft.fresh());
  }

  /** `source` (batch, tokens, heads * size) without what filledHeads added. */
  private cutHeads(headSize: number, size: number, source: string, output: string): void {
    const { draft } = this;
    const halves = this.halves(size, source);
    const range = [[0], [headSize / 2], [-1]].map((values) => draft.vector(values));
    const cut = draft.add('Slice', [halves, ...range], draft.fresh());
    draft.add('Reshape', [cut, draft.vector([0, 0, -1])], output);
  }

  private halves(size: number, source: string): string {
    const { draft } = this;
    return draft.add('Reshape', [source, draft.vector([0, 0, -1, size / 2])], draft.fresh());
  }
}
