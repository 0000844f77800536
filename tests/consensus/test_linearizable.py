"""The checker itself: it takes what one register can explain and nothing else, as trying every order does."""

from __future__ import annotations

import random
from collections.abc import Hashable
from itertools import chain, combinations, permutations

import pytest

from tests.consensus.linearizable import (
    UNSEEN,
    Linearizable,
    Operation,
    Read,
    Swap,
    Undecided,
    Violation,
    Write,
    check,
)


def history(*rows: tuple[Read | Write | Swap, int, int | None]) -> list[Operation]:
    return [Operation("k", action, called, ended) for action, called, ended in rows]


GOOD = {
    "nothing": history(),
    "a read before any write": history((Read(None), 0, 1)),
    "one after the other": history((Write(1), 0, 1), (Read(1), 2, 3), (Write(2), 4, 5), (Read(2), 6, 7)),
    "a read beside a write sees it": history((Write(1), 0, 9), (Read(1), 1, 2)),
    "a read beside a write does not see it": history((Write(1), 0, 9), (Read(None), 1, 2)),
    "two writes at once, in either order": history(
        (Write(1), 0, 5), (Write(2), 0, 5), (Read(2), 6, 7), (Read(2), 8, 9)
    ),
    "no answer, and it happened": history((Write(1), 0, None), (Read(1), 5, 6)),
    "no answer, and it never happened": history((Write(1), 0, None), (Read(None), 5, 6)),
    "no answer, and it happened later": history((Write(1), 0, None), (Read(None), 5, 6), (Read(1), 7, 8)),
    "no answer to a read": history((Read(7), 0, None), (Write(1), 0, 1)),
    "the first of two who adopt": history(
        (Write("a"), 0, 1), (Swap("a", "b", True), 2, 5), (Swap("a", "c", False), 2, 6), (Read("b"), 7, 8)
    ),
    "a swap without an answer": history(
        (Write("a"), 0, 1), (Swap("a", "b", None), 2, None), (Read("a"), 3, 4), (Read("b"), 5, 6)
    ),
    "a swap fails for one without an answer": history(
        (Write("a"), 0, 1), (Write("b"), 2, None), (Swap("a", "c", False), 3, 4), (Read("b"), 5, 6)
    ),
    "a write and a swap without answers, one after the other": history(
        (Write(1), 0, None), (Swap(1, 2, None), 0, None), (Read(2), 5, 6)
    ),
    "two keys apart": [
        Operation("a", Write(1), 0, 9),
        Operation("b", Write(1), 1, 2),
        Operation("b", Read(1), 3, 4),
        Operation("a", Read(None), 3, 4),
    ],
}
BAD = {
    "a stale read": history((Write(1), 0, 1), (Write(2), 2, 3), (Read(1), 4, 5)),
    "a value that nobody wrote": history((Write(1), 0, 1), (Read(7), 0, 5)),
    "a lost write": history((Write(1), 0, 1), (Read(None), 2, 3)),
    "back and forth": history((Write(1), 0, 9), (Read(1), 1, 2), (Read(None), 3, 4)),
    "two who saw two orders": history(
        (Write(1), 0, 5), (Write(2), 0, 5), (Read(1), 6, 7), (Read(2), 8, 9), (Read(1), 10, 11)
    ),
    "seen before it was asked for": history((Read(1), 0, 1), (Write(1), 2, 3)),
    "seen before it was asked for, no answer": history((Read(1), 0, 1), (Write(1), 2, None)),
    "no answer, and it happened twice": history(
        (Write(1), 0, None), (Read(1), 1, 2), (Write(2), 3, 4), (Read(2), 5, 6), (Read(1), 7, 8)
    ),
    "two who adopt": history((Write("a"), 0, 1), (Swap("a", "b", True), 2, 5), (Swap("a", "c", True), 2, 6)),
    "a swap that failed for nothing": history((Write("a"), 0, 1), (Swap("a", "b", False), 2, 3)),
    "a swap that did not fail": history((Write("a"), 0, 1), (Swap("b", "c", True), 2, 3)),
    "the second of two keys": [
        Operation("a", Write(1), 0, 1),
        Operation("a", Read(1), 2, 3),
        Operation("b", Write(1), 0, 1),
        Operation("b", Read(None), 2, 3),
    ],
}


@pytest.mark.parametrize("name", GOOD)
def test_what_one_register_explains_is_taken(name: str) -> None:
    assert isinstance(check(GOOD[name]), Linearizable)
    assert by_trying_all(GOOD[name])


@pytest.mark.parametrize("name", BAD)
def test_what_none_explains_is_found(name: str) -> None:
    found = check(BAD[name])
    assert isinstance(found, Violation)
    assert found.stuck
    assert not by_trying_all(BAD[name])


def test_a_violation_says_how_far_it_went() -> None:
    rows = BAD["a stale read"]
    assert check(rows) == Violation("k", tuple(rows[:2]), UNSEEN, (rows[2],))


