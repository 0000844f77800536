"""Requests that no placement of a graph can be made of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.cost.graph_cost import GraphRequest, GraphStage, check_graph_request
from planner.errors import RequestError
from planner.types import Edge, GraphWork, Link
from tests.planner.graph_works import chain, links, peer

GOOD = GraphRequest(chain(2), (peer("a"), peer("b")), links("ab"))


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ({"work": GraphWork((), ())}, "expected at least one unit"),
        ({"work": GraphWork(GOOD.work.units, (Edge("v", 1, 1, (1,)),))}, "value v: expected users in order"),
        ({"work": GraphWork(GOOD.work.units, (Edge("v", 1, 0, (2,)),))}, "value v: expected users in order"),
        ({"work": GraphWork(GOOD.work.units, (Edge("v", -1, 0, (1,)),))}, "value v: expected bytes from 0"),
        ({"peers": (peer("a"), peer("a"))}, "expected each peer once, got a"),
        ({"peers": (peer("a", flops_per_s=0.0),)}, "peer a: expected flops_per_s > 0"),
        ({"peers": (peer("a", flops_per_s=float("nan")),)}, "peer a: expected flops_per_s > 0"),
        ({"peers": (peer("a", flops_per_s=1e-9),)}, "peer a: expected seconds from 0"),
        ({"peers": (peer("a", free=-1),)}, "peer a: expected free_bytes from 0"),
        ({"links": (Link("a", "b", 0.1, 0.0),)}, "link a -> b: expected bytes_per_s > 0"),
        ({"links": (Link("a", "b", 0.1, 1e-9),)}, "link a -> b: expected seconds from 0"),
        ({"most_stages": 0}, "expected most_stages of at least 1"),
        ({"standbys": 8}, "expected 0 to 7 standbys"),
        ({"keep": (GraphStage(0, 1, "a"),)}, "keep: expected stages that cover 2 units, got 1"),
        ({"keep": (GraphStage(0, 3, "a"),)}, "keep: expected a stage from unit 0 on, got 0-3"),
    ],
)
def test_requests_that_break_the_rules(change: dict[str, object], refusal: str) -> None:
    check_graph_request(GOOD)
    with pytest.raises(RequestError, match=refusal):
        check_graph_request(replace(GOOD, **change))  # type: ignore[arg-type]
