/* The switch that keeps this device's address from the others, where people join. */

import { Switch } from '../kit/switch';
import type { View } from '../app/view';

const HINT =
  'Others in the mesh see the address of its relay in place of this device’s; it is slower, needs a mesh that has one,' +
  ' and the server behind the link still sees your address.';

/** The switch itself. */
export function RelaySwitch({ view }: { view: View }) {
  return (
    <Switch
      name="relay-only"
      label="Only through the relay"
      on={view.relayOnly.value}
      set={(on) => view.actions.setRelayOnly(on)}
      hint={HINT}
    />
  );
}
