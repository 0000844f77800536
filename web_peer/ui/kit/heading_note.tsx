/* What a heading says besides: smaller, and for screen readers after a pause. */

import type { ComponentChildren } from 'preact';

/** Stands behind the words of a heading. */
export function HeadingNote({ children }: { children: ComponentChildren }) {
  return (
    <>
      <span class="visually-hidden">:</span> <span class="hint">{children}</span>
    </>
  );
}
