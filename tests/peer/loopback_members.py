"""Members over real connections on loopback, with a made-up model and a hand-made log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from peer.coordination.coordinator import Coordinator
from peer.coordination.coordinator_service import Coordinating
from peer.errors import ConnectFailed
from peer.limits import LOWEST_VERSION
from peer.member.peer_parts import PeerParts
from peer.replication.log_keeping import LogKeeping
from peer.replication.replica import Replica
from peer.state.generated.commands import (
    MemberJoined,
    ModelChosen,
    PlanRecord,
)
from peer.state.mesh_state import MeshState, apply
from peer.transport.engines.choose import choose_engine
from peer.transport.engines.settings import EngineSettings
from peer.wire.generated.frames import Hello
from planner.model.store import Store
from planner.types import Unit
from signaling.presence import SignalKind
from tests.patience import WITHIN_S

MIB = 1 << 20
UNITS = (
    Unit("embed", "embed", 0, 0, 0, 64),
    Unit("attn.0", "attn", 10 * MIB, 0, 1024, 64),
    Unit("ffn.0", "ffn", 20 * MIB, 0, 0, 64),
    Unit("head", "head", 40 * MIB, 0, 0, 4),
)
MODEL = ModelChosen("a" * 64, "toy", len(UNITS), 128, 2, "latency")


class Town:
    """Nodes that find each other without a server, and how often somebody was signalled who does not exist."""

    def __init__(self) -> None:
        self.nodes: dict[str, PeerParts] = {}
        self.strangers: list[str] = []
        self.ids = 0

    def add(self, name: str, *, beside: bool = False) -> PeerParts:
        """`beside`: another node of the same id, which only dials, as a program that was started twice."""
        make = choose_engine("aiortc")

        async def signal(kind: SignalKind, peer: str, connection: bytes, text: str) -> None:
            other = answerers.get(connection) or self.nodes.get(peer)
            if other is None:
                self.strangers.append(peer)
                raise ConnectFailed(f"{peer} is not here")
            answerers[connection] = node
            asyncio.get_running_loop().call_soon(other.links.dialer.described, name, connection, kind, text)

        def new_id() -> bytes:
            self.ids += 1
            return self.ids.to_bytes(16, "big")

        answerers = self.__dict__.setdefault("answerers", {})
        hello = Hello(LOWEST_VERSION, name, name, "test")
        engine = lambda: make(EngineSettings(("127.0.0.1",)))  # noqa: E731
        node = PeerParts(hello, engine, signal, new_id, Store(Path("/nonexistent")))
        if not beside:
            self.nodes[name] = node
        node.start()
        return node


@asynccontextmanager
async def town() -> AsyncIterator[Town]:
    made = Town()
    try:
        yield made
    finally:
        await asyncio.gather(*(node.close("the test is over") for node in made.nodes.values()))


async def until(holds: Callable[[], bool]) -> None:
    """Looks again each time a real transport below may have moved something."""
    async with asyncio.timeout(WITHIN_S):
        while not holds():  # noqa: ASYNC110 - no one event tells of all that the cases wait for
            await asyncio.sleep(0.005)


def coordinate(node: PeerParts) -> Coordinating:
    """Makes `node` the only voter of a mesh, which leads at once: its log is in memory."""

    def made(state: MeshState, replica: Replica) -> Coordinating:
        return Coordinating(Coordinator(node.me, UNITS, None, state), replica, lambda peer: True)

    node.leadership.enable(made)
    node.view.take_part(LogKeeping("mesh", node.me, None).found(MeshState()), None)
    assert node.leadership.current is not None
    node.leadership.current.submit(MODEL)
    node.leadership.current.submit(MemberJoined(node.me, "founder", True))
    return node.leadership.current


def state_of(*peers: str, plan: PlanRecord | None = None) -> MeshState:
    state = apply(MeshState(term=1), MODEL)
    for peer in peers:
        state = apply(state, MemberJoined(peer, peer, True))
    return replace(state, plan=plan)
