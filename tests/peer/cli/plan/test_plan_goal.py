"""What `shoal wish` changes in the wish that holds, and what it says of the plan that followed."""

from __future__ import annotations

import argparse
from dataclasses import replace

import pytest

from peer.cli.plan.plan_goal import changed, not_here, outcome, told
from peer.cli.role import member
from peer.errors import BadCommand
from peer.member.peer_options import size
from peer.state.generated.commands import Group, MemberJoined, PlanRecord, PlanStage, PlanWished, UnitsHeld
from peer.state.mesh_state import MeshState, apply

GROUPS = (Group("low", 0, 3, ""), Group("high", 3, 6, "den"))
BY_GROUPS = PlanWished("component", "latency", GROUPS)


@pytest.mark.parametrize(
    ("strategy", "goal", "groups", "before", "expected"),
    [
        (None, "memory", (), PlanWished("layer", "latency"), PlanWished("layer", "memory")),
        ("pipeline", None, (), PlanWished("layer", "balanced"), PlanWished("pipeline", "balanced")),
        (None, "memory", (), BY_GROUPS, replace(BY_GROUPS, goal="memory")),
        ("optimal", None, (), BY_GROUPS, PlanWished("optimal", "latency")),
        (None, None, GROUPS, PlanWished("optimal", "latency"), BY_GROUPS),
        (None, None, GROUPS[:1], BY_GROUPS, replace(BY_GROUPS, components=GROUPS[:1])),
    ],
)
def test_what_is_not_said_stays_as_it_was(
    strategy: str | None,
    goal: str | None,
    groups: tuple[Group, ...],
    before: PlanWished,
    expected: PlanWished,
) -> None:
    args = argparse.Namespace(strategy=strategy, goal=goal, component=list(groups), min_tensor=None)
    assert changed(args, before) == expected


def test_it_says_which_plan_followed() -> None:
    state = apply(MeshState(), MemberJoined("a", "den", True))
    plan = PlanRecord(4, (PlanStage(0, 6, "a"),), 1, 1)
    assert outcome(replace(state, refused="too little memory"), 3, asked=True) == "no plan: too little memory"
    loads = replace(state, proposed=plan, last_version=4)
    assert outcome(loads, 3, asked=True) == "plan 4 is being loaded: den holds units 0-5"
    serves = apply(replace(loads, plan=plan, proposed=None), UnitsHeld("a", ((0, 6),)))
    assert outcome(serves, 3, asked=True) == "plan 4 followed: den holds units 0-5"
    assert outcome(serves, 4, asked=True) == (
        "plan 4 stays, no other is better by enough: den holds units 0-5"
    )
    assert outcome(serves, 4, asked=False).startswith("that was the wish before; plan 4 stays")
    assert (told(serves, 3, "so")["followed"], told(serves, 4, "so")["followed"]) == (True, False)


def test_it_says_who_of_those_that_are_to_hold_a_group_is_not_here() -> None:
    state = apply(MeshState(), MemberJoined("a", "den", True))
    assert not not_here(state, BY_GROUPS)
    assert not not_here(state, replace(BY_GROUPS, components=(Group("low", 0, 6, "a"),)))
    (line,) = not_here(state, replace(BY_GROUPS, components=(Group("low", 0, 6, "dne"),)))
    assert line == "no member is called 'dne' now: others hold low until one is"


@pytest.mark.parametrize("text", ["10", "1", "0.5MiB", "1KB"])
def test_a_size_without_its_unit_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="a size has a unit"):
        size(text)
    assert (size("0"), size("1048576"), size("2G")) == (0, 2**20, 2 * size("1G"))


def test_a_role_goes_to_one_member() -> None:
    state = MeshState()
    for peer, name in (("a", "den"), ("b", "Firefox"), ("c", "Firefox"), ("me", "shoal role")):
        state = apply(state, MemberJoined(peer, name, True))
    assert (member(state, "den", "me"), member(state, "b", "me")) == ("a", "b")
    assert member(state, "Firefox (c)", "me") == "c"
    for wrong in ("Firefox", "shoal role", "me", ""):
        with pytest.raises(BadCommand, match=r"here are Firefox \(b\), Firefox \(c\), den"):
            member(state, wrong, "me")
