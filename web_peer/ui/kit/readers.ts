/* Who reads a conversation. Pure. */

import type { Readers } from '../app/view';

/** Whether nobody but this person reads it. */
export const isPrivate = (readers: Readers): boolean => readers === 'tab' || readers === 'browser';

/** Who reads a conversation, in a line. */
export function readersText(readers: Readers): string {
  switch (readers) {
    case 'tab':
      return 'Only you · in this tab until it is closed';
    case 'browser':
      return 'Only you · kept in this browser';
    case 'invited':
      return 'Everyone can read · invited people take part';
    case 'mesh':
      return 'Everyone can read and take part';
  }
}
