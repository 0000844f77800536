/* The conversations of the mesh, and the bar above the one that is open. */

import { Icon } from '../kit/icons';
import { Disc, Discs } from '../kit/avatar';
import { RoundButton } from '../kit/round_button';
import type { View } from '../app/view';

/** The conversations, and a button for a new one. `done` is called when one was chosen. */
export function TalkList({ view, done }: { view: View; done?: () => void }) {
  const open = view.talk.value.id;
  const lines = view.talks.value;
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
      {lines.length === 0 && <p class="hint">Conversations of this mesh stand here, for everybody in it.</p>}
      <ul class="talk-lines">
        {lines.map((line) => (
          <li key={line.id}>
            <button
              type="button"
              aria-current={line.id === open ? 'true' : undefined}
              onClick={() => {
                view.actions.show(line.id);
                done?.();
              }}
            >
              <span class="talk-title">{line.title}</span>
              <span class="talk-about">
                {line.own ? 'in this tab only' : line.people === 1 ? '1 person' : `${line.people} people`}
                {line.answering && ' · answering'}
              </span>
              {line.fresh && (
                <span class="fresh">
                  <span class="visually-hidden">, something new</span>
                </span>
              )}
            </button>
          </li>
        ))}
      </ul>
    </>
  );
}

/** What the open conversation is called, who is in it, and the ways to its sheets. */
export function TalkBar({ view, open }: { view: View; open: (sheet: 'talks' | 'talk') => void }) {
  const { id, title, people, typing, own } = view.talk.value;
  const stays = own || (id === '' && view.pinEnds.value.on);
  const here = people.filter((person) => person.here);
  const [writer] = people.filter((person) => person.typing);
  const others = here.filter(({ you }) => !you).map(({ name }) => name);
  return (
    <div class="talk-bar">
      <RoundButton icon="list" label="Conversations" more="to-list" act={() => open('talks')} />
      <div class="talk-name">
        <h2>{id === '' ? 'New conversation' : title === '' ? 'Untitled' : title}</h2>
        {stays && <p>Kept in this tab only</p>}
        {id !== '' && !own && (
          <p>
            {writer !== undefined && <Disc who={writer} />}
            {typing !== '' ? typing : others.length === 0 ? 'Only you are here' : `You, ${others.join(', ')}`}
          </p>
        )}
      </div>
      {id !== '' && (
        <button
          type="button"
          class="quiet who-is-in"
          title="This conversation: people, export"
          onClick={() => open('talk')}
        >
          <span class="visually-hidden">This conversation: people, export</span>
          <Discs people={people} />
          <Icon name="more" />
        </button>
      )}
    </div>
  );
}
