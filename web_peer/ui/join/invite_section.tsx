/*
 * Who comes into the open conversation: links for members and viewers, which of them hold, whether others may come,
 * too; and how a private one becomes one for others.
 */

import { useSignal } from '@preact/signals';
import { useRef } from 'preact/hooks';

import { CopyButton } from '../kit/copy_button';
import { isPrivate } from '../kit/readers';
import type { Offered, View } from '../app/view';

const GIVES = { member: 'Invite to write', viewer: 'Read-only link' } as const;

/** Whether this person can bring others into the open conversation, or into a copy of it. */
export function mayInvite({ talk }: View): boolean {
  const { id, readers, mayRule } = talk.value;
  return id !== '' && (isPrivate(readers) || mayRule);
}

/** The way of others into the open conversation; of a private one, into a copy. `copied`: it is made. */
export function InviteSection({ view, copied }: { view: View; copied: () => void }) {
  return isPrivate(view.talk.value.readers) ? (
    <CopySection view={view} copied={copied} />
  ) : (
    <EntrySection view={view} />
  );
}

/** The part of the sheets that makes a copy of a private conversation for others. */
export function CopySection({ view, copied }: { view: View; copied: () => void }) {
  return (
    <section class="entry" aria-label="Share a copy">
      <h3>Share a copy</h3>
      <p class="hint">This one stays private; the copy goes to the mesh, where everyone can read it.</p>
      <div class="buttons">
        {(['invited', 'mesh'] as const).map((audience) => (
          <button
            key={audience}
            type="button"
            class="secondary"
            onClick={() => {
              view.actions.shareCopy(audience);
              copied();
            }}
          >
            {audience === 'invited' ? 'With invited people' : 'With everyone'}
          </button>
        ))}
      </div>
    </section>
  );
}

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
        said.value = offered === null ? '' : `${GIVES[role]}: the link is ready.`;
      },
      () => (said.value = 'This browser could not make a link. Try again.'),
    );
  };
  return (
    <section class="entry" aria-label="Invite to this conversation">
      <h3>Invite to this conversation</h3>
      <p class="hint">Whoever opens the link joins the mesh and this conversation.</p>
      <div class="buttons">
        {(['member', 'viewer'] as const).map((role) => (
          <button key={role} type="button" class="secondary" onClick={() => make(role)}>
            {GIVES[role]}
          </button>
        ))}
      </div>
      <p class="hint" role="status">
        {isGone ? 'That link was revoked.' : said.value}
      </p>
      {link !== null && !isGone && (
        <>
          <label class="field">
            <span>Link to this conversation</span>
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
              {GIVES[role]}, by {by}
            </span>
            <button
              type="button"
              class="secondary"
              aria-label={`Revoke: ${GIVES[role]}, by ${by}`}
              onClick={() => view.actions.withdrawEntry(key)}
            >
              Revoke
            </button>
          </li>
        ))}
      </ul>
      {out.length > 0 && (
        <ul class="offers">
          {out.map(({ id, name }) => (
            <li key={id}>
              <span>{name} was removed</span>
              <button
                type="button"
                class="secondary"
                aria-label={`Allow ${name} again`}
                onClick={() => view.actions.setRole(id, 'member')}
              >
                Allow again
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
        <span>Invited people only (others in the mesh can still read)</span>
      </label>
    </section>
  );
}
