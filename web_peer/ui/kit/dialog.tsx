/* A sheet over the page, by the browser's own <dialog>: it keeps the focus inside and closes on Escape. */

import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';

import { Icon } from './icons';

interface Props {
  readonly title: string;
  readonly close: () => void;
  readonly wide?: boolean; // a picture that takes what room there is
  readonly children: ComponentChildren;
}

/** An open sheet; `close` is called when the person closes it. */
export function Dialog({ title, close, wide = false, children }: Props) {
  const element = useRef<HTMLDialogElement>(null);
  const isGone = useRef(false); // browsers say `close` a frame later: by then another sheet may be open
  useEffect(() => {
    const dialog = element.current;
    dialog?.showModal();
    return () => {
      isGone.current = true;
      dialog?.close();
    };
  }, []);
  return (
    <dialog
      ref={element}
      class={wide ? 'sheet is-wide' : 'sheet'}
      aria-label={title}
      onClose={() => {
        if (!isGone.current) close();
      }}
      onClick={(event) => {
        if (event.target === element.current) close();
      }}
    >
      <div class="sheet-body">
        <div class="sheet-head">
          <h2 tabIndex={-1} autofocus>
            {title}
          </h2>
          <button type="button" class="quiet round" aria-label="Close" onClick={close}>
            <Icon name="close" />
          </button>
        </div>
        {children}
      </div>
    </dialog>
  );
}
