"""A model of Whisper's shape: its encoder and its decoder are components, and every border is equal to the bit."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.model.graph_manifest import GraphManifest
from tests.planner.importers.onnx.cut_models import assert_equal, cut_run, feed_of, imported, run
from tests.planner.importers.onnx.whisper_shape import whisper
from tests.seeds import SERIES


def check(folder: Path, **shape: int) -> GraphManifest:
    made = whisper(**shape)
    found = imported(folder, made)
    manifest = found.manifest
    joins = [line for line in found.said if not line.endswith("so they are not joined")]
    assert joins == []
    assert len(manifest.units) >= made.units
    for sizes in ({}, {"frames": 90, "length": 5}):
        feed = {**feed_of(found, **sizes)}
        feed["tokens"] = abs(feed["tokens"]) % 100
        expected = run(str(found.source), feed, fused=manifest.fused)
        for cut in range(1, len(manifest.units)):
            assert_equal(cut_run(found, [cut], feed), expected)
        assert_equal(cut_run(found, range(1, len(manifest.units)), feed), expected)
    return manifest


@pytest.mark.slow
def test_a_model_of_whispers_shape_is_cut_into_encoder_and_decoder(tmp_path: Path) -> None:
    manifest = check(tmp_path)
    parts = {unit.component for unit in manifest.units}
    assert parts == {"encoder", "decoder"}
    for unit in manifest.units:
        if unit.component == "encoder":
            assert all(name == "mel" or name.startswith("/encoder/") for name in unit.inputs)
    looks = [
        unit for unit in manifest.units if unit.component == "decoder" and "/encoder/" in "".join(unit.inputs)
    ]
    assert looks, "the decoder looks at what the encoder made"


@pytest.mark.series
@pytest.mark.slow
@pytest.mark.parametrize("size", ["tiny"] if SERIES == "soak" else ["a quarter of tiny"])
def test_a_model_of_the_size_of_whisper_tiny(tmp_path: Path, size: str) -> None:
    """As wide, with as many words and as long a sound; the quarter has narrower layers and fewer frames and words."""
    if size == "tiny":
        manifest = check(tmp_path, width=384, vocab=51865, frames=3000, length=16)
        assert sum(unit.params for unit in manifest.units) > 35e6
    else:
        check(tmp_path, width=192, vocab=5187, frames=750, length=16)
