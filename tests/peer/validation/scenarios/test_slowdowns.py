"""A process that is slowed by turns, what a run of `peer_slowed` shows, and what fails it."""

from __future__ import annotations

import asyncio
import random
import signal
from dataclasses import replace

import pytest

from peer.state.generated.commands import PlanRecord, PlanStage
from peer.state.mesh_state import MeshState
from peer.validation.runs.slowdown_runner import Throttle, Watch
from peer.validation.scenarios.figures import Judged
from peer.validation.scenarios.slowdowns import (
    ANSWER_S,
    LEAST_TOKENS,
    LONGEST_STOP_S,
    SLOWER,
    Slowed,
    Turns,
    figures,
    moment,
    tokens_for,
)

GOOD = Judged(True, -1, True, 0.1, 0.2, 1.0)
RUN = Slowed((GOOD, GOOD), 0.25, 6.0, 9.0, 12.0, 2, 1, 0)


@pytest.mark.parametrize("seed", range(6))
def test_a_process_runs_a_quarter_of_the_time_however_late_timers_are(seed: int) -> None:
    turns, draw = Turns(), random.Random(seed)
    for _ in range(400):
        stop_s = turns.stop_s
        assert 0 < stop_s <= LONGEST_STOP_S
        turns.stopped(stop_s + draw.expovariate(50))
        turns.ran(turns.run_s + draw.expovariate(100))
    assert turns.share == pytest.approx(1 / SLOWER, abs=0.02)


async def test_what_was_stopped_runs_when_it_is_over() -> None:
    sent: asyncio.Queue[signal.Signals] = asyncio.Queue()
    throttle = Throttle(sent.put_nowait)
    assert [await sent.get() for _ in range(5)] == [signal.SIGSTOP, signal.SIGCONT] * 2 + [signal.SIGSTOP]
    await throttle.close()
    left = [sent.get_nowait() for _ in range(sent.qsize())]
    assert left[-1] is signal.SIGCONT


def test_moments_repeat_and_come_early() -> None:
    seen = {moment(3, 4, 300, random.Random(number).random) for number in range(200)}
    assert seen == {moment(3, 4, 300, random.Random(number).random) for number in range(200)}
    assert {when.stage for when in seen} == {0, 1, 2}
    assert {when.session for when in seen} == {0, 1, 2, 3}
    assert all(1 <= when.after_token <= 50 for when in seen)


def test_answers_last_whatever_the_machine_does() -> None:
    assert tokens_for(2.0, 48, 1700) == round(48 * ANSWER_S / 2)
    assert tokens_for(0.1, 48, 1700) == 1700
    assert tokens_for(100.0, 48, 1700) == LEAST_TOKENS


@pytest.mark.parametrize(
    ("runs", "held"),
    [
        ([RUN], True),
        ([], False),
        ([RUN, replace(RUN, relieved_s=20.5)], False),
        ([replace(RUN, relieved_s=None)], False),
        ([replace(RUN, plans=2)], False),
        ([replace(RUN, brief_changes=1)], False),
        ([replace(RUN, uncovered=1)], False),
        ([replace(RUN, trouble="no plan")], False),
        ([replace(RUN, judged=(GOOD, replace(GOOD, equal=False)))], False),
        ([replace(RUN, judged=())], False),
    ],
)
def test_it_holds_only_when_relieved_in_time_once_and_never_for_a_moment(
    runs: list[Slowed], held: bool
) -> None:
    assert figures(runs)["held"] is held


def test_times_of_runs_that_never_came_are_no_worst() -> None:
    found = figures([RUN, replace(RUN, noticed_s=None, relieved_s=16.0)])
    assert (found["noticed_p50_s"], found["noticed_worst_s"]) == (6.0, None)
    assert (found["relieved_p50_s"], found["relieved_worst_s"]) == (14.0, 16.0)


class Talk:
    """Stands in for the way of an answer."""

    way: tuple[int, tuple[str, ...]] | None = (1, ("a", "b"))


def test_relief_is_a_plan_that_asks_less_and_answers_that_go_over_it() -> None:
    def serving(version: int, cut: int) -> MeshState:
        stages = (PlanStage(0, cut, "a"), PlanStage(cut, 12, "b"))
        return replace(MeshState(), plan=PlanRecord(version, stages, 0, 0, ("why",)))

    states = [serving(1, 6)]
    watch = Watch(lambda: states[-1])
    watch.begin()
    talks = [Talk(), Talk()]
    watch.talks, watch.victim = talks, "a"  # type: ignore[assignment]
    watch.look()
    assert (watch.planned_s, watch.plans) == (None, [])
    talks[1].way = None  # it has ended
    states.append(serving(2, 3))
    watch.look()
    assert watch.planned_s is not None
    assert watch.running == {0}
    watch.on_token(0)
    assert watch.over == {}
    talks[0].way = (2, ("a", "b"))
    watch.on_token(0)
    assert watch.over.keys() == {0}
    watch.victim = "b"
    assert watch.planned_s is None
