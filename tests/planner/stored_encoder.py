"""Encoders of folders in a store: imported in this process, since one of its own gives way to all others."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from planner.importers.encoders.file import encoder_file
from planner.importers.encoders.folder import OpenedEncoder
from planner.importers.onnx.steps import Steps
from planner.importers.onnx.text_inputs import text_inputs
from planner.model.graph_manifest import decode_graph_manifest, encode_graph_manifest
from planner.model.store import Store


def put_encoder(source: OpenedEncoder, store: Store) -> str:
    """The id of the model."""
    with encoder_file(source, store) as asked, tempfile.TemporaryDirectory() as folder:
        steps = Steps(asked, Path(folder))
        steps.read()
        done, total = 0, steps.cut()
        while done < total:
            done, total, said = steps.prove()
            assert not said
        manifest = decode_graph_manifest(steps.finish())
        assert asked.tokenizer is not None
        found = text_inputs(manifest, asked.tokenizer, asked.longest, labels=asked.labels)
        assert found is not None
        content, text = found
        made = Store(Path(folder) / "store")
        for blob in manifest.blobs(0, len(manifest.units)):
            store.put_blob([made.blob_path(blob.sha256).read_bytes()])
    store.put_blob([content])
    return store.put_manifest(encode_graph_manifest(replace(manifest, text=text)))
