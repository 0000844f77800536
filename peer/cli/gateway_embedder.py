"""The embedding model of a gateway: found in the store or imported, then loaded beside the member."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from peer.gateway.embedder import Embedder
from peer.launch.model_import import bring_encoder
from peer.launch.terminal import say
from planner.errors import CorruptStore, NotInStore
from planner.importers.registry import HF_PREFIX
from planner.model.encoder import EncoderManifest, decode_encoder
from planner.model.store import PREFIX_DIGITS, Store


@asynccontextmanager
async def embedder(store: Store, name: str | None, threads: int) -> AsyncIterator[Embedder | None]:
    """What computes embeddings; None when no model is named. Raises ModelError, StoreError or CannotServe."""
    if name is None:
        yield None
        return
    model_id = await asyncio.to_thread(_find_or_import, store, name)
    loaded = await asyncio.to_thread(Embedder, store, model_id, threads)
    try:
        say(
            f"{loaded.name} makes embeddings of {loaded.dimensions} dimensions on this machine, from texts of up to "
            f"{loaded.max_tokens} tokens"
        )
        yield loaded
    finally:
        await asyncio.to_thread(loaded.close)


def _find_or_import(store: Store, name: str) -> str:
    """A model id or its beginning, or the name of a stored model; imported if absent."""
    found = _stored(store)
    for model_id, manifest in found:
        if name.removeprefix(HF_PREFIX) == manifest.name:
            return model_id
    by_id = [model_id for model_id, _ in found if len(name) >= PREFIX_DIGITS and model_id.startswith(name)]
    return by_id[0] if len(by_id) == 1 else bring_encoder(store, name)


def _stored(store: Store) -> list[tuple[str, EncoderManifest]]:
    found = []
    for model_id in store.models():
        try:
            manifest = decode_encoder(store.manifest_bytes(model_id))
        except (CorruptStore, NotInStore):
            continue
        if all(
            store.has_blob(blob) for blob in (manifest.tokenizer, *(part.blob for part in manifest.parts))
        ):
            found.append((model_id, manifest))
    return found
