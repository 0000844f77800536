/*
 * Decides what a member may say in its own name: which commands it may propose for the log (twin of
 * peer/state/proposal_rights.py).
 *
 * Pure. What the coordinator alone decides (plans, who is in, who left) is not among them.
 */

import { mayConverse } from './conversation_rights';
import { isConversationCommand, PROPOSED_BY } from './generated/commands';
import type { Command } from './member_commands';
import type { MeshState } from './mesh_state';

/** Why `peer` may not propose `command`; "" when it may. */
export function maySay(state: MeshState, peer: string, command: Command): string {
  if (isConversationCommand(command)) return mayConverse(state, peer, command);
  if (command.kind === 'TransactionEnded') {
    const begun = state.transactions.findLast(({ id }) => id === command.id);
    return begun?.peer === peer ? '' : 'expected the end of an operation of this peer';
  }
  const by = command.kind === 'Unknown' ? 'leader' : PROPOSED_BY[command.kind];
  switch (by) {
    case 'owner':
      return state.people.roles.get(peer) === 'owner'
        ? ''
        : 'expected an owner of this mesh, such as its founder';
    case 'headless':
      return state.members.get(peer)?.headless === true ? '' : 'expected a peer that is there to stay';
    case 'leader':
    case 'rules':
      return `${command.kind} is the coordinator's to say`;
    default: {
      const names = (command as unknown as Readonly<Record<string, unknown>>)[by];
      return names === peer ? '' : `expected what this peer itself ${by === 'by' ? 'found' : 'does'}`;
    }
  }
}
