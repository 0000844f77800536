"""A run of a graph as lines and as a part of a page."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from planner.cost.graph_cost import GraphRequest, GraphStage
from planner.cost.graph_schedule import Schedule, schedule
from planner.reports.graph_charts import model_section
from planner.reports.graph_text import CHART_CHARS, chart, run_lines
from planner.reports.page_kit import page
from tests.planner.graph_works import chain, links, peer, towers

HOSTILE = "<script>alert('x')</script>&\"" * 3


def beside(size: int = 100_000) -> Schedule:
    """Two towers on two peers, joined on the first; the second is slower, and its link is, too."""
    peers = (peer("desktop", flops_per_s=6e10), peer("phone", flops_per_s=5e10))
    request = GraphRequest(towers(size=size), peers, links(["desktop", "phone"], bytes_per_s=8e6))
    stages = (
        GraphStage(0, 3, "desktop"),
        GraphStage(3, 6, "phone", ("desktop",)),
        GraphStage(6, 7, "desktop"),
    )
    return schedule(request, stages)


def test_lines_of_two_towers() -> None:
    assert run_lines(beside()) == (
        "         0 ms                                               73.5 ms",
        "desktop  1======================================........>>>>>>>>>>#",
        "phone    2##############################################...........",
        "# computes on the critical path, = computes beside it, > waits for a transfer on it, . idle",
        "",
        "stage  peer     units     memory     begins   ends               standbys",
        "1      desktop  0-2 (t0)  300 bytes  0.00 ms  50.0 ms            -",
        "2      phone    3-5 (t1)  300 bytes  0.00 ms  60.0 ms  critical  desktop",
        "3      desktop  6 (main)  100 bytes  73.5 ms  73.5 ms  critical  -",
        "phone -> desktop: 98 KiB, from 60.0 ms to 73.5 ms; 13.5 ms of it on the critical path",
        "critical path, 73.5 ms: stage 2 on phone (60.0 ms), then 98 KiB from phone to desktop (13.5 ms), then stage 3 "
        "on desktop (0.00 ms)",
    )


def test_a_chart_fits_80_columns_whatever_peers_are_called() -> None:
    found = beside().named(lambda name: name * 12)
    lines = chart(found)
    assert {len(line) for line in lines[:-1]} == {len(lines[0])}
    assert len(lines[0]) <= 80


def test_a_run_that_takes_no_time_and_one_of_many_stages() -> None:
    still = schedule(
        GraphRequest(replace(chain(1), units=(replace(chain(1).units[0], flops=0),)), (peer("a"),), ()),
        (GraphStage(0, 1, "a"),),
    )
    assert chart(still)[1] == f"a  #{'.' * (CHART_CHARS - 1)}"
    request = GraphRequest(chain(40), (peer("a"), peer("b")), links("ab"))
    many = schedule(request, tuple(GraphStage(at, at + 1, "ab"[at % 2]) for at in range(40)))
    assert "more, then" in run_lines(many)[-1]
    assert len(run_lines(many)[-1]) < 500


def test_a_part_of_a_page_has_every_stage_and_marks_the_critical_path() -> None:
    html = page("x", model_section("towers", beside(), ("Split.",), "It runs so now."))
    works = re.findall(r'<i class="work (\w)" title="stage (\d)', html)
    assert works == [("a", "1"), ("b", "2"), ("b", "3")]
    assert html.count("stroke:var(--b)") == 1
    assert "It runs so now." in html
    assert "The critical path, 73.5 ms: stage 2 on phone" in html
    for start, wide in re.findall(r"(?:left|bottom):([\d.-]+)%(?:;width:([\d.-]+)%)?", html):
        assert 0 <= float(start) <= float(start) + float(wide or 0) <= 100.5


def test_names_of_strangers_stay_text() -> None:
    html = model_section(HOSTILE, beside().named(lambda _: HOSTILE), (HOSTILE,), "It runs so now.")
    assert "<script" not in html


@pytest.mark.parametrize("why", [("needs 5 MiB more on a",), ("one", "two")])
def test_what_runs_nowhere_says_why(why: tuple[str, ...]) -> None:
    html = model_section("towers", None, why, "It runs nowhere.")
    assert all(line in html for line in why)
    assert 'class="plot' not in html
