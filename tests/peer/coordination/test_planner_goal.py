"""What a mesh wishes of its plans: from the command line into the log, and from there to the planner."""

from __future__ import annotations

import argparse
import json

import pytest

from peer.cli.arguments.plan_goal import component, wish_arguments, wish_of
from peer.coordination.planner_goal import planner_wish, wish_line, wished
from peer.errors import BadCommand
from peer.state.generated.commands import Group, MemberJoined, ModelChosen, PlanWished
from peer.state.mesh_state import MeshState, apply
from peer.state.plan_goal import check_wish
from planner.cost.objectives import Component, Wish
from planner.errors import RequestError
from planner.service.request_codec import decode_wished, encode_request
from planner.types import PeerProfile, PlanRequest, Unit, UnitKind

TIMES: dict[UnitKind, float] = {"embed": 1e-4}
REQUEST = PlanRequest(
    (Unit("embed", "embed", 1, 1, 0, 4),),
    (PeerProfile("a", 10, 1, TIMES, TIMES),),
    (),
    16,
    1,
)


def parsed(*words: str) -> PlanWished | None:
    made = argparse.ArgumentParser()
    wish_arguments(made)
    return wish_of(made.parse_args(words))


def test_the_command_line() -> None:
    assert parsed() is None
    assert parsed("--goal", "memory") == PlanWished("optimal", "memory")
    assert parsed("--component", "low=0-2@my box", "--component", "high=3-9") == PlanWished(
        "component", "latency", (Group("low", 0, 3, "my box"), Group("high", 3, 10, ""))
    )
    for wrong in ("low", "low=3", "low=3-2", "=0-1", "low=0-1@"):
        with pytest.raises(argparse.ArgumentTypeError):
            component(wrong)


def test_components_hold_every_unit_once() -> None:
    check_wish(PlanWished("component", "latency", (Group("a", 0, 3, ""), Group("b", 3, 8, ""))), 8)
    for groups in ((), (Group("a", 0, 3, ""),), (Group("a", 1, 8, ""),), (Group("a", 0, 9, ""),)):
        with pytest.raises(BadCommand, match="component"):
            check_wish(PlanWished("component", "latency", groups), 8)
    with pytest.raises(BadCommand, match="expected the strategy component"):
        check_wish(PlanWished("layer", "latency", (Group("a", 0, 8, ""),)), 8)


def test_the_log_to_the_planner() -> None:
    state = MeshState()
    for command in (
        ModelChosen("m", "toy", 8, 16, 1, "throughput"),
        MemberJoined("pb", "box", True),
        MemberJoined("pa", "box", True),
    ):
        state = apply(state, command)
    assert wished(state) == PlanWished("optimal", "throughput")
    groups = (Group("a", 0, 3, "box"), Group("b", 3, 5, "pb"), Group("c", 5, 8, "nobody"))
    state = apply(state, PlanWished("component", "memory", groups))
    assert planner_wish(state) == Wish(
        "memory",
        "component",
        components=(Component("a", 0, 3, "pa"), Component("b", 3, 5, "pb"), Component("c", 5, 8)),
    )
    assert wish_line(state) == (
        "plans by the strategy component (a 0-2 on box, b 3-4 on pb, c 5-7 on nobody), for memory"
    )


def test_the_planning_service_reads_a_wish() -> None:
    body = json.loads(encode_request(REQUEST))
    assert decode_wished(json.dumps(body).encode()) == (REQUEST, None)
    group = {"name": "a", "first": 0, "stop": 1, "prefers": ""}
    body["wish"] = {"strategy": "component", "goal": "balanced", "components": [group]}
    wish = Wish("balanced", "component", components=(Component("a", 0, 1),))
    assert decode_wished(json.dumps(body).encode()) == (REQUEST, wish)
    faults: tuple[object, ...] = (
        3,
        {"goal": "cost"},
        {"strategy": []},
        {"other": 1},
        {"components": [{**group, "first": -1}]},
    )
    for wrong in faults:
        with pytest.raises(RequestError):
            decode_wished(json.dumps({**body, "wish": wrong}).encode())
