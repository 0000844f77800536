/* Copying to the clipboard, with a button that says when it is done. */

import { useEffect, useState } from 'preact/hooks';

import { Icon } from './icons';

const SAID_MS = 1600;

/** Whether it worked: the clipboard may be forbidden, or the page not in a secure context. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement('textarea');
    area.value = text;
    area.className = 'visually-hidden';
    (document.querySelector('dialog[open]') ?? document.body).append(area);
    area.select();
    const worked = document.execCommand('copy'); // eslint-disable-line @typescript-eslint/no-deprecated -- the only way outside a secure context
    area.remove();
    return worked;
  }
}

interface Props {
  readonly text: () => string;
  readonly label: string;
  readonly bare?: boolean; // icon only; the label is for screen readers
}

/** Copies what `text()` gives when it is pressed; `bare` shows no label. */
export function CopyButton({ text, label, bare = false }: Props) {
  const [said, say] = useState<'' | 'Copied' | 'Copy by hand'>('');
  useEffect(() => {
    if (said === '') return undefined;
    const timer = setTimeout(() => say(''), SAID_MS);
    return () => clearTimeout(timer);
  }, [said]);
  const copy = (): void => {
    void copyText(text()).then((worked) => say(worked ? 'Copied' : 'Copy by hand'));
  };
  return (
    <button
      type="button"
      class={bare ? 'quiet small' : 'secondary'}
      aria-label={bare ? label : undefined}
      title={bare ? label : undefined}
      onClick={copy}
    >
      <Icon name={said === 'Copied' ? 'done' : 'copy'} />
      <span aria-live="polite">{said === '' ? (bare ? '' : label) : said}</span>
    </button>
  );
}
