"""Decides what people and the model said to each other, in which order and along which branches.

Pure; the same in web_peer/src/state/conversations.ts. A message of 10,000 is added or changed without copying the
others: they stand in chunks that later states share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final, assert_never

from peer.errors import BadCommand
from peer.limits import MAX_SAMPLING
from peer.state.conversation_entry import OPEN, barring, given, letting, offered
from peer.state.generated.commands import (
    MAX_ALL_BYTES,
    MAX_CONVERSATION_BYTES,
    MAX_CONVERSATIONS,
    MAX_MESSAGE_BYTES,
    MAX_MESSAGES,
    MAX_PARTICIPANTS,
    AnswerAdopted,
    ConversationChanged,
    ConversationCommand,
    ConversationRemoved,
    ConversationStarted,
    Entry,
    EntryChosen,
    EntryCommand,
    EntryOffered,
    EntryWithdrawn,
    Message,
    MessageAdded,
    MessageEnded,
    MessageExtended,
    Participant,
    ParticipantInvited,
    ParticipantLeft,
    ParticipantPutOut,
    ParticipantSet,
    entry_codec,
    message_codec,
    participant_codec,
)
from peer.wire.json_codec import (
    Codec,
    integer,
    items_of,
    listed,
    prose,
    record,
    table,
    text,
    uint,
)

FULL: Final = f"{MAX_PARTICIPANTS} people take part, which is the most"
CHUNK: Final = 128  # messages copied for a change, at most


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages in the order of the log: chunks of CHUNK by id, the last one may be shorter."""

    chunks: tuple[Mapping[str, Message], ...] = ()
    count: int = 0
    text_bytes: int = 0

    def get(self, message: str) -> Message | None:
        """Returns the message of that id, or None."""
        for chunk in reversed(self.chunks):
            if (found := chunk.get(message)) is not None:
                return found
        return None

    def __iter__(self) -> Iterator[Message]:
        return chain.from_iterable(chunk.values() for chunk in self.chunks)

    def __len__(self) -> int:
        return self.count

    def added(self, message: Message) -> Messages:
        """Returns these messages with one more; chunks that are full are shared."""
        last, full = (self.chunks[-1], self.chunks[:-1]) if self.count % CHUNK else ({}, self.chunks)
        size = self.text_bytes + len(message.text.encode())
        return Messages((*full, {**last, message.id: message}), self.count + 1, size)

    def changed(self, message: Message) -> Messages:
        """With `message` in place of the one with its id."""
        at = next(place for place, chunk in enumerate(self.chunks) if message.id in chunk)
        chunk = self.chunks[at]
        size = self.text_bytes - len(chunk[message.id].text.encode()) + len(message.text.encode())
        chunks = (*self.chunks[:at], {**chunk, message.id: message}, *self.chunks[at + 1 :])
        return Messages(chunks, self.count, size)


@dataclass(frozen=True, slots=True)
class Conversation:
    """`model` "" is the one that the mesh serves; `system` and `sampling` hold for questions from now on."""

    title: str
    model: str
    system: str
    sampling: tuple[int, ...]
    created_ms: int
    participants: Mapping[str, Participant] = field(default_factory=dict)
    messages: Messages = field(default_factory=Messages)
    entry: Entry = OPEN


Conversations = Mapping[str, Conversation]


def thread(messages: Messages, leaf: str) -> tuple[Message, ...]:
    """The messages from the first one to `leaf`: what a model gets to read, less those to people."""
    known = {message.id: message for message in messages}
    found = []
    message = known.get(leaf)
    while message is not None:
        found.append(message)
        message = known.get(message.parent)
    return tuple(reversed(found))


def asker_of(conversations: Conversations, session: str) -> str | None:
    """Who asks the answer that runs in `session`; None where none does. Of several, the first one counts."""
    for conversation in conversations.values():
        for message in conversation.messages:
            if message.session == session and message.state == "running":
                return message.author
    return None


# --- what commands change ---------------------------------------------------------------------------------


def converse(conversations: Conversations, command: ConversationCommand) -> Conversations | str:
    """The conversations after `command`, or why it changes nothing."""
    if isinstance(command, ConversationStarted):
        return _started(conversations, command)
    conversation = conversations.get(command.conversation)
    if conversation is None:
        return "there is no such conversation"
    if isinstance(command, ConversationRemoved):
        return {name: each for name, each in conversations.items() if name != command.conversation}
    room = MAX_ALL_BYTES - sum(each.messages.text_bytes for each in conversations.values())
    changed = _within(conversation, command, room)
    return changed if isinstance(changed, str) else {**conversations, command.conversation: changed}


def _started(conversations: Conversations, command: ConversationStarted) -> Conversations | str:
    if command.conversation in conversations:
        return "this conversation was started before"
    if len(conversations) >= MAX_CONVERSATIONS:
        return f"there are {MAX_CONVERSATIONS} conversations, which is the most; remove one first"
    owner = Participant(command.name, command.colour, "owner")
    made = Conversation(
        command.title,
        command.model,
        command.system,
        command.sampling,
        command.when_ms,
        {command.peer: owner},
    )
    return {**conversations, command.conversation: made}


