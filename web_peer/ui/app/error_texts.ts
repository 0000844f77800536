/* What a person reads, and can do, when this tab could not come in or is no longer in. Pure. */

import { textOf } from '../../src/errors';
import { readable } from '../mesh/members_view';
import type { Phase, Trouble } from './view';

/** What is known of an error: its class (or code on the wire) and its text. */
export interface Fault {
  readonly name: string;
  readonly text: string;
}

/** What is known of anything that was thrown. */
export function faultOf(error: unknown): Fault {
  return { name: error instanceof Error ? error.name : '', text: textOf(error) };
}

const NO_NAMES: ReadonlyMap<string, string> = new Map();

const TITLES: Readonly<Record<string, Pick<Trouble, 'title' | 'remedy'>>> = {
  WrongLink: { title: 'This link cannot be right', remedy: 'link' },
  WrongMesh: { title: 'This link is for another mesh', remedy: 'link' },
  UnknownInvite: { title: 'This invite is not known here', remedy: 'link' },
  InviteExpired: { title: 'This invite has expired', remedy: 'link' },
  InviteUsedUp: { title: 'This invite is used up', remedy: 'link' },
  InviteRevoked: { title: 'This invite was withdrawn', remedy: 'link' },
  ProtocolMismatch: { title: 'This page is of another version than the mesh', remedy: 'reload' },
  VersionMismatch: { title: 'This page is of another version than the mesh', remedy: 'reload' },
  UnknownMessage: { title: 'This page is of another version than the mesh', remedy: 'reload' },
  ServerUnreachable: { title: 'The server of this link does not answer', remedy: 'retry' },
  NoRelay: { title: 'This mesh has no relay', remedy: 'retry' },
  ConnectFailed: { title: 'Nobody answers in this mesh', remedy: 'retry' },
  ConnectionLost: { title: 'The connection broke', remedy: 'retry' },
  NotAdmitted: { title: 'The mesh did not take this tab in', remedy: 'retry' },
  Replaced: { title: 'This mesh is open in another window', remedy: 'retry' },
  RoomFull: { title: 'This mesh is full', remedy: 'retry' },
  TooFast: { title: 'Too many tries at once', remedy: 'retry' },
  TooManyJoins: { title: 'Too many tries at once', remedy: 'retry' },
  Stopping: { title: 'The server of this link is ending', remedy: 'retry' },
  NotNow: { title: 'That took too long', remedy: 'retry' },
  NoWebCrypto: { title: 'This address is not secure enough', remedy: 'link' },
};

/** The phase after joining failed or the membership ended. */
export function phaseAfter(fault: Fault): Phase {
  const trouble = troubleOf(fault);
  return fault.name === 'WrongLink' ? { kind: 'no-link', trouble } : { kind: 'out', trouble };
}

/** A fault as a title, a text, and what a person can do about it. */
export function troubleOf(fault: Fault): Trouble {
  const known = TITLES[fault.name] ?? byText(fault.text);
  const isSaid = fault.text.toLowerCase().startsWith(`${known.title.toLowerCase()}: `); // not twice
  const text = readable(isSaid ? fault.text.slice(known.title.length + 2) : fault.text, NO_NAMES, 0);
  return { ...known, text: text === '' ? 'Try again; if it stays so, ask whoever sent the link.' : text };
}

function byText(text: string): Pick<Trouble, 'title' | 'remedy'> {
  if (/older than the mesh|reload/.test(text)) {
    return { title: 'This page is of another version than the mesh', remedy: 'reload' };
  }
  if (text.includes('withdrew')) return { title: 'This invite was withdrawn', remedy: 'link' };
  if (text.includes('closed the mesh')) return { title: 'The mesh has ended', remedy: 'retry' };
  if (text.includes('did not come back')) return { title: 'The mesh is gone', remedy: 'retry' };
  return { title: 'This tab is not in the mesh', remedy: 'retry' };
}

export const STOPPED: Trouble = {
  title: 'Joining was stopped',
  text: 'How this tab connects was changed meanwhile. The link still works.',
  remedy: 'retry',
};

export const LEFT: Trouble = {
  title: 'You left the mesh',
  text: 'Stored weights are kept for your next visit, and the link still works.',
  remedy: 'retry',
};
