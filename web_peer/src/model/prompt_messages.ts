/* What a page and the worker that reads its prompts tell each other. Pure. */

import type { CalendarDate, Message } from './chat_template';
import type { Text, TokenizerSource } from './tokenizer';

/** What is to be put into tokens. */
export type Order =
  | { readonly kind: 'chat'; readonly messages: readonly Message[]; readonly today: CalendarDate }
  | { readonly kind: 'plain'; readonly text: string };

/** `most`: characters that may be put into tokens. */
export type ToPromptWorker =
  { readonly kind: 'load'; readonly source: TokenizerSource } | (Order & { readonly most: number });

/** `long`: there were more characters than `most`. */
export type FromPromptWorker =
  | { readonly kind: 'tokens'; readonly tokens: Int32Array }
  | { readonly kind: 'long'; readonly characters: number }
  | { readonly kind: 'failed'; readonly text: string };

/** The tokens of an order. Raises TextError. */
export function read(text: Text, order: Order): number[] {
  return order.kind === 'chat' ? text.encodeChat(order.messages, order.today) : text.encode(order.text);
}
