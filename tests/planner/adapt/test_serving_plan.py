"""The plan of a mesh that serves: by its wish, with a way out where the strategy leaves none."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from planner.adapt import k_failures, serving_plan
from planner.adapt.resharding import moved_bytes
from planner.cost import evaluator
from planner.cost.objectives import Component, Goal, Strategy, Wish
from planner.solvers import placement, strategies
from planner.types import Infeasible, Link, PeerProfile, Plan, PlanRequest, Unit

MIB = 2**20


def units(blocks: int) -> tuple[Unit, ...]:
    body = [
        unit
        for block in range(blocks)
        for unit in (
            Unit(f"attn.{block}", "attn", 2 * MIB, 10**6, 1024, 2048),
            Unit(f"ffn.{block}", "ffn", 3 * MIB, 10**6, 0, 2048),
        )
    ]
    return (
        Unit("embed", "embed", 4 * MIB, 0, 0, 2048),
        *body,
        Unit("head", "head", 4 * MIB, 10**6, 0, 4),
    )


def mesh(peers: int, pledge_mib: int, seed: int = 1, blocks: int = 6, redundancy: int = 1000) -> PlanRequest:
    rng = random.Random(seed)
    made = []
    for at in range(peers):
        slow = rng.uniform(0.5, 3)
        times = {"embed": 1e-5 * slow, "attn": 2e-4 * slow, "ffn": 4e-4 * slow, "head": 2e-3 * slow}
        made.append(PeerProfile(f"p{at}", pledge_mib * MIB, 8 * MIB, times, times, 1e-4, times))  # type: ignore[arg-type]
    links = [
        Link(a.peer, b.peer, rng.uniform(5e-4, 0.01), rng.uniform(1e6, 1e8))
        for a in made
        for b in made
        if a is not b
    ]
    return PlanRequest(units(blocks), tuple(made), tuple(links), 256, 2, redundancy=redundancy)


def plan_of(answer: Plan | Infeasible) -> Plan:
    assert isinstance(answer, Plan), answer
    return answer


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_the_plan_of_a_small_mesh_is_the_exact_one(objective: Goal) -> None:
    for seed in range(6):
        request = replace(mesh(4, 30, seed), objective="latency" if objective == "latency" else "throughput")
        exact, chosen = placement.plan(request), serving_plan.choose(request)
        assert type(exact) is type(chosen)
        if isinstance(exact, Plan):
            assert (plan_of(chosen).decode_s, plan_of(chosen).tokens_per_s) == (
                exact.decode_s,
                exact.tokens_per_s,
            )


def test_the_order_of_members_changes_nothing() -> None:
    request = mesh(5, 30, redundancy=2000)
    for strategy in ("optimal", "layer", "attention-ffn", "hybrid"):
        wish = Wish(strategy=strategy)
        turned = replace(request, peers=tuple(reversed(request.peers)), links=tuple(reversed(request.links)))
        assert serving_plan.choose(request, wish) == serving_plan.choose(turned, wish)


@pytest.mark.parametrize("strategy", ["optimal", "layer", "pipeline", "component", "attention-ffn", "hybrid"])
def test_a_strategy_is_kept_where_it_can_be(strategy: Strategy) -> None:
    request = mesh(3, 80)
    groups = (Component("low", 0, 5, "p2"), Component("high", 5, 14, "p0")) if strategy == "component" else ()
    wish = Wish(strategy=strategy, components=groups)
    plan = plan_of(serving_plan.choose(request, wish))
    assert not any("Not by" in line for line in plan.why)
    assert strategies.keeps(request, wish, plan.stages)
    if strategy == "component":
        assert [(stage.peer, stage.stop) for stage in plan.stages] == [("p2", 5), ("p0", 14)]


def test_a_strategy_that_leaves_no_plan_is_told_and_the_mesh_answers_all_the_same() -> None:
    alone = mesh(1, 200)
    plan = plan_of(serving_plan.choose(alone, Wish(strategy="attention-ffn")))
    assert [stage.peer for stage in plan.stages] == ["p0"]
    assert plan.why[0].startswith("Not by the strategy attention-ffn")
    strange = plan_of(
        serving_plan.choose(mesh(3, 80), Wish(strategy="component", components=(Component("a", 0, 3),)))
    )
    assert "expected groups that hold all 14 units" in strange.why[0]
    assert isinstance(serving_plan.choose(mesh(2, 9), Wish(strategy="layer")), Infeasible)


def test_a_plan_by_the_strategy_replaces_one_that_is_not_and_a_little_gain_replaces_nothing() -> None:
    request = mesh(3, 80)
    best = plan_of(serving_plan.choose(request)).stages
    turns = plan_of(serving_plan.choose(request, Wish(strategy="attention-ffn"))).stages
    assert serving_plan.better(request, Wish(strategy="attention-ffn"), best, turns)
    assert not serving_plan.better(request, Wish(strategy="attention-ffn"), turns, best)
    assert serving_plan.better(request, Wish(), turns, best)
    assert not serving_plan.better(request, Wish(), best, best)
    away = replace(request, peers=tuple(p for p in request.peers if p.peer != best[0].peer))
    assert serving_plan.better(away, Wish(), best, plan_of(serving_plan.choose(away)).stages)


def test_two_copies_survive_any_loss_where_a_slower_plan_has_room_for_them() -> None:
    found = 0
    for seed in range(12):
        request = mesh(4, 45, seed, redundancy=2000)
        plan = serving_plan.choose(request)
        if isinstance(plan, Infeasible):
            continue
        held: dict[str, tuple[tuple[int, int], ...]] = {}
        for stage in plan.stages:
            for peer in (stage.peer, *stage.standbys):
                held[peer] = (*held.get(peer, ()), (stage.first, stage.stop))
        told = any("No copies fit" in line for line in plan.why)
        assert k_failures.survives(request, held) != told
        found += not told
    assert found > 6


def test_after_a_loss_no_known_way_moves_fewer_bytes() -> None:
    for seed in range(6):
        request = mesh(5, 45, seed)
        before = plan_of(serving_plan.choose(request)).stages
        held = {stage.peer: ((stage.first, stage.stop),) for stage in before}
        gone = before[len(before) // 2].peer
        here = tuple(peer for peer in request.peers if peer.peer != gone)
        links = tuple(link for link in request.links if gone not in (link.src, link.dst))
        left = replace(request, peers=here, links=links)
        after = serving_plan.choose_after_loss(left, Wish(), held, before)
        other = placement.replan_moving(left, held, before)
        if isinstance(after, Plan) and isinstance(other, Plan):
            assert moved_bytes(left, after.stages, held) <= moved_bytes(left, other.stages, held)
            assert evaluator.evaluate(left, after.stages).decode_s == after.decode_s
