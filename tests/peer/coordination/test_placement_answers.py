"""What a server answers to a tab that coordinates: what a process would propose in its place."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from peer.coordination.offer_placement import placed, settle, wanted_in
from peer.coordination.placement_answers import answered, placements
from peer.state.generated.commands import MemberLeft, ModelOffered, ModelPlaced
from peer.state.member_commands import decode_command
from peer.state.mesh_state import MeshState, encode_state
from planner.errors import RequestError
from planner.model.graph_manifest import decode_graph_manifest
from planner.model.graph_work import work_of
from planner.model.store import Store
from planner.service.planning_jobs import PlanningJobs
from tests.e2e.graph_model import put_towers
from tests.peer.coordination.offered_models import FLOPS, grown, mesh

LOST = "d" * 64


def asked(state: MeshState) -> dict[str, Any]:
    return {
        "state": json.loads(encode_state(state)),
        "speaks": dict.fromkeys(state.members, 8),
        "flops": FLOPS,
    }


def told(state: MeshState, store: Store) -> list[ModelPlaced]:
    found = json.loads(placements(json.dumps(asked(state)).encode(), store.root))
    commands = [decode_command(json.dumps(each).encode()) for each in found]
    return [each for each in commands if isinstance(each, ModelPlaced)]


def test_a_tab_gets_what_a_process_would_propose(tmp_path: Path) -> None:
    store = Store(tmp_path)
    model, _ = put_towers(store)
    state = grown(mesh(a=900, b=900, c=900), ModelOffered(model, "towers"), ModelOffered(LOST, "lost"))
    wanted = wanted_in(state, lambda _: 8, FLOPS)
    assert wanted is not None
    work = work_of(decode_graph_manifest(store.manifest_bytes(model)))
    own = settle(wanted, {model: work, LOST: "unknown"})
    by_name = {each.name: each for each in told(state, store)}
    assert by_name["towers"] == placed(state, "towers", wanted.offers["towers"], own["towers"])
    assert by_name["towers"].stages
    assert by_name["lost"].stages == ()
    assert by_name["lost"].why[0].startswith("its manifest cannot be had: ")
    after = grown(state, *by_name.values())
    assert told(after, store) == [], "what stays is not said again"
    primary = by_name["towers"].stages[0].primary
    again = {each.name: each for each in told(grown(after, MemberLeft(primary, "lost")), store)}
    assert primary not in {
        peer for stage in again["towers"].stages for peer in (stage.primary, *stage.standbys)
    }
    assert told(replace(after, offers={}), store) == []


def without(field: str) -> Callable[[dict[str, Any]], bytes]:
    return lambda body: json.dumps({name: value for name, value in body.items() if name != field}).encode()


def with_field(field: str, value: object) -> Callable[[dict[str, Any]], bytes]:
    return lambda body: json.dumps({**body, field: value}).encode()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda _: b"",
        lambda _: b"[]",
        lambda _: b"\xff",
        lambda body: json.dumps(body).encode()[:-1],
        without("flops"),
        with_field("more", 1),
        with_field("state", {}),
        with_field("state", "no"),
        with_field("speaks", {"a": -1}),
        with_field("speaks", ["a"]),
        with_field("flops", {"attn": "many"}),
    ],
)
def test_what_is_no_question_is_refused(wrong: Callable[[dict[str, Any]], bytes], tmp_path: Path) -> None:
    with pytest.raises(RequestError):
        placements(wrong(asked(mesh(a=30))), tmp_path)


async def test_it_is_answered_in_a_process_of_its_own(tmp_path: Path) -> None:
    store, jobs = Store(tmp_path), PlanningJobs()
    model, _ = put_towers(store)
    body = json.dumps(asked(grown(mesh(a=900), ModelOffered(model, "towers")))).encode()
    try:
        assert await answered(store, jobs, body) == placements(body, store.root) != b"[]"
        with pytest.raises(RequestError):
            await answered(store, jobs, b"{}")
    finally:
        await jobs.close()
