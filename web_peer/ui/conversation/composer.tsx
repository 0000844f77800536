/* Where a person writes: to the model, or to people only. */

import { useSignal } from '@preact/signals';
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';

import { isAnswering } from './conversation_view';
import { answeringOf, ModelChoice } from './model_choice';
import { AddPicture, filesOf, PickedList } from './pictures';
import { Dictate, DictationBar, inserted } from './dictation_bar';
import { Icon } from '../kit/icons';
import { isPrivate, whoReads } from '../kit/readers';
import type { Audience, View } from '../app/view';

const MOST_ROWS_PX = 168;
const AUDIENCES: readonly (readonly [audience: Audience, label: string])[] = [
  ['private', 'Only you'],
  ['invited', 'Invited people'],
  ['mesh', 'Everyone'],
];

/** Whom the conversation is for that begins with the next message, in one line. */
function AudienceChoice({ view }: { view: View }) {
  return (
    <div class="audience" role="radiogroup" aria-labelledby="audience-label">
      <span class="audience-label" id="audience-label">
        Who takes part?
      </span>
      {AUDIENCES.map(([audience, label]) => (
        <label key={audience}>
          <input
            type="radio"
            name="audience"
            value={audience}
            checked={view.audience.value === audience}
            onChange={() => view.actions.choose(audience)}
          />
          <span>{label}</span>
        </label>
      ))}
    </div>
  );
}

/** The field to write in, with its buttons. */
export function Composer({ view }: { view: View }) {
  const draft = useSignal('');
  const toPeople = useSignal(false);
  const field = useRef<HTMLTextAreaElement>(null);
  const { id, turns, mayWrite, mayEnter, takesPart, people, readers } = view.talk.value;
  const pins = view.pinEnds.value.on;
  const isNew = id === '';
  const stays = isNew ? view.audience.value === 'private' : isPrivate(readers);
  const answering = isAnswering(turns);
  const { answers, whyNot: notNow, sees, label } = answeringOf(view.mesh.value, view.model.value);
  const picked = view.picked.value.length > 0;
  const others = view.mesh.value.models.filter((each) => each.sees).map((each) => each.label);
  const cannotSee = picked && !sees && !toPeople.value;
  const whyNot = cannotSee ? blindText(label, others) : notNow;
  const inMesh = view.phase.value.kind === 'in';
  const toOthers = toPeople.value && !stays;
  const ready = inMesh && ((answers && !cannotSee) || toOthers);
  const isEmpty = draft.value.trim() === '' && (!picked || toOthers);

  useLayoutEffect(() => {
    const area = field.current;
    if (area === null) return;
    area.style.height = 'auto';
    area.style.height = `${Math.min(area.scrollHeight, MOST_ROWS_PX)}px`;
  }, [draft.value]);

  const { id: said, text: dictated } = view.dictated.value;
  const seen = useRef(said);
  useEffect(() => {
    const area = field.current;
    if (said === seen.current || area === null) return;
    seen.current = said;
    const made = inserted(draft.peek(), dictated, area.selectionStart, area.selectionEnd);
    draft.value = area.value = made.text;
    area.focus();
    area.setSelectionRange(made.caret, made.caret);
  }, [said]);

  const send = (): void => {
    const text = draft.value.trim();
    if (isEmpty || !ready) return;
    draft.value = '';
    view.actions.ask(text, toOthers);
  };

  useEffect(() => {
    const isTouch = matchMedia('(pointer: coarse)').matches; // there it would raise the keyboard
    if (!isTouch && document.querySelector('dialog[open]') === null) field.current?.focus();
  }, [id, mayWrite]);

  if (!mayWrite) {
    return (
      <div class="composer">
        <div class="reads">
          <Icon name="people" />
          <p>{readsText(takesPart, mayEnter, people)}</p>
          {mayEnter && (
            <button type="button" class="primary" onClick={() => view.actions.takePart()}>
              Take part
            </button>
          )}
        </div>
      </div>
    );
  }
  return (
    <form
      class={`composer${isNew ? ' is-new' : ''}${toOthers ? ' is-to-people' : ''}`}
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      {isNew && <AudienceChoice view={view} />}
      <ModelChoice view={view} />
      {!toOthers && <PickedList view={view} />}
      <DictationBar view={view} />
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
          onPaste={(event) => {
            const files = filesOf(event.clipboardData);
            if (!sees || toOthers || files.length === 0) return;
            event.preventDefault();
            view.actions.addPictures(files);
          }}
          onKeyDown={(event) => {
            if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
            event.preventDefault();
            send();
          }}
        />
        {sees && !toOthers && <AddPicture view={view} />}
        {view.mesh.value.writes !== '' && <Dictate view={view} />}
        {!stays && (
          <button
            type="button"
            class="quiet round to-whom"
            aria-pressed={toPeople.value}
            aria-label="Message people"
            title="Message people: the model does not read it"
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
            title="Stop (Alt .)"
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
        {ready || whyNot === '' ? hint() : whyNot}
      </p>
    </form>
  );

  function hint(): string {
    if (isNew) return whoReads(view.audience.value, pins);
    if (pins && !stays)
      return 'Everyone in the mesh can read this conversation: only private ones stay in this tab.';
    if (toOthers) return 'Only people read this; the model does not.';
    if (!sees && others.length > 0) return `To ask about a picture, choose ${others.join(' or ')}.`;
    if (answering && !isEmpty) return 'An answer is under way: your question comes next.';
    return 'A small model can be wrong. Enter sends, Shift Enter makes a new line.';
  }
}

/** Why a question with pictures cannot be asked. */
function blindText(label: string, others: readonly string[]): string {
  const choice = others.length > 0 ? `, or choose ${others.join(' or ')}` : '';
  return `${label} takes no pictures: remove them${choice}.`;
}

/** Why this person cannot write. */
function readsText(takesPart: boolean, mayEnter: boolean, people: View['talk']['value']['people']): string {
  if (mayEnter) return 'You are reading. The others see you once you take part.';
  const ask = `${ownersText(people)} can ${takesPart ? 'let you write' : 'invite you'}.`;
  return takesPart
    ? `You can read this conversation. ${ask}`
    : `You can read this conversation; it is by invitation. ${ask}`;
}

function placeholder(answers: boolean, toPeople: boolean): string {
  if (toPeople) return 'Write to the people here';
  return answers ? 'Ask the mesh' : 'Write now, send later';
}

function ownersText(people: View['talk']['value']['people']): string {
  const owners = people.filter(({ role }) => role === 'owner').map(({ name }) => name);
  return owners.length === 0 ? 'An owner' : owners.join(' or ');
}
