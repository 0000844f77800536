"""An embedding model of the store as an ONNX file, so that its encoder can be cut like any other graph. Edge."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from planner.importers.onnx.asked import SourceGraph
from planner.model.encoder import decode_encoder
from planner.model.store import Store

SIZES: Final = (("batch", 2), ("length", 16))  # of the texts that the import is tried with


@contextmanager
def encoder_file(store: Store, model_id: str) -> Iterator[SourceGraph]:
    """The file, as long as the block lasts: its weights are the blobs of the store. Raises CorruptStore, NotInStore."""
    from planner.model.encoder_graph import encoder_graph  # with onnx, which takes time

    manifest = decode_encoder(store.manifest_bytes(model_id))
    with tempfile.TemporaryDirectory(prefix="encoder-", dir=store.root / "tmp") as folder:
        for part in manifest.parts:
            blob, name = store.blob_path(part.blob.sha256), Path(folder) / part.blob.sha256
            try:
                os.link(blob, name)
            except OSError:  # a file system without links
                shutil.copyfile(blob, name)
        file = Path(folder) / "encoder.onnx"
        file.write_bytes(encoder_graph(manifest))
        tokenizer = store.blob_path(manifest.tokenizer.sha256)
        longest = manifest.numbers.max_tokens
        yield SourceGraph(file, manifest.name, sizes=SIZES, tokenizer=tokenizer, longest=longest)
