/* What a unit's graph says by operators of domain `shoal`, read and checked: peers put what they run in their place. */

import { ATTRIBUTE, NODE, textOf, wrongGraph } from './compose';
import { KINDS } from './graph_draft';
import type { Message } from './onnx_messages';
import { integerItem, integerOf } from './onnx_messages';
import { toHex } from '../wire/hex';

export const SHOAL = 'shoal';
const MAX_ROWS = 1 << 24;
const MAX_COLUMNS = 1 << 22;
const MAX_EXPERTS = 1024;
const MAX_HEADS = 1024;
const MAX_HEAD_SIZE = 1024;
const MAX_INDEX = 16; // of state and of rotary tables
const MAX_NUMBER = 1e6;
const ATTENTION_INPUTS = 5; // q, k, v, sinks, bias
const MAX_CHUNK = 1 << 24;

/** `x` times a stored matrix of (rows, columns), plus a bias where there is one. */
export interface LinearOperator {
  readonly kind: 'Linear';
  readonly inputs: readonly string[]; // x, and the bias
  readonly output: string;
  readonly weight: string;
  readonly rows: number;
  readonly columns: number;
}

/**
 * Attention over what is cached: of packed rows of q, k and v, or of those apart, or of q and k where values are the
 * keys. `rotary`: -1 for no table.
 */
export interface AttentionOperator {
  readonly kind: 'Attention';
  readonly inputs: readonly string[]; // one to three
  readonly sinks: string; // '': none
  readonly bias: string; // added to scores; '': none
  readonly output: string;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headSize: number;
  readonly state: number;
  readonly rotary: number;
  readonly scale: number; // 0: of the head's size
  readonly softcap: number; // 0: none
  readonly chunk: number; // a token looks at its own chunk of so many alone; 0: at all
}

/** Rows of a stored table of (rows, columns), by token. */
export interface EmbeddingOperator {
  readonly kind: 'Embedding';
  readonly inputs: readonly string[];
  readonly output: string;
  readonly weight: string;
  readonly rows: number;
  readonly columns: number;
}

/** How many tokens of its conversation stand before each token: int64 (batch, tokens). */
export interface PositionsOperator {
  readonly kind: 'Positions';
  readonly inputs: readonly string[];
  readonly output: string;
}

/** The positions of what is cached after the step: int64 (total). */
export interface CachedOperator {
  readonly kind: 'Cached';
  readonly inputs: readonly string[];
  readonly output: string;
}

/** Cosines and sines of a rotary table at places, int64 (batch, tokens). */
export interface RotaryOperator {
  readonly kind: 'Rotary';
  readonly inputs: readonly string[];
  readonly output: string; // the cosines
  readonly sines: string;
  readonly rotary: number;
}

/**
 * `base` plus what each of `count` experts makes of x, times its share of a token. Expert N is the matrices
 * "weight.N.gate_up" (2 rows, columns) and "weight.N.down" (columns, rows).
 */
export interface ExpertsOperator {
  readonly kind: 'Experts';
  readonly inputs: readonly string[]; // x, shares, base, and a limit
  readonly output: string;
  readonly weight: string;
  readonly count: number;
  readonly rows: number;
  readonly columns: number;
  readonly alpha: number; // 0: 1
}

export type AbstractOperator =
  | LinearOperator
  | AttentionOperator
  | EmbeddingOperator
  | PositionsOperator
  | CachedOperator
  | RotaryOperator
  | ExpertsOperator;

