"""Decides what a member may say in a conversation: roles are obeyed, and nobody speaks for somebody else.

Pure; the same in web_peer/src/state/conversation_rights.ts. What no role forbids and has no effect, such as about a
message that is not there, is not refused here.
"""

from __future__ import annotations

from typing import assert_never

from peer.state.conversations import Conversation
from peer.state.generated.commands import (
    AnswerAdopted,
    ConversationChanged,
    ConversationCommand,
    ConversationRemoved,
    ConversationStarted,
    EntryChosen,
    EntryOffered,
    EntryWithdrawn,
    MessageAdded,
    MessageEnded,
    MessageExtended,
    ParticipantInvited,
    ParticipantLeft,
    ParticipantPutOut,
    ParticipantSet,
)
from peer.state.mesh_state import MeshState

OWNERS = "expected an owner of this conversation or of the mesh"
ASKERS = "expected somebody who takes part as owner or member"
OWN = "expected what this peer says in its own name"
INVITED = "expected somebody who was invited to this conversation: ask one of its owners for a link"


def may_converse(state: MeshState, peer: str, command: ConversationCommand) -> str:
    """Why `peer` may not say `command`; "" when it may."""
    reads = state.people.roles.get(peer) == "viewer"
    if isinstance(command, ConversationStarted):
        return OWN if command.peer != peer else "expected a member of the mesh that may ask" if reads else ""
    conversation = state.conversations.get(command.conversation)
    if conversation is None:
        return ""
    participant = conversation.participants.get(peer)
    role = participant.role if participant is not None else None
    owns = role == "owner" or state.people.roles.get(peer) == "owner"
    asks = role in ("owner", "member")
    match command:
        case ConversationChanged():
            return "" if owns or asks else ASKERS
        case ConversationRemoved():
            return "" if owns else OWNERS
        case ParticipantSet():
            return "" if owns else _set(state, conversation, peer, command)
        case ParticipantLeft():
            if owns:
                return ""
            return OWNERS if command.peer != peer or (role == "viewer" and not reads) else ""
        case MessageAdded():
            if command.author != peer:
                return OWN
            return (ASKERS if not asks else "") or _added(state, conversation, command)
        case MessageExtended():
            message = conversation.messages.get(command.id)
            return OWN if message is not None and message.author != peer else ""
        case MessageEnded():
            message = conversation.messages.get(command.id)
            if message is None or message.author == peer:
                return ""
            if command.state != "stopped" or command.text is not None:
                return OWN
            return "" if owns or asks else ASKERS
        case AnswerAdopted():
            if command.author != peer:
                return OWN
            return (ASKERS if not asks else "") or _adopted(state, conversation, command)
        case EntryChosen() | EntryWithdrawn() | ParticipantPutOut():
            return "" if owns else OWNERS
        case EntryOffered():
            return OWNERS if not owns else "" if command.by == peer else OWN
        case ParticipantInvited():
            return "" if command.peer == peer else OWN
        case _:
            assert_never(command)


def _set(state: MeshState, conversation: Conversation, peer: str, command: ParticipantSet) -> str:
    """Of one who owns nothing: about itself only, and it gains nothing, unless no owner is left."""
    if command.peer != peer:
        return OWNERS
    participant = conversation.participants.get(peer)
    if participant is None and (conversation.entry.by_invite or peer in conversation.entry.barred):
        return INVITED
    reads = state.people.roles.get(peer) == "viewer"
    now = participant.role if participant is not None else "viewer" if reads else "member"
    if command.role == now or command.role == "viewer":
        return ""
    owners = [each for each, known in conversation.participants.items() if known.role == "owner"]
    left = participant is not None and now == "member" and not any(each in state.members for each in owners)
    return "" if left and command.role == "owner" else OWNERS


def _added(state: MeshState, conversation: Conversation, command: MessageAdded) -> str:
    if command.form != "answer":
        return ""
    question = conversation.messages.get(command.parent)
    if question is None or question.form != "to-model":
        return "expected an answer to a question"
    return _taken(state, command.session, command.author, "")


def _adopted(state: MeshState, conversation: Conversation, command: AnswerAdopted) -> str:
    message = conversation.messages.get(command.id)
    if message is None:
        return ""
    here = message.state == "running" and command.before in state.members
    if here and command.before != command.author:
        return "expected an answer whose asker is gone, or one that was stopped"
    if command.session == message.session:
        return ""
    return _taken(state, command.session, command.author, command.id)


def _taken(state: MeshState, session: str, author: str, but: str) -> str:
    """A session belongs to who asked in it first: an answer lets its author take it over on every stage."""
    for conversation in state.conversations.values():
        for message in conversation.messages:
            if message.session == session and message.author != author and message.id != but:
                return "expected a session of the asker's own"
    return ""
