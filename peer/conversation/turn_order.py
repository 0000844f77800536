"""Decides whose turn it is in a conversation, what the model reads, who adopts an answer, which branches are shown.

Pure, over the log alone: everybody decides the same; the same in web_peer/src/conversation/turn_order.ts. Siblings are
branches of one another when both answer one question, or when one person said both (an edit); what two people say at
once is none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from peer.model import chat_template
from peer.state.conversations import Conversation, Messages
from peer.state.generated.commands import Message

# What JavaScript's trim takes away: both implementations must render the same prompt.
_BLANK: Final = "\t\n\v\f\r \xa0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(
    map(chr, range(0x2000, 0x200B))
)


def may_ask(conversation: Conversation, peer: str) -> bool:
    """Owners and members ask; viewers read."""
    participant = conversation.participants.get(peer)
    return participant is not None and participant.role != "viewer"


def running(conversation: Conversation) -> Message | None:
    """The answer under way, the first one in the log if there are several."""
    answers = (m for m in conversation.messages if m.form == "answer" and m.state == "running")
    return next(answers, None)


def waiting(conversation: Conversation) -> list[Message]:
    """Questions that nobody has begun to answer, in the order of the log."""
    answered = {message.parent for message in conversation.messages if message.form == "answer"}
    return [m for m in conversation.messages if m.form == "to-model" and m.id not in answered]


def rank(identifier: str, peers: Iterable[str]) -> list[str]:
    """`peers` in an order that is another one for each message and the same for everybody."""
    return sorted(
        peers, key=lambda peer: (hashlib.sha256((identifier + peer).encode()).hexdigest(), peer.encode())
    )


def next_turn(conversation: Conversation, present: Collection[str]) -> tuple[Message, str] | None:
    """The question to be answered next, and by whom it is asked: by its author, else by somebody who is there."""
    if running(conversation) is not None:
        return None
    question = next(iter(waiting(conversation)), None)
    if question is None:
        return None
    if question.author in present and may_ask(conversation, question.author):
        return question, question.author
    asker = next(iter(rank(question.id, _able(conversation, present))), None)
    return (question, asker) if asker is not None else None


def adopters(conversation: Conversation, answer: Message, present: Collection[str]) -> list[str]:
    """Who may make a running answer go on, the first one first; nobody while its author is there."""
    return [] if answer.author in present else rank(answer.id, _able(conversation, present))


def _able(conversation: Conversation, present: Collection[str]) -> list[str]:
    return [peer for peer in conversation.participants if peer in present and may_ask(conversation, peer)]


def prompt_of(conversation: Conversation, question: str) -> list[chat_template.Message]:
    """What the model reads for `question`: the same for whoever asks first and whoever goes on later."""
    known = {message.id: message for message in conversation.messages}
    first_answers: dict[str, Message] = {}
    for message in known.values():
        if message.form == "answer":
            first_answers.setdefault(message.parent, message)
    path: list[Message] = []
    at = known.get(question)
    while at is not None:
        path.append(at)
        at = known.get(at.parent)
    path.reverse()
    system = conversation.system.strip(_BLANK)
    read = [chat_template.Message("system", system)] if system else []
    for place, asked in enumerate(path):
        if asked.form != "to-model":
            continue
        if asked.id == question:
            read.append(chat_template.Message("user", asked.text))
            break
        after = path[place + 1]
        answer = after if after.form == "answer" else first_answers.get(asked.id)
        if answer is None or answer.state == "failed" or not answer.text:
            continue
        read.append(chat_template.Message("user", asked.text))
        read.append(chat_template.Message("assistant", answer.text))
    return read


# --- what is shown


@dataclass(frozen=True, slots=True)
class Shown:
    """One message as it stands in the conversation, with its answer; all branches by id, in the order of the log."""

    message: Message
    branches: tuple[str, ...]
    answer: Message | None
    answers: tuple[str, ...]


def branch_key(message: Message) -> str:
    """What `message` is one branch of."""
    if message.form == "answer":
        return f"{message.parent} answers"
    return f"{message.parent} by {message.author}"


def shown(messages: Messages, chosen: Mapping[str, str]) -> list[Shown]:
    """Messages in order with the chosen branch of each (by branch_key); where none was chosen, that of the last one."""
    every = list(messages)
    place = {message.id: at for at, message in enumerate(every)}
    last = list(range(len(every)))  # the last message of each one's branch
    for at in range(len(every) - 1, -1, -1):
        parent = place.get(every[at].parent)
        if parent is not None:
            last[parent] = max(last[parent], last[at])
    groups: dict[str, list[Message]] = {}
    for message in every:
        groups.setdefault(branch_key(message), []).append(message)
    picked = {
        key: next(
            (message for message in group if message.id == chosen.get(key)),
            max(group, key=lambda message: last[place[message.id]]),
        )
        for key, group in groups.items()
    }
    seen = {""}
    found: list[Shown] = []
    for message in every:
        key = branch_key(message)
        if message.parent not in seen or picked[key] is not message:
            continue
        seen.add(message.id)
        if message.form == "answer":
            continue
        answers = f"{message.id} answers"
        found.append(
            Shown(
                message,
                tuple(each.id for each in groups[key]),
                picked.get(answers),
                tuple(each.id for each in groups.get(answers, ())),
            )
        )
    return found


def leaf_of(turns: Sequence[Shown]) -> str:
    """What a new message follows."""
    if not turns:
        return ""
    answer = turns[-1].answer
    return answer.id if answer is not None else turns[-1].message.id


def waits_for(conversation: Conversation, question: Message) -> list[str]:
    """The answers of others before a waiting question: whose question it waits for, oldest first."""
    under = running(conversation)
    before = [under] if under is not None else []
    for each in waiting(conversation):
        if each.id == question.id:
            break
        before.append(each)
    return [message.author for message in before]
