"""Every family of encoders computes what transformers does: rows of 64 positions, vectors of texts and scores of pairs
as sentence-transformers makes them, alone and together, whole and cut at every border.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from peer.gateway.embedder import LocalEncoder
from peer.model.text_inputs import TextReader, TextRow
from planner.importers.distance_buckets import buckets_around
from planner.importers.encoders.folder import open_encoder
from planner.importers.encoders.table import ENCODERS
from planner.importers.onnx import proof
from planner.model.graph_manifest import GraphManifest, decode_graph_manifest
from planner.model.store import Store
from tests.planner.importers.encoders.checkpoints import (
    CASES,
    POSITIONS,
    QUERY,
    REAL,
    REFERENCE,
    TEXTS,
    Floats,
    load,
)
from tests.planner.stored_encoder import put_encoder
from tests.planner.tiny_models import safetensors_bytes

TOLERANCE = 2e-4  # of the largest number of all rows
CLOSE = 1e-5  # of numbers of vectors of length one, and of scores
BARE = 2e-5  # of the largest number of a vector that is as long as it comes


class Imported:
    """A checkpoint in a store of its own."""

    def __init__(self, name: str, root: Path) -> None:
        self.checkpoint = load(name)
        self.folder = self.checkpoint.write(root / "folder")
        self.store = Store(root / "store")
        self.source = open_encoder(self.folder, "model")
        self.model_id = put_encoder(self.source, self.store)
        self.manifest: GraphManifest = decode_graph_manifest(self.store.manifest_bytes(self.model_id))
        assert self.manifest.text is not None
        tokenizer = self.store.blob_path(self.manifest.text.tokenizer.sha256)
        self.reader = TextReader(self.manifest, tokenizer.read_bytes())

    @property
    def rows(self) -> list[TextRow]:
        """The tokens of all texts, or pairs."""
        if self.checkpoint.case.scores:
            return self.reader.pairs(QUERY, TEXTS)
        return self.reader.rows(TEXTS)


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Imported]:
    """imported(case), each once."""
    return cache(lambda name: Imported(name, tmp_path_factory.mktemp(name)))


def made(model: Imported, groups: Sequence[Sequence[TextRow]]) -> Floats:
    """What the model makes, each group as one batch."""
    encoder = LocalEncoder(model.store, model.model_id, 1)

    async def here(work: Callable[[], Any]) -> Any:
        return work()

    found = [asyncio.run(encoder.outputs(group, here)) for group in groups]
    return np.concatenate(found)


@pytest.mark.parametrize("name", CASES)
def test_vectors_and_scores_are_those_of_sentence_transformers(
    imported: Callable[[str], Imported], name: str
) -> None:
    model = imported(name)
    expected, case = model.checkpoint.made, model.checkpoint.case
    bare = not case.scores and not case.labels and "Normalize" not in case.modules
    most = BARE * float(np.abs(expected).max()) if bare else CLOSE * max(1.0, float(np.abs(expected).max()))
    together, alone = made(model, [model.rows]), made(model, [[row] for row in model.rows])
    assert together.shape == expected.shape
    assert np.abs(together - expected).max() < most
    assert np.abs(alone - expected).max() < most
    assert len({tuple(row.ids) for row in model.rows}) == len(TEXTS)  # no two texts are the same tokens
    assert np.ptp(expected, axis=0).max() > 100 * most  # and their numbers differ


@pytest.mark.parametrize("name", CASES)
def test_rows_of_64_positions_are_those_of_transformers(
    imported: Callable[[str], Imported], name: str
) -> None:
    model = imported(name)
    checkpoint, manifest = model.checkpoint, model.manifest
    feed = model.reader.filled([TextRow(checkpoint.tokens)])
    assert feed["tokens"].shape == (1, POSITIONS)
    last = len(manifest.units) - 1
    values = proof.part(manifest, model.store, 0, last, feed)
    ((found,),) = (each for each in values.values() if each.ndim == 3)
    if model.source.shape.norm_first:  # the last norm stands where the rows become a vector
        found = (
            (found - found.mean(-1, keepdims=True))
            / np.sqrt(found.var(-1, keepdims=True) + model.source.shape.norm_epsilon)
            * model.source.tensor("final.norm.weight")
        )
    assert np.abs(found - checkpoint.rows).max() < TOLERANCE * np.abs(checkpoint.rows).max()


@pytest.mark.parametrize("name", CASES)
def test_cut_at_every_border_it_makes_the_bits_of_the_whole(
    imported: Callable[[str], Imported], name: str
) -> None:
    model = imported(name)
    manifest, rows = model.manifest, model.rows
    blocks = model.source.shape.blocks
    case = model.checkpoint.case
    ending = "classifier" if case.scores or case.labels else "pooling"
    assert [unit.component for unit in manifest.units] == ["embeddings", *["encoder"] * 2 * blocks, ending]
    count = len(manifest.units)
    feed = model.reader.filled(rows)
    whole = proof.part(manifest, model.store, 0, count, feed)
    for cuts in (*([border] for border in range(1, count)), list(range(1, count))):
        found, _ = proof.in_parts(manifest, model.store, cuts, feed)
        assert proof.difference({each: whole[each] for each in manifest.outputs}, found) is None, cuts
    for border in range(1, count):  # a block needs nothing of another one but its rows
        crossing = [len(manifest.value(name).shape) for name in manifest.needed(border, count)]
        assert crossing.count(3) == 1
        assert crossing.count(4) <= 1  # of what is not seen


def test_every_family_is_compared() -> None:
    kinds = {case.kind for case in CASES.values() if not case.scores and not case.labels}
    assert kinds == {called for family in ENCODERS for called in family.models}
    assert {case.kind for case in CASES.values() if case.scores} == kinds
    assert {path.stem for path in REFERENCE.iterdir()} == {*CASES, REAL}


def test_a_model_that_sorts_says_its_labels(imported: Callable[[str], Imported]) -> None:
    for name, case in CASES.items():
        if case.labels:
            text = imported(name).manifest.text
            assert text is not None
            assert (text.classes, text.labels) == ("classes", case.labels)


def test_newer_names_of_nomic_are_the_same_model(tmp_path: Path) -> None:
    checkpoint = load("nomic")
    folder = checkpoint.write(tmp_path / "folder")
    old = open_encoder(folder)
    renamed: dict[str, Floats] = {}
    for name, weight in checkpoint.weights().items():
        called = name.removeprefix("encoder.")
        for before, after in (
            ("emb_ln", "embeddings.LayerNorm"),
            ("attn.out_proj", "self_attn.o_proj"),
            ("fc11", "up_proj"),
            ("fc12", "gate_proj"),
            ("fc2", "down_proj"),
            ("norm1", "post_attention_layernorm"),
            ("norm2", "post_mlp_layernorm"),
        ):
            called = called.replace(before, after)
        if "Wqkv" in called:
            for part, rows in zip("qkv", np.split(weight, 3), strict=True):
                renamed[called.replace("attn.Wqkv", f"self_attn.{part}_proj")] = rows
        else:
            renamed[called] = weight
    other = checkpoint.write(tmp_path / "other")
    (other / "model.safetensors").write_bytes(safetensors_bytes(renamed, "F32"))
    new = open_encoder(other)
    assert new.files.keys() == old.files.keys()
    for ours in new.files:
        np.testing.assert_array_equal(new.tensor(ours), old.tensor(ours))


def test_distances_fall_into_the_buckets_of_transformers() -> None:
    kept = json.loads((REFERENCE / "mpnet.json").read_text())["buckets"]
    assert buckets_around(32, 128, len(kept) // 2 + 1).tolist() == kept
