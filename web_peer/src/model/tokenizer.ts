/* Decides how words become tokens and tokens become words: prompts in, streamed text out. */

import { type AddedToken, Tokenizer } from '@huggingface/tokenizers';

import {
  type CalendarDate,
  ChatTemplate,
  type Content,
  type Message,
  plainChat,
  wordsOf,
} from './chat_template';
import { ControlTokens, type Written, freeMark, unmarked } from './control_tokens';
import { ChatTemplateError, TextError, TextTooLong } from '../errors';
import type { Sight } from '../planner/manifest';

/** `tokenizerJson`: a Hugging Face tokenizer.json. `endTokens`: ids that end an answer (EOS, end of turn). */
export interface TokenizerSource {
  readonly tokenizerJson: Uint8Array;
  readonly chatTemplate: string | null; // Jinja source, as in the model file
  readonly bosToken: number | null;
  readonly endTokens: readonly number[];
  readonly addBos: boolean;
}

/** Token ids, and where the rows of each picture begin. */
export interface Prompt {
  readonly tokens: readonly number[];
  readonly pictures: readonly number[];
}

/** A model's tokenizer, chat template and special tokens. */
export class Text {
  readonly endTokens: readonly number[];
  readonly vocabSize: number;
  private readonly tokenizer: Tokenizer;
  private readonly pieces: Pieces;
  private readonly control: ControlTokens;
  private readonly bos: number | null;
  private readonly template: ChatTemplate | null;
  private readonly longest: number;
  private most = Infinity; // characters that may be put into tokens now
  private readonly showsParts: boolean;
  readonly sight: Sight | null;

  /** `sight`: how the model is given pictures; null: it sees none. */
  constructor(source: TokenizerSource, sight: Sight | null = null) {
    this.sight = sight;
    let rules: Rules;
    try {
      rules = withControl(JSON.parse(new TextDecoder().decode(source.tokenizerJson)) as Rules, source, sight);
      this.tokenizer = new Tokenizer({ ...rules, pre_tokenizer: withAllDigits(rules.pre_tokenizer) }, {});
    } catch (problem) {
      throw new TextError(`the model's tokenizer.json cannot be read: ${line(problem)}`);
    }
    this.pieces = new Pieces(this.tokenizer, rules);
    const special = (rules.added_tokens ?? []).filter((each) => each.special === true);
    this.control = new ControlTokens(new Map(special.map(({ id }) => [this.nameOf(id), id])));
    this.vocabSize = this.tokenizer.get_vocab(true).size;
    this.longest = longestOf(rules);
    this.endTokens = source.endTokens;
    this.bos = source.addBos ? source.bosToken : null;
    this.template =
      source.chatTemplate === null
        ? null
        : new ChatTemplate(
            source.chatTemplate,
            this.nameOf(source.bosToken),
            this.nameOf(source.endTokens[0] ?? null),
          );
    // Templates of models that see read the parts of a content, where those of others read a text.
    this.showsParts = sight !== null && source.chatTemplate?.includes('image') === true;
  }

  /** How many characters a prompt of `context` tokens has at most: more of them need not be counted. */
  mostCharacters(context: number): number {
    return context * this.longest;
  }

  /** What `work` returns; in it TextTooLong is raised for a text of more `characters`. */
  within<T>(characters: number, work: () => T): T {
    this.most = characters;
    try {
      return work();
    } finally {
      this.most = Infinity;
    }
  }

  /** Tokens of plain text, with the begin-of-text token where the model wants one. */
  encode(text: string): number[] {
    return this.withBos(this.idsOf(text));
  }

  /**
   * Tokens of a conversation, ending where the assistant's answer begins.
   *
   * Through the model's chat template; without one, ChatML if the vocabulary has its marks, else plain
   * `Role: words` paragraphs. ChatTemplateError when the template fails or refuses the messages. Control tokens are
   * those of the template: what a message spells is words.
   */
  encodeChat(messages: readonly Message[], today: CalendarDate): number[] {
    const told = messages.map(({ content }) => this.ofParts(content));
    const mark = this.control.markFor(told);
    const words = this.control.marked(told, mark);
    const turns = messages.map((each, at) => ({ ...each, content: this.spelled(words[at] ?? '') }));
    const { text, marks } = unmarked(this.renderChat(turns, today), mark);
    const written = this.control.written(text, marks);
    return this.withBos(written === null ? this.idsOf(text) : this.idsOfWords(text, written));
  }

