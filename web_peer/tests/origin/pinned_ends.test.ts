/* A question whose ends are not here yet can be stopped, and the ends are given back whenever they come. */

import { expect, it } from 'vitest';

import { ASK_SETTINGS, Conversation } from '../../src/origin/answer_stream';
import { AnswerFailed } from '../../src/errors';
import type { SessionHost } from '../../src/origin/session_host';
import type { KeptEnds, OwnEnds } from '../../src/origin/pinned_ends';
import type { Prompts } from '../../src/model/prompts';

const SESSION = '07'.repeat(16);

it('an answer that waits for its ends ends when it is stopped', async () => {
  let here: (ends: OwnEnds) => void = () => undefined;
  let given = 0;
  const ends = {
    take: () => new Promise<OwnEnds>((resolve) => (here = resolve)),
    giveBack: () => (given += 1),
  } as unknown as KeptEnds;
  const sessions = {
    ...{ me: 'asker', attach: () => undefined, attached: () => true, perform: () => undefined },
  } as unknown as SessionHost;
  const conversation = new Conversation(
    sessions,
    { text: {} } as unknown as Prompts,
    SESSION,
    () => undefined,
    ends,
  );

  const first = conversation.tokens([1, 2], ASK_SETTINGS).next();
  conversation.stop();
  await expect(first).rejects.toThrow(AnswerFailed);
  expect(given).toBe(0);
  here({} as unknown as OwnEnds);
  await Promise.resolve();
  expect(given).toBe(1);
});
