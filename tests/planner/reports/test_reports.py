"""Pages of plans and histories: whole for every kind of plan, with nothing from elsewhere, true to the planner."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from planner.cost import evaluator, schedules
from planner.history.writing import HistoryWriter
from planner.reports import history_benchmark
from planner.reports.history_report import write_report
from planner.reports.page_kit import span, ticks
from planner.reports.plan_page import EFFORT, losses, plan_page, ranked, without
from planner.solvers.placement import plan
from planner.solvers.portfolio import solve
from planner.types import Infeasible, Link, PeerProfile, Plan, PlanRequest, Unit, UnitKind

MIB = 1 << 20


def request(peers: int, blocks: int = 6, sessions: int = 2, **changes: object) -> PlanRequest:
    """Peers of falling speed, each with room for about two blocks more than its share."""
    units = [Unit("embed", "embed", 8 * MIB, 1, 0, 512)]
    for block in range(blocks):
        units += [
            Unit(f"attn.{block}", "attn", 2 * MIB, 100, 64, 512),
            Unit(f"ffn.{block}", "ffn", 4 * MIB, 200, 0, 512),
        ]
    units.append(Unit("head", "head", 8 * MIB, 400, 0, 4))
    total = sum(unit.weight_bytes for unit in units)
    kinds: tuple[UnitKind, ...] = ("embed", "attn", "ffn", "head")
    made = tuple(
        PeerProfile(
            peer=f"peer {chr(97 + at)}",
            memory_bytes=total // peers + 20 * MIB,
            overhead_bytes=MIB,
            decode_s=dict.fromkeys(kinds, 1e-3 * (1 + at)),
            prefill_s=dict.fromkeys(kinds, 2e-4 * (1 + at)),
        )
        for at in range(peers)
    )
    names = [peer.peer for peer in made]
    links = tuple(Link(a, b, 4e-3, 1e9) for a in names for b in names if a != b)
    return replace(PlanRequest(tuple(units), made, links, context=256, sessions=sessions), **changes)  # type: ignore[arg-type]


def solved(asked: PlanRequest) -> Plan:
    found = plan(asked)
    assert isinstance(found, Plan)
    return found


CASES = {
    "one peer": request(1),
    "two peers": request(2),
    "standbys": request(3, redundancy=2000),
    "six stages": request(6, blocks=20),
    "many at once": request(3, sessions=8, objective="throughput"),
    "hostile names": replace(
        request(2),
        peers=tuple(
            replace(peer, peer=f"<script>alert('{at}')</script>&\"" * 2)
            for at, peer in enumerate(request(2).peers)
        ),
        links=tuple(
            Link(f"<script>alert('{a}')</script>&\"" * 2, f"<script>alert('{b}')</script>&\"" * 2, 4e-3, 1e9)
            for a, b in ((0, 1), (1, 0))
        ),
    ),
    "no plan": replace(
        request(2), peers=tuple(replace(peer, memory_bytes=9 * MIB) for peer in request(2).peers)
    ),
    "nobody": replace(request(1), peers=()),
}


@cache
def drawn(name: str) -> str:
    return plan_page(CASES[name], plan(CASES[name]))


@pytest.mark.parametrize("name", CASES)
def test_a_page_is_whole_and_needs_nothing_else(name: str) -> None:
    html = drawn(name)
    assert html.startswith("<!doctype html>")
    assert "<script" not in html
    assert not re.search(r"https?:|src=|@import|<link|url\((?!#)", html)
    assert 'name="viewport"' in html
    assert "prefers-color-scheme: dark" in html
    assert "nan" not in html
    placed = re.findall(r"(?:left|bottom):([\d.-]+)%(?:;width:([\d.-]+)%)?", html)
    for start, wide in placed:
        assert 0 <= float(start) <= float(start) + float(wide or 0) <= 100.5
    assert len(re.findall(r'role="img" aria-label="[^"]+"', html)) == html.count('class="plot')


def test_a_page_says_what_the_plan_says() -> None:
    asked = CASES["standbys"]
    found = solved(asked)
    html = plan_page(asked, found, "Our flat")
    assert "<h1>Our flat</h1>" in html
    for stage in found.stages:
        assert stage.peer in html
    for sentence in found.why:
        assert sentence in html.replace("&gt;", ">")
    assert f"{found.decode_s * 1000:.1f} ms" in html
    refused = CASES["no plan"]
    answer = plan(refused)
    assert isinstance(answer, Infeasible)
    assert answer.reason in plan_page(refused, answer)


@pytest.mark.parametrize("name", ["one peer", "two peers", "six stages", "many at once"])
def test_a_schedule_gives_every_peer_one_thing_at_a_time_and_reaches_the_rate(name: str) -> None:
    asked = CASES[name]
    stages = solved(asked).stages
    numbers = evaluator.evaluate(asked, stages)
    bars = schedules.answers(asked, stages)
    for at in range(len(stages)):
        mine = sorted((bar.start_s, bar.stop_s) for bar in bars if bar.stage == at)
        assert all(one[1] <= other[0] + 1e-12 for one, other in pairwise(mine))
    for group in {bar.group for bar in bars}:
        its = sorted((bar for bar in bars if bar.group == group), key=lambda bar: bar.start_s)
        assert [bar.stage for bar in its] == [*range(len(stages))] * 2
        assert all(one.there_s <= other.start_s + 1e-12 for one, other in pairwise(its))
    if len({bar.group for bar in bars}) == 1:  # nobody waits: two rounds take twice the time of one
        assert max(bar.there_s for bar in bars) == pytest.approx(2 * numbers.round_ps / evaluator.PICO)


@pytest.mark.parametrize("name", ["one peer", "two peers", "six stages"])
def test_a_prompt_is_drawn_as_long_as_the_evaluator_says(name: str) -> None:
    asked = CASES[name]
    stages = solved(asked).stages
    bars = schedules.chunks(asked, stages, 512, 64)
    assert max(bar.stop_s for bar in bars) == pytest.approx(
        evaluator.prefill_s(asked, stages, 512, 64), rel=0.01
    )


def test_plans_on_the_front_are_those_that_none_beats() -> None:
    asked = request(4, sessions=6)
    choices = ranked(asked, solved(asked), solve(asked, None, EFFORT))
    assert [choice.chosen for choice in choices].count(True) == 1
    assert [choice.decode_s for choice in choices] == sorted(choice.decode_s for choice in choices)
    for choice in choices:
        beaten = any(
            (other.decode_s, -other.tokens_per_s) != (choice.decode_s, -choice.tokens_per_s)
            and other.decode_s <= choice.decode_s
            and other.tokens_per_s >= choice.tokens_per_s
            for other in choices
        )
        assert choice.on_front is not beaten


def test_what_a_loss_would_change_is_what_the_planner_says() -> None:
    asked = request(3, redundancy=2000)
    found = solved(asked)
    rows = {row.peer: row for row in losses(asked, found)}
    assert set(rows) >= {stage.peer for stage in found.stages}
    for stage in found.stages:
        answer = plan(without(asked, stage.peer))
        row = rows[stage.peer]
        assert row.decode_s == (answer.decode_s if isinstance(answer, Plan) else None)
        assert ("takes over at once" in row.words) == (bool(stage.standbys) and isinstance(answer, Plan))
    alone = request(1)
    (row,) = losses(alone, solved(alone))
    assert row.decode_s is None


@pytest.mark.parametrize(
    ("least", "most", "expected"),
    [
        (0, 0, [0]),
        (0, 7, [0, 2, 4, 6]),
        (0, 0.09, [0, 0.05]),
        (203, 247, [220, 240]),
        (100, 130, [100, 110, 120, 130]),
    ],
)
def test_axes_have_round_values(least: float, most: float, expected: list[float]) -> None:
    assert ticks(most, 4, least) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("values", "least"), [([10, 200], 0), ([5], 0), ([0, 0], 0), ([100, 151], 0), ([200, 250], 192.5)]
)
def test_an_axis_begins_at_nothing_unless_all_is_far_from_it(values: list[float], least: float) -> None:
    begin, end = span(values)
    assert begin == pytest.approx(least)
    assert begin <= min(values) <= max(values) <= end


def test_peers_that_come_back_are_counted_once() -> None:
    asked = request(2)
    stages = tuple(
        evaluator.make_stage(asked, asked.peers[at % 2], *run)
        for at, run in enumerate([(0, 5), (5, 9), (9, 14)])
    )
    numbers = evaluator.evaluate(asked, stages)
    turns = Plan(stages, "latency", numbers.decode_s, numbers.tokens_per_s, numbers.bottleneck_s)
    assert "14 units in 3 stages on 2 of 2 peers" in plan_page(asked, turns)


# --- a history ---------------------------------------------------------------------------------------------


def test_a_report_of_a_history_is_a_page_and_a_picture(tmp_path: Path) -> None:
    writer = HistoryWriter(tmp_path / "history.duckdb", flush_s=3600.0)
    history_benchmark.fill(writer, 12_000)
    with writer.transaction() as connection:
        connection.execute("update sessions set classes = '<script>' || classes where plan = 3")
    writer.close()
    page, picture = write_report(tmp_path / "history.duckdb", tmp_path / "report")
    html = page.read_text()
    assert "<script" not in html
    assert not re.search(r"https?:|src=|@import|<link|url\((?!#)", html)
    for heading in (
        "Speed over time",
        "By browser and provider",
        "Predicted against measured",
        "What stands out",
    ):
        assert heading in html
    assert "Answers far slower" in html
    assert (html.count('class="plot'), html.count('class="rows')) == (2, 1)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_report_of_an_empty_history_says_so(tmp_path: Path) -> None:
    HistoryWriter(tmp_path / "history.duckdb").close()
    page, picture = write_report(tmp_path / "history.duckdb", tmp_path / "report")
    assert "Nothing yet" in page.read_text()
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_limits_of_a_history_can_be_measured() -> None:
    found = history_benchmark.measure(4000, runs=1)
    assert found["rows"] > 3500
    assert found.keys() >= {"planner_query_ms", "report_s", "file_mb"}
