/* Which conversation a tab begins with, who reads one that begins, and where they are kept. */

import type { Prompt } from '../../../src/model/tokenizer';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { NoPlan } from '../../../src/errors';
import { HIGHEST_VERSION } from '../../../src/limits';
import type { MeshMember } from '../../../src/member/mesh_member';
import type { ConversationCommand, Decoder, Member } from '../../../src/state/generated/commands';
import { converse } from '../../../src/state/conversations';
import { EMPTY_STATE, type MeshState } from '../../../src/state/mesh_state';
import { USUAL } from '../../../src/planner/sampling_defaults';
import { AskChoices } from '../../../ui/conversation/ask_choices';
import { type Surroundings, Talks } from '../../../ui/conversation/conversations';
import { readersText, whoReads } from '../../../ui/kit/readers';

const FILE = JSON.stringify({
  format: 'shoal conversation 1',
  title: 'kept',
  system: '',
  messages: [{ form: 'to-people', by: 'me', text: 'a secret' }],
});
/** Of somebody else, who talks with the model in it. */
const OTHERS: ConversationCommand = {
  ...{ kind: 'ConversationStarted', conversation: 'c', title: 'Theirs', model: '', system: '', sampling: [] },
  ...{ whenMs: 1, peer: 'bob', name: 'Bob', colour: '#000000' },
};

