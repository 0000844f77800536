/*
 * @vitest-environment jsdom
 *
 * Inviting somebody: into the open conversation first, of a private one into a copy, and to the mesh.
 */

import { signal } from '@preact/signals';
import { h, render } from 'preact';
import { afterEach, beforeEach, expect, it } from 'vitest';

import { ShareSheet } from '../../../ui/join/share_sheet';
import type { Talk, View } from '../../../ui/app/view';

beforeEach(() => {
  HTMLDialogElement.prototype.showModal = function (): void {
    this.open = true; // jsdom has no modal dialogs
  };
  HTMLDialogElement.prototype.close = function (): void {
    this.open = false;
  };
});
afterEach(() => render(null, document.body));

/** The sheet over `talk`; audiences of copies that were asked for. */
function opened(talk: Partial<Talk>): string[] {
  const copies: string[] = [];
  const shown = signal({
    id: 'c',
    mayRule: true,
    byInvite: true,
    offers: [],
    out: [],
    ...talk,
  } as unknown as Talk);
  const actions = {
    shareCopy: (audience: string) => {
      copies.push(audience);
      shown.value = { ...shown.value, id: 'copy', readers: 'invited' };
    },
  };
  const view = { talk: shown, link: signal('https://mesh.example.org/#a.b'), actions } as unknown as View;
  render(h(ShareSheet, { view, close: () => undefined }), document.body);
  return copies;
}

const headings = (): string[] => [...document.querySelectorAll('h3')].map((heading) => heading.textContent);
const buttons = (): string[] =>
  [...document.querySelectorAll('.entry button')].map((button) => button.textContent);

it('leads into the open conversation before it leads into the mesh alone', () => {
  opened({ readers: 'invited' });
  expect(headings()).toEqual(['Invite to this conversation', 'Invite to the mesh']);
  expect(buttons()).toEqual(['Invite to write', 'Read-only link']);
});

it('offers no link into a private conversation, but a copy, and then a link into that', async () => {
  const copies = opened({ readers: 'browser' });
  expect(headings()).toEqual(['Share a copy', 'Invite to the mesh']);
  expect(buttons()).toEqual(['With invited people', 'With everyone']);
  document.querySelector<HTMLButtonElement>('.entry button')?.click();
  await Promise.resolve();
  expect(copies).toEqual(['invited']);
  await new Promise((resolve) => setTimeout(resolve, 0)); // drawn anew
  expect(buttons()).toEqual(['Invite to write', 'Read-only link']);
  expect(document.activeElement?.querySelector('.entry')).not.toBeNull(); // the keyboard goes on there
});

it.each([
  [{ id: '' }, true],
  [{ readers: 'mesh', mayRule: false }, false],
] as const)('of %j has the link of the mesh alone, and says how to invite into one: %s', (talk, says) => {
  opened(talk);
  expect(headings()).toEqual([]);
  expect(document.querySelector<HTMLInputElement>('input[readonly]')?.value).toContain('mesh.example.org');
  expect(document.body.textContent.includes('choose “Invited people”')).toBe(says);
});
