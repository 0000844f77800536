"""The portfolio: exact where it says so, one figure from solver, evaluator and simulator, blind to order."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest

from peer.bench import instances, robustness
from planner.cost import evaluator, objectives, simulator
from planner.cost.objectives import Component, Goal, Wish
from planner.service.request_codec import decode_request, encode_request
from planner.solvers import (
    blocks,
    chain_labels,
    clusters,
    cp_sat,
    heuristics,
    lattice,
    local_search,
    network,
    portfolio,
    reentry,
    strategies,
    threshold,
)
from planner.solvers import held_karp as exact
from planner.solvers.network import INF
from planner.solvers.partition import cut
from planner.types import Infeasible, Link, PeerFacts, Plan, PlanRequest, Stage
from tests.planner.solvers import held_karp

QUICK = portfolio.Effort(search=60_000, exact=20_000_000)


# -- published instances


@pytest.mark.parametrize(("name", "tables"), [("c10", instances.HELIX_C10), ("c24s", instances.HELIX_C24S)])
def test_helix(name: str, tables: tuple[tuple[float, ...], ...]) -> None:
    found = threshold.best_bottleneck(tables, instances.HELIX_LAYERS)
    assert found is not None
    assert found.rate >= instances.HELIX_KNOWN[name]
    placed = threshold.spans(found, instances.HELIX_LAYERS)
    assert {unit for _, first, stop in placed for unit in range(first, stop)} == set(range(60))
    assert all(tables[peer][stop - first - 1] >= found.rate for peer, first, stop in placed)
    above = min(rate for table in tables for rate in table if rate > found.rate)
    most = [max((k for k, rate in enumerate(table, 1) if rate >= above), default=0) for table in tables]
    assert sum(most) < instances.HELIX_LAYERS, "no higher rate holds all layers"


def test_a_hop_cap_lowers_the_rate() -> None:
    free = threshold.best_bottleneck(instances.HELIX_C24S, 60)
    capped = threshold.best_bottleneck(instances.HELIX_C24S, 60, most_peers=6)
    assert free is not None
    assert capped is not None
    assert capped.rate < free.rate
    assert sum(count > 0 for count in capped.held) <= 6
    assert threshold.best_bottleneck(instances.HELIX_C24S, 60, most_peers=2) is None


@pytest.mark.parametrize(("memory", "milliseconds"), instances.EDGESHARD_MS.items())
def test_edgeshard_with_devices_that_come_back(memory: tuple[int, ...], milliseconds: float) -> None:
    request = instances.edgeshard(memory)
    found = reentry.least(request, instances.edgeshard_allowed())
    assert found is not None
    assert found.exact
    assert round(found.decode_ps / 1e9, 2) == milliseconds
    assert evaluator.evaluate(request, found.stages).decode_ps == found.decode_ps
    assert simulator.decode_round_ps(request, found.stages) == found.decode_ps
    assert simulator.prefill_ps(request, found.stages, 40, 16) == evaluator.prefill_ps(
        request, found.stages, 40, 16
    )
    peers = [stage.peer for stage in found.stages]
    assert len(peers) > len(set(peers)), "a device comes back"


@pytest.mark.parametrize("memory", instances.EDGESHARD_MS)
def test_no_plan_with_peers_that_come_back_beats_its_bound(memory: tuple[int, ...]) -> None:
    outcome = portfolio.solve(instances.edgeshard(memory), Wish(strategy="hybrid"), QUICK)
    assert isinstance(outcome.answer, Plan)
    assert outcome.chosen is not None
    assert outcome.gap is not None
    assert outcome.bound_ps <= outcome.chosen.found.decode_ps
    assert (outcome.gap == 0) == (outcome.bound_ps == outcome.chosen.found.decode_ps)
    assert ("proven least latency" in outcome.answer.why[-1]) == (outcome.gap == 0)


# -- exactness


@pytest.mark.parametrize("seed", range(6))
def test_sets_with_bounds_equal_the_other_exact_solver(seed: int) -> None:
    request = instances.mesh(seed, 3 + seed % 4, blocks=8, tight=(1.0, 2.0)[seed % 2])
    view = lattice.build(request)
    found = chain_labels.least(view)
    path = exact.solve(network.build(request, view.peers, 1)).path()
    assert found.proven
    assert (found.path is None) == (path is None)
    if path is not None:
        assert found.value == view.value(path) == found.bound


@pytest.mark.parametrize("seed", range(4))
def test_held_karp_equals_sets_with_bounds_where_blocks_are_alike(seed: int) -> None:
    request = instances.mesh(seed, 6, blocks=12, tight=1.5)
    view = lattice.build(request, 1, strategies.layer_borders(request))
    parts = blocks.blocks(view)
    assert parts is not None
    assert parts.exact
    found, other = held_karp.least_order(parts), chain_labels.least(view)
    assert (INF if found is None else found[0]) == other.value
    searched = local_search.search(parts, 60_000)
    if found is not None and len(found[1]) > 1:
        assert searched[0][1] == found[0]
        path = parts.path(found[1])
        assert path is not None
        assert view.value(path) == found[0]


def test_cpsat_proves_the_same() -> None:
    if not cp_sat.available():
        pytest.skip("needs OR-tools, the extra planner")
    request = instances.mesh(1, 8, blocks=16, tight=1.0)
    view = lattice.build(request, 1, strategies.layer_borders(request))
    parts = blocks.blocks(view)
    assert parts is not None
    proof, least = cp_sat.least_order(parts, 20.0), held_karp.least_order(parts)
    assert proof.optimal
    assert least is not None
    assert proof.order is not None
    path = parts.path(proof.order)
    assert path is not None
    assert abs(view.value(path) - least[0]) <= 1e-6 * least[0]


def test_without_cpsat_the_portfolio_goes_on_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cp_sat, "available", lambda: False)
    request = instances.mesh(2, 20, blocks=8, tight=0.6)
    outcome = portfolio.solve(request, Wish(strategy="layer"), portfolio.Effort(60_000, 10_000, 1.0))
    assert outcome.chosen is not None
    assert any("not installed" in line for line in outcome.ran)
    assert outcome.gap is not None
    assert outcome.gap >= 0
    assert outcome.bound_ps <= outcome.chosen.found.decode_ps


# -- one figure


@pytest.mark.parametrize("seed", range(5))
def test_solver_evaluator_and_simulator_agree(seed: int) -> None:
    request = instances.mesh(seed, 4 + seed, blocks=6, sessions=(1, 3, 5, 8, 2)[seed], tight=1.5)
    outcome = portfolio.solve(request, Wish("throughput"), QUICK)
    assert outcome.chosen is not None
    view = lattice.build(request)
    for option in (outcome.chosen, *outcome.others[:3]):
        path = tuple((view.peers.index(stage.peer), stage.stop) for stage in option.stages)
        found = evaluator.evaluate(request, option.stages)
        assert view.value(path) == found.decode_ps == option.found.decode_ps
        assert simulator.decode_round_ps(request, option.stages) == found.decode_ps
        assert simulator.token_ps(request, option.stages, found.rows) == found.token_ps
        assert (
            min(
                simulator.token_ps(request, option.stages, rows)
                for rows in evaluator.row_choices(request.sessions)
            )
            == found.token_ps
        )
        assert simulator.prefill_ps(request, option.stages, 150, 64) == evaluator.prefill_ps(
            request, option.stages, 150, 64
        )


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_the_input_never_matters(seed: int) -> None:
    request = instances.mesh(seed, 16, blocks=6, tight=0.8)
    draws = random.Random(seed)
    peers, links = list(request.peers), list(request.links)
    draws.shuffle(peers)
    draws.shuffle(links)
    turned = replace(request, peers=tuple(peers), links=tuple(links))
    effort = portfolio.Effort(search=60_000, exact=1_000_000)
    assert portfolio.solve(turned, None, effort) == portfolio.solve(request, None, effort)


def test_wrong_parameters_cost_little() -> None:
    for seed in range(3):
        truth = instances.mesh(seed, 6, blocks=8, tight=2.0)
        believed = portfolio.solve(robustness.distorted(truth, 1.5, seed), None, QUICK).chosen
        best = portfolio.solve(truth, None, QUICK).chosen
        assert believed is not None
        assert best is not None
        assert evaluator.evaluate(truth, believed.stages).decode_ps <= 1.15 * best.found.decode_ps


# -- goals, bounds, the front


def front_request() -> PlanRequest:
    return instances.mesh(3, 5, blocks=10, sessions=6, tight=3.0)


@pytest.mark.parametrize("goal", ["latency", "throughput", "memory", "balanced"])
def test_a_goal_is_best_by_its_own_figure(goal: Goal) -> None:
    outcome = portfolio.solve(front_request(), Wish(goal), QUICK)
    assert outcome.chosen is not None
    figure = {"latency": "decode_ps", "throughput": "token_ps", "memory": "used", "balanced": "busy"}[goal]
    best = min(getattr(option.found, figure) for option in (outcome.chosen, *outcome.others))
    assert getattr(outcome.chosen.found, figure) == best
    assert isinstance(outcome.answer, Plan)
    assert outcome.answer.stages == outcome.chosen.stages
    assert outcome.refused
    assert all(any(letter.isdigit() for letter in each.reason) for each in outcome.refused), (
        "reasons are numbers"
    )


def test_the_front_holds_nothing_that_another_beats() -> None:
    front = portfolio.solve(front_request(), Wish("throughput"), QUICK).front
    for left, right in pairwise(front):
        assert left.found.decode_ps < right.found.decode_ps
        assert left.found.token_ps > right.found.token_ps
    assert objectives.knee(front) in front


def test_bounds_are_kept_or_told() -> None:
    request = front_request()
    free = portfolio.solve(request, Wish("throughput"), QUICK)
    assert free.chosen is not None
    floor = free.chosen.found.tokens_per_s * 0.9
    kept = portfolio.solve(request, Wish("latency", rate_floor=floor), QUICK)
    assert kept.chosen is not None
    assert kept.chosen.found.tokens_per_s >= floor
    never = portfolio.solve(request, Wish("latency", rate_floor=1e9), QUICK)
    assert isinstance(never.answer, Infeasible)
    assert "the floor is" in never.answer.reason
    short = portfolio.solve(request, Wish("latency", most_stages=2), QUICK)
    assert short.chosen is not None
    assert len(short.chosen.stages) <= 2


def test_do_not_split_is_said_with_the_number_of_the_best_split() -> None:
    request = instances.mesh(3, 3, blocks=4, tight=20.0)
    outcome = portfolio.solve(request, None, QUICK)
    assert not outcome.split
    assert isinstance(outcome.answer, Plan)
    assert outcome.answer.why[0].startswith("Do not split")
    assert "the best split" in outcome.answer.why[0]


def test_no_peer_and_no_room_are_told_in_bytes() -> None:
    request = instances.mesh(3, 3, blocks=16, tight=0.1)
    outcome = portfolio.solve(request, None, QUICK)
    assert isinstance(outcome.answer, Infeasible)
    assert outcome.answer.missing_bytes > 0
    nobody = portfolio.solve(replace(request, peers=(), links=()), None, QUICK)
    assert isinstance(nobody.answer, Infeasible)


# -- strategies


def test_strategies_cut_where_they_may() -> None:
    request = instances.mesh(5, 4, blocks=6, tight=3.0)
    layer = portfolio.solve(request, Wish(strategy="layer"), QUICK).chosen
    assert layer is not None
    whole = strategies.layer_borders(request)
    assert all(whole[stage.stop] for stage in layer.stages)
    optimal = portfolio.solve(request, Wish(), QUICK).chosen
    hybrid = portfolio.solve(request, Wish(strategy="hybrid"), QUICK).chosen
    assert optimal is not None
    assert hybrid is not None
    assert optimal.found.decode_ps <= layer.found.decode_ps
    assert hybrid.found.decode_ps <= optimal.found.decode_ps
    turns = portfolio.solve(request, Wish(strategy="attention-ffn"), QUICK).chosen
    assert turns is not None
    sides: dict[str, set[str]] = {"attn": set(), "ffn": set()}
    for stage in turns.stages:
        for unit in request.units[stage.first : stage.stop]:
            if unit.kind in ("attn", "ffn"):
                sides[unit.kind].add(stage.peer)
    assert not sides["attn"] & sides["ffn"]
    assert simulator.decode_round_ps(request, turns.stages) == turns.found.decode_ps


@pytest.mark.parametrize(("blocks", "stages"), [(32, 64), (33, None)])
def test_taking_turns_in_every_block_ends_where_a_route_does(blocks: int, stages: int | None) -> None:
    request = instances.mesh(5, 3, blocks=blocks, tight=6.0)
    outcome = portfolio.solve(request, Wish(strategy="attention-ffn"), replace(QUICK, width=60))
    if stages is None:
        assert isinstance(outcome.answer, Infeasible)
        assert "33 blocks, 66 stages; a mesh carries at most 64" in outcome.answer.reason
        short = portfolio.solve(request, Wish(strategy="attention-ffn", most_stages=9), QUICK)
        assert isinstance(short.answer, Infeasible)
        assert "66 stages; at most 9 were wished for" in short.answer.reason
    else:
        assert isinstance(outcome.answer, Plan)
        assert len(outcome.answer.stages) == stages
        assert "the strategy attention-ffn has no plan on one peer" in outcome.answer.why[0]


def test_a_plan_that_no_route_can_name_is_refused() -> None:
    count = objectives.MOST_STAGES + 1
    request = instances.mesh(1, count, blocks=count, tight=1.0)
    names = sorted(peer.peer for peer in request.peers)
    stages = tuple(Stage(at, at + 1, name) for at, name in enumerate(names[:-1]))
    stages = (*stages, Stage(count - 1, len(request.units), names[-1]))
    roomy = replace(request, peers=tuple(replace(peer, memory_bytes=2**40) for peer in request.peers))
    told = objectives.refusals(Wish(), objectives.figures(roomy, stages))
    assert told == ("65 stages, a mesh carries at most 64",)


def test_a_component_goes_to_the_peer_it_prefers_where_that_can_hold_it() -> None:
    request = instances.mesh(5, 4, blocks=6, tight=3.0)
    count = len(request.units)
    for name in ("p0000", "p0002"):
        groups = (Component("encoder", 0, 3, name), Component("decoder", 3, count))
        chosen = portfolio.solve(request, Wish(strategy="component", components=groups), QUICK).chosen
        assert chosen is not None
        assert (chosen.stages[0].peer, chosen.stages[0].stop in (3, count)) == (name, True)
        assert {stage.stop for stage in chosen.stages} <= {3, count}


# -- many peers


def test_clusters_are_near_and_small() -> None:
    request = instances.mesh(2, 150, blocks=8)
    parts = blocks.blocks(lattice.build(request, 1, strategies.layer_borders(request)))
    assert parts is not None
    found = clusters.regions(parts, size=20)
    assert len(found) > 1
    assert all(len(region) <= 21 and region == sorted(set(region)) for region in found)


def test_a_plan_of_many_is_no_worse_than_any_rule() -> None:
    request = instances.mesh(2, 150, blocks=12, tight=0.8)
    outcome = portfolio.solve(request, None, portfolio.Effort(search=200_000, exact=2_000_000))
    assert outcome.chosen is not None
    view = lattice.build(request)
    rules = heuristics.all_rules(view)
    assert rules
    assert all(outcome.chosen.found.decode_ps <= view.value(path) for path in rules.values())
    assert any("regions" in line for line in outcome.ran)


def test_cut_by_lattice_equals_cut_by_network() -> None:
    request = instances.mesh(4, 5, blocks=5, tight=2.0)
    view = lattice.build(request)
    net = network.build(request, view.peers, 1)
    for order in ((0, 1), (2, 1, 4), (3, 4, 0, 1), (4, 3, 2, 1, 0)):
        one, other = lattice.cut(view, order), cut(net, order)
        assert (None if one is None else view.value(one)) == (None if other is None else net.value(other))
        assert one == other


def test_saturation_follows_little() -> None:
    request = front_request()
    chosen = portfolio.solve(request, None, QUICK).chosen
    assert chosen is not None
    assert chosen.found.saturating_sessions >= Fraction(1)


def test_the_codec_carries_what_was_measured() -> None:
    request = front_request()
    facts = PeerFacts(
        10**9,
        10**8,
        5,
        2100,
        {"ffn": 0.5},
        {"attn": 0.1},
        {"ffn.1": 0.2},
        0.3,
        "webgpu",
        2**27,
        ("Gelu",),
        ("nat 1",),
    )
    links = tuple(replace(link, loss=0.01, relayed=None) for link in request.links)
    told = replace(request, peers=(replace(request.peers[0], facts=facts), *request.peers[1:]), links=links)
    assert decode_request(encode_request(told)) == told
    assert decode_request(encode_request(request)) == request


def test_loss_costs_round_trips_and_rate() -> None:
    clean = Link("a", "b", 0.1, 1e6)
    lossy = replace(clean, loss=0.5)
    assert evaluator.delay_ps(lossy) == evaluator.delay_ps(clean) + evaluator.picoseconds(0.1)
    assert evaluator.transfer_ps(lossy, 1000, 1) == 2 * evaluator.transfer_ps(clean, 1000, 1)
    request = instances.mesh(1, 3, blocks=3, tight=3.0)
    bad = replace(request, links=tuple(replace(link, loss=0.2) for link in request.links))
    view, other = lattice.build(request), network.build(bad, lattice.build(bad).peers, 1)
    assert (lattice.build(bad).hop[0] >= view.hop[0]).all()
    off = lattice.build(bad).classes[1]
    assert (lattice.build(bad).hop[off][0, 1], lattice.build(bad).back[0, 1]) == (
        other.hop[0, 1, 1],
        other.back[0, 1],
    )
