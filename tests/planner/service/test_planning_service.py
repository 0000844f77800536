"""What a planning service answers whoever coordinates without a planner of its own, and which requests it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from planner.adapt.plan_comparison import LIMITS
from planner.errors import RequestError
from planner.service.planning_service import plan_bytes
from planner.service.request_codec import encode_request
from planner.types import Link, PeerProfile, PlanRequest, Unit, UnitKind

MIB = 2**20
KINDS: tuple[UnitKind, ...] = ("embed", "attn", "ffn", "attn", "ffn", "head")
UNITS = tuple(Unit(f"{kind}.{at}", kind, 3 * MIB, 10**6, 0, 2048) for at, kind in enumerate(KINDS))
PEERS = ("pa", "pb", "pc")
LINKS = tuple(Link(src, dst, 0.0005, 1e8, relayed=False) for src in PEERS for dst in PEERS if src != dst)
SERVES = [{"first": 0, "stop": 3, "peer": "pa"}, {"first": 3, "stop": 6, "peer": "pb"}]


def asked(slower: float = 1.0, **serving: Any) -> bytes:
    """Three peers of which each takes half of the units; `pa` is `slower`."""

    def times(peer: str) -> dict[UnitKind, float]:
        return dict.fromkeys(KINDS, 0.001 * (slower if peer == "pa" else 1.0))

    peers = tuple(PeerProfile(peer, 12 * MIB, 1, times(peer), times(peer)) for peer in PEERS)
    body = json.loads(encode_request(PlanRequest(UNITS, peers, LINKS, 64, 1, "latency")))
    held = {"pa": [[0, 3]], "pb": [[3, 6]]}
    return json.dumps({**body, "serving": {"stages": SERVES, "held": held, **serving}}).encode()


def told(request: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(plan_bytes(request))
    return found


def test_stages_that_are_as_good_stay_and_others_stand_by() -> None:
    answer = told(asked())["serving"]
    assert answer["better"] is False
    assert answer["relief"] is None
    assert [(s["first"], s["stop"], s["peer"]) for s in answer["kept"]["stages"]] == [
        (0, 3, "pa"),
        (3, 6, "pb"),
    ]


def test_a_peer_that_became_slower_is_relieved_after_three_checks() -> None:
    answer = told(asked(12.0))["serving"]
    assert answer["better"] is True
    assert answer["relief"]["checks"] == LIMITS.checks
    assert answer["relief"]["plan"]["why"][0].startswith("Relief:")
    assert "pa" not in {stage["peer"] for stage in answer["relief"]["plan"]["stages"]}


def test_stages_of_a_peer_that_is_not_planned_with_are_not_kept() -> None:
    gone = [SERVES[0], {**SERVES[1], "peer": "pz"}]
    answer = told(asked(stages=gone))["serving"]
    assert answer["better"] is True
    assert answer["kept"] is None


def test_after_a_loss_the_fewest_bytes_move() -> None:
    gone = [{**SERVES[0], "peer": "pz"}, SERVES[1]]
    plan = told(asked(0.1, stages=gone, held={"pb": [[3, 6]], "pc": [[0, 3]]}, lost=True, first=[0]))["plan"]
    assert [(s["first"], s["stop"], s["peer"]) for s in plan["stages"]] == [(0, 3, "pc"), (3, 6, "pb")]


def test_where_everybody_is_lost_it_says_that_nobody_is_there() -> None:
    body = json.loads(asked(lost=True, first=[0, 1]))
    answer = told(json.dumps({**body, "peers": [], "links": []}).encode())
    assert answer["infeasible"]["reason"].startswith("no peer has joined; the model needs 18 MiB")


WRONG: tuple[tuple[Callable[[], dict[str, Any]], str], ...] = (
    (lambda: {"stages": []}, "serving.stages"),
    (lambda: {"stages": SERVES[1:]}, "serving.stages"),
    (lambda: {"stages": SERVES[:1]}, "serving.stages"),
    (lambda: {"stages": [SERVES[0], {**SERVES[1], "first": 4}]}, "serving.stages"),
    (lambda: {"stages": [{**SERVES[0], "stop": 0}, SERVES[1]]}, "first before stop"),
    (lambda: {"stages": [{**SERVES[0], "stop": "3"}, SERVES[1]]}, "an integer"),
    (lambda: {"stages": SERVES * 40}, "at most 64"),
    (lambda: {"held": []}, "serving.held"),
    (lambda: {"held": {f"p{number}": [] for number in range(65)}}, "at most 64"),
    (lambda: {"held": {"pa": [[0, 7]]}}, "within 6 units"),
    (lambda: {"held": {"pa": [[3, 3]]}}, "within 6 units"),
    (lambda: {"held": {"pa": [[False, 3]]}}, "within 6 units"),
    (lambda: {"held": {"pa": [[0, 3, 6]]}}, "within 6 units"),
    (lambda: {"held": {"pa": [[0, 1]] * 7}}, "at most 6 runs"),
    (lambda: {"first": [2]}, "serving.first"),
    (lambda: {"first": [-1]}, "a whole number"),
    (lambda: {"first": [True]}, "a whole number"),
    (lambda: {"lost": 1}, "true or false"),
    (lambda: {"more": 1}, "only the fields"),
)


@pytest.mark.parametrize(("wrong", "why"), WRONG)
def test_what_is_no_request_is_refused(wrong: Callable[[], dict[str, Any]], why: str) -> None:
    with pytest.raises(RequestError, match=why):
        plan_bytes(asked(**wrong()))


@pytest.mark.parametrize("raw", [7, [], {}, {"stages": SERVES}])
def test_what_serves_is_an_object_of_stages_and_runs(raw: object) -> None:
    body = json.loads(asked())
    with pytest.raises(RequestError, match="serving"):
        plan_bytes(json.dumps({**body, "serving": raw}).encode())
