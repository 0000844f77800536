/* Private conversations in the browser's own storage: what is damaged hides no other, stays, and is said. */

import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import { converse } from '../../../src/state/conversations';
import { privateShelf } from '../../../ui/conversation/private_shelf';

const PREFIX = 'shoal.private.m.';
const stored = new Map<string, string>();
let told: string[] = [];

beforeEach(() => {
  stored.clear();
  told = [];
  const methods = {
    getItem: (key: string) => stored.get(key) ?? null,
    setItem: (key: string, value: string) => void stored.set(key, value),
    removeItem: (key: string) => void stored.delete(key),
  };
  vi.stubGlobal(
    'localStorage',
    new Proxy(methods, {
      ownKeys: () => [...stored.keys()],
      getOwnPropertyDescriptor: () => ({ enumerable: true, configurable: true }),
    }),
  );
});
afterEach(() => {
  vi.unstubAllGlobals();
});

const shelf = (): ReturnType<typeof privateShelf> => privateShelf('m', (text) => told.push(text));

/** Keeps two conversations. */
function keepTwo(): void {
  for (const id of ['a', 'b']) {
    const known = converse(new Map(), {
      ...{
        kind: 'ConversationStarted',
        conversation: id,
        title: 'Mine',
        model: '',
        system: '',
        sampling: [],
      },
      ...{ whenMs: 1, peer: 'me', name: 'Me', colour: '#000000' },
    });
    if (typeof known === 'string') throw new Error(known);
    shelf().write(id, known.get(id) ?? null);
  }
}

it('what is kept is read again', () => {
  keepTwo();
  expect([...shelf().read().keys()]).toEqual(['a', 'b']);
  expect(told).toEqual([]);
});

it('a conversation that is damaged hides no other, stays, and is told of once', () => {
  keepTwo();
  const right = stored.get(`${PREFIX}a`) ?? '';
  const damages = [
    ...[...right].map((_, at) => right.slice(0, at)),
    ...[...right].map((_, at) => right.slice(0, at) + '\0'.repeat(right.length - at)),
    right + right,
    'null',
    '7',
  ];
  for (const damaged of damages) {
    told = [];
    stored.set(`${PREFIX}a`, damaged);
    const kept = shelf();
    expect([...kept.read().keys()]).toEqual(['b']);
    expect([...kept.read().keys()]).toEqual(['b']);
    expect(told).toEqual([expect.stringContaining('cannot be read: it is left as it is')]);
    expect(stored.get(`${PREFIX}a`)).toBe(damaged);
  }
});
