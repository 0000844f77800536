"""The real model in a store, and meshes of real peers on 127.0.0.1."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from peer.member.joining import Founding, found, join
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import Disturbance, MeshOptions
from planner.types import WeightFormat
from signaling.keys import identity_from_seed
from signaling.server import ServerOptions
from tests.e2e.real_mesh import CONTEXT, PLEDGE, Models, Start, options
from tests.imported import imported
from tests.measured import measured_once


@pytest.fixture(scope="session")
def models(smollm2_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Models]:
    with imported(smollm2_gguf, tmp_path_factory.mktemp("store")) as (store, ids):
        yield Models(store, ids)


@pytest.fixture(scope="session", autouse=True)
def one_measurement() -> Iterator[None]:
    with measured_once():
        yield


@pytest.fixture
def start(models: Models) -> Start:
    """`async with start(cuts, peers) as meshes:` the founder first, then the joined ones, all in this process."""

    @asynccontextmanager
    async def started(
        cuts: tuple[int, ...] | None,
        peers: int,
        *,
        weights: WeightFormat = "8bit",
        sessions: int = 8,
        memory: int = PLEDGE,
        transport: str = "aiortc",
        disturbed: Callable[[str], Disturbance | None] = lambda _: None,
    ) -> AsyncIterator[list[MeshMember]]:
        promise = Founding(
            models.ids[weights], MeshOptions(CONTEXT, sessions, "latency", cuts), ServerOptions()
        )
        key = identity_from_seed(os.urandom(32))
        async with AsyncExitStack() as stack:
            founder = await stack.enter_async_context(
                found(
                    promise,
                    options("founder", memory, transport, disturbed("founder")),
                    models.store,
                    key,
                )
            )
            assert founder.link is not None
            meshes = [founder]
            for number in range(1, peers):
                entering = join(
                    founder.link.url(),
                    options(f"peer{number}", memory, transport, disturbed(f"peer{number}")),
                    models.store,
                    compute=True,
                )
                meshes.append(await stack.enter_async_context(entering))
            yield meshes

    return started
