"""When a round with a liar counts as held, and what many of them show."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from peer.cli.validate_liar_process import lie_from
from peer.stage import unit_host
from peer.state.work_ledger import Balance, Ledger
from peer.validation.scenarios.liar_figures import WITHIN_STEPS, Lied, all_held, balances, figures
from peer.validation.world.wrong_results import Lie, LyingRuntime

HELD = Lied("noise", 1, 70, 1200, 0, 3, 0, True, True)


@pytest.mark.parametrize(
    "change",
    [
        {"steps": None},
        {"steps": WITHIN_STEPS + 1},
        {"lost_milli": 0},
        {"kept_milli": 1},
        {"marked": 0},
        {"accused": 1},
        {"balanced": False},
        {"answered": False},
        {"trouble": "no plan came"},
    ],
)
def test_a_round_holds_only_with_all_that_is_promised(change: dict[str, object]) -> None:
    assert HELD.held
    assert not replace(HELD, **change).held  # type: ignore[arg-type]


def test_figures_of_rounds() -> None:
    rounds = [HELD, replace(HELD, steps=90), replace(HELD, steps=None)]
    shown = figures(rounds, 3)
    assert (shown["held"], shown["found"], shown["steps"]) == (False, 2, [70, 90, None])
    assert shown["steps_worst"] == 90
    assert figures([HELD], 1)["held"]
    assert not figures([HELD], 2)["held"], "one round is missing"
    assert all_held({"noise": figures([HELD], 1)})
    assert not all_held({})


def test_a_ledger_is_balanced_with_what_was_lost() -> None:
    ledger = Ledger(balances={"a": Balance(700, 0), "b": Balance(0, 1000)})
    assert balances(ledger, 300)
    assert not balances(ledger, 0)


def test_a_process_lies_from_the_moment_on_that_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unit_host, "StageRuntime", vars(unit_host)["StageRuntime"])
    monkeypatch.setattr(LyingRuntime, "lies", LyingRuntime.lies)
    monkeypatch.setattr(LyingRuntime, "lie", LyingRuntime.lie)
    told = tmp_path / "lies"
    lie_from(Lie.REPLAY, told)
    made = LyingRuntime.__new__(LyingRuntime)
    assert vars(unit_host)["StageRuntime"] is LyingRuntime
    assert (made.lie, made.lies()) == (Lie.REPLAY, False)
    told.touch()
    assert made.lies()
    told.unlink()
    assert made.lies()