def test_the_search_can_be_bounded() -> None:
    at_once = [Operation("k", Write(number), 0, 9) for number in range(12)]
    bad = [*at_once, Operation("k", Read("nobody's"), 10, 11)]
    assert check(bad, most_states=1000) == Undecided("k", 1000)


# --- against trying every order ---------------------------------------------------------------------------


def by_trying_all(operations: list[Operation]) -> bool:
    return all(
        _some_order([each for each in operations if each.key == key]) for key in {o.key for o in operations}
    )


def _some_order(operations: list[Operation]) -> bool:
    answered = [each for each in operations if each.ended is not None]
    unanswered = [each for each in operations if each.ended is None and not isinstance(each.action, Read)]
    some = chain.from_iterable(combinations(unanswered, count) for count in range(len(unanswered) + 1))
    return any(_explains(order) for happened in some for order in permutations([*answered, *happened]))


def _explains(order: tuple[Operation, ...]) -> bool:
    value: Hashable = None
    for place, operation in enumerate(order):
        if any(later.ended is not None and later.ended < operation.called for later in order[place + 1 :]):
            return False
        match operation.action:
            case Read(seen) if seen != value:
                return False
            case Write(written):
                value = written
            case Swap(expected, written, swapped):
                if swapped is not None and swapped != (value == expected):
                    return False
                value = written if value == expected else value
    return True


def test_small_histories_are_judged_as_trying_every_order_does() -> None:
    rng = random.Random(5)
    verdicts = []
    for _ in range(1500):
        operations = []
        for _ in range(rng.randint(1, 6)):
            called = rng.randrange(8)
            ended = None if rng.random() < 0.25 else called + rng.randint(1, 6)
            value = rng.choice((None, 1, 2))
            action = rng.choice(
                (
                    Read(value),
                    Write(rng.choice((1, 2))),
                    Swap(value, rng.choice((1, 2)), rng.choice((True, False))),
                )
            )
            if ended is None and isinstance(action, Swap):
                action = Swap(action.expected, action.value, None)
            operations.append(Operation("k", action, called, ended))
        verdicts.append(by_trying_all(operations))
        assert isinstance(check(operations), Linearizable) == verdicts[-1], operations
    assert 300 < sum(verdicts) < 1200


# --- long histories ---------------------------------------------------------------------------------------


def long_history(rng: random.Random, clients: int, calls: int, keys: int, lost: float) -> list[Operation]:
    """Clients that call a real register at single moments; of some calls no answer comes, and some of those happen."""
    values: dict[str, Hashable] = {}
    busy: dict[int, tuple[str, Read | Write | Swap, int]] = {}  # called, and not yet happened
    happened: dict[int, tuple[str, Read | Write | Swap, int]] = {}
    left = dict.fromkeys(range(clients), calls)
    made, now, fresh = [], 0, 0
    while left:
        now += 1
        client = rng.choice(sorted(left))
        if client in happened:
            key, action, called = happened.pop(client)
            made.append(Operation(key, action, called, now, f"c{client}"))
        elif client in busy:
            key, action, called = busy.pop(client)
            no_answer = rng.random() < lost
            if not no_answer or rng.random() < 0.5:
                value = values.get(key)
                match action:
                    case Read():
                        action = Read(value)
                    case Write(written):
                        values[key] = written
                    case Swap(expected, written, _):
                        action = Swap(expected, written, None if no_answer else value == expected)
                        values[key] = written if value == expected else value
            if no_answer:
                made.append(Operation(key, action, called, None, f"c{client}"))
            else:
                happened[client] = (key, action, called)
        else:
            if left[client] == 0:
                del left[client]
                continue
            left[client] -= 1
            fresh += 1
            key = f"k{rng.randrange(keys)}"
            kinds = (Read(None), Read(None), Write(fresh), Swap(values.get(key), fresh, None))
            busy[client] = (key, rng.choice(kinds), now)
    return made


@pytest.mark.parametrize(("seed", "keys", "lost"), [(1, 1, 0.0), (2, 1, 0.05), (3, 4, 0.1), (4, 12, 0.2)])
def test_twelve_clients_with_many_calls_each(seed: int, keys: int, lost: float) -> None:
    rng = random.Random(seed)
    made = long_history(rng, 12, 100, keys, lost)
    assert isinstance(check(made), Linearizable)
    answered = [place for place, each in enumerate(made) if isinstance(each.action, Read) and each.ended]
    found = 0
    for place in rng.sample(answered[: len(answered) // 2], 4):
        read = made[place]
        writes = [
            each for each in made if isinstance(each.action, Write) and each.key == read.key and each.ended
        ]
        ends = sorted(each.ended or 0 for each in writes if (each.ended or 0) < read.called)
        stale = [each for each in writes if len(ends) >= 8 and (each.ended or 0) < ends[-8] - 100]
        if stale:  # others have overwritten it long ago
            bad = Operation(read.key, Read(stale[-1].action.value), read.called, read.ended)
            assert isinstance(check([*made[:place], bad, *made[place + 1 :]]), Violation)
            found += 1
    assert found or keys == 12
