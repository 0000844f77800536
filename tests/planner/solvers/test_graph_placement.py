"""Placements of graphs: side by side where that is faster, on one peer where it is not."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from planner.cost import graph_evaluator
from planner.cost.evaluator import PICO
from planner.cost.graph_cost import Engine, GraphPlan, GraphRequest, GraphStage
from planner.cost.graph_evaluator import Board, Place
from planner.errors import RequestError
from planner.solvers.graph_candidates import Placement, valued
from planner.solvers.graph_placement import place
from planner.types import Edge, GraphWork, Infeasible, Link, Objective, PeerFacts
from tests.planner.graph_works import chain, links, peer, random_request, towers, unit
from tests.planner.solvers import graph_cp_sat
from tests.seeds import seeds


def planned(request: GraphRequest) -> GraphPlan:
    found = place(request)
    assert isinstance(found, GraphPlan), found
    return found


def two_towers(size: int = 1000) -> GraphRequest:
    return GraphRequest(towers(size=size), (peer("a"), peer("b")), links(["a", "b", "o"]), "o")


def test_two_towers_run_side_by_side() -> None:
    request = two_towers()
    alone = graph_evaluator.evaluate(request, [GraphStage(0, 7, "a")])
    found = planned(request)
    assert found.latency_s <= 0.6 * alone.latency_s
    assert {stage.peer for stage in found.stages} == {"a", "b"}
    assert found.why[0] == "Split over 2 peers: 3006.0 ms a run, against 6004.0 ms a run on a alone."
    assert found.why[1] == "Peers work side by side for 3000.0 ms of a run."


def bands(count: int, steps: int) -> GraphWork:
    """Bands of a picture: each step of a band needs a little of its neighbours' step before it, and all of its own."""
    units = [unit("rows", 0, component="rows")]
    units += [unit(f"{b}.{at}", 8 * 10**6, component=f"band{b}") for at in range(steps) for b in range(count)]
    units.append(unit("rest", 0, component="rest"))
    last, edges = len(units) - 1, [Edge("x", 1000, None, (0,))]
    edges += [Edge(f"x{b}", 100_000, 0, (1 + b,)) for b in range(count)]
    for at in range(steps):
        for b in range(count):
            here = 1 + at * count + b
            after = here + count if at < steps - 1 else last
            edges.append(Edge(f"own{b}.{at}", 1_000_000, here, (after,)))
            if at < steps - 1:
                beside = [1 + (at + 1) * count + each for each in (b - 1, b + 1) if 0 <= each < count]
                edges.append(Edge(f"edge{b}.{at}", 1000, here, tuple(beside)))
    return GraphWork(tuple(units), (*edges, Edge("out", 1000, last, (), True)))


@pytest.mark.parametrize(("count", "share"), [(2, 0.7), (3, 0.48)])
def test_bands_that_wait_for_one_another_often_stay_whole_side_by_side(count: int, share: float) -> None:
    names = ["a", "b", "c"][:count]
    between = links([*names, "o"], rtt_s=0.006, bytes_per_s=1e9)
    request = GraphRequest(bands(count, 16), tuple(map(peer, names)), between, "a")
    alone = graph_evaluator.evaluate(request, [GraphStage(0, 16 * count + 2, "a")])
    assert planned(request).latency_s <= share * alone.latency_s


def test_what_does_not_pay_is_not_split() -> None:
    found = planned(two_towers(size=10_000_000))
    assert [(stage.first, stage.stop, stage.peer) for stage in found.stages] == [(0, 7, "a")]
    assert found.why[0].startswith("Not split: a alone needs 26002.0 ms a run; the best split")


# -- against other solvers


def all_placements(board: Board) -> Placement:
    """The best of all placements there are, by trying each."""
    units, peers = len(board.needs), range(len(board.names))

    def options(places: list[Place]) -> list[list[Place]]:
        at = places[-1][1]
        first, _, last = places[-1]
        return [[*places[:-1], (first, at + 1, last)], *([*places, (at, at + 1, peer)] for peer in peers)]

    found: list[list[Place]] = [[(0, 1, peer)] for peer in peers]
    for _ in range(1, units):
        found = [more for places in found for more in options(places)]
    return min((valued(board, places) for places in found), key=lambda each: each.key)


