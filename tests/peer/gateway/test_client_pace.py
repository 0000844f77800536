"""How often one client may ask, and that another does not feel it."""

from __future__ import annotations

import random

from peer.gateway.client_pace import MOST_CLIENTS, Bounds, ClientPace, TooOften

BOUNDS = Bounds(at_once=3, each_s=0.5, most_waiting=2)


def test_so_many_at_once_then_one_after_the_other_then_none() -> None:
    pace = ClientPace(BOUNDS)
    asked = [pace.take("a", 10.0) for _ in range(6)]
    assert asked == [0.0, 0.0, 0.0, 0.5, 1.0, TooOften(1.5)]
    assert pace.take("b", 10.0) == 0.0
    assert pace.take("a", 10.25) == TooOften(1.25), "a refusal is not asked"
    assert pace.take("a", 10.5) == 1.0
    assert pace.take("a", 20.0) == 0.0


def test_no_more_than_the_pace_is_read_whatever_comes() -> None:
    rng, pace, now_s = random.Random(5), ClientPace(BOUNDS), 0.0
    read: list[float] = []
    for _ in range(2000):
        now_s += rng.choice((0.0, 0.01, 0.3, 2.0))
        waits = pace.take("a", now_s)
        if not isinstance(waits, TooOften):
            assert waits <= BOUNDS.most_waiting * BOUNDS.each_s
            read.append(now_s + waits)
    assert read == sorted(read)
    for at, since in enumerate(read):
        within = sum(1 for each in read[at:] if each < since + 10.0)
        assert within <= BOUNDS.at_once + 10.0 / BOUNDS.each_s


def test_it_remembers_so_many_clients() -> None:
    pace = ClientPace(BOUNDS)
    for number in range(2 * MOST_CLIENTS):
        pace.take(number, 0.0)
        pace.take("always", float(number))
    assert len(pace._earned_s) == MOST_CLIENTS
    assert [pace.take("always", float(number)) for _ in range(3)][-1] != 0.0
