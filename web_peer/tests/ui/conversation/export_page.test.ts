/*
 * @vitest-environment jsdom
 *
 * A conversation as a page to share: it has what is shown, in order, and nothing in it runs, loads or leads anywhere.
 */

import { expect, it } from 'vitest';

import { asPage } from '../../../ui/conversation/export_page';
import type { AnswerState, Talk, Turn } from '../../../ui/app/view';

const ANN = { id: 'ann', name: 'Ann', colour: '#000000', you: true };
const DONE: AnswerState = { kind: 'done', facts: { tokens: 2, firstTokenS: 0, tokensPerS: 0, route: [] } };
const ONE = { at: 1, of: 1 };

function turn(more: Partial<Turn>): Turn {
  const said = { id: '1', who: ANN, toPeople: false, question: 'Why?', pictures: [] };
  const rest = { branch: ONE, answer: 'Because.' };
  return { ...said, ...rest, model: '', asker: null, answers: ONE, state: DONE, open: false, ...more };
}

function pageOf(turns: readonly Turn[], title = 'Fish', system = ''): Document {
  return new DOMParser().parseFromString(asPage({ title, turns } as Talk, system), 'text/html');
}

it('has the title, the instructions and every message in order', () => {
  const turns = [
    turn({ answer: 'A **fish**.\n\n| a | b |\n|---|---|\n| 1 | 2 |' }),
    turn({ question: 'Lunch?', toPeople: true, answer: '', state: { kind: 'none' } }),
    turn({ question: 'More', answer: 'cut', state: { kind: 'stopped', why: 'hand', facts: null } }),
  ];
  const page = pageOf(turns, 'Fish & chips', 'Be\nshort.');
  expect(page.title).toBe('Fish & chips');
  expect(page.querySelector('h1')?.textContent).toBe('Fish & chips');
  expect(page.documentElement.lang).toBe('en');
  expect(page.querySelector('blockquote')?.textContent).toBe('Be\nshort.');
  const articles = [...page.querySelectorAll('article')];
  expect(articles.map((one) => [...one.querySelectorAll('.by')].map((by) => by.textContent))).toEqual([
    ['Ann', 'Model'],
    ['Ann (to people)'],
    ['Ann', 'Model (stopped)'],
  ]);
  expect(articles[0]?.querySelector('strong')?.textContent).toBe('fish');
  expect(articles[0]?.querySelectorAll('td')).toHaveLength(2);
  expect(pageOf([], '').querySelector('h1')?.textContent).toBe('Conversation');
});

it('is read-only, and its policy lets nothing run or load', () => {
  const page = pageOf([turn({ answer: '```js\nconst a = 1;\n```' })]);
  const policy = page.querySelector('meta[http-equiv="Content-Security-Policy"]');
  expect(policy?.getAttribute('content')).toBe("default-src 'none'; style-src 'unsafe-inline'");
  expect(page.querySelector('meta[name=referrer]')?.getAttribute('content')).toBe('no-referrer');
  expect(page.querySelectorAll('form, input, textarea, script, link, [contenteditable]')).toHaveLength(0);
  expect(page.querySelector('style')?.textContent).toContain('.code-bar button{display:none}');
});

it.each([
  '<script>alert(1)</script>',
  '</title><img src=x onerror=alert(1)>',
  '"><svg onload=alert(1)>',
  "' onmouseover='alert(1)",
  '</main></body><iframe src="https://example.org"></iframe>',
])('shows %j as text wherever it stands', (hostile) => {
  const who = { ...ANN, name: hostile };
  const page = pageOf([turn({ who, question: hostile, answer: hostile })], hostile, hostile);
  expect(page.title).toBe(hostile);
  expect(page.querySelector('h1')?.textContent).toBe(hostile);
  expect(page.querySelector('blockquote')?.textContent).toBe(hostile);
  expect([...page.querySelectorAll('article > .said')].map((one) => one.textContent)).toEqual([hostile]);
  expect(page.querySelector('.by')?.textContent).toBe(hostile);
  expect(page.querySelectorAll('script, img, svg, iframe')).toHaveLength(0);
  const handlers = [...page.querySelectorAll('*')].flatMap((one) =>
    one.getAttributeNames().filter((name) => name.startsWith('on')),
  );
  expect(handlers).toEqual([]);
});
