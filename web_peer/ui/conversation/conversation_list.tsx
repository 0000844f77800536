/* The conversations of this person and of the mesh, and the bar above the one that is open. */

import { type Signal, useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';

import { ContextMeter } from './context_meter';
import { answeringOf } from './model_choice';
import { Icon } from '../kit/icons';
import { Disc, Discs } from '../kit/avatar';
import { isPrivate, readersText } from '../kit/readers';
import { RoundButton } from '../kit/round_button';
import type { MeaningView, TalkLine, View } from '../app/view';

/** What is done about one line of the list. */
interface Doing {
  readonly id: string;
  readonly what: 'choosing' | 'renaming' | 'removing';
}

/** The conversations, a field that searches them, and a button for a new one. `done`: one was chosen. */
export function TalkList({ view, done }: { view: View; done?: () => void }) {
  const query = useSignal('');
  const doing = useSignal<Doing | null>(null);
  const lines = view.talks.value;
  const byMeaning = query.value.trim() !== '' && view.meaningModel.value !== '';
  useEffect(() => () => view.actions.search(''), []);
  return (
    <>
      <button
        type="button"
        class="secondary new-talk"
        onClick={() => {
          view.actions.clear();
          done?.();
        }}
      >
        <Icon name="fresh" />
        <span>New conversation</span>
      </button>
      {(lines.length > 0 || query.value !== '') && (
        <label class="find">
          <Icon name="find" />
          <input
            type="search"
            aria-label="Search conversations"
            placeholder="Search"
            value={query.value}
            onInput={(event) => {
              query.value = event.currentTarget.value;
              view.actions.search(query.value);
            }}
            onKeyDown={(event) => {
              if (event.key === 'Enter' && byMeaning) view.actions.searchMeaning(query.value);
            }}
          />
        </label>
      )}
      {byMeaning && (
        <button
          type="button"
          class="secondary by-meaning"
          onClick={() => view.actions.searchMeaning(query.value)}
        >
          Search by meaning
        </button>
      )}
      <Near view={view} done={done} />
      {lines.length === 0 && (
        <p class="hint" role="status">
          {query.value === ''
            ? 'Your conversations appear here, and those of the mesh that you can read.'
            : 'No conversation says that.'}
        </p>
      )}
      <ul class="talk-lines">
        {lines.map((line) => (
          <Line key={line.id} line={line} view={view} doing={doing} done={done} />
        ))}
      </ul>
    </>
  );
}

/** What a search by meaning found, or how far it is. */
function Near({ view, done }: { view: View; done: (() => void) | undefined }) {
  const found = view.meaning.value;
  const model = view.meaningModel.value;
  return (
    <>
      <p class="hint near-about" role="status">
        {nearText(found, model)}
      </p>
      {found.kind === 'found' && (
        <ul class="talk-lines near" aria-label="Near in meaning">
          {found.near.map(({ talk, title, text }) => (
            <li key={talk}>
              <div class="talk-line">
                <button
                  type="button"
                  class="talk-open"
                  onClick={() => {
                    view.actions.show(talk);
                    done?.();
                  }}
                >
                  <span class="talk-title">{title}</span>
                  <span class="talk-about">{text}</span>
                </button>
              </div>
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

function nearText(found: MeaningView, model: string): string {
  switch (found.kind) {
    case 'none':
      return '';
    case 'looking':
      return `${model} reads what was said: ${found.done} of ${found.of}. Peers that hold it see it.`;
    case 'found':
      return found.near.length === 0
        ? 'Nothing was said yet.'
        : `Nearest in meaning to “${found.query}”, by ${model}:`;
    case 'failed':
      return `The search ended: ${found.text}`;
  }
}

interface LineProps {
  readonly line: TalkLine;
  readonly view: View;
  readonly doing: Signal<Doing | null>;
  readonly done: (() => void) | undefined;
}

function Line({ line, view, doing, done }: LineProps) {
  const { id, title, pinned } = line;
  const what = doing.value?.id === id ? doing.value.what : null;
  return (
    <li>
      {what === 'renaming' ? (
        <NameField
          title={title}
          save={(name) => {
            if (name !== '' && name !== title) view.actions.rename(id, name);
            doing.value = null;
          }}
        />
      ) : (
        <div class="talk-line">
          <button
            type="button"
            class="talk-open"
            aria-current={id === view.talk.value.id ? 'true' : undefined}
            onClick={() => {
              view.actions.show(id);
              done?.();
            }}
          >
            <span class="talk-title">
              {pinned && <Icon name="pin" />}
              {pinned && <span class="visually-hidden">Pinned: </span>}
              {title}
            </span>
            <span class="talk-about">{line.excerpt === '' ? aboutText(line) : line.excerpt}</span>
            {line.fresh && (
              <span class="fresh">
                <span class="visually-hidden">, new messages</span>
              </span>
            )}
          </button>
          <button
            type="button"
            class="quiet round talk-more"
            aria-label={`Options for ${title}`}
            title="Pin, rename, delete"
            aria-expanded={what !== null}
            onClick={() => (doing.value = what === null ? { id, what: 'choosing' } : null)}
          >
            <Icon name="more" />
          </button>
        </div>
      )}
      {what === 'choosing' && (
        <div class="buttons talk-acts" role="group" aria-label={`Options for ${title}`}>
          <button
            type="button"
            class="secondary"
            onClick={() => {
              view.actions.pin(id, !pinned);
              doing.value = null;
            }}
          >
            {pinned ? 'Unpin' : 'Pin'}
          </button>
          {line.mayRename && (
            <button type="button" class="secondary" onClick={() => (doing.value = { id, what: 'renaming' })}>
              Rename
            </button>
          )}
          {line.mayRemove && (
            <button type="button" class="secondary" onClick={() => (doing.value = { id, what: 'removing' })}>
              Delete
            </button>
          )}
        </div>
      )}
      {what === 'removing' && (
        <div class="sure" role="alert">
          <p>{removeText(isPrivate(line.readers))}</p>
          <div class="buttons">
            <button
              type="button"
              class="danger"
              onClick={() => {
                view.actions.remove(id);
                doing.value = null;
              }}
            >
              Delete
            </button>
            <button type="button" class="secondary" onClick={() => (doing.value = null)}>
              Cancel
            </button>
          </div>
        </div>
      )}
    </li>
  );
}

/** What is asked before a conversation is deleted. */
export const removeText = (own: boolean): string =>
  own ? 'Delete this conversation?' : 'Delete this conversation for everyone in the mesh?';

function aboutText({ readers, people, takesPart, answering }: TalkLine): string {
  const about = {
    tab: 'Only you, in this tab',
    browser: 'Only you',
    invited: 'Everyone reads, by invitation',
    mesh: 'Everyone',
  }[readers];
  const count = isPrivate(readers) ? '' : people === 1 ? ' · 1 person' : ` · ${people} people`;
  const part = isPrivate(readers) || takesPart ? '' : ' · not joined';
  return `${about}${count}${part}${answering ? ' · answering' : ''}`;
}

function NameField({ title, save }: { title: string; save: (name: string) => void }) {
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => field.current?.select(), []);
  return (
    <form
      class="talk-rename"
      onSubmit={(event) => {
        event.preventDefault();
        save(field.current?.value.trim() ?? '');
      }}
    >
      <input
        ref={field}
        aria-label="Name of the conversation"
        maxLength={120}
        defaultValue={title}
        onKeyDown={(event) => {
          if (event.key !== 'Escape') return;
          event.preventDefault();
          event.stopPropagation();
          save('');
        }}
      />
      <button type="submit" class="primary">
        Save
      </button>
    </form>
  );
}

/** What the open conversation is called, who reads it, who is in it, and the ways to its sheets. */
export function TalkBar({ view, open }: { view: View; open: (sheet: 'talks' | 'talk') => void }) {
  const { id, title, people, typing, readers } = view.talk.value;
  const here = people.filter((person) => person.here);
  const [writer] = people.filter((person) => person.typing);
  const others = here.filter(({ you }) => !you).map(({ name }) => name);
  const own = isPrivate(readers);
  return (
    <div class="talk-bar">
      <RoundButton icon="list" label="Conversations" more="to-list" act={() => open('talks')} />
      <div class="talk-name">
        <h2>{id === '' ? 'New conversation' : title === '' ? 'Untitled' : title}</h2>
        {id !== '' && (
          <p class="readers">
            <Icon name={own ? 'lock' : 'people'} />
            <span>{readersText(readers)}</span>
          </p>
        )}
        {id !== '' && !own && (
          <p>
            {writer !== undefined && <Disc who={writer} />}
            {typing !== ''
              ? typing
              : others.length === 0
                ? 'Nobody else is here'
                : `Here: ${others.join(', ')}`}
          </p>
        )}
      </div>
      <ContextMeter talk={view.talk.value} context={answeringOf(view.mesh.value, view.model.value).context} />
      <RoundButton icon="fresh" label="New conversation" more="to-list" act={() => view.actions.clear()} />
      {id !== '' && (
        <button
          type="button"
          class="quiet who-is-in"
          title="People, links, export"
          onClick={() => open('talk')}
        >
          <span class="visually-hidden">This conversation: people, links, export</span>
          <Discs people={people} />
          <Icon name="more" />
        </button>
      )}
    </div>
  );
}
