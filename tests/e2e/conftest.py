"""The real model in a store, and meshes of real peers on 127.0.0.1."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from peer.member.joining import Founding, found, join
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import Disturbance, MeshOptions, PeerOptions
from peer.origin.answer_stream import Delta, Settings
from planner.model.store import Store
from planner.types import WeightFormat
from signaling.keys import identity_from_seed
from signaling.server import ServerOptions
from tests.imported import imported
from tests.measured import measured_once
from tests.patience import WITHIN_S

PLEDGE = 4 << 30
CONTEXT = 512
UNITS = 62  # of SmolLM2-135M: embed, 30 x (attn, ffn), head


@dataclass(frozen=True, slots=True)
class Models:
    """The store with the real model, imported once per format that is asked for."""

    store: Store
    ids: dict[WeightFormat, str]


@pytest.fixture(scope="session")
def models(smollm2_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Models]:
    with imported(smollm2_gguf, tmp_path_factory.mktemp("store")) as (store, ids):
        yield Models(store, ids)


@pytest.fixture(scope="session", autouse=True)
def one_measurement() -> Iterator[None]:
    with measured_once():
        yield


def options(
    name: str, memory: int = PLEDGE, transport: str = "aiortc", disturbance: Disturbance | None = None
) -> PeerOptions:
    return PeerOptions(name, memory, 1, "cpu", transport, ("127.0.0.1",), disturbance=disturbance)


Start = Callable[..., AbstractAsyncContextManager[list[MeshMember]]]


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


async def until(holds: Callable[[], bool]) -> None:
    """Waits until what a mesh does of itself has come about."""
    async with asyncio.timeout(WITHIN_S):
        while not holds():  # noqa: ASYNC110 - what is waited for is told by many events
            await asyncio.sleep(0.02)


async def tokens_of(mesh: MeshMember, prompt: list[int], settings: Settings) -> list[int]:
    """An answer in a session of its own."""
    conversation = mesh.conversation()
    try:
        pieces = conversation.tokens(prompt, settings)
        return [piece.token async for piece in pieces if isinstance(piece, Delta) and piece.token >= 0]
    finally:
        conversation.close()
