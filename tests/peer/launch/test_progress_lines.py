"""Progress where there is no terminal: lines with bytes and percent, few enough for a log."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from peer.cli.main import main
from peer.cli.serve_join import follow_loading
from peer.launch import terminal
from peer.launch.progress_lines import LINE_EVERY_S, ProgressLines
from peer.launch.terminal import counting, reporting
from peer.member.lending import Lending
from peer.member.mesh_member import MeshMember
from peer.member.progress import Phase
from tests.planner.tiny_models import TinyModel

MIB = 1 << 20


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The lines of this process, as they begin, by a clock of the test."""
    made = Clock()
    monkeypatch.setattr(terminal, "_lines", ProgressLines(terminal.say, made))
    return made


def test_a_line_in_a_few_seconds_whatever_goes_on(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with counting("read tiny") as reading:
        reading(0, 8 * MIB)
        for step in range(1, 9):
            clock.now_s += 1
            reading(step * MIB, 8 * MIB)
    with counting("import tiny as 8bit") as importing:
        for step in range(21):
            clock.now_s += 0.25
            importing(step * MIB, 20 * MIB)
    assert capsys.readouterr().err.splitlines() == [
        "read tiny: 0 B of 8.0 MiB, 0%",
        "read tiny: 5.0 MiB of 8.0 MiB, 62%, 1.0 MiB/s",
        "import tiny as 8bit: 7.0 MiB of 20.0 MiB, 35%, 4.0 MiB/s",
    ]


def test_what_is_done_when_it_begins_is_not_told(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with counting("read tiny") as reading:
        reading(MIB, MIB)
    assert capsys.readouterr().err == ""


def test_joining_tells_bytes_of_what_it_fetches_and_then_that_it_loads(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with reporting() as report:
        report(Phase("connect", 0, 0))
        fetched = Lending.progress(cast(Lending, SimpleNamespace(_report=report)), (3, 9))
        fetched(2 * MIB, 10 * MIB)
        clock.now_s += LINE_EVERY_S
        fetched(7 * MIB, 10 * MIB)
        clock.now_s += 1
        fetched(10 * MIB, 10 * MIB)
        report(Phase("ready", 1, 1))
    assert capsys.readouterr().err.splitlines() == [
        "connect",
        "fetch units 3-8: 2.0 MiB of 10.0 MiB, 20%",
        "fetch units 3-8: 7.0 MiB of 10.0 MiB, 70%, 1.0 MiB/s",
        "load units 3-8, 10.0 MiB of weights",
        "ready",
    ]


def test_an_import_says_at_once_how_much_there_is_to_do(
    clock: Clock, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peer.audit.envelope_recording.record", lambda *_: None)
    model = TinyModel(blocks=1, hidden=32, heads=2, kv_heads=1, head_size=16, ffn=32)
    path = model.write_gguf(tmp_path / "tiny.gguf")
    assert main(["import", str(path), "--store", str(tmp_path / "store"), "--weights", "f32"]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"import tiny as f32: (\d+ B|\d+\.\d KiB) of 60\.4 KiB, \d+%", line)


def test_the_api_says_while_the_model_is_not_served_yet() -> None:
    looks: list[Any] = []
    state = SimpleNamespace(model=SimpleNamespace(name="tiny"), served=None)
    state.serving = lambda: state.served
    mesh = SimpleNamespace(view=SimpleNamespace(state=state, subscribe=looks.append))
    said: list[str] = []
    follow_loading(cast(MeshMember, mesh), said.append)
    (look,) = looks
    look()
    state.served = object()
    look()
    look()
    assert said == ["tiny is being loaded: questions wait until it is", "tiny is loaded"]
