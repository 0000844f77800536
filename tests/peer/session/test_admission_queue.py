"""Whose turn it is where all sessions are in use, what a person reads meanwhile, and what a stage counts as in use."""

from __future__ import annotations

import asyncio

import pytest

from peer.cli.queue_lines import AGAIN_S, WaitingLines
from peer.errors import MeshError
from peer.session.admission_queue import (
    HOLD_MS,
    LEASE_MS,
    MAX_OF_ONE,
    MAX_WAITING,
    Busy,
    Line,
    Pace,
    Room,
    head_start_ms,
    waiting_text,
)
from peer.stage import seat_waiting
from peer.stage.seat_waiting import Waits, Wanted, called
from peer.wire.generated.requests import WaitAnswer, WaitRequest
from peer.wire.request_kind import RequestKind

RUN = (0, 2)
ASKS = Busy(10, 0, 100)


def order(line: Line, *pairs: tuple[str, str]) -> list[int]:
    return [waiter.place if (waiter := line.find(*pair)) is not None else -1 for pair in pairs]


def full(*askers: str) -> dict[tuple[int, int], Room]:
    return {RUN: Room(len(askers), [(asker, ASKS) for asker in askers])}


def room(seats: int, *askers: str) -> dict[tuple[int, int], Room]:
    return {RUN: Room(seats, [(asker, ASKS) for asker in askers])}


def entered(*pairs: tuple[str, str], every_ms: int = 1000) -> Line:
    line = Line()
    for number, pair in enumerate(pairs):
        assert line.enter(number * every_ms, *pair, RUN, ASKS) == ""
    return line


@pytest.mark.parametrize(
    ("asking", "owed", "places"),
    [
        pytest.param((), {}, [1, 2, 3], id="who came first"),
        pytest.param((), {"a": 5_000_000, "c": -5_000_000}, [3, 2, 1], id="who gives more waits less"),
        pytest.param(("a", "a", "b"), {}, [3, 2, 1], id="who has fewest answers under way"),
        pytest.param(("a",), {"a": -(1 << 50)}, [3, 1, 2], id="a balance buys nobody a second one first"),
    ],
)
def test_order(asking: tuple[str, ...], owed: dict[str, int], places: list[int]) -> None:
    line = entered(("a", "1"), ("b", "2"), ("c", "3"))
    line.look(3000, full(*asking, "x"), lambda asker: owed.get(asker, 0))
    assert order(line, ("a", "1"), ("b", "2"), ("c", "3")) == places


def test_a_second_question_stands_behind_the_first_of_everybody() -> None:
    line = entered(("a", "1"), ("a", "2"), ("b", "3"))
    line.look(0, full("x"), lambda _: 0)
    assert order(line, ("a", "1"), ("a", "2"), ("b", "3")) == [1, 3, 2]


def test_nobody_waits_for_ever() -> None:
    """Somebody who gives much asks every second; who owes much is called all the same."""
    line, now, calls = Line(), 0, []
    line.enter(0, "poor", "p", RUN, ASKS)
    while line.find("poor", "p") is not None and now < 300_000:
        now += 1000
        line.enter(now, "poor", "p", RUN, ASKS)
        line.enter(now, f"rich{now}", "r", RUN, ASKS)
        line.look(now, room(1), lambda asker: 1 << 40 if asker == "poor" else -(1 << 40))
        for asker in ("poor", f"rich{now}"):
            waiter = line.find(asker, "p" if asker == "poor" else "r")
            if waiter is not None and waiter.place == 0:
                calls.append(asker)
                line.leave(asker, waiter.session)
    assert calls[-1] == "poor"
    assert now <= 2 * 30_000 + 1000


def test_a_seat_is_kept_for_who_is_called_and_no_longer_than_that() -> None:
    line = entered(("a", "1"), ("b", "2"))
    line.look(2000, room(1), lambda _: 0)
    assert order(line, ("a", "1"), ("b", "2")) == [0, 1]
    assert (line.kept(RUN, ("b", "2")), line.kept(RUN, ("a", "1"))) == (1, 0)
    line.look(2000 + HOLD_MS, room(1), lambda _: 0)
    assert order(line, ("a", "1"), ("b", "2")) == [-1, 0]


def test_who_was_called_in_vain_stands_where_it_stood() -> None:
    line = entered(("a", "1"), ("b", "2"))
    line.look(2000, room(1), lambda _: 0)
    line.put_back("a", "1")  # an answer that had to go on has the seat
    line.look(2100, full("x"), lambda _: 0)
    assert order(line, ("a", "1"), ("b", "2")) == [1, 2]


def test_who_is_silent_or_gone_is_forgotten() -> None:
    line = entered(("a", "1"), ("b", "2"), ("b", "3"), ("c", "4"), every_ms=0)
    line.enter(LEASE_MS - 1, "c", "4", RUN, ASKS)
    line.gone("b")
    line.look(LEASE_MS, full("x"), lambda _: 0)
    assert order(line, ("a", "1"), ("b", "2"), ("b", "3"), ("c", "4")) == [-1, -1, -1, 1]
    line.look(LEASE_MS, {}, lambda _: 0)  # these units are served here no more
    assert len(line) == 0


