"""Whose prompts and tokens a worker takes next."""

from __future__ import annotations

from collections import Counter

from peer.runtime.fair_queue import FairQueue


def test_an_asker_with_many_sessions_gets_no_more_than_one_with_one() -> None:
    queue, got = FairQueue(), Counter[str]()
    waiting = [(bytes([n]), "many") for n in range(9)] + [(b"x", "one"), (b"y", "other")]
    for _ in range(300):
        session = queue.ordered(waiting)[0]
        asker = dict(waiting)[session]
        queue.ran(asker, 64)
        got[asker] += 1
    assert set(got.values()) == {100}


def test_tokens_are_shared_not_turns() -> None:
    queue, tokens = FairQueue(), Counter[str]()
    for _ in range(400):
        asker = {b"a": "long", b"b": "short"}[queue.ordered([(b"a", "long"), (b"b", "short")])[0]]
        count = 64 if asker == "long" else 4
        queue.ran(asker, count)
        tokens[asker] += count
    assert abs(tokens["long"] - tokens["short"]) <= 64


def test_who_was_away_saves_up_nothing() -> None:
    queue = FairQueue()
    for _ in range(50):
        for session, asker in ((b"a", "here"), (b"b", "too")):
            queue.ordered([(b"a", "here"), (b"b", "too")])
            queue.ran(asker, 10)
            assert session
    waiting = [(b"n", "new"), (b"a", "here"), (b"b", "too")]
    turns = []
    for _ in range(9):
        session = queue.ordered(waiting)[0]
        queue.ran(dict(waiting)[session], 10)
        turns.append(session)
    assert turns.count(b"n") <= 4


def test_those_who_got_the_same_go_in_the_order_of_arrival() -> None:
    assert FairQueue().ordered([(b"b", "q"), (b"a", "p")]) == [b"b", b"a"]
