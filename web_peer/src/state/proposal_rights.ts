/*
 * Decides what a member may say in its own name: which commands it may propose for the log (twin of
 * peer/state/proposal_rights.py).
 *
 * Pure. What the coordinator alone decides (plans, who is in, who left) is not among them.
 */

import type { ConversationCommand } from './conversations';
import type { Command, MeshState } from './mesh_state';
import { mayConverse } from './conversation_rights';

const ITS_OWN: ReadonlySet<string> = new Set(['StandbyReady', 'TransactionBegun']);
const OF_OWNERS: ReadonlySet<string> = new Set([
  'CutsFixed',
  'PlanWished',
  'ProtectionChosen',
  'RoleGiven',
  'RoleTaken',
  'InviteRecorded',
  'InviteRevoked',
  'FairnessChosen',
  'PeerPardoned',
]);
const OF_PEOPLE: ReadonlySet<string> = new Set([
  'ConversationStarted',
  'ConversationChanged',
  'ConversationRemoved',
  'ParticipantSet',
  'ParticipantLeft',
  'MessageAdded',
  'MessageExtended',
  'MessageEnded',
  'AnswerAdopted',
  'EntryChosen',
  'EntryOffered',
  'EntryWithdrawn',
  'ParticipantInvited',
  'ParticipantPutOut',
]);

/** Why `peer` may not propose `command`; "" when it may. */
export function maySay(state: MeshState, peer: string, command: Command): string {
  const kind: string = command.kind;
  if (ITS_OWN.has(kind)) {
    return 'peer' in command && command.peer === peer ? '' : 'expected what this peer itself does';
  }
  if (kind === 'CheckFailed') {
    return 'by' in command && command.by === peer ? '' : 'expected what this peer itself found';
  }
  if (command.kind === 'TransactionEnded') {
    const begun = state.transactions.findLast(({ id }) => id === command.id);
    return begun?.peer === peer ? '' : 'expected the end of an operation of this peer';
  }
  if (kind === 'SignalingListed') {
    return state.members.get(peer)?.headless === true ? '' : 'expected a peer that is there to stay';
  }
  if (OF_OWNERS.has(kind)) {
    const owns = state.people.roles.get(peer) === 'owner';
    return owns ? '' : 'expected an owner of this mesh, such as its founder';
  }
  if (OF_PEOPLE.has(kind)) return mayConverse(state, peer, command as ConversationCommand);
  return `${kind} is the coordinator's to say`;
}
