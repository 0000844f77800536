/*
 * Texts as inputs of a model that is a graph: tokens, a mask of them, types (twin of peer/model/text_inputs.py). As
 * docs/format.md says it.
 */

import { Tokenizer } from '@huggingface/tokenizers';

import type { ValueArray } from '../dataflow/value_codec';
import { BadCommand, CannotServe, textOf } from '../errors';
import { type GraphManifest, type TextInputs, textInputsOf, type Value } from '../planner/graph_manifest';

const CHARACTERS_PER_TOKEN = 128; // a text with more of them is refused before it is cut into tokens
const MAX_TEXTS = 4096; // of one item

interface Rules {
  readonly added_tokens?: readonly { readonly special?: boolean }[];
}

/** Of a model that says how. */
export class TextReader {
  private readonly name: string;
  private readonly text: TextInputs;
  private readonly values: ReadonlyMap<string, Value>;
  private readonly tokenizer: Tokenizer;

  /** `tokenizer`: the bytes of its tokenizer.json. Raises CannotServe. */
  constructor(manifest: GraphManifest, tokenizer: Uint8Array) {
    if (manifest.text === null) {
      throw new CannotServe(`${manifest.name} does not say how texts become its inputs`);
    }
    this.name = manifest.name;
    this.text = manifest.text;
    this.values = new Map(manifest.values.map((value) => [value.name, value]));
    try {
      const rules = JSON.parse(new TextDecoder().decode(tokenizer)) as Rules;
      // A text that spells [SEP] has these words; the marks at its ends are added by their ids.
      const added = (rules.added_tokens ?? []).filter(({ special }) => special !== true);
      this.tokenizer = new Tokenizer({ ...rules, added_tokens: added, truncation: null, padding: null }, {});
    } catch (error) {
      throw new CannotServe(`the tokenizer of ${this.name} cannot be read: ${textOf(error).slice(0, 200)}`);
    }
  }

  /** The inputs, a row for each text. Raises BadCommand for texts that are too long or too many. */
  arrays(texts: readonly string[]): Map<string, ValueArray> {
    if (texts.length < 1 || texts.length > MAX_TEXTS) {
      throw new BadCommand(`expected 1 to ${MAX_TEXTS} texts, one a line, got ${texts.length}`);
    }
    const rows = texts.map((text, place) => this.idsOf(place + 1, text));
    const axis = this.values.get(this.text.tokens)?.shape[1];
    const wide = typeof axis === 'number' ? axis : Math.max(...rows.map((row) => row.length));
    const { tokens, mask, types, pad } = this.text;
    const made = new Map<string, (row: readonly number[], at: number) => number>([
      [tokens, (row, at) => row[at] ?? pad],
    ]);
    if (mask !== null) made.set(mask, (row, at) => (at < row.length ? 1 : 0));
    if (types !== null) made.set(types, () => 0);
    return new Map(
      textInputsOf(this.text).map((name) => {
        const of = made.get(name) ?? (() => 0);
        const numbers = rows.flatMap((row) => Array.from({ length: wide }, (_, at) => of(row, at)));
        return [name, { shape: [rows.length, wide], data: this.bytesOf(name, numbers) }];
      }),
    );
  }

  private bytesOf(name: string, numbers: readonly number[]): Uint8Array {
    switch (this.values.get(name)?.dtype) {
      case 'int64':
        return new Uint8Array(BigInt64Array.from(numbers, BigInt).buffer);
      case 'int32':
        return new Uint8Array(Int32Array.from(numbers).buffer);
      default:
        return new Uint8Array(Float32Array.from(numbers).buffer);
    }
  }

  private idsOf(place: number, text: string): readonly number[] {
    const most = this.text.longest;
    const characters = Array.from(text).length;
    if (characters > CHARACTERS_PER_TOKEN * most) {
      throw new BadCommand(
        `text ${place}: ${characters} characters, and ${this.name} takes ${most} tokens of a text`,
      );
    }
    const { ids } = this.tokenizer.encode(text);
    if (ids.length > most) {
      throw new BadCommand(`text ${place}: ${ids.length} tokens, and ${this.name} takes ${most} of a text`);
    }
    if (ids.length === 0) throw new BadCommand(`text ${place}: ${this.name} makes no token of it`);
    return ids;
  }
}
