/* The switch that keeps this device's address from the others, where people join. */

import type { View } from './view';

export function RelaySwitch({ view }: { view: View }) {
  return (
    <div class="switch">
      <label>
        <input
          type="checkbox"
          role="switch"
          aria-describedby="relay-only-hint"
          checked={view.relayOnly.value}
          onChange={(event) => view.actions.setRelayOnly(event.currentTarget.checked)}
        />
        <span>Only through the relay</span>
      </label>
      <p class="hint" id="relay-only-hint">
        Others in the mesh see the address of its relay in place of this device’s; it is slower, needs a mesh
        that has one, and the server behind the link still sees your address.
      </p>
    </div>
  );
}
