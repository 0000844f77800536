"""What decoders of one mesh save by weights that they share: of each part of a stage that a process holds twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from peer.coordination.shared_weights import saved_by
from peer.state.generated.commands import Decoder, Member, PlanRecord, PlanStage, Profile
from peer.state.mesh_state import MeshState
from planner.importers.decoder_units import build_model
from planner.importers.gguf import open_gguf
from planner.model.manifest import Manifest, decode_manifest
from planner.model.store import Store
from planner.types import Holding
from tests.planner.tiny_models import TinyModel

PROFILE = Profile(1 << 30, 1, {}, {}, {}, 1, "cpu", 1)


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    home = tmp_path_factory.mktemp("model")
    store = Store(home / "store")
    model = build_model(open_gguf(TinyModel().write_gguf(home / "m.gguf"), "m"), "8bit", store)
    return decode_manifest(store.manifest_bytes(model))


def plan(*stages: tuple[str, int, int]) -> PlanRecord:
    return PlanRecord(1, tuple(PlanStage(first, stop, peer) for peer, first, stop in stages), 0, 0)


def mesh(own: PlanRecord | None, further: PlanRecord, provider: str = "cpu") -> MeshState:
    member = Member("p", "p", True, "measured", profile=replace(PROFILE, provider=provider))
    decoder = Decoder("d" * 64, 4, 64, 1, "latency", plan=further)
    return replace(MeshState(), members={"p": member}, plan=own, decoders={"other": decoder})


def test_equal_parts_of_stages_are_loaded_once(manifest: Manifest) -> None:
    units = manifest.units
    end = len(units)
    everything = sum(blob.bytes for blob in {*manifest.blobs(0, end)})
    body = sum(unit.resident_bytes for unit in units[1 : end - 1])
    head = units[-1].resident_bytes
    other_body = replace(manifest, units=(*units[:1], replace(units[1], blob=units[2].blob), *units[2:]))
    whole = plan(("p", 0, end))

    def held(how: Holding) -> int:
        return sum(unit.held_bytes(how) for unit in manifest.planner_units())

    for own, further, twin, provider, loaded in (
        (whole, whole, manifest, "cpu", body + head),
        (whole, whole, manifest, "wasm", held("wide")),  # a tab loads whole stages once
        (whole, whole, manifest, "webgpu", held("packed")),
        (whole, whole, other_body, "wasm", 0),
        (whole, plan(("p", 2, end)), manifest, "wasm", 0),
        (whole, whole, other_body, "cpu", head),
        (whole, plan(("p", 2, end)), manifest, "cpu", head),  # cut otherwise
        (plan(("q", 0, end)), whole, manifest, "cpu", 0),
        (plan(("p", 0, 2), ("q", 2, end)), plan(("p", 0, 2), ("q", 2, end)), manifest, "cpu", None),
    ):
        found = saved_by(mesh(own, further, provider), manifest, {"d" * 64: twin}, {})
        if loaded is not None:
            assert found.loaded_bytes == loaded
        if twin is manifest:
            assert found.stored_bytes == everything
    assert found.loaded_bytes == body + head, "at both peers together"
    assert saved_by(mesh(whole, whole), manifest, {}, {}).loaded_bytes == 0, "no manifest is known"
    assert saved_by(mesh(None, whole), None, {"d" * 64: manifest}, {}).stored_bytes == 0
