"""What the models of a store are: by their manifests, whatever they are called."""

from __future__ import annotations

from dataclasses import dataclass

from planner.errors import CorruptStore, NotInStore
from planner.model.encoder import EncoderManifest, decode_encoder
from planner.model.manifest import Manifest, decode_manifest
from planner.model.store import Store


@dataclass(frozen=True, slots=True)
class StoredModel:
    """One model of a store. `units`: names of its units, or of the parts of an embedding model; `bytes`: of its blobs,
    each counted once. `whole`: every blob is here, so it can be served from this store.
    """

    model_id: str
    name: str
    weights: str
    answers: bool  # in words; else it makes embeddings
    units: tuple[str, ...]
    bytes: int
    whole: bool


def stored_model(store: Store, model_id: str) -> StoredModel | None:
    """None where there is no such model, or its manifest cannot be read."""
    try:
        manifest = _manifest(store.manifest_bytes(model_id))
    except (CorruptStore, NotInStore):
        return None
    answers = isinstance(manifest, Manifest)
    parts = manifest.units if isinstance(manifest, Manifest) else manifest.parts
    blobs = {blob.sha256: blob for blob in (manifest.tokenizer, *(part.blob for part in parts))}
    return StoredModel(
        model_id,
        manifest.name,
        manifest.weights if isinstance(manifest, Manifest) else "f32",
        answers,
        tuple(part.name for part in parts),
        sum(blob.bytes for blob in blobs.values()),
        all(store.has_blob(blob) for blob in blobs.values()),
    )


def _manifest(encoded: bytes) -> Manifest | EncoderManifest:
    try:
        return decode_manifest(encoded)
    except CorruptStore:
        return decode_encoder(encoded)
