/* The keys of the page. Single letters work only outside text fields. */

import { Dialog } from '../kit/dialog';

export type Command =
  'focus' | 'stop' | 'again' | 'copy' | 'fresh' | 'share' | 'settings' | 'looks' | 'help' | 'plan';

const WITH_ALT: Readonly<Record<string, Command>> = {
  KeyR: 'again',
  KeyC: 'copy',
  KeyN: 'fresh',
  KeyS: 'share',
  Comma: 'settings',
  KeyL: 'looks',
  KeyP: 'plan',
  Period: 'stop',
};

export interface KeyPress {
  readonly key: string;
  readonly code: string;
  readonly altKey: boolean;
  readonly ctrlKey: boolean;
  readonly metaKey: boolean;
}

/** What a key asks for; `typing`: it goes into a text field, `sheet`: a sheet is open and takes all keys itself. */
export function commandOf(press: KeyPress, typing: boolean, sheet: boolean): Command | null {
  if (press.ctrlKey || press.metaKey || sheet) return null;
  if (press.altKey) return WITH_ALT[press.code] ?? null;
  if (typing) return null;
  if (press.key === '/') return 'focus';
  return press.key === '?' ? 'help' : null;
}

const SHOWN: readonly (readonly [keys: string, what: string])[] = [
  ['Enter', 'Send'],
  ['Shift Enter', 'New line'],
  ['Alt .', 'Stop the answer'],
  ['Esc', 'Close a sheet'],
  ['/', 'Go to the text field'],
  ['Alt R', 'Regenerate the answer'],
  ['Alt C', 'Copy the last answer'],
  ['Alt N', 'New conversation'],
  ['Alt P', 'Plan: who computes what'],
  ['Alt S', 'Invite someone'],
  ['Alt ,', 'Settings'],
  ['Alt L', 'Light or dark mode'],
  ['?', 'Keyboard shortcuts'],
];

/** The sheet that lists the keys. */
export function ShortcutsSheet({ close }: { close: () => void }) {
  return (
    <Dialog title="Keyboard shortcuts" close={close}>
      <dl class="keys">
        {SHOWN.map(([keys, what]) => (
          <div key={keys}>
            <dt>
              {keys.split(' ').map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}
