/*
 * Who comes into the open conversation: links for members and viewers, which of them hold, whether others may come,
 * too.
 */

import { useSignal } from '@preact/signals';
import { useRef } from 'preact/hooks';

import { CopyButton } from '../kit/copy_button';
import type { Offered, View } from '../app/view';

const GIVES = { member: 'who asks', viewer: 'who reads' } as const;

/** The part of the conversation sheet that makes links and takes them back. */
export function EntrySection({ view }: { view: View }) {
  const made = useSignal<Offered | null>(null);
  const said = useSignal('');
  const known = useRef(''); // the key of a link that stood in the log
  const { byInvite, offers, out } = view.talk.value;
  const link = made.value;
  const isOffered = offers.some(({ key }) => key === link?.key);
  if (link !== null && isOffered) known.current = link.key;
  const isGone = link !== null && !isOffered && known.current === link.key;
  const make = (role: 'member' | 'viewer'): void => {
    view.actions.offerEntry(role).then(
      (offered) => {
        made.value = offered;
        said.value = offered === null ? '' : `The link for ${GIVES[role]} is ready.`;
      },
      () => (said.value = 'This browser could not make a link: try again.'),
    );
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
      <p class="hint" role="status">
        {isGone ? 'That link was withdrawn.' : said.value}
      </p>
      {link !== null && !isGone && (
        <>
          <label class="field">
            <span>Link into this conversation</span>
            <input readOnly value={link.link} onFocus={(event) => event.currentTarget.select()} />
          </label>
          <div class="buttons">
            <CopyButton text={() => link.link} label="Copy link" />
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
