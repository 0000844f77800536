"""Files of conversations are read within bounds, and not by the process that carries heartbeats."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from peer.conversation.transcripts import FORMAT, MAX_FILE_BYTES, brought, from_json
from peer.errors import BadCommand
from peer.launch.transcript_files import SHORT_BYTES, read_transcript
from peer.state.generated.commands import MAX_MESSAGE_BYTES, MessageAdded
from planner.jobs.jobs import Budget

LITTLE = Budget(cpu_s=0.2, memory_bytes=1 << 30)


def written(*texts: str) -> bytes:
    messages = [{"form": "to-people", "by": f"p{at % 2}", "text": text} for at, text in enumerate(texts)]
    return json.dumps({"format": FORMAT, "messages": messages}).encode()


@pytest.mark.parametrize("texts", [("short",), ("x" * MAX_MESSAGE_BYTES, "y" * SHORT_BYTES)])
async def test_a_file_is_what_was_written(tmp_path: Path, texts: tuple[str, ...]) -> None:
    path = tmp_path / "kept.json"
    path.write_bytes(written(*texts))
    assert await read_transcript(path) == from_json(written(*texts))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"{" + b",".join(b'"%d":{}' % at for at in range(1_000_000)) + b"}", "read within 0.2 s"),
        (b"[" * (1 << 20), "expected JSON"),
        (written("x" * SHORT_BYTES * 2), "expected text of at most"),
        (bytes(MAX_FILE_BYTES + 1), "expected a conversation of at most"),
    ],
)
async def test_what_is_none_is_refused_within_a_budget(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "none.json"
    path.write_bytes(data)
    with pytest.raises(BadCommand, match=words):
        await read_transcript(path, LITTLE)


async def test_a_file_without_end_is_not_read_to_it() -> None:
    with pytest.raises(BadCommand, match="at most"):
        await read_transcript(Path("/dev/zero"))


async def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadCommand, match="expected a file that can be read"):
        await read_transcript(tmp_path / "none.json")


def test_what_others_said_is_cut_where_their_names_make_it_too_long() -> None:
    kept = from_json(written("ö" * (MAX_MESSAGE_BYTES // 2), "x" * MAX_MESSAGE_BYTES))
    said = brought(kept, "c", "me", lambda: "id", lambda: "session")
    texts = [each.text for each in said if isinstance(each, MessageAdded)]
    assert texts == ["p0: " + "ö" * (MAX_MESSAGE_BYTES // 2 - 2), "p1: " + "x" * (MAX_MESSAGE_BYTES - 4)]
