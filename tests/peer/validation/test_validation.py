"""Validation without a mesh: schedules repeat, figures add up, datagrams meet their fate, results are kept and told."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from peer.validation.reports.advice import Seen, advice
from peer.validation.reports.report import gathered, write_report
from peer.validation.reports.results import Start, open_results
from peer.validation.runs.loss_runner import Run
from peer.validation.scenarios.faults import Does, Mesh, Name, Victim, schedule
from peer.validation.scenarios.figures import Ran, Stream, difference, figures, judge, percentile
from peer.validation.scenarios.link_conditions import CLEAR, CUT, Conditions, Direction
from peer.validation.scenarios.workload import questions
from peer.validation.world.answer_streams import first_other, same_caches
from peer.validation.world.injection import InjectedError, Injection, leave_order, obedient, read_injection
from peer.validation.world.relay_client import Relayed, relay
from tests.patience import WITHIN_S
from tests.peer.validation.udp_stand_in import StandIn, talker

MESH = Mesh(stages=3, peers=6, sessions=4, tokens=48)


# --- schedules


@pytest.mark.parametrize("name", Name)
def test_a_schedule_repeats_by_its_seed_and_stays_inside_the_mesh(name: Name) -> None:
    seen = set()
    for number in range(200):
        faults = schedule(name, number, MESH, random.Random(f"7/{number}").random)
        assert faults == schedule(name, number, MESH, random.Random(f"7/{number}").random)
        for fault in faults:
            assert 0 <= fault.session < MESH.sessions
            assert 0 <= fault.after_token < MESH.tokens - 1
            assert -1 <= fault.victim.stage < MESH.stages
        seen.add((faults[0].session, faults[0].after_token, faults[0].victim.stage))
    assert len(seen) > 50, "another number, another fault"


def test_crashes_hit_standbys_too_and_answers_whose_prompt_is_computed() -> None:
    faults = [schedule(Name.PEER_CRASH, n, MESH, random.Random(n).random)[0] for n in range(300)]
    assert 20 < sum(fault.victim.standby for fault in faults) < 80
    assert 10 < sum(fault.after_token == 0 for fault in faults) < 60


def test_two_peers_are_two_and_a_cascade_is_a_primary_and_its_standby() -> None:
    for number in range(50):
        first, second = schedule(Name.MULTI_PEER, number, MESH, random.Random(number).random)
        assert first.victim.stage != second.victim.stage
        first, second = schedule(Name.CASCADE, number, MESH, random.Random(number).random)
        assert (first.victim, second.victim) == (Victim(first.victim.stage), Victim(first.victim.stage, True))
        assert first.does is second.does is Does.KILL
        assert second.delay_s > 0


def test_a_rolling_restart_takes_every_peer_in_turn() -> None:
    hit = [
        schedule(Name.ROLLING_RESTART, n, MESH, random.Random(n).random)[0].victim.peer
        for n in range(MESH.peers)
    ]
    assert hit == list(range(MESH.peers))


def test_questions_repeat_by_their_seed_and_half_are_greedy() -> None:
    asked = questions(4, 48, random.Random("1/0").random)
    assert asked == questions(4, 48, random.Random("1/0").random)
    assert asked != questions(4, 48, random.Random("1/1").random)
    assert [question.sampling.temperature == 0 for question in asked] == [True, False, True, False]


# --- figures


def stream(gaps: Sequence[float], tokens: Sequence[int] | None = None, error: str = "") -> Stream:
    """Asked at 100 s, with the given times between tokens."""
    at, now = [], 100.0
    for gap in gaps:
        now += gap
        at.append(now)
    return Stream(tuple(tokens if tokens is not None else range(len(gaps))), 100.0, tuple(at), error)


STEADY = stream([0.5] + [0.1] * 9)


def test_recovery_is_the_gap_around_the_fault_less_the_usual_one() -> None:
    seen = stream([0.5, 0.1, 0.1, 0.1, 0.1, 0.7, 0.1, 0.1, 0.1, 0.1])
    judged = judge(STEADY, seen, 100.95, 100.95)  # inside the long gap
    assert judged.recovery_s == pytest.approx(0.6)
    assert judged.completed
    assert judged.equal
    judged = judge(STEADY, seen, 100.85, 100.85)  # a token was on its way when the fault came
    assert judged.recovery_s == pytest.approx(0.6)
    assert judged.slowdown == pytest.approx(2.0 / 1.4)


def test_a_pause_long_after_the_fault_is_not_its_recovery_but_is_kept() -> None:
    seen = stream([0.5, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.7, 0.1])
    judged = judge(STEADY, seen, 100.85, 100.85)
    assert judged.recovery_s == pytest.approx(0.0, abs=1e-6)
    assert judged.longest_gap_s == pytest.approx(0.7)


def test_a_loss_during_prefill_counts_against_the_undisturbed_first_token() -> None:
    seen = stream([1.3] + [0.1] * 9)
    assert judge(STEADY, seen, 100.02, 100.02).recovery_s == pytest.approx(0.8)


def test_an_answer_that_was_over_was_not_hit() -> None:
    assert judge(STEADY, STEADY, 200.0, 200.0).recovery_s is None
    assert judge(STEADY, STEADY, None, 0.0).recovery_s is None


def test_other_tokens_and_broken_answers_are_told_apart() -> None:
    other = stream([0.5] + [0.1] * 9, [0, 1, 2, 99, 4, 5, 6, 7, 8, 9])
    judged = judge(STEADY, other, 100.55, 100.55)
    assert (judged.completed, judged.equal, judged.first_difference) == (True, False, 3)
    short = stream([0.5, 0.1, 0.1], error="lost")
    judged = judge(STEADY, short, 100.65, 100.65)
    assert (judged.completed, judged.equal, judged.first_difference) == (False, False, 3)
    assert difference([1, 2], [1, 2, 3]) == 2


def test_percentiles_are_values_that_were_measured() -> None:
    values = list(range(1, 101))
    assert [percentile(values, share) for share in (0.5, 0.95, 1.0)] == [50, 95, 100]
    assert percentile([7.0], 0.95) == 7.0
    assert percentile([], 0.5) is None


def ran(*streams: Stream, kv: bool | None = True, restored: float | None = 1.0, hit: bool = True) -> Ran:
    judged = tuple(judge(STEADY, seen, 100.65, 100.65) for seen in streams)
    return Ran(judged, hit, kv, 10, restored)


GOOD = stream([0.5, 0.1, 0.3] + [0.1] * 7)


@pytest.mark.parametrize(
    ("runs", "within", "held"),
    [
        ([ran(GOOD, GOOD)], None, True),
        ([ran(GOOD), ran(GOOD)], 250.0, True),
        ([ran(GOOD)], 150.0, False),
        ([ran(GOOD, stream([0.5, 0.1], error="lost"))], None, False),
        ([ran(GOOD, stream([0.5] + [0.1] * 9, [5] * 10))], None, False),
        ([ran(GOOD, kv=False)], None, False),
        ([ran(GOOD, kv=None)], None, True),
        ([ran(GOOD, restored=None)], None, False),
        ([], None, False),
    ],
)
def test_a_scenario_holds_only_when_everything_did(runs: list[Ran], within: float | None, held: bool) -> None:
    assert figures(runs, within).held is held


def test_kills_of_standbys_do_not_flatter_recovery() -> None:
    got = figures([ran(GOOD), ran(STEADY, STEADY, STEADY, hit=False)])
    assert got.recovery_p50_ms == pytest.approx(200.0)
    assert got.replayed_bytes == 20


def test_caches_are_compared_range_by_range() -> None:
    one = {(0, 32): {"key.0": "a", "value.0": "b"}, (32, 40): {"key.0": "c"}}
    assert same_caches(one, {span: dict(arrays) for span, arrays in one.items()}) is True
    other = {(0, 32): {"key.0": "a", "value.0": "b"}, (32, 40): {"key.0": "x"}}
    assert same_caches(one, other) is False
    assert first_other(one, other).startswith("key.0 at positions 32-39")
    assert same_caches(one, None) is None


# --- the relay


def fates(conditions: Conditions, seed: int, count: int) -> list[float | None]:
    direction = Direction(random.Random(seed).random)
    return [direction.due(number / 1000, 0.0, conditions) for number in range(count)]


def test_the_same_seed_gives_datagrams_the_same_fate() -> None:
    rough = Conditions(delay_s=0.01, jitter_s=0.005, loss=0.1, reorder=0.1)
    assert fates(rough, 1, 500) == fates(rough, 1, 500) != fates(rough, 2, 500)
    assert 20 < fates(rough, 1, 500).count(None) < 90


def test_jitter_keeps_the_order_and_reordering_does_not() -> None:
    jitter = fates(Conditions(delay_s=0.01, jitter_s=0.02), 1, 500)
    assert jitter == sorted(due for due in jitter if due is not None)
    assert all(due is not None and due >= at / 1000 + 0.01 for at, due in enumerate(jitter))
    mixed = [due for due in fates(Conditions(reorder=0.2), 1, 500) if due is not None]
    assert mixed != sorted(mixed)


def test_a_cut_link_passes_nothing_while_it_is_cut() -> None:
    assert fates(CUT, 1, 10) == [None] * 10
    assert fates(CLEAR, 1, 3) == [0.0, 0.001, 0.002]
    short = Conditions(cuts=((0.002, 0.004),))
    assert [due is None for due in fates(short, 1, 6)] == [False, False, True, True, False, False]


async def test_datagrams_go_through_the_relay_both_ways_until_their_link_is_cut(tmp_path: Path) -> None:
    one, two = await talker(), await talker()
    try:
        async with relay(tmp_path, 1) as way, asyncio.timeout(WITHIN_S):
            offer = await Relayed(StandIn(one.port), way.path, "peer 1").offer()
            two.transport.sendto(b"early", ("127.0.0.1", int(offer.split()[6])))  # before it told its port
            data, early = await one.heard.get()
            assert data == b"early"
            answer = await Relayed(StandIn(two.port), way.path, "peer 2").accept(offer)
            shown = {"one": int(offer.split()[6]), "two": int(answer.split()[6])}
            assert not {one.port, two.port} & set(shown.values())
            one.transport.sendto(b"to two", ("127.0.0.1", shown["two"]))
            data, seen_from = await two.heard.get()
            assert data == b"to two"
            assert seen_from[1] != one.port
            two.transport.sendto(b"back", seen_from)
            assert await one.heard.get() == (b"back", ("127.0.0.1", shown["two"]))
            await way.set_links(CUT, [("peer 1", "peer 2")])
            one.transport.sendto(b"lost", ("127.0.0.1", shown["two"]))
            one.transport.sendto(b"lost", early)
            two.transport.sendto(b"lost", ("127.0.0.1", shown["one"]))
            while (await way.set_links(CUT, []))["lost"] < 3:  # orders and datagrams are taken in turn
                pass
            await way.set_links(CLEAR)
            two.transport.sendto(b"again", ("127.0.0.1", shown["one"]))
            assert (await one.heard.get())[0] == b"again"
            assert two.heard.empty()
    finally:
        one.transport.close()
        two.transport.close()
        await asyncio.sleep(0)  # they close on the loop's next turn


# --- orders to a peer's runtime


def test_a_runtime_obeys_an_order_once(tmp_path: Path) -> None:
    orders = tmp_path / "orders"
    slept: list[float] = []
    before_call = obedient(orders, slept.append)
    before_call()
    leave_order(orders, "stall 3.0")
    before_call()
    before_call()
    assert slept == [3.0]
    leave_order(orders, "fail")
    with pytest.raises(InjectedError):
        before_call()
    before_call()
    assert not list(tmp_path.iterdir())


def test_only_the_relay_that_the_file_names_is_put_in_between(tmp_path: Path) -> None:
    file = tmp_path / "inject"
    file.write_text(Injection(tmp_path / "orders", "", "peer 1").to_json())
    engine = StandIn(1)
    assert read_injection(file).engine(engine) is engine
    file.write_text(Injection(tmp_path / "orders", "somewhere", "peer 1").to_json())
    assert isinstance(read_injection(file).engine(engine), Relayed)
    assert json.loads(file.read_text())["name"] == "peer 1"


# --- results and report


def seen(**changes: object) -> Seen:
    values: dict[str, object] = {
        "level": "high",
        "scenario": "peer_crash",
        "runs": 25,
        "completed": 1.0,
        "equal": 1.0,
        "kv_equal": 1.0,
        "recoveries_ms": (100.0, 200.0),
        "slowdown": 1.1,
        "replayed_bytes": 0,
        "restored_s": (5.0,),
        "seeds": (1,),
        "bad_runs": (),
    }
    return Seen(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "costs", "words"),
    [
        ([seen()], {}, "All 25 runs held"),
        ([seen(equal=0.9, bad_runs=((7, 12),))], {}, "--seed 7 --first 12"),
        ([seen(recoveries_ms=(5000.0,))], {}, "look at how late the loss is noticed"),
        ([seen(level="basic", recoveries_ms=(5000.0,))], {}, "choose a level with standbys"),
        ([seen(), seen(level="basic", recoveries_ms=(900.0,))], {}, "level high recovers in 100 ms"),
        ([seen(restored_s=(60.0,))], {}, "lend more memory"),
        ([seen(runs=2)], {}, "their 95th percentiles say little"),
        ([], {"off": 30.0, "shadow": 28.5}, "leave 95% of the unprotected decode rate: leave it on"),
        ([], {"off": 30.0, "shadow": 15.0}, "machines that idle"),
        ([], {}, "run `shoal validate`"),
    ],
)
def test_the_report_says_what_to_change(given: list[Seen], costs: dict[str, float], words: str) -> None:
    assert any(words in sentence for sentence in advice(given, costs)), advice(given, costs)


def test_results_are_kept_and_reported(tmp_path: Path) -> None:
    file = tmp_path / "kept" / "results.duckdb"
    start = Start("high", "parallel", "shadow", 3, 6, 3, 4, 48, "8bit", "aiortc", "")
    for _ in range(2):
        with open_results(file) as results:
            started = results.start(start)
            for number in range(3):
                results.run(started, Run(Name.PEER_CRASH, number, ran(GOOD, GOOD), (GOOD, GOOD)))
            broken = stream([0.5, 0.1], error="lost")
            results.run(started, Run(Name.CASCADE, 0, ran(GOOD, broken), (GOOD, broken)))
            results.cost(started, [(0, "off", 30.0, 1 << 30, 1, 1, 0), (0, "shadow", 28.0, 1 << 30, 1, 1, 9)])
            results.soak(started, [(n, 1.0, "peer 1", 1 << 28, 30, 20, 0) for n in (0, 100)])
    with open_results(file) as results:
        crash, cascade = gathered(results)
        assert (crash.scenario, crash.runs, crash.equal, crash.held) == ("peer_crash", 6, 1.0, True)
        assert crash.recoveries_ms == pytest.approx([200.0] * 12)
        assert (cascade.completed, cascade.held, cascade.bad_runs) == (0.5, False, ((3, 0), (3, 0)))
        page, picture = write_report(results, tmp_path / "report")
    assert picture.read_bytes().startswith(b"\x89PNG")
    text = page.read_text()
    assert "peer_crash" in text
    assert "--scenario cascade --seed 3 --first 0" in text
    assert "93%" in text