def _within(
    conversation: Conversation,
    command: ConversationChanged
    | ParticipantSet
    | ParticipantLeft
    | MessageAdded
    | MessageExtended
    | MessageEnded
    | AnswerAdopted
    | EntryCommand,
    room: int,
) -> Conversation | str:
    """The conversation after `command`. `room`: bytes of text that all conversations may still grow by."""
    people = conversation.participants
    match command:
        case ConversationChanged(_, title, model, system, sampling):
            return replace(conversation, title=title, model=model, system=system, sampling=sampling)
        case ParticipantSet(_, peer, name, colour, role):
            if peer not in people and len(people) >= MAX_PARTICIPANTS:
                return FULL
            known = {**people, peer: Participant(name, colour, role)}
            return replace(conversation, participants=known, entry=letting(conversation.entry, peer))
        case ParticipantLeft(_, peer):
            return _without(conversation, peer)
        case ParticipantPutOut(_, peer):
            out = _without(conversation, peer)
            return out if isinstance(out, str) else replace(out, entry=barring(out.entry, peer))
        case ParticipantInvited(_, _, peer, name, colour, _):
            offer = given(conversation.entry, command)
            if peer in people:
                return "this peer takes part already"
            if isinstance(offer, str):
                return offer
            if len(people) >= MAX_PARTICIPANTS:
                return FULL
            come = Participant(name, colour, offer.role)
            return replace(conversation, participants={**people, peer: come})
        case EntryChosen() | EntryOffered() | EntryWithdrawn():
            entry = offered(conversation.entry, command)
            return entry if isinstance(entry, str) else replace(conversation, entry=entry)
        case MessageAdded():
            added = _added(conversation.messages, command)
        case MessageExtended() | MessageEnded() | AnswerAdopted():
            added = _changed(conversation.messages, command)
        case _:
            assert_never(command)
    if isinstance(added, str):
        return added
    grown = added.text_bytes - conversation.messages.text_bytes
    if grown > 0 and added.text_bytes > MAX_CONVERSATION_BYTES:
        return (
            f"the conversation has {MAX_CONVERSATION_BYTES} bytes of text, which is the most; start another"
        )
    if grown > max(0, room):
        return "the conversations are full; remove one first"
    return replace(conversation, messages=added)


def _without(conversation: Conversation, peer: str) -> Conversation | str:
    people = conversation.participants
    if peer not in people:
        return "this peer takes no part"
    return replace(conversation, participants={each: known for each, known in people.items() if each != peer})


def _added(messages: Messages, command: MessageAdded) -> Messages | str:
    if messages.get(command.id) is not None:
        return "this message was added before"
    if command.parent and messages.get(command.parent) is None:
        return "the message that it follows is not there"
    if messages.count >= MAX_MESSAGES:
        return f"the conversation has {MAX_MESSAGES} messages, which is the most; start another"
    is_answer = command.form == "answer"
    if is_answer != bool(command.session):
        return "an answer has a session, other messages have none"
    message = Message(
        command.id,
        command.parent,
        command.author,
        command.form,
        command.text,
        command.when_ms,
        "running" if is_answer else "done",
        0,
        "",
        command.session,
        command.model,
        command.sampling,
        command.max_tokens,
    )
    return messages.added(message)


def _changed(messages: Messages, command: MessageExtended | MessageEnded | AnswerAdopted) -> Messages | str:
    message = messages.get(command.id)
    if message is None:
        return "there is no such message"
    if isinstance(command, AnswerAdopted):
        if message.form != "answer" or message.state == "done":
            return "this answer is complete"
        if message.author != command.before:
            return "another peer has adopted this answer"
        adopted = replace(message, author=command.author, session=command.session, state="running", reason="")
        return messages.changed(adopted)
    if message.state != "running":
        return "this answer has ended"
    if isinstance(command, MessageEnded):
        words = message.text if command.text is None else command.text
        ended = replace(
            message, state=command.state, tokens=command.tokens, text=words, reason=command.reason
        )
        return messages.changed(ended)
    if message.tokens != command.after or command.tokens < command.after:
        return f"this answer has {message.tokens} tokens"
    words = message.text + command.text
    if len(words.encode()) > MAX_MESSAGE_BYTES:
        return f"a message has at most {MAX_MESSAGE_BYTES} bytes; go on in another"
    return messages.changed(replace(message, tokens=command.tokens, text=words))


# --- wire -------------------------------------------------------------------------------------------------


def _decode_messages(value: Any, where: str) -> Messages:
    known: dict[str, Message] = {}
    for item in items_of(value, where, MAX_MESSAGES):
        message = message_codec.decode(item, where)
        if message.id in known or (message.parent and message.parent not in known):
            raise BadCommand(f"{where}: expected each message once, and after the one that it follows")
        known[message.id] = message
    every = list(known.items())
    chunks = tuple(dict(every[first : first + CHUNK]) for first in range(0, len(every), CHUNK))
    size = sum(len(message.text.encode()) for message in known.values())
    return Messages(chunks, len(every), size)


_messages: Final = Codec(_decode_messages, lambda value: [message_codec.encode(each) for each in value])
_conversation: Final = record(
    Conversation,
    {
        "title": text,
        "model": text,
        "system": prose(MAX_MESSAGE_BYTES),
        "sampling": listed(integer, MAX_SAMPLING),
        "created_ms": uint,
        "participants": table(participant_codec, MAX_PARTICIPANTS),
        "messages": _messages,
        "entry": entry_codec,
    },
    {"entry": OPEN},
)
_every: Final = table(_conversation, MAX_CONVERSATIONS)


def _decode_conversations(value: Any, where: str) -> Conversations:
    conversations = _every.decode(value, where)
    sizes = [each.messages.text_bytes for each in conversations.values()]
    if sum(sizes) > MAX_ALL_BYTES or max(sizes, default=0) > MAX_CONVERSATION_BYTES:
        raise BadCommand(f"{where}: expected at most {MAX_CONVERSATION_BYTES} bytes of text each")
    return conversations


conversations_codec: Final = Codec(_decode_conversations, _every.encode)
