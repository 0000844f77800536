"""The parts of one peer, made and wired: links, view, model, stages, sessions, leadership, and the router between them.

Edge. Each part takes those below it; nothing is put into one after it was made. `peer.member.mesh_member` adds what a
membership is.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Final

from peer.coordination.leadership import Leadership
from peer.member.decoder_parts import AllDecoders
from peer.member.frame_router import FrameRouter
from peer.member.model_parts import ModelParts
from peer.replication.mesh_view import MeshView
from peer.stage.flow_host import FlowHost
from peer.stage.team_host import TeamHost
from peer.transport.connection import Engine
from peer.transport.peer_links import PeerLinks
from peer.transport.ticker import Ticks
from peer.transport.udp_relay import ThirdPeer
from peer.wire.generated.frames import Hello
from planner.model.store import Store
from signaling.presence import SignalKind

TICK_S: Final = 0.25  # leases of stages are looked at this often
IDLE_TICK_S: Final = 0.5  # the same where no session is computed

log = logging.getLogger(__name__)


class PeerParts:
    """`signal`, `new_id` and `third` are those of `PeerLinks`, `patient` is that of `MeshView`."""

    def __init__(
        self,
        hello: Hello,
        engine: Callable[[], Engine],
        signal: Callable[[SignalKind, str, bytes, str], Awaitable[None]],
        new_id: Callable[[], bytes],
        store: Store,
        *,
        third: ThirdPeer | None = None,
        patient: bool = False,
    ) -> None:
        self.ticks = Ticks()
        self.links = PeerLinks(hello, engine, signal, new_id, third)
        self.view = MeshView(self.links, patient=patient)
        self.leadership = Leadership(self.links, self.view)
        numbers = count(1)
        self.own = ModelParts(self.links, self.view, store, numbers)
        self.model, self.stage, self.sessions = self.own.model, self.own.stage, self.own.sessions
        self.decoders = AllDecoders(self.links, self.view, store, numbers)
        self.flow = FlowHost(self.links, self.view, store)
        self.teams = TeamHost(self.links, self.view)
        self.router = FrameRouter(
            self.links, self.view, self.own, self.decoders, self.flow, self.teams, self.leadership
        )
        self.links.start(self.router.frame)
        self._ticker: asyncio.Task[None] | None = None

    @property
    def me(self) -> str:
        """The id of this peer."""
        return self.links.me

    def start(self) -> None:
        """Begins to watch deadlines."""
        self._ticker = asyncio.ensure_future(self._tick())

    async def close(self, reason: str) -> None:
        """Says goodbye to everyone and stops; answers under way end with an error. No task is left."""
        if self._ticker is not None:
            self._ticker.cancel()
            await asyncio.gather(self._ticker, return_exceptions=True)
        why = f"this peer leaves the mesh: {reason}"
        await self.decoders.close(why)
        await self.flow.close()
        await self.teams.close()
        await self.own.close(why)
        await self.links.stop_answering()
        await self.leadership.close()
        await self.view.close()
        await self.links.close(reason)

    async def leave_log(self) -> None:
        """Forgets what this peer knows of the mesh, which is void: it is to begin anew."""
        self.leadership.step_down()
        await self.view.leave_log()

    async def _tick(self) -> None:
        while True:
            stages = (self.stage, *(each.parts.stage for each in self.decoders))
            await asyncio.sleep(TICK_S if any(stage.core.active() for stage in stages) else IDLE_TICK_S)
            self.ticks.tick(asyncio.get_running_loop().time())
            try:
                now = time.monotonic()
                for stage in stages:
                    stage.tick(now)
                self.flow.tick(now)
                self.view.tick(now)
                self.leadership.tick(now)
            except Exception:  # a defect in one session must not end the deadlines of all others
                log.exception("looking at deadlines failed")
