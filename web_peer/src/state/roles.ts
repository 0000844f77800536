/*
 * Decides who may do what in a mesh: roles, and which invites there are and were revoked, as facts of its log (twin of
 * peer/state/roles.py).
 *
 * Pure. An invite stands here by its public key and never by its secret.
 */

import { type Codec, MAX_ITEMS, matching, oneOf, record, table, text, uint } from '../wire/json_codec';

export type Role = 'owner' | 'member' | 'viewer'; // decides all; asks; reads
const MAX_INVITES = 1024;

/** A link that somebody was given. `proof`: the signed grant as JSON, or empty. */
export interface Invite {
  readonly role: Role;
  readonly expiresUnix: number; // seconds; 0: never
  readonly uses: number; // 0: unlimited
  readonly by: string;
  readonly whenMs: number;
  readonly proof: string;
}

/** An invite with which nobody comes in any more. `proof`: the signed revocation as JSON, or empty. */
export interface Revocation {
  readonly by: string;
  readonly whenMs: number;
  readonly proof: string;
}

/** Roles by peer, also of peers that are not here; invites and revocations by the invite's public key. */
export interface People {
  readonly roles: ReadonlyMap<string, Role>;
  readonly invites: ReadonlyMap<string, Invite>;
  readonly revocations: ReadonlyMap<string, Revocation>;
}

export const NOBODY: People = { roles: new Map(), invites: new Map(), revocations: new Map() };

// --- commands

export interface RoleGiven {
  readonly kind: 'RoleGiven';
  readonly peer: string;
  readonly role: Role;
}

export interface RoleTaken {
  readonly kind: 'RoleTaken';
  readonly peer: string;
}

export interface InviteRecorded extends Invite {
  readonly kind: 'InviteRecorded';
  readonly key: string;
}

export interface InviteRevoked extends Revocation {
  readonly kind: 'InviteRevoked';
  readonly key: string;
}

export type PeopleCommand = RoleGiven | RoleTaken | InviteRecorded | InviteRevoked;

/** The people after `command`, or why it changes nothing. */
export function govern(people: People, command: PeopleCommand): People | string {
  const { roles, invites, revocations } = people;
  switch (command.kind) {
    case 'RoleGiven':
      if (!roles.has(command.peer) && roles.size >= MAX_ITEMS) {
        return `${MAX_ITEMS} peers have a role, which is the most; take one first`;
      }
      return { ...people, roles: new Map(roles).set(command.peer, command.role) };
    case 'RoleTaken':
      if (!roles.has(command.peer)) return 'this peer has no role';
      return { ...people, roles: new Map([...roles].filter(([peer]) => peer !== command.peer)) };
    case 'InviteRecorded': {
      if (invites.has(command.key)) return 'this invite was recorded before';
      const { key, role, expiresUnix, uses, by, whenMs, proof } = command;
      const known = new Map(invites);
      if (known.size >= MAX_INVITES) known.delete(oldest(invites)); // revocations are kept apart, so it can go
      return { ...people, invites: known.set(key, { role, expiresUnix, uses, by, whenMs, proof }) };
    }
    case 'InviteRevoked': {
      if (revocations.has(command.key)) return 'this invite was revoked before';
      if (revocations.size >= MAX_ITEMS) return `${MAX_ITEMS} invites were revoked, which is the most`;
      const { key, by, whenMs, proof } = command;
      return { ...people, revocations: new Map(revocations).set(key, { by, whenMs, proof }) };
    }
    default:
      return command satisfies never;
  }
}

function oldest(invites: ReadonlyMap<string, Invite>): string {
  const order = [...invites].sort(
    ([key, one], [other, two]) => one.whenMs - two.whenMs || (key < other ? -1 : 1),
  );
  return order[0]?.[0] ?? '';
}

// --- wire

// A public key, 33 bytes with tag 1. The secret of a link has another length, so that it cannot stand here by mistake.
const key = matching(/^A[Q-Za-f][0-9A-Za-z_-]{42}$/, 'the public key of an invite');
export const role = oneOf<Role>('owner', 'member', 'viewer');
const proofFields = { by: text, whenMs: uint, proof: text };
const inviteFields = { role, expiresUnix: uint, uses: uint, ...proofFields };

export const people = record<People>('People', {
  roles: table(role),
  invites: table(record<Invite>('Invite', inviteFields), MAX_INVITES),
  revocations: table(record<Revocation>('Revocation', proofFields)),
});

export const PEOPLE_COMMANDS: {
  readonly [K in PeopleCommand['kind']]: Codec<Extract<PeopleCommand, { kind: K }>>;
} = {
  RoleGiven: record<RoleGiven>('RoleGiven', { peer: text, role }, { kind: 'RoleGiven' }),
  RoleTaken: record<RoleTaken>('RoleTaken', { peer: text }, { kind: 'RoleTaken' }),
  InviteRecorded: record<InviteRecorded>(
    'InviteRecorded',
    { key, ...inviteFields },
    { kind: 'InviteRecorded' },
  ),
  InviteRevoked: record<InviteRevoked>('InviteRevoked', { key, ...proofFields }, { kind: 'InviteRevoked' }),
};
