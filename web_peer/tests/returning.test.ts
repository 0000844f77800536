/* A lost coordinator is shown before each try to find it, and given up in the end (twin of tests/peer/test_returning.py). */

import { describe, expect, it } from 'vitest';

import { ConnectFailed } from '../src/errors';
import { awayText, PAUSES_S, Returning } from '../src/returning';

const MOST_PAUSE_S = 8; // nothing hangs longer than 10 s without a word

function tries(failures: number): { made: number; enter: () => Promise<void> } {
  const made = {
    made: 0,
    enter: (): Promise<void> => {
      made.made += 1;
      return made.made <= failures ? Promise.reject(new ConnectFailed('nobody is there')) : Promise.resolve();
    },
  };
  return made;
}

const going = (): AbortSignal => new AbortController().signal;

describe('a lost coordinator', () => {
  it('is shown before every try, and success ends it', async () => {
    const shown: string[] = [];
    const returning = new Returning(
      tries(2).enter,
      () => shown.push(returning.away === null ? 'back' : awayText(returning.away)),
      [0, 0, 0, 0],
    );
    expect(await returning.search('ann', true, going())).toBe(true);
    expect(shown.map((line) => line.split('(').at(-1))).toEqual([
      'try 1 of 4)',
      'try 2 of 4)',
      'try 3 of 4)',
      'back',
    ]);
    expect(shown[0]).toContain('the coordinator (ann) is gone: no answer without it');
  });

  it('is given up after the last try', async () => {
    const made = tries(9);
    const returning = new Returning(made.enter, () => undefined, [0, 0]);
    expect(await returning.search('', false, going())).toBe(false);
    expect(made.made).toBe(2);
    expect(returning.away === null ? '' : awayText(returning.away)).toContain('answers go on');
  });

  it('is looked for at once when a person wishes', async () => {
    const made = tries(1);
    const returning = new Returning(made.enter, () => queueMicrotask(() => returning.tryNow()), [3600, 3600]);
    expect(await returning.search('ann', false, going())).toBe(true);
    expect(made.made).toBe(2);
  });

  it('is not looked for by a tab that left', async () => {
    const made = tries(0);
    const over = new AbortController();
    const returning = new Returning(made.enter, () => queueMicrotask(() => over.abort()), [3600]);
    expect(await returning.search('ann', false, over.signal)).toBe(false);
    expect(made.made).toBe(0);
  });

  it('never leaves anybody without a word for long', () => {
    expect(Math.max(...PAUSES_S)).toBeLessThanOrEqual(MOST_PAUSE_S);
  });
});
