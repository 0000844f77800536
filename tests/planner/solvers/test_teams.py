"""Teams: where nothing else fits, where they are faster, what they cost where links are slow; against brute force."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, permutations, product
from typing import cast

import pytest

from planner.adapt import serving_plan
from planner.cost import evaluator, simulator
from planner.cost.objectives import Wish
from planner.errors import RequestError
from planner.solvers import portfolio, teams
from planner.types import Infeasible, Link, PeerProfile, Plan, PlanRequest, Stage, Unit, UnitCut, UnitKind

MIB = 2**20
KINDS: tuple[UnitKind, ...] = ("embed", "attn", "ffn", "attn", "ffn", "head")
SIZES = (2, 40, 100, 40, 100, 60)


def request(
    memory: dict[str, int], rtt_s: float = 0.0005, speed: dict[str, float] | None = None, pieces: int = 8
) -> PlanRequest:
    """A model of SIZES MiB, 100 ms a token on a peer of speed 1, over peers of so many MiB."""
    speeds = speed or {}
    units = tuple(
        Unit(
            f"{kind}.{at}",
            kind,
            size * MIB,
            1,
            64 if kind == "attn" else 0,
            4096,
            cut=None if kind == "embed" else UnitCut(pieces, MIB // 64, 1, 4096),
        )
        for at, (kind, size) in enumerate(zip(KINDS, SIZES, strict=True))
    )
    taken = {"embed": 0.0001, "attn": 0.015, "ffn": 0.030, "head": 0.010}
    peers = tuple(
        PeerProfile(
            name,
            mib * MIB,
            MIB,
            cast(dict[UnitKind, float], {kind: s / speeds.get(name, 1) for kind, s in taken.items()}),
            cast(dict[UnitKind, float], {kind: s / 4 / speeds.get(name, 1) for kind, s in taken.items()}),
            0.0002,
        )
        for name, mib in memory.items()
    )
    links = tuple(Link(a, b, rtt_s, 1e8, 0.0001) for a, b in permutations(memory, 2))
    return PlanRequest(units, peers, links, 128, 1)


def solved(asked: PlanRequest, wish: Wish | None = None) -> Plan | Infeasible:
    return portfolio.solve(asked, wish, serving_plan.MESH).answer


def test_a_unit_larger_than_every_pledge_is_computed_by_a_team() -> None:
    asked = request({"a": 75, "b": 75, "c": 75, "d": 75, "e": 75})
    bare = replace(asked, units=tuple(replace(unit, cut=None) for unit in asked.units))
    assert isinstance(solved(bare), Infeasible)
    plan = solved(request({"a": 110, "b": 90, "c": 90, "d": 90}))
    assert isinstance(plan, Plan)
    assert evaluator.refuse(request({"a": 110, "b": 90, "c": 90, "d": 90}), plan.stages) is None
    assert any(stage.helpers for stage in plan.stages)
    said = " ".join(plan.why)
    assert "together, in shares" in said
    assert "ffn.2 takes 100.0 MiB" in said or "no peers one after the other hold all units" in said
    for stage in plan.stages:
        assert all(asked.units[at].kind != "embed" for at in range(stage.first, stage.stop) if stage.helpers)


def test_quick_links_make_a_team_faster_and_slow_ones_do_not() -> None:
    quick = request({"a": 900, "b": 900})
    plan = solved(quick)
    assert isinstance(plan, Plan)
    assert any(stage.helpers for stage in plan.stages)
    alone = evaluator.evaluate(quick, [evaluator.make_stage(quick, quick.peers[0], 0, len(quick.units))])
    assert plan.decode_s < 0.62 * alone.decode_s
    assert "the best plan without one" in " ".join(plan.why)
    slow = request({"a": 900, "b": 900}, rtt_s=0.04)
    plan = solved(slow)
    assert isinstance(plan, Plan)
    assert not any(stage.helpers for stage in plan.stages)
    said = next(line for line in plan.why if line.startswith("No team"))
    assert "ms a token" in said


def test_the_strategy_tensor_takes_a_team_and_says_why_there_is_none() -> None:
    slow = request({"a": 900, "b": 900}, rtt_s=0.04)
    plan = solved(slow, Wish(strategy="tensor"))
    assert isinstance(plan, Plan)
    assert any(stage.helpers for stage in plan.stages)
    bare = replace(slow, units=tuple(replace(unit, cut=None) for unit in slow.units))
    found = solved(bare, Wish(strategy="tensor"))
    assert isinstance(found, Infeasible)
    assert "of no unit it is known how it comes in slices" in found.reason
    found = solved(slow, Wish(strategy="tensor", min_tensor_bytes=101 * MIB))
    assert isinstance(found, Infeasible)
    assert f"{101 * MIB} bytes" in found.reason


def test_small_units_stay_whole() -> None:
    asked = request({"a": 900, "b": 900})
    plan = solved(asked, Wish(strategy="tensor", min_tensor_bytes=50 * MIB))
    assert isinstance(plan, Plan)
    for stage in plan.stages:
        kinds = {unit.kind for unit in asked.units[stage.first : stage.stop]}
        assert kinds <= {"ffn", "head"} if stage.helpers else kinds <= {"embed", "attn"}


def test_the_order_of_peers_and_links_changes_nothing() -> None:
    asked = request({"a": 110, "b": 90, "c": 90, "d": 90}, speed={"a": 2.0, "c": 0.5})
    first = solved(asked)
    turned = replace(asked, peers=asked.peers[::-1], links=asked.links[::-1])
    assert solved(turned) == first


def test_a_peer_that_pledges_too_little_for_its_slice_is_refused_in_bytes() -> None:
    asked = request({"a": 900, "b": 30})
    stage = evaluator.make_team(asked, asked.peers, (1, 1), 1, 6)
    stages = (evaluator.make_stage(asked, asked.peers[0], 0, 1), stage)
    assert "b pledged" in str(evaluator.refuse(asked, stages))
    with pytest.raises(RequestError, match="expected different peers"):
        evaluator.evaluate(asked, (stages[0], replace(stage, helpers=("a",))))
    few = request({"a": 900, "b": 900}, pieces=1)
    assert "comes in 1 pieces" in str(evaluator.refuse(few, stages))
    apart = replace(asked, links=asked.links[:1])
    assert "which are of one team" in str(evaluator.refuse(apart, stages))


def test_slices_are_rounded_up_to_whole_pieces() -> None:
    asked = request({"a": 900, "b": 900}, pieces=4)
    weights, kv, _ = evaluator.stage_bytes(asked, asked.peers[0], 1, 2, 3, 5)  # 2.4 of 4 pieces: 3
    assert weights == MIB // 64 + -(-(40 * MIB - MIB // 64) * 3 // 4)
    assert kv == 64 * 128 * 3 // 4


def test_the_simulator_plays_what_the_evaluator_reckons() -> None:
    asked = request({"a": 900, "b": 900, "c": 900})
    stages = (
        evaluator.make_stage(asked, asked.peers[0], 0, 1),
        evaluator.make_team(asked, asked.peers[:2], (2, 1), 1, 5),
        evaluator.make_stage(asked, asked.peers[2], 5, 6),
    )
    assert simulator.decode_round_ps(asked, stages) == evaluator.evaluate(asked, stages).decode_ps
    assert simulator.prefill_ps(asked, stages, 200, 64) == evaluator.prefill_ps(asked, stages, 200, 64)


def chains_with_a_team(asked: PlanRequest) -> Iterator[tuple[Stage, ...]]:
    """Every placement of one run of units on one team, others before and behind it on one peer each."""
    known, count = evaluator.profiles(asked), len(asked.units)
    names = sorted(known)
    for size in range(2, len(names) + 1):
        for team in (order for members in combinations(names, size) for order in permutations(members)):
            profiles = [known[name] for name in team]
            rest = [name for name in names if name not in team[1:]]
            for shares in teams._shares(
                asked, profiles, lambda peer: evaluator.stage_ps(peer, asked.units[1:], 1)
            ):
                for first in range(1, count):
                    for stop in range(first + 1, count + 1):
                        stage = evaluator.make_team(asked, profiles, shares, first, stop)
                        behind = rest if stop < count else [""]
                        for before, after in product(rest, behind):
                            if before == after != team[0]:
                                continue  # only the lead comes back
                            made = [evaluator.make_stage(asked, known[before], 0, first), stage]
                            if after:
                                made.append(evaluator.make_stage(asked, known[after], stop, count))
                            yield tuple(made)


@pytest.mark.parametrize("seed", range(12))
def test_no_placement_with_one_team_is_better(seed: int) -> None:
    rng = random.Random(seed)
    memory = {name: rng.choice((60, 120, 200, 400)) for name in "abc"[: 2 + seed % 2]}
    speed = {name: rng.choice((0.5, 1.0, 2.0)) for name in memory}
    asked = request(memory, rng.choice((0.0002, 0.002, 0.01)), speed)
    able = [s for s in chains_with_a_team(asked) if evaluator.refuse(asked, s) is None]
    found = portfolio.solve(asked, Wish(strategy="tensor"), serving_plan.MESH).chosen
    if not able:
        assert found is None
        return
    least = min(evaluator.evaluate(asked, stages).decode_ps for stages in able)
    assert found is not None
    assert found.found.decode_ps <= least * 1.02


def test_a_team_that_lost_a_helper_is_replaced() -> None:
    asked = request({"a": 110, "b": 90, "c": 90, "d": 90, "e": 90})
    plan = serving_plan.choose(asked)
    assert isinstance(plan, Plan)
    helper = next(stage.helpers[0] for stage in plan.stages if stage.helpers)
    left = replace(
        asked,
        peers=tuple(peer for peer in asked.peers if peer.peer != helper),
        links=tuple(link for link in asked.links if helper not in (link.src, link.dst)),
    )
    again = serving_plan.choose_after_loss(left, Wish(), {}, plan.stages)
    assert isinstance(again, Plan)
    assert evaluator.refuse(left, again.stages) is None
    assert any(stage.helpers for stage in again.stages)
