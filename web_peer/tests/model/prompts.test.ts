/* Prompts in a tab: what is long never becomes tokens on the page, and what cannot fit is not looked at. */

import { describe, expect, it, vi } from 'vitest';

import { ContextOverflow, TextError } from '../../src/errors';
import { type PromptWorker, Prompts, SHORT_CHARACTERS } from '../../src/model/prompts';
import { type FromPromptWorker, read, type ToPromptWorker } from '../../src/model/prompt_messages';
import { Text, type TokenizerSource } from '../../src/model/tokenizer';
import { vectors } from '../vectors';

const { tokenizers } = vectors('text') as { readonly tokenizers: readonly { readonly tokenizer: unknown }[] };
const SOURCE: TokenizerSource = {
  tokenizerJson: new TextEncoder().encode(JSON.stringify(tokenizers[0]?.tokenizer)),
  chatTemplate: null,
  bosToken: 0,
  endTokens: [1],
  addBos: false,
};
const CONTEXT = 4096;
const said = (content: string) => [{ role: 'user', content }];

/** A worker that answers when it is told to. */
class Played implements PromptWorker {
  onmessage: Worker['onmessage'] = null;
  onerror: Worker['onerror'] = null;
  readonly orders: ToPromptWorker[] = [];
  isOver = false;

  postMessage(order: ToPromptWorker): void {
    this.orders.push(order);
  }

  terminate(): void {
    this.isOver = true;
  }

  answer(data: FromPromptWorker): void {
    this.onmessage?.call(this as unknown as Worker, { data } as MessageEvent);
  }
}

function setUp() {
  const workers: Played[] = [];
  const text = new Text(SOURCE);
  const encode = vi.spyOn(text, 'encodeChat');
  const start = (): PromptWorker => {
    const worker = new Played();
    workers.push(worker);
    return worker;
  };
  return { workers, text, encode, prompts: new Prompts(SOURCE, text, start) };
}

const DAY = { year: 2026, month: 3, day: 4 };

describe('Prompts', () => {
  it('reads a short prompt on the page, like the worker would', async () => {
    const { prompts, text, workers } = setUp();
    const order = { kind: 'chat', messages: said('Hi there'), today: DAY } as const;
    expect(await prompts.chat(order.messages, CONTEXT, DAY)).toEqual(read(text, order));
    expect(workers).toEqual([]);
  });

  it('refuses by length alone what no context can hold', async () => {
    const { prompts, encode, workers } = setUp();
    await expect(prompts.chat(said('1'.repeat(4_000_000)), 16, DAY)).rejects.toThrow(ContextOverflow);
    await expect(prompts.plain('1'.repeat(4_000_000), 16)).rejects.toThrow(ContextOverflow);
    expect(encode).not.toHaveBeenCalled();
    expect(workers).toEqual([]);
  });

  it('gives a long one to a worker, one after the other', async () => {
    const { prompts, encode, workers } = setUp();
    const long = said('a'.repeat(SHORT_CHARACTERS + 1));
    const asked = [prompts.chat(long, CONTEXT, DAY), prompts.chat(long, CONTEXT, DAY)];
    await vi.waitFor(() => expect(workers[0]?.orders.map(({ kind }) => kind)).toEqual(['load', 'chat']));
    workers[0]?.answer({ kind: 'tokens', tokens: Int32Array.of(5, 6), pictures: [] });
    expect(await asked[0]).toEqual({ tokens: [5, 6], pictures: [] });
    await vi.waitFor(() => expect(workers[0]?.orders).toHaveLength(3));
    workers[0]?.answer({ kind: 'long', characters: 9 });
    await expect(asked[1]).rejects.toThrow(ContextOverflow);
    expect([encode.mock.calls.length, workers.length]).toEqual([0, 1]);
  });

  it('ends a worker that takes too long, and begins anew', async () => {
    vi.useFakeTimers();
    try {
      const { prompts, workers } = setUp();
      const long = 'a'.repeat(SHORT_CHARACTERS + 1);
      const asked = expect(prompts.plain(long, CONTEXT)).rejects.toThrow(TextError);
      await vi.advanceTimersByTimeAsync(31_000);
      await asked;
      const again = prompts.plain(long, CONTEXT);
      await vi.advanceTimersByTimeAsync(0);
      workers[1]?.answer({ kind: 'tokens', tokens: Int32Array.of(7), pictures: [2] });
      expect(await again).toEqual({ tokens: [7], pictures: [2] });
      expect(workers[0]?.isOver).toBe(true);
    } finally {
      vi.useRealTimers();
    }
  });
});
