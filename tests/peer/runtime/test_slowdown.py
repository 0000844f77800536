"""A peer that became slower is noticed and relieved; one that is slow for a moment is not. All in virtual time."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, cast

import pytest

from peer.coordination.coordinator import Coordinator, solve
from peer.runtime.slowdown import FORGIVEN_S, MILLI, Pace, at_pace, should_take
from peer.stage.slowdown_reports import Pacing
from peer.state.failure_domains import Surroundings
from peer.state.generated.commands import (
    LinkFacts,
    MemberDraining,
    MemberJoined,
    MemberMeasured,
    ModelChosen,
    PlanProposed,
    Profile,
    UnitsHeld,
)
from peer.state.mesh_state import MeshState, apply
from peer.state.plan_record import holders_of, route_of
from planner.types import Infeasible, Unit

MIB = 2**20
STEP_S = 0.02
KINDS = ("embed", "attn", "ffn", "head")
UNITS = (
    Unit("embed", "embed", 4 * MIB, 0, 0, 2048),
    *(
        unit
        for block in range(6)
        for unit in (
            Unit(f"attn.{block}", "attn", 2 * MIB, 10**6, 1024, 2048),
            Unit(f"ffn.{block}", "ffn", 3 * MIB, 10**6, 0, 2048),
        )
    ),
    Unit("head", "head", 4 * MIB, 10**6, 0, 4),
)


class Worker:
    """Computes steps one after the other, with pauses for others, on a clock of its own."""

    def __init__(self, seed: int) -> None:
        self.pace, self.now, self.number = Pace(), 100.0, 0
        self.draw = random.Random(seed)
        self.told: list[tuple[float, int]] = []

    def work(self, for_s: float, slower: float) -> None:
        until = self.now + for_s
        while self.now < until:
            self.number += 1
            step = ((0, 9), b"s", 1, self.number)
            self.pace.begun(self.now, step, STEP_S)
            self.now += STEP_S * 1.4 * slower * self.draw.uniform(0.8, 1.3)
            self.pace.ended(self.now, step)
            self.now += self.draw.uniform(0, 0.05)
            self.look()

    def look(self) -> None:
        milli = self.pace.look(self.now)
        if milli is not None:
            self.told.append((self.now, milli))


@pytest.mark.parametrize("seed", range(8))
def test_four_times_slower_is_told_within_seconds_and_once(seed: int) -> None:
    worker = Worker(seed)
    worker.work(15, 1.0)
    assert worker.told == []
    since = worker.now
    worker.work(30, 4.0)
    assert len(worker.told) == 1
    when, milli = worker.told[0]
    assert when - since < 8
    assert 3000 < milli < 5500
    worker.work(30, 1.0)
    assert len(worker.told) == 2
    assert 700 < worker.told[1][1] < 1400


@pytest.mark.parametrize("seed", range(8))
def test_slow_for_two_seconds_is_not_told_nor_is_a_little(seed: int) -> None:
    worker = Worker(seed)
    worker.work(10, 1.0)
    for _ in range(5):
        worker.work(2, 4.0)
        worker.work(4, 1.0)
    worker.work(20, 1.3)
    assert worker.told == []


@pytest.mark.parametrize("seed", range(8))
def test_a_slowness_that_a_busy_machine_hides_in_part_is_told_when_it_lasts(seed: int) -> None:
    worker = Worker(seed)
    worker.work(15, 1.0)
    since = worker.now
    worker.work(20, 1.75)
    assert len(worker.told) == 1
    when, milli = worker.told[0]
    assert when - since < 14
    assert 1500 < milli < 2200


@pytest.mark.parametrize("seed", range(8))
def test_first_steps_that_were_unlike_the_later_ones_make_no_peer_slower(seed: int) -> None:
    worker = Worker(seed)
    worker.work(6, 0.75)  # of prompts
    worker.work(40, 1.25)
    assert worker.told == []
    worker.work(20, 4.0)
    assert len(worker.told) == 1


def test_waiting_for_others_is_not_being_slow_and_dropped_steps_end() -> None:
    worker = Worker(1)
    worker.work(10, 1.0)
    for _ in range(60):  # the others take long: this peer has a step every half second
        worker.work(0.01, 1.0)
        worker.now += 0.5
        worker.look()
    assert worker.told == []
    worker.pace.begun(worker.now, ((0, 9), b"gone", 1, 0), STEP_S)
    worker.pace.dropped(worker.now, (0, 9), b"gone")
    worker.now += 60
    worker.work(20, 1.0)
    assert worker.told == []


def test_what_nobody_heard_is_told_again() -> None:
    worker = Worker(4)
    worker.work(15, 1.0)
    worker.work(7, 4.0)
    assert len(worker.told) == 1
    worker.pace.unheard()
    worker.work(7, 4.0)
    assert len(worker.told) == 2
    worker.work(20, 4.0)
    assert len(worker.told) == 2


def test_a_slower_peer_without_work_counts_as_fast_again_for_longer_each_time_that_it_is_not() -> None:
    worker = Worker(3)
    worker.work(15, 1.0)
    waited = []
    for _ in range(3):
        worker.work(20, 4.0)
        assert worker.told.pop()[1] > 3000
        since = worker.now
        while not worker.told:
            worker.now += 1.0
            worker.look()
        waited.append(worker.told[0][0] - since)
        assert worker.told.pop()[1] == MILLI
    assert waited == pytest.approx([FORGIVEN_S, 2 * FORGIVEN_S, 4 * FORGIVEN_S], abs=2)
    worker.work(20, 4.0)
    worker.work(20, 1.0)
    assert [milli > 3000 for _, milli in worker.told] == [True, False]
    worker.now += 2 * FORGIVEN_S
    worker.look()
    assert len(worker.told) == 2  # what is as fast as at first has nothing to be forgiven


def test_a_peer_is_steady_until_it_seems_slower_and_again_when_it_is_as_fast_as_it_was() -> None:
    worker = Worker(2)
    worker.work(15, 1.0)
    assert worker.pace.steady(worker.now)
    worker.work(3, 4.0)
    assert worker.told == []
    assert not worker.pace.steady(worker.now)  # before anybody is told
    worker.work(7, 4.0)
    assert len(worker.told) == 1
    worker.now += 100.0
    assert not worker.pace.steady(worker.now)  # what was told holds while it rests
    worker.work(20, 1.0)
    assert len(worker.told) == 2
    assert worker.pace.steady(worker.now)


def test_what_steps_should_take() -> None:
    assert should_take({"attn": 2, "ffn": 1}, {"attn": 100, "ffn": 50}, {"attn": 10, "ffn": 5}, 1) == 250e-9
    assert should_take({"attn": 2, "ffn": 1}, {"attn": 100, "ffn": 50}, {"attn": 10, "ffn": 5}, 4) == 100e-9
    assert at_pace({"attn": 100}, 4250) == {"attn": 425}


# --- the coordinator


def profile(slow: float = 1.0) -> Profile:
    times = {kind: round(400_000 * slow) for kind in KINDS}
    return Profile(24 * MIB, 2 * MIB, times, times, times, 1000, "cpu", 1)


def serving_mesh() -> Coordinator:
    """Four peers of which three are needed, with a plan that serves."""
    made = Coordinator("p0", UNITS)
    made.submit(ModelChosen("m", "toy", len(UNITS), 64, 1, "latency"))
    peers = [f"p{number}" for number in range(4)]
    for peer in peers:
        made.submit(MemberJoined(peer, peer, True))
    for peer in peers:
        links = tuple(
            LinkFacts(*pair, 500, 10**8, 0) for other in peers if other != peer for pair in ((peer, other),)
        )
        made.submit(MemberMeasured(peer, profile(), links))
    plan(made)
    held(made)
    assert made.state.serving() is not None
    return made


def plan(made: Coordinator) -> None:
    wanted = made.wanted()
    if wanted is not None:
        answer = solve(wanted)
        assert not isinstance(answer, Infeasible), answer
        made.planned(wanted, answer)


def held(made: Coordinator) -> None:
    for record in (made.state.proposed, made.state.plan):
        for peer, runs in (holders_of(record) if record is not None else {}).items():
            before = made.state.members[peer].held
            made.submit(UnitsHeld(peer, tuple(sorted({*before, *runs}))))


def looked(made: Coordinator, now: float, for_s: float) -> list[float]:
    """When plans were proposed."""
    found = []
    for tick in range(round(for_s * 4)):
        if any(isinstance(command, PlanProposed) for command in made.relieve(now + tick / 4)):
            found.append(now + tick / 4)
            held(made)
    return found


def slowed(made: Coordinator, peer: str, slow: float) -> None:
    made.submit(MemberMeasured(peer, profile(slow), ()))
    plan(made)


def test_a_slower_peer_is_relieved_after_three_looks_and_not_tossed_to_and_fro() -> None:
    made = serving_mesh()
    serving = made.state.serving()
    assert serving is not None
    victim = max(serving.stages, key=lambda stage: stage.stop - stage.first).primary
    slowed(made, victim, 4.0)
    assert made.state.proposed is None
    assert looked(made, 100.0, 1.25) == []
    assert len(looked(made, 102.0, 10.0)) == 1
    after = made.state.serving()
    assert after is not None
    assert after.why[0].startswith("Relief:")
    units = {s.primary: s.stop - s.first for s in after.stages}
    assert units.get(victim, 0) < {s.primary: s.stop - s.first for s in serving.stages}[victim]
    slowed(made, victim, 1.0)  # it is as before: not at once, and only for a large gain
    assert looked(made, 112.0, 40.0) == []


@pytest.mark.parametrize("planned_between", [True, False])
def test_a_slower_peer_that_says_what_is_around_it_is_relieved_as_others_are(planned_between: bool) -> None:
    made = serving_mesh()
    serving = made.state.serving()
    assert serving is not None
    victim = max(serving.stages, key=lambda stage: stage.stop - stage.first).primary
    made.submit(MemberMeasured(victim, profile(4.0), ()))
    if planned_between:
        plan(made)
    made.submit(MemberMeasured(victim, replace(profile(4.0), surroundings=Surroundings(9000)), ()))
    plan(made)
    assert made.state.proposed is None
    assert looked(made, 100.0, 1.25) == []
    assert len(looked(made, 102.0, 10.0)) == 1


def test_surroundings_that_are_said_while_a_member_of_the_plan_drains_change_nothing_of_its_going() -> None:
    made = serving_mesh()
    serving = made.state.serving()
    assert serving is not None
    made.submit(MemberDraining(route_of(serving)[0], "hidden"))
    plan(made)
    assert made.state.proposed is not None
    other = route_of(serving)[-1]
    made.submit(MemberMeasured(other, replace(profile(), surroundings=Surroundings(9000)), ()))
    plan(made)
    assert made.state.proposed is not None
    assert route_of(serving)[0] not in route_of(made.state.proposed)


def test_a_peer_that_is_fast_again_before_the_third_look_keeps_its_units() -> None:
    made = serving_mesh()
    serving = made.state.serving()
    assert serving is not None
    slowed(made, route_of(serving)[0], 4.0)
    assert looked(made, 100.0, 1.25) == []
    slowed(made, route_of(serving)[0], 1.0)
    assert looked(made, 102.0, 30.0) == []
    assert made.state.serving() == serving


class Member(Worker):
    """What a member tells of its pace while it computes; `state` is what the log has."""

    def __init__(self, seed: int, state: MeshState) -> None:
        super().__init__(seed)
        self.state = state
        self.pacing = Pacing("p0", cast(Any, None), lambda: self.state, cast(Any, None))
        self.commands: list[MemberMeasured] = []
        self.look()

    def look(self) -> None:
        command = self.pacing._look(self.now)
        self.pace = self.pacing._pace  # it begins anew with each measurement
        if command is not None:
            self.commands.append(command)
            self.state = apply(self.state, command)


def test_pace_counts_from_a_fresh_measurement_and_none_is_made_while_a_slower_one_is_told() -> None:
    member = Member(5, serving_mesh().state)
    member.work(15, 1.0)
    assert member.pacing._pace.steady(member.now)
    fresh = MemberMeasured("p0", profile(0.5), ())
    member.state = apply(member.state, fresh)
    member.work(15, 1.0)
    assert member.commands == []
    member.work(10, 4.0)
    (told,) = member.commands
    assert told.profile.decode_ns["attn"] == pytest.approx(4 * fresh.profile.decode_ns["attn"], rel=0.35)
    assert not member.pacing._pace.steady(member.now)
    member.work(30, 4.0)
    assert member.commands == [told]  # it counts once


def test_a_fresh_measurement_ends_no_relief_and_one_like_the_first_changes_nothing() -> None:
    made = serving_mesh()
    serving = made.state.serving()
    assert serving is not None
    assert made.settled
    slowed(made, route_of(serving)[1], 1.05)  # as a member tells that measured itself again: times alone
    assert looked(made, 50.0, 20.0) == []
    assert made.state.serving() == serving
    assert made.settled
    victim = max(serving.stages, key=lambda stage: stage.stop - stage.first).primary
    other = next(peer for peer in route_of(serving) if peer != victim)
    slowed(made, victim, 4.0)
    assert not made.settled  # nobody is asked now
    assert looked(made, 100.0, 1.25) == []
    slowed(made, other, 0.97)
    (at,) = looked(made, 102.0, 10.0)
    assert at < 103.0  # at its third look
    assert made.state.members[victim].profile == profile(4.0)


def test_a_little_slower_changes_nothing_and_a_peer_that_comes_is_planned_for_at_once() -> None:
    made = serving_mesh()
    serving = made.state.serving()
    assert serving is not None
    slowed(made, route_of(serving)[0], 1.1)
    assert looked(made, 100.0, 30.0) == []
    faster = replace(profile(0.2), memory_bytes=1 << 30)
    made.submit(MemberJoined("p9", "p9", True))
    links = tuple(
        LinkFacts(*pair, 500, 10**8, 0)
        for peer in made.state.members
        if peer != "p9"
        for pair in (("p9", peer), (peer, "p9"))
    )
    made.submit(MemberMeasured("p9", faster, links))
    plan(made)
    assert made.state.proposed is not None
    assert route_of(made.state.proposed) == ("p9",)
