"""Decides how a conversation stands in a file: JSON that is brought in again, Markdown for people. Pure.

The page writes and reads the same format (web_peer/ui/conversation/export.ts).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from peer.conversation.turn_order import shown
from peer.errors import BadCommand
from peer.limits import MAX_INT, MAX_SAMPLING
from peer.state.conversations import Conversation
from peer.state.display_names import name_of, plain, told_apart
from peer.state.generated.commands import (
    MAX_CONVERSATION_BYTES,
    MAX_MESSAGE_BYTES,
    MAX_MESSAGES,
    ConversationCommand,
    Ended,
    Form,
    MessageAdded,
    MessageEnded,
)

FORMAT: Final = "shoal conversation 1"
MAX_FILE_BYTES: Final = 4 * MAX_CONVERSATION_BYTES  # texts as JSON spells them, and what stands around them
MAX_TITLE: Final = 200  # characters
MAX_KEY: Final = 64  # characters of a message's id in a file
_ENDS: Final = ("done", "stopped", "failed")


@dataclass(frozen=True, slots=True)
class Kept:
    """A message of a file: `key` and `parent` are names within the file."""

    key: str
    parent: str
    form: Form
    by: str
    text: str
    state: Ended
    tokens: int
    when_ms: int


@dataclass(frozen=True, slots=True)
class Transcript:
    """What a file holds of a conversation."""

    title: str
    system: str
    sampling: tuple[int, ...]
    messages: tuple[Kept, ...]


def transcript(conversation: Conversation) -> Transcript:
    """All of it, with every branch. An answer that runs is one that was stopped."""
    called = _names(conversation)
    kept = [
        Kept(
            message.id,
            message.parent,
            message.form,
            "model" if message.form == "answer" else called(message.author),
            message.text,
            "stopped" if message.state == "running" else message.state,
            message.tokens,
            message.when_ms,
        )
        for message in conversation.messages
    ]
    return Transcript(conversation.title, conversation.system, conversation.sampling, tuple(kept))


def as_json(kept: Transcript) -> str:
    """The same transcript, always in the same bytes."""
    messages = [
        {
            "id": each.key,
            "parent": each.parent,
            "form": each.form,
            "by": each.by,
            "text": each.text,
            "state": each.state,
            "tokens": each.tokens,
            "when_ms": each.when_ms,
        }
        for each in kept.messages
    ]
    whole = {
        "format": FORMAT,
        "title": kept.title,
        "system": kept.system,
        "sampling": list(kept.sampling),
        "messages": messages,
    }
    return json.dumps(whole, ensure_ascii=False, indent=2) + "\n"


def from_json(data: bytes) -> Transcript:
    """What `as_json` wrote. Raises BadCommand, which says what is wrong with the file."""
    if len(data) > MAX_FILE_BYTES:
        raise BadCommand(f"expected a conversation of at most {MAX_FILE_BYTES} bytes, got more")
    try:
        whole = json.loads(data)
    except (ValueError, RecursionError):
        raise BadCommand("expected JSON, such as --export writes") from None
    if not isinstance(whole, dict) or whole.get("format") != FORMAT:
        raise BadCommand(f"expected a file of the format {FORMAT!r}")
    items = whole.get("messages")
    if not isinstance(items, list) or len(items) > MAX_MESSAGES:
        raise BadCommand(f"messages: expected a list of at most {MAX_MESSAGES}")
    sampling = whole.get("sampling", [])
    if (
        not isinstance(sampling, list)
        or len(sampling) > MAX_SAMPLING
        or any(type(number) is not int or abs(number) > MAX_INT for number in sampling)
    ):
        raise BadCommand(f"sampling: expected at most {MAX_SAMPLING} whole numbers")
    known: dict[str, Kept] = {}
    before = ""
    for number, item in enumerate(items):
        kept = _kept(item, number, before, known)
        known[kept.key] = kept
        before = kept.key
    if sum(len(each.text.encode()) for each in known.values()) > MAX_CONVERSATION_BYTES:
        raise BadCommand(f"messages: expected at most {MAX_CONVERSATION_BYTES} bytes of text")
    title = plain(_text(whole.get("title", ""), "title"))[:MAX_TITLE]
    return Transcript(title, _text(whole.get("system", ""), "system"), tuple(sampling), tuple(known.values()))


def _kept(item: Any, number: int, before: str, known: Mapping[str, Kept]) -> Kept:
    where = f"message {number + 1}"
    if not isinstance(item, dict):
        raise BadCommand(f"{where}: expected an object")
    form, state = item.get("form"), item.get("state", "done")
    if form not in ("to-model", "to-people", "answer") or state not in _ENDS:
        raise BadCommand(f"{where}: expected the form of a message, and how it ended")
    key, parent = item.get("id", f"#{number}"), item.get("parent", before)
    if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY or key in known:
        raise BadCommand(f"{where}: expected an id of its own of at most {MAX_KEY} characters")
    if parent != "" and parent not in known:
        raise BadCommand(f"{where}: expected the id of an earlier message as parent")
    if form == "answer" and (parent == "" or known[parent].form != "to-model"):
        raise BadCommand(f"{where}: expected an answer to a question")
    tokens, when_ms = item.get("tokens", 0), item.get("when_ms", 0)
    if any(type(count) is not int or not 0 <= count <= MAX_INT for count in (tokens, when_ms)):
        raise BadCommand(f"{where}: expected whole numbers as tokens and when_ms")
    by = plain(_text(item.get("by", ""), where))[:MAX_TITLE]
    text = _text(item.get("text"), where)
    return Kept(key, parent, cast(Form, form), by, text, cast(Ended, state), tokens, when_ms)


def _text(value: object, where: str) -> str:
    try:
        if isinstance(value, str) and len(value.encode()) <= MAX_MESSAGE_BYTES:
            return value
    except UnicodeEncodeError:  # half a surrogate pair
        pass
    raise BadCommand(f"{where}: expected text of at most {MAX_MESSAGE_BYTES} bytes")


def brought(
    kept: Transcript, conversation: str, me: str, new_id: Callable[[], str], new_session: Callable[[], str]
) -> list[ConversationCommand]:
    """The commands that say it again in a conversation that is there. Whoever brings it in says it all: who said what
    stays readable where several did.
    """
    said: list[ConversationCommand] = []
    ids = {"": ""}
    several = len({each.by for each in kept.messages if each.form != "answer"}) > 1
    for each in kept.messages:
        ids[each.key] = new_id()
        answer = each.form == "answer"
        text = f"{each.by}: {each.text}" if several and each.by and not answer else each.text
        text = text.encode()[:MAX_MESSAGE_BYTES].decode(errors="ignore")
        session = new_session() if answer else ""
        added = MessageAdded(
            conversation,
            ids[each.key],
            ids[each.parent],
            me,
            each.form,
            "" if answer else text,
            each.when_ms,
            session,
            "",
            (),
            0,
        )
        said.append(added)
        if answer:
            ended = MessageEnded(conversation, ids[each.key], each.state, each.tokens, text, "")
            said.append(ended)
    return said


def as_markdown(conversation: Conversation, chosen: Mapping[str, str]) -> str:
    """What is shown of it, branch by branch as chosen."""
    called = _names(conversation)
    parts = [f"# {conversation.title or 'Conversation'}"]
    if conversation.system.strip():
        parts.append("> " + conversation.system.strip().replace("\n", "\n> "))
    for turn in shown(conversation.messages, chosen):
        to_people = " (to people)" if turn.message.form == "to-people" else ""
        parts.append(f"**{called(turn.message.author)}**{to_people}\n\n{turn.message.text}")
        if turn.answer is not None and turn.answer.text:
            stopped = " (stopped)" if turn.answer.state != "done" else ""
            parts.append(f"**Model**{stopped}\n\n{turn.answer.text}")
    return "\n\n".join(parts) + "\n"


def _names(conversation: Conversation) -> Callable[[str], str]:
    called = told_apart({peer: each.name for peer, each in conversation.participants.items()})
    return lambda peer: name_of(peer, called)
