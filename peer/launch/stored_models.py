"""What the models of a store are: by their manifests, whatever they are called."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import assert_never

from planner.errors import CorruptStore, NotInStore
from planner.model.graph_manifest import GraphManifest, decode_graph_manifest
from planner.model.manifest import Manifest, decode_manifest
from planner.model.store import BlobRef, Store


class Kind(Enum):
    """What a model does, by the word that programs read."""

    ANSWERS = "answers"
    EMBEDDINGS = "embeddings"
    RANKS = "ranks"
    GRAPH = "graph"
    SPEECH = "speech"


@dataclass(frozen=True, slots=True)
class StoredModel:
    """One model of a store. `kind`: what it does. `units`: names of its units; `blobs`: what it is made of, each once.
    `whole`: every blob is here, so it can be served from this store if none is damaged. What makes rows
    for a model is a part of it.
    """

    model_id: str
    name: str
    weights: str
    kind: Kind
    units: tuple[str, ...]
    blobs: tuple[BlobRef, ...]
    whole: bool
    beside: str = (
        ""  # the id of the model that makes rows for it: its encoder, or what it sees with; "": there is none
    )

    @property
    def bytes(self) -> int:
        """Of its blobs, each counted once."""
        return sum(blob.bytes for blob in self.blobs)


def stored_model(store: Store, model_id: str) -> StoredModel | None:
    """None where there is no such model, or its manifest cannot be read."""
    try:
        manifest = _manifest(store.manifest_bytes(model_id))
    except (CorruptStore, NotInStore):
        return None
    whole, beside = True, ""
    match manifest:
        case GraphManifest():
            kind, weights = _kind(manifest), "onnx"
            units = tuple(unit.name for unit in manifest.units)
            words = () if manifest.text is None else (manifest.text.tokenizer,)
            pixels = () if manifest.picture is None else (manifest.picture.graph,)
            every = (*words, *pixels, *manifest.blobs(0, len(units)))
        case Manifest():
            kind = Kind.ANSWERS if manifest.speech is None else Kind.SPEECH
            weights = manifest.weights
            units = tuple(unit.name for unit in manifest.units)
            every = (manifest.tokenizer, *manifest.blobs(0, len(units)))
            encoder = _encoder_of(manifest)
            if encoder:
                read = stored_model(store, encoder)
                if read is None or read.kind is not Kind.GRAPH:
                    return None
                units = (*(f"encoder.{unit}" for unit in read.units), *units)
                every = (*every, *read.blobs)
            if manifest.speech is not None:
                every = (manifest.speech.spectrogram, *every)
            if manifest.sight is not None:
                seen = stored_model(store, manifest.sight.model)
                whole = seen is not None and seen.kind is Kind.GRAPH and seen.whole
                every += seen.blobs if seen is not None else ()
            beside = encoder or (manifest.sight.model if manifest.sight is not None else "")
        case _:
            assert_never(manifest)
    blobs = {blob.sha256: blob for blob in every}
    return StoredModel(
        model_id,
        manifest.name,
        weights,
        kind,
        units,
        tuple(blobs.values()),
        whole and all(store.has_blob(blob) for blob in blobs.values()),
        beside,
    )


def check_blobs(store: Store, model: StoredModel, progress: Callable[[int, int], None]) -> None:
    """Reads every byte of a model: disks flip bits, too. Raises CorruptStore, or NotInStore, for the first bad blob."""
    done = 0
    for blob in model.blobs:
        if not store.is_sound(blob):
            store.verify_blob(blob)  # and says why
        done += blob.bytes
        progress(done, model.bytes)


def _encoder_of(manifest: Manifest) -> str:
    """The id of the model whose rows each of its conversations begins with; "" where there is none."""
    if manifest.speech is not None:
        return manifest.speech.encoder
    return manifest.source.encoder if manifest.source is not None else ""


def _kind(manifest: GraphManifest) -> Kind:
    text = manifest.text
    if text is None or (text.vectors is None and text.scores is None):
        return Kind.GRAPH
    return Kind.RANKS if text.vectors is None else Kind.EMBEDDINGS


def _manifest(encoded: bytes) -> Manifest | GraphManifest:
    with suppress(CorruptStore):
        return decode_manifest(encoded)
    return decode_graph_manifest(encoded)
