/*
 * While nobody coordinates, people read what still works; the mesh is looked for (twin of
 * tests/peer/member/test_reconnect.py).
 */

import { describe, expect, it } from 'vitest';

import { ConnectFailed } from '../../src/errors';
import { type Away, awayText, isStuck, Returning } from '../../src/member/reconnect';

const ALONE: Away = { name: 'ann', needed: true, voters: 1, here: 0, attempt: 0, refused: '' };
const going = (): AbortSignal => new AbortController().signal;

/** What is missing until `tries` were made to find it. */
function lostUntil(tries: number): {
  made: number;
  lost: (attempt: number) => Away | null;
  enter: () => Promise<void>;
} {
  const mesh = {
    made: 0,
    lost: (attempt: number): Away | null => (mesh.made > tries ? null : { ...ALONE, attempt }),
    enter: (): Promise<void> => {
      mesh.made += 1;
      return mesh.made <= tries ? Promise.reject(new ConnectFailed('nobody is there')) : Promise.resolve();
    },
  };
  return mesh;
}

describe('a lost coordinator', () => {
  it('is shown before every try, until nothing is missing', async () => {
    const mesh = lostUntil(2);
    const shown: string[] = [];
    const returning: Returning = new Returning(
      mesh.lost,
      mesh.enter,
      () => shown.push(returning.away === null ? 'back' : awayText(returning.away)),
      0,
    );
    await returning.search(going());
    expect(mesh.made).toBe(3);
    expect(shown[0]).toContain('the coordinator (ann) is gone: no answer meanwhile');
    expect(shown[1]).toContain('try 1');
    expect(shown.at(-1)).toBe('back');
  });

  it('says what still works, and who is needed', () => {
    const others = { ...ALONE, needed: false, voters: 3, here: 2 };
    expect(isStuck(others)).toBe(false);
    expect(awayText(others)).toContain('answers go on');
    expect(awayText(others)).toContain('the others choose another one');
    const few = { ...others, here: 1 };
    expect(isStuck(few)).toBe(true);
    expect(awayText(few)).toContain('1 of 3 voters are here, 2 are needed');
  });

  it('is looked for at once when a person wishes', async () => {
    const mesh = lostUntil(1);
    const returning = new Returning(mesh.lost, mesh.enter, () => undefined, 3600);
    const wishes = setInterval(() => returning.tryNow(), 1);
    await returning.search(going());
    clearInterval(wishes);
    expect(mesh.made).toBe(2);
  });

  it('is not looked for by a tab that left', async () => {
    const mesh = lostUntil(0);
    const over = new AbortController();
    const returning = new Returning(mesh.lost, mesh.enter, () => queueMicrotask(() => over.abort()), 3600);
    await returning.search(over.signal);
    expect(mesh.made).toBe(0);
  });
});
