"""How messages of a conversation look in a terminal."""

from __future__ import annotations

import pytest

from peer.cli.conversations import Screen
from peer.conversation.picture_marks import Marked, PictureMark, marked_text
from peer.state.generated.commands import Message


def test_a_picture_of_a_question_is_told_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    pictures = (PictureMark("0" * 64, "a cat"), PictureMark("1" * 64, ""))
    text = marked_text(Marked(pictures, "What is it?"))
    screen = Screen()
    screen.message(
        Message("q", "", "ann", "to-model", text, 0, "done", 0, "", "", "", (), 0), "Ann", "#000000"
    )
    assert capsys.readouterr().out == "Ann: [picture: a cat]\n[picture]\nWhat is it?\n"