let stored: Map<string, string>;

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal('cancelAnimationFrame', () => undefined);
  vi.stubGlobal('requestAnimationFrame', () => 0);
  vi.stubGlobal('addEventListener', () => undefined);
  stored = new Map();
  const methods = {
    getItem: (key: string) => stored.get(key) ?? null,
    setItem: (key: string, value: string) => stored.set(key, value),
    removeItem: (key: string) => stored.delete(key),
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
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

interface Seat {
  readonly talks: Talks;
  readonly heard: () => Promise<readonly string[]>; // kinds of commands that the mesh was told
}

/** A person `me` at a tab of a mesh in which somebody else has a conversation. `pins`: words stay in the tab. */
function seat({
  me = 'ann',
  pins = false,
  own = true, // whether the mesh has a model of its own
  further = [OTHER, 'third'],
  choices = new AskChoices(),
  tell = (text: string): void => expect.unreachable(text),
} = {}): Seat {
  const said: string[] = [];
  const members = new Map(['bob', me].map((peer) => [peer, { peer, name: peer } as Member]));
  const conversations = converse(new Map(), OTHERS);
  if (typeof conversations === 'string') throw new Error(conversations);
  const decoders = new Map(further.map((name) => [name, { model: name } as Decoder]));
  const model = own ? ({ model: 'x', name: 'own' } as MeshState['model']) : null;
  const state: MeshState = { ...EMPTY_STATE, model, members, conversations, decoders };
  const links = {
    ...{ on: () => () => undefined, isConnected: () => false, prepare: () => undefined },
    ...{ call: () => Promise.resolve({}), speaks: () => HIGHEST_VERSION },
  };
  const view = {
    ...{ me, state, leader: 'bob' },
    ...{ subscribe: () => () => undefined, onRole: () => () => undefined },
    propose: ({ kind, model }: { kind: string; model?: string }) => {
      said.push(model === undefined || model === '' ? kind : `${kind} ${model}`);
      return Promise.resolve();
    },
  };
  const mesh = {
    ...{ links, view, signal: new AbortController().signal, text: null, link: { mesh: 'm' } },
    onEnded: () => undefined,
    conversation: () => {
      throw new Error('not asked here');
    },
  };
  const around = {
    ...{ choices, myName: () => 'Ann', modelLabel: (name: string) => name },
    ...{
      keepsWords: () => pins,
      answering: () => [...(own ? [''] : []), ...further],
      link: () => '',
      entry: null,
      readable: (text: string) => text,
    },
    ...{ name: (peer: string) => peer, token: () => undefined, over: () => undefined },
    tell,
  } satisfies Surroundings;
  const talks = new Talks(around);
  // As long as what is said.
  const chat = (messages: readonly { readonly content: string }[]): Promise<Prompt> =>
    Promise.resolve({
      tokens: messages.flatMap(({ content }) => Array.from(content, () => 1)),
      pictures: [],
    });
  const text = { encodeChat: () => [1, 2, 3] };
  const answering = (name: string): Promise<unknown> =>
    name === WITHDRAWN
      ? Promise.reject(new NoPlan(`no model that answers in words is offered under the name ${name}`))
      : Promise.resolve({ view, text, prompts: { chat } });
  const known = { ...mesh, answering, text: own ? text : null };
  talks.follow(known as unknown as MeshMember);
  const heard = async (): Promise<readonly string[]> => {
    await vi.advanceTimersByTimeAsync(1000);
    return said;
  };
  return { talks, heard };
}

const OTHER = 'other';
const WITHDRAWN = 'withdrawn';

const OWN = { temperature: 0.6, topK: 20, topP: 0.9, minP: 0.05, repetitionPenalty: 1.1 }; // a model's

describe('how answers are drawn', () => {
  it('is as the model has it, and what a person sets stays theirs with another model and another visit', async () => {
    const choices = new AskChoices();
    const { talks, heard } = seat({ choices });
    expect(talks.settings.value).toMatchObject(USUAL);
    choices.follow(OWN);
    expect(talks.settings.value).toEqual({ ...OWN, maxTokens: null, seed: null, instructions: '' });
    talks.setSettings({ temperature: 1.2 });
    talks.setSettings({ seed: 7 });
    expect(talks.settings.value).toMatchObject({ ...OWN, temperature: 1.2, seed: 7 });
    await heard();
    expect(JSON.parse(stored.get('shoal.settings') ?? '')).toEqual({ temperature: 1.2, seed: 7 });
    choices.follow(USUAL);
    expect(talks.settings.value).toMatchObject({ ...USUAL, temperature: 1.2, seed: 7 });
    expect(new AskChoices().settings.value).toMatchObject({ ...USUAL, temperature: 1.2, seed: 7 });
  });

  it('is as the model has it again once a person resets it', async () => {
    const choices = new AskChoices();
    const { talks, heard } = seat({ choices });
    choices.follow(OWN);
    talks.setSettings({ topP: 0.5 });
    talks.resetSettings();
    expect(talks.settings.value).toMatchObject(OWN);
    await heard();
    expect(talks.settings.value).toMatchObject(OWN);
    expect(stored.get('shoal.settings')).toBe('{}');
  });

  it('is as the model has it in a conversation that says nothing', () => {
    const choices = new AskChoices();
    const { talks } = seat({ choices });
    choices.follow(OWN);
    choices.choose({ temperature: 1.2 });
    talks.show('c');
    expect(talks.settings.value).toMatchObject(OWN);
  });
});

describe('a plain link', () => {
  it('begins with a new conversation, and takes part in none', async () => {
    const { talks, heard } = seat();
    talks.look();
    expect(talks.talk.value).toMatchObject({ id: '', turns: [] });
    expect(talks.list.value).toMatchObject([{ title: 'Theirs', takesPart: false, readers: 'mesh' }]);
    expect(await heard()).toEqual([]);
  });

  it('lets a person read, and take part by a click', async () => {
    const { talks, heard } = seat();
    talks.show('c');
    expect(talks.talk.value).toMatchObject({ takesPart: false, mayEnter: true, mayWrite: false });
    expect(await heard()).toEqual([]);
    talks.takePart();
    expect(talks.talk.value).toMatchObject({ takesPart: true, mayEnter: false, mayWrite: true });
    expect(await heard()).toEqual(['ParticipantSet']);
  });
});

describe('a conversation that begins', () => {
  it.each([
    ['private', false, 'browser', []],
    ['private', true, 'tab', []],
    ['invited', false, 'invited', ['ConversationStarted', 'EntryChosen', 'MessageAdded']],
    ['mesh', true, 'mesh', ['ConversationStarted', 'MessageAdded']],
  ] as const)('for %s (words stay here: %s) is read by %s', async (audience, pins, readers, told) => {
    const { talks, heard } = seat({ pins });
    if (audience !== 'private') talks.choose(audience);
    talks.ask('to whom?', true);
    expect(talks.talk.value).toMatchObject({ title: 'to whom?', readers, takesPart: true, mayWrite: true });
    expect(await heard()).toEqual(told);
    expect([...stored.keys()].some((key) => key.startsWith('shoal.private.m.'))).toBe(readers === 'browser');
    talks.show('');
    expect(talks.audience.value).toBe('private'); // asked anew of each
  });

  it('is private when it is brought in from a file, unless it is for others', async () => {
    const { talks, heard } = seat();
    talks.show('c'); // one of the mesh
    await talks.importFile(new Blob([FILE]));
    expect(talks.talk.value).toMatchObject({ title: 'kept', readers: 'browser' });
    expect(await heard()).toEqual([]);
    talks.shareCopy('mesh');
    expect(talks.talk.value).toMatchObject({ title: 'kept', readers: 'mesh' });
    expect(await heard()).toContain('ConversationStarted');
    expect(talks.list.value.filter(({ title }) => title === 'kept')).toHaveLength(2);
  });
});

describe('the model that answers', () => {
  it('is the one that was chosen, of each conversation, until another is', async () => {
    const { talks, heard } = seat();
    talks.choose('mesh');
    talks.chooseModel(OTHER);
    await heard();
    expect(talks.model.value).toBe(OTHER);
    talks.ask('to whom?', true);
    await heard();
    talks.chooseModel('third');
    expect(await heard()).toEqual([
      ...[`ConversationStarted ${OTHER}`, 'MessageAdded', 'ConversationChanged third'],
    ]);
  });

  it('is each conversation’s own', async () => {
    const { talks, heard } = seat();
    talks.ask('first', true);
    talks.chooseModel(OTHER);
    const { id } = talks.talk.value;
    talks.show('c');
    await heard();
    expect(talks.model.value).toBe(''); // as it was begun with
    talks.show(id);
    await heard();
    expect(talks.model.value).toBe(OTHER);
  });

  it('is kept with a private conversation, over a visit too', async () => {
    const { talks, heard } = seat();
    talks.chooseModel(OTHER);
    talks.ask('to whom?', true);
    await heard();
    const { talks: later, heard: looked } = seat();
    later.look();
    await looked();
    const [kept] = later.list.value;
    later.show(kept?.id ?? '');
    await looked();
    expect(later.model.value).toBe(OTHER);
  });

  it('that was withdrawn is said to be, and begins nothing', async () => {
    const told: string[] = [];
    const { talks, heard } = seat({ tell: (text) => void told.push(text) });
    talks.chooseModel(WITHDRAWN);
    await heard();
    expect(told).toEqual([`no model that answers in words is offered under the name ${WITHDRAWN}`]);
    expect(talks.model.value).toBe('');
  });

  it('is the first of them where the mesh has none of its own', async () => {
    const further = ['alpha'];
    const { talks, heard } = seat({ own: false, further });
    talks.look();
    expect(talks.model.value).toBe('alpha');
    talks.choose('mesh');
    talks.ask('to whom?', true);
    expect(await heard()).toEqual(['ConversationStarted alpha', 'MessageAdded']);
    talks.show('');
    further.unshift('aardvark');
    talks.chooseModel('alpha');
    await heard();
    expect(talks.model.value).toBe('alpha'); // as it was chosen
    further.pop();
    talks.look();
    expect(talks.model.value).toBe('aardvark');
  });

  it('is none before one takes questions', () => {
    const { talks } = seat({ own: false, further: [] });
    talks.ask('to whom?', true);
    expect(talks.list.value).toEqual([]);
  });

  it('is the mesh’s own where words stay in this tab', async () => {
    const { talks, heard } = seat({ pins: true });
    talks.chooseModel(OTHER);
    await heard();
    expect(talks.model.value).toBe('');
    talks.choose('mesh');
    await heard();
    expect(talks.model.value).toBe(OTHER);
  });
});

describe('who reads a conversation that begins', () => {
  // What the line above the text field promises, what the bar says then, and what the mesh, which everyone reads, has.
  it.each([
    ['private', /^Kept in this browser/, 'Only you · kept in this browser', false],
    [
      'invited',
      /Everyone in the mesh can still read it/,
      'Everyone can read · invited people take part',
      true,
    ],
    ['mesh', /^Everyone in the mesh can read it/, 'Everyone can read and take part', true],
  ] as const)('of %s is who the line says', async (audience, line, bar, inMesh) => {
    const { talks, heard } = seat();
    expect(whoReads(audience, false)).toMatch(line);
    talks.choose(audience);
    talks.ask('a secret', true);
    const said = await heard();
    expect(readersText(talks.talk.value.readers)).toBe(bar);
    expect(said.length > 0).toBe(inMesh);
    expect([...stored.values()].some((text) => text.includes('a secret'))).toBe(!inMesh);
  });
});

describe('the context that a conversation uses', () => {
  const file = (...messages: readonly string[]): string =>
    JSON.stringify({
      ...{ format: 'shoal conversation 1', title: 'kept', system: '' },
      messages: messages.map((text) => ({ form: text.startsWith('so') ? 'answer' : 'to-model', text })),
    });

  it.each([
    [['why', 'so'], 3],
    [['why', 'so', 'and how', 'so long'], 12],
    [[], 0],
  ] as const)('by %j is what the model reads with the last question', async (messages, tokens) => {
    const { talks, heard } = seat();
    await talks.importFile(new Blob([file(...messages)]));
    talks.look();
    await heard();
    talks.look();
    expect(talks.talk.value.usedTokens).toBe(tokens);
    talks.show('');
    expect(talks.talk.value.usedTokens).toBe(0);
  });
});

describe('a conversation as a page to share', () => {
  it('says what is shown, under the instructions that hold', async () => {
    const { talks } = seat();
    await talks.importFile(new Blob([FILE]));
    const page = talks.exported('page');
    expect(page).toContain('<h1>kept</h1>');
    expect(page).toContain('<p class="said">a secret</p>');
    expect(page).not.toContain('<blockquote');
    talks.setSettings({ instructions: 'Be short.' });
    expect(talks.exported('page')).toContain('<blockquote class="said">Be short.</blockquote>');
  });
});

describe('private conversations', () => {
  it('are there at the next visit, of the same person under another id too, until they are removed', async () => {
    const first = seat();
    first.talks.ask('a secret', true);
    await first.heard();
    const { id } = first.talks.talk.value;
    const { talks, heard } = seat({ me: 'ann2' });
    talks.look();
    expect(talks.list.value).toMatchObject([
      { id, readers: 'browser', takesPart: true, mayRemove: true },
      { id: 'c' },
    ]);
    talks.show(id);
    expect(talks.talk.value).toMatchObject({ mayWrite: true, people: [{ you: true, role: 'owner' }] });
    expect(talks.talk.value.turns).toMatchObject([{ question: 'a secret', who: { you: true } }]);
    talks.rename(id, 'Renamed');
    expect(talks.list.value[0]).toMatchObject({ title: 'Renamed' });
    talks.remove(id);
    await heard();
    expect(seat().talks.list.value.map((line) => line.id)).toEqual(['c']);
  });

  it('that cannot be read are passed over and told of once, and stay', () => {
    stored.set('shoal.private.m.x', '{"x":{"title":3}}');
    const told: string[] = [];
    const { talks } = seat({ tell: (text) => void told.push(text) });
    expect(talks.list.value.map((line) => line.id)).toEqual(['c']);
    expect(told).toEqual([
      'A private conversation that this browser keeps cannot be read: it is left as it is, and not shown.',
    ]);
    expect(stored.has('shoal.private.m.x')).toBe(true);
  });
});
