/*
 * Decides who may come into a conversation: anybody, or who was invited; by which links, and who was put out (twin of
 * peer/state/conversation_entry.py).
 *
 * Pure. An invite stands here by its public key and never by its secret. That who uses one holds its secret is checked
 * by the coordinator, before the log has it (entry_links.ts).
 */

import { type Codec, flag, list, matching, oneOf, record, table, text, uint } from '../wire/json_codec';

export type Given = 'member' | 'viewer';
const MAX_OFFERS = 64;
const MAX_BARRED = 256; // beyond that the first one put out is forgotten

/** A link that lets into one conversation. */
export interface Offer {
  readonly role: Given;
  readonly by: string;
  readonly whenMs: number;
}

/** `byInvite`: nobody comes in by themselves. `barred`: who was put out, the first one first. */
export interface Entry {
  readonly byInvite: boolean;
  readonly offers: ReadonlyMap<string, Offer>; // by public key
  readonly barred: readonly string[];
}

export const OPEN_ENTRY: Entry = { byInvite: false, offers: new Map(), barred: [] };

// --- commands

interface Within {
  readonly conversation: string;
}

export interface EntryChosen extends Within {
  readonly kind: 'EntryChosen';
  readonly byInvite: boolean;
}

export interface EntryOffered extends Within, Offer {
  readonly kind: 'EntryOffered';
  readonly key: string;
}

/** Nobody comes in with that link any more; who came with it stays. */
export interface EntryWithdrawn extends Within {
  readonly kind: 'EntryWithdrawn';
  readonly key: string;
}

/** `peer` comes in with what the link gives. `proof`: its signature by the link's key. */
export interface ParticipantInvited extends Within {
  readonly kind: 'ParticipantInvited';
  readonly key: string;
  readonly peer: string;
  readonly name: string;
  readonly colour: string;
  readonly proof: string;
}

/** `peer` takes part no more and does not come back, unless an owner sets its role. */
export interface ParticipantPutOut extends Within {
  readonly kind: 'ParticipantPutOut';
  readonly peer: string;
}

export type EntryCommand =
  EntryChosen | EntryOffered | EntryWithdrawn | ParticipantInvited | ParticipantPutOut;

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

// --- wire

const key = matching(/^A[Q-Za-f][0-9A-Za-z_-]{42}$/, 'the public key of an invite');
const proof = matching(/^[0-9A-Za-z_-]{86}$/, 'a signature of 64 bytes');
const offer = { role: oneOf<Given>('member', 'viewer'), by: text, whenMs: uint };

export const entry = record<Entry>('Entry', {
  byInvite: flag,
  offers: table(record<Offer>('Offer', offer), MAX_OFFERS),
  barred: list(text, MAX_BARRED),
});

/** The codecs of the commands; how ids and colours are spelled is conversations.ts' to say. */
export function entryCommands(
  conversation: Codec<string>,
  colour: Codec<string>,
): { readonly [K in EntryCommand['kind']]: Codec<Extract<EntryCommand, { kind: K }>> } {
  const of = { conversation };
  return {
    EntryChosen: record<EntryChosen>('EntryChosen', { ...of, byInvite: flag }, { kind: 'EntryChosen' }),
    EntryOffered: record<EntryOffered>('EntryOffered', { ...of, key, ...offer }, { kind: 'EntryOffered' }),
    EntryWithdrawn: record<EntryWithdrawn>('EntryWithdrawn', { ...of, key }, { kind: 'EntryWithdrawn' }),
    ParticipantInvited: record<ParticipantInvited>(
      'ParticipantInvited',
      { ...of, key, peer: text, name: text, colour, proof },
      { kind: 'ParticipantInvited' },
    ),
    ParticipantPutOut: record<ParticipantPutOut>(
      'ParticipantPutOut',
      { ...of, peer: text },
      { kind: 'ParticipantPutOut' },
    ),
  };
}
