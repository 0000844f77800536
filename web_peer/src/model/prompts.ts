/*
 * Prompts of people as tokens, without holding the page up: bounds first, then a budget (twin of peer/model/prompts.py).
 *
 * Edge. A prompt that cannot fit the context is refused by its length alone. A short one is put into tokens here; any
 * other in a worker, which ends when it takes too long.
 */

import { type CalendarDate, type Message, wordsOf } from './chat_template';
import { ContextOverflow, TextError, TextTooLong } from '../errors';
import { type FromPromptWorker, type Order, read, type ToPromptWorker } from './prompt_messages';
import type { Prompt, Text, TokenizerSource } from './tokenizer';

export const SHORT_CHARACTERS = 1500; // of what was given
export const SHORT_RENDERED = 3000; // of what is put into tokens
const SLOW_MS = 50; // of a short one: the template takes that long, so all go to the worker from then on
const BUDGET_MS = 30_000; // loading the tokenizer in the worker included

/** The part of a Worker that is used. */
export type PromptWorker = Pick<Worker, 'postMessage' | 'terminate' | 'onmessage' | 'onerror'>;

const started = (): PromptWorker =>
  new Worker(new URL('./prompt_worker.ts', import.meta.url), { type: 'module' });

/** The prompts of one model. */
export class Prompts {
  /** The tokenizer and chat template on this page, for what is short. */
  readonly text: Text;
  private readonly source: TokenizerSource;
  private readonly start: () => PromptWorker;
  private worker: PromptWorker | null = null;
  private last: Promise<unknown> = Promise.resolve();
  private isSlow = false;

  /** `source`: what `text` was made of. */
  constructor(source: TokenizerSource, text: Text, start: () => PromptWorker = started) {
    this.source = source;
    this.text = text;
    this.start = start;
  }

  /** A conversation, ending where the answer begins. Raises ContextOverflow, TextError, ChatTemplateError. */
  chat(messages: readonly Message[], context: number, today: CalendarDate): Promise<Prompt> {
    const characters = messages.reduce((sum, { content }) => sum + wordsOf(content, '').length, 0);
    return this.run(characters, context, { kind: 'chat', messages, today });
  }

  /** Text without a template. Raises ContextOverflow, TextError. */
  plain(text: string, context: number): Promise<Prompt> {
    return this.run(text.length, context, { kind: 'plain', text });
  }

  /** Ends the worker. */
  close(): void {
    this.worker?.terminate();
    this.worker = null;
  }

  private async run(characters: number, context: number, order: Order): Promise<Prompt> {
    const most = this.text.mostCharacters(context);
    try {
      if (characters > most) throw new TextTooLong(characters);
      if (characters <= SHORT_CHARACTERS && !this.isSlow) {
        const begun = performance.now();
        try {
          return this.text.within(Math.min(SHORT_RENDERED, most), () => read(this.text, order));
        } catch (error) {
          if (!(error instanceof TextTooLong)) throw error;
        } finally {
          this.isSlow = performance.now() - begun > SLOW_MS;
        }
      }
      const turn = this.last.then(() => this.inWorker({ ...order, most }));
      this.last = turn.catch(() => undefined);
      return await turn;
    } catch (error) {
      if (error instanceof TextTooLong) throw overflow(error.characters, context);
      throw error;
    }
  }

  private inWorker(order: ToPromptWorker): Promise<Prompt> {
    return new Promise((resolve, reject) => {
      const isNew = this.worker === null;
      const worker = (this.worker ??= this.start());
      const fail = (text: string): void => {
        this.close();
        reject(new TextError(`this prompt cannot be read: ${text}; ask with less text`));
      };
      const late = setTimeout(() => fail(`it takes more than ${BUDGET_MS / 1000} s`), BUDGET_MS);
      worker.onerror = (event) => {
        clearTimeout(late);
        fail(event.message || 'its worker broke off');
      };
      worker.onmessage = ({ data }: MessageEvent<FromPromptWorker>) => {
        clearTimeout(late);
        if (data.kind === 'tokens') resolve({ tokens: [...data.tokens], pictures: data.pictures });
        else if (data.kind === 'long') reject(new TextTooLong(data.characters));
        else reject(new TextError(data.text));
      };
      if (isNew) worker.postMessage({ kind: 'load', source: this.source, sight: this.text.sight });
      worker.postMessage(order);
    });
  }
}

function overflow(characters: number, context: number): ContextOverflow {
  return new ContextOverflow(
    `the prompt has ${characters} characters, more than any ${context} tokens can hold, which is the context here; ` +
      'shorten it',
  );
}
