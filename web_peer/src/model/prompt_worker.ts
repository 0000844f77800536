/* The worker in which long prompts become tokens, so that the page stays free. Edge. */

import { textOf, TextTooLong } from '../errors';
import { type FromPromptWorker, type Order, read, type ToPromptWorker } from './prompt_messages';
import { Text } from './tokenizer';

const port = self as unknown as {
  postMessage(message: FromPromptWorker): void;
  onmessage: ((event: MessageEvent<ToPromptWorker>) => void) | null;
};

let text: Text | null = null;

port.onmessage = ({ data }) => {
  if (data.kind === 'load') text = new Text(data.source, data.sight);
  else port.postMessage(answerTo(data));
};

function answerTo(order: Order & { readonly most: number }): FromPromptWorker {
  const words = text;
  if (words === null) return { kind: 'failed', text: 'the tokenizer is not loaded' };
  try {
    const { tokens, pictures } = words.within(order.most, () => read(words, order));
    return { kind: 'tokens', tokens: Int32Array.from(tokens), pictures };
  } catch (error) {
    if (error instanceof TextTooLong) return { kind: 'long', characters: error.characters };
    return { kind: 'failed', text: textOf(error) };
  }
}
