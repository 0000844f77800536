/*
 * Decides who may come into a conversation: anybody, or who was invited; by which links, and who was put out (twin of
 * peer/state/conversation_entry.py).
 *
 * Pure. An invite stands here by its public key and never by its secret. That who uses one holds its secret is checked
 * by the coordinator, before the log has it (entry_links.ts).
 */

import {
  type Entry,
  type EntryChosen,
  type EntryOffered,
  type EntryWithdrawn,
  MAX_BARRED,
  MAX_OFFERS,
  type Offer,
  type ParticipantInvited,
} from './generated/commands';

export const OPEN_ENTRY: Entry = { byInvite: false, offers: new Map(), barred: [] };

/** How one comes in after `command`, or why it changes nothing. */
export function offered(entry: Entry, command: EntryChosen | EntryOffered | EntryWithdrawn): Entry | string {
  const { offers } = entry;
  switch (command.kind) {
    case 'EntryChosen':
      if (entry.byInvite === command.byInvite) return 'it is so already';
      return { ...entry, byInvite: command.byInvite };
    case 'EntryOffered': {
      const { key, role, by, whenMs } = command;
      if (offers.has(key)) return 'this invite was offered before';
      if (offers.size >= MAX_OFFERS) {
        return `there are ${MAX_OFFERS} invites to this conversation, which is the most; withdraw one`;
      }
      return { ...entry, offers: new Map(offers).set(key, { role, by, whenMs }) };
    }
    case 'EntryWithdrawn':
      if (!offers.has(command.key)) return 'there is no such invite to this conversation';
      return { ...entry, offers: new Map([...offers].filter(([key]) => key !== command.key)) };
    default:
      return command satisfies never;
  }
}

/** What comes with an invite, or why nobody comes in with it. */
export function given({ offers, barred }: Entry, { key, peer }: ParticipantInvited): Offer | string {
  if (barred.includes(peer)) return 'this peer was put out of the conversation';
  return offers.get(key) ?? 'this invite was withdrawn, or never was one';
}

/** With `peer` among those who were put out. */
export function barring(entry: Entry, peer: string): Entry {
  const others = entry.barred.filter((each) => each !== peer);
  return { ...entry, barred: [...others, peer].slice(-MAX_BARRED) };
}

/** With `peer` no more among those who were put out. */
export function letting(entry: Entry, peer: string): Entry {
  if (!entry.barred.includes(peer)) return entry;
  return { ...entry, barred: entry.barred.filter((each) => each !== peer) };
}
