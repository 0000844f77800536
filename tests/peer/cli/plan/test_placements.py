"""`shoal plan FILE --placement` and `--compare`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from peer.cli.main import main
from planner.solvers.choices.settings import PLACEMENTS

CLUSTER = str(Path(__file__).parents[4] / "examples" / "cluster.json")
QUICK = ["--iterations", "300", "--population", "8"]


def test_every_placement_is_told_beside_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", CLUSTER, "--compare", "--json", *QUICK]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["placement"] for row in found["placements"]] == list(PLACEMENTS)
    assert found["against"] == "optimum"
    placed = {row["placement"]: row for row in found["placements"]}
    for name, row in placed.items():
        assert row["seconds"] > 0
        assert (row["stages"] and row["behind"] >= -1e-9) or row["why_not"], name
    assert placed["exact"]["proven"]
    assert placed["annealing"]["behind"] <= placed["greedy"]["behind"]
    assert main(["plan", CLUSTER, "--compare", *QUICK]) == 0
    told = capsys.readouterr().out
    assert all(f"\n{name}" in told for name in PLACEMENTS)
    assert "proven optimum" in told


def test_a_plan_says_by_which_placement_it_was_made(capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for _ in range(2):
        assert main(["plan", CLUSTER, "--placement", "genetic", "--seed", "7", *QUICK]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert "Placed by genetic (300 iterations, seed 7, population 8)" in said[0]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (["--placement", "annealing", "--iterations", "0"], "iterations"),
        (["--placement", "tabu"], "tabu"),
        (["--placement", "greedy", "--strategy", "hybrid"], "auto alone"),
    ],
)
def test_what_cannot_be_placed_so_is_refused(
    capsys: pytest.CaptureFixture[str], more: list[str], why: str
) -> None:
    try:
        status = main(["plan", CLUSTER, *more])
    except SystemExit as ended:
        status = int(ended.code or 0)
    assert status != 0
    told = capsys.readouterr()
    assert why in told.out + told.err
