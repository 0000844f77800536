/*
 * Decides what a member may say in a conversation: roles are obeyed, and nobody speaks for somebody else (twin of
 * peer/state/conversation_rights.py).
 *
 * Pure. What no role forbids and has no effect, such as about a message that is not there, is not refused here.
 */

import type { AnswerAdopted, ConversationCommand, MessageAdded, ParticipantSet } from './generated/commands';
import { type Conversation, messageOf, messagesOf } from './conversations';
import type { MeshState } from './mesh_state';

const OWNERS = 'expected an owner of this conversation or of the mesh';
const ASKERS = 'expected somebody who takes part as owner or member';
const INVITED = 'expected somebody who was invited to this conversation: ask one of its owners for a link';
const OWN = 'expected what this peer says in its own name';

/** Why `peer` may not say `command`; "" when it may. */
export function mayConverse(state: MeshState, peer: string, command: ConversationCommand): string {
  const meshRole = state.people.roles.get(peer);
  const reads = meshRole === 'viewer';
  if (command.kind === 'ConversationStarted') {
    if (command.peer !== peer) return OWN;
    return reads ? 'expected a member of the mesh that may ask' : '';
  }
  const conversation = state.conversations.get(command.conversation);
  if (conversation === undefined) return '';
  const role = conversation.participants.get(peer)?.role;
  const owns = role === 'owner' || meshRole === 'owner';
  const asks = role === 'owner' || role === 'member';
  switch (command.kind) {
    case 'ConversationChanged':
      return owns || asks ? '' : ASKERS;
    case 'ConversationRemoved':
      return owns ? '' : OWNERS;
    case 'ParticipantSet':
      return owns ? '' : set(state, conversation, peer, command);
    case 'ParticipantLeft':
      if (owns) return '';
      return command.peer !== peer || (role === 'viewer' && !reads) ? OWNERS : '';
    case 'MessageAdded':
      if (command.author !== peer) return OWN;
      return asks ? added(state, conversation, command) : ASKERS;
    case 'MessageExtended': {
      const message = messageOf(conversation.messages, command.id);
      return message !== undefined && message.author !== peer ? OWN : '';
    }
    case 'MessageEnded': {
      const message = messageOf(conversation.messages, command.id);
      if (message === undefined || message.author === peer) return '';
      if (command.state !== 'stopped' || command.text !== null) return OWN;
      return owns || asks ? '' : ASKERS;
    }
    case 'AnswerAdopted':
      if (command.author !== peer) return OWN;
      return asks ? adopted(state, conversation, command) : ASKERS;
    case 'EntryChosen':
    case 'EntryWithdrawn':
    case 'ParticipantPutOut':
      return owns ? '' : OWNERS;
    case 'EntryOffered':
      if (!owns) return OWNERS;
      return command.by === peer ? '' : OWN;
    case 'ParticipantInvited':
      return command.peer === peer ? '' : OWN;
    default:
      return command satisfies never;
  }
}

/** Of one who owns nothing: about itself only, and it gains nothing, unless no owner is left. */
function set(state: MeshState, conversation: Conversation, peer: string, command: ParticipantSet): string {
  if (command.peer !== peer) return OWNERS;
  const { participants, entry } = conversation;
  if (!participants.has(peer) && (entry.byInvite || entry.barred.includes(peer))) return INVITED;
  const reads = state.people.roles.get(peer) === 'viewer';
  const now = participants.get(peer)?.role ?? (reads ? 'viewer' : 'member');
  if (command.role === now || command.role === 'viewer') return '';
  const ownerIsHere = [...participants].some(
    ([each, { role }]) => role === 'owner' && state.members.has(each),
  );
  const isLeft = participants.has(peer) && now === 'member' && !ownerIsHere;
  return isLeft && command.role === 'owner' ? '' : OWNERS;
}

function added(state: MeshState, conversation: Conversation, command: MessageAdded): string {
  if (command.form !== 'answer') return '';
  if (messageOf(conversation.messages, command.parent)?.form !== 'to-model') {
    return 'expected an answer to a question';
  }
  return taken(state, command.session, command.author, '');
}

function adopted(state: MeshState, conversation: Conversation, command: AnswerAdopted): string {
  const message = messageOf(conversation.messages, command.id);
  if (message === undefined) return '';
  const isHere = message.state === 'running' && state.members.has(command.before);
  if (isHere && command.before !== command.author) {
    return 'expected an answer whose asker is gone, or one that was stopped';
  }
  return command.session === message.session ? '' : taken(state, command.session, command.author, command.id);
}

/** A session belongs to who asked in it first: an answer lets its author take it over on every stage. */
function taken(state: MeshState, session: string, author: string, but: string): string {
  for (const { messages } of state.conversations.values()) {
    const other = messagesOf(messages).find(
      (each) => each.session === session && each.author !== author && each.id !== but,
    );
    if (other !== undefined) return "expected a session of the asker's own";
  }
  return '';
}
