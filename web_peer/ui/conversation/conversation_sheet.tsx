/* The sheet about the open conversation: its name, who takes part and may do what, taking it along, ending it. */

import { useSignal } from '@preact/signals';
import { useRef } from 'preact/hooks';

import { titleOf } from './conversation_view';
import { removeText } from './conversation_list';
import { Dialog } from '../kit/dialog';
import { NameField } from '../mesh/name_field';
import { CopySection, EntrySection } from '../join/invite_section';
import { Icon } from '../kit/icons';
import { Disc } from '../kit/avatar';
import { isPrivate, readersText } from '../kit/readers';
import type { Person, Role, View } from '../app/view';

const ROLES: Readonly<Record<Role, string>> = {
  owner: 'Owner',
  member: 'Member',
  viewer: 'Viewer',
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
            aria-label={`Role of ${name}`}
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
            aria-label={`Remove ${name}`}
            title={`Remove ${name} from this conversation`}
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
  const { title, people, mayRule, mayTake, mayWrite, id, readers } = view.talk.value;
  const own = isPrivate(readers);
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
            onChange={(event) => view.actions.rename(id, event.currentTarget.value.trim())}
          />
        </label>
      )}
      <p class="readers">
        <Icon name={own ? 'lock' : 'people'} />
        <span>{readersText(readers)}</span>
      </p>
      {own && <CopySection view={view} copied={close} />}
      {!own && (
        <NameField name={mine?.name ?? view.mine.value.name} set={(name) => view.actions.callMe(name)} />
      )}
      {!own && (
        <section class="persons" aria-label="People">
          <h3>People</h3>
          <ul>
            {people.map((person) => (
              <PersonLine key={person.id} person={person} rule={mayRule} view={view} />
            ))}
          </ul>
          <p class="hint">
            Owners and members write, viewers read, and owners also manage people. Everyone in the mesh can
            read, whatever their role here.
          </p>
        </section>
      )}
      {mayRule && !own && id !== '' && <EntrySection view={view} />}
      {mayTake && mine !== undefined && (
        <div class="buttons">
          <button type="button" class="secondary" onClick={() => view.actions.setRole(mine.id, 'owner')}>
            Become an owner: none is here
          </button>
        </div>
      )}
      <section class="entry" aria-label="Export and import">
        <h3>Export and import</h3>
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
            title="A read-only web page in one file, to send or put on a site"
            onClick={() => save(view.actions.exported('page'), `${name}.html`, 'text/html')}
          >
            <Icon name="save" />
            <span>Web page</span>
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
            <span>Import…</span>
          </button>
          <input
            ref={file}
            type="file"
            accept="application/json,.json"
            hidden
            aria-label="Import a conversation from a JSON file"
            onChange={(event) => {
              const chosen = event.currentTarget.files?.[0];
              if (chosen === undefined) return;
              view.actions.importFile(chosen);
              close();
            }}
          />
        </div>
      </section>
      {mayRule && id !== '' && !sure.value && (
        <div class="buttons">
          <button type="button" class="quiet" onClick={() => (sure.value = true)}>
            <Icon name="remove" />
            <span>Delete…</span>
          </button>
        </div>
      )}
      {sure.value && (
        <div class="sure" role="alert">
          <p>{removeText(own)}</p>
          <div class="buttons">
            <button
              type="button"
              class="danger"
              onClick={() => {
                view.actions.remove(id);
                close();
              }}
            >
              Delete
            </button>
            <button type="button" class="secondary" onClick={() => (sure.value = false)}>
              Cancel
            </button>
          </div>
        </div>
      )}
    </Dialog>
  );
}
