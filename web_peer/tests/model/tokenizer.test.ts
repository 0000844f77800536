/* Text: the same tokens, the same streams, the same prompts as Python, and bounds that hold. */

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { ChatTemplate, type Message, plainChat } from '../../src/model/chat_template';
import { ChatTemplateError, TextError } from '../../src/errors';
import { MAX_STOP_STRINGS, StopStrings } from '../../src/model/stop_strings';
import { Text, type TokenizerSource } from '../../src/model/tokenizer';
import { vectors } from '../vectors';

interface Vectors {
  readonly turns: [string];
  readonly tokenizers: {
    name: string;
    chats: [string, number[]][];
    tokenizer: unknown;
    add_bos: boolean;
    vocab_size: number;
    encode: [string, number[]][];
    decode: [string, string][];
    streams: [number[], string[], string][];
  }[];
  readonly stops: {
    stops: string[];
    pieces: (string | [text: string, control: string])[];
    gives: [string, boolean][];
    flush: string;
  }[];
  readonly plain: { messages: Message[]; gives: string }[];
  readonly templates: {
    template: string;
    messages: Message[];
    today: [number, number, number];
    gives: string | null;
    error: string | null;
  }[];
}

const VECTORS = vectors('text') as Vectors;
const DAY = { year: 2026, month: 3, day: 4 };

function sourceOf(tokenizer: unknown, changes: Partial<TokenizerSource> = {}): TokenizerSource {
  const tokenizerJson = new TextEncoder().encode(JSON.stringify(tokenizer));
  return { tokenizerJson, chatTemplate: null, bosToken: 0, endTokens: [1], addBos: false, ...changes };
}

describe.each(VECTORS.tokenizers)('$name', (row) => {
  const { tokenizer, add_bos, vocab_size, encode, decode, streams, chats } = row;
  const text = new Text(sourceOf(tokenizer, { addBos: add_bos }));
  const chat = new Text(sourceOf(tokenizer, { addBos: add_bos, chatTemplate: VECTORS.turns[0] }));

  it.each(chats)('a message %j has no control token', (content, tokens) => {
    expect(chat.encodeChat([{ role: 'user', content }], DAY)).toEqual(tokens);
  });

  it('has as many tokens', () => {
    expect(text.vocabSize).toBe(vocab_size);
  });

  it.each(encode)('%j', (given, tokens) => {
    expect(text.encode(given)).toEqual(tokens);
  });

  it.each(decode)('%j and back', (given, shown) => {
    expect(text.decode(text.encode(given))).toBe(shown);
  });

  it.each(streams)('stream %j', (tokens, pushes, rest) => {
    const stream = text.stream();
    expect(tokens.map((token) => stream.push(token))).toEqual(pushes);
    expect(stream.flush()).toBe(rest);
  });
});

describe('chats', () => {
  const [{ tokenizer } = { tokenizer: null }] = VECTORS.tokenizers;

  it('begin with one begin-of-text token, also where the template writes its own', () => {
    for (const chatTemplate of ['{{ bos_token }}a', 'a']) {
      const tokens = new Text(sourceOf(tokenizer, { addBos: true, chatTemplate })).encodeChat([], DAY);
      expect(tokens.slice(0, 2).filter((token) => token === 0)).toHaveLength(1);
    }
  });

  it('refuse half a surrogate pair', () => {
    expect(() => new Text(sourceOf(tokenizer)).encode('x\ud83d')).toThrow(TextError);
  });

  it.each([['{'], ['{}'], ['null']])('tokenizer %s is a named error', (json) => {
    const source = { ...sourceOf(null), tokenizerJson: new TextEncoder().encode(json) };
    expect(() => new Text(source)).toThrow(TextError);
  });

  it('a decoder of another family is refused', () => {
    const changed = { ...(tokenizer as object), decoder: { type: 'WordPiece', prefix: '##', cleanup: true } };
    expect(() => new Text(sourceOf(changed))).toThrow('expected a tokenizer whose decoder is ByteLevel');
  });
});

describe('stop strings', () => {
  it.each(VECTORS.stops)('$stops in $pieces', ({ stops, pieces, gives, flush }) => {
    const watcher = new StopStrings(stops);
    const given = pieces.map((piece) => {
      const { shown, stopped } = typeof piece === 'string' ? watcher.push(piece) : watcher.push(...piece);
      return [shown, stopped];
    });
    expect(given).toEqual(gives);
    expect(watcher.flush()).toBe(flush);
  });

  it('cut alike in any pieces', () => {
    const words = fc.array(fc.string({ unit: fc.constantFrom('a', 'b'), minLength: 1, maxLength: 4 }), {
      maxLength: 4,
    });
    fc.assert(
      fc.property(words, fc.string({ unit: fc.constantFrom('a', 'b', 'c') }), (stops, text) => {
        const whole = new StopStrings(stops);
        const single = new StopStrings(stops);
        const first = whole.push(text);
        const shown = Array.from(text, (character) => single.push(character).shown).join('');
        expect(shown + single.flush()).toBe(first.shown + whole.flush());
      }),
    );
  });

  it.each([[['']], [['x'.repeat(257)]], [Array<string>(MAX_STOP_STRINGS + 1).fill('x')]])(
    '%j are refused',
    (stops) => {
      expect(() => new StopStrings(stops)).toThrow(TextError);
    },
  );
});

describe('chat templates', () => {
  it.each(VECTORS.templates)('$template', ({ template, messages, today, gives, error }) => {
    const render = (): string => {
      const [year, month, day] = today;
      return new ChatTemplate(template, '<s>', '</s>', 300_000).render(messages, { year, month, day });
    };
    if (gives !== null) expect(render()).toBe(gives);
    else if (error === 'ChatTemplateError') expect(render).toThrow(ChatTemplateError);
    else expect(render).toThrow(new ChatTemplateError(error ?? ''));
  });

  it.each(VECTORS.plain)('without one: $gives', ({ messages, gives }) => {
    expect(plainChat(messages)).toBe(gives);
  });

  it('the budget is fresh for every rendering, and a long conversation is within it', () => {
    const [{ template } = { template: '' }] = VECTORS.templates;
    const messages = Array.from({ length: 1000 }, () => ({ role: 'user', content: 'x'.repeat(1000) }));
    const compiled = new ChatTemplate(template, '<s>', '</s>');
    for (let turn = 0; turn < 3; turn++)
      expect(compiled.render(messages, DAY).length).toBeGreaterThan(1_000_000);
  });
});
