/* Who comes into the open conversation: links for members and viewers, which of them hold, whether others may come, too. */

import { useSignal } from '@preact/signals';

import { CopyButton } from './copying';
import type { View } from './view';

const GIVES = { member: 'who asks', viewer: 'who reads' } as const;

export function EntrySection({ view }: { view: View }) {
  const made = useSignal('');
  const { byInvite, offers, out } = view.talk.value;
  const make = (role: 'member' | 'viewer'): void => {
    void view.actions.offerEntry(role).then((link) => (made.value = link));
  };
  return (
    <section class="entry" aria-label="Links into this conversation">
      <h3>Links into this conversation</h3>
      <p class="hint">Whoever opens one joins the mesh and takes part in this conversation.</p>
      <div class="buttons">
        {(['member', 'viewer'] as const).map((role) => (
          <button key={role} type="button" class="secondary" onClick={() => make(role)}>
            Link for {GIVES[role]}
          </button>
        ))}
      </div>
      {made.value !== '' && (
        <>
          <label class="field">
            <span>Link into this conversation</span>
            <input readOnly value={made.value} onFocus={(event) => event.currentTarget.select()} />
          </label>
          <div class="buttons">
            <CopyButton text={() => made.value} label="Copy link" />
          </div>
        </>
      )}
      <ul class="offers">
        {offers.map(({ key, role, by }) => (
          <li key={key}>
            <span>
              For {GIVES[role]}, by {by}
            </span>
            <button
              type="button"
              class="secondary"
              aria-label={`Withdraw the link for ${GIVES[role]} by ${by}`}
              onClick={() => view.actions.withdrawEntry(key)}
            >
              Withdraw
            </button>
          </li>
        ))}
      </ul>
      {out.length > 0 && (
        <ul class="offers">
          {out.map(({ id, name }) => (
            <li key={id}>
              <span>{name} was taken out</span>
              <button
                type="button"
                class="secondary"
                aria-label={`Let ${name} in again`}
                onClick={() => view.actions.setRole(id, 'member')}
              >
                Let in again
              </button>
            </li>
          ))}
        </ul>
      )}
      <label class="check">
        <input
          type="checkbox"
          checked={byInvite}
          onChange={(event) => view.actions.chooseEntry(event.currentTarget.checked)}
        />
        <span>Only who is invited takes part; others of the mesh read</span>
      </label>
    </section>
  );
}