  /**
   * The prompt with as many tokens in the place of each of `count` pictures as it has rows, and where the rows of each
   * begin. Raises ChatTemplateError where the template has not shown them all.
   */
  withPictures(prompt: readonly number[], count: number): Prompt {
    const { sight } = this;
    if (sight === null || count === 0) return { tokens: prompt, pictures: [] };
    const tokens: number[] = [];
    const pictures: number[] = [];
    for (const token of prompt) {
      if (token !== sight.token) {
        tokens.push(token);
        continue;
      }
      pictures.push(tokens.length + sight.before.length);
      const places = Array.from({ length: sight.positions }, () => token);
      tokens.push(...sight.before, ...places, ...sight.behind);
    }
    if (pictures.length !== count) {
      throw new ChatTemplateError(
        `the model's chat template has shown ${pictures.length} of ${count} pictures: put them into the question`,
      );
    }
    return { tokens, pictures };
  }

  /** A content as a list of parts, where the template reads these. */
  private ofParts(content: Content): Content {
    return this.showsParts && typeof content === 'string' ? [{ type: 'text', text: content }] : content;
  }

  /** A content as text, where the template reads that: a picture is its place holder on a line. */
  private spelled(content: Content): Content {
    return this.showsParts ? content : wordsOf(content, `${this.nameOf(this.sight?.token ?? null)}\n`);
  }

  /** The prompt text that encodeChat puts into tokens. */
  renderChat(messages: readonly Message[], today: CalendarDate): string {
    if (this.template !== null) return this.template.render(messages, today);
    const marks = ['<|im_start|>', '<|im_end|>'];
    if (marks.every((mark) => this.tokenizer.token_to_id(mark) !== undefined)) {
      const turns = messages.map(
        ({ role, content }) => `<|im_start|>${role}\n${wordsOf(content, '')}<|im_end|>\n`,
      );
      return `${turns.join('')}<|im_start|>assistant\n`;
    }
    return plainChat(messages);
  }

  /** The text of `tokens`; special tokens are left out. Equals what a stream of them shows. */
  decode(tokens: readonly number[]): string {
    const stream = this.stream();
    return tokens.map((token) => stream.push(token)).join('') + stream.flush();
  }

  /** A detokenizer for one answer. */
  stream(): StreamingDetokenizer {
    return new StreamingDetokenizer(this.pieces);
  }

  /** The text that stands for a control token; "" for every other token. */
  controlName(token: number): string {
    return this.pieces.bytesOf(token) === null ? this.nameOf(token) : '';
  }

  private idsOf(text: string, tokenizer = this.tokenizer): number[] {
    if (text.length > this.most) throw new TextTooLong(text.length);
    if (/\p{Surrogate}/u.test(text)) {
      throw new TextError('text must be Unicode characters, got half a surrogate pair');
    }
    return text === '' ? [] : tokenizer.encode(text, { add_special_tokens: false }).ids;
  }

  /**
   * Tokens of text whose control tokens are those of `written` alone.
   *
   * A tokenizer for which control tokens are words reads the text with a fence in the place of each of these: cuts and
   * spaces around them stay as they are.
   */
  private idsOfWords(text: string, written: readonly Written[]): number[] {
    const fence = freeMark(text);
    const fenced = (token: number): string => `${fence}${token}${fence}`;
    const tokenizer = withoutControl(
      this.tokenizer,
      new Map(written.map(({ token }) => [token, fenced(token)])),
    );
    let said = '';
    let at = 0;
    for (const each of written) {
      said += text.slice(at, each.start) + fenced(each.token);
      at = each.stop;
    }
    return this.idsOf(said + text.slice(at), tokenizer);
  }

  /** Exactly one begin-of-text token, also where the template writes its own. */
  private withBos(ids: number[]): number[] {
    return this.bos === null || ids[0] === this.bos ? ids : [this.bos, ...ids];
  }

  private nameOf(token: number | null): string {
    return token === null ? '' : (this.tokenizer.id_to_token(token) ?? '');
  }
}

/**
 * Text of one answer, token by token, at a cost that does not grow with the answer.
 *
 * Never shows half a character: bytes wait until they make one, and bytes that never can become U+FFFD.
 */
export class StreamingDetokenizer {
  private readonly pieces: Pieces;
  private readonly utf8 = new TextDecoder('utf-8', { ignoreBOM: true });
  private first = true; // no token that carries bytes has come yet
  private strip: number;

  constructor(pieces: Pieces) {
    this.pieces = pieces;
    this.strip = pieces.stripStart;
  }

