"""Placements of graphs: side by side where that is faster, on one peer where it is not."""

from __future__ import annotations

from dataclasses import replace

from planner.cost import graph_evaluator
from planner.cost.graph_cost import GraphPlan, GraphRequest, GraphStage
from planner.solvers.graph_placement import place
from planner.types import Infeasible
from tests.planner.graph_works import links, peer, towers


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


def test_what_does_not_pay_is_not_split() -> None:
    found = planned(two_towers(size=10_000_000))
    assert [(stage.first, stage.stop, stage.peer) for stage in found.stages] == [(0, 7, "a")]
    assert found.why[0].startswith("Not split: a alone needs 26002.0 ms a run; the best split")


def test_the_order_of_peers_and_links_changes_nothing() -> None:
    request = two_towers()
    other = replace(request, peers=request.peers[::-1], links=request.links[::-1])
    assert planned(request) == planned(other)


def test_memory_that_is_missing_is_told() -> None:
    request = replace(two_towers(), peers=(peer("a", 300), peer("b", 300)))
    assert place(request) == Infeasible("needs at most 100 bytes more on a; or another peer", 100)