@pytest.mark.series
@pytest.mark.parametrize("objective", ["latency", "throughput"])
@pytest.mark.parametrize("seed", range(seeds(200)))
def test_small_graphs_equal_brute_force(seed: int, objective: Objective) -> None:
    draw = random.Random(seed)
    units, peers = draw.choice([(2, 4), (3, 3), (4, 4), (5, 3), (6, 2), (6, 3)])
    request = random_request(seed, units, peers, objective, draw.choice([None, 0.8, 1.2, 1.6]))
    request = replace(request, links=tuple(link for link in request.links if draw.random() < 0.95))
    board = Board.of(request)
    best, found = all_placements(board), place(request)
    if isinstance(found, Infeasible):
        assert found.missing_bytes == best.key[0]
        assert best.key[:2] != (0, 0)
        assert "at most" not in found.reason
        return
    assert valued(board, board.places(found.stages)).key == best.key
    assert found.why[-1].startswith("The best of all placements")


@pytest.mark.series
@pytest.mark.parametrize("objective", ["latency", "throughput"])
@pytest.mark.parametrize("seed", range(seeds(20)))
def test_larger_graphs_are_close_to_cp_sat(seed: int, objective: Objective) -> None:
    """The rate is within 2 %. For latency CP-SAT also chooses the order of stages on a peer, and may let it wait for a
    more urgent one, which no plan can say: the best plan there is may be some percent above.
    """
    draw = random.Random(seed)
    sizes = [(10, 4), (12, 3), (14, 4), (16, 3)]
    units, peers = draw.choice(sizes if objective == "latency" else [*sizes, (20, 4), (24, 5)])
    request = random_request(seed, units, peers, objective, draw.choice([None, 1.6, 2.5]))
    found = planned(request)
    least = graph_cp_sat.least(request, found, limit=2.0)
    board = Board.of(request)
    figure = valued(board, board.places(found.stages)).key[2]
    assert figure >= least.bound_ps
    if least.proven:
        assert figure <= (1.02 if objective == "throughput" else 1.1) * least.bound_ps


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_a_large_graph_on_many_peers(objective: Objective) -> None:
    request = random_request(1, 64, 20, objective)
    found = planned(request)
    figures = [graph_evaluator.evaluate(request, [GraphStage(0, 64, each.peer)]) for each in request.peers]
    if objective == "latency":
        assert found.latency_s < 0.8 * min(each.latency_s for each in figures)
    else:
        assert found.rate_per_s > 5 * max(each.rate_per_s for each in figures)


@pytest.mark.parametrize("objective", ["latency", "throughput"])
@pytest.mark.parametrize(("units", "peers"), [(6, 3), (14, 5)])
def test_the_order_of_peers_and_links_changes_nothing(units: int, peers: int, objective: Objective) -> None:
    request = random_request(units, units, peers, objective, 2.5)
    draw = random.Random(1)
    lent, ways = list(request.peers), list(request.links)
    draw.shuffle(lent)
    draw.shuffle(ways)
    other = replace(request, peers=tuple(lent), links=tuple(ways))
    assert place(request, effort=200_000) == place(other, effort=200_000)


# -- rules


def peers_of(plan: GraphPlan, units: range) -> set[str]:
    return {stage.peer for stage in plan.stages if stage.first < units.stop and units.start < stage.stop}


def runs(stages: Sequence[GraphStage]) -> list[tuple[int, int, str]]:
    return [(stage.first, stage.stop, stage.peer) for stage in stages]


def test_a_stream_is_spread_over_equal_peers() -> None:
    lent = tuple(peer(name) for name in "abc")
    found = planned(GraphRequest(chain(6), lent, links("abc"), objective="throughput"))
    assert found.rate_per_s == 0.5
    assert [stage.stop - stage.first for stage in found.stages] == [2, 2, 2]


def test_a_stream_is_not_spread_where_handing_it_on_is_more_work_than_it_saves() -> None:
    lent = tuple(peer(name) for name in "abc")
    slow = links("abc", bytes_per_s=1 / 4e-3)
    request = GraphRequest(chain(6), lent, slow, objective="throughput", handling_s_per_byte=4e-3)
    found = planned(request)
    assert [(stage.first, stage.stop) for stage in found.stages] == [(0, 6)]
    assert len(planned(replace(request, handling_s_per_byte=5e-4)).stages) > 1
    assert len(planned(replace(request, links=links("abc"))).stages) == 3  # a faster link is less work, too