  /** The text that `token` completes; empty while a character is incomplete, and for special tokens. */
  push(token: number): string {
    let piece = this.pieces.bytesOf(token);
    if (piece === null) return '';
    if (this.first && this.pieces.dropsFirstMark) piece = this.pieces.withoutMarks(token);
    this.first = false;
    return this.stripped(this.utf8.decode(piece, { stream: true }));
  }

  /** What is left at the end: U+FFFD for a character that never completed. */
  flush(): string {
    return this.stripped(this.utf8.decode());
  }

  private stripped(text: string): string {
    let shown = text;
    while (this.strip > 0 && shown !== '') {
      if (shown.startsWith(' ')) {
        shown = shown.slice(1);
        this.strip -= 1;
      } else this.strip = 0;
    }
    return shown;
  }
}

/** The parts of tokenizer.json that are read here; each is checked where it is used. */
interface Rules {
  readonly model?: {
    readonly vocab?: Readonly<Record<string, number>> | readonly (readonly [string, number])[];
  };
  readonly added_tokens?: readonly Added[] | null;
  readonly decoder?: Rule | null;
  readonly pre_tokenizer?: Rule | null;
}

interface Added {
  readonly id: number;
  readonly content: string;
  readonly special?: boolean;
}

interface Rule {
  readonly type?: unknown;
  readonly decoders?: readonly Rule[];
  readonly pretokenizers?: readonly Rule[];
  readonly individual_digits?: unknown;
  readonly pattern?: { readonly String?: unknown; readonly Regex?: unknown };
  readonly behavior?: unknown;
  readonly invert?: unknown;
  readonly content?: unknown;
  readonly start?: unknown;
  readonly stop?: unknown;
  readonly replacement?: unknown;
  readonly prepend_scheme?: unknown;
}

/**
 * The rules with the tokens that begin a text, end an answer or hold a picture's place as control tokens, whatever the
 * file says.
 */
function withControl(rules: Rules, { bosToken, endTokens }: TokenizerSource, sight: Sight | null): Rules {
  const known = new Set([bosToken, ...endTokens, ...(sight === null ? [] : [sight.token])]);
  const added = rules.added_tokens?.map((each) => (known.has(each.id) ? { ...each, special: true } : each));
  return added === undefined ? rules : { ...rules, added_tokens: added };
}

/** What the library's Tokenizer keeps of added tokens. */
interface Cutting {
  readonly splitter_unnormalized: object;
  readonly splitter_normalized: object;
  readonly added_tokens_map: ReadonlyMap<string, AddedToken>;
}

/**
 * The same tokenizer, which shares the vocabulary, for text in which control tokens are words.
 *
 * `fences`: names that stand for control tokens in that text, each cut out as its token would be.
 */
function withoutControl(tokenizer: Tokenizer, fences: ReadonlyMap<number, string>): Tokenizer {
  const { added_tokens_map: known, ...cutting } = tokenizer as unknown as Cutting;
  const added = new Map<string, AddedToken>();
  const plain: string[] = [];
  const normalized: string[] = [];
  for (const [text, token] of known) {
    const name = token.special ? fences.get(token.id) : text;
    if (name === undefined) continue;
    added.set(name, token);
    (token.normalized && tokenizer.normalizer !== null ? normalized : plain).push(name);
  }
  const Splitter = cutting.splitter_normalized.constructor as new (names: readonly string[]) => object;
  const words: Cutting = {
    splitter_unnormalized: new Splitter(plain),
    splitter_normalized: new Splitter(normalized),
    added_tokens_map: added,
  };
  return Object.assign(Object.create(Tokenizer.prototype) as Tokenizer, tokenizer, words);
}

/**
 * The same rules with Digits spelled as a Split: digits are all that Unicode calls a number, such as ² and ٣, as in the
 * Rust library; the JavaScript one takes 0 to 9 alone.
 */
function withAllDigits(rule: Rule | null | undefined): Rule | null {
  if (rule === null || rule === undefined) return null;
  if (rule.pretokenizers !== undefined) {
    return { ...rule, pretokenizers: rule.pretokenizers.map((each) => withAllDigits(each) ?? each) };
  }
  if (rule.type !== 'Digits') return rule;
  const Regex = rule.individual_digits === true ? '\\p{N}' : '\\p{N}+';
  return { type: 'Split', pattern: { Regex }, behavior: 'Isolated', invert: false };
}

