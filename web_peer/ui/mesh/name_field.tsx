/* The field with the name that others see, which may change at any time. */

import { useSignal } from '@preact/signals';

/** `name` in a field; what is typed stands there until Enter, or until the field is left. `set` is told what was typed. */
export function NameField({ name, set }: { name: string; set: (name: string) => void }) {
  const typed = useSignal<string | null>(null); // the mesh changes meanwhile, and with it the page
  return (
    <label class="field">
      <span>Your name</span>
      <input
        value={typed.value ?? name}
        maxLength={40}
        autoComplete="nickname"
        onInput={(event) => (typed.value = event.currentTarget.value)}
        onChange={(event) => {
          typed.value = null;
          set(event.currentTarget.value.trim());
        }}
        onBlur={() => (typed.value = null)}
      />
    </label>
  );
}
