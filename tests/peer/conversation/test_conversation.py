"""Conversations as people meet them: lines that are typed, files that are kept, hints that come out of order."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from peer.cli.conversation_lines import (
    Typed,
    branch_picked,
    names_in,
    peer_named,
    read_line,
    readers,
    whole_lines,
)
from peer.conversation.conversation_client import _seeded
from peer.conversation.live_answer import Listening, Piece
from peer.conversation.live_hints import piece_of
from peer.conversation.transcripts import FORMAT, as_json, as_markdown, brought, from_json, transcript
from peer.conversation.turn_order import leaf_of, shown
from peer.errors import BadCommand
from peer.session.origin import Heard
from peer.state.conversations import Conversation, Conversations, converse
from peer.state.generated.commands import (
    AnswerAdopted,
    ConversationCommand,
    ConversationStarted,
    EntryChosen,
    MessageAdded,
    MessageEnded,
    MessageExtended,
    ParticipantSet,
)
from peer.wire.generated import requests
from planner.model.sampling_defaults import SamplingDefaults

GREY = "#888888"
SESSION = "0" * 32
STANDING = Heard(1, 1, (4,))


def added(name: str, parent: str, author: str, form: Any = "to-model", text: str = "") -> MessageAdded:
    session = SESSION if form == "answer" else ""
    return MessageAdded("c", name, parent, author, form, text, 7, session, "", (), 9)


def after(known: Conversations, *commands: ConversationCommand) -> Conversations:
    for command in commands:
        made = converse(known, command)
        assert not isinstance(made, str), made
        known = made
    return known


def talk() -> Conversation:
    """Ann asks twice in other words, Bob chats, the second question has two answers."""
    return after(
        {},
        ConversationStarted("c", "tea", "", "be\nbrief", (1, 2), 1, "ann", "Ann", GREY),
        ParticipantSet("c", "bob", "Bob", GREY, "member"),
        added("q1", "", "ann", text="what is tea?"),
        added("a1", "q1", "ann", "answer"),
        MessageEnded("c", "a1", "done", 2, "a leaf", ""),
        added("q2", "", "ann", text="what is black tea?"),
        added("a2", "q2", "ann", "answer"),
        MessageEnded("c", "a2", "failed", 0, None, "no plan"),
        added("a3", "q2", "bob", "answer"),
        MessageExtended("c", "a3", 0, 3, "a leaf, rol"),
        added("p1", "a3", "bob", "to-people", "hm\u2026 \u00fc\n# no heading"),
    )["c"]


@pytest.mark.parametrize(
    ("line", "typed"),
    [
        ("", None),
        ("  \t", None),
        ("hello /stop", Typed("ask", "hello /stop")),
        ("//  hi ", Typed("say", "hi")),
        ("//", None),
        ("/say hi", Typed("say", "hi")),
        ("/stop", Typed("stop", "")),
        ("/role Ann Lee viewer", Typed("role", "Ann Lee viewer")),
        ("/open", Typed("wrong", "/open needs something after it; /help shows what")),
        ("/\x1b[2Jx", Typed("wrong", "there is no /\ufffd[2Jx; /help shows what there is")),
    ],
)
def test_lines(line: str, typed: Typed | None) -> None:
    assert read_line(line) == typed


def test_names_are_told_apart() -> None:
    same = after({"c": talk()}, ParticipantSet("c", "bobby", "Bob", GREY, "viewer"))["c"]
    assert names_in(same) == {"ann": "Ann", "bob": "Bob (bob)", "bobby": "Bob (bobb)"}
    assert [peer_named(same, name) for name in ("ann", "Bob", "bobby", "x")] == ["ann", None, "bobby", None]


def test_who_reads_is_said() -> None:
    everyone = "everyone in the mesh can read this conversation"
    assert readers(talk()) == f"{everyone}; everyone may take part"
    invited = after({"c": talk()}, EntryChosen("c", True))["c"]
    assert readers(invited) == f"{everyone}; invited people take part"


def test_branches_are_switched() -> None:
    messages = talk().messages
    assert [(t.message.id, t.answer and t.answer.id) for t in shown(messages, {})] == [
        ("q2", "a3"),
        ("p1", None),
    ]
    other = branch_picked(messages, {}, 1)
    assert other is not None
    assert leaf_of(shown(messages, other)) == "a2", "the last that has several is the answer"
    assert branch_picked(messages, {}, 3) is None


@pytest.mark.parametrize(
    ("text", "width", "shown_part"),
    [
        ("abc", 5, ""),
        ("ab\ncd", 5, "ab\n"),
        ("ab cd ef", 5, "ab cd "),
        ("abcdefgh", 3, "abcdef"),
        ("", 3, ""),
    ],
)
def test_whole_lines(text: str, width: int, shown_part: str) -> None:
    assert text[: whole_lines(text, width)] == shown_part


# --- files


def test_a_file_is_read_as_it_was_written() -> None:
    kept = transcript(talk())
    assert from_json(as_json(kept).encode()) == kept
    assert [each.state for each in kept.messages if each.form == "answer"] == ["done", "failed", "stopped"]


def test_a_file_is_brought_back_with_its_branches() -> None:
    kept = transcript(talk())
    ids = (f"n{number}" for number in count())
    start = ConversationStarted("d", kept.title, "", kept.system, kept.sampling, 1, "cho", "Cho", GREY)
    sessions = (f"{number:032x}" for number in count())
    commands = brought(kept, "d", "cho", lambda: next(ids), lambda: next(sessions))
    again = transcript(after({}, start, *commands)["d"])
    assert {message.author for message in after({}, start, *commands)["d"].messages} == {"cho"}
    named = [f"{m.by}: {m.text}" if m.form != "answer" else m.text for m in kept.messages]
    assert [message.text for message in again.messages] == named, "two people spoke: their names stay"
    places = {message.key: number for number, message in enumerate(kept.messages)}
    own = {message.key: number for number, message in enumerate(again.messages)}
    assert [own.get(m.parent) for m in again.messages] == [places.get(m.parent) for m in kept.messages]
    assert [(m.form, m.state, m.tokens, m.when_ms) for m in again.messages] == [
        (m.form, m.state, m.tokens, m.when_ms) for m in kept.messages
    ]
    assert (again.title, again.system, again.sampling) == (kept.title, kept.system, kept.sampling)


def test_a_page_s_file_has_fewer_fields() -> None:
    messages = [
        {"form": "to-model", "by": "Ann", "text": "q"},
        {"form": "answer", "by": "model", "text": "a"},
    ]
    read = from_json(json.dumps({"format": FORMAT, "title": "t", "messages": messages}).encode())
    assert [(m.key, m.parent, m.form, m.text) for m in read.messages] == [
        ("#0", "", "to-model", "q"),
        ("#1", "#0", "answer", "a"),
    ]


GOOD = {"id": "a", "parent": "", "form": "to-model", "by": "x", "text": "t", "state": "done", "tokens": 0}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[" * 100_000,
        b"[]",
        b"{}",
        json.dumps({"format": FORMAT}).encode(),
        json.dumps({"format": FORMAT, "messages": {}}).encode(),
        json.dumps({"format": FORMAT, "messages": [GOOD], "sampling": [True]}).encode(),
        json.dumps({"format": FORMAT, "messages": [GOOD], "sampling": [2**53]}).encode(),
        json.dumps({"format": FORMAT, "messages": [GOOD], "title": 7}).encode(),
        json.dumps({"format": FORMAT, "messages": [GOOD, GOOD]}).encode(),
        json.dumps({"format": FORMAT, "messages": [GOOD] * 20000}).encode(),
        *(
            json.dumps({"format": FORMAT, "messages": [{**GOOD, **change}]}).encode()
            for change in (
                {"form": "x"},
                {"state": "running"},
                {"id": ""},
                {"id": "x" * 65},
                {"parent": "a"},
                {"form": "answer"},
                {"tokens": -1},
                {"tokens": 1.5},
                {"when_ms": True},
                {"text": None},
                {"text": "x" * 65537},
                {"text": "\ud800"},
            )
        ),
    ],
)
def test_a_file_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(BadCommand):
        from_json(data)


def test_markdown_has_what_is_shown() -> None:
    text = as_markdown(talk(), {})
    assert text.startswith(
        "# tea\n\n> be\n> brief\n\n**Ann**\n\nwhat is black tea?\n\n**Model** (stopped)\n\na leaf, rol"
    )
    assert "**Bob** (to people)" in text
    assert "a leaf\n" not in text


# --- hints


def piece(at: int, *ids: int) -> Piece:
    return Piece(at, ids, "".join(f"{token} " for token in ids), STANDING)


def test_pieces_wait_for_those_before_them_and_for_the_log() -> None:
    known = after({"c": talk()}, added("a9", "q1", "ann", "answer"))
    listening = Listening()
    listening.came("ann", "a9", piece(2, 13))
    listening.came("ann", "a9", piece(0, 11, 12))
    listening.came("ann", "a9", piece(0, 11, 12))
    listening.came("bob", "a9", piece(3, 66))  # not its author
    stream = listening.of("a9")
    assert stream is not None
    assert (stream.ids, stream.text, stream.sure) == ((11, 12, 13), "11 12 13 ", False)
    answer = known["c"].messages.get("a9")
    assert answer is not None
    assert listening.text(answer) == ("", 0), "the log has not named its author yet"
    listening.follow(answer)
    assert listening.text(answer) == ("11 12 13 ", 3)
    ahead = after(known, MessageExtended("c", "a9", 0, 5, "five "))["c"].messages.get("a9")
    assert ahead is not None
    listening.follow(ahead)
    listening.came("ann", "a9", piece(5, 16))
    stream = listening.of("a9")
    assert stream is not None
    assert (stream.tokens, stream.text, stream.ids) == (6, "five 16 ", (11, 12, 13)), (
        "ids are those before the hole"
    )


def test_a_stream_that_never_ends_is_not_kept() -> None:
    listening = Listening()
    listening.came("eve", "a9", Piece(0, (), "x" * 60_000, STANDING))
    listening.came("eve", "a9", Piece(0, (), "y" * 60_000, STANDING))
    stream = listening.of("a9")
    assert stream is not None
    assert len(stream.text) == 60_000


def test_who_adopts_goes_on_from_what_its_author_said_and_a_forger_never_counts() -> None:
    known = after({"c": talk()}, added("a9", "q1", "ann", "answer"))
    answer = known["c"].messages.get("a9")
    adopted = after(known, AnswerAdopted("c", "a9", "ann", "bob", SESSION))["c"].messages.get("a9")
    assert answer is not None
    assert adopted is not None
    honest, forged = Listening(), Listening()
    honest.came("ann", "a9", piece(0, 11))
    honest.follow(answer)
    honest.follow(adopted)
    honest.came("bob", "a9", piece(1, 12))
    assert honest.text(adopted) == ("11 12 ", 2)
    forged.came("eve", "a9", piece(0, 66))
    forged.follow(answer)
    forged.came("ann", "a9", piece(0, 11))
    assert forged.text(answer) == ("11 ", 1)
    honest.follow(replace(adopted, state="done"))
    assert honest.of("a9") is None


LIVE = {
    "conversation": "c",
    "message": "m",
    "after": 0,
    "ids": [1],
    "text": "x",
    "answer": 1,
    "turn": 1,
    "spans": [1],
}


@pytest.mark.parametrize(
    "change",
    [
        {"conversation": ""},
        {"message": 7},
        {"after": -1},
        {"ids": [1.5]},
        {"ids": [True]},
        {"ids": [0] * 4097},
        {"spans": [0] * 513},
        {"text": "\u00fc" * 40_000},
        {"turn": 2**53},
        {"answer": None},
    ],
)
def test_wrong_hints_are_refused(change: dict[str, Any]) -> None:
    assert piece_of(requests.LIVE.read(dict(LIVE))) == Piece(0, (1,), "x", Heard(1, 1, (1,)))
    with pytest.raises(BadCommand):
        requests.LIVE.read({**LIVE, **change})
    with pytest.raises(BadCommand):
        requests.TYPING.read({"conversation": "c", "typing": 1})


@pytest.mark.parametrize(
    ("sampling", "eight"),
    [
        ((), (600_000, 20, 1_000_000, 0, 1_000_000, 0, 0)),
        ((0, 0, 1_000_000, 0, 1_000_000, 0, 0, 5, 40, 0), (0, 0, 1_000_000, 0, 1_000_000, 0, 0)),
    ],
)
def test_an_answer_is_drawn_as_its_conversation_says_or_else_as_the_model_has_it(
    sampling: tuple[int, ...], eight: tuple[int, ...]
) -> None:
    drawn = _seeded(sampling, SamplingDefaults(0.6, 20))
    assert drawn[:7] == eight
    assert drawn != _seeded(sampling, SamplingDefaults(0.6, 20)), "each with a seed of its own"
    assert _seeded((*eight, 5, 0, 1), SamplingDefaults(1.0)) == (*eight, 5)
