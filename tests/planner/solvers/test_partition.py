"""Cuts for a given order of peers: equal to trying every cut, on any unit border."""

from __future__ import annotations

import itertools
import random

import pytest

from planner.cost import evaluator
from planner.solvers import partition
from planner.types import Link, Objective, PeerProfile, PlanRequest, Stage, Unit, UnitKind

OBJECTIVES: tuple[Objective, ...] = ("latency", "throughput")
KINDS: tuple[UnitKind, ...] = ("embed", "attn", "ffn", "head")


def random_request(seed: int, objective: Objective) -> PlanRequest:
    rng = random.Random(seed)
    units = tuple(
        Unit(f"u.{at}", rng.choice(KINDS), rng.randint(0, 60), 1, rng.choice((0, 1)), rng.choice((100, 2000)))
        for at in range(rng.randint(3, 9))
    )
    total = sum(unit.weight_bytes for unit in units) + 40
    peers = tuple(
        PeerProfile(
            name,
            int(total * rng.uniform(0.3, 1.6)),
            5,
            {kind: rng.choice((1, 2, 5)) * 1e-4 for kind in KINDS},
            dict.fromkeys(KINDS, 1e-4),
            rng.choice((0, 1e-4)),
            {kind: rng.choice((1, 2)) * 2e-5 for kind in KINDS},
        )
        for name in ("c", "a", "b")
    )
    links = tuple(
        Link(x, y, rng.choice((0, 1e-3)), rng.choice((1e6, 1e8)))
        for x in "abc"
        for y in "abc"
        if x != y and rng.random() < 0.95
    )
    return PlanRequest(units, peers, links, 4, rng.choice((1, 3, 8)), objective)


def every_cut(request: PlanRequest, order: str) -> list[tuple[Stage, ...]]:
    count, found = len(request.units), []
    for cuts in itertools.combinations(range(1, count), len(order) - 1):
        borders = (0, *cuts, count)
        stages = tuple(
            Stage(first, stop, name) for name, first, stop in zip(order, borders, borders[1:], strict=False)
        )
        if evaluator.refuse(request, stages) is None:
            found.append(stages)
    return found


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("order", ["a", "ab", "ba", "cab", "bca"])
def test_cuts_equal_trying_them_all(objective: Objective, order: str) -> None:
    feasible = 0
    for seed in range(40):
        request = random_request(seed, objective)
        expected = min(
            every_cut(request, order), key=lambda stages: evaluator.preference(request, stages), default=None
        )
        got = partition.partition(request, order)
        assert (None if got is None else [(s.peer, s.stop) for s in got]) == (
            None if expected is None else [(s.peer, s.stop) for s in expected]
        ), f"seed {seed}"
        feasible += got is not None
    assert feasible > 5


def test_a_cut_falls_between_attention_and_feed_forward() -> None:
    units = tuple(
        unit
        for block in range(3)
        for unit in (
            Unit(f"attn.{block}", "attn", 100, 1, 0, 8),
            Unit(f"ffn.{block}", "ffn", 100, 1, 0, 8),
        )
    )
    times = dict.fromkeys(KINDS, 1e-3)
    peers = tuple(PeerProfile(name, 300, 0, times, times) for name in "ab")
    links = (Link("a", "b", 0, 1e9), Link("b", "a", 0, 1e9))
    got = partition.partition(PlanRequest(units, peers, links, 1, 1), "ab")
    assert got is not None
    assert [units[stage.stop - 1].name for stage in got] == ["attn.1", "ffn.2"]
    assert [stage.weight_bytes for stage in got] == [300, 300]
