/*
 * @vitest-environment jsdom
 *
 * The list of conversations where an embedding model is served: a search by meaning, by the keyboard alone.
 */

import { signal } from '@preact/signals';
import { h, render } from 'preact';
import { act } from 'preact/test-utils';
import { afterEach, expect, it } from 'vitest';

import type { MeaningView, TalkLine, View } from '../../../ui/app/view';
import { TalkList } from '../../../ui/conversation/conversation_list';
import { NO_TALK } from '../../../ui/conversation/conversation_view';

const LINE = { id: 'a', title: 'Colours', excerpt: '', readers: 'browser', people: 1 } as unknown as TalkLine;
const NEAR: MeaningView = {
  kind: 'found',
  query: 'heavens',
  near: [{ talk: 'a', title: 'Colours', text: 'the sky is blue' }],
};

afterEach(() => render(null, document.body));

/** Does it, and lets the page follow. */
const doing = (work: () => unknown): void => {
  void act(() => {
    work();
  });
};

function shown(model: string) {
  const meaning = signal<MeaningView>({ kind: 'none' });
  const asked: string[] = [];
  const opened: string[] = [];
  const actions = {
    search: () => undefined,
    searchMeaning: (query: string) => asked.push(query),
    show: (talk: string) => opened.push(talk),
  };
  const view = {
    talks: signal([LINE]),
    talk: signal(NO_TALK),
    meaning,
    meaningModel: signal(model),
    actions,
  };
  doing(() => render(h(TalkList, { view: view as unknown as View }), document.body));
  const field = document.querySelector('input');
  if (field === null) throw new Error('nothing to type into');
  const press = (key: string) => doing(() => field.dispatchEvent(new KeyboardEvent('keydown', { key })));
  doing(() => {
    field.value = 'heavens';
    field.dispatchEvent(new Event('input', { bubbles: true }));
  });
  return { meaning, asked, opened, press, button: document.querySelector<HTMLButtonElement>('.by-meaning') };
}

it('asks by Enter or by the button, and leads to what was found', () => {
  const { meaning, asked, opened, press, button } = shown('minilm');
  press('Enter');
  button?.click();
  expect(asked).toEqual(['heavens', 'heavens']);
  doing(() => (meaning.value = NEAR));
  const found = document.querySelector('.near');
  expect(found?.getAttribute('aria-label')).toBe('Near in meaning');
  expect(document.querySelector('.near-about')?.textContent).toContain('“heavens”, by minilm');
  found?.querySelector('button')?.click();
  expect(opened).toEqual(['a']);
});

it('says how far it is, who reads, and what went wrong', () => {
  const { meaning } = shown('minilm');
  const said = () => document.querySelector('[role=status].near-about')?.textContent;
  doing(() => (meaning.value = { kind: 'looking', done: 3, of: 9 }));
  expect(said()).toBe('minilm reads what was said: 3 of 9. Peers that hold it see it.');
  doing(() => (meaning.value = { kind: 'failed', text: 'nobody holds it' }));
  expect(said()).toBe('The search ended: nobody holds it');
});

it('is not there without an embedding model', () => {
  const { asked, press, button } = shown('');
  press('Enter');
  expect(button).toBeNull();
  expect(asked).toEqual([]);
});
