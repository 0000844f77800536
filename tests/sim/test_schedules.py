"""Simulated runs: calm ones answer as one peer with the whole model does, all others too, and defects are found."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature

import pytest

from tests.seeds import seeds
from tests.sim.many import catch, problem_of, run_many
from tests.sim.schedule import calm, make_schedule
from tests.sim.switches import FIRST, SWITCHES
from tests.sim.world import run_schedule

SCHEDULES = seeds(20_000)
CALM = seeds(2000)
WORKERS = 2
MOST = 2000  # schedules until a defect has been found


@pytest.mark.series
def test_calm_runs_answer_as_a_single_peer_does() -> None:
    for seed in range(CALM):
        report = run_schedule(calm(make_schedule(seed)))
        assert report.problems == (), f"python -m tests.sim --seed {seed} --calm --verbose"


@pytest.mark.series
def test_whatever_goes_wrong_answers_stay_the_same() -> None:
    ended = failed = 0
    for report in run_many(0, SCHEDULES, WORKERS):
        assert report.problems == (), f"python -m tests.sim --seed {report.seed} --verbose"
        ended, failed = ended + report.ended, failed + report.failed
    assert ended > SCHEDULES
    assert failed < ended / 20, "runs in which stages have no holder are few"


@pytest.mark.parametrize("switch", SWITCHES)
def test_a_defect_is_found(switch: str) -> None:
    """From a seed that shows it; where the cores or the schedules changed it may be a later one."""
    found = catch(switch, FIRST[switch], MOST)
    assert found.seed is not None
    assert problem_of(found.seed) is None, "what it says comes from the defect"


@pytest.mark.parametrize("switch", SWITCHES)
def test_a_defect_is_called_as_what_it_replaces(switch: str) -> None:
    """Or every run would raise, and show nothing of it."""
    for owner, name, value in SWITCHES[switch].replacements():
        if callable(value):
            assert kinds(value) == kinds(getattr(owner, name)), name


def kinds(function: Callable[..., object]) -> list[tuple[object, bool]]:
    """Of its parameters, and which of them may be left out."""
    return [(each.kind, each.default is each.empty) for each in signature(function).parameters.values()]
