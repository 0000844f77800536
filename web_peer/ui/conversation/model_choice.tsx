/* Which model answers the open conversation, where the mesh has several that answer in words. */

import { useId } from 'preact/hooks';

import type { AnsweringView, MeshView, View } from '../app/view';

/**
 * The model of that name ("": the mesh's own) as the mesh has it now. One that was withdrawn answers nothing, and says
 * so.
 */
export function answeringOf(
  { models, answers, whyNot, context, model, hasOwn }: MeshView,
  name: string,
): AnsweringView {
  const found = models.find((each) => each.name === name);
  if (found !== undefined) return found;
  if (name === '' && hasOwn) return { name, label: model, context, answers, whyNot, sees: false };
  const why =
    name === ''
      ? 'This mesh has no model of its own: choose one that answers here.'
      : `${name} is not offered any more: choose another model.`;
  return {
    name,
    label: name || 'The model it began with',
    context: 0,
    answers: false,
    whyNot: why,
    sees: false,
  };
}

/** A list of the models to choose from; nothing where there is no choice. */
export function ModelChoice({ view }: { view: View }) {
  const id = useId();
  const mesh = view.mesh.value;
  const chosen = answeringOf(mesh, view.model.value);
  const isGone = !mesh.models.some(({ name }) => name === chosen.name);
  if (mesh.models.length < 2 && !(isGone && (chosen.name !== '' || !mesh.hasOwn))) return null;
  const { id: open, readers, mayWrite } = view.talk.value;
  const staysHere =
    open === '' ? view.pinEnds.value.on && view.audience.value === 'private' : readers === 'tab';
  return (
    <div class="model-choice">
      <label for={id}>Model</label>
      <select
        id={id}
        value={chosen.name}
        disabled={staysHere || !mayWrite}
        title={staysHere ? `Words stay in this tab with ${mesh.model} alone` : ''}
        onChange={(event) => view.actions.chooseModel(event.currentTarget.value)}
      >
        {mesh.models.map(({ name, label, answers }) => (
          <option key={name} value={name}>
            {answers ? label : `${label} (not ready)`}
          </option>
        ))}
        {isGone && (
          <option value={chosen.name} disabled>
            {chosen.name === '' ? chosen.label : `${chosen.label} (withdrawn)`}
          </option>
        )}
      </select>
    </div>
  );
}
