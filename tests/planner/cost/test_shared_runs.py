"""Stages beside equal ones of other models: what fits only so is found, and nothing is planned beyond a peer's room."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise, permutations, product

import pytest

from planner.cost import evaluator, shared_runs
from planner.cost.evaluator import make_stage, places_bytes, profiles, refuse
from planner.errors import RequestError
from planner.service.request_codec import decode_request, encode_request
from planner.solvers import placement, portfolio
from planner.types import Infeasible, Link, PeerProfile, Plan, PlanRequest, SharedRun, Stage, Unit

KINDS = ("embed", "attn", "ffn", "attn", "ffn", "head")
TIMES = {"embed": 1e-6, "attn": 2e-3, "ffn": 3e-3, "head": 1e-3}


def request(rooms: dict[str, int], shared: tuple[SharedRun, ...] = (), weights: int = 10) -> PlanRequest:
    """Six units of so many bytes each on peers with so much room."""
    units = tuple(Unit(f"u{at}", kind, weights, 1, 0, 4) for at, kind in enumerate(KINDS))
    peers = tuple(PeerProfile(name, room, 0, TIMES, TIMES) for name, room in rooms.items())
    links = tuple(Link(a, b, 1e-3, 1e6) for a, b in permutations(rooms, 2))
    return PlanRequest(units, peers, links, 16, 1, shared=shared)


def solved(asked: PlanRequest) -> Plan | Infeasible:
    return portfolio.solve(asked).answer


def test_a_model_fits_only_where_its_weights_are_loaded() -> None:
    loaded = SharedRun("b", 0, 6, 50)
    for rooms, shared, fits in (
        ({"a": 30, "b": 10}, (loaded,), True),
        ({"a": 30, "b": 10}, (), False),
        ({"a": 30, "b": 9}, (loaded,), False),
        ({"a": 30, "b": 10}, (SharedRun("b", 0, 5, 40),), False),  # cut otherwise
        ({"a": 10, "b": 10}, (SharedRun("b", 0, 5, 40), SharedRun("a", 5, 6, 0)), True),
    ):
        found = solved(request(rooms, shared))
        assert isinstance(found, Plan) == fits, (rooms, shared)
        if isinstance(found, Plan):
            assert refuse(request(rooms, shared), found.stages) is None
            assert any(shared_runs.NAME in why for why in found.why)


def test_what_is_missing_is_what_the_nearest_chain_lacks() -> None:
    found = solved(request({"a": 30, "b": 4}, (SharedRun("b", 0, 6, 50),)))
    assert found == replace(found, missing_bytes=6)
    alone = solved(request({"a": 30, "b": 4}))
    assert alone == replace(alone, missing_bytes=26)


def fitting(asked: PlanRequest) -> list[tuple[Stage, ...]]:
    """Every chain over the shared runs that fits, each peer once, by trying all."""
    runs = {(each.first, each.stop) for each in asked.shared}
    layouts = [
        layout
        for count in (1, 2, 3)
        for layout in product(sorted(runs), repeat=count)
        if layout[0][0] == 0 and layout[-1][1] == len(asked.units)
        if all(before[1] == after[0] for before, after in pairwise(layout))
    ]
    known = profiles(asked)
    chains = [
        tuple(make_stage(asked, known[peer], *run) for peer, run in zip(names, layout, strict=True))
        for layout in layouts
        for names in permutations(sorted(known), len(layout))
    ]
    return [stages for stages in chains if refuse(asked, stages) is None]


def drawn(rng: random.Random) -> PlanRequest:
    rooms = {name: rng.randrange(0, 70) for name in ("a", "b", "c")[: rng.randrange(1, 4)]}
    cuts = [0, *sorted(rng.sample(range(1, 6), rng.randrange(0, 3))), 6]
    runs = list(pairwise(cuts))
    shared = tuple(
        SharedRun(peer, first, stop, rng.choice((0, 10 * (stop - first), 10)))
        for first, stop in runs
        for peer in rooms
        if rng.random() < 0.6
    )
    return request(rooms, shared)


@pytest.mark.parametrize("seed", range(60))
def test_a_plan_is_found_whenever_one_over_shared_runs_fits_and_never_needs_more_than_there_is(
    seed: int,
) -> None:
    asked = drawn(random.Random(seed))
    some = any(each.bytes for each in asked.shared)
    able = fitting(asked) if some else []
    assert {tuple((s.peer, s.stop) for s in stages) for stages in shared_runs.chains(asked)} == {
        tuple((s.peer, s.stop) for s in stages) for stages in able
    }
    found, bare = solved(asked), solved(replace(asked, shared=()))
    assert isinstance(found, Plan) == (bool(able) or isinstance(bare, Plan))
    if isinstance(found, Plan):
        assert refuse(asked, found.stages) is None
        known = profiles(asked)
        for name, runs in evaluator.runs_by_peer(found.stages).items():
            assert places_bytes(asked, known[name], runs) <= known[name].memory_bytes
        if isinstance(bare, Plan):
            assert found.decode_s <= bare.decode_s
    elif isinstance(bare, Infeasible):
        assert found.missing_bytes <= bare.missing_bytes


def test_a_standby_fits_beside_what_is_loaded_there() -> None:
    asked = request({"a": 60, "b": 10}, (SharedRun("b", 0, 6, 50),))
    asked = replace(asked, redundancy=2000)
    found = placement.plan(asked)
    assert isinstance(found, Plan)
    assert [(stage.peer, stage.standbys) for stage in found.stages] == [("a", ("b",))]
    alone = placement.plan(replace(asked, shared=()))
    assert isinstance(alone, Plan)
    assert [(stage.peer, stage.standbys) for stage in alone.stages] == [("a", ())]


def test_what_is_shared_crosses_the_service_and_is_checked() -> None:
    asked = request({"a": 60, "b": 10}, (SharedRun("b", 0, 6, 50),))
    assert decode_request(encode_request(asked)) == asked
    for wrong in (
        (SharedRun("b", 0, 7, 1),),
        (SharedRun("b", 3, 3, 0),),
        (SharedRun("z", 0, 6, 1),),
        (SharedRun("b", 0, 6, 61),),
        (SharedRun("b", 0, 6, 1), SharedRun("b", 0, 6, 2)),
    ):
        with pytest.raises(RequestError, match="shared"):
            decode_request(encode_request(replace(asked, shared=wrong)))
