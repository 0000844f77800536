"""Decides what a line typed in a conversation asks for, and how messages read in a terminal. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from peer.conversation.turn_order import branch_key, shown
from peer.state.conversations import Conversation, Messages
from peer.state.display_names import plain, told_apart
from peer.state.generated.commands import Message

HELP: Final = """\
TEXT              asks the model; every participant sees question and answer
//TEXT, /say TEXT says something to the people only
/list             the conversations of this mesh
/open N           another conversation, by number, id or title
/new TITLE        begins another one
/people           who takes part, and who is here
/invite           the link that lets others into the mesh
/invite ROLE      a link that brings somebody into this conversation, as member or viewer
/invites          the links into this conversation, and who may come in without one
/withdraw LINK    nobody comes in with that one of /invites any more
/entry invited    only who is invited comes in; /entry open: everybody in the mesh
/role NAME ROLE   makes somebody owner, member (asks) or viewer (reads)
/kick NAME        somebody takes part no more, and cannot come back unless an owner gives them a role
/stop             ends the answer under way
/again            another answer to the last question
/continue         the last answer goes on, if it was stopped
/edit TEXT        your last question in other words, as another branch
/branch N         the Nth branch of the last message that has several
/title TEXT       another title
/name NAME        what you are called from now on, by the whole mesh
/system TEXT      instructions before the conversation, from the next question on
/export FILE      keeps the conversation: FILE.md as Markdown, else as JSON
/import FILE      begins a conversation with what a file of /export holds
/history          everything again
/leave            takes part no more
/remove           removes the conversation for everybody
/quit             ends; you stay in the conversation"""

COMMANDS: Final = frozenset(
    line.split()[0].rstrip(",")[1:] for line in HELP.splitlines() if line.startswith("/") and line[1] != "/"
) | {"say", "help"}
NEED: Final = frozenset(
    {
        "say",
        "open",
        "new",
        "role",
        "withdraw",
        "entry",
        "kick",
        "edit",
        "branch",
        "title",
        "name",
        "export",
        "import",
    }
)

_COLOURS: Final = ("#4c8bf5", "#e8710a", "#1e8e3e", "#d93025", "#9334e6", "#00838f", "#c2185b", "#7a6a00")


NOBODY: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class Typed:
    """`what` is "ask", "say", a command of HELP, or "wrong" with a text for people."""

    what: str
    text: str


def read_line(line: str) -> Typed | None:
    """What `line` asks for; None for nothing."""
    line = line.strip()
    if not line:
        return None
    if line.startswith("//"):
        text = line[2:].strip()
        return Typed("say", text) if text else None
    if not line.startswith("/"):
        return Typed("ask", line)
    word, _, rest = line[1:].partition(" ")
    rest = rest.strip()
    if word not in COMMANDS:
        return Typed("wrong", f"there is no /{plain(word)[:20]}; /help shows what there is")
    if word in NEED and not rest:
        return Typed("wrong", f"/{word} needs something after it; /help shows what")
    return Typed(word, rest)


def colour_of(peer: str) -> str:
    """A colour for somebody who chose none, the same for everybody who sees it."""
    return _COLOURS[hashlib.sha256(peer.encode()).digest()[0] % len(_COLOURS)]


def names_in(conversation: Conversation) -> dict[str, str]:
    """What participants are called, told apart where two are called the same."""
    return told_apart({peer: each.name for peer, each in conversation.participants.items()})


def readers(conversation: Conversation) -> str:
    """Who reads a conversation of the mesh, and who takes part, in a line."""
    part = "invited people take part" if conversation.entry.by_invite else "everyone may take part"
    return f"everyone in the mesh can read this conversation; {part}"


def peer_named(conversation: Conversation, name: str, others: Mapping[str, str] = NOBODY) -> str | None:
    """Who is called that way, or has an id that begins so; None when it is nobody or more than one. `others`: names of
    those who take no part; participants come first.
    """
    called = names_in(conversation)
    outside = [peer for peer, known in others.items() if known == name and peer not in called]
    if not any(known.lower() == name.lower() for known in called.values()) and len(outside) == 1:
        return outside[0]
    found = [peer for peer, known in called.items() if known == name or known.lower() == name.lower()]
    found = found or [peer for peer in called if peer.startswith(name)]
    return found[0] if len(found) == 1 else None


def branch_picked(messages: Messages, chosen: dict[str, str], number: int) -> dict[str, str] | None:
    """The choice with the `number`th branch of the last message that has several; None where there is no such one."""
    for turn in reversed(shown(messages, chosen)):
        for found, message in ((turn.answers, turn.answer), (turn.branches, turn.message)):
            if message is not None and len(found) > 1:
                if not 1 <= number <= len(found):
                    return None
                return {**chosen, branch_key(message): found[number - 1]}
    return None


def ending(answer: Message) -> str:
    """Why an answer is not whole, in brackets; "" where it is."""
    match answer.state:
        case "stopped":
            return f"[stopped{': ' + plain(answer.reason) if answer.reason else ''}]"
        case "failed":
            return f"[failed: {plain(answer.reason) or 'nobody knows why'}]"
        case _:
            return ""


def whole_lines(text: str, width: int) -> int:
    """How much of `text` can be shown as lines while more of it comes: up to a line's end, or a full line of words."""
    end = text.rfind("\n") + 1
    while len(text) - end > width:
        space = text.rfind(" ", end, end + width + 1)
        end = space + 1 if space > end else end + width
    return end
