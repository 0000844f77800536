/* One answer while a tab makes it: how much of it the log gets at once, and the day of a question. */

import { afterEach, beforeEach, expect, it, test, vi } from 'vitest';

import { Making, promptFor } from '../../src/conversation/answer_in_progress';
import { markedText } from '../../src/conversation/picture_marks';
import { dayOf } from '../../src/origin/answer_stream';
import type { Conversation as Session, Delta, Finished } from '../../src/origin/answer_stream';
import { MAX_MESSAGE_BYTES, type Message } from '../../src/state/generated/commands';
import { utf8Bytes } from '../../src/wire/json_codec';

beforeEach(() => vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

async function made(...pieces: string[]): Promise<Making> {
  const session: Pick<Session, 'onWait'> = { onWait: () => undefined };
  const making = new Making('c', session as Session, []);
  const given = (async function* (): AsyncGenerator<Delta | Finished, void> {
    for (const [token, text] of pieces.entries()) yield { kind: 'delta', text, token };
  })();
  await making.run(
    given,
    () => undefined,
    () => undefined,
  );
  vi.advanceTimersByTime(3000);
  return making;
}

/** What the log gets, call by call, until it has all of it. */
function logged(making: Making): [number, number][] {
  const found: [number, number][] = [];
  let known = { tokens: 0, text: '' };
  for (;;) {
    const due = making.due(known as Message);
    if (due === null) return found;
    found.push([due.tokens, due.text.length]);
    known = { tokens: due.tokens, text: known.text + due.text };
    vi.advanceTimersByTime(3000);
  }
}

it.each([
  ['short pieces go at once', ['one', ' two', ' three'], [[3, 13]]],
  [
    'no command has more than 16,384 characters',
    ['x'.repeat(10_000), 'y'.repeat(6384), 'z', 'w'.repeat(9000), 'v'.repeat(9000)],
    [
      [2, 16_384],
      [4, 9001],
      [5, 9000],
    ],
  ],
  [
    'a token that is longer goes alone',
    ['x', 'y'.repeat(20_000), 'z'],
    [
      [1, 1],
      [2, 20_000],
      [3, 1],
    ],
  ],
])('%s', async (_, pieces, wanted) => {
  expect(logged(await made(...pieces))).toEqual(wanted);
});

it('words of any language fit into a command', async () => {
  const making = await made(...Array.from({ length: 40 }, () => '語'.repeat(1000)));
  const due = making.due({ tokens: 0, text: '' } as Message);
  expect(utf8Bytes(due?.text ?? '')).toBeLessThanOrEqual(MAX_MESSAGE_BYTES);
});

it.each([
  [0, [1970, 1, 1]],
  [1_800_000_000_000, [2027, 1, 15]],
  [253_402_300_799_999, [9999, 12, 31]],
  [253_402_300_800_000, [9999, 12, 31]],
  [Number.MAX_SAFE_INTEGER, [9999, 12, 31]],
])('the day of %d', (whenMs, [year, month, day]) => {
  expect(dayOf(whenMs)).toEqual({ year, month, day });
});

test.each([
  ['keeps its form', { square: 28 }, 'takes pictures in their own form'],
  ['is seen by no tower', null, 'sees no pictures'],
])('a picture that %s is not asked with in a tab', async (_, sight, why) => {
  const text = markedText({ pictures: [{ sha256: 'a'.repeat(64), alt: 'a cat' }], words: 'what is it?' });
  const asked = { id: 'q', parent: '', author: 'ann', form: 'to-model', text, whenMs: 0 } as Message;
  const conversation = { system: '', messages: { chunks: [new Map([['q', asked]])] } };
  const mesh = { prompts: {}, text: { sight }, view: { state: { model: { name: 'tiny', context: 64 } } } };
  const read = promptFor(
    mesh as unknown as Parameters<typeof promptFor>[0],
    conversation as unknown as Parameters<typeof promptFor>[1],
    asked,
    () => ({ sha256: 'a'.repeat(64), file: new Blob() }),
  );
  await expect(read).rejects.toThrow(`tiny ${why}`);
});
