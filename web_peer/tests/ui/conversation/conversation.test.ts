/* What the page decides about conversations: what is shown, what comes live, files, settings. */

import { describe, expect, it } from 'vitest';

import { Heard, type Piece } from '../../../src/conversation/live_answer';
import { type Conversation, type Conversations, converse, messageOf } from '../../../src/state/conversations';
import type { ConversationCommand, Message } from '../../../src/state/generated/commands';
import {
  type Around,
  type ListAround,
  type Making,
  colourFor,
  COLOURS,
  isAnswering,
  talkLines,
  TalkViews,
  titleOf,
} from '../../../ui/conversation/conversation_view';
import { asJson, asMarkdown, broughtOf } from '../../../ui/conversation/export';
import { samplingOfSettings, settingsOfSampling } from '../../../ui/conversation/settings_codec';
import { USUAL } from '../../../src/planner/sampling_defaults';
import { modelSettings } from '../../../ui/conversation/saved_choices';
import type { Talk, TalkLine } from '../../../ui/app/view';

const SESSION = '0'.repeat(32);

function said(id: string, parent: string, author: string, more: Partial<Message> = {}): ConversationCommand {
  const message = { id, parent, author, form: 'to-model' as const, text: `text of ${id}`, whenMs: 1 };
  const rest = { session: more.form === 'answer' ? SESSION : '', model: '', sampling: [], maxTokens: 9 };
  return { kind: 'MessageAdded', conversation: 'c', ...message, ...rest, ...more };
}

function ended(
  id: string,
  state: 'done' | 'stopped' | 'failed',
  text: string,
  reason = '',
): ConversationCommand {
  return { kind: 'MessageEnded', conversation: 'c', id, state, tokens: 2, text, reason };
}

const answer = (id: string, parent: string, author: string): ConversationCommand =>
  said(id, parent, author, { form: 'answer', text: '' });

function held(...commands: readonly ConversationCommand[]): Conversation {
  const who = { peer: 'ann', name: 'Ann', colour: '#000000' };
  const settings = { title: 'Fish', model: '', system: '', sampling: [] };
  let all: Conversations | string = new Map();
  const person = { kind: 'ParticipantSet', conversation: 'c', colour: '#ffffff' } as const;
  for (const command of [
    { kind: 'ConversationStarted', conversation: 'c', whenMs: 1, ...settings, ...who } as const,
    { ...person, peer: 'bob', name: 'Bob', role: 'member' } as const,
    { ...person, peer: 'vic', name: 'Bob', role: 'viewer' } as const,
    ...commands,
  ]) {
    all = converse(all, command);
    if (typeof all === 'string') throw new Error(all);
  }
  const found = all.get('c');
  if (found === undefined) throw new Error('no conversation');
  return found;
}

const around = (more: Partial<Around> = {}): Around => ({
  me: 'ann',
  place: 'mesh',
  model: (name) => name,
  usedTokens: 0,
  ownsMesh: false,
  here: new Set(['ann', 'bob']),
  typing: new Set(),
  chosen: new Map(),
  open: () => false,
  picture: () => '',
  making: ({ text, tokens }) => ({ text, tokens, waits: '', stalled: false, facts: null }),
  readable: (text) => text,
  name: () => null,
  ...more,
});

const view = (conversation: Conversation, more: Partial<Around> = {}): Talk =>
  new TalkViews().of('c', conversation, around(more), false);

