"""Meshes of real peers on 127.0.0.1 with the real model: settings, and what tests ask of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from peer.member.mesh_member import MeshMember
from peer.member.peer_options import Disturbance, PeerOptions
from peer.origin.answer_stream import Delta, Settings
from planner.model.store import Store
from planner.types import WeightFormat
from tests.patience import WITHIN_S

PLEDGE = 4 << 30
CONTEXT = 512
UNITS = 62  # of SmolLM2-135M: embed, 30 x (attn, ffn), head


@dataclass(frozen=True, slots=True)
class Models:
    """The store with the real model, imported once per format that is asked for."""

    store: Store
    ids: dict[WeightFormat, str]


def options(
    name: str, memory: int = PLEDGE, transport: str = "aiortc", disturbance: Disturbance | None = None
) -> PeerOptions:
    return PeerOptions(name, memory, 1, "cpu", transport, ("127.0.0.1",), disturbance=disturbance)


Start = Callable[..., AbstractAsyncContextManager[list[MeshMember]]]


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
