/* The switch that keeps words in this tab: what that hides, what it costs, and how far it is. */

import type { KeptEnds } from '../../src/origin/pinned_ends';
import { Switch } from '../kit/switch';
import type { PinEnds, View } from '../app/view';
import { bytesText } from '../kit/formatting';

export const NO_PIN: PinEnds = { on: false, bytes: 0, state: 'away', done: 0, total: 0, text: '' };

/** What the switch shows: on or off, and how many bytes of the ends are here. */
export function pinEndsOf({ bytes, state }: KeptEnds, on: boolean): PinEnds {
  const { hereBytes: done, totalBytes: total } =
    state.kind === 'loading' ? state : { hereBytes: 0, totalBytes: 0 };
  return { on, bytes, state: state.kind, done, total, text: state.kind === 'failed' ? state.text : '' };
}

function costText({ bytes }: PinEnds): string {
  return bytes > 0 ? `${bytesText(bytes)} of memory` : 'memory';
}

function stateText({ on, state, done, total, text }: PinEnds): string {
  if (!on) return '';
  switch (state) {
    case 'away':
      return '';
    case 'loading':
      return done < total ? `Fetching ${bytesText(done)} of ${bytesText(total)}` : 'Loading it into memory';
    case 'here':
      return 'Ready: new private conversations stay in this tab.';
    case 'failed':
      return `That went wrong: ${text}. The next question tries again.`;
  }
}

/** The switch itself. */
export function PinSwitch({ view }: { view: View }) {
  const pin = view.pinEnds.value;
  return (
    <Switch
      name="pin-ends"
      label="Keep my words in this tab"
      on={pin.on}
      set={(on) => view.actions.setPinEnds(on)}
      hint={
        <>
          New private conversations end with this tab, and other machines get numbers in place of words; one
          that sets out to can still turn most of them back. It takes {costText(pin)} for the first and the
          last part of the model.
        </>
      }
    >
      <p class="hint switch-state" role="status">
        {stateText(pin)}
      </p>
    </Switch>
  );
}
