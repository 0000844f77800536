"""Placements by name: valid, never worse than the simple rules, near the optimum, and the same from the same seed."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import pytest

from peer.bench.instances import mesh
from planner.cost import objectives
from planner.cost.objectives import Component, Wish
from planner.errors import RequestError
from planner.solvers.choices.settings import PLACEMENTS, Placement, Settings
from planner.solvers.choices.table import Placed, behind, figure_of, placed_by, plan_of
from planner.types import Infeasible, PlanRequest

LATENCY = Wish()
QUICK = Settings(iterations=3000)
SEARCHES: tuple[Placement, ...] = ("hungarian", "annealing", "genetic")
INSTANCES = 40
NEAR = 0.05  # of the optimum, in the median


def instance(seed: int) -> PlanRequest:
    """5 to 9 peers, of plenty of memory to little."""
    return mesh(seed, 5 + seed % 5, tight=(1.0, 0.8, 1.3)[seed % 3])


def figure(placed: Placed) -> float:
    assert placed.found is not None, placed.why
    return figure_of(LATENCY, placed.found)


def test_searches_are_near_the_optimum_and_no_worse_than_simple_rules() -> None:
    gaps: dict[Placement, list[float]] = {name: [] for name in SEARCHES}
    for seed in range(1, INSTANCES + 1):
        request = instance(seed)
        exact, greedy = (placed_by(name, request, LATENCY, QUICK) for name in ("exact", "greedy"))
        if greedy.found is None:
            assert exact.found is None, "rules place whatever can be placed"
            continue
        assert exact.proven
        for name in SEARCHES:
            found = placed_by(name, request, LATENCY, QUICK)
            assert figure(exact) <= figure(found) <= figure(greedy)
            gaps[name].append(figure(found) / figure(exact) - 1)
    assert all(len(found) > INSTANCES * 0.9 for found in gaps.values())
    assert {name: round(median(found), 3) for name, found in gaps.items() if median(found) > NEAR} == {}


@pytest.mark.parametrize("goal", ["latency", "throughput", "memory", "balanced"])
def test_the_same_seed_gives_the_same_plan_whatever_the_order_of_peers(goal: objectives.Goal) -> None:
    wish, settings = Wish(goal), Settings(iterations=100, population=12, seed=5)
    request = mesh(3, 6, sessions=4)
    turned = replace(request, peers=request.peers[::-1], links=request.links[::-1])
    for name in (*SEARCHES, "greedy"):
        found, again = (placed_by(name, each, wish, settings) for each in (request, turned))
        assert found == again
        assert found.found is not None
        answer = plan_of(found, request, wish)
        assert not isinstance(answer, Infeasible)
        assert f"Placed by {name}" in answer.why[0]


def test_all_draws_are_those_of_the_seed() -> None:
    request = mesh(11, 9, tight=0.8)
    plans = {
        placed_by("annealing", request, LATENCY, Settings(iterations=60, seed=seed)).stages
        for seed in range(8)
    }
    assert len(plans) > 1


def test_strategies_and_bounds_hold_for_every_placement() -> None:
    request = mesh(4, 6)
    blocks = len(request.units) // 2
    groups = (Component("low", 0, blocks, "p0002"), Component("high", blocks, len(request.units)))
    for wish in (
        Wish(strategy="layer"),
        Wish(strategy="pipeline"),
        Wish(strategy="component", components=groups),
        Wish(most_stages=4),
    ):
        for name in ("greedy", *SEARCHES):
            found = placed_by(name, request, wish, QUICK)
            if found.found is None:
                assert found.why
                continue
            assert len(found.stages) <= (wish.most_stages or len(request.peers))
            if wish.strategy == "layer":
                kinds = [request.units[stage.first].kind for stage in found.stages]
                assert "ffn" not in kinds


def test_what_a_placement_cannot_do_is_said() -> None:
    request = mesh(2, 5)
    nothing = replace(request, peers=())
    for name in PLACEMENTS:
        assert placed_by(name, nothing, LATENCY, QUICK).why
    assert "auto alone" in placed_by("annealing", request, Wish(strategy="hybrid"), QUICK).why
    assert "latency" in placed_by("exact", request, Wish("throughput"), QUICK).why
    with pytest.raises(RequestError, match="iterations"):
        Settings(iterations=0)
    with pytest.raises(RequestError, match="population"):
        Settings(population=1)


def test_distances_are_to_what_is_proven_where_something_is() -> None:
    request = instance(3)
    made = [placed_by(name, request, LATENCY, QUICK) for name in ("greedy", "exact")]
    optimum, (far, none), kind = behind(LATENCY, made)
    assert kind == "optimum"
    assert optimum == pytest.approx(figure(made[1]))
    assert none == 0
    assert far is not None
    assert far >= 0
    assert behind(LATENCY, made[:1])[2] == "best"
    auto = replace(placed_by("auto", request, LATENCY, QUICK), proven=False)
    assert behind(LATENCY, [auto])[2] == "bound"
