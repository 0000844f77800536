"""Acknowledged work through leaders that are lost: all of it is counted once, whatever is said how often."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from peer.audit.receipts import (
    Receipts,
    Till,
    computed_runs,
    priced,
    unit_costs,
)
from peer.errors import BadCommand
from peer.state.fairness import Fairness, may_ask, settle
from peer.state.generated.commands import FairnessChosen
from peer.state.work_ledger import Balance, Ledger, tally
from peer.wire.generated.frames import Open
from peer.wire.generated.requests import WORK, Claim, WorkRequest

RUNS = ((0, 2), (2, 5), (5, 6))
COSTS = unit_costs(("embed", "attn", "ffn", "attn", "ffn", "head"), ({"attn": 500, "ffn": 900, "head": 700},))
PEERS = ("pa", "pb", "pc", "pd")


def turn(session: bytes, origin: str, number: int, answer: int, start: int, route: tuple[str, ...]) -> Open:
    return Open(
        *(session, number, 1, route, 0, origin, start, start + 4, 50, (0,) * 8, (), 0, 0),
        *(answer, 0, 0, (), (), (), ()),
    )


class Asker:
    """One answer after the other, each over routes that change."""

    def __init__(self, name: str, rng: random.Random) -> None:
        self.name, self.rng = name, rng
        self.receipts = Receipts()
        self.session, self.turn, self.answer, self.position = rng.randbytes(16), 0, 0, 0
        self.computed: set[tuple[bytes, int, int, str, tuple[int, int]]] = set()
        self.route: tuple[str, ...] = ()
        self.said = 0

    def step(self, now: int) -> None:
        match (
            self.rng.choice(("answer", "turn", "token", "token", "token", "token")) if self.turn else "answer"
        ):
            case "answer":
                self.receipts.ended(self.session)
                self.turn += 1
                self.answer, self.position = self.turn, self.rng.randrange(40)
                self._open(now)
                self.said = self.position
            case "turn":
                self.turn += 1
                self._open(now)
            case _:
                stop = self.position + self.rng.randint(1, 4)
                for place, run in enumerate(RUNS):
                    for position in range(self.said, stop):
                        self.computed.add((self.session, self.answer, position, self.route[place], run))
                self.position = self.said = stop
                self.receipts.token(self.session, stop)

    def _open(self, now: int) -> None:
        self.route = tuple(self.rng.choices(PEERS, k=3))
        frame = turn(self.session, self.name, self.turn, self.answer, self.position, self.route)
        self.receipts.opened(now, frame, RUNS)


@pytest.mark.parametrize("seed", range(2))
def test_all_acknowledged_work_is_counted_once_through_fifty_leaders(seed: int) -> None:
    rng = random.Random(seed)
    askers = [Asker(name, rng) for name in ("qa", "qb", "qc")]
    ledger, till, leaders = Ledger(), Till(), 0
    for now in range(1, 1600):
        asker = rng.choice(askers)
        asker.step(now)
        if rng.random() < 0.15:
            for other in askers:
                claims = WORK.read(WORK.body(WorkRequest(other.receipts.due(ledger, Fairness())))).entries
                if rng.random() < 0.7:  # what is said to nobody is lost
                    till.put([priced(claim, other.name, COSTS) for claim in claims])
        if rng.random() < 0.05:
            ledger, _ = tally(ledger, till.batch())
        if now % 30 == 0:
            till, leaders = Till(), leaders + 1  # what it had not put into the log is lost
    for asker in askers:
        asker.receipts.ended(asker.session)
    while any(len(asker.receipts) for asker in askers):
        for asker in askers:
            claims = asker.receipts.due(ledger, Fairness())
            till.put([priced(claim, asker.name, COSTS) for claim in claims])
        while batch := till.batch():
            ledger, _ = tally(ledger, batch)
    assert leaders > 50
    counted = sum(
        (area.positions[1] - area.positions[0]) * (area.units == run)
        for session in ledger.sessions.values()
        for area in session.areas
        for run in RUNS
    )
    assert counted == sum(len(asker.computed) for asker in askers)
    balances = ledger.balances.values()
    assert sum(each.earned for each in balances) == sum(each.spent for each in balances) > 0


def test_who_owes_more_than_is_allowed_may_not_ask_where_shares_are_fair() -> None:
    ledger = Ledger(balances={"pa": Balance(1000, 9000), "pb": Balance(9000, 0)})
    settled = settle(ledger, Fairness(), FairnessChosen("fair", 5000, 0))
    assert not isinstance(settled, str)
    _, fairness = settled
    assert may_ask(Fairness(), ledger, "pa") == ""
    assert "8 credits more" in may_ask(fairness, ledger, "pa")
    assert "shoal join" in may_ask(fairness, ledger, "pa")
    assert may_ask(fairness, ledger, "pb") == ""
    assert may_ask(fairness, ledger, "new") == ""


def test_an_answer_that_may_move_pays_the_new_route_from_its_first_token_there_on() -> None:
    first, second = b"s" * 16, b"s" * 15 + b"t"
    receipts = Receipts()
    receipts.opened(1, turn(first, "me", 1, 1, 0, ("pa", "pa", "pa")), RUNS)
    receipts.token(first, 4)
    receipts.opened(2, turn(second, "me", 2, 1, 0, ("pb", "pb", "pb")), RUNS)  # it warms
    receipts.token(first, 5)
    receipts.opened(
        3, turn(first, "me", 3, 1, 0, ("pc", "pc", "pc")), RUNS
    )  # the first one goes on elsewhere
    receipts.token(first, 6)
    receipts.token(second, 7)  # and the answer has moved
    receipts.ended(second)
    paid = [(claim.peer, claim.positions) for claim in receipts.due(Ledger(), Fairness())[::3]]
    assert paid == [("pa", (0, 5)), ("pc", (5, 6)), ("pb", (6, 7))]


def test_units_that_the_model_lacks_have_no_price() -> None:
    with pytest.raises(BadCommand, match="6"):
        priced(Claim("0" * 32, 1, "pa", (0, 4), (5, 7), "tokens"), "me", COSTS)


def test_a_position_through_all_units_is_a_credit() -> None:
    whole = [priced(Claim("0" * 32, 1, "pa", (0, 1), run, "tokens"), "me", COSTS).milli for run in RUNS]
    assert 998 <= sum(whole) <= 1000


def test_nobody_is_paid_for_ends_that_stay_with_the_asker() -> None:
    receipts, session = Receipts(), b"s" * 16
    frame = replace(turn(session, "me", 1, 1, 0, ("pa", "pb", "pc")), sampling=())
    receipts.opened(1, frame, RUNS)  # of which the last stage has the head alone
    receipts.token(session, 4)
    receipts.ended(session)
    said = receipts.due(Ledger(), Fairness())
    assert [(claim.peer, claim.units) for claim in said] == [("pa", (1, 2)), ("pb", (2, 5))]
    assert computed_runs(frame, ((0, 6),)) == ((1, 5),)
    assert computed_runs(frame, ((0, 1), (1, 6))) == ((1, 1), (1, 5))