describe('a conversation as it is shown', () => {
  it('queues what is asked while an answer runs', () => {
    const talk = view(
      held(
        said('q1', '', 'bob'),
        answer('a1', 'q1', 'bob'),
        said('q2', 'a1', 'ann'),
        said('q3', 'q2', 'bob'),
      ),
    );
    expect(talk.turns.map(({ state }) => state)).toEqual([
      { kind: 'thinking' },
      { kind: 'queued', text: 'Waits for Bob (bob)’s question' },
      { kind: 'queued', text: 'Waits for your question and 1 more' },
    ]);
    expect(isAnswering(talk.turns)).toBe(true);
  });

  it('says where a question stands while the mesh is full', () => {
    const waits = 'you are third in line, about 20 s';
    const making = (): Making => ({ text: '', tokens: 0, waits, stalled: false, facts: null });
    const [turn] = view(held(said('q1', '', 'ann'), answer('a1', 'q1', 'ann')), { making }).turns;
    expect(turn?.state).toEqual({ kind: 'thinking', waits });
  });

  it('shows branches, and the one that was chosen', () => {
    const conversation = held(
      ...[said('q1', '', 'ann'), answer('a1', 'q1', 'ann'), ended('a1', 'done', 'one')],
      ...[answer('a2', 'q1', 'bob'), ended('a2', 'stopped', 'two', 'length'), said('q1b', '', 'ann')],
      ...[said('other', '', 'bob', { form: 'to-people' })],
    );
    const [edited, beside] = view(conversation).turns;
    expect(edited).toMatchObject({ id: 'q1b', branch: { at: 2, of: 2 }, state: { kind: 'thinking' } });
    expect(beside).toMatchObject({ id: 'other', toPeople: true, state: { kind: 'none' } });
    const [first] = view(conversation, { chosen: new Map([[' by ann', 'q1']]) }).turns;
    expect(first).toMatchObject({
      answer: 'two',
      answers: { at: 2, of: 2 },
      asker: { name: 'Bob (bob)' },
      state: { kind: 'stopped', why: 'length' },
    });
  });

  it('tells who may write and rule, and names nobody twice', () => {
    const conversation = held();
    expect(view(conversation).people.map(({ name, here }) => [name, here])).toEqual([
      ['Ann', true],
      ['Bob (bob)', true],
      ['Bob (vic)', false],
    ]);
    const rights = ['ann', 'bob', 'vic', 'new'].map((me) => {
      const { mayWrite, mayRule, mayTake } = view(conversation, { me, here: new Set(['bob', 'vic']) });
      return [mayWrite, mayRule, mayTake];
    });
    expect(rights).toEqual([
      [true, true, false],
      [true, false, true],
      [false, false, false],
      [false, false, false], // who takes no part yet reads
    ]);
    expect(view(conversation, { me: 'new' })).toMatchObject({ takesPart: false, mayEnter: true });
    expect(view(conversation, { me: 'bob', ownsMesh: true }).mayRule).toBe(true);
    expect(view(conversation, { typing: new Set(['ann', 'bob']) }).typing).toBe('Bob (bob) writes…');
  });

  it('leaves turns that did not change the same objects, so that they are not drawn again', () => {
    const views = new TalkViews();
    const before = held(said('q1', '', 'ann'), answer('a1', 'q1', 'ann'), ended('a1', 'done', 'one'));
    const [one] = views.of('c', before, around(), false).turns;
    const later = converse(new Map([['c', before]]), said('q2', 'a1', 'bob'));
    const after = typeof later === 'string' ? undefined : later.get('c');
    expect(views.of('c', after ?? before, around(), false).turns[0]).toBe(one);
  });

  it('lists the newest first, and what this person has not seen', () => {
    const one = held(said('q1', '', 'ann', { whenMs: 5 }));
    const two = held(said('q1', '', 'ann'), said('a1', 'q1', 'ann', { form: 'answer', text: '', whenMs: 9 }));
    const listed = (more: Partial<ListAround> = {}): TalkLine[] =>
      talkLines(
        [
          { id: 'one', conversation: one, place: 'mesh' },
          { id: 'two', conversation: two, place: 'browser' },
        ],
        {
          ...{ open: '', seen: new Map(), pinned: new Set(), query: '', me: 'bob', ownsMesh: false },
          ...more,
        },
      );
    const lines = listed({ open: 'one' });
    expect(lines.map(({ id, fresh, answering }) => [id, fresh, answering])).toEqual([
      ['two', true, true],
      ['one', false, false],
    ]);
    expect(listed({ seen: new Map([['one', 1]]) }).map(({ fresh }) => fresh)).toEqual([true, false]);
    expect(lines.map(({ readers, mayRename, mayRemove }) => [readers, mayRename, mayRemove])).toEqual([
      ['browser', true, false],
      ['mesh', true, false],
    ]);
    expect(listed({ pinned: new Set(['one']) }).map(({ id, pinned }) => [id, pinned])).toEqual([
      ['one', true],
      ['two', false],
    ]);
  });

  it('finds what is said in any of them', () => {
    const one = held(said('q1', '', 'ann', { text: `${'far away '.repeat(9)} the Whale sings` }));
    const found = (query: string): string[] =>
      talkLines([{ id: 'one', conversation: one, place: 'mesh' }], {
        ...{ open: '', seen: new Map(), pinned: new Set(), query, me: 'ann', ownsMesh: false },
      }).map(({ excerpt }) => excerpt);
    expect(found('whale')).toEqual(['… away far away the Whale sings…']);
    expect(found(' FISH ')).toEqual(['']); // the title says it
    expect(found('shark')).toEqual([]);
  });

  it('is this person’s own where it is private, whatever id an earlier visit had', () => {
    const conversation = held(said('q1', '', 'bob'));
    const talk = view(conversation, { place: 'browser' });
    expect(talk.people.map(({ id }) => id)).toEqual(['ann']);
    expect(talk.turns[0]?.who.you).toBe(true);
    expect(talk.readers).toBe('browser');
  });

  it('gives people colours that others do not have, and titles that fit', () => {
    const [first = ''] = COLOURS;
    expect(colourFor('p', [])).toBe(colourFor('p', []));
    expect(colourFor('p', [colourFor('p', [])])).not.toBe(colourFor('p', []));
    expect(COLOURS).toContain(colourFor('p', [...COLOURS]));
    expect(first).toMatch(/^#[0-9a-f]{6}$/);
    expect(titleOf('  why\n is it? ')).toBe('why is it?');
    expect(titleOf('x'.repeat(99)).length).toBe(60);
  });
});

describe('what comes live', () => {
  const piece = (after: number, text: string, count = 1): Piece => ({
    after,
    ids: Array.from({ length: count }, (_, at) => after + at),
    text,
    standing: { answer: 1, turn: 1, spans: [3] },
  });
  const message = (more: Partial<Message> = {}): Message => {
    const found = messageOf(held(said('q', '', 'bob'), answer('a', 'q', 'bob')).messages, 'a');
    if (found === undefined) throw new Error('no answer');
    return { ...found, ...more };
  };

  it('is put together in order, also before the log knows the answer', () => {
    const heard = new Heard();
    heard.came('bob', 'a', piece(0, 'one '));
    heard.came('bob', 'a', piece(2, 'three '));
    heard.came('bob', 'a', piece(1, 'two '));
    expect(heard.text(message())).toMatchObject({ text: '', tokens: 0 }); // nobody said that he asks
    heard.follow(message());
    expect(heard.text(message())).toMatchObject({ text: 'one two three ', tokens: 3 });
    expect(heard.of('a')?.ids).toEqual([0, 1, 2]);
  });

  it('goes on where the log has filled a hole, without ids that were not heard', () => {
    const heard = new Heard();
    heard.follow(message());
    heard.came('bob', 'a', piece(4, 'five '));
    heard.follow(message({ tokens: 4, text: 'one two three four ' }));
    expect(heard.text(message())).toMatchObject({ text: 'one two three four five ', tokens: 5 });
    expect(heard.of('a')?.ids).toEqual([]);
  });

  it('counts of the author alone, and of whoever adopts the answer from there on', () => {
    const heard = new Heard();
    heard.came('eve', 'a', piece(0, 'lies '));
    heard.follow(message());
    expect(heard.of('a')?.text).toBe('');
    heard.came('bob', 'a', piece(0, 'one '));
    heard.came('eve', 'a', piece(1, 'lies '));
    heard.follow(message({ author: 'ann' }));
    heard.came('bob', 'a', piece(1, 'late '));
    heard.came('ann', 'a', piece(1, 'two '));
    expect(heard.text(message({ author: 'ann' }))).toMatchObject({ text: 'one two ', tokens: 2 });
    heard.follow(message({ author: 'ann', state: 'done' }));
    expect(heard.of('a')).toBeNull();
  });

  it('is bounded', () => {
    const heard = new Heard();
    for (let at = 0; at < 200; at += 1) heard.came('bob', `a${at}`, piece(0, 'x'));
    for (let at = 2; at < 500; at += 1) heard.came('bob', 'a1', piece(at, 'x'));
    expect(heard.of('a1')?.waiting.length).toBe(64);
    expect(heard.of('a150')).toBeNull();
    heard.keepOnly(new Set(['a1']));
    expect(heard.of('a1')).not.toBeNull();
    expect(heard.of('a2')).toBeNull();
  });
});

describe('a conversation as a file', () => {
  const talk = view(
    held(
      ...[said('q1', '', 'ann'), answer('a1', 'q1', 'ann'), ended('a1', 'done', '**one**')],
      ...[said('n', 'a1', 'bob', { form: 'to-people' }), said('q2', 'n', 'ann')],
    ),
  );

  it('is Markdown for people', () => {
    expect(asMarkdown(talk, ' Be\nshort. ')).toBe(
      '# Fish\n\n> Be\n> short.\n\n**Ann**\n\ntext of q1\n\n**Model**\n\n**one**\n\n' +
        '**Bob (bob)** (to people)\n\ntext of n\n\n**Ann**\n\ntext of q2\n',
    );
  });

  it('comes in again as JSON', () => {
    expect(broughtOf(asJson(talk, 'Be short.'))).toEqual({
      title: 'Fish',
      system: 'Be short.',
      messages: [
        { form: 'to-model', text: 'Ann: text of q1' },
        { form: 'answer', text: '**one**' },
        { form: 'to-people', text: 'Bob (bob): text of n' },
        { form: 'to-model', text: 'Ann: text of q2' },
      ],
    });
  });

  it.each(['{', '[]', 'null', '{"format":"other","messages":[]}'])('is refused as %s', (text) => {
    expect(broughtOf(text)).toMatch(/^This file is no/);
  });

  it('is refused where a message cannot be read, and never begins with an answer', () => {
    const file = (messages: unknown[]): string =>
      JSON.stringify({ format: 'shoal conversation 1', messages });
    expect(broughtOf(file([{ form: 'order', text: '' }]))).toMatch(/damaged/);
    expect(broughtOf(file([null]))).toMatch(/damaged/);
    const message = (text: string, by: string): unknown => ({ form: 'to-model', text, by });
    expect(broughtOf(file(Array.from({ length: 601 }, () => message('x', 'Ann'))))).toMatch(/601 .* 600/);
    const long = 'ü'.repeat(32768); // as long as a message may be
    expect(broughtOf(file([message(long, 'Ann')]))).toMatchObject({ messages: [{ text: long }] });
    expect(broughtOf(file([message(long, 'Ann'), message('', 'Bob')]))).toMatch(/65536/);
    expect(broughtOf(file([{ form: 'answer', text: 'x' }]))).toMatchObject({
      messages: [{ form: 'to-people' }],
    });
  });
});

describe('settings of a conversation', () => {
  const MODEL = modelSettings(USUAL);
  const OTHER = modelSettings({ temperature: 0.6, topK: 20, topP: 0.9, minP: 0.05, repetitionPenalty: 1.1 });

  it('come back from the log as they were', () => {
    const settings = { ...MODEL, seed: 7, maxTokens: 40, instructions: 'Be short.' };
    expect(settingsOfSampling(samplingOfSettings(settings), 'Be short.', OTHER)).toEqual(settings);
    expect(settingsOfSampling(samplingOfSettings(MODEL), '', OTHER)).toEqual(MODEL);
  });

  it('are those of the model where the log says nothing, or nothing that is understood', () => {
    expect(settingsOfSampling([], '', OTHER)).toEqual(OTHER);
    expect(settingsOfSampling([1, 2, 3, 4, 5, 6, 7, -8], '', OTHER)).toEqual(OTHER);
  });
});
