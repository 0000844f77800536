/* Chat templates in a tab give what transformers gives, or are refused: the vectors of tests/vectors/templates_by_transformers.py. */

import { describe, expect, it } from 'vitest';

import { ChatTemplate, type Message } from '../../src/model/chat_template';
import { ChatTemplateError } from '../../src/errors';
import { vectors } from '../vectors';

interface Vectors {
  readonly today: readonly [number, number, number];
  readonly messages: readonly Message[];
  readonly rows: readonly (readonly [string, string | null])[];
  readonly refused: readonly (readonly [string, string | null])[];
}

const VECTORS = vectors('templates') as Vectors;
const [year, month, day] = VECTORS.today;

const render = (source: string): string =>
  new ChatTemplate(source, '<s>', '</s>').render(VECTORS.messages, { year, month, day });

describe('chat templates', () => {
  it.each(VECTORS.rows)('%j', (source, wanted) => {
    if (wanted === null) expect(() => render(source)).toThrow(ChatTemplateError);
    else expect(render(source)).toBe(wanted);
  });

  it.each(VECTORS.refused)('refuse what they cannot do alike: %j', (source) => {
    expect(() => render(source)).toThrow(ChatTemplateError);
  });
});
