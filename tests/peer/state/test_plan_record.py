"""Teams in plans of the log: who holds what, which teams cannot be, and who serves a stage."""

from __future__ import annotations

from dataclasses import replace

import pytest

from peer.state.generated.commands import HeldSlice, PlanRecord, PlanStage
from peer.state.plan_record import (
    computing_in,
    holders_of,
    route_of,
    slice_of,
    slices_of,
    team_fault,
    team_of,
    whole_holders,
)

ALONE = PlanStage(0, 3, "a", ("c",))
TEAM = PlanStage(3, 6, "b", ("e",), 1, 1, 1, ("c", "d"), (500, 300, 200))
PLAN = PlanRecord(1, (ALONE, TEAM), 5, 9)
MEMBERS = frozenset("abcde")


def test_members_of_a_team_hold_slices_and_others_runs() -> None:
    assert route_of(PLAN) == ("a", "b")
    assert team_of(TEAM) == ("b", "c", "d")
    assert computing_in(PLAN) == {"a", "b", "c", "d"}
    assert whole_holders(ALONE) == ("a", "c")
    assert whole_holders(TEAM) == ("e",)
    assert holders_of(PLAN) == {"a": {(0, 3)}, "c": {(0, 3)}, "e": {(3, 6)}}
    parts = {peer: {HeldSlice(3, 6, place, (500, 300, 200))} for place, peer in enumerate("bcd")}
    assert slices_of(PLAN) == parts
    assert slice_of(TEAM, "e") is None
    assert slice_of(ALONE, "a") is None


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({}, ""),
        ({"helpers": (), "shares": ()}, ""),
        ({"shares": ()}, "a share of each of 3 members, got 0"),
        ({"shares": (1, 2)}, "a share of each of 3 members, got 2"),
        ({"helpers": ()}, "a share of each of 1 members, got 3"),
        ({"helpers": (), "shares": (5,)}, "a share of each of 1 members, got 1"),
        ({"shares": (1, 0, 1)}, "from 1 to 1000"),
        ({"shares": (1, 1001, 1)}, "from 1 to 1000"),
        ({"helpers": ("c", "c")}, "twice"),
        ({"helpers": ("b", "c")}, "twice"),
        ({"helpers": ("c", "e")}, "stands by"),
        ({"helpers": ("c", "x")}, "x of its team is no member"),
    ],
)
def test_teams_that_cannot_be_say_why(changes: dict[str, tuple[str, ...]], fault: str) -> None:
    plan = replace(PLAN, stages=(ALONE, replace(TEAM, **changes)))  # type: ignore[arg-type]
    found = team_fault(plan, MEMBERS)
    assert fault in found
    assert bool(fault) == bool(found)
