"""The programs in examples/ run as their first lines say."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import WITHIN_S

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    environment = os.environ | {"PYTHONPATH": str(EXAMPLES.parent)}  # whether Shoal is installed here or not
    return subprocess.run(
        command, capture_output=True, text=True, timeout=WITHIN_S, env=environment, check=False
    )


def test_plan_prints_two_plans_and_what_is_missing() -> None:
    done = run("plan.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("stage  peer") == 2
    assert "more on laptop" in done.stdout


def test_plan_a_cluster_takes_and_writes_json_and_draws(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_every_example_has_help(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process: starting one for each would take its imports every time."""
    monkeypatch.setattr(sys, "argv", [str(path), "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(path), run_name="__main__")
    assert not ended.value.code
    told = capsys.readouterr()
    assert f"python examples/{path.name}" in told.out or "usage:" in told.out
    assert not told.err


def test_generate_says_how_it_is_called() -> None:
    done = run("generate.py")
    assert done.returncode == 2
    assert "python examples/generate.py" in done.stderr


def test_generate_refuses_a_wrong_link_in_one_line() -> None:
    done = run("generate.py", "http://127.0.0.1:1/#nonsense", "Hello?")
    assert done.returncode == 1
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1


def test_cross_browser_says_how_it_is_called_and_what_is_missing() -> None:
    done = run("cross_browser.py")
    assert done.returncode == 2
    assert "python examples/cross_browser.py" in done.stderr
    done = run("cross_browser.py", "0" * 64)
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1


def test_programs_that_ask_say_how_they_are_called_and_refuse_a_wrong_link() -> None:
    for name in ("ask.py", "ask_blocking.py", "compare_seeds.py", "openai_client.py", "run_onnx.py"):
        done = run(name)
        assert done.returncode == 2, name
        assert f"python examples/{name}" in done.stderr
    done = run("compare_seeds.py", "http://127.0.0.1:1/#nonsense", "Hello?")
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
