"""What the planner is told of slices is never less than a slice has."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.cost import evaluator
from planner.importers.decoder_units import build_model
from planner.importers.safetensors import open_safetensors
from planner.model.manifest import decode_manifest
from planner.model.store import Store
from planner.slices.cuts import cut_units
from planner.slices.sliced_units import cut_bytes, unit_parts
from planner.slices.slicing import sliced
from planner.types import PeerProfile, PlanRequest, WeightFormat
from tests.planner.importers.families.checkpoints import load, write_folder


@pytest.mark.parametrize("family", ["llama", "mixtral"])
@pytest.mark.parametrize("weights", ["8bit", "f32"])
@pytest.mark.parametrize("shares", [(1, 1), (2, 1), (3, 2, 2), (1, 1, 1)])
def test_no_slice_has_more_bytes_than_the_planner_reckons(
    tmp_path: Path, family: str, weights: WeightFormat, shares: tuple[int, ...]
) -> None:
    store = Store(tmp_path / "store")
    source = open_safetensors(write_folder(load(family), tmp_path / "folder"), "x")
    manifest = decode_manifest(store.manifest_bytes(build_model(source, weights, store)))
    units = cut_units(manifest, store)
    peer = PeerProfile("a", 1, 0, {}, {})
    asked = PlanRequest(units, (peer,), (), 8, 1)
    assert units[0].cut is None, "the embedding is read as it is needed"
    for at, (unit, stored) in enumerate(zip(units, manifest.units, strict=True)):
        if at == 0:
            continue
        assert unit.cut is not None
        assert unit.cut.pieces > 1
        assert unit.cut.sent_bytes > 0
        parts = unit_parts(stored, store)
        made = sliced(parts, [float(share) for share in shares])
        for share, each in zip(shares, made.slices, strict=True):
            if each is not None and len(shares) <= unit.cut.pieces:
                reckoned = evaluator.stage_bytes(asked, peer, at, at + 1, share, sum(shares))[0]
                assert cut_bytes(parts, each) <= reckoned * 1.01
