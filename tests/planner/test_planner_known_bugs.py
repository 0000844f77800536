"""Bugs that other planners were reported to have, each by its project and number, shown absent here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise, permutations

import numpy as np
import pytest

from planner.adapt import k_failures, repair, resharding
from planner.cost import evaluator, objectives
from planner.cost import standbys as redundancy
from planner.cost.objectives import Component, Strategy, Wish
from planner.errors import RequestError
from planner.solvers import lattice, moves, portfolio, strategies
from planner.types import Infeasible, Link, PeerFacts, PeerProfile, Plan, PlanRequest, Stage, Unit, UnitKind

MS = 1e-3
KINDS: tuple[UnitKind, ...] = ("embed", "attn", "ffn", "head")
QUICK = portfolio.Effort(search=60_000, exact=20_000_000)


def model(blocks: int, weight: int = 100, kv: int = 0, ends: int = 100) -> tuple[Unit, ...]:
    made = [Unit("embed", "embed", ends, 0, 0, 1000)]
    for block in range(blocks):
        made.append(Unit(f"attn.{block}", "attn", weight, 1, kv, 1000))
        made.append(Unit(f"ffn.{block}", "ffn", weight, 1, 0, 1000))
    return (*made, Unit("head", "head", ends, 1, 0, 4))


def peer(
    name: str, memory: int, millis: float = 1.0, facts: PeerFacts | None = None, **more: float
) -> PeerProfile:
    times: dict[UnitKind, float] = dict.fromkeys(KINDS, millis * MS)
    prefill: dict[UnitKind, float] = dict.fromkeys(KINDS, more.get("prefill", millis) * MS)
    return PeerProfile(name, memory, 0, times, prefill, facts=facts or PeerFacts())


def mesh(
    *peers: PeerProfile, units: tuple[Unit, ...] = (), rtt: float = 2.0, sessions: int = 1
) -> PlanRequest:
    names = [each.peer for each in peers]
    links = tuple(Link(a, b, rtt * MS, 1e8) for a in names for b in names if a != b)
    return PlanRequest(units or model(4), peers, links, 10, sessions)


def solved(request: PlanRequest, wish: Wish | None = None) -> tuple[Stage, ...]:
    outcome = portfolio.solve(request, wish, QUICK)
    assert outcome.chosen is not None, outcome.answer
    return outcome.chosen.stages


def spans(stages: tuple[Stage, ...]) -> list[tuple[str, int, int]]:
    return [(stage.peer, stage.first, stage.stop) for stage in stages]


def stage(name: str, first: int, stop: int, *standbys: str) -> Stage:
    return Stage(first, stop, name, standbys)


def covered(state: Mapping[str, set[int]], units: int) -> bool:
    return set().union(*state.values()) == set(range(units))


THREE = mesh(peer("a", 500), peer("b", 500), peer("c", 500))
HALVES = (stage("a", 0, 5), stage("b", 5, 10))


def test_petals_389_a_plan_that_is_held_moves_nothing() -> None:
    order = moves.order(THREE, {"a": ((0, 5),), "b": ((5, 10),)}, HALVES)
    assert (order.moves, order.moved_bytes, order.gap_bytes) == ((), 0, 0)


def test_petals_493_a_move_is_confirmed_over_three_checks() -> None:
    slow = mesh(peer("a", 500, 10), peer("b", 500), peer("c", 500))
    fresh = solved(slow)
    held = {"a": ((0, 5),), "b": ((5, 10),)}
    memory, rungs = resharding.Memory(), []
    for _ in range(3):
        decision = resharding.check(slow, HALVES, held, fresh, memory)
        memory = decision.memory
        rungs.append(decision.rung)
    assert rungs[:2] == ["stay", "stay"]
    assert rungs[2] != "stay"
    calm = resharding.check(THREE, HALVES, held, solved(THREE), resharding.Memory(2))
    assert (calm.rung, calm.memory.in_a_row) == ("stay", 0)


def test_petals_210_no_move_leaves_a_unit_uncovered() -> None:
    request = mesh(peer("a", 700), peer("b", 700), peer("c", 700))
    held = {"a": ((0, 5),), "b": ((5, 10),)}
    for target in (
        (stage("b", 0, 5), stage("a", 5, 10)),
        (stage("c", 0, 4), stage("a", 4, 7), stage("b", 7, 10)),
        (stage("b", 0, 3), stage("c", 3, 10)),
    ):
        order = moves.order(request, held, target)
        assert order.gap_bytes == 0
        states = moves.states(held, order.moves)
        assert all(covered(state, 10) for state in states)
        for state in states:
            assert all(100 * len(units) <= 700 for units in state.values())
        assert all(set(range(each.first, each.stop)) <= states[-1][each.peer] for each in target)


def test_petals_210_where_no_order_covers_all_it_says_so() -> None:
    tight = mesh(peer("a", 500), peer("b", 500))
    order = moves.order(tight, {"a": ((0, 5),), "b": ((5, 10),)}, (stage("b", 0, 5), stage("a", 5, 10)))
    assert order.gap_bytes > 0
    assert order.downtime_s(100.0) == order.gap_bytes / 100


def test_petals_428_a_relayed_peer_is_never_the_only_holder() -> None:
    request = mesh(peer("a", 1000), peer("b", 1000), peer("r", 1000, 0.1))
    for relayed in (True, None):
        links = tuple(
            replace(link, relayed=relayed) if "r" in (link.src, link.dst) else link for link in request.links
        )
        found = k_failures.survivable(replace(request, links=links))
        assert isinstance(found, k_failures.Survivable)
        assert "r" not in found.held()
        two = replace(request, peers=request.peers[1:], links=links)
        refused = k_failures.survivable(two)
        assert isinstance(refused, Infeasible)
        assert "relay" in refused.reason


def test_petals_362_a_route_with_a_missing_block_is_refused() -> None:
    assert "expected a run from 4 on" in str(evaluator.refuse(THREE, (stage("a", 0, 4), stage("b", 5, 10))))
    assert "expected all 10" in str(evaluator.refuse(THREE, (stage("a", 0, 4),)))


def test_petals_358_decode_and_prefill_are_kept_apart() -> None:
    request = mesh(peer("decodes", 1000, 1, prefill=9.0), peer("reads", 1000, 2, prefill=0.1))
    outcome = portfolio.solve(request, None, QUICK)
    assert outcome.chosen is not None
    assert spans(outcome.chosen.stages) == [("decodes", 0, 10)]
    other = objectives.figures(request, (stage("reads", 0, 10),))
    assert other.decode_ps > outcome.chosen.found.decode_ps
    assert other.prefill_ps < outcome.chosen.found.prefill_ps


def test_petals_code_every_first_stage_is_reached_by_its_own_link() -> None:
    request = replace(
        THREE, origin="z", links=(*THREE.links, Link("z", "a", 0.1, 1e8), Link("z", "b", 0.1, 1e8))
    )
    request = replace(request, links=(*request.links, Link("c", "z", 0.1, 1e8)))
    view = lattice.build(request)
    assert (view.enter == 0).tolist() == [True, True, False]
    stages = solved(request)
    assert stages[0].peer in "ab"
    assert stages[-1].peer == "c"


def test_parallax_7_who_comes_back_gets_its_layers_again() -> None:
    two = mesh(peer("a", 500), peer("b", 500))
    before = solved(two)
    alone = replace(two, peers=two.peers[:1])
    assert portfolio.solve(alone, None, QUICK).chosen is None
    assert solved(two) == before


def test_parallax_79_missing_layers_are_placed_anew() -> None:
    rest = replace(THREE, peers=THREE.peers[1:])
    found = repair.fewest_moved(rest, HALVES, {"b": ((5, 10),)})
    assert found is not None
    assert spans(found[0]) == [("c", 0, 5), ("b", 5, 10)]


def test_parallax_166_a_peer_that_is_named_twice_is_refused() -> None:
    with pytest.raises(RequestError, match="a more than once"):
        portfolio.solve(replace(THREE, peers=(*THREE.peers, peer("a", 900))))


def test_parallax_194_a_trim_goes_before_a_new_plan() -> None:
    """b turned slow; a holds most of what b serves, idle. No byte moves."""
    request = mesh(peer("a", 900), peer("b", 1000, 8), peer("c", 1000, 1))
    serving = (stage("a", 0, 5), stage("b", 5, 10))
    held = {"a": ((0, 9),), "b": ((5, 10),)}
    decision = resharding.check(
        request, serving, held, solved(request), resharding.Memory(2), resharding.Limits(enough=3)
    )
    assert decision.rung == "trim or extend"
    assert (decision.moved_bytes, spans(decision.stages)) == (0, [("a", 0, 9), ("b", 9, 10)])


def test_parallax_209_nobody_is_listed_twice() -> None:
    request = replace(mesh(*(peer(name, 800) for name in "abcdef")), redundancy=4000)
    stages = redundancy.with_standbys(request, solved(request))
    for each in stages:
        assert len({each.peer, *each.standbys}) == 1 + len(each.standbys)
    found = k_failures.survivable(request, 2)
    assert isinstance(found, k_failures.Survivable)
    named = [(copy.peer, copy.first, copy.stop) for copy in found.copies]
    assert len(set(named)) == len(named)


def test_parallax_344_a_peer_in_two_places_is_busy_with_both() -> None:
    request = replace(mesh(peer("a", 1000), peer("b", 1000), sessions=8), sessions=8)
    shared = (stage("a", 0, 3), stage("b", 3, 6), stage("a", 6, 10))
    assert evaluator.evaluate(request, shared).slowest.endswith("(a)")
    assert evaluator.evaluate(request, shared).tokens_per_s <= 1000 / 7 + 1e-9


def test_parallax_349_one_loss_moves_only_what_was_lost() -> None:
    request = mesh(*(peer(name, 300) for name in "abcd"), peer("e", 300))
    chain = (stage("a", 0, 3), stage("b", 3, 5), stage("c", 5, 8), stage("d", 8, 10))
    held = {name: ((first, stop),) for name, first, stop in spans(chain) if name != "b"}
    rest = replace(request, peers=tuple(each for each in request.peers if each.peer != "b"))
    found = repair.fewest_moved(rest, chain, held)
    assert found is not None
    assert found[1] == 2
    assert {("a", 0, 3), ("c", 5, 8), ("d", 8, 10)} <= set(spans(found[0]))


def test_parallax_37_a_peer_without_layers_may_go() -> None:
    held = {"a": ((0, 5),), "b": ((5, 10),), "c": ()}
    assert k_failures.after_loss(THREE, held, {"c"}) == k_failures.after_loss(THREE, held, ())


def test_parallax_code_a_stage_takes_longer_with_each_unit() -> None:
    times = [evaluator.stage_ps(THREE.peers[0], THREE.units[:count], 1) for count in range(1, 10)]
    assert {b - a for a, b in pairwise(times)} == {evaluator.picoseconds(MS)}


def test_parallax_code_an_idle_peer_is_not_free() -> None:
    view = lattice.build(THREE)
    assert view.stage(0, 0, 1) > 0
    assert evaluator.evaluate(replace(THREE, sessions=1), HALVES).stage_s == pytest.approx((5 * MS, 5 * MS))


def test_exo_2227_the_spare_layer_does_not_go_to_the_tightest() -> None:
    """Ten units, rooms for exactly 5, 3 and 2: proportional rounding would overfill one."""
    request = mesh(peer("a", 599), peer("b", 399), peer("c", 299))
    stages = solved(request)
    counts = {each.peer: each.stop - each.first for each in stages}
    assert counts == {"a": 5, "b": 3, "c": 2}


def test_exo_957_the_least_sum_of_stages_and_links_is_found() -> None:
    request = mesh(peer("a", 400, 1), peer("b", 400, 2), peer("c", 500, 0.5), peer("d", 600, 3))
    links = tuple(
        replace(link, rtt_s=link.rtt_s * (1 + 3 * (ord(link.src) * 7 + ord(link.dst)) % 5))
        for link in request.links
    )
    request = replace(request, links=links)
    least = min(
        evaluator.evaluate(request, stages).decode_ps
        for count in (2, 3, 4)
        for names in permutations("abcd", count)
        for cuts in _cuts(10, count)
        if evaluator.refuse(request, stages := tuple(stage(n, *c) for n, c in zip(names, cuts, strict=True)))
        is None
    )
    assert evaluator.evaluate(request, solved(request)).decode_ps == least


def _cuts(units: int, count: int) -> list[list[tuple[int, int]]]:
    if count == 1:
        return [[(0, units)]]
    return [
        [*head, (border, units)] for border in range(count - 1, units) for head in _cuts(border, count - 1)
    ]


def test_exo_1200_lopsided_pairs_get_no_empty_stage_and_no_overflow() -> None:
    for small in (100, 250, 999):
        request = mesh(peer("tiny", small, 0.1), peer("huge", 1000, 5))
        for each in solved(request):
            assert each.stop > each.first
            assert (
                evaluator.overfull(request, evaluator.profiles(request)[each.peer], [(each.first, each.stop)])
                is None
            )


def test_exo_2077_links_known_in_one_direction_are_enough() -> None:
    ring = tuple(link for link in THREE.links if (link.src, link.dst) in {("a", "b"), ("b", "c"), ("c", "a")})
    request = mesh(peer("a", 400), peer("b", 400), peer("c", 400))
    assert [each.peer for each in solved(replace(request, links=ring))] in (
        list("abc"),
        list("bca"),
        list("cab"),
    )


def test_exo_2310_more_peers_when_they_are_better() -> None:
    request = replace(mesh(*(peer(name, 1000, 5) for name in "abcd"), rtt=0.1), sessions=16)
    assert len(solved(request, Wish("throughput"))) == 4
    assert len(solved(request, Wish("latency"))) == 1


def test_exo_2253_layer_counts_by_hand_are_checked() -> None:
    groups = (Component("front", 0, 5, "a"), Component("back", 5, 10, "b"))
    assert spans(solved(THREE, Wish(strategy="component", components=groups))) == [("a", 0, 5), ("b", 5, 10)]
    with pytest.raises(RequestError, match="expected units from 5 on"):
        portfolio.solve(THREE, Wish(strategy="component", components=(groups[0], Component("x", 6, 10))))
    with pytest.raises(RequestError, match="all 10 units"):
        portfolio.solve(THREE, Wish(strategy="component", components=groups[:1]))


@pytest.mark.parametrize(("near", "expected"), [("b", {"a", "b"}), ("c", {"a", "c"})])
def test_exo_2297_measured_round_trips_rank_the_rings(near: str, expected: set[str]) -> None:
    request = mesh(peer("a", 700, 0.5), peer("b", 500), peer("c", 500), rtt=50)
    links = tuple(
        replace(link, rtt_s=MS) if {link.src, link.dst} == {"a", near} else link for link in request.links
    )
    assert {each.peer for each in solved(replace(request, links=links))} == expected


def test_exo_284_the_faster_peer_takes_more() -> None:
    request = mesh(peer("slow", 900, 4), peer("fast", 900, 1))
    counts = {each.peer: each.stop - each.first for each in solved(request)}
    assert counts == {"fast": 9, "slow": 1}


def test_distributed_llama_193_the_slowest_sets_the_pace() -> None:
    request = replace(mesh(peer("a", 1000, 1), peer("b", 1000, 7)), sessions=32)
    found = evaluator.evaluate(request, HALVES)
    assert found.slowest == "stage 2 (b)"
    assert found.tokens_per_s == pytest.approx(1000 / 35)


def test_distributed_llama_157_the_context_counts_with_the_weights() -> None:
    request = replace(mesh(peer("a", 5000), units=model(4, kv=10)), context=10)
    assert len(solved(request)) == 1
    long = portfolio.solve(replace(request, context=1000), None, QUICK)
    assert isinstance(long.answer, Infeasible)
    assert long.answer.missing_bytes == 1000 + 40 * 1000 - 5000


@pytest.mark.parametrize("count", [2, 3, 5, 7])
def test_distributed_llama_139_any_number_of_peers_serves(count: int) -> None:
    request = mesh(*(peer(name, 1400 // count + 300) for name in "abcdefg"[:count]), units=model(6))
    strategies_tried: tuple[Strategy, ...] = ("optimal", "layer", "pipeline")
    for strategy in strategies_tried:
        stages = solved(request, Wish(strategy=strategy))
        assert (stages[0].first, stages[-1].stop) == (0, 14)
        assert len(stages) <= count


def test_distributed_llama_70_more_peers_than_parts_leave_some_idle() -> None:
    request = mesh(*(peer(name, 200) for name in "abcdefgh"), units=model(1))
    assert len(solved(request, Wish(strategy="pipeline"))) < 8
    assert 2 <= len(solved(request)) <= 4


def test_distributed_llama_98_units_of_unknown_slices_are_not_cut() -> None:
    answer = portfolio.solve(THREE, Wish(strategy="tensor")).answer
    assert isinstance(answer, Infeasible)
    assert "of no unit it is known how it comes in slices" in answer.reason


@pytest.mark.parametrize("strategy", ["expert", "tiles"])
def test_distributed_llama_98_what_cannot_be_cut_is_refused_before_anything_loads(strategy: Strategy) -> None:
    with pytest.raises(RequestError, match=f"strategy {strategy}: not offered yet; optimal, layer"):
        portfolio.solve(THREE, Wish(strategy=strategy))


def test_llama_cpp_28506_parts_add_up_to_the_model() -> None:
    rooms = {"a": 431, "b": 377, "c": 402}
    stages = solved(mesh(*(peer(name, room) for name, room in rooms.items())))
    assert sum(each.weight_bytes for each in stages) == 1000
    assert all(each.weight_bytes <= rooms[each.peer] for each in stages)


def test_llama_cpp_14484_scratch_is_counted() -> None:
    facts = PeerFacts(scratch_bytes=100)
    assert spans(solved(mesh(peer("a", 1000), peer("b", 100)))) == [("a", 0, 10)]
    stages = solved(mesh(peer("a", 1000, facts=facts), peer("b", 100)))
    assert {each.peer: each.stop - each.first for each in stages} == {"a": 9, "b": 1}


def test_llama_cpp_18354_every_device_is_checked() -> None:
    assert "b pledged 500 bytes" in str(evaluator.refuse(THREE, (stage("a", 0, 4), stage("b", 4, 10))))
    assert "a pledged 500 bytes" in str(evaluator.refuse(THREE, (stage("a", 0, 6), stage("b", 6, 10))))


def test_llama_cpp_11435_memory_elsewhere_is_used() -> None:
    stages = solved(mesh(peer("full", 200, 0.1), peer("free", 800, 3)))
    assert {each.peer: each.stop - each.first for each in stages} == {"full": 2, "free": 8}


def test_vllm_6920_the_last_stage_has_fewer_layers() -> None:
    units = model(8)
    heavy = {unit.name: (9 if unit.kind == "head" else 1) * MS for unit in units}
    facts = PeerFacts(unit_decode_s=heavy)
    request = replace(
        mesh(peer("a", 2000, facts=facts), peer("b", 2000, facts=facts), units=units), sessions=32
    )
    first, last = solved(request, Wish("throughput"))
    assert first.stop - first.first > last.stop - last.first


def test_vllm_36904_only_the_ends_hold_embedding_and_head() -> None:
    request = mesh(peer("a", 1300), peer("b", 1300), peer("c", 1300), units=model(6, ends=600), rtt=0.0)
    stages = (stage("a", 0, 3), stage("b", 3, 10), stage("c", 10, 14))
    sizes = [
        evaluator.stage_bytes(request, evaluator.profiles(request)[n], f, s)[0] for n, f, s in spans(stages)
    ]
    assert sizes == [800, 700, 900]


def test_vllm_14120_the_head_counts_on_the_last_stage() -> None:
    request = mesh(peer("a", 700), peer("b", 700), units=model(2, ends=400))
    for each in solved(request):
        assert (
            evaluator.stage_bytes(request, evaluator.profiles(request)[each.peer], each.first, each.stop)[0]
            <= 700
        )


@pytest.mark.parametrize("blocks", [5, 7, 11])
def test_vllm_46217_remaining_layers_are_spread(blocks: int) -> None:
    request = mesh(*(peer(name, 100 * blocks) for name in "abc"), units=model(blocks))
    stages = solved(request, Wish(strategy="pipeline"))
    counts = [sum(unit.kind == "attn" for unit in request.units[each.first : each.stop]) for each in stages]
    assert len(counts) > 1
    assert max(counts) - min(counts) <= 1


def test_sglang_37923_shards_go_by_the_cost_matrix() -> None:
    draws = np.random.default_rng(1)
    for size in (1, 3, 6):
        costs = draws.integers(0, 50, (size, size + 1))
        found = moves.assignment(costs)
        least = min(
            sum(int(costs[row, column]) for row, column in enumerate(columns))
            for columns in permutations(range(size + 1), size)
        )
        assert len(set(found)) == size
        assert sum(int(costs[row, column]) for row, column in enumerate(found)) == least


def test_onnxruntime_29455_the_peak_while_loading_counts() -> None:
    whole = mesh(peer("a", 1500), peer("b", 1500, 5))
    assert len(solved(whole)) == 1
    doubled = mesh(peer("a", 1500, facts=PeerFacts(load_peak_milli=2100)), peer("b", 1500, 5))
    assert {each.peer: each.stop - each.first for each in solved(doubled)} == {"a": 7, "b": 3}
    assert "pledged 1500 bytes, its stage needs 2100" in str(evaluator.refuse(doubled, (stage("a", 0, 10),)))


def test_onnxruntime_25195_no_tensor_beyond_the_largest_buffer() -> None:
    units = tuple(replace(unit, largest_tensor_bytes=90 if unit.kind == "head" else 10) for unit in model(4))
    small = PeerFacts(max_buffer_bytes=50)
    request = mesh(peer("gpu", 1000, 0.1, facts=small), peer("cpu", 1000, 5), units=units)
    stages = solved(request)
    assert spans(stages) == [("gpu", 0, 9), ("cpu", 9, 10)]
    assert "largest buffer of gpu takes 50" in str(evaluator.refuse(request, (stage("gpu", 0, 10),)))


def test_onnxruntime_29089_an_operator_that_is_missing_keeps_a_unit_away() -> None:
    units = tuple(replace(unit, ops=("Attention",) if unit.kind == "attn" else ()) for unit in model(1))
    request = mesh(
        peer("old", 1000, 0.1, facts=PeerFacts(ops=("MatMul",))), peer("new", 1000, 5), units=units
    )
    stages = solved(request)
    assert all(each.peer == "new" for each in stages if each.first <= 1 < each.stop)
    assert "old has no Attention" in str(evaluator.refuse(request, (stage("old", 0, 4),)))


def test_vllm_18343_copies_are_never_on_one_machine() -> None:
    one = PeerFacts(domains=("machine 1",))
    request = mesh(
        peer("a", 1000, facts=one),
        peer("b", 1000, facts=one),
        peer("c", 1000, 9, facts=PeerFacts(domains=("machine 2",))),
    )
    found = k_failures.survivable(request)
    assert isinstance(found, k_failures.Survivable)
    assert "c" in found.held()
    for unit in range(10):
        owners = {
            name for name, runs in found.held().items() if any(first <= unit < stop for first, stop in runs)
        }
        assert not owners <= {"a", "b"}


def test_the_plan_of_the_mesh_says_the_same_as_the_portfolio() -> None:
    outcome = portfolio.solve(THREE, None, QUICK)
    assert isinstance(outcome.answer, Plan)
    assert outcome.gap == 0
    assert strategies.layer_borders(THREE).tolist() == [at not in (2, 4, 6, 8) for at in range(11)]
