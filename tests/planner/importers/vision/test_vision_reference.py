"""Every model that sees computes what transformers computes: towers alone and together, one picture and two, whole and
cut at every border; decoders with a picture in their prompt; pictures prepared by the graph of the import.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from peer.dataflow.value_codec import Array
from peer.member.sight import placed
from peer.runtime.arithmetic import proven
from peer.runtime.execution import Execution, Row
from peer.runtime.graph_runtime import GraphRuntime
from peer.runtime.kv_slots import KvSlots
from peer.session.given_rows import shift_at, shifted
from planner.importers.decoder_units import build_model
from planner.importers.onnx.importing import import_graph
from planner.importers.vision.folder import PIXELS, TOKENS, SourceVision, open_vision
from planner.model.compose import compose
from planner.model.graph_manifest import GraphManifest, decode_graph_manifest
from planner.model.lowering import make_shard
from planner.model.manifest import decode_manifest
from planner.model.store import Store
from tests.planner.importers.vision.checkpoints import (
    CASES,
    TALKING,
    Floats,
    load,
    picture_of,
    pixels_of,
    prompt_of,
    sides,
    texts_of,
)

TOLERANCE = 2e-4  # of the largest value
QUICK = (
    "clip",
    "siglip",
    "vit-classifier",
    "dinov2",
    "llava",
    "qwen2-vl",
    "qwen2.5-vl",
)  # the others are relatives of these
MOST_STEP = 1.5  # of 255, by which a prepared picture may differ: rounding of its resized colours


def cases(every: Iterable[str]) -> list[Any]:
    """Each in `make soak`, one of a kind in `make test`."""
    return [pytest.param(case, marks=() if case in QUICK else pytest.mark.soak) for case in every]


class Imported:
    """A checkpoint in a store of its own."""

    def __init__(self, case: str, root: Path) -> None:
        self.checkpoint = load(case)
        self.store = Store(root / "store")
        self.source: SourceVision = open_vision(self.checkpoint.write(root / "folder"), case)
        with self.source.graph(root) as graph:
            self.model_id = import_graph(graph, self.store)
        self.manifest: GraphManifest = decode_graph_manifest(self.store.manifest_bytes(self.model_id))
        self._parts: dict[tuple[int, int], GraphRuntime] = {}

    def inputs(self, pictures: slice = slice(None)) -> dict[str, Array]:
        given: dict[str, Array] = {PIXELS: pixels_of(self.checkpoint.name)[pictures]}
        if TOKENS in self.manifest.inputs:
            given[TOKENS] = np.array(texts_of(self.checkpoint.name), np.int64)
        return given

    def run(self, cuts: list[int], given: dict[str, Array]) -> dict[str, Array]:
        """The outputs, computed in parts between the borders `cuts`."""
        values = dict(given)
        ends = [0, *cuts, len(self.manifest.units)]
        for part in pairwise(ends):
            if part not in self._parts:
                composed = compose(self.manifest, self.store, *part)
                fused = self.manifest.fused
                self._parts[part] = GraphRuntime(composed, self.store.root / "blobs", 1, fused=fused)
            taken = {name: values[name] for name in self.manifest.needed(*part)}
            values |= self._parts[part].run(taken)
        return {name: values[name] for name in self.manifest.outputs}


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Imported]:
    """imported(case), each once."""
    return cache(lambda case: Imported(case, tmp_path_factory.mktemp(case)))


def close(found: Floats, expected: Floats) -> bool:
    return bool(np.abs(found - expected).max() <= TOLERANCE * np.abs(expected).max())


@pytest.mark.parametrize("case", cases(CASES))
def test_towers_compute_what_transformers_does(imported: Callable[[str], Imported], case: str) -> None:
    model = imported(case)
    expected = model.checkpoint.arrays
    whole = model.run([], model.inputs())
    compared = [name for name in expected if name in whole]
    assert compared
    for name in compared:
        assert close(whole[name], expected[name]), name
    for one in range(2):  # a picture alone
        alone = model.run([], model.inputs(slice(one, one + 1)))
        for name in compared:
            mine = expected[name] if name == "text_vectors" else expected[name][one : one + 1]
            assert close(alone[name], mine), name
    for border in range(1, len(model.manifest.units)):
        cut = model.run([border], model.inputs())
        assert all(np.array_equal(cut[name], whole[name]) for name in whole), border


@pytest.mark.parametrize(
    "case", cases(case for case in CASES if case != "idefics3")
)  # which resizes otherwise
def test_pictures_are_prepared_as_transformers_does(imported: Callable[[str], Imported], case: str) -> None:
    model = imported(case)
    picture = model.manifest.picture
    assert picture is not None
    session = ort.InferenceSession(str(model.store.blob_path(picture.graph.sha256)))
    (found,) = session.run(["pixels"], {"picture": picture_of(case)})
    expected, source = model.checkpoint.arrays["prepared"], model.source.preparing
    steps = np.abs(found[0] - expected) * np.array(source.std).reshape(3, 1, 1) / source.scale
    assert steps.max() <= MOST_STEP
    assert steps.mean() < 0.1


def test_components_are_towers_and_projector(imported: Callable[[str], Imported]) -> None:
    """So that a plan can put them on peers of their own."""
    assert {unit.component for unit in imported("clip").manifest.units} >= {"vision", "text"}
    assert {unit.component for unit in imported("llava").manifest.units} == {"vision", "projector"}


@pytest.mark.parametrize("case", cases(TALKING))
def test_a_decoder_reads_a_picture_as_transformers_does(
    imported: Callable[[str], Imported], case: str
) -> None:
    """Logits of every position of a prompt with a picture in it, and the greedy tokens behind."""
    model = imported(case)
    source, checkpoint = model.source, model.checkpoint
    assert source.decoder is not None
    assert source.sight is not None
    manifest = decode_manifest(model.store.manifest_bytes(build_model(source.decoder, "f32", model.store)))
    form = proven(model.store, manifest, "cpu", 1).form
    execution = Execution(
        make_shard(manifest, model.store, 0, len(manifest.units), exact=form.plain),
        threads=1,
        context=manifest.context,
        form=form,
    )
    rows = model.run([], model.inputs(slice(0, 1)))["rows"][0]
    prompt = np.array(prompt_of(case, len(rows)))
    first, after = int((prompt == source.sight.token).argmax()), 0
    if source.sight.axes > 1:
        grid = tuple(side // source.sight.square for side in sides(case))
        given = placed(first, rows, (grid[0], grid[1]), ())
        rows, after = given.tensor.array(), shift_at([given], given.stop)
    slots = KvSlots(1, manifest.context, form)
    slots.admit(b"0")
    execution.ensure(slots, 1, len(prompt) + len(checkpoint.greedy) + form.spare_tokens)
    hidden = execution.embed(prompt)
    hidden[first + len(rows) :] = shifted(hidden[first + len(rows) :], after)
    hidden[prompt == source.sight.token] = rows
    made = execution.prompt(hidden, Row(0, 0)).copy()
    assert close(execution.head(made), checkpoint.arrays["answer_logits"])
    tokens: list[int] = []
    for at in range(len(checkpoint.greedy)):
        tokens.append(int(execution.head(made[-1:])[0].argmax()))
        embedded = shifted(execution.embed(np.array(tokens[-1:])), after)
        made = execution.alone(embedded, Row(0, len(prompt) + at)).copy()
    assert tuple(tokens) == checkpoint.greedy
