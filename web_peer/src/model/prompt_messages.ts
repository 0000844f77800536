/* What a page and the worker that reads its prompts tell each other. Pure. */

import type { CalendarDate, Message } from './chat_template';
import type { Sight } from '../planner/manifest';
import type { Prompt, Text, TokenizerSource } from './tokenizer';

/** What is to be put into tokens. */
export type Order =
  | { readonly kind: 'chat'; readonly messages: readonly Message[]; readonly today: CalendarDate }
  | { readonly kind: 'plain'; readonly text: string };

/** `most`: characters that may be put into tokens. */
export type ToPromptWorker =
  | { readonly kind: 'load'; readonly source: TokenizerSource; readonly sight: Sight | null }
  | (Order & { readonly most: number });

/** `long`: there were more characters than `most`. */
export type FromPromptWorker =
  | { readonly kind: 'tokens'; readonly tokens: Int32Array; readonly pictures: readonly number[] }
  | { readonly kind: 'long'; readonly characters: number }
  | { readonly kind: 'failed'; readonly text: string };

/** The tokens of an order. Raises TextError. */
export function read(text: Text, order: Order): Prompt {
  if (order.kind === 'plain') return { tokens: text.encode(order.text), pictures: [] };
  const { messages, today } = order;
  return text.withPictures(text.encodeChat(messages, today), messages.reduce(picturesIn, 0));
}

function picturesIn(sum: number, { content }: Message): number {
  return typeof content === 'string' ? sum : sum + content.filter(({ type }) => type === 'image').length;
}
