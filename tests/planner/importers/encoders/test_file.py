"""A real embedding model is cut into its parts, and gives the same bits at every border."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from planner.importers.encoders.file import encoder_file
from planner.importers.encoders.folder import open_encoder
from planner.importers.onnx import proof
from planner.importers.onnx.importing import import_graph
from planner.importers.onnx.sessions import opened, options, run
from planner.model.graph_manifest import decode_graph_manifest
from planner.model.store import Store


def test_a_real_encoder_gives_the_same_bits_at_every_border(minilm_folder: Path, tmp_path: Path) -> None:
    store = Store(tmp_path)
    source = open_encoder(minilm_folder, "minilm")
    said: list[str] = []
    with encoder_file(source, store) as file:
        manifest = decode_graph_manifest(store.manifest_bytes(import_graph(file, store, say=said.append)))
        random = np.random.default_rng(3)
        feed = {
            "tokens": random.integers(0, 30_000, (3, 11)),
            "mask": np.ones((3, 11), np.float32),
        }
        session = opened(file.source, options(fused=manifest.fused))
        whole = run(session, feed)
    assert not said
    assert [unit.component for unit in manifest.units] == ["embeddings", *["encoder"] * 12, "pooling"]
    assert len({unit.graph.sha256 for unit in manifest.units}) == 4  # layers are alike
    assert manifest.text is not None
    assert (manifest.text.vectors, manifest.text.scores, manifest.text.longest) == ("embedding", None, 256)
    blobs = {blob.sha256: blob for blob in manifest.blobs(0, len(manifest.units))}
    numbers = sum(tensor.nbytes for ours in source.files for tensor in [source.tensor(ours)])
    assert sum(blob.bytes for blob in blobs.values()) < 1.01 * numbers  # each weight once
    for border in range(1, len(manifest.units)):
        found, _ = proof.in_parts(manifest, store, [border], feed)
        assert proof.difference(whole, found) is None, border
