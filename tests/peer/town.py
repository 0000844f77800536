"""Members of a mesh in one process, on links that a test cuts and mends: no sockets, no models."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from peer.consensus.events import Settings
from peer.conversation.entry_links import is_proven
from peer.coordination.coordinator import Coordinator
from peer.coordination.coordinator_service import Coordinating, Gate
from peer.coordination.voter_policy import Patience
from peer.errors import ConnectFailed, ConnectionLost, PeerError
from peer.limits import HIGHEST_VERSION, LOWEST_VERSION
from peer.member.mesh_entry import enter
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import PeerOptions
from peer.member.peer_parts import PeerParts
from peer.member.progress import silent
from peer.replication.log_keeping import LogKeeping
from peer.replication.replica import Replica
from peer.state.generated.commands import ModelChosen
from peer.state.mesh_state import MeshState
from peer.transport.connection import Engine
from peer.transport.dialer import Dialer
from peer.transport.signaling_client import SignalingClient
from peer.wire.generated.frames import Frame, Hello
from planner.model.store import Store
from planner.types import Unit
from signaling.invites import Role
from tests.patience import WITHIN_S

UNITS = (Unit("embed", "embed", 0, 0, 0, 64), Unit("head", "head", 1 << 20, 0, 0, 4))
MODEL = ModelChosen("a" * 64, "toy", len(UNITS), 128, 2, "latency")
QUICK = Settings(heartbeat_ms=50, election_min_ms=250, election_max_ms=500)
HASTY = Patience(settle_ms=1, long_ms=1, lost_ms=60_000, gone_ms=600_000)
NAME = "town"


class Links:
    """Stands for a peer's dialer."""

    def __init__(self, town: Town, me: str) -> None:
        self.me = me
        self._town = town

    def connection(self, peer: str) -> object | None:
        if self._town.linked(self.me, peer):
            return SimpleNamespace(rtt_s=0.001, timeout_s=0.01, queued_bytes=0)
        return None

    def connected_peers(self) -> tuple[str, ...]:
        return tuple(sorted(peer for peer in self._town.members if self._town.linked(self.me, peer)))

    def speaks(self, peer: str) -> int:
        return self._town.spoken.get(peer, HIGHEST_VERSION)

    def send(self, peer: str, frame: Frame) -> None:
        if not self._town.linked(self.me, peer):
            raise ConnectionLost(f"there is no connection to {peer}")
        self._town.carry(self.me, peer, frame)

    async def dial(self, peer: str) -> None:
        if not self._town.reaches(self.me, peer):
            raise ConnectFailed(f"{peer} is not here")
        self._town.link(self.me, peer)

    def prepare(self, peer: str) -> None:
        if self._town.reaches(self.me, peer):
            self._town.link(self.me, peer)

    async def hang_up(self, peer: str, reason: str) -> None:
        self._town.unlink(self.me, peer, reason, True)

    async def close(self, reason: str) -> None:
        for peer in self.connected_peers():
            self._town.unlink(self.me, peer, reason, True)