/** Characters of the longest token. Those of a byte-level vocabulary stand for bytes, of which a text has more. */
function longestOf({ model, added_tokens: added }: Rules): number {
  const vocab = model?.vocab ?? {};
  let longest = 1;
  if (Array.isArray(vocab)) {
    for (const [piece] of vocab as readonly (readonly [string, number])[])
      longest = Math.max(longest, piece.length);
  } else for (const name of Object.keys(vocab)) longest = Math.max(longest, name.length);
  for (const { content } of added ?? [])
    longest = Math.max(longest, (content as string | undefined)?.length ?? 0);
  return longest;
}

/** The bytes of each token, by the rules of tokenizer.json's decoder: byte-level BPE or SentencePiece. */
class Pieces {
  stripStart = 0;
  dropsFirstMark = false;
  private readonly tokenizer: Tokenizer;
  private readonly special: ReadonlySet<number>;
  private readonly cache = new Map<number, Uint8Array | null>();
  private byteLevel = false;
  private byteFallback = false;
  private readonly spaces: [old: string, made: string][] = [];

  constructor(tokenizer: Tokenizer, rules: Rules) {
    this.tokenizer = tokenizer;
    const added = rules.added_tokens ?? [];
    this.special = new Set(added.filter(({ special }) => special === true).map(({ id }) => id));
    const decoder = rules.decoder ?? { type: 'missing' };
    for (const part of decoder.type === 'Sequence' ? (decoder.decoders ?? []) : [decoder]) this.addRule(part);
  }

  /** UTF-8 bytes of `token`, maybe part of a character; null for special and unknown tokens. */
  bytesOf(token: number): Uint8Array | null {
    let bytes = this.cache.get(token);
    if (bytes === undefined) {
      bytes = this.lookUp(token);
      this.cache.set(token, bytes);
    }
    return bytes;
  }

  /** The first token of a Metaspace text: its word-start marks are not spaces. */
  withoutMarks(token: number): Uint8Array {
    let name = this.tokenizer.id_to_token(token) ?? '';
    for (const [mark] of this.spaces) name = name.replaceAll(mark, '');
    return UTF8.encode(name);
  }

  private addRule(part: Rule): void {
    const { type, content } = part;
    if (type === 'ByteLevel') this.byteLevel = true;
    else if (type === 'ByteFallback') this.byteFallback = true;
    else if (type === 'Fuse') return;
    else if (type === 'Replace' && typeof part.pattern?.String === 'string' && typeof content === 'string') {
      this.spaces.push([part.pattern.String, content]);
    } else if (type === 'Strip' && content === ' ' && typeof part.start === 'number' && part.stop === 0) {
      this.stripStart = part.start;
    } else if (type === 'Metaspace' && typeof part.replacement === 'string') {
      this.spaces.push([part.replacement, ' ']);
      this.dropsFirstMark = (part.prepend_scheme ?? 'always') !== 'never';
    } else {
      throw new TextError(
        'expected a tokenizer whose decoder is ByteLevel, or made of Metaspace, Replace, ' +
          `ByteFallback, Fuse and Strip; got ${JSON.stringify(type)}`,
      );
    }
  }

  private lookUp(token: number): Uint8Array | null {
    if (this.special.has(token)) return null;
    let name = this.tokenizer.id_to_token(token);
    if (name === undefined) return null;
    if (this.byteLevel) {
      const values = Array.from(name, (character) => BYTE_OF.get(character));
      return values.includes(undefined) ? UTF8.encode(name) : Uint8Array.from(values as number[]);
    }
    const fallback = this.byteFallback ? /^<0x([0-9A-Fa-f]{2})>$/.exec(name) : null;
    if (fallback !== null) return Uint8Array.of(Number.parseInt(fallback[1] ?? '', 16));
    for (const [old, made] of this.spaces) name = name.replaceAll(old, made);
    return UTF8.encode(name);
  }
}

const UTF8 = new TextEncoder();
const BYTE_OF = byteCharacters();

/** GPT-2's spelling of bytes as characters: printable ones are themselves, the rest U+0100 and on. */
function byteCharacters(): ReadonlyMap<string, number> {
  const spelled = new Map<string, number>();
  let hidden = 0;
  for (let byte = 0; byte < 256; byte++) {
    const isShown = (byte >= 0x21 && byte < 0x7f) || (byte >= 0xa1 && byte !== 0xad);
    spelled.set(String.fromCharCode(isShown ? byte : 256 + hidden++), byte);
  }
  return spelled;
}

function line(problem: unknown): string {
  const words = problem instanceof Error ? problem.message : String(problem);
  return words.replace(/\s+/g, ' ').trim().slice(0, 300);
}
