"""The programs in examples/ run as their first lines say."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnxruntime
import pytest

from tests.patience import WITHIN_S

EXAMPLES = Path(__file__).parents[2] / "examples"
NONSENSE = "http://127.0.0.1:1/#nonsense"


@dataclass(frozen=True)
class Ended:
    """How a program ended."""

    returncode: object
    stdout: str
    stderr: str


Run = Callable[..., Ended]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs an example in this process: starting one for each would take its imports, seconds, every time."""

    def ran(name: str, *arguments: str) -> Ended:
        monkeypatch.setattr(sys, "argv", [str(EXAMPLES / name), *arguments])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        said = capsys.readouterr()
        return Ended(ended.value.code or 0, said.out, said.err)

    return ran


def test_an_example_runs_as_a_process_of_its_own() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "generate.py"), NONSENSE, "Hello?"],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        env=os.environ | {"PYTHONPATH": str(EXAMPLES.parent)},  # whether Shoal is installed here or not
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1


def test_plan_prints_two_plans_and_what_is_missing(run: Run) -> None:
    done = run("plan.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("stage  peer") == 2
    assert "more on laptop" in done.stdout


def test_plan_a_cluster_takes_and_writes_json_and_draws(run: Run, tmp_path: Path) -> None:
    done = run("plan_a_cluster.py", "--out", str(tmp_path / "made"))
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (tmp_path / "made").iterdir()} == {"cluster.json", "plan.json", "plan.html"}
    again = str(tmp_path / "made" / "cluster.json")
    done = run("plan_a_cluster.py", again, "--goal", "throughput", "--out", str(tmp_path / "again"))
    assert done.returncode == 0, done.stderr
    first, other = ((tmp_path / name / "plan.json").read_text() for name in ("made", "again"))
    assert ('"objective":"latency"' in first, '"objective":"throughput"' in other) == (True, True)
    done = run("plan_a_cluster.py", str(tmp_path / "made" / "plan.json"), "--out", str(tmp_path))
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_every_example_has_help(run: Run, name: str) -> None:
    done = run(name, "--help")
    assert done.returncode == 0
    assert f"python examples/{name}" in done.stdout or "usage:" in done.stdout
    assert not done.stderr


ASKING = (
    "ask.py",
    "ask_blocking.py",
    "compare_seeds.py",
    "cross_browser.py",
    "generate.py",
    "ocr.py",
    "openai_client.py",
    "run_onnx.py",
)


@pytest.mark.parametrize("name", ASKING)
def test_programs_that_ask_say_how_they_are_called(run: Run, name: str) -> None:
    done = run(name)
    assert done.returncode == 2
    assert f"python examples/{name}" in done.stderr


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("generate.py", (NONSENSE, "Hello?")),
        ("compare_seeds.py", (NONSENSE, "Hello?")),
        ("cross_browser.py", ("0" * 64,)),  # no such model
    ],
)
def test_what_cannot_be_found_is_said_in_one_line(run: Run, name: str, arguments: tuple[str, ...]) -> None:
    done = run(name, *arguments)
    assert done.returncode == 1
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1


def test_ocr_reads_what_it_draws(graph_file: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is, half as large and upside down, with the models in this process in place of a mesh."""
    example = runpy.run_path(str(EXAMPLES / "ocr.py"))
    monkeypatch.setitem(
        example["known_characters"].__globals__, "fetch_short_graph", lambda name, _: graph_file(name)
    )
    sessions: dict[str, onnxruntime.InferenceSession] = {}

    def run(model: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
        if model not in sessions:
            sessions[model] = onnxruntime.InferenceSession(
                str(graph_file(model)), providers=["CPUExecutionProvider"]
            )
        names = [each.name for each in sessions[model].get_outputs()]
        return dict(zip(names, sessions[model].run(names, dict(inputs)), strict=True))

    characters, picture = example["known_characters"](), example["drawn"]()
    lines = list(example["LINES"])
    assert list(example["read"](picture, run, characters)) == lines
    assert list(example["read"](picture.resize((450, 210)), run, characters)) == lines
    assert list(example["read"](picture.rotate(180), run, characters)) == lines[::-1]