class Town:
    """All members. A pair that is `cut` gets nothing of each other, and hears of no end: as a frozen machine."""

    def __init__(self) -> None:
        self.members: dict[str, MeshMember] = {}
        self.cut: set[frozenset[str]] = set()
        self.spoken: dict[str, int] = {}  # of those that do not speak the newest version of the protocol
        self.deaf: set[tuple[str, str]] = set()  # from the first to the second nothing comes through
        self._links: set[frozenset[str]] = set()

    def add(self, name: str, folder: Path | None = None, *, patient: bool = False) -> MeshMember:
        """A peer that is in no mesh yet."""
        hello = Hello(LOWEST_VERSION, name, name, "test")

        def engine() -> Engine:
            raise AssertionError("nothing is dialled here")

        async def signal(*_: Any) -> None:
            raise AssertionError("nobody is signalled here")

        parts = PeerParts(
            hello, engine, signal, lambda: bytes(16), Store(Path("/nonexistent")), patient=patient
        )
        parts.links.dialer = cast(Dialer, Links(self, name))
        client = cast(SignalingClient, _Room(self, name))
        kept = LogKeeping(NAME, name, folder / name if folder is not None else None)
        mesh = MeshMember(parts, client, kept, silent, pace=QUICK, handover_grace_s=0.0)
        self.members[name] = mesh

        def coordinate(state: MeshState, replica: Replica) -> Coordinating:
            decides = Coordinator(name, UNITS, None, state)
            return Coordinating(
                *(decides, replica, lambda _: True, None),
                *(parts.leadership.again, parts.links.is_connected, HASTY),
                Gate(lambda peer: self.spoken.get(peer, HIGHEST_VERSION), partial(is_proven, NAME)),
            )

        parts.leadership.enable(coordinate)
        parts.start()
        return mesh

    async def found(self, name: str, folder: Path | None = None) -> MeshMember:
        """The first member."""
        mesh = self.add(name, folder)
        mesh.take_part(mesh.log.found(MeshState()))
        await mesh.leadership.until_leads(WITHIN_S)
        assert mesh.leadership.current is not None
        mesh.leadership.current.submit(MODEL)
        await enter(mesh, options(name), True, WITHIN_S)
        return mesh

    async def join(self, name: str, folder: Path | None = None, *, compute: bool = True) -> MeshMember:
        """One more member."""
        mesh = self.add(name, folder, patient=not compute)
        await self.enter(mesh)
        return mesh

    async def enter(self, mesh: MeshMember) -> None:
        await enter(mesh, options(mesh.me), not mesh.view.patient, WITHIN_S)

    def watch(self, mesh: MeshMember) -> None:
        """Has a member look for the mesh whenever it is left out."""
        mesh.watch_leader(lambda: enter(mesh, options(mesh.me), True, 1.0))

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(WITHIN_S):
            while not holds():  # noqa: ASYNC110 - what is waited for is told by many events
                await asyncio.sleep(0.005)

    def leader(self) -> MeshMember | None:
        """The one that leads in the highest term, if it can say so to a majority."""
        leading = [mesh for mesh in self.members.values() if mesh.leadership.current is not None]
        return max(leading, key=lambda mesh: mesh.view.replica.term if mesh.view.replica else 0, default=None)

    def voters(self, mesh: MeshMember) -> tuple[str, ...]:
        return mesh.view.replica.config.voters if mesh.view.replica is not None else ()

    def freeze(self, name: str) -> None:
        """Nothing from it and nothing to it, and nobody is told."""
        self.cut |= {frozenset((name, other)) for other in self.members if other != name}

    def thaw(self, name: str) -> None:
        self.cut = {pair for pair in self.cut if name not in pair}

    def kill(self, name: str) -> MeshMember:
        """Ends without a word; others find out by silence."""
        mesh = self.members.pop(name)
        self._links = {pair for pair in self._links if name not in pair}
        return mesh

    # --- links

    def reaches(self, one: str, other: str) -> bool:
        """Whether both are alive, and not cut off from each other."""
        return {one, other} <= self.members.keys() and frozenset((one, other)) not in self.cut

    def linked(self, one: str, other: str) -> bool:
        return frozenset((one, other)) in self._links

    def link(self, one: str, other: str) -> None:
        if not self.linked(one, other):
            self._links.add(frozenset((one, other)))
            for peer, there in ((one, other), (other, one)):
                self.members[peer].links.connected(there)

    def unlink(self, one: str, other: str, reason: str, polite: bool) -> None:
        if self.linked(one, other):
            self._links.discard(frozenset((one, other)))
            for peer, there in ((one, other), (other, one)):
                if peer in self.members:
                    self.members[peer].links.disconnected(there, reason, polite)

    def carry(self, source: str, to: str, frame: Frame) -> None:
        asyncio.get_running_loop().call_soon(self._deliver, source, to, frame)

    def _deliver(self, source: str, to: str, frame: Frame) -> None:
        if self.reaches(source, to) and (source, to) not in self.deaf:
            try:
                self.members[to].links.frame(source, frame)
            except PeerError as error:
                self.unlink(to, source, f"{type(error).__name__}: {error}", False)


class _Room:
    """Stands for the signaling client: who is there."""

    def __init__(self, town: Town, me: str) -> None:
        self._town = town
        self._me = me

    def members(self) -> dict[str, Any]:
        return {name: SimpleNamespace(role=Role.PEER) for name in self._town.members if name != self._me}

    def also(self, addresses: object) -> None:
        return


def options(name: str) -> PeerOptions:
    return PeerOptions(name, 1 << 30, 1, "cpu", "aiortc", ())


@asynccontextmanager
async def town() -> AsyncIterator[Town]:
    made = Town()
    try:
        yield made
    finally:
        for mesh in list(made.members.values()):
            await mesh.close("the test is over")
