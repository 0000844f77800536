"""Real models of short names: cut at every border, equal to the bit, in units that peers can share out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from planner.errors import CorruptModel
from planner.importers.onnx.asked import SourceGraph
from planner.importers.onnx.importing import import_graph
from planner.importers.onnx.wake_words import SAMPLES, join_wake_words
from planner.importers.registry import GRAPH_NAMES
from planner.model.graph_manifest import amount, decode_graph_manifest
from planner.model.store import Store
from tests.planner.importers.onnx.cut_models import Imported, assert_equal, cut_run, run

UNITS = {"ppocr-v4-det": 12, "ppocr-v4-cls": 8, "ppocr-v4-rec": 8, "silero-vad": 3, "openwakeword": 6}
OTHER_SIZES = {
    "ppocr-v4-det": {"p2o.DynamicDimension.1": 64, "p2o.DynamicDimension.2": 96},
    "ppocr-v4-cls": {"x.3": 96},
    "ppocr-v4-rec": {"p2o.DynamicDimension.1": 80},
    "silero-vad": {"batch": 2},
    "openwakeword": {},
}
LARGEST = {"silero-vad": 0.6}  # of a unit, as a part of all work: its If cannot be cut


@pytest.mark.slow
@pytest.mark.parametrize("name", GRAPH_NAMES)
def test_a_real_model_is_cut_and_equal(tmp_path: Path, name: str, graph_file: Callable[[str], Path]) -> None:
    source = graph_file(name)
    store = Store(tmp_path)
    said: list[str] = []
    asked = SourceGraph(source, name, sizes=GRAPH_NAMES[name].sizes)
    manifest = decode_graph_manifest(store.manifest_bytes(import_graph(asked, store, say=said.append)))
    joins = [line for line in said if not line.endswith("so they are not joined")]  # depends on the processor
    assert joins == [], "every border is equal to the bit"
    assert len(manifest.units) >= UNITS[name]
    flops = [amount(unit.flops, manifest.sizes) for unit in manifest.units]
    assert max(flops) < LARGEST.get(name, 0.4) * sum(flops)
    sizes = {**manifest.sizes, **OTHER_SIZES[name]}
    rng = np.random.default_rng(1)
    feed = {}
    for value in map(manifest.value, manifest.inputs):
        shape = [size if isinstance(size, int) else sizes[size] for size in value.shape]
        feed[value.name] = np.asarray(
            rng.standard_normal(shape) if value.dtype == "float32" else 16000, value.dtype
        )
    found = Imported(manifest, store, said, source)
    borders = range(1, len(flops))
    half = next((place for place in borders if 2 * sum(flops[:place]) >= sum(flops)), borders[-1])
    expected = run(str(source), feed, fused=manifest.fused)
    assert_equal(cut_run(found, [half], feed), expected)
    assert_equal(cut_run(found, range(1, len(flops)), feed), expected)


@pytest.mark.slow
def test_wake_words_joined_are_the_three_models_in_a_row(graph_file: Callable[[str], Path]) -> None:
    joined = graph_file("openwakeword")
    spectrogram, embedding, keyword = (
        str(joined.parent / Path(file.member).name) for file in GRAPH_NAMES["openwakeword"].files
    )
    sound = np.random.default_rng(2).standard_normal((1, SAMPLES), np.float32) * 1000
    frames = run(spectrogram, {"input": sound})["output"].reshape(-1, 32)[-196:] / np.float32(
        10
    ) + np.float32(2)
    windows = np.stack([frames[first : first + 76] for first in range(0, 128, 8)])[..., None]
    rows = run(embedding, {"input_1": windows})["conv2d_19"].reshape(1, 16, 96)
    assert_equal(run(str(joined), {"sound": sound}), {"score": run(keyword, {"x.1": rows})["53"]})


@pytest.mark.parametrize("content", [b"", b"no model", b"\x0a\x00"])
def test_what_is_no_wake_word_model_is_not_joined(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(content)
    with pytest.raises(CorruptModel, match="wake words cannot be joined"):
        join_wake_words([file, file, file])
