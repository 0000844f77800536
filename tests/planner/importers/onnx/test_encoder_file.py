"""A real embedding model is cut like any other graph: at every border, the bits of one piece."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from planner.importers.bert import open_encoder
from planner.importers.onnx import proof
from planner.importers.onnx.encoder_file import encoder_file
from planner.importers.onnx.importing import import_graph
from planner.importers.onnx.sessions import opened, options, run
from planner.model.encoder import decode_encoder
from planner.model.encoder_graph import put_encoder
from planner.model.graph_manifest import decode_graph_manifest
from planner.model.store import Store


def test_a_real_encoder_gives_the_same_bits_at_every_border(minilm_folder: Path, tmp_path: Path) -> None:
    store = Store(tmp_path)
    encoder = put_encoder(open_encoder(minilm_folder, "minilm"), store)
    said: list[str] = []
    with encoder_file(store, encoder) as file:
        manifest = decode_graph_manifest(store.manifest_bytes(import_graph(file, store, say=said.append)))
        random = np.random.default_rng(3)
        feed = {
            "tokens": random.integers(0, 30_000, (3, 11)),
            "mask": np.ones((3, 11), np.float32),
        }
        session = opened(file.source, options(fused=manifest.fused))
        whole = run(session, feed)
    assert len(manifest.units) >= 6
    assert len({unit.graph.sha256 for unit in manifest.units}) < len(manifest.units)  # layers are alike
    blobs = {blob.sha256: blob for blob in manifest.blobs(0, len(manifest.units))}
    stored = sum(blob.bytes for blob in blobs.values())
    parts = decode_encoder(store.manifest_bytes(encoder)).parts
    assert stored < 1.05 * sum(part.blob.bytes for part in parts)  # each weight once
    for border in range(1, len(manifest.units)):
        found, _ = proof.in_parts(manifest, store, [border], feed)
        assert proof.difference(whole, found) is None, border
    assert len(said) <= 1
