"""With which times a plan is made: a table of what runs say of a class against what a peer of it measured."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from planner.history.facts import bucket_of, class_of
from planner.history.reading import Cell
from planner.predict.forecast import TOLD_PEERS, Foreseen, explained, foreseen
from planner.predict.unit_times import MIN_RUNS, counted, fit, samples_of
from planner.types import PeerProfile, Plan, PlanRequest, Stage, Unit, UnitKind

UNITS = (
    Unit("embed", "embed", 2 << 20, 1, 0, 64),
    Unit("attn.0", "attn", 1 << 20, 2 << 20, 8, 64),
    Unit("ffn.0", "ffn", 3 << 20, 6 << 20, 0, 64),
    Unit("head", "head", 2 << 20, 4 << 20, 0, 4),
)
TOOK: dict[UnitKind, float] = {"embed": 2e-5, "attn": 4e-4, "ffn": 6e-4, "head": 4e-3}
MACHINE = class_of("shoal/0.1.0 (aiortc)", "cpu", 2)
SPREAD = 0.003  # variance of ln seconds: runs 5 % apart


def runs(count: int, variance: float = SPREAD) -> list[Cell]:
    return [
        Cell(
            MACHINE.name,
            MACHINE.provider,
            unit.kind,
            bucket_of(unit.weight_bytes),
            unit.flops_per_token,
            unit.weight_bytes,
            count,
            math.log(TOOK[unit.kind]),
            variance,
        )
        for unit in UNITS
    ]


def asked(times: float = 1.0, *names: str) -> PlanRequest:
    """Peers that took so many times as long as their class does."""
    took = {kind: seconds * times for kind, seconds in TOOK.items()}
    peers = tuple(PeerProfile(name, 1 << 30, 0, took, took) for name in names or ("den",))
    return PlanRequest(UNITS, peers, (), 128, 1)


def found(cells: list[Cell], request: PlanRequest, *known: str) -> Foreseen:
    classes = dict.fromkeys(known or ("den",), MACHINE)
    return foreseen(request, classes, fit(samples_of(cells)))


@pytest.mark.parametrize(
    ("count", "variance", "times", "source"),
    [
        (MIN_RUNS, SPREAD, 1.04, "predicted"),
        (MIN_RUNS - 1, SPREAD, 1.04, "measured"),
        (MIN_RUNS, 0.25, 1.04, "measured"),  # runs of this class differ by too much
        (MIN_RUNS, SPREAD, 4.0, "measured"),  # this peer is slow now, whatever its class does
        (MIN_RUNS, SPREAD, 0.4, "measured"),
    ],
)
def test_a_prediction_counts_once_enough_runs_say_it_and_the_peer_does_not_differ(
    count: int, variance: float, times: float, source: str
) -> None:
    request = asked(times)
    seen = found(runs(count, variance), request)
    assert {time.source for time in seen.times["den"]} == {source}
    assert seen.steers() == (source == "predicted")
    (peer,) = seen.request.peers
    if source == "measured":
        assert peer == request.peers[0]
    else:
        assert peer.decode_s == pytest.approx(TOOK, rel=0.02)
        assert peer.prefill_s == request.peers[0].prefill_s
        for time in seen.times["den"]:
            assert time.said.low_s < time.seconds < peer.facts.decode_p90_s[time.kind] < time.said.high_s


def test_who_is_of_no_known_class_keeps_its_own_measure_and_nothing_is_said_of_it() -> None:
    request = asked(1.0, "den", "eva")
    seen = found(runs(20), request, "eva")
    assert seen.request.peers[0] == request.peers[0]
    assert list(seen.times) == ["eva"]


def test_a_kind_that_was_never_measured_has_the_guess_of_its_class() -> None:
    request = asked()
    (peer,) = request.peers
    partly = replace(peer, decode_s={kind: s for kind, s in TOOK.items() if kind != "head"})
    seen = foreseen(replace(request, peers=(partly,)), {"den": MACHINE}, counted(samples_of(runs(3))))
    assert [time.source for time in seen.times["den"]] == ["measured"] * 3 + ["prior"]
    assert seen.request.peers[0].decode_s["head"] == seen.times["den"][-1].seconds > 0


def test_a_plan_says_of_its_peers_where_their_times_come_from() -> None:
    plan = Plan((Stage(0, 4, "den"),), "latency", 0.01, 100.0, 0.01, ("Because.",))
    (_, predicted) = explained(plan, found(runs(14), asked())).why
    assert predicted.startswith("Times of den: embed 0.02 ms predicted (")
    assert "in 90 %, 14 runs of its kind)" in predicted
    (_, own) = explained(plan, found(runs(1), asked())).why
    assert (
        own == "Times of den: embed, attn, ffn, head measured by itself (1 run of its kind, 10 are needed)."
    )
    (_, slow) = explained(plan, found(runs(14), asked(4.0))).why
    assert "head measured by itself (14 runs of its kind say 3." in slow
    (_, fresh) = explained(plan, found(runs(14), asked(4.0)), {"den"}).why
    assert fresh == f"{slow[:-1]}; measured by itself once more, since a prediction abstained."
    assert all(len(line) <= 512 for line in (predicted, own, slow, fresh))


@pytest.mark.parametrize(
    ("count", "variance", "times", "doubted"),
    [
        (MIN_RUNS, SPREAD, 1.04, False),  # it is predicted
        (MIN_RUNS - 1, 0.25, 4.0, False),  # too few runs to say anything against it
        (MIN_RUNS, 0.25, 1.04, True),  # runs of this class differ by too much
        (MIN_RUNS, SPREAD, 4.0, True),  # it is not like its class, or was measured in a bad moment
        (MIN_RUNS, SPREAD, 0.4, True),
    ],
)
def test_a_fresh_measurement_is_worth_it_where_enough_runs_say_nothing_of_this_peer(
    count: int, variance: float, times: float, doubted: bool
) -> None:
    seen = found(runs(count, variance), asked(times))
    assert seen.doubted() == ({"den"} if doubted else set())
    assert replace(seen, restless=frozenset({"den"})).doubted() == set()


def test_of_many_peers_only_the_first_are_told() -> None:
    names = [f"p{number:02}" for number in range(TOLD_PEERS + 3)]
    plan = Plan(tuple(Stage(0, 4, name) for name in names), "latency", 0.01, 100.0, 0.01)
    told = explained(plan, found(runs(1), asked(1.0, *names), *names)).why
    assert len(told) == TOLD_PEERS + 1
    assert told[-1] == "Times of 3 more peers are not told."
