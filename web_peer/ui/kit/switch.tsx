/* A choice that is on or off, what it is called, and in a line below what it means. */

import type { ComponentChildren } from 'preact';

interface Props {
  readonly name: string; // of the line below, for who hears the page
  readonly label: string;
  readonly on: boolean;
  readonly set: (on: boolean) => void;
  readonly hint: ComponentChildren;
  readonly children?: ComponentChildren;
}

/** `set` is called with what was chosen; `children` stand below the hint. */
export function Switch({ name, label, on, set, hint, children }: Props) {
  return (
    <div class="switch">
      <label>
        <input
          type="checkbox"
          role="switch"
          aria-describedby={`${name}-hint`}
          checked={on}
          onChange={(event) => set(event.currentTarget.checked)}
        />
        <span>{label}</span>
      </label>
      <p class="hint" id={`${name}-hint`}>
        {hint}
      </p>
      {children}
    </div>
  );
}
