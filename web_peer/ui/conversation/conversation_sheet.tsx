/* The sheet about the open conversation: its name, who takes part and may do what, taking it along, ending it. */

import { useSignal } from '@preact/signals';
import { useRef } from 'preact/hooks';

import { titleOf } from './conversation_view';
import { Dialog } from '../kit/dialog';
import { EntrySection } from '../join/invite_section';
import { Icon } from '../kit/icons';
import { Disc } from '../kit/avatar';
import type { Person, Role, View } from '../app/view';

const ROLES: Readonly<Record<Role, string>> = {
  owner: 'Owner: decides all',
  member: 'Member: asks',
  viewer: 'Viewer: reads',
};

function save(text: string, name: string, type: string): void {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement('a');
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

function PersonLine({ person, rule, view }: { person: Person; rule: boolean; view: View }) {
  const { id, name, role, you, here } = person;
  return (
    <li>
      <Disc who={person} away={!here} />
      <span class="person-name">
        <strong>{name}</strong>
        {you && <span class="tag">you</span>}
        <span class="does">{here ? 'here' : 'away'}</span>
      </span>
      {rule && !you ? (
        <>
          <select
            aria-label={`What ${name} may do`}
            value={role}
            onChange={(event) => view.actions.setRole(id, event.currentTarget.value as Role)}
          >
            {Object.entries(ROLES).map(([value, text]) => (
              <option key={value} value={value}>
                {text}
              </option>
            ))}
          </select>
          <button
            type="button"
            class="quiet small"
            aria-label={`Take ${name} out`}
            title={`Take ${name} out of this conversation`}
            onClick={() => view.actions.putOut(id)}
          >
            <Icon name="close" />
          </button>
        </>
      ) : (
        <span class="does">{ROLES[role]}</span>
      )}
    </li>
  );
}

/** The sheet about the open conversation. */
export function TalkSheet({ view, close }: { view: View; close: () => void }) {
  const { title, people, mayRule, mayTake, mayWrite, id, own } = view.talk.value;
  const sure = useSignal(false);
  const file = useRef<HTMLInputElement>(null);
  const mine = people.find(({ you }) => you);
  const name = titleOf(title).replaceAll(/[^\p{L}\p{N}]+/gu, '-') || 'conversation';
  return (
    <Dialog title="This conversation" close={close}>
      {mayWrite && (
        <label class="field">
          <span>Name of the conversation</span>
          <input
            value={title}
            maxLength={120}
            onChange={(event) => view.actions.rename(event.currentTarget.value.trim())}
          />
        </label>
      )}
      {own && (
        <p class="hint">
          It is in this tab only, and ends with it. Take it along below if you want to keep it.
        </p>
      )}
      {!own && (
        <label class="field">
          <span>Your name, for the others</span>
          <input
            value={mine?.name ?? ''}
            maxLength={40}
            autoComplete="nickname"
            onChange={(event) => {
              const called = event.currentTarget.value.trim();
              if (called !== '') view.actions.callMe(called);
            }}
          />
        </label>
      )}
      {!own && (
        <section class="persons" aria-label="Who takes part">
          <h3>Who takes part</h3>
          <ul>
            {people.map((person) => (
              <PersonLine key={person.id} person={person} rule={mayRule} view={view} />
            ))}
          </ul>
          <p class="hint">
            Roles say who may write. Everybody in the mesh can read: invite only people who may.
          </p>
        </section>
      )}
      {mayRule && !own && id !== '' && <EntrySection view={view} />}
      {mayTake && mine !== undefined && (
        <div class="buttons">
          <button type="button" class="secondary" onClick={() => view.actions.setRole(mine.id, 'owner')}>
            No owner is here: become one
          </button>
        </div>
      )}
      <div class="buttons">
        <button
          type="button"
          class="secondary"
          onClick={() => save(view.actions.exported('markdown'), `${name}.md`, 'text/markdown')}
        >
          <Icon name="save" />
          <span>Markdown</span>
        </button>
        <button
          type="button"
          class="secondary"
          onClick={() => save(view.actions.exported('json'), `${name}.json`, 'application/json')}
        >
          <Icon name="save" />
          <span>JSON</span>
        </button>
        <button type="button" class="secondary" onClick={() => file.current?.click()}>
          <Icon name="bring" />
          <span>Bring one in…</span>
        </button>
        <input
          ref={file}
          type="file"
          accept="application/json,.json"
          hidden
          aria-label="A conversation that was exported as JSON"
          onChange={(event) => {
            const chosen = event.currentTarget.files?.[0];
            void chosen?.text().then((text) => {
              view.actions.imported(text);
              close();
            });
          }}
        />
      </div>
      {mayRule && id !== '' && !sure.value && (
        <div class="buttons">
          <button type="button" class="quiet" onClick={() => (sure.value = true)}>
            <Icon name="remove" />
            <span>{own ? 'Remove it' : 'Remove for everybody'}</span>
          </button>
        </div>
      )}
      {sure.value && (
        <div class="sure" role="alert">
          <p>All that was said here goes{own ? '' : ', for everybody in the mesh'}.</p>
          <div class="buttons">
            <button
              type="button"
              class="danger"
              onClick={() => {
                view.actions.remove();
                close();
              }}
            >
              Remove it
            </button>
            <button type="button" class="secondary" onClick={() => (sure.value = false)}>
              Keep it
            </button>
          </div>
        </div>
      )}
    </Dialog>
  );
}
