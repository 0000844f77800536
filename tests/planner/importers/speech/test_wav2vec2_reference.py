"""A random model of Wav2Vec2's kind computes what transformers computes, cut at every border the same bits, and what is
written of its logits are the words of transformers at the same times.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from peer.dataflow.value_codec import Array
from peer.model.ctc_rules import likeliest, parts_of
from peer.runtime.graph_runtime import GraphRuntime
from planner.importers.onnx.importing import import_graph
from planner.importers.speech.wav2vec2 import open_wav2vec2
from planner.model.compose import compose
from planner.model.graph_manifest import GraphManifest, decode_graph_manifest, encode_graph_manifest
from planner.model.speech import CtcText
from planner.model.store import Store
from tests.planner.importers.speech.sounds import spoken
from tests.planner.importers.speech.wav2vec2_folders import CASES, write
from tests.planner.importers.speech.whisper_folders import REFERENCE

TOLERANCE = 2e-4  # of the largest value


class Model:
    """One case in a store of its own, and what transformers made."""

    def __init__(self, root: Path, case: str) -> None:
        self.store = Store(root / "store")
        with open_wav2vec2(write(root / "folder", case), case).graph(self.store.root / "tmp") as source:
            model_id = import_graph(source, self.store)
        self.manifest: GraphManifest = decode_graph_manifest(self.store.manifest_bytes(model_id))
        assert self.manifest.ctc is not None
        self.text: CtcText = self.manifest.ctc
        self.reference: dict[str, Any] = json.loads((REFERENCE / f"ctc-{case}.json").read_text())

    def logits(self, *borders: int) -> Array:
        """(frames, tokens) of the spoken file, its units run between these borders one after the other."""
        values: dict[str, Array] = {self.text.input: spoken()[None]}
        for first, stop in pairwise((0, *borders, len(self.manifest.units))):
            composed = compose(self.manifest, self.store, first, stop)
            runtime = GraphRuntime(composed, self.store.root / "blobs", 1, fused=self.manifest.fused)
            needed = self.manifest.needed(first, stop)
            values |= runtime.run({name: values[name] for name in needed})
        return values[self.text.logits][0]


@pytest.fixture(scope="module", params=CASES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    return Model(tmp_path_factory.mktemp("ctc"), request.param)


def test_its_logits_are_those_of_transformers_and_cut_at_every_border_the_same_to_the_bit(
    model: Model,
) -> None:
    whole = model.logits()
    assert whole.shape[0] == model.text.frames(len(spoken()))
    error = np.abs(whole[::2].ravel() - np.array(model.reference["logits"])).max()
    assert error < TOLERANCE * model.reference["largest"]
    assert len(model.manifest.units) >= 3
    for border in range(1, len(model.manifest.units)):
        assert model.logits(border).tobytes() == whole.tobytes(), border


def test_its_words_and_their_times_are_those_of_transformers(model: Model) -> None:
    parts, left = parts_of(likeliest(model.logits().astype(np.float32), 0), model.text, over=True)
    assert not len(left.ids)
    assert "".join(part.text for part in parts).split() == model.reference["text"].split()
    found = [(word.text, word.start_ms, word.end_ms) for part in parts for word in part.words]
    assert found == [(word.strip(), 20 * first, 20 * stop) for word, first, stop in model.reference["words"]]


def test_what_its_manifest_says_of_sound_is_read_again(model: Model) -> None:
    assert decode_graph_manifest(encode_graph_manifest(model.manifest)) == model.manifest
