/*
 * @vitest-environment jsdom
 *
 * Settings beside those of the model. Instructions by preset: the built-in ones, those that a person saved, and what
 * becomes of a damaged store.
 */

import { signal } from '@preact/signals';
import { h, render } from 'preact';
import { afterEach, beforeEach, expect, it } from 'vitest';

import { keepPresets, keptPresets, modelSettings } from '../../../ui/conversation/saved_choices';
import { SettingsSheet } from '../../../ui/conversation/settings_sheet';
import type { AskSettings, View } from '../../../ui/app/view';

const MODEL = modelSettings({ temperature: 0.7, topP: 0.95, topK: 0, minP: 0, repetitionPenalty: 1.1 });
const PIRATE = 'Answer as a pirate would.';

beforeEach(() => {
  localStorage.clear();
  HTMLDialogElement.prototype.showModal = function (): void {
    this.open = true; // jsdom has no modal dialogs
  };
  HTMLDialogElement.prototype.close = function (): void {
    this.open = false;
  };
});
afterEach(() => render(null, document.body));

/** The sheet with `instructions` set; what it changes stays. */
function opened(instructions = ''): { readonly settings: { readonly value: AskSettings } } {
  const settings = signal<AskSettings>({ ...MODEL, instructions });
  const change = (next: Partial<AskSettings>): AskSettings =>
    (settings.value = { ...settings.value, ...next });
  const view = { settings, modelSettings: signal(MODEL), actions: { setSettings: change } };
  render(h(SettingsSheet, { view: view as unknown as View, close: () => undefined }), document.body);
  return { settings };
}

const options = (): string[] => [...presets().options].map(({ text }) => text.trim());
function presets(): HTMLSelectElement {
  const found = document.querySelector<HTMLSelectElement>('select[aria-label=Preset]');
  if (found === null) throw new Error('no presets');
  return found;
}
function choose(name: string): void {
  presets().value = String(options().indexOf(name) - 1);
  presets().dispatchEvent(new Event('change', { bubbles: true }));
}
function press(name: string): void {
  [...document.querySelectorAll('button')].find((one) => one.textContent === name)?.click();
}
/** Until the sheet is drawn anew. */
const drawn = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 0));

it('a setting names the value of the model while it has another', async () => {
  opened();
  const hint = (): string => document.querySelector('#top-p-hint')?.textContent ?? '';
  expect(document.body.textContent).toContain('the model’s own values until you change them');
  expect(hint()).toMatch(/1 is off\.$/);
  const slider = document.querySelector<HTMLInputElement>('#top-p');
  if (slider === null) throw new Error('no slider');
  slider.value = '0.5';
  slider.dispatchEvent(new Event('input', { bubbles: true }));
  await drawn();
  expect(hint()).toMatch(/1 is off\. The model’s is 0\.95\.$/);
});

it('a preset becomes the instructions, and “No instructions” takes them back', async () => {
  const { settings } = opened();
  expect(options()[0]).toBe('Choose a preset');
  choose('Proofread');
  await drawn();
  expect(settings.value.instructions).toContain('Correct spelling');
  expect(document.querySelector('textarea')?.value).toBe(settings.value.instructions);
  expect(presets().selectedOptions[0]?.text).toBe('Proofread');
  choose('No instructions');
  await drawn();
  expect(settings.value.instructions).toBe('');
});

it('one’s own are saved under their first words, chosen at the next visit, and deleted', async () => {
  opened(PIRATE);
  expect(presets().selectedOptions[0]?.text).toBe('Custom');
  press('Save as preset');
  await drawn();
  expect(keptPresets()).toEqual([{ name: PIRATE, text: PIRATE }]);
  render(null, document.body);
  const { settings } = opened();
  choose(PIRATE);
  await drawn();
  expect(settings.value.instructions).toBe(PIRATE);
  expect(document.body.textContent).not.toContain('Save as preset'); // it is one
  press('Delete preset');
  await drawn();
  expect(keptPresets()).toEqual([]);
  expect(options()).not.toContain(PIRATE);
  expect(settings.value.instructions).toBe(PIRATE);
});

it('a built-in one is not deleted', () => {
  opened('Answer in one short paragraph.');
  expect(presets().selectedOptions[0]?.text).toBe('Short answers');
  expect(document.body.textContent).not.toContain('Delete preset');
});

it.each(['{', '7', 'null', '[null, 7, {"name":""}, {"name":"x"}, {"name":"x","text":5}]'])(
  'none come of a store that says %s',
  (kept) => {
    localStorage.setItem('shoal.presets', kept);
    expect(keptPresets()).toEqual([]);
  },
);

it('at most 50 are kept, the last ones', () => {
  keepPresets(Array.from({ length: 60 }, (_, at) => ({ name: String(at), text: 'x' })));
  expect(keptPresets().map(({ name }) => name)).toEqual(
    Array.from({ length: 50 }, (_, at) => String(at + 10)),
  );
});
