/* Whoever stops an answer that waits for a route, or for its next try of a seat, has nothing opened any more. */

import { afterEach, expect, it, vi } from 'vitest';

import { ASK_SETTINGS, Conversation, type Delta, type Finished } from '../../src/origin/answer_stream';
import type { Outcome, SessionHost } from '../../src/origin/session_host';
import { type OriginEffect, REASONS } from '../../src/session/effects';
import { AnswerFailed } from '../../src/errors';
import type { Route } from '../../src/session/routes';
import type { OriginSession } from '../../src/session/origin';
import type { Prompts } from '../../src/model/prompts';

const SESSION = '07'.repeat(16);
const ROUTE: Route = { plan: 1, peers: ['far'], shadows: [] };

/** A conversation over one stage, whose session the test refuses by hand. */
class Asked {
  readonly conversation: Conversation;
  opened = 0;
  stood = 0; // in the line of the full stage
  private core: OriginSession | null = null;
  private listener: (outcome: Outcome) => void = () => undefined;

  constructor(untilFound: Promise<void>) {
    const sessions = {
      me: 'asker',
      attach: (core: OriginSession, listener: (outcome: Outcome) => void) => {
        [this.core, this.listener] = [core, listener];
      },
      attached: () => true,
      route: () => ROUTE,
      perform: (_: string, effects: readonly OriginEffect[]) => {
        this.opened += effects.filter((each) => each.kind === 'send' && each.frame.kind === 'OPEN').length;
      },
      links: {
        dial: () => Promise.resolve(),
        prepare: () => undefined,
        speaks: () => 99,
        isConnected: () => false,
        ask: () => {
          this.stood += 1;
          return Promise.resolve({ place: 0, wait_ms: 0 });
        },
      },
      view: { state: { model: { context: 64 } }, until: () => untilFound },
    } as unknown as SessionHost;
    const text = { endTokens: [], stream: () => ({ push: () => '', flush: () => '' }) };
    const prompts = { text } as unknown as Prompts;
    this.conversation = new Conversation(sessions, prompts, SESSION, () => undefined);
  }

  ask(): Promise<IteratorResult<Delta | Finished, void>> {
    return this.conversation.tokens([1, 2], ASK_SETTINGS).next();
  }

  /** The stage has no seat, and nobody else could take its part. */
  refuse(): void {
    const { core } = this;
    if (core === null) throw new Error('nothing was attached');
    const refused = (): readonly OriginEffect[] => {
      const { session, turn } = core;
      const where = { session, turn, stage: 0, position: 0, have: 0 };
      return core.refused(0, 'far', { kind: 'REFUSE', ...where, reason: REASONS.no_slot, message: 'full' });
    };
    refused();
    core.reroute(0, ROUTE);
    for (const effect of refused()) if (effect.kind === 'broken') this.listener(effect);
  }
}

afterEach(() => {
  vi.useRealTimers();
});

it('nothing is opened when it was stopped before there was a route', async () => {
  let found: () => void = () => undefined;
  const asked = new Asked(new Promise((resolve) => (found = resolve)));
  const first = asked.ask();
  asked.conversation.stop();
  found();
  await expect(first).rejects.toThrow(AnswerFailed);
  expect(asked.opened).toBe(0);
});

it('nobody stands in line again who stops before the next try', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const asked = new Asked(Promise.resolve());
  const first = asked.ask();
  for (const opened of [1, 2]) {
    await vi.advanceTimersByTimeAsync(0);
    expect(asked.opened).toBe(opened);
    asked.refuse(); // the second time it was called in vain: the next try waits a moment
  }
  await vi.advanceTimersByTimeAsync(0);
  expect([asked.stood, vi.getTimerCount()]).toEqual([1, 1]);
  asked.conversation.stop();
  await vi.advanceTimersByTimeAsync(1000);
  expect(await first).toMatchObject({ value: { kind: 'finished', why: 'cancelled' } });
  expect([asked.opened, asked.stood]).toEqual([2, 1]);
});