def test_what_each_alone_has_no_room_for_is_split() -> None:
    found = planned(replace(two_towers(), peers=(peer("a", 500), peer("b", 500)), standbys=0))
    assert found.why[0].startswith(
        "Split over 2 peers: none has room for all units; a comes closest, 200 bytes short"
    )


def test_a_peer_without_an_operator_gets_no_unit_of_it() -> None:
    request = two_towers()
    work = replace(request.work, units=tuple(replace(unit, ops=("ai:Op",)) for unit in request.work.units))
    a, b = (
        replace(each, facts=PeerFacts(ops=ops))
        for each, ops in zip(request.peers, ((), ("ai:Op",)), strict=True)
    )
    assert {stage.peer for stage in planned(replace(request, work=work, peers=(a, b))).stages} == {"b"}
    assert place(replace(request, work=work, peers=(a,))) == Infeasible(
        "no memory would help: a has no ai:Op, which t0.0 needs, and no other peer has it"
    )


@pytest.mark.parametrize(
    ("engine", "lacks"),
    [
        (Engine(newest_opset=26), "a has operators up to opset 26, and opset 27 is needed"),
        (Engine(types=("float32",)), "a has no values of complex64, which t0.0 needs"),
    ],
)
def test_a_peer_whose_engine_is_older_or_lacks_a_type_gets_no_unit_and_stands_by_for_none(
    engine: Engine, lacks: str
) -> None:
    request = two_towers()
    units = tuple(replace(unit, types=("complex64", "float32")) for unit in request.work.units)
    work = replace(request.work, units=units, opset=27)
    a, b = request.peers
    older = replace(request, work=work, peers=(replace(a, free_bytes=10 * a.free_bytes, engine=engine), b))
    stages = planned(older).stages
    assert {peer for stage in stages for peer in (stage.peer, *stage.standbys)} == {"b"}
    assert place(replace(older, peers=older.peers[:1])) == Infeasible(
        f"no memory would help: {lacks}, and no other peer has it"
    )
    newer = replace(older, work=replace(request.work, opset=26))
    assert "a" in {peer for stage in planned(newer).stages for peer in (stage.peer, *stage.standbys)}


@pytest.mark.parametrize(
    ("change", "reason", "missing"),
    [
        ({"peers": (peer("a", 300), peer("b", 300))}, "needs 100 bytes more on a; or another peer", 100),
        ({"peers": ()}, "no peer is there; the model needs 700 bytes", 700),
        (
            {
                "peers": (peer("a", 400), peer("b", 400)),
                "links": (Link("o", "a", 0, 1e6), Link("a", "o", 0, 1e6)),
            },
            "no memory would help: peers have the room, but links are missing (b to a, o to b)",
            0,
        ),
    ],
)
def test_what_is_missing_is_told(change: dict[str, object], reason: str, missing: int) -> None:
    found = place(replace(two_towers(), **change))  # type: ignore[arg-type]
    assert isinstance(found, Infeasible)
    assert found.reason.startswith(reason)
    assert found.missing_bytes == missing


def test_a_plan_has_no_more_stages_than_fit_an_entry() -> None:
    request = two_towers()
    assert len(planned(request).stages) == 3
    assert runs(planned(replace(request, most_stages=2)).stages) == [(0, 7, "a")]
    assert place(replace(request, most_stages=1, peers=(peer("a", 400), peer("b", 400)))) == Infeasible(
        "no memory would help: it needs at most 2 stages, and 1 are the most"
    )


def test_components_go_to_the_peers_they_prefer() -> None:
    request = replace(two_towers(size=10_000_000), prefer={"t1": "b"})
    found = planned(request)
    assert peers_of(found, range(3, 6)) == {"b"}
    assert peers_of(planned(replace(request, prefer={"t0": "b", "t1": "a"})), range(3, 6)) == {"a"}
    small = planned(replace(request, peers=(peer("a"), peer("b", 250))))
    assert "Component t1 prefers b, which is 50 bytes short of room for it." in small.why
    gone = planned(replace(request, prefer={"t1": "eva"}))
    assert "Component t1 prefers eva, which is not there." in gone.why
    with pytest.raises(RequestError, match="prefer: expected components of the model, got 'audio'"):
        place(replace(request, prefer={"audio": "a"}))


