"""What a speech model has beside its decoder in the store: the encoder, cut like any graph, and the spectrogram."""

from __future__ import annotations

import tempfile
from pathlib import Path

from planner.importers.onnx.asked import SourceGraph
from planner.importers.onnx.importing import Progress, Say, import_graph
from planner.importers.speech.whisper import WhisperModel
from planner.importers.speech.whisper_graphs import spectrogram_file
from planner.model.speech import Speech
from planner.model.store import Store

UNITS_OF_BLOCK = 2  # halves, as those of the decoder


def put_encoded(
    source: WhisperModel, store: Store, progress: Progress | None = None, say: Say | None = None
) -> Speech:
    """Puts encoder and spectrogram into the store; returns what the decoder's manifest says of them. Raises as
    import_graph.
    """
    most = UNITS_OF_BLOCK * source.encoder.blocks + 1
    with tempfile.TemporaryDirectory(prefix="speech-", dir=store.root / "tmp") as folder:
        file = source.write_encoder(Path(folder))
        graph = SourceGraph(file, f"{source.name}.encoder", most_units=most)
        encoder = import_graph(graph, store, progress, say)
    return source.speech(encoder, store.put_blob([spectrogram_file(source.filters)]))
