"""What commands print where the terminal's encoding lacks the characters, and what they read that is no text."""

from __future__ import annotations

import asyncio
import io
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich import box
from rich.table import Table

from peer.cli import chat
from peer.cli.main import main, parser
from peer.launch import json_lines
from peer.launch.streams import POLICY, can_say, take_any_text
from peer.launch.terminal import out, say, write

ANSWER = "Gern 😀 – „Größe“ kostet 5 €…\n"


def stream(encoding: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True)


def said(encoded: io.TextIOWrapper) -> str:
    buffer = encoded.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode(encoded.encoding)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "cp437", "utf-8"])
def test_every_encoding_takes_an_answer_a_line_and_a_table(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, error = stream(encoding), stream(encoding)
    monkeypatch.setattr(sys, "stdout", output)
    monkeypatch.setattr(sys, "stderr", error)
    take_any_text()
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("peer")
    table.add_row("Zoë 😀")
    write(ANSWER)
    out.print(table)
    say(ANSWER)
    words, lines = said(output), said(error)
    for text in (words, lines):
        assert ("Größe" if can_say(output, "öß") else "Grosse") in text
        assert ("😀" if encoding == "utf-8" else "Gern ?") in text
    assert "peer" in words


@pytest.mark.parametrize(
    ("text", "encoding", "expected"),
    [
        ("😀", "ascii", "?"),
        ("❤️", "cp1252", "?"),
        ("a → b · c…", "latin-1", "a -> b · c..."),
        ("Größe", "ascii", "Grosse"),
        ("é ﬁ ½", "ascii", "e fi 12"),
        ("╶─│┼", "ascii", "--|+"),
        ("“a” – b", "cp1252", "“a” – b"),
        ("\ud83d", "utf-8", "?"),
    ],
)
def test_the_nearest_is_said(text: str, encoding: str, expected: str) -> None:
    take_any_text()
    assert text.encode(encoding, POLICY).decode(encoding) == expected


@pytest.mark.parametrize("command", [None, *parser()._subparsers._group_actions[0].choices])  # type: ignore[union-attr, misc]
def test_help_of_every_command_is_said_in_ascii(command: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    output = stream("ascii")
    monkeypatch.setattr(sys, "stdout", output)
    with pytest.raises(SystemExit) as ended:
        main([*([command] if command else []), "--help"])
    assert ended.value.code == 0
    assert "usage: shoal" in said(output)


def test_json_lines_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    error = stream("cp1252")
    monkeypatch.setattr(sys, "stderr", error)
    take_any_text()
    json_lines.tell("info", ANSWER)
    assert json.loads(said(error))["message"] == ANSWER


def test_a_typed_argument_that_is_no_text_becomes_text() -> None:
    args = parser().parse_args(["generate", "LINK", "a\udcffb", "--system", "\udcfe", "--stop", "\udcfd"])
    assert (args.prompt, args.system, args.stop) == ("a\ufffdb", "\ufffd", ["\ufffd"])


@pytest.mark.parametrize(
    ("encoding", "given", "lines"),
    [
        ("utf-8", "ä\r\n😀".encode(), ["ä", "😀"]),
        ("utf-8", b"a\xff\nb", ["a\ufffd", "b"]),
        ("latin-1", b"\xe4\n", ["ä"]),
        ("cp1252", b"\x81\x80\n", ["\ufffd€"]),
    ],
)
def test_piped_lines_are_read_in_the_encoding_of_the_stream(
    encoding: str, given: bytes, lines: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "piped"
    file.write_bytes(given)
    with file.open("rb") as read:
        piped = SimpleNamespace(encoding=encoding, fileno=read.fileno)
        monkeypatch.setattr(sys, "stdin", piped)

        async def all_lines() -> list[str]:
            piped_lines, found = chat.PipedLines(), []
            while (line := await piped_lines.next()) is not None:
                found.append(line)
            return found

        assert asyncio.run(all_lines()) == lines


def test_a_prompt_on_standard_input_is_read_whatever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    read, written = os.pipe()
    os.write(written, b"why \x81?")
    os.close(written)
    with os.fdopen(read, encoding="cp1252") as piped:
        monkeypatch.setattr(sys, "stdin", piped)
        take_any_text()
        assert sys.stdin.read() == "why \ufffd?"