def test_components_stay_whole_where_they_fit() -> None:
    lent = (peer("a", 300), peer("b", 400))
    whole = planned(replace(two_towers(), peers=lent, strategy="component"))
    for first in (0, 3):
        assert len(peers_of(whole, range(first, first + 3))) == 1
    lent = (peer("a", 200), peer("b", 500))
    cut = planned(replace(two_towers(), peers=lent, strategy="component"))
    assert (
        cut.why[-1]
        == "Components are cut: no plan keeps to them (needs 100 bytes more on a; or another peer)."
    )


def test_the_plan_that_serves_stays_unless_another_is_clearly_better() -> None:
    request = two_towers()
    best = planned(request)
    assert planned(replace(request, keep=best.stages)) == best
    swapped = {"a": "b", "b": "a"}
    mirrored = tuple(replace(s, peer=swapped[s.peer], standbys=(s.peer,)) for s in best.stages)
    faster = replace(request, peers=(peer("a", flops_per_s=1.05e9), peer("b")))
    assert runs(planned(replace(faster, keep=mirrored)).stages) == runs(mirrored)
    alone = (GraphStage(0, 7, "b"),)
    assert runs(planned(replace(request, keep=alone)).stages) == runs(best.stages)
    slow = replace(request, peers=(peer("a"), peer("b", flops_per_s=1.1e9)), keep=(GraphStage(0, 7, "a"),))
    slow = replace(slow, work=chain(7))
    kept = planned(slow)
    assert runs(kept.stages) == [(0, 7, "a")]
    assert any(
        line.startswith("The plan stays: another would be 9% better, less than 10%") for line in kept.why
    )


def test_the_standby_of_a_lost_peer_takes_its_stages() -> None:
    lent = (peer("a"), peer("b"), peer("c", flops_per_s=0.97e9), peer("d"))
    request = replace(two_towers(), peers=lent, links=links(["a", "b", "c", "d", "o"]))
    before = (GraphStage(0, 3, "a"), GraphStage(3, 6, "b", ("c",)), GraphStage(6, 7, "a"))
    after = planned(replace(request, keep=before, peers=(lent[0], *lent[2:])))
    assert runs(after.stages) == [(0, 3, "a"), (3, 6, "c"), (6, 7, "a")]


def test_standbys_stand_apart_and_compute_alike() -> None:
    def lent(name: str, machine: str, arithmetic: str = "cpu/x", free: int = 10**6) -> object:
        facts = PeerFacts(domains=(f"machine {machine}",), arithmetic=arithmetic)
        return replace(peer(name, free), facts=facts)

    slow = [replace(lent(*each), flops_per_s=1e8) for each in (("c", "1"), ("d", "2", "cpu/y"), ("e", "3"))]  # type: ignore[type-var]
    request = GraphRequest(chain(2), (lent("a", "1"), *slow), links("acde"))  # type: ignore[arg-type]
    assert planned(request).stages == (GraphStage(0, 2, "a", ("e",)),)
    assert planned(replace(request, standbys=2)).stages[0].standbys == ("e", "d")
    assert planned(replace(request, standbys=0)).stages[0].standbys == ()
    near = replace(request, peers=(request.peers[0], request.peers[1]))
    assert (
        "Copies: stage 1 has standbys only on peers that fail together with the primary." in planned(near).why
    )
    full = replace(request, peers=(request.peers[0], lent("b", "2", free=100)))  # type: ignore[arg-type]
    assert "Copies: stage 1 has no standby: nobody else has the room or the links." in planned(full).why


def test_the_timeline_is_that_of_the_plan() -> None:
    request = two_towers()
    found = planned(request)
    bars = graph_evaluator.timeline(request, found.stages)
    assert [bar.peer for bar in bars] == sorted(bar.peer for bar in bars)
    assert max(bar.ends_s for bar in bars) <= found.latency_s
    assert sum(bar.ends_s - bar.begins_s for bar in bars) == pytest.approx(6.0, abs=1 / PICO)