def test_bounds() -> None:
    line = Line()
    for number in range(MAX_OF_ONE):
        assert line.enter(0, "greedy", str(number), RUN, ASKS) == ""
    assert "questions wait already" in line.enter(0, "greedy", "more", RUN, ASKS)
    assert line.enter(0, "greedy", "3", RUN, ASKS) == "", "it stands there"
    for number in range(MAX_WAITING - MAX_OF_ONE):
        assert line.enter(0, f"asker{number}", "s", RUN, ASKS) == ""
    assert "questions wait already" in line.enter(0, "late", "s", RUN, ASKS)


@pytest.mark.parametrize(
    ("owed", "ms"),
    [(0, 0), (-2_000_000, 15_000), (2_000_000, -15_000), (-1, 0), (-(1 << 60), 29_999), (1 << 60, -29_999)],
)
def test_what_a_balance_is_worth(owed: int, ms: int) -> None:
    assert head_start_ms(owed) == ms


def test_estimates_come_from_what_was_measured() -> None:
    line = entered(("a", "1"), ("b", "2"), ("c", "3"))
    busy = {RUN: Room(2, [("x", Busy(0, 10, 400)), ("y", Busy(0, 40, 50))])}
    line.look(0, busy, lambda _: 0)
    assert all(waiter is not None and waiter.wait_ms == -1 for waiter in [line.find("a", "1")])
    line.pace.ran(100_000, 1, given=False)
    line.pace.ran(100_000, 10, given=True)
    for _ in range(3):
        line.pace.ended(60)
    line.look(0, busy, lambda _: 0)
    waits = [found.wait_ms for pair in (("a", "1"), ("b", "2"), ("c", "3")) if (found := line.find(*pair))]
    # y may still have 10 tokens of 0.1 s, x has 50 to come as others had; a takes 10 positions of 0.01 s and 60 tokens
    assert waits == [1000, 5000, 1000 + 100 + 6000]


@pytest.mark.parametrize(
    ("lengths", "made", "most", "left"),
    [
        ((), 3, 10, 7),
        ((5, 20), 3, 100, 10),
        ((5, 20), 6, 100, 14),
        ((5, 20), 30, 100, 70),
        ((20,), 0, 8, 8),
        ((20,), 9, 8, 0),
    ],
)
def test_tokens_left(lengths: tuple[int, ...], made: int, most: int, left: int) -> None:
    pace = Pace()
    for length in lengths:
        pace.ended(length)
    assert pace.tokens_left(made, most) == left


@pytest.mark.parametrize(
    ("place", "wait_ms", "text"),
    [
        (1, 400, "you are next in line, about 1 s"),
        (3, 18_200, "you are third in line, about 20 s"),
        (12, 130_000, "you are number 12 in line, about 3 minutes"),
        (2, -1, "you are second in line for a free session"),
        (0, 0, "your turn comes now"),
    ],
)
def test_words(place: int, wait_ms: int, text: str) -> None:
    assert waiting_text(place, wait_ms) == text


def test_a_terminal_says_places_at_once_and_estimates_now_and_then() -> None:
    said, now = list[str](), [0.0]
    lines = WaitingLines(said.append, lambda: now[0])
    for at, waits in (
        (0.0, Waits(3, 20.0)),
        (1.0, Waits(3, 15.0)),
        (2.0, Waits(2, 15.0)),
        (2.0 + AGAIN_S, Waits(2, 40.0)),
        (20.0, None),
        (21.0, Waits(1, None)),
    ):
        now[0] = at
        lines(waits)
    assert said == [
        "all sessions of the mesh are in use: you are third in line, about 20 s",
        "you are second in line, about 15 s",
        "you are second in line, about 40 s",
        "all sessions of the mesh are in use: you are next in line for a free session",
    ]


async def test_a_line_that_is_over_takes_no_place_in_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seat_waiting, "AGAIN_S", 0.0)
    asked: list[str] = []

    async def ask(peer: str, kind: RequestKind[WaitRequest, WaitAnswer], said: WaitRequest) -> WaitAnswer:
        asked.append(peer)
        if peer == "lost":
            raise MeshError("this line is over: ask for another seat")
        if asked.count("stays") < 3 or "lost" not in asked:
            await asyncio.sleep(0)
            return WaitAnswer(3 - asked.count("stays"), 5)
        for _ in range(20):
            await asyncio.sleep(0)  # the other line is given up meanwhile
        return WaitAnswer(0, 0)

    full = {"lost": (1, 0), "stays": (1, 1)}
    assert await called(ask, full, Wanted(bytes(16), 4, 4), lambda _: None, 30.0) == "stays"
    assert await called(ask, {"lost": (1, 0)}, Wanted(bytes(16), 4, 4), lambda _: None, 30.0) == ""
