/* What a person may choose before joining, folded away: how this tab connects, what stays in it, who sees what. */

import { PinSwitch } from './pinned_ends_switch';
import { Privacy } from './privacy';
import { RelaySwitch } from './relay_switch';
import type { View } from '../app/view';

/** The switches and the explanation, each closed at first. */
export function JoinOptions({ view }: { view: View }) {
  return (
    <>
      <details class="privacy">
        <summary>Privacy options</summary>
        <RelaySwitch view={view} />
        <PinSwitch view={view} />
      </details>
      <Privacy />
    </>
  );
}
