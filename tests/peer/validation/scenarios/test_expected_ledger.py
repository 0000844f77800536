"""The books of the scenario `ledger`: what fits is held, and each way in which a ledger can be wrong shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from peer.audit.receipts import ledger_session
from peer.state.generated.commands import Work
from peer.state.work_ledger import Balance, Ledger, tally
from peer.validation.runs.ledger_runner import Kills
from peer.validation.scenarios.expected_ledger import Book, Logged, Seen, compared
from peer.wire.generated.frames import Open

UNITS = 6
RUNS = ((0, 2), (2, 6))
SESSION = b"s" * 16
KEY = ledger_session(SESSION, "me", 1)


def turn(number: int, route: tuple[str, ...], start: int = 0, prompt: int = 4, most: int = 50) -> Open:
    return Open(
        SESSION, number, 1, route, 0, "me", start, prompt, most, (), (), 0, 0, 1, 0, 0, (), (), (), b""
    )


def seen() -> Seen:
    """A prompt of four and three tokens; after two of them the second stage is another peer's."""
    made = Seen("me", UNITS)
    made.opened(turn(1, ("a", "b")), RUNS)
    for position in (4, 5):
        made.token(SESSION, position)
    made.opened(turn(2, ("a", "c"), start=4, prompt=6), RUNS)
    for position in (5, 6):  # the first one came before
        made.token(SESSION, position)
    return made


def work(peer: str, positions: tuple[int, int], units: tuple[int, int]) -> Work:
    return Work(KEY, 1, peer, "me", positions, units, 100 * (positions[1] - positions[0]))


ENTRIES = (
    work("a", (0, 5), (0, 2)),
    work("b", (0, 5), (2, 6)),
    work("a", (5, 6), (0, 2)),
    work("c", (5, 6), (2, 6)),
)


def told(entries: tuple[Work, ...]) -> tuple[Logged, Ledger]:
    logged = Logged(Book(UNITS))
    for entry in entries:
        logged.entry(entry)
    return logged, tally(Ledger(), entries)[0]


def test_what_was_seen_is_what_was_earned() -> None:
    logged, ledger = told((*ENTRIES, ENTRIES[1]))  # one was said again
    found = compared(seen().book, logged, ledger, UNITS)
    assert found["held"], found
    assert (found["positions"], found["earned_milli"], found["entries_refused"]) == (6, 1200, 1)


@pytest.mark.parametrize(
    ("entries", "spoiled", "what"),
    [
        pytest.param(ENTRIES[:3], lambda ledger: ledger, "same_cells", id="work is missing"),
        pytest.param(
            (*ENTRIES, work("b", (6, 7), (2, 6))), lambda ledger: ledger, "same_cells", id="nobody did it"
        ),
        pytest.param(
            (*ENTRIES[:3], replace(ENTRIES[3], peer="b")),
            lambda ledger: ledger,
            "same_peers",
            id="another did it",
        ),
        pytest.param(
            ENTRIES,
            lambda ledger: replace(ledger, balances={**ledger.balances, "a": Balance(601, 0)}),
            "same_balances",
            id="a balance is another one",
        ),
    ],
)
def test_what_is_wrong_shows(
    entries: tuple[Work, ...], spoiled: Callable[[Ledger], Ledger], what: str
) -> None:
    logged, ledger = told(entries)
    found = compared(seen().book, logged, spoiled(ledger), UNITS)
    assert (found["held"], found[what]) == (False, False)


def test_work_that_is_written_twice_shows() -> None:
    book = Book(UNITS)
    assert book.write("s", (0, 2), (0, 5), "a")
    assert not book.write("s", (1, 3), (4, 900), "b")
    assert (book.twice, dict(book.cells())) == (1, {"a": 10})


def test_an_answer_that_moves_pays_for_what_was_computed_before_once() -> None:
    made = seen()
    made.opened(turn(3, ("d", "e"), prompt=56, most=0), RUNS)  # warms, for what may come
    before = made.book.cells()
    made.token(SESSION, 7)
    assert made.book.twice == 0
    assert made.book.cells() - before == {"d": 2, "e": 4}


def test_kills_hold_when_all_were_made_and_the_books_fit() -> None:
    kills = Kills(3, members=1, leaders=2, books={"held": True})
    assert kills.figures()["held"]
    assert not Kills(3, members=2, books={"held": True}).figures()["held"]
    assert not replace(kills, trouble="x").figures()["held"]
    assert not replace(kills, books={"held": False}).figures()["held"]
