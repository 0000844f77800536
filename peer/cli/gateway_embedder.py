"""The embedding model of a gateway: found in the store or imported, then loaded beside the member."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from peer.gateway.embedder import Embedder, LocalEncoder
from peer.launch.model_import import find_or_import_encoder
from peer.launch.terminal import say
from planner.model.store import Store


@asynccontextmanager
async def embedder(store: Store, name: str | None, threads: int) -> AsyncIterator[Embedder | None]:
    """What computes embeddings; None when no model is named. Raises ModelError, StoreError or CannotServe."""
    if name is None:
        yield None
        return
    model_id = await asyncio.to_thread(find_or_import_encoder, store, name)
    loaded = Embedder(await asyncio.to_thread(LocalEncoder, store, model_id, threads))
    try:
        say(
            f"{loaded.name} makes embeddings of {loaded.dimensions} dimensions on this machine, from texts of up to "
            f"{loaded.max_tokens} tokens"
        )
        yield loaded
    finally:
        await asyncio.to_thread(loaded.close)
