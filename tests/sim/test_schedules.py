"""Simulated runs: calm ones answer as one peer with the whole model does."""

from __future__ import annotations

from tests.sim.schedule import calm, make_schedule
from tests.sim.world import run_schedule


def test_calm_runs_answer_as_a_single_peer_does() -> None:
    for seed in range(300):
        report = run_schedule(calm(make_schedule(seed)))
        assert report.problems == (), f"python -m tests.sim --seed {seed} --calm --verbose"
