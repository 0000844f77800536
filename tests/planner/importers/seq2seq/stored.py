"""Encoder-decoder models of folders in a store: imported here, since a process of its own gives way to all others."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from planner.importers.decoder_units import build_model
from planner.importers.encoders.file import encoder_file
from planner.importers.onnx.steps import Steps
from planner.importers.seq2seq.folder import Seq2SeqModel
from planner.model.store import Store
from planner.types import WeightFormat


def put_seq2seq(source: Seq2SeqModel, store: Store, weights: WeightFormat = "f32") -> str:
    """The id of the decoder, whose manifest names the encoder."""
    with encoder_file(source.encoder, store) as asked, tempfile.TemporaryDirectory() as folder:
        steps = Steps(asked, Path(folder))
        steps.read()
        done, total = 0, steps.cut()
        while done < total:
            done, total, said = steps.prove()
            assert not said
        encoded = steps.finish()
        made = Store(Path(folder) / "store")
        for blob in made.root.glob("blobs/*"):
            store.put_blob([blob.read_bytes()])
    text = replace(source.text, encoder=store.put_manifest(encoded))
    return build_model(source, weights, store, text=text)
