/*
 * @vitest-environment jsdom
 *
 * The choice of the model that answers: what is there to choose, and what is said of one that is not there any more.
 */

import { signal } from '@preact/signals';
import { h, render } from 'preact';
import { afterEach, expect, it } from 'vitest';

import type { AnsweringView, MeshView, View } from '../../../ui/app/view';
import { NO_TALK } from '../../../ui/conversation/conversation_view';
import { answeringOf, ModelChoice } from '../../../ui/conversation/model_choice';

const OWN: AnsweringView = {
  name: '',
  label: 'SmolLM2',
  context: 2048,
  answers: true,
  whyNot: '',
  sees: false,
};
const OTHER: AnsweringView = { ...OWN, name: 'other', label: 'other', context: 512 };

afterEach(() => render(null, document.body));

interface Shown {
  readonly select: HTMLSelectElement | null;
  readonly options: readonly string[];
  readonly chosen: readonly string[];
}

function shown(models: readonly AnsweringView[], model: string, more: Partial<View> = {}): Shown {
  const chosen: string[] = [];
  const own = { model: 'SmolLM2', context: 2048, answers: true, whyNot: '' };
  const mesh = { models, hasOwn: models[0]?.name !== 'other', ...own } as unknown as MeshView;
  const view = {
    ...{ mesh: signal(mesh), model: signal(model), talk: signal(NO_TALK), audience: signal('private') },
    ...{ pinEnds: signal({ on: false }), actions: { chooseModel: (name: string) => chosen.push(name) } },
    ...more,
  };
  render(h(ModelChoice, { view: view as unknown as View }), document.body);
  const select = document.querySelector('select');
  return { select, options: [...(select?.options ?? [])].map(({ text }) => text), chosen };
}

it.each([
  ['one model', [OWN], '', []],
  ['no model', [], '', []],
  ['two', [OWN, OTHER], 'other', ['SmolLM2', 'other']],
  ['one that is not ready', [OWN, { ...OTHER, answers: false }], '', ['SmolLM2', 'other (not ready)']],
  ['one that was withdrawn', [OWN], 'gone', ['SmolLM2', 'gone (withdrawn)']],
  ['a mesh without its own', [OTHER], 'other', []],
  ['a mesh that had its own before', [OTHER], '', ['other', 'The model it began with']],
] as const)('of %s offers what there is', (_, models, model, options) => {
  const { select, options: found } = shown(models, model);
  expect(found).toEqual(options);
  expect(select?.value).toBe(options.length === 0 ? undefined : model);
});

it('is told by its name, and has one for who does not see it', () => {
  const { select, chosen } = shown([OWN, OTHER], '');
  expect(select?.labels[0]?.textContent).toBe('Model');
  if (select === null) throw new Error('nothing to choose');
  select.value = 'other';
  select.dispatchEvent(new Event('change', { bubbles: true }));
  expect(chosen).toEqual(['other']);
});

it('stays with the mesh’s own where words stay in this tab', () => {
  const pinEnds = signal({ on: true }) as unknown as View['pinEnds'];
  expect(shown([OWN, OTHER], '', { pinEnds }).select).toMatchObject({
    ...{ disabled: true, title: 'Words stay in this tab with SmolLM2 alone' },
  });
});

it('a model that was withdrawn answers nothing, and says so', () => {
  const mesh = {
    ...{ models: [OWN], hasOwn: true },
    model: 'SmolLM2',
    context: 2048,
    answers: true,
    whyNot: '',
  };
  expect(answeringOf(mesh as unknown as MeshView, '')).toBe(OWN);
  expect(answeringOf(mesh as unknown as MeshView, 'gone')).toMatchObject({
    ...{ answers: false, whyNot: 'gone is not offered any more: choose another model.' },
  });
  const without = { ...mesh, models: [OTHER], hasOwn: false };
  expect(answeringOf(without as unknown as MeshView, '')).toMatchObject({
    ...{ answers: false, whyNot: 'This mesh has no model of its own: choose one that answers here.' },
  });
});
