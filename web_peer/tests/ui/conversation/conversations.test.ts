/* Where conversations begin that a person brings in from a file: in this tab alone, if new ones are kept there. */

import { signal } from '@preact/signals';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import { HIGHEST_VERSION } from '../../../src/limits';
import type { MeshMember } from '../../../src/member/mesh_member';
import type { ConversationCommand, Member } from '../../../src/state/generated/commands';
import { converse } from '../../../src/state/conversations';
import { EMPTY_STATE, type MeshState } from '../../../src/state/mesh_state';
import { DEFAULT_SETTINGS } from '../../../ui/conversation/settings_sheet';
import { type Surroundings, Talks } from '../../../ui/conversation/conversations';

const FILE = JSON.stringify({
  format: 'shoal conversation 1',
  title: 'kept',
  system: '',
  messages: [{ form: 'to-people', by: 'me', text: 'a secret' }],
});
const SHOWN: ConversationCommand = {
  ...{ kind: 'ConversationStarted', conversation: 'c', title: '', model: '', system: '', sampling: [] },
  ...{ whenMs: 1, peer: 'ann', name: 'Ann', colour: '#000000' },
};

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal('cancelAnimationFrame', () => undefined);
  vi.stubGlobal('requestAnimationFrame', () => 0);
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

/** What the mesh hears of a file that is brought in. */
async function heard(keeps: boolean): Promise<readonly string[]> {
  const said: string[] = [];
  const members = new Map([['ann', { peer: 'ann' } as Member]]);
  const conversations = converse(new Map(), SHOWN);
  if (typeof conversations === 'string') throw new Error(conversations);
  const state: MeshState = { ...EMPTY_STATE, members, conversations };
  const links = {
    ...{ on: () => () => undefined, isConnected: () => false, prepare: () => undefined },
    ...{ call: () => Promise.resolve({}), speaks: () => HIGHEST_VERSION },
  };
  const view = {
    ...{ me: 'ann', state, leader: 'bob' },
    ...{ subscribe: () => () => undefined, onRole: () => () => undefined },
    propose: ({ kind }: { kind: string }) => {
      said.push(kind);
      return Promise.resolve();
    },
  };
  const mesh = { links, view, signal: new AbortController().signal, text: {}, onEnded: () => undefined };
  const told: string[] = [];
  const around = {
    ...{ settings: () => DEFAULT_SETTINGS, keepSettings: () => undefined, myName: () => 'Ann' },
    ...{ keepsWords: () => keeps, link: () => '', entry: null, readable: (text: string) => text },
    ...{ name: (peer: string) => peer, token: () => undefined, over: () => undefined },
    tell: (text: string) => void told.push(text),
  } satisfies Surroundings;
  const talks = new Talks(around, signal(DEFAULT_SETTINGS));
  talks.follow(mesh as unknown as MeshMember);
  talks.show('c'); // one of the mesh
  expect(talks.talk.value).toMatchObject({ id: 'c', own: false });
  talks.imported(FILE);
  expect(told).toEqual([]);
  expect(talks.talk.value).toMatchObject({ title: 'kept', own: keeps });
  await vi.advanceTimersByTimeAsync(1000);
  return said;
}

it('the mesh hears nothing of one that stays here', async () => expect(await heard(true)).toEqual([]));

it('and everything of one that is for all', async () => {
  expect(await heard(false)).toContain('ConversationStarted');
});
