/* Where a person writes: to the model, or to people only. */

import { useSignal } from '@preact/signals';
import { useLayoutEffect, useRef } from 'preact/hooks';

import { isAnswering } from './conversation_view';
import { Icon } from '../kit/icons';
import type { View } from '../app/view';

const MOST_ROWS_PX = 168;

/** The field to write in, with its buttons. */
export function Composer({ view }: { view: View }) {
  const draft = useSignal('');
  const toPeople = useSignal(false);
  const field = useRef<HTMLTextAreaElement>(null);
  const { id, turns, mayWrite, people, own } = view.talk.value;
  const pins = view.pinEnds.value.on;
  const stays = own || (id === '' && pins);
  const answering = isAnswering(turns);
  const { answers, whyNot } = view.mesh.value;
  const inMesh = view.phase.value.kind === 'in';
  const toOthers = toPeople.value && !stays;
  const ready = inMesh && (answers || toOthers);
  const isEmpty = draft.value.trim() === '';

  useLayoutEffect(() => {
    const area = field.current;
    if (area === null) return;
    area.style.height = 'auto';
    area.style.height = `${Math.min(area.scrollHeight, MOST_ROWS_PX)}px`;
  }, [draft.value]);

  const send = (): void => {
    const text = draft.value.trim();
    if (text === '' || !ready) return;
    draft.value = '';
    view.actions.ask(text, toOthers);
  };

  if (!mayWrite) {
    return (
      <div class="composer">
        <p class="reads">
          <Icon name="people" />
          <span>
            You read along in this conversation. {ownersText(people)} can let you write. A new one of your own
            is always open to you.
          </span>
        </p>
      </div>
    );
  }
  return (
    <form
      class={toOthers ? 'composer is-to-people' : 'composer'}
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <div class="composer-box">
        <textarea
          id="question"
          ref={field}
          rows={1}
          value={draft.value}
          placeholder={placeholder(answers, toOthers)}
          aria-label={toOthers ? 'Your message to people' : 'Your question'}
          aria-describedby="composer-hint"
          onInput={(event) => {
            draft.value = event.currentTarget.value;
            view.actions.writes(draft.value.trim() !== '');
          }}
          onKeyDown={(event) => {
            if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
            event.preventDefault();
            send();
          }}
        />
        {!stays && (
          <button
            type="button"
            class="quiet round to-whom"
            aria-pressed={toPeople.value}
            aria-label="To people only"
            title="To people only: the model does not read it"
            onClick={() => (toPeople.value = !toPeople.value)}
          >
            <Icon name="people" />
          </button>
        )}
        {answering && isEmpty ? (
          <button
            type="button"
            class="primary round"
            aria-label="Stop the answer"
            title="Stop (Esc)"
            onClick={() => view.actions.stop()}
          >
            <Icon name="stop" />
          </button>
        ) : (
          <button
            type="submit"
            class="primary round"
            aria-label="Send"
            title="Send (Enter)"
            disabled={isEmpty || !ready}
          >
            <Icon name="send" />
          </button>
        )}
      </div>
      <p class={ready || whyNot === '' ? 'hint' : 'hint is-why'} id="composer-hint">
        {ready || whyNot === '' ? hint(toOthers, answering && !isEmpty, pins && !stays) : whyNot}
      </p>
    </form>
  );
}

function placeholder(answers: boolean, toPeople: boolean): string {
  if (toPeople) return 'Write to the people here';
  return answers ? 'Ask the mesh' : 'Write your question; it can be sent when the mesh is ready';
}

function hint(toPeople: boolean, waits: boolean, isShared: boolean): string {
  if (isShared) return 'Everyone in the mesh reads this conversation: only new ones stay in this tab.';
  if (toPeople) return 'Only people read this; the model does not.';
  if (waits) return 'An answer is under way: your question comes next.';
  return 'A small model can be wrong. Enter sends, Shift Enter makes a new line.';
}

function ownersText(people: View['talk']['value']['people']): string {
  const owners = people.filter(({ role }) => role === 'owner').map(({ name }) => name);
  return owners.length === 0 ? 'An owner' : owners.join(' or ');
}
