"""`shoal import`: brings a model into the local store, and finds it there again."""

from __future__ import annotations

import argparse
from pathlib import Path

from peer.launch.terminal import counting, out, say
from peer.member.peer_options import bytes_text
from planner.errors import CorruptStore, NotInStore
from planner.importers.registry import resolve, resolve_any, resolve_encoder
from planner.model.architecture import SourceModel
from planner.model.encoder import SourceEncoder, decode_encoder
from planner.model.manifest import Manifest, decode_manifest
from planner.model.store import PREFIX_DIGITS, Store
from planner.model.units import build_model
from planner.types import WeightFormat


def run_import(args: argparse.Namespace) -> int:
    """Imports a model anew and says what came of it."""
    store = Store(args.store)
    source = resolve_any(args.model, store.root, say)
    if isinstance(source, SourceEncoder):
        return _import_encoder(store, source)
    model_id = _put(store, source, args.weights)
    manifest = decode_manifest(store.manifest_bytes(model_id))
    blobs = {unit.blob.sha256: unit.blob.bytes for unit in manifest.units}
    units = f"{len(manifest.units)} units"
    out.print(
        f"{manifest.name}  {args.weights}  {units}  {bytes_text(sum(blobs.values()))}  {model_id}",
        markup=False,
    )
    return 0


def find_or_import(store: Store, name: str, weights: WeightFormat) -> str:
    """The id of `name` in the store (a model id or its beginning, or a name with these weights), imported if absent."""
    for model_id, manifest in stored(store):
        if manifest.weights == weights and _source_name(name) == manifest.name:
            return model_id
    by_id = [
        model_id for model_id in store.models() if len(name) >= PREFIX_DIGITS and model_id.startswith(name)
    ]
    return by_id[0] if len(by_id) == 1 else bring(store, name, weights)


def stored(store: Store) -> list[tuple[str, Manifest]]:
    """Every model of the store whose manifest can be read and whose blobs are all here."""
    found = []
    for model_id in store.models():
        try:
            manifest = decode_manifest(store.manifest_bytes(model_id))
        except (CorruptStore, NotInStore):
            continue
        if all(store.has_blob(unit.blob) for unit in manifest.units) and store.has_blob(manifest.tokenizer):
            found.append((model_id, manifest))
    return found


def bring(store: Store, name: str, weights: WeightFormat) -> str:
    """Imports `name` into the store; returns the model id. Raises ModelError or StoreError; nothing is half-written."""
    return _put(store, resolve(name, store.root, say), weights)


def bring_encoder(store: Store, name: str) -> str:
    """As `bring`, for an embedding model, which is kept as float32."""
    from planner.model.encoder_graph import put_encoder

    return put_encoder(resolve_encoder(name, store.root, say), store)


def _import_encoder(store: Store, source: SourceEncoder) -> int:
    from planner.model.encoder_graph import put_encoder

    model_id = put_encoder(source, store)
    manifest = decode_encoder(store.manifest_bytes(model_id))
    parts = f"embedding model, {len(manifest.parts)} parts"
    size = bytes_text(sum(part.blob.bytes for part in manifest.parts))
    out.print(f"{manifest.name}  f32  {parts}  {size}  {model_id}", markup=False)
    return 0


def _put(store: Store, source: SourceModel, weights: WeightFormat) -> str:
    from peer.audit.envelope_recording import record  # an engine, which other commands need not wait for

    with counting(f"import {source.name} as {weights}") as progress:
        model_id = build_model(source, weights, store, progress)
    with counting("record how long its rows are") as progress:
        record(store, model_id, progress)
    return model_id


def _source_name(name: str) -> str:
    path = Path(name)
    return path.stem if path.suffix == ".gguf" else name
