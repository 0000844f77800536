"""A peer with an empty store gets its units from a peer that holds them; the server gives it no weights."""

from __future__ import annotations

import os
import re
from pathlib import Path

import aiohttp
import pytest

from peer.member.joining import Founding, found, join
from peer.member.peer_options import MeshOptions
from peer.model import fetcher
from peer.origin.answer_stream import Delta, Settings
from peer.state.plan_record import route_of
from planner.model.store import Store
from signaling.keys import identity_from_seed
from signaling.server import ServerOptions
from tests.e2e.real_mesh import CONTEXT, Models, options
from tests.patience import WITHIN_S

LAST_UNITS = 56


async def served_bytes(server: str) -> int:
    """What the server counted of blobs and manifests."""
    async with aiohttp.ClientSession() as client, client.get(f"{server}/metrics") as response:
        counted = re.search(r"^shoal_served_bytes_total (\S+)$", await response.text(), re.MULTILINE)
    assert counted is not None
    return int(float(counted[1]))


async def test_units_come_from_the_peer_that_holds_them(
    models: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher, "SLOW_S", 300.0)  # machines that run tests may be busy
    promise = Founding(models.ids["8bit"], MeshOptions(CONTEXT, 2, "latency", ()), ServerOptions())
    key = identity_from_seed(os.urandom(32))
    async with found(promise, options("founder", 0), models.store, key) as founder:
        assert founder.link is not None
        assert founder.manifest is not None
        link, server = founder.link.url(), founder.link.server
        async with join(link, options("first"), models.store, compute=True) as first:
            await founder.until_serving(WITHIN_S)
            before = await served_bytes(server)
            async with join(link, options("second"), Store(tmp_path), compute=True) as second:
                founder.set_cuts((LAST_UNITS,))
                assert await founder.view.until(
                    lambda state: (plan := state.serving()) is not None and second.me in route_of(plan),
                    WITHIN_S,
                )
                conversation = founder.conversation()
                pieces = conversation.complete("The capital of France is", Settings(max_tokens=4))
                assert len([piece async for piece in pieces if isinstance(piece, Delta)]) >= 4
                conversation.close()
                plan = founder.view.state.plan
                assert plan is not None
                own = next(stage for stage in plan.stages if stage.primary == second.me)
                weights = sum(blob.bytes for blob in founder.manifest.blobs(own.first, own.stop))
                assert first.model.pieces is not None
                assert first.model.pieces.given_bytes >= weights
                other = founder.manifest.tokenizer.bytes + (1 << 20)  # of a manifest
                assert await served_bytes(server) - before < other
