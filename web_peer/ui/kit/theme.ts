/* Light or dark: what the person chose, else what the system says. Kept in this browser. */

import { effect, signal } from '@preact/signals';

export type Looks = 'system' | 'light' | 'dark';

const KEY = 'shoal.looks';
const isLooks = (value: string | null): value is Looks =>
  value === 'system' || value === 'light' || value === 'dark';

function kept(): Looks {
  try {
    const value = localStorage.getItem(KEY);
    return isLooks(value) ? value : 'system';
  } catch {
    return 'system'; // storage refused: the choice lasts as long as the page
  }
}

export const looks = signal<Looks>(kept());

/** Puts the choice on the page, now and whenever it changes. */
export function applyLooks(root: HTMLElement): () => void {
  return effect(() => {
    if (looks.value === 'system') root.removeAttribute('data-looks');
    else root.setAttribute('data-looks', looks.value);
    try {
      localStorage.setItem(KEY, looks.value);
    } catch {
      // As above.
    }
  });
}

/** The opposite of what is shown now. */
export function switchLooks(): void {
  const systemIsDark = matchMedia('(prefers-color-scheme: dark)').matches;
  const isDark = looks.value === 'dark' || (looks.value === 'system' && systemIsDark);
  looks.value = isDark ? 'light' : 'dark';
}
