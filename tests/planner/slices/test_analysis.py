"""What an analysis says of a chain and of a graph: amounts of the manifest, the longest path, slices that fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from planner.importers.decoder_units import build_model
from planner.importers.safetensors import open_safetensors
from planner.importers.vision.folder import open_vision
from planner.model.graph_manifest import Term
from planner.model.manifest import decode_manifest
from planner.model.store import Store
from planner.reports.analysis_page import analysis_page
from planner.reports.analysis_text import analysis_lines
from planner.slices.analysis import WAYS, analyzed, analyzed_graph
from planner.types import WeightFormat
from tests.e2e.graph_model import put_towers
from tests.planner.importers.families.checkpoints import load, write_folder
from tests.planner.importers.vision import checkpoints


@pytest.mark.parametrize("weights", ["8bit", "f32"])
def test_a_decoder_is_told_by_its_units_and_slices(tmp_path: Path, weights: WeightFormat) -> None:
    store = Store(tmp_path / "store")
    source = open_safetensors(write_folder(load("mixtral"), tmp_path / "folder"), "<mix>")
    manifest = decode_manifest(store.manifest_bytes(build_model(source, weights, store)))
    found = analyzed(manifest, store)
    assert [unit.name for unit in found.units] == [unit.name for unit in manifest.units]
    assert found.bytes == sum(unit.resident_bytes for unit in manifest.units)
    assert found.path_flops == found.flops == sum(unit.flops_per_token for unit in manifest.units)
    embed, *others = found.units
    assert embed.slicing is None
    assert embed.whole
    kinds = {unit.kind: unit.slicing.kinds for unit in others if unit.slicing is not None}
    assert [name for name, _ in kinds["attn"]] == ["heads"]
    assert kinds["ffn"] == (("experts", 8),)
    assert kinds["head"] == (("vocabulary", manifest.vocab),)
    for unit, stored in zip(others, manifest.units[1:], strict=True):
        assert unit.slicing is not None
        whole = sum(tensor.bytes for tensor in stored.tensors)
        for ways, largest in zip(WAYS, unit.slicing.largest, strict=True):
            assert whole / ways <= largest < whole
    text = "\n".join(analysis_lines(found, ()))
    assert "experts (8)" in text
    assert "<mix>" not in analysis_page(found, ()), "names are text on a page"


def test_units_whose_rows_carry_shifts_are_told_as_they_are(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    decoder = open_vision(checkpoints.load("qwen2-vl").write(tmp_path / "folder")).decoder
    assert decoder is not None
    found = analyzed(decode_manifest(store.manifest_bytes(build_model(decoder, "f32", store))), store)
    by_kind = {unit.kind: unit for unit in found.units}
    assert "width is not known" in by_kind["attn"].whole
    assert by_kind["ffn"].slicing is not None
    assert [name for name, _ in by_kind["ffn"].slicing.kinds] == ["features"]
    assert by_kind["head"].slicing is not None
    assert analysis_lines(found, ())


def test_the_longest_path_of_a_graph_has_the_tower_with_more_to_compute(tmp_path: Path) -> None:
    store = Store(tmp_path)
    _, manifest = put_towers(store)
    units = tuple(
        replace(unit, flops=(Term(30.0 if unit.name.startswith("right") else 10.0, ("rows",)),))
        for unit in manifest.units
    )
    found = analyzed_graph(replace(manifest, units=units, sizes={"rows": 2}))
    assert found.per == "run"
    assert [unit.name for unit in found.units if unit.longest] == ["right.1", "right.2", "join"]
    assert (found.path_flops, found.flops) == (60 + 60 + 20, 60 + 60 + 20 + 20 + 20)
    assert all(unit.slicing is None and unit.whole for unit in found.units)
    text = "\n".join(analysis_lines(found, ()))
    assert text.count("longest") == 1 + 3