/** The operator of a node of domain `shoal`. Raises CannotServe. */
export function operatorOf(node: Message, unit: { readonly name: string }): AbstractOperator {
  const kind = textOf(node.bytes(NODE.operator)[0], unit);
  const inputs = node.bytes(NODE.inputs).map((name) => textOf(name, unit));
  const outputs = node.bytes(NODE.outputs).map((name) => textOf(name, unit));
  const output = outputs[0];
  const said = new Attributes(node, kind, unit);
  const has = (counts: readonly number[]): void => {
    const isRight = counts.includes(inputs.length) && !inputs.includes('') && outputs.length === 1;
    if (!isRight || output === undefined || output === '') {
      throw wrongGraph(unit, `${kind} with ${counts.join(' or ')} inputs and one output expected`);
    }
  };
  switch (kind) {
    case 'Linear': {
      has([1, 2]);
      const found = { kind, inputs, output: output ?? '', ...matrixOf(said) } as const;
      said.finish();
      return found;
    }
    case 'Attention': {
      if (inputs.length > ATTENTION_INPUTS || inputs.at(-1) === '') has([]);
      const [sinks = '', bias = ''] = inputs.splice(3);
      if (inputs[1] === '' && inputs[2] === '') inputs.length = 1;
      has([1, 2, 3]);
      const found = {
        kind,
        inputs,
        sinks,
        bias,
        output: output ?? '',
        heads: said.integer('heads', 1, MAX_HEADS),
        kvHeads: said.integer('kv_heads', 1, MAX_HEADS),
        headSize: said.integer('head_size', 2, MAX_HEAD_SIZE),
        state: said.integer('state', 0, MAX_INDEX),
        rotary: said.integer('rotary', -1, MAX_INDEX),
        scale: said.number('scale', MAX_NUMBER),
        softcap: said.number('softcap', MAX_NUMBER),
        chunk: said.optional('chunk', MAX_CHUNK),
      } as const;
      said.finish();
      return found;
    }
    case 'Embedding': {
      has([1]);
      const found = { kind, inputs, output: output ?? '', ...matrixOf(said) } as const;
      said.finish();
      return found;
    }
    case 'Positions': {
      has([1]);
      said.finish();
      return { kind, inputs, output: output ?? '' };
    }
    case 'Cached': {
      has([1]);
      said.finish();
      return { kind, inputs, output: output ?? '' };
    }
    case 'Rotary': {
      const sines = outputs.pop() ?? '';
      if (sines === '') throw wrongGraph(unit, 'Rotary with one input and two outputs expected');
      has([1]);
      const rotary = said.integer('rotary', 0, MAX_INDEX);
      said.finish();
      return { kind, inputs, output: output ?? '', sines, rotary };
    }
    case 'Experts': {
      has([3, 4]);
      const matrices = matrixOf(said, MAX_COLUMNS / 2);
      const count = said.integer('count', 1, MAX_EXPERTS);
      const alpha = said.number('alpha', MAX_NUMBER);
      said.finish();
      return { kind, inputs, output: output ?? '', ...matrices, count, alpha };
    }
    default:
      throw wrongGraph(
        unit,
        'of domain shoal Linear, Attention, Embedding, Positions, Cached, Rotary and Experts expected',
      );
  }
}

function matrixOf(said: Attributes, mostRows = MAX_ROWS): { weight: string; rows: number; columns: number } {
  return {
    weight: said.text('weight'),
    rows: said.integer('rows', 1, mostRows),
    columns: said.integer('columns', 1, MAX_COLUMNS),
  };
}

/** The attributes of one node, each read once. */
class Attributes {
  private readonly left = new Map<string, Message>();
  private readonly kind: string;
  private readonly unit: { readonly name: string };

  constructor(node: Message, kind: string, unit: { readonly name: string }) {
    this.kind = kind;
    this.unit = unit;
    for (const attribute of node.messages(NODE.attributes)) {
      const name = textOf(attribute.bytes(ATTRIBUTE.name)[0], unit);
      if (this.left.has(name)) throw this.wrong(name, 'given once');
      this.left.set(name, attribute);
    }
  }

  text(name: string): string {
    const found = textOf(this.take(name, KINDS.text)?.bytes(ATTRIBUTE.text)[0], this.unit);
    if (found === '') throw this.wrong(name, 'a name');
    return found;
  }

  integer(name: string, least: number, most: number): number {
    const item = this.take(name, KINDS.integer)?.bytes(ATTRIBUTE.integer)[0];
    const value = integerOf(item);
    // What does not fit 32 bits is another number than its low ones.
    const isWhole = item !== undefined && toHex(integerItem(value)) === toHex(item);
    if (!isWhole || value < least || value > most) {
      throw this.wrong(name, `a whole number from ${least} to ${most}`);
    }
    return value;
  }

  /** A whole number from 0 on; 0 where it is left out. */
  optional(name: string, most: number): number {
    return this.left.has(name) ? this.integer(name, 0, most) : 0;
  }

  /** From 0 on; 0 where it is left out. */
  number(name: string, most: number): number {
    const attribute = this.take(name, KINDS.float);
    if (attribute === null) return 0;
    const item = attribute.bytes(ATTRIBUTE.float)[0];
    const value = item?.length === 4 ? new DataView(item.buffer, item.byteOffset).getFloat32(0, true) : NaN;
    if (!(value >= 0 && value <= most)) throw this.wrong(name, `a number from 0 to ${most}`);
    return value;
  }

  /** Raises CannotServe where one is left. */
  finish(): void {
    for (const name of this.left.keys()) throw this.wrong(name, 'nothing of that name');
  }

  private take(name: string, kind: number): Message | null {
    const found = this.left.get(name);
    this.left.delete(name);
    if (found === undefined) return null;
    if (integerOf(found.bytes(ATTRIBUTE.kind)[0]) !== kind) throw this.wrong(name, 'another type');
    return found;
  }

  private wrong(name: string, expected: string): Error {
    return wrongGraph(this.unit, `${this.kind}, attribute ${name.slice(0, 64)}: ${expected} expected`);
  }
}
