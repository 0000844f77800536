/* Who reads a conversation. Pure. */

import type { Audience, Readers } from '../app/view';

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

/** Who reads a conversation that begins so; `pins`: words stay in the tab. */
export function whoReads(audience: Audience, pins: boolean): string {
  switch (audience) {
    case 'private':
      return pins
        ? 'Kept in this tab until it is closed. The machines that compute see numbers in place of words.'
        : 'Kept in this browser. The machines that compute the answer can see what you ask.';
    case 'invited':
      return 'Only people you invite take part. Everyone in the mesh can still read it.';
    case 'mesh':
      return 'Everyone in the mesh can read it and take part.';
  }
}
