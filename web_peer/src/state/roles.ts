/*
 * Decides who may do what in a mesh: roles, and which invites there are and were revoked, as facts of its log (twin of
 * peer/state/roles.py).
 *
 * Pure. An invite stands here by its public key and never by its secret.
 */

import { MAX_ITEMS } from '../limits';
import { type Invite, MAX_INVITES, type People, type PeopleCommand } from './generated/commands';

export const NOBODY: People = { roles: new Map(), invites: new Map(), revocations: new Map() };

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
