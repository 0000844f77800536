"""Who is asked to measure itself once more, and when: a mesh whose predictions abstain, in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from peer.coordination.plan_forecast import NOBODY
from peer.coordination.remeasure_policy import (
    BUSY_S,
    LONGEST_S,
    MAX_ASKED,
    NEXT_S,
    PAUSE_S,
    QUIET_S,
    FreshTimes,
    Outcome,
)
from peer.coordination.remeasure_requests import AGAIN_S, Freshening
from peer.errors import BadCommand, ConnectionLost
from peer.state.failure_domains import Surroundings
from peer.state.generated.commands import (
    MemberDraining,
    MemberJoined,
    MemberLeft,
    MemberMeasured,
    ModelChosen,
    PlanActivated,
    PlanProposed,
    PlanRecord,
    PlanStage,
    Profile,
    UnitsHeld,
)
from peer.state.mesh_state import MeshState, apply
from peer.wire.generated.requests import MEASURE, MeasureAnswer
from planner.predict.forecast import Foreseen

PEERS = ("a", "b", "c")


def profile(times: int = 1000) -> Profile:
    table = {"attn": times}
    return Profile(1 << 30, 1 << 20, table, table, table, 100, "cpu", 1)


def mesh() -> MeshState:
    state = apply(MeshState(), ModelChosen("m", "toy", 6, 64, 1, "latency"))
    for peer in PEERS:
        state = apply(state, MemberJoined(peer, peer, True, incarnation=1))
        state = apply(state, MemberMeasured(peer, profile(), ()))
    plan = PlanRecord(1, (PlanStage(0, 3, "a"), PlanStage(3, 6, "b")), 0, 0, ())
    for command in (
        PlanProposed(plan),
        UnitsHeld("a", ((0, 3),)),
        UnitsHeld("b", ((3, 6),)),
        PlanActivated(1),
    ):
        state = apply(state, command)
    assert state.serving() is not None
    return state


class Watch:
    """A coordinator that looks once a second."""

    def __init__(self, *doubted: str) -> None:
        self.times, self.state, self.now, self.calm = FreshTimes(), mesh(), 1000.0, True
        self.times.doubts(doubted, PEERS)

    def asked(self, for_s: float) -> list[tuple[float, str]]:
        """Who is asked within so many seconds, and after how many; each answers when told to."""
        since, found = self.now, []
        while self.now < since + for_s:
            peer = self.times.due(self.now, self.state, calm=self.calm)
            if peer is not None:
                self.times.begun(peer)
                found.append((self.now - since, peer))
            self.now += 1.0
        return found

    def ends(self, outcome: Outcome) -> None:
        self.times.ended(self.now, "m", outcome)


def test_nobody_is_asked_whose_predictions_hold() -> None:
    assert Watch().asked(2 * LONGEST_S / 100) == []


def test_after_a_quiet_time_one_is_asked_and_the_next_once_that_one_has_answered() -> None:
    watch = Watch("b", "a")
    assert watch.asked(QUIET_S + 600) == [(QUIET_S, "a")]
    watch.ends("measured")
    assert watch.asked(NEXT_S + 60) == [(NEXT_S, "b")]


@pytest.mark.parametrize(
    ("outcome", "pauses"),
    [
        ("measured", [PAUSE_S, 2 * PAUSE_S, 4 * PAUSE_S]),
        ("busy", [BUSY_S, 2 * BUSY_S, 4 * BUSY_S]),
        ("unable", [LONGEST_S, LONGEST_S]),
    ],
)
def test_the_same_member_is_asked_ever_more_seldom_while_that_does_not_help(
    outcome: Outcome, pauses: list[float]
) -> None:
    watch = Watch("a")
    assert watch.asked(QUIET_S + 1) == [(QUIET_S, "a")]
    for pause_s in pauses:
        watch.ends(outcome)
        ((after, _),) = watch.asked(pause_s + 2)
        assert after == pytest.approx(pause_s, abs=1)


def test_who_was_helped_is_asked_after_the_first_pause_again() -> None:
    watch = Watch("a")
    watch.asked(QUIET_S + 1)
    for pause_s in (PAUSE_S, 2 * PAUSE_S):
        watch.ends("measured")
        assert len(watch.asked(pause_s + 2)) == 1
    watch.ends("measured")
    watch.times.doubts((), ("b", "c"))  # it was not looked at
    watch.times.doubts(("a",), PEERS)
    assert watch.asked(4 * PAUSE_S - 2) == []
    assert len(watch.asked(4)) == 1
    watch.ends("measured")
    watch.times.doubts((), PEERS)
    watch.times.doubts(("a",), PEERS)
    assert len(watch.asked(8 * PAUSE_S + 2)) == 1
    watch.ends("measured")
    assert len(watch.asked(PAUSE_S + 2)) == 1


def test_one_that_was_lost_meanwhile_is_not_asked_again_whatever_it_does() -> None:
    watch = Watch("a")
    watch.asked(QUIET_S + 1)
    watch.ends("lost")
    for incarnation in range(2, 6):  # it starts again and again
        watch.state = apply(watch.state, MemberLeft("a", "lost"))
        watch.state = apply(watch.state, MemberJoined("a", "a", True, incarnation=incarnation))
        watch.state = apply(watch.state, MemberMeasured("a", profile(), ()))
        watch.state = apply(watch.state, UnitsHeld("a", ((0, 3),)))
        assert watch.state.serving() is not None
        assert watch.asked(QUIET_S + 60) == []
    assert watch.asked(LONGEST_S + 60) == []


def test_who_starts_again_sooner_than_it_is_quiet_is_never_asked() -> None:
    watch = Watch("c")
    for incarnation in range(2, 40):
        watch.state = apply(watch.state, MemberJoined("c", "c", True, incarnation=incarnation))
        watch.state = apply(watch.state, MemberMeasured("c", profile(), ()))
        assert watch.asked(QUIET_S - 1) == []


def test_not_while_something_is_planned_relieved_or_loaded() -> None:
    watch = Watch("a")
    watch.calm = False
    assert watch.asked(10 * QUIET_S) == []
    watch.calm = True
    assert watch.asked(QUIET_S - 1) == []
    watch.state = apply(watch.state, UnitsHeld("c", ((3, 6),)))  # a standby has loaded
    assert watch.asked(QUIET_S - 1) == []
    serving = watch.state
    watch.state = apply(serving, PlanProposed(PlanRecord(2, (PlanStage(0, 6, "c"),), 0, 0, ())))
    assert watch.asked(10 * QUIET_S) == []
    watch.state = replace(serving, plan=None)
    assert watch.asked(10 * QUIET_S) == []
    watch.state = apply(serving, MemberDraining("a", "the battery is low"))
    assert watch.asked(10 * QUIET_S) == []


def test_what_a_member_measured_because_it_was_asked_is_known_as_that_until_it_says_otherwise() -> None:
    watch = Watch("a", "b")
    watch.asked(QUIET_S + 1)
    watch.times.heard("b", profile(1500))  # nobody asked it
    watch.times.heard("a", profile(1500))
    watch.state = apply(watch.state, MemberMeasured("b", profile(1500), ()))
    assert watch.times.fresh(watch.state) == set()  # not in the log yet
    watch.state = apply(watch.state, MemberMeasured("a", profile(1500), ()))
    assert watch.times.fresh(watch.state) == {"a"}
    around = replace(profile(1500), surroundings=Surroundings(9000))
    watch.state = apply(watch.state, MemberMeasured("a", around, ()))
    assert watch.times.fresh(watch.state) == {"a"}
    slower = apply(watch.state, MemberMeasured("a", profile(6000), ()))
    assert watch.times.fresh(slower) == set()
    assert watch.times.fresh(apply(watch.state, MemberLeft("a", ""))) == set()


class Ends(FreshTimes):
    """Keeps what each question came to."""

    def __init__(self) -> None:
        super().__init__()
        self.outcomes: list[Outcome] = []
        self.over = asyncio.Event()

    def ended(self, now: float, model: str, outcome: Outcome) -> None:
        super().ended(now, model, outcome)
        self.outcomes.append(outcome)
        self.over.set()


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ({"measured": True, "busy": False}, "measured"),
        ({"measured": False, "busy": True}, "busy"),
        ({"measured": False, "busy": False}, "unable"),
        ({"measured": "yes"}, "unable"),
        ({}, "unable"),
        (BadCommand("unknown request 'measure'"), "unable"),  # as an older peer says
        (ConnectionLost("it is gone"), "lost"),
        (TimeoutError(), "lost"),
        (OSError("the disk is full"), "unable"),  # of this peer itself
    ],
)
async def test_what_an_answer_or_none_means(answer: dict[str, object] | Exception, outcome: Outcome) -> None:
    asked = []

    async def ask(peer: str, model: str) -> MeasureAnswer:
        asked.append((peer, model))
        if isinstance(answer, Exception):
            raise answer
        return MEASURE.read_answer(answer)

    due = Ends()
    due.doubts(["b"], PEERS)
    freshening = Freshening(ask, due)
    for now in (0.0, QUIET_S, QUIET_S + 1):
        freshening.look(now, mesh(), calm=True)
    await due.over.wait()
    await freshening.close()
    assert (asked, due.outcomes) == ([("b", "m")], [outcome])


async def test_a_history_that_was_not_heard_for_a_plan_is_asked_again_when_it_is_quiet_and_not_for_ever() -> (
    None
):
    async def nobody(peer: str, model: str) -> MeasureAnswer:
        raise AssertionError("no prediction is known to abstain")

    freshening = Freshening(nobody)

    def again(since: float, for_s: int) -> list[float]:
        found = list[float]()
        for second in range(for_s):
            if freshening.look(since + second, mesh(), calm=True):
                found.append(second)
                freshening.looked(None)  # nor is it heard then
        return found

    assert again(0.0, 100) == []  # it was
    freshening.looked(None)
    assert again(1000.0, 1000) == [0, AGAIN_S, 2 * AGAIN_S]
    freshening.looked(Foreseen(NOBODY, {}))
    assert again(3000.0, 100) == []


async def test_a_coordinator_that_ends_waits_for_no_answer() -> None:
    due = Ends()
    due.doubts(["b"], PEERS)

    async def ask(peer: str, model: str) -> MeasureAnswer:
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    freshening = Freshening(ask, due)
    for now in (0.0, QUIET_S):
        freshening.look(now, mesh(), calm=True)
    await asyncio.sleep(0)
    assert due.asking == "b"
    await freshening.close()
    assert due.asking is None


def test_another_model_is_another_question() -> None:
    watch = Watch("a")
    watch.asked(QUIET_S + 1)
    watch.ends("unable")
    assert watch.asked(10 * PAUSE_S) == []
    model = watch.state.model
    assert model is not None
    watch.state = replace(watch.state, model=replace(model, model="n"))
    assert watch.asked(QUIET_S + 1) == [(QUIET_S, "a")]


def test_of_many_members_only_so_many_are_remembered() -> None:
    times = FreshTimes()
    for number in range(MAX_ASKED + 100):
        times.begun(f"p{number}")
        times.heard(f"p{number}", profile())
        times.ended(float(number), "m", "measured")
    assert len(times._asked) == len(times._fresh) == MAX_ASKED
