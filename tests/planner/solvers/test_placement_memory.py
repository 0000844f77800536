"""A tab keeps the same units in more bytes than a process; plans count what each peer will hold."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from planner.cost.evaluator import stage_bytes
from planner.errors import RequestError
from planner.model.manifest import decode_manifest
from planner.service import request_codec
from planner.solvers.placement import plan
from planner.types import Holding, Infeasible, Link, PeerProfile, Plan, PlanRequest, Unit

CASES = json.loads((Path(__file__).parents[2] / "vectors" / "lowering.json").read_text("utf-8"))["cases"]
UNITS = (
    Unit("embed", "embed", 0, 0, 0, 2304, packed_bytes=30, wide_bytes=30),
    Unit("attn.0", "attn", 10, 1, 0, 2304, packed_bytes=9, wide_bytes=36),
    Unit("ffn.0", "ffn", 30, 1, 0, 2304, packed_bytes=27, wide_bytes=108),
    Unit("head", "head", 40, 1, 0, 4, packed_bytes=30, wide_bytes=120),
)


def peer(name: str, memory: int, holding: Holding) -> PeerProfile:
    times = {"embed": 1e-6, "attn": 1e-3, "ffn": 1e-3, "head": 1e-3}
    return PeerProfile(name, memory, 5, times, times, holding=holding)  # type: ignore[arg-type]


def request(*peers: PeerProfile) -> PlanRequest:
    names = [one.peer for one in peers]
    links = tuple(Link(a, b, 1e-3, 1e7) for a in names for b in names if a != b)
    return PlanRequest(UNITS, peers, links, 128, 1)


@pytest.mark.parametrize(
    ("holding", "whole"), [("mapped", 80), ("packed", 96), ("wide", 294)], ids=["mapped", "packed", "wide"]
)
def test_a_peer_is_charged_for_its_own_form(holding: Holding, whole: int) -> None:
    one = peer("a", 1000, holding)
    assert stage_bytes(request(one), one, 0, 4) == (whole, 0, 5)
    enough, short = replace(one, memory_bytes=whole + 5), replace(one, memory_bytes=whole + 4)
    assert isinstance(plan(request(enough)), Plan)
    lacking = plan(request(short))
    assert isinstance(lacking, Infeasible)
    assert lacking.missing_bytes == 1


def test_a_tab_and_a_process_share_a_model_that_neither_holds_alone() -> None:
    found = plan(request(peer("process", 60, "mapped"), peer("tab", 160, "wide")))
    assert isinstance(found, Plan)
    used = {stage.peer: stage.weight_bytes for stage in found.stages}
    by_holding = {"process": "mapped", "tab": "wide"}
    for stage in found.stages:
        how: Holding = by_holding[stage.peer]  # type: ignore[assignment]
        assert used[stage.peer] == sum(unit.held_bytes(how) for unit in UNITS[stage.first : stage.stop])
    assert set(used) == {"process", "tab"}


def test_units_that_say_nothing_weigh_the_same_everywhere() -> None:
    plain = Unit("ffn.0", "ffn", 30, 1, 0, 2304)
    assert {plain.held_bytes(how) for how in ("mapped", "packed", "wide")} == {30}


def test_the_form_survives_the_wire() -> None:
    asked = request(peer("tab", 100, "wide"))
    assert request_codec.decode_request(request_codec.encode_request(asked)) == asked


def test_an_unknown_form_is_refused() -> None:
    document = json.loads(request_codec.encode_request(request(peer("tab", 100, "wide"))))
    document["peers"][0]["holding"] = "folded"
    with pytest.raises(RequestError, match="mapped or packed or wide"):
        request_codec.decode_request(json.dumps(document).encode())


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_bytes_of_real_units(case: dict[str, object]) -> None:
    manifest = decode_manifest(str(case["manifest"]).encode())
    for unit, held in zip(manifest.planner_units(), case["held"], strict=True):  # type: ignore[call-overload]
        assert (unit.name, unit.held_bytes("wide"), unit.held_bytes("packed")) == (
            held["unit"],
            held["wasm"],
            held["webgpu"],
        )
