/* The sheet that invites others: into the open conversation, and to the mesh, by link or by QR code. */

import { useMemo, useRef } from 'preact/hooks';
import { encode } from 'uqr';

import { CopyButton } from '../kit/copy_button';
import { Dialog } from '../kit/dialog';
import { InviteSection, mayInvite } from './invite_section';
import { Icon } from '../kit/icons';
import { Privacy } from './privacy';
import type { View } from '../app/view';
import { isLoopback } from '../kit/formatting';

function QrCode({ text }: { text: string }) {
  const { path, size } = useMemo(() => {
    const code = encode(text, { ecc: 'M', border: 2 });
    let drawn = '';
    code.data.forEach((row, y) =>
      row.forEach((dark, x) => {
        if (dark) drawn += `M${x} ${y}h1v1h-1z`;
      }),
    );
    return { path: drawn, size: code.size };
  }, [text]);
  return (
    <svg class="qr" viewBox={`0 0 ${size} ${size}`} role="img" aria-label="The link as a QR code">
      <rect width={size} height={size} fill="#fff" />
      <path d={path} fill="#000" shape-rendering="crispEdges" />
    </svg>
  );
}

/** The sheet with the link of the mesh. */
export function ShareSheet({ view, close }: { view: View; close: () => void }) {
  const link = view.link.value;
  const invites = mayInvite(view);
  const way = useRef<HTMLDivElement>(null);
  const canShare = typeof navigator.share === 'function';
  return (
    <Dialog title="Invite someone" close={close}>
      {invites && (
        <div ref={way} tabIndex={-1} role="group" aria-label="Into a conversation">
          <InviteSection view={view} copied={() => way.current?.focus()} />
        </div>
      )}
      {invites && <h3>Invite to the mesh</h3>}
      <p>Whoever opens this link joins the mesh and can ask the model. Send it only to people you trust.</p>
      <QrCode text={link} />
      <label class="field">
        <span>Invite link</span>
        <input
          readOnly
          value={link}
          onFocus={(event) => {
            event.currentTarget.select();
          }}
        />
      </label>
      {isLoopback(link) && (
        <p class="hint">
          This link leads to 127.0.0.1: it works on this computer only. To invite other machines, the founder
          starts the mesh with an address they can reach.
        </p>
      )}
      <div class="buttons">
        <CopyButton text={() => link} label="Copy link" />
        {canShare && (
          <button
            type="button"
            class="secondary"
            onClick={() => {
              navigator.share({ title: 'Join my Shoal mesh', url: link }).catch(() => undefined); // closed unsent
            }}
          >
            <Icon name="share" />
            <span>Share…</span>
          </button>
        )}
      </div>
      {view.talk.value.id === '' && (
        <p class="hint">
          To invite into a conversation, begin it first: choose “Invited people” and write a message.
        </p>
      )}
      <Privacy />
      <p class="hint">
        A machine without a browser joins with <code>shoal join 'LINK'</code>.
      </p>
    </Dialog>
  );
}
