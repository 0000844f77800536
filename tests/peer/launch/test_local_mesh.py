"""Where a demo cuts its model, and what its peers lend."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peer.launch.local_mesh import SESSIONS, even_cuts, room, unit_bytes
from peer.member.lending import profile_of
from peer.member.peer_options import Lent, PeerOptions, lent
from peer.runtime.self_benchmark import UnitTimes
from peer.state.generated.commands import Member
from peer.state.mesh_state import planner_profile
from planner.cost import evaluator
from planner.importers.decoder_units import build_model
from planner.importers.safetensors import open_safetensors
from planner.model.manifest import Manifest, decode_manifest
from planner.model.store import Store
from planner.solvers.placement import plan
from planner.types import Link, Plan, PlanRequest, Stage, WeightFormat
from tests.planner.importers.families.checkpoints import load, write_folder

SIZES = st.lists(st.integers(1, 1000), min_size=1, max_size=40)
CONTEXT: Final = 128
OVERHEADS: Final = (330 << 20, 140 << 20, 215 << 20, 90 << 20)  # of peers, the founder's first
MANIFESTS: Final[dict[str, tuple[str, dict[str, Any], WeightFormat]]] = {
    "untied": ("llama", {}, "8bit"),
    "tied": ("qwen2", {}, "8bit"),
    "windows": ("gemma3", {}, "f16"),
    "experts": ("mixtral", {}, "4bit"),
    "positions": ("gpt2", {}, "f32"),
    "halves side by side": ("falcon-7b", {}, "8bit"),
    "a large vocabulary": ("gemma3", {"vocab_size": 8192}, "8bit"),
    "a large vocabulary, untied": ("llama", {"vocab_size": 8192}, "4bit"),
}


@given(SIZES, st.integers(1, 8))
def test_each_peer_has_a_part_and_room_for_it(sizes: list[int], peers: int) -> None:
    peers = min(peers, len(sizes))
    cuts = even_cuts(sizes, peers)
    stages = [sum(sizes[first:stop]) for first, stop in pairwise((0, *cuts, len(sizes)))]
    assert len(stages) == peers
    assert all(first < stop for first, stop in pairwise((0, *cuts, len(sizes))))
    assert room(sizes, peers, cuts).bytes >= max(stages)
    assert room(sizes, peers) == room(sizes, peers, cuts)


def test_a_large_head_is_not_met_by_a_third_of_all_units() -> None:
    assert even_cuts([1] * 30, 3) == (10, 20)
    sizes = [30, *[1] * 34, 60]  # an embedding, blocks, and a head over a large vocabulary
    cuts = even_cuts(sizes, 3)
    assert cuts == (13, 35)
    assert room(sizes, 3, cuts).bytes == 60


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Manifest]:
    """manifest(shape), each made once."""
    made: dict[str, Manifest] = {}

    def of(shape: str) -> Manifest:
        if shape not in made:
            case, changes, weights = MANIFESTS[shape]
            root: Path = tmp_path_factory.mktemp("shape")
            store = Store(root / "store")
            source = open_safetensors(write_folder(load(case).but(**changes), root / "folder"), "model")
            made[shape] = decode_manifest(store.manifest_bytes(build_model(source, weights, store)))
        return made[shape]

    return of


@pytest.mark.parametrize("peers", [2, 3, 4])
@pytest.mark.parametrize("shape", MANIFESTS)
def test_what_peers_lend_covers_the_plan(manifest: Callable[[str], Manifest], shape: str, peers: int) -> None:
    """Whatever each process occupies itself, and whichever of them gets which stage."""
    model = manifest(shape)
    sizes = unit_bytes(model, CONTEXT)
    cuts = even_cuts(sizes, peers)
    lends = room(sizes, peers, cuts)
    request = requested(model, [lends] * peers)
    for names in permutations(peer.peer for peer in request.peers):
        stages = [
            Stage(first, stop, name)
            for name, (first, stop) in zip(names, pairwise((0, *cuts, len(sizes))), strict=True)
        ]
        assert evaluator.refuse(request, stages) is None
    assert isinstance(plan(request), Plan)
    short = Lent(lends.bytes - 1, lends.beside_program)
    fuller = max(sum(sizes[first:stop]) for first, stop in pairwise((0, *cuts, len(sizes))))
    if lends.bytes == fuller:  # not a byte more than the fullest stage needs
        assert evaluator.refuse(requested(model, [short] * peers), stages) is not None


def requested(model: Manifest, lends: list[Lent]) -> PlanRequest:
    """What the planner is asked when peers have measured themselves that lend so much."""
    kinds = {unit.kind for unit in model.planner_units()}
    members = []
    for number, each in enumerate(lends):
        options = PeerOptions(
            *(f"peer {number}", each.bytes, 1, "cpu", "auto", ()), beside_program=each.beside_program
        )
        seconds = dict.fromkeys(kinds, 0.001)
        times = UnitTimes(seconds, seconds, 0.001, {}, OVERHEADS[number])
        profile = profile_of(options.measured(times.lasting_bytes), times)
        members.append(Member(options.name, options.name, True, "measured", profile))
    names = [member.peer for member in members]
    links = tuple(Link(src, dst, 0.001, 1e7) for src in names for dst in names if src != dst)
    peers = tuple(map(planner_profile, members))
    return PlanRequest(model.planner_units(), peers, links, CONTEXT, SESSIONS)


def test_memory_is_lent_in_all_or_beside_the_program() -> None:
    assert lent("2GiB") == Lent(2 << 30)
    assert lent(" +300MiB") == Lent(300 << 20, beside_program=True)
    assert [lent(each.words) for each in (Lent(5 << 20), Lent(5 << 20, True))] == [
        Lent(5 << 20),
        Lent(5 << 20, True),
    ]
    with pytest.raises(argparse.ArgumentTypeError, match="expected a size such as"):
        lent("++1GiB")
    inside = PeerOptions("p", 100, 1, "cpu", "auto", ())
    assert inside.measured(7) == inside
    beside = PeerOptions("p", 100, 1, "cpu", "auto", (), beside_program=True)
    assert (beside.measured(7).memory_bytes, beside.measured(7).beside_program) == (107, False)
    assert beside.measured(7).measured(7) == beside.measured(7)
