"""This peer as the one that leads: a coordinator works here for as long as it does, and answers what members ask. Edge.

A coordinator begins with the state that is committed. When a proposal of it is refused, another one begins, once
nothing that was proposed is under way.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from peer.coordination.coordinator_service import Coordinating
from peer.errors import NotLeader
from peer.replication.mesh_view import MeshView
from peer.replication.replica import Replica
from peer.state.generated.commands import Profile
from peer.state.mesh_state import MeshState
from peer.transport.peer_links import PeerLinks
from peer.wire.generated.requests import JOIN, LEADER_REQUESTS, JoinAnswer, JoinRequest
from peer.wire.request_kind import RequestKind, Sender

T = TypeVar("T")
Make = Callable[[MeshState, Replica], Coordinating]

log = logging.getLogger(__name__)


class Leadership:
    """`current` is the coordinator that works here; None: this peer does not lead, or cannot coordinate yet."""

    def __init__(self, links: PeerLinks, view: MeshView) -> None:
        self.current: Coordinating | None = None
        self._links = links
        self._view = view
        self._make: Make | None = None
        self._settling: Replica | None = None  # proposals of a coordinator that ended are under way
        self._led_before = ""  # who led before whoever leads now
        self._ending: set[asyncio.Task[None]] = set()  # coordinators that ended
        self._again: set[asyncio.Task[None]] = set()
        for kind in LEADER_REQUESTS:  # whose senders the coordinator knows better than the links
            answer = self._join if kind is JOIN else partial(self._answer, kind)
            links.on(replace(kind, sender=Sender.ANYONE), answer)
        view.subscribe(self._log_changed)
        view.on_role(self._role_changed)
        view.on_log_lost(lambda _: self.step_down())

    @property
    def is_enabled(self) -> bool:
        """Whether this peer can coordinate."""
        return self._make is not None

    def enable(self, make: Make) -> None:
        """Lets this peer coordinate whenever it leads: `make(state, replica)` begins with what is committed."""
        self._make = make
        self._take_lead()

    def is_fresh(self, peer: str, profile: Profile) -> bool:
        """Returns whether `profile` is what a member measured once more because this peer asked it to."""
        return self.current is not None and self.current.is_fresh(peer, profile)

    async def until_leads(self, timeout_s: float) -> bool:
        """Waits until this peer coordinates; False when the time is over first."""
        return await self._view.until(lambda _: self.current is not None, timeout_s)

    def again(self) -> None:
        """A proposal was refused: a new coordinator begins with what is committed, once no proposal is under way."""
        self.step_down()
        replica = self._view.replica
        if replica is not None and replica.leads:
            self._settling = replica
            reading = asyncio.ensure_future(self._after_proposals(replica))
            self._again.add(reading)
            reading.add_done_callback(self._again.discard)

    def gone(self, peer: str, reason: str) -> None:
        """Takes that the connection to a peer ended."""
        if self.current is not None:
            self.current.gone(peer, reason)

    def tick(self, now: float) -> None:
        """Looks at what time brings about. `now`: monotonic seconds."""
        if self.current is not None:
            self.current.look(now)

    def step_down(self) -> None:
        """Ends the coordinator; what it proposed may still be committed."""
        ended, self.current = self.current, None
        if ended is not None:
            task = asyncio.ensure_future(ended.close())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """Leads no more; no task is left."""
        self._make = None
        for task in list(self._again):
            task.cancel()
        await asyncio.gather(*self._again, return_exceptions=True)
        self.step_down()
        await asyncio.gather(*self._ending)

    # --- inner moves

    def _log_changed(self) -> None:
        if self.current is None:
            self._take_lead()

    def _role_changed(self) -> None:
        replica = self._view.replica
        assert replica is not None
        if not replica.leads:
            self.step_down()
        if replica.leader and replica.leader != self._links.me:
            self._led_before = replica.leader
        self._take_lead()

    def _take_lead(self) -> None:
        """Coordinates once this peer leads, has committed in its own term, and can."""
        replica = self._view.replica
        if replica is None or not replica.ready or replica is self._settling:
            return
        if self.current is not None or self._make is None:
            return
        self.current = self._make(replica.state, replica)
        log.info("this peer coordinates now, term %d", replica.term)
        self.current.begin(self._led_before)

    async def _after_proposals(self, replica: Replica) -> None:
        await replica.settled()
        if self._settling is replica:
            self._settling = None
        self._take_lead()

    async def _join(self, peer: str, said: JoinRequest) -> JoinAnswer:
        """Whoever joins may know the log up to the entry of the answer, and must."""
        index = await self._settled(JOIN, peer, said)
        replica = self._view.replica
        return JoinAnswer(index if replica is None else max(index, replica.order[1]))

    async def _answer(self, kind: RequestKind[T, None], peer: str, said: T) -> None:
        await self._settled(kind, peer, said)

    async def _settled(self, kind: RequestKind[T, Any], peer: str, said: T) -> int:
        """The entry up to which all is committed that was asked for. Raises NotLeader where this peer cannot say so."""
        coordinating = self.current
        if coordinating is None:
            leader = self._view.leader or ""
            why = "another peer coordinates" if leader else "nobody coordinates now"
            raise NotLeader(why, leader if leader != self._links.me else "")
        coordinating.answer(peer, kind, said)
        _, index = await coordinating.settled()
        return index
