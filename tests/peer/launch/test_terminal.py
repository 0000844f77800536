"""Lines of progress on a terminal: they end between words, and a link stays whole."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from peer.launch import terminal

LINK = f"http://192.0.2.7:8765/#{'m' * 32}.{'s' * 48}&in={'c' * 18}.{'k' * 43}"


def said(monkeypatch: pytest.MonkeyPatch, text: str, *, is_terminal: bool) -> str:
    """What stands on a terminal 40 columns wide, or in a file."""
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=is_terminal, width=40, highlight=False, soft_wrap=True)
    monkeypatch.setattr(terminal, "err", console)
    terminal.say(text)
    return shown.getvalue()


@pytest.mark.parametrize("is_terminal", [True, False])
@pytest.mark.parametrize("text", [LINK, f"send {LINK} to people you trust"])
def test_a_link_is_copied_whole_from_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, text: str, is_terminal: bool
) -> None:
    shown = said(monkeypatch, text, is_terminal=is_terminal)
    assert LINK in shown
    assert shown.split() == text.split()


def test_words_are_wrapped_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "word " * 20 + "end"
    lines = said(monkeypatch, text, is_terminal=True).splitlines()
    assert max(map(len, lines)) <= 40
    assert " ".join(line.strip() for line in lines) == text
    assert said(monkeypatch, text, is_terminal=False) == f"{text}\n"
