/*
 * @vitest-environment jsdom
 *
 * The field of the person's name: what is typed stays while the page is drawn anew, and is told once.
 */

import { h, render } from 'preact';
import { expect, it } from 'vitest';

import { NameField } from '../../../ui/mesh/name_field';

/** Until the field is drawn anew. */
const drawn = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 20));

it('keeps what is typed while the mesh changes, and tells it trimmed', async () => {
  const told: string[] = [];
  const draw = (name: string): void => {
    render(h(NameField, { name, set: (text: string) => void told.push(text) }), document.body);
  };
  draw('Ann');
  const field = document.querySelector('input');
  if (field === null) throw new Error('expected a field');
  expect([field.value, field.labels?.[0]?.textContent]).toEqual(['Ann', 'Your name']);
  field.value = ' Ada ';
  field.dispatchEvent(new Event('input', { bubbles: true }));
  await drawn();
  draw('Ann of before');
  await drawn();
  expect(field.value).toBe(' Ada ');
  field.dispatchEvent(new Event('change', { bubbles: true }));
  draw('Ada');
  await drawn();
  expect([told, field.value]).toEqual([['Ada'], 'Ada']);
  field.value = 'half typed';
  field.dispatchEvent(new Event('input', { bubbles: true }));
  field.dispatchEvent(new Event('blur'));
  await drawn();
  expect([told, field.value]).toEqual([['Ada'], 'Ada']);
});
