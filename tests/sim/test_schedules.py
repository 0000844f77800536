"""Simulated runs: calm ones answer as one peer with the whole model does, all others too, and defects are found."""

from __future__ import annotations

import pytest

from tests.seeds import seeds
from tests.sim.many import catch_all, run_many
from tests.sim.schedule import calm, make_schedule
from tests.sim.switches import SWITCHES
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


@pytest.mark.slow
def test_every_defect_is_found() -> None:
    found = catch_all(WORKERS, MOST)
    assert [caught.switch for caught in found] == list(SWITCHES)
    assert [caught.switch for caught in found if caught.seed is None] == []
