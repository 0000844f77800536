"""How `shoal` starts: Ctrl-C while its modules are read, and words that name nothing."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from peer.cli.entry import main
from peer.cli.main import parser
from peer.member.peer_options import INTERRUPTED


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
