"""How `shoal` starts: Ctrl-C while its modules are read, and words that name nothing."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from peer.cli import gateway_beside, serve_join
from peer.cli.entry import main
from peer.cli.main import parser
from peer.errors import CannotServe
from peer.member.peer_options import INTERRUPTED
from signaling.invites import InviteLink


def test_ctrl_c_at_the_start_ends_without_a_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "peer.cli.main", SimpleNamespace(main=interrupted))
    assert main() == INTERRUPTED
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("command", ["chat", "conversations"])
def test_a_conversation_is_named_by_something(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args([command, "http://127.0.0.1/#x.y", "--in", " "])
    assert ended.value.code == 2
    assert "a title, an id or a number expected" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["serve", "join"])
async def test_an_embedding_model_is_imported_before_this_process_is_in_a_mesh(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    @asynccontextmanager
    async def embedder(*_: object) -> AsyncIterator[None]:
        done.append("imported")
        yield

    @asynccontextmanager
    async def in_a_mesh(*_: object, **__: object) -> AsyncIterator[None]:
        done.append("joined")
        raise CannotServe("so far")
        yield

    monkeypatch.setattr(gateway_beside, "embedder", embedder)
    monkeypatch.setattr(serve_join, "founding", lambda *_: cast(Any, None))
    for name in ("found", "join"):
        monkeypatch.setattr(serve_join, name, in_a_mesh)
    options = ["--api", "0", "--api-embedding-model", "all-minilm-l6-v2", "--state", str(tmp_path)]
    link = [InviteLink("http://127.0.0.1:1", "m" * 32, b"i" * 32).url()] if command == "join" else []
    args = parser().parse_args([command, *link, *options])
    with pytest.raises(CannotServe, match="so far"):
        await (
            serve_join._serve(args, cast(Any, None), "", ())
            if command == "serve"
            else serve_join.run_join(args)
        )
    assert done == ["imported", "joined"]
