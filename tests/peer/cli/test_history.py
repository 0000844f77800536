"""`shoal history` and `shoal plan --html` as people type them: tables, answers, files, and what is wrong in a line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from peer.cli.main import main, parser
from planner.history.facts import Benchmark, PeerMeasured
from planner.history.files import NAME
from planner.history.writing import HistoryWriter
from planner.service.request_codec import encode_request
from planner.types import PeerProfile, PlanRequest, Unit


@pytest.fixture
def state(tmp_path: Path) -> Path:
    writer = HistoryWriter(tmp_path / NAME, flush_s=3600.0)
    writer.record(
        [Benchmark("single", "[bold]ratio", 1.5, "times", "here"), Benchmark("single", "b", 2.5, "", "")]
    )
    writer.close()
    return tmp_path


def typed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(list(words))
    said = capsys.readouterr()
    return status, said.out, said.err


def test_tables_and_answers_are_shown_and_given_as_json(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--state", str(state))
    status, out, _ = typed(capsys, "history", *where)
    assert status == 0
    assert "benchmarks" in out
    _, out, _ = typed(capsys, "history", *where, "--json")
    assert json.loads(out)["benchmarks"]["rows"] == 2
    question = "select figure, value from benchmarks order by value"
    _, out, _ = typed(capsys, "history", "sql", question, *where)
    assert "[bold]ratio" in out
    _, out, _ = typed(capsys, "history", "sql", question, "--json", *where)
    assert json.loads(out) == [{"figure": "[bold]ratio", "value": 1.5}, {"figure": "b", "value": 2.5}]


def test_what_was_measured_because_a_prediction_abstained_is_told(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where, sentence = (
        ("--state", str(state)),
        "measurements of peers that were made once more, since a prediction",
    )
    assert sentence not in typed(capsys, "history", *where)[1]
    first = PeerMeasured("m", "p", "c", "Python", "1", "cpu", 1, "computer", 1, 1, 0.1)
    writer = HistoryWriter(state / NAME)
    writer.record([first, replace(first, again=True)])
    writer.close()
    status, out, _ = typed(capsys, "history", *where)
    assert status == 0
    assert f"{sentence} abstained: 1" in " ".join(out.split())
    _, out, _ = typed(capsys, "history", "sql", "select again from peers order by 1", "--json", *where)
    assert json.loads(out) == [{"again": False}, {"again": True}]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("sql", "delete from benchmarks"), "expected one question"),
        (("sql",), "expected a question"),
        (("export",), "expected a folder"),
        (("tables", "select 1"), "takes nothing more"),
        (("forget", "--days", "-1"), "at least 0"),
        (("measure", "--rows", "1"), "at least 100"),
        (("import", "nowhere"), "history.json"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    state: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], says: str
) -> None:
    status, out, err = typed(capsys, "history", *words, "--state", str(state))
    assert (status, out) == (1, "")
    assert says in err
    assert len(err.strip().splitlines()) == 1


def test_a_history_travels_and_is_forgotten(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, other = str(tmp_path / "out"), str(tmp_path / "other.duckdb")
    assert typed(capsys, "history", "export", folder, "--state", str(state))[0] == 0
    _, out, _ = typed(capsys, "history", "import", folder, "--file", other, "--json")
    assert json.loads(out)["benchmarks"] == 2
    assert typed(capsys, "history", "forget", "--days", "0", "--file", other)[0] == 0
    _, out, _ = typed(
        capsys, "history", "sql", "select count(*) as n from benchmarks", "--file", other, "--json"
    )
    assert json.loads(out) == [{"n": 0}]


def test_a_missing_history_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = typed(capsys, "history", "--state", str(tmp_path))
    assert status == 1
    assert "there is no history yet" in err


def test_a_plan_of_a_file_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unit = Unit("embed", "embed", 10, 1, 0, 4)
    peer = PeerProfile("solo", 100, 1, {"embed": 0.1}, {"embed": 0.1})
    (tmp_path / "request.json").write_bytes(encode_request(PlanRequest((unit,), (peer,), (), 8, 1)))
    page = tmp_path / "plan.html"
    status, out, err = typed(capsys, "plan", str(tmp_path / "request.json"), "--html", str(page))
    assert status == 0
    assert f"drawn in {page}" in err
    assert "running now" not in out
    assert "solo" in out
    assert "solo" in page.read_text()
    status, _, err = typed(capsys, "plan", str(tmp_path / "request.json"), "--html", str(tmp_path))
    assert status == 1
    assert "expected a file that can be written" in err


def test_a_founder_may_keep_no_history() -> None:
    assert parser().parse_args(["serve"]).history is True
    assert parser().parse_args(["serve", "--no-history"]).history is False
