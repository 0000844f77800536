"""The planner's benchmark: what no plan is sure of, a search that is stopped by its processor time."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from peer.bench import instances, robustness
from peer.bench.planner import PARTS
from peer.bench.planner_errors import least_sure_loss, plan_may_lose
from peer.bench.planner_sizes import TIGHT, against_sat
from peer.bench.planner_timing import stopped_after
from peer.cli.main import parser
from planner.solvers import cp_sat, portfolio
from planner.types import PlanRequest


def alike(roomy: int) -> PlanRequest:
    """Three peers of equal speed, far apart, so many of which hold everything, the others nothing."""
    request = instances.mesh(1, 3, blocks=6, tight=9.0)
    first = request.peers[0]
    peers = tuple(
        replace(first, peer=peer.peer, memory_bytes=2**40 if at < roomy else peer.overhead_bytes)
        for at, peer in enumerate(request.peers)
    )
    return replace(request, peers=peers, links=tuple(replace(link, rtt_s=9.0) for link in request.links))


@pytest.mark.parametrize(("roomy", "loss"), [(1, 0.0), (2, 1.25)])
def test_who_has_no_choice_regrets_nothing_and_between_equals_either_may_be_wrong(
    roomy: int, loss: float
) -> None:
    assert least_sure_loss(alike(roomy), 1.5) == pytest.approx(loss, rel=1e-3)


def test_a_search_is_stopped_by_what_it_used() -> None:
    stopped = threading.Event()
    with stopped_after(0.3) as watched:
        watched(stopped.set)
        began = time.process_time()
        while not stopped.is_set():
            pass
        assert time.process_time() - began >= 0.3


def test_a_plan_stands_beside_that_of_cpsat() -> None:
    row = against_sat(instances.mesh(2, 10, blocks=8, tight=0.9), portfolio.Effort(search=60_000))
    assert (row.over is not None) == cp_sat.available()
    if row.over is not None:
        assert (row.proven, row.over) == (True, pytest.approx(0.0, abs=1e-6))


def test_no_plan_is_sure_to_lose_little_and_the_one_that_looks_best_no_less_than_any() -> None:
    believed = robustness.distorted(instances.mesh(16, 5), 1.5, 16)
    chosen = portfolio.solve(believed, None, portfolio.Effort(search=60_000)).chosen
    assert chosen is not None
    assert 0.15 < least_sure_loss(believed) <= plan_may_lose(believed, chosen.stages)


@pytest.mark.parametrize("seed", [0, 1])
def test_twenty_peers_are_within_a_hundredth_of_the_optimum(seed: int) -> None:
    if not cp_sat.available():
        pytest.skip("needs OR-tools, the extra planner")
    row = against_sat(instances.mesh(seed, 20, tight=TIGHT[seed]), portfolio.Effort.seconds(1.0))
    assert row.proven
    assert row.over is not None
    assert row.over <= 0.01


def test_every_part_can_be_asked_for() -> None:
    for part in PARTS:
        assert parser().parse_args(["bench", "planner", "--part", part]).part == [part]
