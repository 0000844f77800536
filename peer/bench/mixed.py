"""What a mesh of one Python peer and one tab reaches, each with half of the model: the mixed part of `shoal bench
browser`. The founder, which asks, holds the first half; a headless Chromium holds the second.
"""

from __future__ import annotations

import os
import statistics
from contextlib import AsyncExitStack
from typing import Final

from peer.bench.pipeline import balanced_cuts
from peer.bench.pipeline_child import mesh_task
from peer.launch.browsers import TabOptions, open_tab
from peer.member.joining import Founding, found
from peer.member.peer_options import MeshOptions, PeerOptions
from planner.model.manifest import decode_manifest
from planner.model.store import Store
from signaling.app_files import built_app
from signaling.keys import SEED_BYTES, identity_from_seed
from signaling.server import ServerOptions

CONTEXT: Final = 512
PLEDGE_BYTES: Final = 4 << 30
TAB_BYTES: Final = 1_500_000_000  # as much as a page lends at most
SERVE_WITHIN_S: Final = 180.0


async def mixed_tok_s(store: Store, model_id: str, prompt: list[int], tokens: int, rounds: int) -> float:
    """Decode rate of one stream, median of `rounds`. Raises NoBrowser, NoPlan or AnswerFailed."""
    units = len(decode_manifest(store.manifest_bytes(model_id)).units)
    cuts = tuple(int(cut) for cut in balanced_cuts(units, 2).split(","))
    options = PeerOptions("founder", PLEDGE_BYTES, 1, "cpu", "auto", ("127.0.0.1",))
    server = ServerOptions(web_app=built_app())
    promise = Founding(model_id, MeshOptions(CONTEXT, 1, "latency", cuts), server)
    async with AsyncExitStack() as stack:
        key = identity_from_seed(os.urandom(SEED_BYTES))
        mesh = await stack.enter_async_context(found(promise, options, store, key))
        assert mesh.link is not None
        wishes = TabOptions(headless=True, memory_bytes=TAB_BYTES, name="tab")
        await stack.enter_async_context(open_tab("chromium", mesh.link.url(), wishes))
        await mesh.until_serving(SERVE_WITHIN_S)
        await mesh_task(mesh, prompt, 8, 1)  # warms caches and the connection; not counted
        rates: list[float] = [(await mesh_task(mesh, prompt, tokens, 1))["tok_s"] for _ in range(rounds)]
        return statistics.median(rates)
