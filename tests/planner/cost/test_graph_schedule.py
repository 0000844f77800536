"""One run in time: who computes when, what crosses, and which chain of both makes the run as long as it is."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest

from planner.cost import graph_evaluator
from planner.cost.graph_cost import GraphRequest, GraphStage
from planner.cost.graph_schedule import Schedule, StageSpan, schedule
from planner.errors import RequestError
from planner.types import Edge, GraphWork
from tests.planner.cost.tower_stages import ALONE, BESIDE, random_stages, two_towers
from tests.planner.graph_works import chain, links, peer, random_request


def steps(found: Schedule) -> list[str]:
    """The critical path, short."""
    return [
        f"{step.peer} {step.first}-{step.stop}"
        if isinstance(step, StageSpan)
        else f"{step.src}>{step.dst} {step.value}"
        for step in found.critical
    ]


@pytest.mark.parametrize(
    ("origin", "stages", "path"),
    [
        (None, ALONE, ["a 0-7"]),
        ("o", ALONE, ["o>a in", "a 0-7", "a>o out"]),
        (None, BESIDE, ["b 3-6", "b>a t1.2", "a 6-7"]),
        ("o", BESIDE, ["o>b in", "b 3-6", "b>a t1.2", "a 6-7", "a>o out"]),
        (
            None,
            (GraphStage(0, 3, "a"), GraphStage(3, 6, "a"), GraphStage(6, 7, "b")),
            ["a 0-3", "a 3-6", "a>b t1.2", "b 6-7"],
        ),
    ],
)
def test_the_critical_path(origin: str | None, stages: tuple[GraphStage, ...], path: list[str]) -> None:
    assert steps(schedule(two_towers(origin), stages)) == path


def test_a_value_that_waits_for_its_link_is_late_because_of_the_one_before_it() -> None:
    edges = (Edge("v", 1000, 0, (1,)), Edge("w", 1000, 0, (1,)), Edge("out", 1000, 1, (), True))
    work = GraphWork(chain(2).units, edges)
    request = GraphRequest(work, (peer("a"), peer("b")), links("ab", bytes_per_s=1000))
    found = schedule(request, (GraphStage(0, 1, "a"), GraphStage(1, 2, "b")))
    assert steps(found) == ["a 0-1", "a>b v", "a>b w", "b 1-2"]
    assert [(each.begins_s, each.ends_s) for each in found.transfers] == [(1.0, 2.001), (2.0, 3.001)]


@pytest.mark.parametrize("seed", range(40))
def test_steps_of_the_critical_path_follow_one_another_from_start_to_end(seed: int) -> None:
    draw = random.Random(seed)
    request = random_request(seed, draw.randint(2, 14), draw.randint(1, 4))
    stages = random_stages(request, draw)
    found, figures = schedule(request, stages), graph_evaluator.evaluate(request, stages)
    assert (found.latency_s, found.rate_per_s) == (figures.latency_s, figures.rate_per_s)
    assert [(span.first, span.stop) for span in found.stages] == [(s.first, s.stop) for s in stages]
    spans = {(span.peer, span.first, span.begins_s, span.ends_s) for span in found.stages}
    timeline = graph_evaluator.timeline(request, stages)
    assert spans == {(span.peer, span.first, span.begins_s, span.ends_s) for span in timeline}
    path = found.critical
    assert path[0].begins_s == 0
    assert path[-1].ends_s == found.latency_s
    for before, after in pairwise(path):
        assert before.begins_s <= after.begins_s <= before.ends_s, (
            "only a link is free before what it sent is there"
        )


def test_what_has_no_link_counts_as_nothing_and_is_said() -> None:
    request = replace(two_towers(), links=())
    found = schedule(request, BESIDE)
    assert found.unlinked == (("b", "a"),)
    assert found.latency_s == 3.0
    assert steps(found) == ["b 3-6", "a 6-7"] or steps(found) == ["a 0-3", "a 6-7"]
    with pytest.raises(RequestError, match="c is not there"):
        schedule(request, (GraphStage(0, 7, "c"),))


def test_names_stand_for_peers_everywhere() -> None:
    found = schedule(two_towers(), (replace(BESIDE[0], standbys=("b",)), *BESIDE[1:])).named(str.upper)
    assert {span.peer for span in found.stages} == {"A", "B"}
    assert found.stages[0].standbys == ("B",)
    assert [(each.src, each.dst) for each in found.transfers] == [("B", "A")]
