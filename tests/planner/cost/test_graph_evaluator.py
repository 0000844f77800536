"""Figures of placements of graphs: tables, and the same as an event queue plays."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from planner.cost import graph_evaluator
from planner.cost.evaluator import PICO
from planner.cost.graph_cost import GraphRequest, GraphStage
from planner.cost.graph_evaluator import Board
from planner.errors import RequestError
from tests.planner.cost.graph_player import finished_ps
from tests.planner.cost.tower_stages import ALONE, BESIDE, random_stages, two_towers
from tests.planner.graph_works import chain, links, peer, random_request


@pytest.mark.parametrize(
    ("origin", "stages", "latency_s", "period_s", "limit"),
    [
        (None, ALONE, 6.0, 6.0, "a"),
        ("a", ALONE, 6.0, 6.0, "a"),
        ("o", ALONE, 6.004, 6.0, "a"),
        (None, BESIDE, 3.002, 3.0, "a"),
        ("a", BESIDE, 3.004, 3.0, "a"),
        ("o", BESIDE, 3.006, 3.0, "a"),
        (
            "a",
            (GraphStage(0, 3, "a"), GraphStage(3, 7, "b")),
            6.004,
            3.0,
            "a",
        ),  # one stage: it waits for both
        ("a", (*BESIDE[:2], GraphStage(6, 7, "b")), 3.004, 3.0, "a"),
        (None, (GraphStage(0, 4, "a"), GraphStage(4, 6, "b"), GraphStage(6, 7, "a")), 6.004, 4.0, "a"),
    ],
)
def test_two_towers(
    origin: str | None, stages: tuple[GraphStage, ...], latency_s: float, period_s: float, limit: str
) -> None:
    request = two_towers(origin)
    found = graph_evaluator.evaluate(request, stages)
    assert (found.latency_s, found.period_s, found.limit) == (latency_s, period_s, limit)
    assert found.rate_per_s == pytest.approx(1 / period_s)
    assert finished_ps(request, stages) == [round(latency_s * PICO)]


def test_a_stage_gives_what_it_makes_when_it_ends() -> None:
    request = GraphRequest(chain(4), (peer("a", step_s=0.1), peer("b", step_s=0.1)), links("ab"))
    halves = (GraphStage(0, 2, "a"), GraphStage(2, 4, "b"))
    assert graph_evaluator.evaluate(request, halves).latency_s == pytest.approx(2.1 + 0.002 + 2.1)
    assert [(span.peer, span.first, span.begins_s) for span in graph_evaluator.timeline(request, halves)] == [
        ("a", 0, 0.0),
        ("b", 2, 2.102),
    ]


def test_who_sends_or_takes_values_of_a_stream_has_work_with_them() -> None:
    request = replace(two_towers("o"), handling_s_per_byte=1e-3, links=links("abo", bytes_per_s=1e3))
    found = graph_evaluator.evaluate(request, BESIDE)
    # a takes an input and a result of 1 KB each, and gives the output: 3 s on top; the asker is no peer of the plan
    assert (found.latency_s, found.period_s, found.limit) == (6.003, 6.0, "a")
    assert graph_evaluator.evaluate(replace(request, origin=None), ALONE).period_s == 6.0
    faster = tuple(
        replace(link, bytes_per_s=1e4) for link in request.links
    )  # nobody works longer than it sends
    assert graph_evaluator.evaluate(replace(request, links=faster), BESIDE).period_s == pytest.approx(3.3)


def test_stages_cover_all_units_in_order() -> None:
    for stages, refusal in (
        (BESIDE[1:], "expected a stage from unit 0 on, got 3-6"),
        (BESIDE[:2], "expected stages that cover 7 units, got 6"),
    ):
        with pytest.raises(RequestError, match=refusal):
            graph_evaluator.evaluate(two_towers(), stages)


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ({"peers": (peer("a", 650), peer("b"))}, "a has 650 bytes free, its stages need 700"),
        ({"peers": (peer("b"),)}, "a is not there"),
        ({"links": (), "origin": "o"}, "no link from a to o"),
    ],
)
def test_what_cannot_run_is_refused(change: dict[str, object], refusal: str) -> None:
    request = replace(two_towers(), **change)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match=refusal):
        graph_evaluator.evaluate(request, ALONE)


@pytest.mark.parametrize("seed", range(60))
def test_latency_is_what_an_event_queue_plays(seed: int) -> None:
    draw = random.Random(seed)
    request = random_request(seed, draw.randint(2, 14), draw.randint(1, 4))
    for _ in range(4):
        stages = random_stages(request, draw)
        board = Board.of(request)
        played = graph_evaluator.play(board, board.places(stages))
        assert [played.latency_ps] == finished_ps(request, stages)


@pytest.mark.parametrize("seed", range(12))
def test_a_long_stream_runs_at_the_busiest(seed: int) -> None:
    draw = random.Random(seed)
    request = random_request(seed, draw.randint(2, 8), draw.randint(1, 4))
    stages = random_stages(request, draw)
    found = graph_evaluator.evaluate(request, stages)
    done = sorted(finished_ps(request, stages, 120))
    period_s = (done[-1] - done[59]) / 60 / PICO
    assert found.period_s * 0.98 <= period_s <= found.period_s * 1.02
