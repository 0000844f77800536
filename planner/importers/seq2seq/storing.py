"""What an encoder-decoder model has beside its decoder in the store: the encoder, cut like any graph."""

from __future__ import annotations

from dataclasses import replace

from planner.importers.encoders.file import encoder_file
from planner.importers.onnx.importing import Progress, Say, import_graph
from planner.importers.seq2seq.folder import Seq2SeqModel
from planner.model.source_text import SourceText
from planner.model.store import Store


def put_encoder(
    source: Seq2SeqModel, store: Store, progress: Progress | None = None, say: Say | None = None
) -> SourceText:
    """Puts the encoder into the store; returns what the decoder's manifest says of source texts. Raises as
    import_graph.
    """
    with encoder_file(source.encoder, store) as file:
        return replace(source.text, encoder=import_graph(file, store, progress, say))
